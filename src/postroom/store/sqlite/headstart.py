"""The disk begins to write before anybody waits for it (Linux): what is done in between takes no time of its own.

Only a hint, which promises nothing. What was not written by then, the sync writes; what could not be, it tells.
Loaded by whoever syncs again and again.
"""

from __future__ import annotations

import ctypes

_BEGIN_TO_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_call = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _call is not None:
    _call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def begin_to_write(descriptor: int) -> None:
    """All of the file that waits to be written."""
    if _call is not None:
        _call(descriptor, 0, 0, _BEGIN_TO_WRITE)
