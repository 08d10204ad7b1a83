"""The files `<agent>.inbox.jsonl`: a line for each new letter, for hooks that can read nothing but a file.

The file is a hint, the inbox is the truth. Still no line may get lost on the way:

    writer   takes the folder's lock, opens the file by its name, appends whole lines by one call, unlocks.
    reader   takes the lock, renames the file, unlocks, reads the lines, and removes the file when they were
             shown. No writer can have a renamed file open. A file that a dead reader left is taken by the next
             one: better twice than never.
    trim     writes a new file and renames it into place, under the lock. Its first line says how many lines
             were dropped.

agent-inbox's own reader knows no lock: it reads the file and then empties it, and a line that is written in
between would be lost. The writer notices that and writes the line again (`FileState`); so our own looks at a file
must not count as reading it.

Two agents whose names have the same safe form get two files: `.names` says which is whose, and the first one keeps
the plain name. A path that is not a regular file with one name (a link, a pipe, a folder) is never written or
read: it blocks that agent alone; `.names` itself is set aside. Hooks read with this module at every prompt, so it
imports little.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..constants import safe_form
from ..errors import BadStore, Invalid, PostroomError
from ..formats.inbox import line_of, notice_of
from ..model.delivery import State
from ..model.query import Query
from ..model.record import Cursor
from ..store.notification import ROOM, add_watch, open_inotify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from ..model.query import Found
    from ..server.executor import Executor
    from ..store.protocol import Watch


# -- regular files with one name. Nothing is followed, and nothing is waited for.

FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened without waiting, and then refused
_NO_ATIME = getattr(os, "O_NOATIME", 0)  # do not count as a reader
_REFUSALS = frozenset(
    {errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENAMETOOLONG}
)


class PathBlocked(OSError):
    """A path is not a regular file with one name, and stays so until it is removed."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def check(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PathBlocked(errno.EINVAL, "it is not a regular file", path)
    if found.st_nlink > 1:
        raise PathBlocked(errno.EMLINK, "it has a second name (hard link)", path)


def size(path: str) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0
    check(found, path)
    return found.st_size


def is_blocked(path: str) -> bool:
    try:
        size(path)
    except PathBlocked:
        return True
    return False


