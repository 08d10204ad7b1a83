"""The state folder: JSON files that strangers may read and write too, and one lock among ourselves.

Refuses to know what stands in the files. A file is written whole beside its target, synced, renamed, and the
folder synced, so nobody ever reads half of one. Nothing is followed: a link, or a folder that is one, is refused.
What is decided by looking first is decided under the lock; strangers do not know it, and find whole files anyway.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import PostroomError, StoreBusy, StoreFailing, Unreadable
from ..model.names import check_agent, fold
from ..model.values import read_json
from ..store.files import paper
from ..store.sqlite.ground import make_folder, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWN = ".postroom"  # what no design has a place for
LARGEST = 1024 * 1024  # bytes of a file
ENDING = ".json"
ASIDE = ".quarantine"
_LOCK = "chipset.lock"
_DEEPEST = 64
_UNFINISHED = re.compile(rf"\.[0-9a-f]{{18}}\{paper.TEMPORARY}")  # as paper calls a file that is not whole yet
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
            raw, _ = paper.read("/".join((self.path, *where)), LARGEST)
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
        self._writing(lambda: paper.replace(folder, where[-1], dump(fields), durable=self._durable))
        self._sync(folder)

    def add(self, fields: Fields, *where: str) -> None:
        """A file that was not there; FileExistsError if it is."""
        folder = self._made(where[:-1])
        self._writing(lambda: paper.write_new(folder, where[-1], dump(fields), durable=self._durable))
        self._sync(folder)

    def remove(self, *where: str) -> None:
        with suppress(FileNotFoundError):
            self._writing(lambda: os.unlink("/".join((self.path, *where))))

    def set_aside(self, *where: str) -> str:
        """A file that cannot be read makes room, and is kept: where it is now."""
        folder = self._made((*where[:-1], ASIDE))
        name = f"{where[-1]}.{os.urandom(4).hex()}"
        self._writing(lambda: paper.rename_new("/".join((self.path, *where)), f"{folder}/{name}"))
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
            paper.make_folder(path)

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
