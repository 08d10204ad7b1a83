"""Every disk a crash could leave: a writer is watched with strace, and its steps are played again, in part.

What was written into a file survives a crash for sure only if that file was synced afterwards; else any part of it
may be missing. Names (files made, renamed, removed) survive in the order they were given: all of them, or with
ext4 and xfs and their journals those before the last sync of anything, or, as POSIX has it, only those before the
last sync of their folder. Folders themselves are taken to be there.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

TRACED = (
    "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat"
    ",link,linkat,writev,pwritev,fallocate,copy_file_range,sendfile"
)
LONGEST = 16 * 1024 * 1024  # bytes of one write that the trace shows
PATIENCE = 60.0
_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += +(\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>")


class Made(Struct, frozen=True):
    path: str


class Gone(Struct, frozen=True):
    path: str


class Renamed(Struct, frozen=True):
    path: str
    new: str


class Wrote(Struct, frozen=True):
    path: str
    at: int
    data: bytes


class Added(Struct, frozen=True):
    path: str
    data: bytes  # behind what is there


class Cut(Struct, frozen=True):
    path: str
    size: int


class Grown(Struct, frozen=True):
    path: str
    size: int  # at least


class Synced(Struct, frozen=True):
    path: str


class Said(Struct, frozen=True):
    line: str


Step: TypeAlias = Made | Gone | Renamed | Wrote | Added | Cut | Grown | Synced | Said
Change: TypeAlias = Wrote | Cut | Grown
Loss: TypeAlias = Callable[[Sequence[Change]], Sequence[Change]]
Files: TypeAlias = dict[str, bytes]
EVERYTHING = "all that may be lost"
NAMES = (NOW, ANY_SYNC, FOLDER_SYNC) = "now", "any sync", "folder sync"  # until when names have survived


# -- watching


def record(folder: Path, trace: Path, *arguments: str) -> list[Step]:
    """Run the writer on this folder to its end; all it did there, in order."""
    command = [sys.executable, "-m", "tests.faults.writer", str(folder), "writer", *arguments]
    watched = ["strace", "-f", "-y", "-qq", "-xx", "-s", str(LONGEST), "-e", f"trace={TRACED}", "-o", str(trace)]
    subprocess.run([*watched, *command], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    with trace.open(errors="replace") as lines:
        return [step for line in lines for step in _steps(line, str(folder))]


def _steps(line: str, folder: str) -> Iterator[Step]:
    call = _CALL.match(line)
    if call is None:  # it failed, or is about a signal
        return
    name, arguments, result = call[1], call[2], int(call[3])
    texts = [_plain(text) for text in _TEXT.findall(arguments)]
    at = _FILE.match(arguments)
    path = _plain(at[2]).decode() if at else ""
    if name == "write" and at and at[1] == "1":
        yield Said(texts[0].decode().strip())
    elif name in _ON_FILES and path.startswith(folder):
        yield _ON_FILES[name](path, texts, arguments, result)
    elif name in _ON_NAMES and texts and texts[0].decode().startswith(folder):
        yield from _ON_NAMES[name]([text.decode() for text in texts], arguments)
    elif name in _UNKNOWN and path.startswith(folder):
        raise NotImplementedError(f"a writer that uses {name} cannot be played again")


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _last(arguments: str) -> int:
    return int(arguments.rsplit(",", 1)[1])


_ON_FILES: dict[str, Callable[[str, list[bytes], str, int], Step]] = {
    "write": lambda path, texts, _arguments, done: Added(path, texts[0][:done]),
    "pwrite64": lambda path, texts, arguments, done: Wrote(path, _last(arguments), texts[0][:done]),
    "ftruncate": lambda path, _texts, arguments, _done: Cut(path, _last(arguments)),
    "fallocate": lambda path, _texts, arguments, _done: Grown(path, sum(map(int, arguments.split(", ")[2:]))),
    "fsync": lambda path, _texts, _arguments, _done: Synced(path),
    "fdatasync": lambda path, _texts, _arguments, _done: Synced(path),
}
_ON_NAMES: dict[str, Callable[[list[str], str], list[Step]]] = {
    "openat": lambda paths, arguments: [Made(paths[0])] if "O_CREAT" in arguments else [],
    "unlink": lambda paths, _arguments: [Gone(paths[0])],
    "rename": lambda paths, _arguments: [Renamed(*paths)],
    "renameat2": lambda paths, _arguments: [Renamed(*paths)],
    "mkdir": lambda _paths, _arguments: [],  # folders are taken to be there
}
_UNKNOWN = frozenset(TRACED.split(",")) - {*_ON_FILES, *_ON_NAMES}


# -- playing again


class _File:
    """What is surely on the disk, and what was written since."""

    def __init__(self) -> None:
        self.sure = b""
        self.since: list[Change] = []
        self._made: dict[tuple[int, ...], bytes] = {}  # most files do not change at most steps

    def change(self, step: Change) -> None:
        self.since.append(step)
        self._made.clear()

    def sync(self) -> None:
        self.sure, self.since = self.after(self.since), []
        self._made.clear()

    def after(self, changes: Sequence[Change]) -> bytes:
        """What it holds if of all changes since the last sync these came to the disk."""
        own = set(map(id, self.since))
        key = tuple(map(id, changes))
        if not own.issuperset(key):  # made up by a loss
            return self._apply(changes)
        if key not in self._made:
            self._made[key] = self._apply(changes)
        return self._made[key]

    def _apply(self, changes: Sequence[Change]) -> bytes:
        content = bytearray(self.sure)
        for change in changes:
            if isinstance(change, Grown):
                content.extend(bytes(max(0, change.size - len(content))))
            elif isinstance(change, Cut):
                del content[change.size :]
                content.extend(bytes(change.size - len(content)))
            else:
                content.extend(bytes(max(0, change.at - len(content))))
                content[change.at : change.at + len(change.data)] = change.data
        return bytes(content)


class Disk:
    """A disk, and what would be left of it if the power failed now."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._journaled: dict[str, _File] = {}
        self._sure: dict[str, _File] = {}

    def take(self, step: Step) -> None:
        match step:
            case Made(path):
                self._names.setdefault(path, _File())
            case Gone(path):
                del self._names[path]
            case Renamed(path, new):
                self._names[new] = self._names.pop(path)
            case Wrote(path) | Cut(path) | Grown(path):
                self._names[path].change(step)
            case Added(path, data):
                file = self._names[path]
                file.change(Wrote(path, len(file.after(file.since)), data))
            case Synced(path):
                self._journaled = dict(self._names)
                if path in self._names:
                    self._names[path].sync()
                else:  # a folder
                    elsewhere = {name: file for name, file in self._sure.items() if not _is_in(name, path)}
                    self._sure = elsewhere | {
                        name: file for name, file in self._names.items() if _is_in(name, path)
                    }
            case Said():
                pass

    def left(self, loss: Loss, names_until: str) -> Files:
        """The files after a crash in which what was not synced suffered this loss."""
        names = {NOW: self._names, ANY_SYNC: self._journaled, FOLDER_SYNC: self._sure}[names_until]
        return {path: file.after(loss(file.since)) for path, file in names.items()}


