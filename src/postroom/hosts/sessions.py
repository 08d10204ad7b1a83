"""The sessions of hosts: a small file for each, by which its hooks, its waiter and its tools find one another.

    $XDG_STATE_HOME/postroom/sessions/claude-0b5c….json     mode 0600, in a folder of mode 0700
    {"turn":"idle","holds":0,"host":"claude","id":"0b5c…","agent":"coder","room":"/…/room.db", …}

The first two fields have a fixed width and are written over in place at every hook; the rest is written when a
session starts. When a hook was last heard is the time of the file. A file stays when its session ends, for a
month: a session that is resumed keeps its name.

Reading and marking weigh next to nothing. It refuses to know what a host says, and what is in the mail.
"""

from __future__ import annotations

import os

from ..whereabouts import sessions_folder
from .heard import read_object

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY, IDLE, OVER = "busy", "idle", "over"  # of one length
MOST_HOLDS = 9  # there is room for one digit
BEAT = 300.0  # seconds between two signs of life of a session that waits
KEPT = 30 * 86_400  # seconds for which the file of a session stays that has ended
_HEAD = '{"turn":"%s","holds":%d,'
_TEXTS = ("host", "id", "agent", "room", "socket", "folder", "pid", "began")
_LONGEST = 64 * 1024  # bytes of a file
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class Session:
    """One session of a host."""

    __slots__ = ("agent", "began", "folder", "heard_at", "holds", "host", "id", "pid", "room", "socket", "turn")

    def __init__(
        self,
        *,
        host: str,
        id: str,
        agent: str,
        room: str = "",
        socket: str = "",
        folder: str = "",
        pid: int = 0,
        began: str = "",
        turn: str = IDLE,
        holds: int = 0,
        heard_at: float = 0.0,
    ) -> None:
        self.host = host
        self.id = id
        self.agent = agent  # whose mail it gets
        self.room = room  # where that is: a room's address,
        self.socket = socket  # or a daemon's socket,
        self.folder = folder  # or a folder of inbox files
        self.pid = pid  # of the host
        self.began = began
        self.turn = turn  # busy, idle or over
        self.holds = holds  # how many ends of turns in a row were held up
        self.heard_at = heard_at  # when a hook was last heard, by the wall clock

    @property
    def path(self) -> str:
        return path_of(self.host, self.id)

    @property
    def waiter_path(self) -> str:
        """The file that its one waiter holds locked."""
        return self.path.removesuffix(".json") + ".waiter"

    @property
    def has_waiter(self) -> bool:
        from fcntl import LOCK_NB, LOCK_SH, flock  # noqa: PLC0415 - only for those who would wait

        try:
            file = os.open(self.waiter_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            flock(file, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    @property
    def turn_path(self) -> str:
        """What a hook holds locked while it shows mail. Not the note: a start puts another in its place."""
        return self.path.removesuffix(".json") + ".turn"

    @property
    def is_live(self) -> bool:
        """Does its host still run it, as far as anybody knows?"""
        from .processes import is_alive  # noqa: PLC0415 - most hooks need not ask

        return self.turn != OVER and is_alive(self.pid, self.began)

    def is_same(self, other: Session) -> bool:
        return (self.host, self.id) == (other.host, other.id)

    def mark(self, turn: str, holds: int | None = None) -> None:
        """Note that a hook was heard, and how the session stands."""
        self.turn = turn
        self.holds = self.holds if holds is None else min(holds, MOST_HOLDS)
        file = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(file, (_HEAD % (self.turn, self.holds)).encode(), 0)
        finally:
            os.close(file)

    def in_turn(self) -> InTurn:
        """Tools that were used at once call hooks at once: one shows what is new, and the next finds it shown."""
        return InTurn(self.turn_path)


class InTurn:
    """Whoever is inside is alone with a session's mail. A context, without the weight of `contextlib`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> None:
        from fcntl import LOCK_EX, flock  # noqa: PLC0415 - only where there is something to show

        self._file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        flock(self._file, LOCK_EX)

    def __exit__(self, *how: object) -> None:
        os.close(self._file)


def path_of(host: str, id: str) -> str:
    return os.path.join(sessions_folder(), f"{host}-{id}.json")


def is_plain(id: str) -> bool:
    """Can a session of this id have a file?"""
    return 0 < len(id) <= 128 and _PLAIN.issuperset(id)


def find(host: str, id: str) -> Session | None:
    """A session that was noted; None when none was, or what is there cannot be read."""
    return _read(path_of(host, id)) if is_plain(id) else None


def all_sessions() -> Iterator[Session]:
    """Every session that was noted, whether it is over or not."""
    folder = sessions_folder()
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in sorted(names):
        if name.endswith(".json") and (found := _read(os.path.join(folder, name))):
            yield found


def keep(session: Session) -> None:
    """Note a session down, in place of what was noted of it before."""
    import json  # noqa: PLC0415 - only when a session starts

    texts = json.dumps({name: str(getattr(session, name)) for name in _TEXTS})
    os.makedirs(sessions_folder(), mode=0o700, exist_ok=True)
    aside = f"{session.path}.{os.getpid()}"
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(file, (_HEAD % (session.turn, session.holds) + texts[1:]).encode())
        finally:
            os.close(file)
        os.replace(aside, session.path)
    except OSError:  # the disk is full, say
        os.unlink(aside)
        raise


def sweep(now: float) -> None:
    """Take away what ended long ago."""
    for session in all_sessions():
        if now - session.heard_at > KEPT and not session.is_live:
            for path in (session.path, session.waiter_path, session.turn_path):
                try:  # noqa: SIM105 - light
                    os.unlink(path)
                except OSError:
                    pass


def _read(path: str) -> Session | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            said, heard_at = read_object(os.read(file, _LONGEST)), os.fstat(file).st_mtime
        finally:
            os.close(file)
    except OSError:
        return None
    texts = {name: said[name] for name in _TEXTS if isinstance(said.get(name), str)}
    turn, holds, pid = said.get("turn"), said.get("holds"), texts.pop("pid", "")
    if len(texts) + 1 < len(_TEXTS) or turn not in {BUSY, IDLE, OVER} or not isinstance(holds, int):
        return None
    return Session(**texts, pid=int(pid) if pid.isdecimal() else 0, turn=turn, holds=holds, heard_at=heard_at)
