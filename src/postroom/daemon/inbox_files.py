"""A folder of `<agent>.inbox.jsonl` files: a line per letter, for hooks that read a file and nothing else.

The file is a hint, the inbox is the truth. Still no line may get lost on the way:

    writer   takes the folder's lock, opens the file by its name, writes whole lines at its end by one call, and
             lets go.
    reader   takes the lock, renames the file, lets go, reads at leisure, and removes it when it has shown the
             lines. No writer can have hold of what was renamed. What a reader left behind that died is taken by
             the next one: better twice than never.
    trim     writes a new file and renames it into place, under the lock. Its first line says what was dropped.

agent-inbox's own reader knows no lock: it reads the file and then empties it, and a line that comes in between is
gone. The writer sees that, and writes it again (`inbox_doubts.py`); so our own looks at a file leave no trace.

Two agents whose names have the same safe form get two files: which one is whose stands in `.names`, and the first
one keeps the plain name. What is no file of its own (`plain_files.py`) is never written or read: one agent's is in
that agent's way alone, and `.names` is set aside. It weighs next to nothing: a hook reads with it at every prompt.
"""

from __future__ import annotations

import fcntl
import os

from ..errors import BadStore
from . import plain_files
from .inbox_doubts import Last

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

END = ".inbox.jsonl"
MOST = 1000  # lines of a file; as in agent-inbox it may grow by a tenth before it is trimmed
MOST_BYTES = 5 * 2**20
DROPPED = b'{"dropped":'  # so begins the line that tells what was trimmed
_LONGEST_NUMBER = 18  # digits
_TAKEN = ".taken."
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_NAMES = ".names"


def safe_form(name: str) -> str:
    """A name as agent-inbox writes it in the name of a file."""
    return "".join(letter if letter in _SAFE else "_" for letter in name)


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
        return not plain_files.is_in_the_way(path) and plain_files.size(path) < last.size

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
            return b"".join(plain_files.read(os.path.join(self.path, name)) for name in names)

    def _write(self, stem: str, agent: str, lines: list[bytes]) -> int:
        last = self._last.setdefault(stem, Last())
        path = os.path.join(self.path, f"{stem}{END}")
        file = plain_files.open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
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
                last.count = plain_files.read(path).count(b"\n")
            size = plain_files.write_lines(file, found.st_size, b"".join([*(one.line for one in again), *lines]))
            last.count += len(again) + len(lines)
            found = os.fstat(file)
            last.leave(found, size)
            last.doubt(again, lines)
            if found.st_size >= size:
                return
            lines = []

    def _trim(self, path: str, agent: str, last: Last) -> int:
        """The newest lines, in a new file. How many went now."""
        lines = plain_files.read(path).splitlines(keepends=True)
        before = _dropped(lines[0]) if lines else 0
        if before:
            lines.pop(0)
        first, size = len(lines), 0
        while first > max(len(lines) - self._most + 1, 0) and size + len(lines[first - 1]) <= self._most_bytes:
            first -= 1
            size += len(lines[first])
        head = [self._notice(agent, before + first)] if self._notice else []
        file = plain_files.replace(path, b"".join([*head, *lines[first:]]))
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
            if plain_files.size(path):
                name = os.path.join(self.path, f"{stem}{_TAKEN}{os.urandom(6).hex()}")
                os.rename(path, name)
                taken.adopt(name)
        return taken if taken.held else None

    def _left(self, stem: str) -> list[str]:
        """What readers have taken and not put away. They leave files, and what is none is not theirs."""
        left = sorted(name for name in os.listdir(self.path) if name.startswith(f"{stem}{_TAKEN}"))
        return [name for name in left if not plain_files.is_in_the_way(os.path.join(self.path, name))]

    # -- whose file is which

    def _claim(self, agent: str) -> str:
        """The stem of an agent's file, made its own now if it was not yet."""
        stem = self._stems.get(agent)
        if stem is None:
            stem, owners = self._find(agent)
            if stem not in owners:
                plain_files.append(self._names, _noted(stem, agent))
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
        held = plain_files.read(self._names)
        text = held.decode(errors="replace")
        if text.encode() != held and not self._is_spoiled:
            self._is_spoiled = True
            self._say(f"{self._names} has lines that are no text; they are passed by")
        return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)

    def mend_names(self) -> None:
        """Set aside what is no file, and write down again whose files we know."""
        if not plain_files.is_in_the_way(self._names):
            return
        with _Locked(self.path):
            if not plain_files.is_in_the_way(self._names):  # somebody else did it just now
                return
            aside = f"{self._names}.{os.urandom(6).hex()}"
            os.rename(self._names, aside)
            plain_files.append(self._names, b"".join(_noted(stem, agent) for agent, stem in self._stems.items()))
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
    from ..model.hashing import blake2b  # noqa: PLC0415 - few names meet

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
            file = os.open(path, os.O_RDONLY | plain_files.FLAGS)
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
        self.content += plain_files.read_from(file)

    def done(self) -> None:
        """The lines were shown. What a stranger without a lock still wrote into the file goes back."""
        for path, file in self.held:
            late = plain_files.read_from(file)
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
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | plain_files.FLAGS, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *how: object) -> None:
        os.close(self._file)
