"""The rules of the house, as pure verdicts: values in, a value or a refusal out.

Policy knows the model. It refuses to know stores, clocks (time is handed in) and callers.
The service is the only room that asks it.
"""

from __future__ import annotations

from ..loading import on_demand

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from . import (
        admission,
        agreeing,
        hops,
        ladder,
        limits,
        outgoing,
        presence,
        ranking,
        reach,
        retention,
        retry,
        ringing,
        routing,
        telling,
        timers,
        trust,
    )

__all__ = [
    "admission",
    "agreeing",
    "hops",
    "ladder",
    "limits",
    "outgoing",
    "presence",
    "ranking",
    "reach",
    "retention",
    "retry",
    "ringing",
    "routing",
    "telling",
    "timers",
    "trust",
]

__getattr__ = on_demand(__name__, __all__)
