"""Did any file in the room's folder come, go or change places with another?

The folder's own time tells, in one question. To ask after each of the room's files by its path takes three times
as long, and every commit wants to know.
"""

from __future__ import annotations

import os
import time

_SECOND = 1_000_000_000  # nanoseconds
# A time may be as coarse as a tick of the kernel: what is done within one leaves the same time. Once the time is
# older than that, whatever comes next leaves another one.
_SETTLED = _SECOND // 10


class Folder:
    """What was looked over in it is still there as long as `is_untouched`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._trusted = (0, 0)

    def is_untouched(self) -> bool:
        """Since `trust`. If not, look everything over, then trust it again."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        self._seen = (found.st_mtime_ns, found.st_ino)
        return self._seen == self._trusted

    def trust(self) -> None:
        """All that counts in it was just looked over, after `is_untouched` was asked."""
        changed = self._seen[0]
        is_coarse = changed % _SECOND == 0  # a file system that knows no more than seconds
        if not is_coarse and time.time_ns() - changed > _SETTLED:
            self._trusted = self._seen
