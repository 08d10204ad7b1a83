"""Who started us, and whether they still live. A process is known by its number and by when it began: numbers are
used again.

It weighs little: a command that is typed in a host's shell looks here for who it is.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Iterator

_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "tcsh", "zsh"})
_NO_MORE = ("Z", "X")  # it has ended, and whoever started it has not asked how
_MOST = 64  # generations


class Process:
    """One of the living."""

    __slots__ = ("began", "name", "parent", "pid")

    def __init__(self, pid: int, began: str, parent: int, name: str) -> None:
        self.pid = pid
        self.began = began  # in the system's own words; only compared
        self.parent = parent
        self.name = name  # of its program: of a script, that which runs it


def look(pid: int) -> Process | None:
    """A process; None when it has ended."""
    if pid <= 0:
        return None
    return _in_proc(pid) if os.path.exists("/proc/self/stat") else _by_ps(pid)


def is_alive(pid: int, began: str) -> bool:
    found = look(pid)
    return found is not None and found.began == began


def ancestors() -> Iterator[Process]:
    """Who started us, who started them, and so on."""
    pid = os.getppid()
    for _ in range(_MOST):
        found = look(pid)
        if found is None:
            return
        yield found
        pid = found.parent


def host() -> Process | None:
    """The host that runs us as a hook: the nearest ancestor that is no shell, as some hosts start a hook by one.
    Who plays host is it with their shell alone: what is above that has other windows, too.
    """
    if is_played():
        return next(ancestors(), None)
    return next((one for one in ancestors() if one.name.lstrip("-") not in _SHELLS), None)


def is_played() -> bool:
    """Is a person the host? Hosts hear what a hook says on standard error; a person reads it on a terminal."""
    return os.isatty(2)


def _in_proc(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    before, _, after = stat.rpartition(b")")
    words = after.decode("ascii").split()
    if words[0] in _NO_MORE:
        return None
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # another user's
        name = before.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, words[19], int(words[1]), name)


def _by_ps(pid: int) -> Process | None:
    """Where there is no /proc."""
    import subprocess  # noqa: PLC0415 - heavy, and not needed on Linux

    asked = ["/bin/ps", "-o", "lstart=,stat=,ppid=,comm=", "-p", str(pid)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})  # noqa: S603
    words = done.stdout.split()  # such as: Sun Nov 15 22:10:01 2026 S 1 /bin/zsh
    if len(words) < 8 or words[5].startswith(_NO_MORE):
        return None
    return Process(pid, " ".join(words[:5]), int(words[6]), words[7].rpartition("/")[2])
