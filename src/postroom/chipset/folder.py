"""The state folder: JSON files that other programs may read and write too, one lock, times, and time limits.

A file is written whole beside its target, synced and renamed, and then its folder is synced, so no reader ever
sees half of a file. Links are refused. A decision that depends on what was read is made under the lock; other
programs do not know the lock, but find whole files anyway. Nothing here knows what the files mean.

Times are ISO in UTC inside files, with dashes for colons in their names.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from ..errors import Invalid, PostroomError, StoreBusy, StoreFailing, Unreadable
from ..model.names import check_agent, fold
from ..model.values import read_json
from ..own_file import LockFile
from ..store.files import durable as files_durable
from ..store.files.layouts.base import time_or_none
from ..store.sqlite.ground import make_folder, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime


TICK = timedelta(microseconds=1)  # the least difference between two times that must differ


def name_of(time: datetime) -> str:
    """Return a time as the start of a file's name, always of the same length, so that names sort by time."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H-%M-%S.%f}Z"


def time_in_name(name: str) -> datetime | None:
    """Return the time at the start of a file's name."""
    day, _, rest = name.removesuffix(".json").partition("T")
    clock = rest.partition("Z")[0].replace("-", ":")
    return time_or_none(f"{day}T{clock}Z")


def after(time: datetime, last: datetime | None) -> datetime:
    """Return a time later than `last`, even if the clock was set back."""
    try:
        return time if last is None or time > last else last + TICK
    except OverflowError:  # another program wrote the last possible time
        return time


# Time limits. `Patience(...)` takes any values; `chosen` keeps those of users within the design's ranges.

RANGES = {  # seconds
    "stall_after": (60.0, 1800.0),
    "nudge_every": (30.0, 600.0),
    "answer_within": (1.0, 600.0),
}


class Patience(Struct, frozen=True, kw_only=True):
    """The time limits of mayor and witness."""

    stall_after: float = 300.0  # seconds without activity until an agent counts as stalled
    nudge_every: float = 120.0  # seconds between two nudges
    answer_within: float = 60.0  # seconds for an answer
    answers: dict[str, float] = {}  # seconds for an answer, for agents that need longer or shorter
    most_restarts: int = 3  # of one item; then a human is notified
    pause: float = 60.0  # seconds between two starts of one item

    def for_answer(self, agent: str) -> float:
        return self.answers.get(fold(agent), self.answer_within)


def chosen(
    *,
    stall_after: float = 300.0,
    nudge_every: float = 120.0,
    answer_within: float = 60.0,
    answers: Mapping[str, float] | None = None,
) -> Patience:
    """Return the limits that a user chose, or raise Invalid."""
    return Patience(
        stall_after=_within(stall_after, "stall_after"),
        nudge_every=_within(nudge_every, "nudge_every"),
        answer_within=_within(answer_within, "answer_within"),
        answers={
            fold(check_agent(agent, "answers")): _within(span, "answer_within", agent)
            for agent, span in (answers or {}).items()
        },
    )


def _within(seconds: float, name: str, agent: str = "") -> float:
    least, most = RANGES[name]
    if not math.isfinite(seconds) or not least <= seconds <= most:
        whose = f" for {agent}" if agent else ""
        raise Invalid(f"{seconds:g} seconds{whose} is out of range", field=name, hint=f"{least:g} to {most:g}")
    return float(seconds)


# The state folder

OWN = ".postroom"  # the folder for files that the design does not have
LARGEST = 1024 * 1024  # bytes of a file
ENDING = ".json"
ASIDE = ".quarantine"
_LOCK = "chipset.lock"
_DEEPEST = 64
_UNFINISHED = re.compile(rf"\.[0-9a-f]{{18}}\{files_durable.TEMPORARY}")  # the name of an unfinished file
_PAUSE = 0.002  # seconds between two attempts at the lock

Fields = dict[str, Any]
T = TypeVar("T", bound=Struct)


