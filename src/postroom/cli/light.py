"""Loading the library with as little as it needs."""

from __future__ import annotations

import sys
from typing import Any


def load_msgspec() -> None:
    """Import msgspec without typing_extensions, from which it takes type hints where that is installed: a third of
    its weight. Since Python 3.11 typing has all it uses, so for one moment there is no such thing.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["typing_extensions"] = None  # an import of it fails now, as if it were not installed
    try:
        import msgspec  # noqa: F401, PLC0415 - the point of it
    finally:
        del modules["typing_extensions"]
