"""Loading libraries: with as little as they need, and never interrupted in the middle."""

from __future__ import annotations

import sys
from _signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask  # type: ignore[import-not-found] # it is light

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from typing import Any


class Uninterrupted:
    """Ctrl-C waits until the block is left: a library in C whose loading is interrupted may crash the program."""

    def __enter__(self) -> None:
        pthread_sigmask(SIG_BLOCK, {SIGINT})

    def __exit__(self, *how: object) -> None:
        pthread_sigmask(SIG_UNBLOCK, {SIGINT})


def load_msgspec() -> None:
    """Import msgspec without what it would load and we never use: typing_extensions, from which it takes type
    hints where that is installed (since Python 3.11 typing has all it uses), and what describes types and writes
    JSON schemas. For one moment there is no such thing. Who needs them later gets them, and a msgspec that cannot
    do without is imported whole.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    schemas: Any = type(sys)("msgspec._json_schema")
    schemas.schema = schemas.schema_components = None
    left_out = {
        "typing_extensions": None,  # an import of it fails now, as if it were not installed
        "msgspec.inspect": type(sys)("msgspec.inspect"),
        "msgspec._json_schema": schemas,
    }
    modules |= left_out
    try:
        import msgspec  # noqa: F401, PLC0415 - the point of it
    except ImportError:
        pass  # whoever needs it next imports it whole
    finally:
        for name in left_out:
            del modules[name]
