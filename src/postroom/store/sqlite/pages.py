"""SQLite's pages and rows, read without SQLite: for rooms that it refuses to read.

Format: sqlite.org/fileformat2.html. Nothing here trusts a length or a pointer; what does not fit is skipped.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row = tuple[Any, ...]

LOG_HEAD, FRAME_HEAD = 32, 24
_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE = 0x02, 0x0A, 0x0D
_FILE_HEAD = 100  # bytes before the first page's own head
_INTS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes
_USUAL = 4096
_BIG = b"\x37\x7f\x06\x83"  # the log of a machine that puts the high byte first


def page_size(room: bytes, log: bytes) -> int:
    """As the room's file says, or its log; the usual one if neither makes sense."""
    said = (int.from_bytes(room[16:18], "big"), int.from_bytes(log[8:12], "big"))
    return next((size for size in said if size >= 512 and size & (size - 1) == 0), _USUAL)


def newest_pages(room: bytes, log: bytes, *, damaged: bool) -> dict[int, bytes]:
    """Every page by its number, as it was last written; those whose sums in the log are wrong only if wanted."""
    size = page_size(room, log)
    pages = {at // size + 1: room[at : at + size].ljust(size, b"\0") for at in range(0, len(room), size)}
    return pages | {number: image for number, image, is_whole in frames(log, size) if is_whole or damaged}


def old_pages(room: bytes, log: bytes) -> Iterator[bytes]:
    """Every page that was ever written and is still there, but for damaged ones."""
    size = page_size(room, log)
    for at in range(0, len(room), size):
        yield room[at : at + size].ljust(size, b"\0")
    yield from (image for _, image, is_whole in frames(log, size) if is_whole)


def damaged_pages(room: bytes, log: bytes) -> Iterator[bytes]:
    """Those whose sums in the log are wrong."""
    return (image for _, image, is_whole in frames(log, page_size(room, log)) if not is_whole)


def commits_behind(log: bytes, size: int, end: int) -> int:
    """How many commits of the log's present round lie behind its first `end` pages."""
    salts, step = _salts(log, size), FRAME_HEAD + size
    starts = range(LOG_HEAD + end * step, len(log) - step + 1, step)
    return sum(log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8]) for at in starts) if any(salts) else 0


def _salts(log: bytes, size: int) -> bytes:
    """What marks the pages of the present round; the log's head may be damaged, or its first pages."""
    said, first = log[16:24], LOG_HEAD + 8
    marks = [
        log[at : at + 8] for at in range(first, min(len(log), first + 3 * (FRAME_HEAD + size)), FRAME_HEAD + size)
    ]
    return said if said in marks or not marks else max(marks, key=marks.count)


def frames(log: bytes, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """The pages of the log's present round, in order, and whether their sums are right."""
    salts, step = _salts(log, size), FRAME_HEAD + size
    order = ">" if log[:4] == _BIG else "<"
    before = log[LOG_HEAD - 8 : LOG_HEAD]
    for at in range(LOG_HEAD, len(log) - step + 1, step):
        number = int.from_bytes(log[at : at + 4], "big")
        if log[at + 8 : at + 16] == salts and number and any(salts):
            image, sum = log[at + FRAME_HEAD : at + step], log[at + 16 : at + FRAME_HEAD]
            yield number, image, _sum(log[at : at + 8] + image, before, order) == sum
        before = log[at + 16 : at + FRAME_HEAD]


def _sum(data: bytes, before: bytes, order: str) -> bytes:
    """Of a page in the log, going on from the sum before it."""
    first, second = struct.unpack(">2I", before)
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def rows_of(page: bytes, pages: Mapping[int, bytes]) -> Iterator[Row]:
    """The rows on a page, those that can be read; its number first where a table keeps it apart."""
    start = _FILE_HEAD if page.startswith(b"SQLite format 3\0") else 0
    kind = page[start] if len(page) > start else 0
    if kind not in {_LEAF_TABLE, _LEAF_INDEX, _INTERIOR_INDEX}:
        return
    head = start + (12 if kind == _INTERIOR_INDEX else 8)
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for place in range(head, min(head + 2 * count, len(page) - 1), 2):
        cell = int.from_bytes(page[place : place + 2], "big")
        try:
            yield _row(page, cell, kind, pages)
        except (IndexError, ValueError, KeyError, struct.error, OverflowError, RecursionError):
            continue


def _row(page: bytes, at: int, kind: int, pages: Mapping[int, bytes]) -> Row:
    at += 4 if kind == _INTERIOR_INDEX else 0
    length, at = _varint(page, at)
    number: int | None = None
    if kind == _LEAF_TABLE:
        number, at = _varint(page, at)
    if length > len(page) * len(pages):  # longer than all there is
        raise ValueError(length)
    row = _values(_payload(page, at, length, kind, pages))
    if number is None:
        return row
    if row[0] is not None:  # our tables keep the number apart and nothing in its place
        raise ValueError(number)
    return (number, *row[1:])


def _payload(page: bytes, at: int, length: int, kind: int, pages: Mapping[int, bytes]) -> bytes:
    """All of a row, over as many pages as it needs."""
    size = len(page)
    most = size - 35 if kind == _LEAF_TABLE else (size - 12) * 64 // 255 - 23
    if length <= most:
        return page[at : at + length]
    least = (size - 12) * 32 // 255 - 23
    here = least + (length - least) % (size - 4)
    here = here if here <= most else least
    found, following = bytearray(page[at : at + here]), int.from_bytes(page[at + here : at + here + 4], "big")
    while len(found) < length:
        more = pages[following]
        if len(more) < 5:
            raise ValueError(following)
        found += more[4 : 4 + length - len(found)]
        following = int.from_bytes(more[:4], "big")
    return bytes(found)


def _values(payload: bytes) -> Row:
    head, at = _varint(payload, 0)
    body, values = head, []
    while at < head:
        kind, at = _varint(payload, at)
        value, body = _value(payload, body, kind)
        values.append(value)
    if body != len(payload):
        raise ValueError(body)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in {8, 9}:
        return kind - 8, at
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    end = at + (_INTS[kind] if kind in _INTS else (kind - 12) // 2)
    raw = payload[at:end]
    if len(raw) != end - at:
        raise ValueError(kind)
    if kind in _INTS:
        return int.from_bytes(raw, "big", signed=True), end
    return (raw if kind % 2 == 0 else raw.decode()), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(8):
        byte = data[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    return value << 8 | data[at + 8], at + 9
