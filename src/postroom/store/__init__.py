"""Where mail is kept. One protocol (`base`), several stores, one contract suite that proves them alike.

A store knows the model and nothing above it: no policy, no service. It promises only what `base` says.

    opening        from an address to a store
    memory         a store in memory: its questions; searching, counting, matching: what it asks of each letter
    memory_tables  what it keeps, and what each write does to that
    sqlite         a store in a SQLite file
    bells          waking those who wait in other processes
    ears           how they listen; loaded by whoever waits
    house_bells    waking those who wait in the same process
"""

from __future__ import annotations

from ..loading import on_demand

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from . import (
        ears,
    )

__all__ = [
    "ears",
]

__getattr__ = on_demand(__name__, __all__)
