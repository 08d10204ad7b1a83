"""Which lines of an inbox.jsonl file may have been emptied away before anybody read them.

A reader that knows no lock reads the file and then empties it. The writer sees that the file has become shorter,
and when it was last read: a line that is younger than that reading was not seen, and is written again. That can be
told only until somebody reads the file once more, which is empty by then. Where it cannot be told any more, or the
file system keeps no such times, what was emptied away within a moment of its writing is in doubt, and is written
again once. It refuses to know how lines are written. It weighs next to nothing.
"""

from __future__ import annotations

import os

MOMENT = 250_000_000  # nanoseconds after a write in which an emptying makes it doubtful
SURE = 2_000_000  # nanoseconds after a write from which on a reading has surely seen it
TRIES = 3  # times that a line is written again, at most: a far file system may tell of some readings only


class Doubt:
    """A line that may be emptied away before it is read."""

    def __init__(self, line: bytes, at: int, again: int = 0) -> None:
        self.line = line
        self.at = at  # when it was written
        self.again = again  # times that it was written again


class Last:
    """How a file was left by the last write. It is held open while a line is in doubt: so its inode is nobody
    else's, and a new file of that name cannot be taken for it.
    """

    def __init__(self) -> None:
        self.file = -1
        self.inode = 0
        self.size = 0
        self.count = 0  # lines in it
        self.changed = 0  # nanoseconds, by the file system's clock
        self.seen = 0  # when it was last read, by the same
        self.tells_reading = False  # does the file system keep that time? It does where it ever moved
        self.doubtful: list[Doubt] = []  # lines of the last moment

    def leave(self, found: os.stat_result, size: int) -> None:
        """So it is left; of this size, unless it was emptied since."""
        self.inode, self.size, self.changed, self.seen = found.st_ino, size, found.st_mtime_ns, found.st_atime_ns

    def hold(self, file: int) -> None:
        self.let_go()
        self.file = file

    def let_go(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def lost(self, found: os.stat_result) -> list[Doubt]:
        """Lines that may have been emptied away unread, and are not in doubt any more from here on."""
        if found.st_ino == self.inode:
            self.tells_reading = self.tells_reading or found.st_atime_ns != self.seen
            if found.st_size >= self.size:
                return []
        doubtful, self.doubtful = self.doubtful, []
        if found.st_ino != self.inode:
            return []
        return [one for one in doubtful if self._is_unread(one, found)]

    def _is_unread(self, one: Doubt, found: os.stat_result) -> bool:
        """Or may be. What was written again already must surely be, or it would be shown again and again."""
        if not self.tells_reading or found.st_atime_ns > found.st_mtime_ns:  # it was emptied, and then read
            return not one.again and found.st_mtime_ns - one.at <= MOMENT
        if one.again:
            return found.st_atime_ns < one.at and one.again < TRIES
        return found.st_atime_ns <= one.at + SURE

    def doubt(self, again: list[Doubt], lines: list[bytes]) -> None:
        """These were written just now. What was written before that moment has stayed."""
        self.doubtful = [one for one in self.doubtful if self.changed - one.at <= MOMENT]
        self.doubtful += [Doubt(one.line, self.changed, one.again + 1) for one in again]
        self.doubtful += [Doubt(line, self.changed) for line in lines]
