"""Regular files with one name, opened, read and written. Whatever else has the name is refused: a link, a second
name of another file, a pipe, a device, a folder. Nothing is followed, and nothing is waited for.

It refuses to know what stands in them. It weighs next to nothing.
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


FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened at once, and then refused
_UNSEEN = getattr(os, "O_NOATIME", 0)  # reading so is no reading
_REFUSALS = frozenset(
    {errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENAMETOOLONG}
)


class InTheWay(OSError):
    """Something of somebody's stands where a file should be, and will until it is taken away."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def check(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InTheWay(errno.EINVAL, "it is no regular file", path)
    if found.st_nlink > 1:
        raise InTheWay(errno.EMLINK, "it has a second name (hard link)", path)


def size(path: str) -> int:
    """0 where there is no file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0
    check(found, path)
    return found.st_size


def is_in_the_way(path: str) -> bool:
    try:
        size(path)
    except InTheWay:
        return True
    return False


def open_plain(path: str, how: int) -> int:
    """Looked at so, a file does not count as read; another user's does."""
    try:
        try:
            file = os.open(path, how | _UNSEEN | FLAGS, 0o600)
        except PermissionError:
            file = os.open(path, how | FLAGS, 0o600)
    except OSError as refused:
        raise _in_the_way(refused, path) from None
    try:
        check(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return file


def _in_the_way(refused: OSError, path: str) -> OSError:
    if refused.errno not in _REFUSALS:
        return refused
    return InTheWay(refused.errno, refused.strerror, path)


def write_lines(file: int, size: int, data: bytes) -> int:
    """At the end, whole or not at all. Where somebody died in the middle of a line, it is ended first. What size
    the file has now, unless somebody emptied it meanwhile.
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
    """One call, but where the disk takes less at once."""
    while data:
        data = data[os.write(file, data) :]


def append(path: str, data: bytes) -> None:
    file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        write_lines(file, os.fstat(file).st_size, data)
    finally:
        os.close(file)


def replace(path: str, data: bytes) -> int:
    """A new file in the place of the old, still open. A draft that somebody left goes."""
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
        raise _in_the_way(refused, path) from None
    return file


def write(path: str, data: bytes) -> None:
    """A small file: all of it, or as it was."""
    os.close(replace(path, data))


def read(path: str) -> bytes:
    """Empty where there is no file."""
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


# Which lines of an inbox.jsonl file may have been emptied away before anybody read them.
#
# A reader that knows no lock reads the file and then empties it. The writer sees that the file has become
# shorter,
# and when it was last read: a line that is younger than that reading was not seen, and is written again. That can
# be
# told only until somebody reads the file once more, which is empty by then. Where it cannot be told any more, or
# the
# file system keeps no such times, what was emptied away within a moment of its writing is in doubt, and is
# written
# again once. It refuses to know how lines are written. It weighs next to nothing.

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


# Sees that a file in a folder changes, at once, where the system tells (Linux).

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


# A folder of `<agent>.inbox.jsonl` files: a line per letter, for hooks that read a file and nothing else.
#
# The file is a hint, the inbox is the truth. Still no line may get lost on the way:
#
#     writer   takes the folder's lock, opens the file by its name, writes whole lines at its end by one call, and
#              lets go.
#     reader   takes the lock, renames the file, lets go, reads at leisure, and removes it when it has shown the
#              lines. No writer can have hold of what was renamed. What a reader left behind that died is taken by
#              the next one: better twice than never.
#     trim     writes a new file and renames it into place, under the lock. Its first line says what was dropped.
#
# agent-inbox's own reader knows no lock: it reads the file and then empties it, and a line that comes in between
# is
# gone. The writer sees that, and writes it again (`inbox_doubts.py`); so our own looks at a file leave no trace.
#
# Two agents whose names have the same safe form get two files: which one is whose stands in `.names`, and the
# first
# one keeps the plain name. What is no file of its own (`plain_files.py`) is never written or read: one agent's is
# in
# that agent's way alone, and `.names` is set aside. It weighs next to nothing: a hook reads with it at every
# prompt.

END = ".inbox.jsonl"
MOST = 1000  # lines of a file; as in agent-inbox it may grow by a tenth before it is trimmed
MOST_BYTES = 5 * 2**20
DROPPED = b'{"dropped":'  # so begins the line that tells what was trimmed
_LONGEST_NUMBER = 18  # digits
_TAKEN = ".taken."
_NAMES = ".names"


class InboxFolder:
    """The files of one folder. `notice` makes the line that says how many were dropped; `tell` hears what is wrong
    with the folder and stops nobody.
    """

    def __init__(
        self,
        path: str,
        notice: Callable[[str, int], bytes] | None = None,
        *,
        tell: Callable[[str], None] | None = None,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self._notice = notice
        self._tell = tell
        self._most = most
        self._most_bytes = most_bytes
        self._names = os.path.join(self.path, _NAMES)
        self._is_spoiled = False  # is `.names`, and was that told?
        self._stems: dict[str, str] = {}
        self._last: dict[str, Last] = {}

    # -- writing

    def prepare(self) -> None:
        """Make the folder, for its owner alone, if it is not there or not there any more."""
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
        """Write lines, each with its newline. How many older ones had to go."""
        with _Locked(self.path):
            stem = self._claim(agent)
            return self._write(stem, agent, list(lines))

    def is_emptied(self, agent: str) -> bool:
        """Is the file shorter than we left it? A look that locks nothing."""
        stem = self._stems.get(agent, "")
        last = self._last.get(stem)
        if last is None:
            return False
        path = os.path.join(self.path, f"{stem}{END}")
        return not is_in_the_way(path) and size(path) < last.size

    def check(self, agent: str, *, is_over: bool = True) -> bool:
        """After a write: is it still there? If in doubt, it is written again, and to be checked again. What has
        stayed is not in doubt any more, when the moment `is_over`.
        """
        with _Locked(self.path):
            stem = self._claim(agent)
            last = self._last.get(stem)
            if last is None:
                return False
            before, last.doubtful = last.doubtful, []
            if before and os.path.lexists(os.path.join(self.path, f"{stem}{END}")):
                last.doubtful = before
                self._write(stem, agent, [])
                last.doubtful = [one for one in last.doubtful if not is_over or one not in before]
            if not last.doubtful:
                last.let_go()
            return bool(last.doubtful)

    def content(self, agent: str) -> bytes:
        """All lines of an agent that are still here, taken by a reader or not."""
        with _Locked(self.path):
            stem = self._stem(agent)
            names = [f"{stem}{END}", *self._left(stem)]
            return b"".join(read(os.path.join(self.path, name)) for name in names)

    def _write(self, stem: str, agent: str, lines: list[bytes]) -> int:
        last = self._last.setdefault(stem, Last())
        path = os.path.join(self.path, f"{stem}{END}")
        file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            self._put(file, path, last, lines)
        except BaseException:
            os.close(file)
            raise
        last.hold(file)
        if last.count * 10 > self._most * 11 or last.size * 10 > self._most_bytes * 11:
            return self._trim(path, agent, last)
        return 0

    def _put(self, file: int, path: str, last: Last, lines: list[bytes]) -> None:
        """At the end, after what may be lost; and what may be lost by an emptying while this is done."""
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

    def _trim(self, path: str, agent: str, last: Last) -> int:
        """The newest lines, in a new file. How many went now."""
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
        """What waits, left where it is."""
        return self.content(agent) if os.path.isdir(self.path) else b""

    def take(self, agent: str) -> Taken | None:
        """What waits, for this reader alone. None: nothing does."""
        if not os.path.isdir(self.path):
            return None
        with _Locked(self.path):
            stem = self._stem(agent)
            taken = Taken(self, agent)
            for name in self._left(stem):
                taken.adopt(os.path.join(self.path, name))
            path = os.path.join(self.path, f"{stem}{END}")
            if size(path):
                name = os.path.join(self.path, f"{stem}{_TAKEN}{os.urandom(6).hex()}")
                os.rename(path, name)
                taken.adopt(name)
        return taken if taken.held else None

    def _left(self, stem: str) -> list[str]:
        """What readers have taken and not put away. They leave files, and what is none is not theirs."""
        left = sorted(name for name in os.listdir(self.path) if name.startswith(f"{stem}{_TAKEN}"))
        return [name for name in left if not is_in_the_way(os.path.join(self.path, name))]

    # -- whose file is which

    def _claim(self, agent: str) -> str:
        """The stem of an agent's file, made its own now if it was not yet."""
        stem = self._stems.get(agent)
        if stem is None:
            stem, owners = self._find(agent)
            if stem not in owners:
                append(self._names, _noted(stem, agent))
            self._stems[agent] = stem
        return stem

    def _stem(self, agent: str) -> str:
        return self._stems.get(agent) or self._find(agent)[0]

    def _find(self, agent: str) -> tuple[str, dict[str, str]]:
        owners = self._owners()
        for length in (0, 8, 32):
            stem = safe_form(agent) + (_mark(agent, length) if length else "")
            if owners.get(stem, agent) == agent:
                return stem, owners
        raise BadStore(f"no name is left for the file of {agent!a}", field="inboxes")

    def _owners(self) -> dict[str, str]:
        """Whose each stem is. A line that is spoiled keeps its stem from everybody."""
        held = read(self._names)
        text = held.decode(errors="replace")
        if text.encode() != held and not self._is_spoiled:
            self._is_spoiled = True
            self._say(f"{self._names} has lines that are no text; they are passed by")
        return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)

    def mend_names(self) -> None:
        """Set aside what is no file, and write down again whose files we know."""
        if not is_in_the_way(self._names):
            return
        with _Locked(self.path):
            if not is_in_the_way(self._names):  # somebody else did it just now
                return
            aside = f"{self._names}.{os.urandom(6).hex()}"
            os.rename(self._names, aside)
            append(self._names, b"".join(_noted(stem, agent) for agent, stem in self._stems.items()))
        self._say(f"{self._names} is no file of its own; it was set aside as {aside}")

    def _say(self, wrong: str) -> None:
        if self._tell:
            self._tell(wrong)