class StateFolder:
    """One state folder, which is created by the first write."""

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True, busy_timeout: float = 30.0) -> None:
        self.path = os.path.realpath(path)
        self._durable = durable
        self._busy_timeout = busy_timeout
        self._held = threading.local()

    # -- the lock

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock, over all processes and threads. The same thread may take it again."""
        # flock knows no owner but the open file: a second lock of the same thread would wait for itself.
        depth = getattr(self._held, "depth", 0)
        lock = self._take() if depth == 0 else None
        self._held.depth = depth + 1
        try:
            yield
        finally:
            self._held.depth = depth
            if lock is not None:
                lock.leave()

    def _take(self) -> LockFile:
        lock = LockFile(f"{self._made((OWN,))}/{_LOCK}")
        until = time.monotonic() + self._busy_timeout
        while self._writing(lock.take) is not None:  # flock has no timeout, so it is tried again and again
            if time.monotonic() > until:
                raise StoreBusy(f"{lock.path} is held by another process")
            time.sleep(_PAUSE)
        return lock

    # -- reading

    def read(self, *where: str) -> Fields | None:
        """Return the content of a file; None if there is none. Raise Unreadable if it is no JSON object."""
        try:
            self.check_folders(*where[:-1])
            raw, _ = files_durable.read("/".join((self.path, *where)), LARGEST)
            fields = read_json(raw, "file", depth=_DEEPEST, largest=LARGEST)
        except FileNotFoundError:
            return None
        except Unreadable as broken:
            raise Unreadable(f"{'/'.join(where)}: {broken.message}") from None
        except PostroomError as broken:
            raise Unreadable(f"{'/'.join(where)}: it {broken.message}") from None
        if not isinstance(fields, dict):
            raise Unreadable(f"{'/'.join(where)}: it holds no object")
        return fields

    def read_as(self, kind: type[T], *where: str) -> T | None:
        """Return the content of a file of ours; None if there is none, or it cannot be read."""
        try:
            fields = self.read(*where)
            return None if fields is None else msgspec.convert(fields, kind)
        except (Unreadable, msgspec.ValidationError):
            return None

    def names(self, *where: str, ending: str = ENDING) -> list[str]:
        """Return the names of the files in a folder, sorted, without hidden ones."""
        try:
            self.check_folders(*where)
            found = os.listdir("/".join((self.path, *where)))
        except (FileNotFoundError, NotADirectoryError, Unreadable):
            return []
        return sorted(name for name in found if name.endswith(ending) and not name.startswith("."))

    def exists(self, *where: str) -> bool:
        return os.path.lexists("/".join((self.path, *where)))

    # -- writing

    def write(self, fields: Fields | Struct, *where: str) -> None:
        """Write a file, or replace it."""
        # The folder is synced after the rename: else a power cut may take the name away again (G1).
        folder = self._made(where[:-1])
        self._writing(lambda: files_durable.replace(folder, where[-1], _dump(fields), durable=self._durable))
        self._sync(folder)

    def add(self, fields: Fields, *where: str) -> None:
        """Write a new file; raise FileExistsError if there is one."""
        folder = self._made(where[:-1])
        self._writing(lambda: files_durable.write_new(folder, where[-1], _dump(fields), durable=self._durable))
        self._sync(folder)

    def remove(self, *where: str) -> None:
        with suppress(FileNotFoundError):
            self._writing(lambda: os.unlink("/".join((self.path, *where))))

    def set_aside(self, *where: str) -> str:
        """Move an unreadable file to the quarantine, and return its new path."""
        folder = self._made((*where[:-1], ASIDE))
        # A name of its own: the same file may be damaged twice, and neither copy may be lost.
        name = f"{where[-1]}.{os.urandom(4).hex()}"
        self._writing(lambda: files_durable.rename_new("/".join((self.path, *where)), f"{folder}/{name}"))
        self._sync(folder)
        return f"{folder}/{name}"

    # -- names

    def spelling(self, agent: str, *where: str, ending: str = "") -> str:
        """Return the name of the file or folder of an agent: an existing one, in any case, or a new one."""
        wanted = folder_of(agent) + ending
        if self.exists(*where, wanted):
            return wanted
        for name in self.names(*where, ending=ending):
            if fold(name) == fold(wanted):
                return name
        return wanted

    # -- below

    def _made(self, folders: tuple[str, ...]) -> str:
        """Return the path of a folder after creating it, and delete the unfinished files of killed processes."""
        path = "/".join((self.path, *folders))
        self._writing(lambda: self._make(folders))
        try:
            self.check_folders(*folders)
        except Unreadable as wrong:
            raise StoreFailing(f"{path}: {wrong.message}") from None
        if getattr(self._held, "depth", 0):  # every write is made under the lock, so no other process writes now
            _clear(path)
        return path

    def _make(self, folders: tuple[str, ...]) -> None:
        if not os.path.lexists(self.path):
            make_folder(self.path)
        path = self.path
        for name in folders:
            path = f"{path}/{name}"
            files_durable.make_folder(path)

    def check_folders(self, *folders: str) -> None:
        """Refuse a path on which something is no folder, or a link; raise FileNotFoundError if one is missing."""
        path = self.path
        for name in folders:
            path = f"{path}/{name}"
            # lstat: a link could lead out of the state folder.
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise Unreadable("it is a link, or not a folder")

    def _sync(self, folder: str) -> None:
        if self._durable:
            self._writing(lambda: sync_path(folder))

    @staticmethod
    def _writing(do: Callable[[], Any]) -> Any:
        """Run a write, and turn an error of the disk into StoreFailing."""
        try:
            return do()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as failed:
            raise StoreFailing(f"it cannot be written: {failed.strerror}") from None


def folder_of(agent: str) -> str:
    """Return an agent's name as the name of a file or folder; never a path."""
    return check_agent(agent, "agent").replace("/", "_")


def _dump(fields: Fields | Struct) -> bytes:
    """Return JSON with sorted keys, one to a line, so that a diff in git is small."""
    return json.dumps(msgspec.to_builtins(fields), indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        if _UNFINISHED.fullmatch(name):
            with suppress(OSError):
                os.unlink(f"{folder}/{name}")
