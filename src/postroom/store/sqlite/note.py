"""The note of how far a room reached when a message was last confirmed: 28 bytes in the room's lock file.

SQLite ends a log at the first frame that is damaged, and takes an emptied log for a new one. Without the note a
room whose messages still lie in the log would then look like a room without messages. The note is written after
the log was synced and before the sender is answered, and is not synced itself. After a power cut it may be older
than the room, but it never promises more than the disk holds.

A room without a note (of an earlier version, or copied without its lock file) promises nothing. The quick look
(`store.peek`) loads this module too, so it imports little.
"""

from __future__ import annotations

import os
import struct
from binascii import crc32

from ...constants import NOTE_AT

AT = NOTE_AT
_BODY = struct.Struct("<QQ8s")
_SUM = struct.Struct("<I")
LENGTH = _BODY.size + _SUM.size
END = AT + LENGTH


# The number of the last confirmed change, and the position and value of the salts of its last log frame.
Note = tuple[int, int, bytes]
NOTHING: Note = (0, 0, b"")


def pack(note: Note) -> bytes:
    body = _BODY.pack(*note)
    return body + _SUM.pack(crc32(body))


def unpack(written: bytes) -> Note:
    """Return the note in these bytes; a missing or damaged one promises nothing."""
    body, checksum = written[: _BODY.size], written[_BODY.size :]
    if len(checksum) != _SUM.size or _SUM.unpack(checksum)[0] != crc32(body):
        return NOTHING
    number, place, salts = _BODY.unpack(body)
    return number, place, salts


def number_in(lock_file: str) -> int:
    """Return the number of the last confirmed change, from a lock file."""
    try:
        descriptor = os.open(lock_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return unpack(os.pread(descriptor, LENGTH, AT))[0]
    finally:
        os.close(descriptor)
