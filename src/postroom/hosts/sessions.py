"""The sessions of agent hosts: a small file for each, by which hooks, waiter and tools find one another.

    $XDG_STATE_HOME/postroom/sessions/claude-0b5c….json     mode 0600, in a folder of mode 0700
    {"turn":"idle","holds":0,"host":"claude","id":"0b5c…","agent":"coder","room":"/…/room.db", …}

The first two fields have a fixed width and are written over in place at every hook; the rest is written when a
session starts. When a hook last ran is the time of the file. A file stays for a month when its session ends: a
session that is resumed keeps its name.

A host calls hooks between any two steps and waits for them, so this module imports little.
"""

from __future__ import annotations

import os

from .. import own_file
from ..environment import first_variable, state_folder
from ..own_file import LockFile, lock_holder
from .dialects import read_file

# -- processes
#
# A process is identified by its number and its start time: numbers are reused.

_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "tcsh", "zsh"})
_ENDED = ("Z", "X")  # states of a process that has ended and whose parent has not waited for it
_MOST = 64  # generations


class Process:
    """A running process."""

    __slots__ = ("began", "name", "parent", "pid")

    def __init__(self, pid: int, began: str, parent: int, name: str) -> None:
        self.pid = pid
        self.began = began  # start time as the system writes it; only compared
        self.parent = parent
        self.name = name  # of its program; for a script, of its interpreter


def look(pid: int) -> Process | None:
    """Return a process, or None if it has ended."""
    if pid <= 0:
        return None
    return _in_proc(pid) if os.path.exists("/proc/self/stat") else _by_ps(pid)


def is_alive(pid: int, began: str) -> bool:
    found = look(pid)
    return found is not None and found.began == began


def ancestors() -> list[Process]:
    """Return the process that started us, the one that started that, and so on."""
    found: list[Process] = []
    one = look(os.getppid())
    while one is not None and len(found) < _MOST:
        found.append(one)
        one = look(one.parent)
    return found


def host() -> Process | None:
    """Return the host that runs us as a hook: the nearest ancestor that is no shell, as some hosts use a shell.

    If a person runs the hook by hand, the host is their shell: the programs above it run other windows, too.
    """
    # A person at a terminal: the nearest ancestor is the shell, and the session lives as long as it.
    if is_played():
        return next(iter(ancestors()), None)
    return next((one for one in ancestors() if one.name.lstrip("-") not in _SHELLS), None)


def is_played() -> bool:
    """Return whether a person runs the hook by hand: hosts capture standard error, a person has a terminal."""
    return os.isatty(2)


