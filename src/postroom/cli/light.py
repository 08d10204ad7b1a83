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


def load_pathlib() -> None:
    """Import pathlib without urllib.parse, which up to Python 3.12 it loads for `Path.as_uri` alone. A stand-in
    calls the real one, should anybody ask.
    """
    if "pathlib" in sys.modules or "urllib.parse" in sys.modules:
        return
    stand_in = type(sys)("urllib.parse")
    vars(stand_in)["quote_from_bytes"] = _quote_from_bytes
    sys.modules["urllib.parse"] = stand_in
    try:
        import pathlib  # noqa: F401, PLC0415 - the point of it
    finally:
        del sys.modules["urllib.parse"]


def _quote_from_bytes(*words: Any, **options: Any) -> str:
    from urllib.parse import quote_from_bytes  # noqa: PLC0415 - see above

    return quote_from_bytes(*words, **options)
