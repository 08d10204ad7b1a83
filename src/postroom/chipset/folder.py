"""Times as the chipset writes them: ISO in UTC inside files, with dashes for colons in their names."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import stat
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid, PostroomError, StoreBusy, StoreFailing, Unreadable
from ..model.names import check_agent, fold
from ..model.values import read_json
from ..store.files import durable as files_durable
from ..store.sqlite.ground import make_folder, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


TICK = timedelta(microseconds=1)  # by so much is a time later than one that must come before it


def text_of(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_in(value: Any) -> datetime | None:
    """A time that somebody wrote, of any zone; one without a zone is UTC. None if it is no time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def name_of(time: datetime) -> str:
    """As the beginning of a file's name: always as long, so that names sort by time."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H-%M-%S.%f}Z"


def time_in_name(name: str) -> datetime | None:
    """Back again, from a name that begins so."""
    day, _, rest = name.removesuffix(".json").partition("T")
    clock = rest.partition("Z")[0].replace("-", ":")
    return time_in(f"{day}T{clock}Z")


def after(time: datetime, last: datetime | None) -> datetime:
    """This time, or the next possible one where it is not later than the last: clocks are set back."""
    try:
        return time if last is None or time > last else last + TICK
    except OverflowError:  # a stranger's, at the end of all days
        return time


# How long is waited for what, and which values a user may choose. Knows numbers alone.
#
# `Patience(...)` takes any values; `chosen` is for what users set, and keeps them within the design's ranges.

RANGES = {  # seconds
    "stall_after": (60.0, 1800.0),
    "nudge_every": (30.0, 600.0),
    "answer_within": (1.0, 600.0),
}


class Patience(Struct, frozen=True, kw_only=True):
    stall_after: float = 300.0  # seconds without activity until an agent counts as stalled
    nudge_every: float = 120.0  # seconds between two nudges
    answer_within: float = 60.0  # seconds for an answer
    answers: dict[str, float] = {}  # the same, for agents that need longer or shorter
    most_restarts: int = 3  # of one item; then a human is told
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
    """What a user chose, or Invalid."""
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


# The state folder: JSON files that strangers may read and write too, and one lock among ourselves.
#
# Refuses to know what stands in the files. A file is written whole beside its target, synced, renamed, and the
# folder synced, so nobody ever reads half of one. Nothing is followed: a link, or a folder that is one, is
# refused.
# What is decided by looking first is decided under the lock; strangers do not know it, and find whole files
# anyway.

OWN = ".postroom"  # what no design has a place for
LARGEST = 1024 * 1024  # bytes of a file
ENDING = ".json"
ASIDE = ".quarantine"
_LOCK = "chipset.lock"
_DEEPEST = 64
_UNFINISHED = re.compile(
    rf"\.[0-9a-f]{{18}}\{files_durable.TEMPORARY}"
)  # as paper calls a file that is not whole yet
_KEY = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PAUSE = 0.002  # seconds between two tries at the lock

Fields = dict[str, Any]


class StateFolder:
    """One state folder. Made when something is first written into it."""

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True, busy_timeout: float = 30.0) -> None:
        self.path = os.path.realpath(path)
        self._durable = durable
        self._busy_timeout = busy_timeout
        self._held = threading.local()

    # -- the lock

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One at a time, over all processes and threads. Whoever holds it may take it again."""
        depth = getattr(self._held, "depth", 0)
        key = self._take() if depth == 0 else None
        self._held.depth = depth + 1
        try:
            yield
        finally:
            self._held.depth = depth
            if key is not None:
                os.close(key)  # the lock goes with it, also when the process dies

    def _take(self) -> int:
        folder = self._made((OWN,))
        key: int = self._writing(lambda: os.open(f"{folder}/{_LOCK}", _KEY, 0o600))
        until = time.monotonic() + self._busy_timeout
        try:
            while True:
                try:
                    fcntl.flock(key, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise StoreBusy(f"{folder}/{_LOCK} is held by another process") from None
                    time.sleep(_PAUSE)
                else:
                    return key
        except BaseException:
            os.close(key)
            raise

    # -- reading

    def read(self, *where: str) -> Fields | None:
        """What a file holds; None if there is none. Unreadable says what is wrong with it."""
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

    def names(self, *where: str, ending: str = ENDING) -> list[str]:
        """The names of the files in a folder, sorted; nothing of what is hidden."""
        try:
            self.check_folders(*where)
            found = os.listdir("/".join((self.path, *where)))
        except (FileNotFoundError, NotADirectoryError, Unreadable):
            return []
        return sorted(name for name in found if name.endswith(ending) and not name.startswith("."))

    def exists(self, *where: str) -> bool:
        return os.path.lexists("/".join((self.path, *where)))

    # -- writing

    def write(self, fields: Fields, *where: str) -> None:
        """This file says this from now on."""
        folder = self._made(where[:-1])
        self._writing(lambda: files_durable.replace(folder, where[-1], dump(fields), durable=self._durable))
        self._sync(folder)

    def add(self, fields: Fields, *where: str) -> None:
        """A file that was not there; FileExistsError if it is."""
        folder = self._made(where[:-1])
        self._writing(lambda: files_durable.write_new(folder, where[-1], dump(fields), durable=self._durable))
        self._sync(folder)

    def remove(self, *where: str) -> None:
        with suppress(FileNotFoundError):
            self._writing(lambda: os.unlink("/".join((self.path, *where))))

    def set_aside(self, *where: str) -> str:
        """A file that cannot be read makes room, and is kept: where it is now."""
        folder = self._made((*where[:-1], ASIDE))
        name = f"{where[-1]}.{os.urandom(4).hex()}"
        self._writing(lambda: files_durable.rename_new("/".join((self.path, *where)), f"{folder}/{name}"))
        self._sync(folder)
        return f"{folder}/{name}"

    # -- names

    def spelling(self, agent: str, *where: str, ending: str = "") -> str:
        """How an agent's file or folder is called: its name, or the one that is there and counts as the same."""
        wanted = folder_of(agent) + ending
        if self.exists(*where, wanted):
            return wanted
        for name in self.names(*where, ending=ending):
            if fold(name) == fold(wanted):
                return name
        return wanted

    # -- below

    def _made(self, folders: tuple[str, ...]) -> str:
        """The path of a folder that is there; what a killed process did not finish in it is cleared away."""
        path = "/".join((self.path, *folders))
        self._writing(lambda: self._make(folders))
        try:
            self.check_folders(*folders)
        except Unreadable as wrong:
            raise StoreFailing(f"{path}: {wrong.message}") from None
        if getattr(self._held, "depth", 0):  # all of us write under the lock: nobody is at it now
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
        """Each on the way is a folder and no link to one; FileNotFoundError if it is not there."""
        path = self.path
        for name in folders:
            path = f"{path}/{name}"
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise Unreadable("it is no folder of ours, or a link")

    def _sync(self, folder: str) -> None:
        if self._durable:
            self._writing(lambda: sync_path(folder))

    @staticmethod
    def _writing(do: Callable[[], Any]) -> Any:
        """What goes wrong with the disk is told in the house's words."""
        try:
            return do()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as failed:
            raise StoreFailing(f"the disk did not take it: {failed.strerror}") from None


def folder_of(agent: str) -> str:
    """An agent's name as that of a file or folder: never a path, whatever was said."""
    return check_agent(agent, "agent").replace("/", "_")


def dump(fields: Fields) -> bytes:
    """Sorted keys, one to a line: a diff in git is small."""
    return json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        if _UNFINISHED.fullmatch(name):
            with suppress(OSError):
                os.unlink(f"{folder}/{name}")