def open_plain(path: str, flags: int) -> int:
    """Open a regular file without changing its access time, which is possible only for its owner."""
    try:
        try:
            file = os.open(path, flags | _NO_ATIME | FLAGS, 0o600)
        except PermissionError:
            file = os.open(path, flags | FLAGS, 0o600)
    except OSError as refused:
        raise _blocked_error(refused, path) from None
    try:
        check(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return file


def _blocked_error(refused: OSError, path: str) -> OSError:
    if refused.errno not in _REFUSALS:
        return refused
    return PathBlocked(refused.errno, refused.strerror, path)


def write_lines(file: int, size: int, data: bytes) -> int:
    """Append lines, all or nothing. A line that a dead writer left incomplete is ended first. Return the size of
    the file, unless a reader emptied it meanwhile.
    """
    if data and size and os.pread(file, 1, size - 1) not in {b"\n", b""}:
        data = b"\n" + data
    try:
        _write_all(file, data)
    except OSError:  # the disk is full
        os.ftruncate(file, size)
        raise
    return size + len(data)


def _write_all(file: int, data: bytes) -> None:
    """Write all data, by one call unless the system takes less at once."""
    while data:
        data = data[os.write(file, data) :]


def append(path: str, data: bytes) -> None:
    file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        write_lines(file, os.fstat(file).st_size, data)
    finally:
        os.close(file)


def replace(path: str, data: bytes) -> int:
    """Replace a file by a new one and return it, still open. A draft that a dead writer left is removed."""
    draft = f"{path}.new"
    try:
        if os.path.lexists(draft):
            os.unlink(draft)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
        try:
            _write_all(file, data)
            os.rename(draft, path)
        except BaseException:
            os.close(file)
            raise
    except OSError as refused:
        raise _blocked_error(refused, path) from None
    return file


def write(path: str, data: bytes) -> None:
    """Write a small file as a whole; after a crash it is either the new one or the old one."""
    os.close(replace(path, data))


def read(path: str) -> bytes:
    """Return the content of a file, empty if there is none."""
    try:
        file = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return read_from(file)
    finally:
        os.close(file)


def read_from(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, 2**20):
        pieces.append(piece)
    return b"".join(pieces)


# -- lines that may have been lost
#
# A reader without a lock reads the file and then empties it. The writer sees that the file became shorter, and
# when it was last read: a line that is younger than that was not seen, and is written again. That works only until
# the file is read once more. Where the access time says nothing, a line that was emptied away within DOUBT_NS of
# its writing is doubtful, and is written again once.

DOUBT_NS = 250_000_000  # after a write, in which emptying the file makes the line doubtful
SEEN_NS = 2_000_000  # after a write, from which on a reader has surely seen it
TRIES = 3  # to write a line again, at most: a network file system may report some reads only


class DoubtfulLine:
    """A line that may have been removed before it was read."""

    def __init__(self, line: bytes, at: int, again: int = 0) -> None:
        self.line = line
        self.at = at  # when it was written
        self.again = again  # times that it was written again


class FileState:
    """The state of a file after our last write. The file is held open while a line is doubtful, so that no other
    file can get its inode and be mistaken for it.
    """

    def __init__(self) -> None:
        self.file = -1
        self.inode = 0
        self.size = 0
        self.count = 0  # lines in it
        self.changed = 0  # nanoseconds, by the file system's clock
        self.seen = 0  # when it was last read, by the same
        self.tells_reading = False  # does the file system keep access times? It does if one ever changed
        self.doubtful: list[DoubtfulLine] = []  # lines of the last DOUBT_NS

    def leave(self, found: os.stat_result, size: int) -> None:
        """Note the state after a write; the size is that of the write, for the file may be empty by now."""
        self.inode, self.size, self.changed, self.seen = found.st_ino, size, found.st_mtime_ns, found.st_atime_ns

    def hold(self, file: int) -> None:
        self.let_go()
        self.file = file

    def let_go(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def lost(self, found: os.stat_result) -> list[DoubtfulLine]:
        """Return lines that may have been removed unread. They are not doubtful any more from here on."""
        if found.st_ino == self.inode:
            self.tells_reading = self.tells_reading or found.st_atime_ns != self.seen
            if found.st_size >= self.size:
                return []
        doubtful, self.doubtful = self.doubtful, []
        if found.st_ino != self.inode:
            return []
        return [one for one in doubtful if self._is_unread(one, found)]

    def _is_unread(self, one: DoubtfulLine, found: os.stat_result) -> bool:
        """Return whether a line may be unread. One that was written again before must surely be, or it would be
        shown again and again.
        """
        if not self.tells_reading or found.st_atime_ns > found.st_mtime_ns:  # it was emptied, and then read
            return not one.again and found.st_mtime_ns - one.at <= DOUBT_NS
        if one.again:
            return found.st_atime_ns < one.at and one.again < TRIES
        return found.st_atime_ns <= one.at + SEEN_NS

    def doubt(self, again: list[DoubtfulLine], lines: list[bytes]) -> None:
        """Note lines that were written just now as doubtful, and forget those that have stayed for DOUBT_NS."""
        self.doubtful = [one for one in self.doubtful if self.changed - one.at <= DOUBT_NS]
        self.doubtful += [DoubtfulLine(one.line, self.changed, one.again + 1) for one in again]
        self.doubtful += [DoubtfulLine(line, self.changed) for line in lines]


_IN_MODIFY = 0x2  # written to, or emptied


class FolderWatch:
    """Calls `on_change` when a file in a folder changes, on Linux. Made inside an event loop."""

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        self._path = path
        self._on_change = on_change
        self._events = open_inotify()
        if self._events is not None:
            asyncio.get_running_loop().add_reader(self._events, self._read)

    def look(self) -> None:
        """Watch the folder from now on. Called repeatedly, because the folder may have been made again."""
        if self._events is not None:
            with suppress(OSError):  # it is gone, or there are too many watches; then files are checked later
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
            self._on_change()


# -- the folder of inbox files

SUFFIX = ".inbox.jsonl"
MAX_LINES = 1000  # lines of a file; as in agent-inbox it may grow by a tenth before it is trimmed
MAX_FILE_BYTES = 5 * 2**20
DROPPED = b'{"dropped":'  # the start of the line that says how many lines were trimmed
_LONGEST_NUMBER = 18  # digits
_TAKEN = ".taken."
_NAMES = ".names"


class InboxFolder:
    """The files of one folder. `notice` makes the line that says how many were dropped; `warn` is called with what
    is wrong with the folder and stops nobody.
    """

    def __init__(
        self,
        path: str,
        notice: Callable[[str, int], bytes] | None = None,
        *,
        warn: Callable[[str], None] | None = None,
        most: int = MAX_LINES,
        most_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self._notice = notice
        self._on_warning = warn
        self._most = most
        self._most_bytes = most_bytes
        self._names = os.path.join(self.path, _NAMES)
        self._is_spoiled = False  # is `.names` damaged, and was that logged?
        self._stems: dict[str, str] = {}
        self._last: dict[str, FileState] = {}

    # -- writing

    def prepare(self) -> None:
        """Make the folder, for its owner alone, if it does not exist (any more)."""
        try:
            if not os.path.isdir(self.path):
                self._stems.clear()
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            found = os.stat(self.path)
        except OSError as error:
            raise BadStore(f"cannot make {self.path}: {error.strerror}", field="inboxes") from error
        if found.st_uid != os.geteuid():
            raise BadStore(f"{self.path} belongs to another user", field="inboxes")

    def append(self, agent: str, lines: Sequence[bytes]) -> int:
        """Append lines, each with its newline. Return how many older ones were dropped."""
        with _FolderLock(self.path):
            stem = self._claim(agent)
            return self._write(stem, agent, list(lines))

    def is_emptied(self, agent: str) -> bool:
        """Return whether the file is shorter than after our last write, without locking anything."""
        stem = self._stems.get(agent, "")
        last = self._last.get(stem)
        if last is None:
            return False
        path = os.path.join(self.path, f"{stem}{SUFFIX}")
        return not is_blocked(path) and size(path) < last.size

    def check(self, agent: str, *, is_over: bool = True) -> bool:
        """Check whether lines are still there after a write, and write doubtful ones again. Return whether it must
        be checked again. With `is_over` (DOUBT_NS has passed) lines that stayed are not doubtful any more.
        """
        with _FolderLock(self.path):
            stem = self._claim(agent)
            last = self._last.get(stem)
            if last is None:
                return False
            before, last.doubtful = last.doubtful, []
            if before and os.path.lexists(os.path.join(self.path, f"{stem}{SUFFIX}")):
                last.doubtful = before
                self._write(stem, agent, [])
                last.doubtful = [one for one in last.doubtful if not is_over or one not in before]
            if not last.doubtful:
                last.let_go()
            return bool(last.doubtful)

    def content(self, agent: str) -> bytes:
        """Return all lines of an agent that are still here, taken by a reader or not."""
        with _FolderLock(self.path):
            stem = self._stem(agent)
            names = [f"{stem}{SUFFIX}", *self._abandoned(stem)]
            return b"".join(read(os.path.join(self.path, name)) for name in names)

    def _write(self, stem: str, agent: str, lines: list[bytes]) -> int:
        last = self._last.setdefault(stem, FileState())
        path = os.path.join(self.path, f"{stem}{SUFFIX}")
        file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            self._append_lines(file, path, last, lines)
        except BaseException:
            os.close(file)
            raise
        last.hold(file)
        if last.count * 10 > self._most * 11 or last.size * 10 > self._most_bytes * 11:
            return self._trim(path, agent, last)
        return 0

    def _append_lines(self, file: int, path: str, last: FileState, lines: list[bytes]) -> None:
        """Append lines after those that may be lost, again while the file is emptied meanwhile."""
        found = os.fstat(file)
        while True:
            again = last.lost(found)
            if (found.st_ino, found.st_size) != (last.inode, last.size):
                last.count = read(path).count(b"\n")
            size = write_lines(file, found.st_size, b"".join([*(one.line for one in again), *lines]))
            last.count += len(again) + len(lines)
            found = os.fstat(file)
            last.leave(found, size)
            last.doubt(again, lines)
            if found.st_size >= size:
                return
            lines = []

    def _trim(self, path: str, agent: str, last: FileState) -> int:
        """Keep the newest lines in a new file. Return how many were dropped now."""
        lines = read(path).splitlines(keepends=True)
        before = _dropped(lines[0]) if lines else 0
        if before:
            lines.pop(0)
        first, size = len(lines), 0
        while first > max(len(lines) - self._most + 1, 0) and size + len(lines[first - 1]) <= self._most_bytes:
            first -= 1
            size += len(lines[first])
        head = [self._notice(agent, before + first)] if self._notice else []
        file = replace(path, b"".join([*head, *lines[first:]]))
        found = os.fstat(file)
        last.leave(found, found.st_size)
        last.hold(file)
        last.count = len(head) + len(lines) - first
        return first

    # -- reading

    def peek(self, agent: str) -> bytes:
        """Return the lines that wait, and leave them there."""
        return self.content(agent) if os.path.isdir(self.path) else b""

    def take(self, agent: str) -> Taken | None:
        """Return the lines that wait, for this reader alone; None if there are none."""
        if not os.path.isdir(self.path):
            return None
        with _FolderLock(self.path):
            stem = self._stem(agent)
            taken = Taken(self, agent)
            for name in self._abandoned(stem):
                taken.adopt(os.path.join(self.path, name))
            path = os.path.join(self.path, f"{stem}{SUFFIX}")
            if size(path):
                name = os.path.join(self.path, f"{stem}{_TAKEN}{os.urandom(6).hex()}")
                os.rename(path, name)
                taken.adopt(name)
        return taken if taken.held else None

    def _abandoned(self, stem: str) -> list[str]:
        """Return the names of files that readers have taken and not removed."""
        left = sorted(name for name in os.listdir(self.path) if name.startswith(f"{stem}{_TAKEN}"))
        return [name for name in left if not is_blocked(os.path.join(self.path, name))]

    # -- whose file is which

    def _claim(self, agent: str) -> str:
        """Return the stem of an agent's file, and record in `.names` that it is this agent's."""
        stem = self._stems.get(agent)
        if stem is None:
            stem, owners = self._find(agent)
            if stem not in owners:
                append(self._names, _name_line(stem, agent))
            self._stems[agent] = stem
        return stem

    def _stem(self, agent: str) -> str:
        return self._stems.get(agent) or self._find(agent)[0]

    def _find(self, agent: str) -> tuple[str, dict[str, str]]:
        owners = self._owners()
        for length in (0, 8, 32):
            stem = safe_form(agent) + (_suffix_of(agent, length) if length else "")
            if owners.get(stem, agent) == agent:
                return stem, owners
        raise BadStore(f"no name is left for the file of {agent!a}", field="inboxes")

    def _owners(self) -> dict[str, str]:
        """Return the agent of each stem. A damaged line keeps its stem from all agents."""
        held = read(self._names)
        text = held.decode(errors="replace")
        if text.encode() != held and not self._is_spoiled:
            self._is_spoiled = True
            self._warn(f"{self._names} has lines that are not text; they are ignored")
        return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)

    def mend_names(self) -> None:
        """Set `.names` aside if it is not a regular file, and write the names that are known again."""
        if not is_blocked(self._names):
            return
        with _FolderLock(self.path):
            if not is_blocked(self._names):  # another process did it just now
                return
            aside = f"{self._names}.{os.urandom(6).hex()}"
            os.rename(self._names, aside)
            append(self._names, b"".join(_name_line(stem, agent) for agent, stem in self._stems.items()))
        self._warn(f"{self._names} is not a regular file; it was set aside as {aside}")

    def _warn(self, wrong: str) -> None:
        if self._on_warning:
            self._on_warning(wrong)


def _name_line(stem: str, agent: str) -> bytes:
    return f"{stem} {agent}\n".encode()


def _dropped(line: bytes) -> int:
    """Return how many lines the first line says were dropped; 0 if it is an ordinary line."""
    number = line[len(DROPPED) :].partition(b",")[0] if line.startswith(DROPPED) else b""
    return int(number) if number.isdigit() and len(number) < _LONGEST_NUMBER else 0


def _suffix_of(agent: str, length: int) -> str:
    from ..model.codec import blake2b  # noqa: PLC0415 - few names collide

    return f"-{blake2b(agent.encode(), digest_size=16).hexdigest()[:length]}"


class Taken:
    """Lines that one reader has to itself. A reader that ends without `done` leaves them to the next."""

    def __init__(self, folder: InboxFolder, agent: str) -> None:
        self._folder = folder
        self._agent = agent
        self.held: list[tuple[str, int]] = []
        self.content = b""

    def adopt(self, path: str) -> None:
        """Take a file that no living reader holds."""
        try:
            file = os.open(path, os.O_RDONLY | FLAGS)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its reader lives
            os.close(file)
            return
        if not os.fstat(file).st_nlink:  # its reader was done with it just now
            os.close(file)
            return
        self.held.append((path, file))
        self.content += read_from(file)

    def done(self) -> None:
        """Remove the lines: they were shown. Lines that a writer without a lock added meanwhile are put back."""
        for path, file in self.held:
            late = read_from(file)
            os.unlink(path)
            os.close(file)
            if late:
                self._folder.append(self._agent, late.splitlines(keepends=True))
        self.held = []

    def leave(self) -> None:
        for _, file in self.held:
            os.close(file)
        self.held = []


class _FolderLock:
    """The folder's lock, held while the block runs. A holder never waits for anything else."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, ".lock")
        self._file = -1

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | FLAGS, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *flags: object) -> None:
        os.close(self._file)


# -- writing lines for new letters

log = logging.getLogger("postroom")
SLICE = 500  # changes looked at in one go
POLL_SECONDS = 1.0  # between two looks where the store cannot notify
RETRY_SECONDS = 5.0  # after a failure


class InboxFileWriter:
    """Writes a line for each new letter of any sender into the inbox files. Made inside an event loop.

    Its cursor is stored in a file next to them, written after the lines: after a crash a letter may get a second
    line, but never none; and lines that a file still holds are not written twice. The very first start writes all
    unread letters. A letter that was read before gets no line.
    """

    def __init__(self, executor: Executor, folder: str, *, is_kept: bool = True) -> None:
        self._executor = executor
        self.core = executor.core
        self._store = self.core.store
        self.folder = InboxFolder(
            folder, lambda name, n: notice_of(name, n, self.core.now().wall), warn=log.warning
        )
        self.folder.prepare()
        self._is_kept = is_kept  # does the room outlive this process?
        self._notified = asyncio.Event()
        self._number = -1  # of the last change that was written; -1: not known yet
        self._is_first = True  # may some lines of the next slice be there already?
        self._recheck_at: dict[str, float] = {}  # agents whose file is checked again, and when
        self._emptied: set[str] = set()  # agents of these whose file was emptied just now

    async def run(self) -> None:
        """Write lines for ever. Failures are logged, and tried again."""
        watch = self._store.watch((ROOM,))
        loop = asyncio.get_running_loop()
        if watch.fileno() >= 0:
            loop.add_reader(watch.fileno(), self._on_notified, watch)
        folder_watch = FolderWatch(self.folder.path, self._on_changed)
        try:
            while True:
                folder_watch.look()
                await self._run_once(watch)
        finally:
            folder_watch.close()
            if watch.fileno() >= 0:
                loop.remove_reader(watch.fileno())
            watch.close()

    async def _run_once(self, watch: Watch) -> None:
        self._notified.clear()
        try:
            await self._executor.run_slow(self.write_new_letters)
        except Exception as failed:  # boundary: the writer goes on whatever happens
            is_bug = not isinstance(failed, PostroomError | OSError)
            log.warning("the inbox files could not be written: %s", failed, exc_info=is_bug)
            self._is_first = True  # some lines of the slice may be there
            await asyncio.sleep(RETRY_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait_seconds(watch)):
                await self._notified.wait()

    def _wait_seconds(self, watch: Watch) -> float | None:
        """Return how long to wait: until a notification, or until a file must be checked again."""
        bounds = [] if watch.fileno() >= 0 else [POLL_SECONDS]
        if self._recheck_at:
            bounds.append(max(min(self._recheck_at.values()) - time.monotonic(), 0.0))
        return min(bounds, default=None)

    def _on_notified(self, watch: Watch) -> None:
        watch.notified()
        self._notified.set()

    def _on_changed(self) -> None:
        """Check at once files that were emptied: their access time shows the reader only until
        the next read.
        """
        self._emptied |= {name for name in list(self._recheck_at) if self.folder.is_emptied(name)}
        if self._emptied:
            self._notified.set()

    # -- on a thread of its own

    def write_new_letters(self) -> None:
        """Write lines for all letters that came since the last time."""
        self.folder.prepare()  # it may have been removed
        self.folder.mend_names()
        while self._emptied:
            self._check(self._emptied.pop(), is_over=False)
        now = time.monotonic()
        for name in [name for name, due in self._recheck_at.items() if due <= now]:
            del self._recheck_at[name]
            self._check(name)
        self._write_news()

    def _check(self, name: str, *, is_over: bool = True) -> None:
        with _isolated(name):
            if self.folder.check(name, is_over=is_over):
                self._recheck_later(name)

    def _write_news(self) -> None:
        now = self._store.cursor()
        if self._number < 0:
            self._number = self._load_cursor(now)
        while self._number < now.number:
            until = min(self._number + SLICE, now.number)
            self._write_letters(self._new_letters(until))
            self._number, self._is_first = until, False
            self._save_cursor(Cursor(now.store, now.epoch, until))

    def _new_letters(self, until: int) -> list[Found]:
        open_ones = (State.UNREAD, State.CLAIMED)
        return self._store.find(
            Query(
                states=open_ones, unread_only=True, shown_only=True, after=self._number, until=until, order="age"
            )
        )

    def _write_letters(self, found: list[Found]) -> None:
        by_name: dict[str, list[Found]] = {}
        for one in found:
            if is_local(one.delivery.mailbox):
                by_name.setdefault(one.delivery.mailbox, []).append(one)
        for name, news in by_name.items():
            with _isolated(name):
                self._write_agent(name, news)

    def _write_agent(self, name: str, news: list[Found]) -> None:
        content = self.folder.content(name) if self._is_first else b""
        lines = [line_of(one.message, name) for one in news if _id_in_line(one.message.id) not in content]
        gone = self.folder.append(name, lines) if lines else 0
        if lines:
            self._recheck_later(name)
        if gone:
            words = "the inbox file of %s was full: its %d oldest lines were dropped; the letters are in the inbox"
            log.warning(words, name, gone)

    def _recheck_later(self, name: str) -> None:
        self._recheck_at[name] = time.monotonic() + DOUBT_NS / 1e9

    # -- the cursor

    def _load_cursor(self, now: Cursor) -> int:
        """Return the number of the last change that was written. A restored room may have fewer: then 0."""
        path = self._cursor_file(now)
        try:
            held = read(path).decode("ascii", "replace").strip()
            number = Cursor.parse(held).number if held else 0
        except (Invalid, PathBlocked) as refused:
            log.warning("%s cannot be read; all unread letters are written again: %s", path, refused)
            return 0
        return number if number <= now.number else 0

    def _save_cursor(self, cursor: Cursor) -> None:
        if not self._is_kept:
            return
        try:
            write(self._cursor_file(cursor), f"{cursor}\n".encode())
        except PathBlocked as refused:
            log.warning("the cursor of the inbox files cannot be written: %s", refused)

    def _cursor_file(self, cursor: Cursor) -> str:
        return os.path.join(self.folder.path, f".cursor-{cursor.store}")


@contextmanager
def _isolated(name: str) -> Iterator[None]:
    """Log what goes wrong with one agent's file, so that the others get their lines. Errors of the disk are
    raised: they concern all.
    """
    try:
        yield
    except Exception as refused:  # boundary: one agent's file must not stop the others
        if isinstance(refused, OSError) and not isinstance(refused, PathBlocked):
            raise
        is_bug = not isinstance(refused, PostroomError | PathBlocked)
        log.warning("the inbox file of %s cannot be written: %s", name, refused, exc_info=is_bug)


def _id_in_line(id: str) -> bytes:
    """Return the field of a line that holds the id of its letter."""
    return f'"messageId":"{id}"'.encode()


def is_local(name: str) -> bool:
    """Return whether this is an agent of this room; those of other systems have their files there."""
    return "@" not in name
