"""Sees that a file in a folder changes, at once, where the system tells (Linux)."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ..store.ears import add_watch, open_inotify

if TYPE_CHECKING:
    from collections.abc import Callable

_IN_MODIFY = 0x2  # written to, or emptied


class Eye:
    """Made inside an event loop. `saw` is called there."""

    def __init__(self, path: str, saw: Callable[[], None]) -> None:
        self._path = path
        self._saw = saw
        self._events = open_inotify()
        if self._events is not None:
            asyncio.get_running_loop().add_reader(self._events, self._read)

    def look(self) -> None:
        """From now on. To be said again and again: the folder may have been made anew."""
        if self._events is not None:
            with suppress(OSError):  # it is gone, or there are too many eyes; then files are looked at later
                add_watch(self._events, self._path, _IN_MODIFY)

    def close(self) -> None:
        if self._events is not None:
            asyncio.get_running_loop().remove_reader(self._events)
            os.close(self._events)
            self._events = None

    def _read(self) -> None:
        if self._events is not None:
            with suppress(BlockingIOError):
                os.read(self._events, 2**16)
            self._saw()
