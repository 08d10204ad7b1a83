"""The files `<agent>.inbox.jsonl`: a line for each new letter, for hooks that can read nothing but a file.

A file is a hint, the inbox is the truth. Our writer and our readers hold the lock of the folder, so no line is
lost between them: the writer appends whole lines by one call, and replaces a full file by a shorter one; a reader
removes the lines that it has shown, and lines of a reader that died before are shown a second time. A program that
takes no lock may empty away a line that it has not read; the letter is still unread in the inbox.

Two agents whose names have the same safe form get two files: `.names` says which is whose, and the first one keeps
the plain name. A path that is not a regular file with one name (a link, a pipe, a folder) is not touched.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..constants import safe_form
from ..core.authorize import OWNER
from ..core.deliveries import find_letters
from ..core.inbox import current_cursor
from ..errors import BadStore, Invalid, PostroomError
from ..formats.inbox import line_of, notice_of
from ..model.codec import blake2b
from ..model.delivery import State
from ..model.query import Query
from ..model.record import Cursor
from ..own_file import LockFile
from ..store.notification import ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..model.query import Found
    from ..server.executor import Executor


_NOTICE = re.compile(rb'\{"dropped":(\d{1,18}),')  # the start of the line that says how many lines were trimmed

# -- regular files with one name. Nothing is followed, and nothing is waited for.

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened without waiting, and then refused
# What the system refuses about one path, until somebody changes it. Any other error concerns the whole folder.
_OF_ONE_PATH = frozenset(
    {errno.EINVAL, errno.EMLINK, errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EACCES, errno.EPERM}
    | {errno.ENXIO, errno.ENAMETOOLONG}
)


def check(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    if found.st_nlink > 1:
        raise OSError(errno.EMLINK, "it has a second name (hard link)", path)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    file = os.open(path, flags | _FLAGS, 0o600)
    try:
        check(os.fstat(file), path)
        yield file
    finally:
        os.close(file)


def _read(path: str) -> bytes:
    """Return the content of a file, empty if there is none."""
    try:
        with _opened(path, os.O_RDONLY) as file, open(file, "rb", closefd=False) as content:
            return content.read()
    except FileNotFoundError:
        return b""


def _lines(path: str) -> list[bytes]:
    """Return the lines of a file, each with its newline, also one that a dead writer left incomplete."""
    return [line + b"\n" for line in _read(path).split(b"\n") if line]


def _append(path: str, data: bytes) -> None:
    """Append whole lines, all or nothing. A line that a dead writer left incomplete is ended first."""
    with _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
        size = os.fstat(file).st_size
        if data and size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            _write_all(file, data)
        except OSError:  # the disk is full
            os.ftruncate(file, size)
            raise


def _write_all(file: int, data: bytes) -> None:
    """Write all data, by one call unless the system takes less at once."""
    while data:
        data = data[os.write(file, data) :]


def _replace(path: str, data: bytes) -> None:
    """Write a file as a whole; after a crash it is either the new one or the old one."""
    draft = f"{path}.new"
    if os.path.lexists(draft):  # a dead writer left it
        os.unlink(draft)
    with _opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        _write_all(file, data)
    os.rename(draft, path)


# -- the folder of inbox files


class InboxFolder:
    """The files of one folder. `notice` makes the line that says how many lines were dropped."""

    most = 1000  # lines of a file; as in agent-inbox it may grow by a tenth before it is trimmed
    most_bytes = 5 * 2**20

    def __init__(self, path: str, notice: Callable[[str, int], bytes] | None = None) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self._notice = notice
        self._names = os.path.join(self.path, ".names")

    def prepare(self) -> None:
        """Make the folder, for its owner alone, if it does not exist (any more)."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            found = os.stat(self.path)
        except OSError as error:
            raise BadStore(f"cannot make {self.path}: {error.strerror}", field="inboxes") from error
        if found.st_uid != os.geteuid():
            raise BadStore(f"{self.path} belongs to another user", field="inboxes")

    def append(self, agent: str, lines: Sequence[bytes]) -> int:
        """Append lines, each with its newline, unless they are there. Return how many older ones were dropped."""
        with self._lock():
            stem, owners = self._find(agent)
            if stem not in owners:
                _append(self._names, f"{stem} {agent}\n".encode())
            path = self._path(stem)
            held = _lines(path)
            known = set(held)
            new = [line for line in lines if line not in known]
            _append(path, b"".join(new))
            held += new
            is_full = len(held) * 10 > self.most * 11 or sum(map(len, held)) * 10 > self.most_bytes * 11
            return self._trim(path, agent, held) if is_full else 0

    def read(self, agent: str) -> list[bytes]:
        """Return the lines that wait, each with its newline. They stay there."""
        if not os.path.isdir(self.path):
            return []
        with self._lock():
            return _lines(self._path(self._find(agent)[0]))

    def remove(self, agent: str, lines: frozenset[bytes]) -> None:
        """Remove lines that were shown."""
        if not lines:
            return
        with self._lock():
            path = self._path(self._find(agent)[0])
            _replace(path, b"".join(line for line in _lines(path) if line not in lines))

    def _trim(self, path: str, agent: str, lines: list[bytes]) -> int:
        """Keep the newest lines in a new file. Return how many were dropped now."""
        notice = _NOTICE.match(lines[0])
        before = int(notice[1]) if notice else 0
        lines = lines[1:] if notice else lines
        first, size = len(lines), 0
        while first > max(len(lines) - self.most + 1, 0) and size + len(lines[first - 1]) <= self.most_bytes:
            first -= 1
            size += len(lines[first])
        head = [self._notice(agent, before + first)] if self._notice else []
        _replace(path, b"".join([*head, *lines[first:]]))
        return first

    def _path(self, stem: str) -> str:
        return os.path.join(self.path, f"{stem}.inbox.jsonl")

    def _find(self, agent: str) -> tuple[str, dict[str, str]]:
        """Return the stem of an agent's file, and the owners of all stems. A damaged line is nobody's."""
        held = _read(self._names).decode(errors="replace")
        owners = dict(line.split(" ", 1) for line in held.splitlines() if " " in line)
        mark = blake2b(agent.encode(), digest_size=16).hexdigest()
        for suffix in ("", f"-{mark[:8]}", f"-{mark}"):
            stem = f"{safe_form(agent)}{suffix}"
            if owners.get(stem, agent) == agent:
                return stem, owners
        raise BadStore(f"no name is left for the file of {agent!a}", field="inboxes")

    def _lock(self) -> LockFile:
        """Return the folder's lock. Its holder never waits for anything else."""
        return LockFile(os.path.join(self.path, ".lock"))