def _is_in(name: str, folder: str) -> bool:
    return name.rpartition("/")[0] == folder


def _torn(changes: Sequence[Change]) -> Sequence[Change]:
    last = changes[-1] if changes else None
    if not isinstance(last, Wrote):
        return changes
    return [*changes[:-1], Wrote(last.path, last.at, last.data[: len(last.data) // 2])]


def _zeroed(changes: Sequence[Change]) -> Sequence[Change]:
    """The files have grown, but nothing came to lie in them."""
    return [Wrote(c.path, c.at, bytes(len(c.data))) if isinstance(c, Wrote) else c for c in changes]


# The worst comes last: where several leave the same disk, it gives its name.
LOSSES: dict[str, Loss] = {
    "none": lambda changes: changes,
    "the last": lambda changes: changes[:-1],
    "the first": lambda changes: changes[1:],
    "every other": lambda changes: changes[::2],
    "half of the last": _torn,
    "all but the sizes": _zeroed,
    EVERYTHING: lambda _changes: (),
}


class Crash(Struct, frozen=True):
    """When the power failed, and what was lost of all that was not synced."""

    step: int
    lost: str
    names_until: str


def crashes(steps: Sequence[Step]) -> list[Crash]:
    """All of them, in order. Of those that leave the same disk, the latest: most was promised by then."""
    found: dict[int, Crash] = {}
    disk = Disk()
    for number, step in enumerate(steps):
        disk.take(step)
        for lost, until in itertools.product(LOSSES, NAMES):
            left = disk.left(LOSSES[lost], until)
            found[hash(tuple(sorted(left.items())))] = Crash(number, lost, until)
    return sorted(found.values(), key=lambda crash: crash.step)


def sample(every: Sequence[Crash], most: int) -> list[Crash]:
    """All that lose everything they may, and others evenly."""
    others = [crash for crash in every if crash.lost != EVERYTHING]
    stride = max(1, len(others) // most)
    return sorted(
        [*others[::stride], *(crash for crash in every if crash.lost == EVERYTHING)], key=lambda crash: crash.step
    )


def after_each(steps: Sequence[Step], chosen: Sequence[Crash]) -> Iterator[tuple[Crash, Files, list[str]]]:
    """The files that each crash leaves, and what was promised before it."""
    disk, message, done = Disk(), list[str](), 0
    for crash in chosen:
        for step in steps[done : crash.step + 1]:
            disk.take(step)
            if isinstance(step, Said):
                message.append(step.line)
        done = crash.step + 1
        yield crash, disk.left(LOSSES[crash.lost], crash.names_until), message


def lay_out(files: Files, folder: Path, target: Path) -> None:
    """The files that a crash left of a folder, in a folder of their own."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    for path, content in files.items():
        place = target / Path(path).relative_to(folder)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o600)