def _in_proc(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and spaces: the last bracket ends it.
    before, _, after = stat.rpartition(b")")
    words = after.decode("ascii").split()
    if words[0] in _ENDED:
        return None
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # the process of another user
        name = before.partition(b"(")[2].decode("utf-8", "replace")
    # Word 19 is the start time in clock ticks: with it, a number that was given out again is another process.
    return Process(pid, words[19], int(words[1]), name)


def _by_ps(pid: int) -> Process | None:
    """Return a process where there is no /proc, such as on macOS."""
    import subprocess  # noqa: PLC0415 - heavy, and not needed on Linux

    command = ["/bin/ps", "-o", "lstart=,stat=,ppid=,comm=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})  # noqa: S603
    words = done.stdout.split()  # such as: Sun Nov 15 22:10:01 2026 S 1 /bin/zsh
    if len(words) < 8 or words[5].startswith(_ENDED):
        return None
    return Process(pid, " ".join(words[:5]), int(words[6]), words[7].rpartition("/")[2])


# -- sessions

BUSY, IDLE, OVER = "busy", "idle", "over"  # of equal length: they are overwritten in place
MOST_HOLDS = 9  # the file has room for one digit
BEAT = 300.0  # seconds between two heartbeats of a waiting session
KEPT = 30 * 86_400  # seconds for which the file of an ended session stays
_HEAD = '{"turn":"%s","holds":%d,'
_TEXTS = ("host", "id", "agent", "room", "socket", "folder", "pid", "began")
_LONGEST = 64 * 1024  # bytes of a file
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class Session:
    """One session of a host."""

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
        self.agent = agent  # the agent whose mail it shows
        self.room = room  # where the mail is: the address of a room,
        self.socket = socket  # or the socket of a server,
        self.folder = folder  # or a folder of inbox files
        self.pid = pid  # of the host
        self.began = began
        self.turn = turn  # busy, idle or over
        self.holds = holds  # how many ends of turns in a row were blocked
        self.heard_at = heard_at  # when a hook last ran, by the wall clock
        self.is_kept = True  # whether a file holds it; one without a file exists for one hook only

    @property
    def path(self) -> str:
        return path_of(self.host, self.id)

    @property
    def waiter_path(self) -> str:
        """The file that its one waiter holds locked."""
        return self.path.removesuffix(".json") + ".waiter"

    @property
    def has_waiter(self) -> bool:
        return lock_holder(self.waiter_path) is not None

    @property
    def turn_path(self) -> str:
        """The file that a hook locks while it shows mail. The session file itself is replaced at each start."""
        return self.path.removesuffix(".json") + ".turn"

    @property
    def is_live(self) -> bool:
        """True unless the session has ended, or its host process has."""
        return self.turn != OVER and is_alive(self.pid, self.began)

    def is_same(self, other: Session) -> bool:
        return (self.host, self.id) == (other.host, other.id)

    def mark(self, turn: str, holds: int | None = None) -> None:
        """Record that a hook ran, and the state of the session."""
        self.turn = turn
        self.holds = self.holds if holds is None else min(holds, MOST_HOLDS)
        if not self.is_kept:
            return
        # Never created here: a file that was swept away meanwhile must not come back half written.
        file = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # In place, by one write: all states have four letters, so the head always has the same length.
            os.pwrite(file, (_HEAD % (self.turn, self.holds)).encode(), 0)
        finally:
            os.close(file)

    def in_turn(self) -> LockFile:
        """Return the lock of the session's mail.

        Tools used in parallel run hooks in parallel: only the first shows new mail.
        """
        return LockFile(self.turn_path if self.is_kept else "")


def path_of(host: str, id: str) -> str:
    return os.path.join(state_folder("sessions"), f"{host}-{id}.json")


def is_plain(id: str) -> bool:
    """Return whether a session id can be part of a file name."""
    return 0 < len(id) <= 128 and _PLAIN.issuperset(id)


def find(host: str, id: str) -> Session | None:
    """Return a recorded session, or None if there is none or its file cannot be read."""
    return _read(path_of(host, id)) if is_plain(id) else None


def all_sessions() -> list[Session]:
    """Return all recorded sessions, ended ones included."""
    folder = state_folder("sessions")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = [_read(os.path.join(folder, name)) for name in names if name.endswith(".json")]
    return [session for session in found if session is not None]


def keep(session: Session) -> None:
    """Write the file of a session, replacing any other."""
    import json  # noqa: PLC0415 - only when a session starts

    texts = json.dumps({name: str(getattr(session, name)) for name in _TEXTS})
    os.makedirs(state_folder("sessions"), mode=0o700, exist_ok=True)
    own_file.write(session.path, None, _HEAD % (session.turn, session.holds) + texts[1:], 0o600)


def sweep(now: float) -> None:
    """Delete the files of sessions that ended long ago."""
    for session in all_sessions():
        if now - session.heard_at > KEPT and not session.is_live:
            for path in (session.path, session.waiter_path, session.turn_path):
                try:
                    os.unlink(path)
                except OSError:
                    pass


def _read(path: str) -> Session | None:
    try:
        value, heard_at = read_file(path, _LONGEST)
    except OSError:
        return None
    texts = {name: text for name in _TEXTS if isinstance(text := value.get(name), str)}
    turn, holds, pid = value.get("turn"), value.get("holds"), texts.pop("pid", "")
    if len(texts) + 1 < len(_TEXTS) or not isinstance(turn, str) or turn not in {BUSY, IDLE, OVER}:
        return None
    if not isinstance(holds, int):
        return None
    return Session(**texts, pid=int(pid) if pid.isdecimal() else 0, turn=turn, holds=holds, heard_at=heard_at)


# Variables in which hosts pass the session id to their children. They may be inherited from an outer host, so they
# only select among the sessions of one process.
_ID_VARIABLES = ("CODEX_THREAD_ID", "CLAUDE_CODE_SESSION_ID", "GEMINI_SESSION_ID")


def session_around_us() -> Session | None:
    """Return the session of the nearest host that started us, or None if there is none or it is ambiguous."""
    running = [one for one in all_sessions() if one.turn != OVER]
    if not running:
        return None
    for process in ancestors():
        # With the start time: a process number alone may by now be another program's.
        if found := [one for one in running if (one.pid, one.began) == (process.pid, process.began)]:
            return _one_of(found)
    return None


def _one_of(found: list[Session]) -> Session | None:
    """Return the session that is meant: a Codex server runs many sessions in one process."""
    id = first_variable(*_ID_VARIABLES)
    named = next((one for one in found if one.id == id), None)
    return named or (found[0] if len({(one.agent, one.room) for one in found}) == 1 else None)
