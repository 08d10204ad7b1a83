"""What the disk can do: 1 KiB written into a file that is there already, and synced."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

SIZE = 8 * 1024 * 1024
BLOCK = os.urandom(1024)

_sync = getattr(os, "fdatasync", os.fsync)


class RawFile:
    """A file full of zeros; each write goes to the next KiB, round and round."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        self._at = 0
        os.pwrite(self._descriptor, bytes(SIZE), 0)
        os.fsync(self._descriptor)

    def write(self) -> None:
        os.pwrite(self._descriptor, BLOCK, self._at)
        _sync(self._descriptor)
        self._at = (self._at + len(BLOCK)) % SIZE

    def rate(self, seconds: float) -> float:
        """Synced writes per second, one after the other."""
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self.write()
            count += 1
        return count / (time.perf_counter() - start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