# -- writing lines for new letters

log = logging.getLogger("postroom")
SLICE = 500  # changes looked at in one go
RETRY_SECONDS = 5.0  # after a failure
_OPEN = (State.UNREAD, State.CLAIMED)


class InboxFileWriter:
    """Writes a line for each new letter of any sender into the inbox files. Made inside an event loop.

    Its cursor is stored in a file next to them, written after the lines: after a crash a letter may get a second
    line, but never none. The very first start writes all unread letters. A letter that was read before gets no
    line.
    """

    def __init__(self, executor: Executor, folder: str, *, is_kept: bool = True) -> None:
        self._executor = executor
        self.folder = InboxFolder(folder, lambda name, n: notice_of(name, n, executor.core.now().wall))
        self.folder.prepare()
        self._is_kept = is_kept  # does the room outlive this process?
        self._number = -1  # of the last change that was written; -1: not known yet

    async def run(self) -> None:
        """Write lines for ever. Failures are logged, and tried again."""
        with self._executor.listen([ROOM]) as notified:
            while True:
                notified.clear()
                try:
                    await self._executor.run_slow(self.write_new_letters)
                except Exception as failed:  # boundary: the writer goes on whatever happens
                    is_bug = not isinstance(failed, PostroomError | OSError)
                    log.warning("the inbox files could not be written: %s", failed, exc_info=is_bug)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    await notified.wait()

    def write_new_letters(self) -> None:
        """Write lines for all letters that came since the last time. It runs on a thread of its own."""
        self.folder.prepare()  # it may have been removed
        now = current_cursor(self._executor.core, OWNER)
        if self._number < 0:
            self._number = self._load_cursor(now)
        while self._number < now.number:
            # Only up to the cursor read above: a letter that comes meanwhile has its own notification.
            until = min(self._number + SLICE, now.number)
            news = Query(
                states=_OPEN, unread_only=True, shown_only=True, after=self._number, until=until, order="age"
            )
            by_name: dict[str, list[Found]] = {}
            for one in find_letters(self._executor.core, news):
                if is_local(one.delivery.mailbox):
                    by_name.setdefault(one.delivery.mailbox, []).append(one)
            for name, letters in by_name.items():
                self._write_agent(name, letters)
            self._number = until
            # After the lines: a crash in between writes some of them twice, and never none.
            if self._is_kept:
                self._save_cursor(Cursor(now.store, now.epoch, until))

    def _write_agent(self, name: str, news: list[Found]) -> None:
        try:
            dropped = self.folder.append(name, [line_of(one.message, name) for one in news])
        except Exception as refused:  # boundary: one agent's file must not stop the others
            if isinstance(refused, OSError) and refused.errno not in _OF_ONE_PATH:
                raise
            is_bug = not isinstance(refused, PostroomError | OSError)
            log.warning("the inbox file of %s cannot be written: %s", name, refused, exc_info=is_bug)
            return
        if dropped:
            text = "the inbox file of %s was full: its %d oldest lines were dropped; they are in the inbox"
            log.warning(text, name, dropped)

    def _load_cursor(self, now: Cursor) -> int:
        """Return the number of the last change that was written. A restored room may have fewer: then 0."""
        path = self._cursor_file(now)
        try:
            held = _read(path).decode("ascii", "replace").strip()
            number = Cursor.parse(held).number if held else 0
        except (Invalid, OSError) as refused:
            log.warning("%s cannot be read; all unread letters are written again: %s", path, refused)
            return 0
        return number if number <= now.number else 0

    def _save_cursor(self, cursor: Cursor) -> None:
        try:
            _replace(self._cursor_file(cursor), f"{cursor}\n".encode())
        except OSError as refused:
            log.warning("the cursor of the inbox files cannot be written: %s", refused)

    def _cursor_file(self, cursor: Cursor) -> str:
        return os.path.join(self.folder.path, f".cursor-{cursor.store}")


def is_local(name: str) -> bool:
    """Return whether this is an agent of this room; those of other systems have their files there."""
    return "@" not in name