def _noted(stem: str, agent: str) -> bytes:
    return f"{stem} {agent}\n".encode()


def _dropped(line: bytes) -> int:
    """How many a first line of ours says were dropped. 0: it is none of ours."""
    number = line[len(DROPPED) :].partition(b",")[0] if line.startswith(DROPPED) else b""
    return int(number) if number.isdigit() and len(number) < _LONGEST_NUMBER else 0


def _mark(agent: str, length: int) -> str:
    from ..model.codec import blake2b  # noqa: PLC0415 - few names meet

    return f"-{blake2b(agent.encode(), digest_size=16).hexdigest()[:length]}"


class Taken:
    """Lines that one reader has to itself. Whoever ends without `done` leaves them to the next."""

    def __init__(self, folder: InboxFolder, agent: str) -> None:
        self._folder = folder
        self._agent = agent
        self.held: list[tuple[str, int]] = []
        self.content = b""

    def adopt(self, path: str) -> None:
        """Take a file that nobody reads just now."""
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
        """The lines were shown. What a stranger without a lock still wrote into the file goes back."""
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


class _Locked:
    """The folder's lock, held while the block runs. Nobody who holds it waits for anything."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, ".lock")
        self._file = -1

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | FLAGS, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *how: object) -> None:
        os.close(self._file)


# Carries news of each new letter into the `inbox.jsonl` files, whoever sent it and by whatever way.
#
# How far it has come stands in a file beside them, written after the lines: after a crash a letter may be told
# twice, never not at all; and what a file still holds is not told twice. At its very first start it tells of what
# is
# unread. A letter that was read before we looked is no news any more.

log = logging.getLogger("postroom")
SLICE = 500  # numbers looked at in one go
POLL = 1.0  # seconds between two looks where no bell can be heard
AGAIN = 5.0  # seconds after a failure


class Carrier:
    """Made inside an event loop."""

    def __init__(self, executor: Executor, folder: str) -> None:
        self._executor = executor
        self._core = executor.room._core
        self._store = self._core.store
        self.folder = InboxFolder(
            folder, lambda name, n: notice_of(name, n, self._core.now().wall), tell=log.warning
        )
        self.folder.prepare()
        self._is_kept = not executor.room.settings.store.startswith("memory:")
        self._rang = asyncio.Event()
        self._number = -1  # told up to here; not known yet
        self._is_first = True  # may some of the next slice have been told already?
        self._unsure: dict[str, float] = {}  # whose file is to be looked at again, and when
        self._emptied: set[str] = set()  # whose of these was emptied just now

    async def run(self) -> None:
        """For ever. What goes wrong is logged, and tried again."""
        watch = self._store.watch((ROOM,))
        loop = asyncio.get_running_loop()
        if watch.fileno() >= 0:
            loop.add_reader(watch.fileno(), self._hear, watch)
        eye = Eye(self.folder.path, self._see)
        try:
            while True:
                eye.look()
                await self._round(watch)
        finally:
            eye.close()
            if watch.fileno() >= 0:
                loop.remove_reader(watch.fileno())
            watch.close()

    async def _round(self, watch: Watch) -> None:
        self._rang.clear()
        try:
            await self._executor.run_slow(self.carry)
        except BaseException as failed:
            if not isinstance(failed, Exception):
                raise
            is_ours = not isinstance(failed, PostroomError | OSError)
            log.warning("the inbox files could not be written: %s", failed, exc_info=is_ours)
            self._is_first = True  # some of the slice may stand there
            await asyncio.sleep(AGAIN)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience(watch)):
                await self._rang.wait()

    def _patience(self, watch: Watch) -> float | None:
        """Until somebody rings, or a doubt is due."""
        bounds = [] if watch.fileno() >= 0 else [POLL]
        if self._unsure:
            bounds.append(max(min(self._unsure.values()) - time.monotonic(), 0.0))
        return min(bounds, default=None)

    def _hear(self, watch: Watch) -> None:
        watch.rung()
        self._rang.set()

    def _see(self) -> None:
        """Something was written or emptied. Who read it before is told by the file until it is read again."""
        self._emptied |= {name for name in list(self._unsure) if self.folder.is_emptied(name)}
        if self._emptied:
            self._rang.set()

    # -- on a thread of its own

    def carry(self) -> None:
        """Tell of everything that came since the last time."""
        self.folder.prepare()  # somebody may have cleared it away
        self.folder.mend_names()
        while self._emptied:
            self._check(self._emptied.pop(), is_over=False)
        now = time.monotonic()
        for name in [name for name, due in self._unsure.items() if due <= now]:
            del self._unsure[name]
            self._check(name)
        self._tell_news()

    def _check(self, name: str, *, is_over: bool = True) -> None:
        with _alone(name):
            if self.folder.check(name, is_over=is_over):
                self._look_again_at(name)

    def _tell_news(self) -> None:
        now = self._store.cursor()
        if self._number < 0:
            self._number = self._begin(now)
        while self._number < now.number:
            until = min(self._number + SLICE, now.number)
            self._tell(self._news(until))
            self._number, self._is_first = until, False
            self._keep(Cursor(now.store, now.epoch, until))

    def _news(self, until: int) -> list[Found]:
        open_ones = (State.UNREAD, State.CLAIMED)
        return self._store.find(
            Query(
                states=open_ones, unread_only=True, shown_only=True, after=self._number, until=until, order="age"
            )
        )

    def _tell(self, found: list[Found]) -> None:
        by_name: dict[str, list[Found]] = {}
        for one in found:
            if is_here(one.delivery.mailbox):
                by_name.setdefault(one.delivery.mailbox, []).append(one)
        for name, news in by_name.items():
            with _alone(name):
                self._tell_one(name, news)

    def _tell_one(self, name: str, news: list[Found]) -> None:
        result = self.folder.content(name) if self._is_first else b""
        lines = [line_of(one.message, name) for one in news if _id_in_line(one.message.id) not in result]
        gone = self.folder.append(name, lines) if lines else 0
        if lines:
            self._look_again_at(name)
        if gone:
            words = "the inbox file of %s was full: its %d oldest lines were dropped; the letters are in the inbox"
            log.warning(words, name, gone)

    def _look_again_at(self, name: str) -> None:
        self._unsure[name] = time.monotonic() + MOMENT / 1e9

    # -- how far we are

    def _begin(self, now: Cursor) -> int:
        """Where we stopped. A room that was set back has fewer numbers: then from the beginning."""
        path = self._cursor_file(now)
        try:
            held = read(path).decode("ascii", "replace").strip()
            number = Cursor.parse(held).number if held else 0
        except (Invalid, InTheWay) as refused:
            log.warning("%s cannot be read; what is unread is told from the beginning: %s", path, refused)
            return 0
        return number if number <= now.number else 0

    def _keep(self, cursor: Cursor) -> None:
        if not self._is_kept:
            return
        try:
            write(self._cursor_file(cursor), f"{cursor}\n".encode())
        except InTheWay as refused:
            log.warning("how far the inbox files are cannot be noted: %s", refused)

    def _cursor_file(self, cursor: Cursor) -> str:
        return os.path.join(self.folder.path, f".cursor-{cursor.store}")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """What is in one agent's way, or goes wrong with its file by a fault of ours, is no reason to tell the others
    nothing. A disk that is full is everybody's.
    """
    try:
        yield
    except BaseException as refused:
        is_everybodys = isinstance(refused, OSError) and not isinstance(refused, InTheWay)
        if is_everybodys or not isinstance(refused, Exception):
            raise
        is_ours = not isinstance(refused, PostroomError | InTheWay)
        log.warning("the inbox file of %s cannot be written: %s", name, refused, exc_info=is_ours)


def _id_in_line(id: str) -> bytes:
    """How a letter's id stands in its line."""
    return f'"messageId":"{id}"'.encode()


def is_here(name: str) -> bool:
    """Is this an agent of this room? Those of other systems have files there."""
    return "@" not in name
