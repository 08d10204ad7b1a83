"""Space set aside for a full disk: letters must not take the last of it, so that mail can still be done with.

A file of the log's size and a little more. Once the disk is full, it is given up: then the main file can take in
the whole log, the log starts over in the space it has, and acks go on. Letters wait until it is there again.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

MARGIN = 512 * 1024  # more than the log: what a good many acks add to the room

_allocate = getattr(os, "posix_fallocate", None)  # Linux; elsewhere zeros are written
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Reserve:
    """Looked after under the writers' lock; opened only when it must change."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.reserve"

    def keep(self, log_size: int) -> None:
        """Set aside what a log of this size needs. OSError where that cannot be done; see `is_full`."""
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            held = os.fstat(descriptor).st_size
            if held < log_size + MARGIN:
                _allot(descriptor, held, log_size + MARGIN)
        finally:
            os.close(descriptor)

    def spend(self) -> None:
        """Give it up, if it is there."""
        with suppress(OSError):
            descriptor = os.open(self._path, _FLAGS, 0o600)  # not by its name: that may be a link to another file
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


def is_full(failed: OSError) -> bool:
    """Was there no space, or did something else go wrong, which says nothing about space?"""
    return failed.errno in {errno.ENOSPC, errno.EDQUOT}


def _allot(descriptor: int, held: int, size: int) -> None:
    """Blocks, not a promise of blocks: a file of holes would set nothing aside."""
    try:
        if _allocate is None:
            os.pwrite(descriptor, bytes(size - held), held)
        else:
            _allocate(descriptor, held, size - held)
    except OSError:
        os.ftruncate(descriptor, held)  # the little that it got is of more use to others
        raise
