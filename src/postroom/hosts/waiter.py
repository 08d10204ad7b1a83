"""Codex takes messages for a session from outside: `codex queue` puts one into the queue of a thread, and it is
taken up after the turn that is under way, or at once.

It says that all is well even where no Codex is there to take it. So whether the host lives is looked at first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from shutil import which
from typing import TYPE_CHECKING, Protocol

from ..environment import environment, without_host
from ..errors import Busy, Missing
from . import sessions
from .sessions import BEAT, BUSY, find, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..model.alert import Rung
    from .sessions import Session


SECONDS = 30.0
_LONGEST_COMPLAINT = 300


def queue(session: Session, text: str) -> str:
    """Put a text into the session's queue: one that every user of the machine may see, for it takes it as an
    argument. Gives why it did not get there; empty when it did.
    """
    if not is_alive(session.pid, session.began):
        return "the host of the session has ended"
    program = _program(session.pid)
    if program is None:
        return "codex is not on the PATH"
    words = [program, "queue", "--thread", session.id, "--message", text]
    try:
        running = subprocess.Popen(  # noqa: S603 - Codex itself
            words,
            env=without_host(environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # it ends with all that it started: one from npm starts another
        )
    except OSError as broken:
        return f"codex cannot be started: {broken.strerror}"
    with running:
        try:
            result = running.communicate(timeout=SECONDS)[1].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return f"codex queue did not end in {SECONDS:g} s"
    why = " ".join(result.split())[-_LONGEST_COMPLAINT:]
    return f"codex queue ended with {running.returncode}: {why}" if running.returncode else ""


def _program(host: int) -> str | None:
    """The program of the host itself, where the system tells: another one on the PATH may be older."""
    try:
        running = os.readlink(f"/proc/{host}/exe")
    except OSError:
        running = ""
    is_codex = os.path.basename(running).partition("-")[0] == "codex" and os.access(running, os.X_OK)
    return running if is_codex else which("codex")


# The one process of a session that waits for mail, and rings.
#
# A host starts it when a session starts and when a turn ends, Claude Code with each prompt, too, and does not
# wait
# for it. There is one at a time: who finds the session's lock taken ends. It rings while the session is idle.
# When a turn is under way, the hooks between tools show what comes, so it rings only if none of them was heard
# for
# two minutes: a turn that was interrupted ends without a word. It ends in time, with the session, and with its
# host.
#
# Decides nothing about mail: whether there is something to ring for is the service's to say.

SILENCE = 120.0  # seconds without a hook, after which a turn may well be over
ARRIVAL = 10.0  # seconds in which a session that starts is noted down by the hook beside us
AGAIN = 5.0  # seconds until somebody who holds the room may be done
PAUSE = 0.05
GRACE = 0.5  # seconds in which a waiter ends that is told to


class Over(Exception):
    """There is nobody to wait for any more."""


class Bell(Protocol):
    """Of a mailbox, what a waiter needs."""

    def wait_to_ring(self, way: str, timeout: float, *, may_ring: Callable[[], bool]) -> Rung | None: ...
    def heartbeat(self, *, poll_interval: float) -> object: ...


def wait(
    mailbox: Bell,
    session: Session,
    seconds: float,
    ring: Callable[[Rung], bool],
    now: Callable[[], float],
) -> None:
    """Wait and ring, for so many seconds at most, or until `ring` says that this was the last one. `now` is the
    wall clock.
    """

    def may_ring() -> bool:
        found = _still(session)
        return found.turn != BUSY or abs(now() - found.heard_at) > SILENCE  # clocks may be set back

    end = time.monotonic() + seconds
    with suppress(Over):
        while (left := end - time.monotonic()) > 0:
            try:
                rung = mailbox.wait_to_ring(session.host, min(left, BEAT), may_ring=may_ring)
            except Busy:  # the mail waits, and so do we
                rung = None
                time.sleep(min(left, AGAIN))
            if rung is not None and ring(rung):
                return
            _still(session)
            with suppress(Missing, Busy):  # nobody registered it
                mailbox.heartbeat(poll_interval=BEAT)


def _still(session: Session) -> Session:
    """The session as it is now. It may be over, be another agent's, or go on in another process."""
    found = find(session.host, session.id)
    whose = (session.agent, session.pid, session.began)
    if found is None or (found.agent, found.pid, found.began) != whose or not found.is_live:
        raise Over
    return found


def arrived(host: str, id: str) -> Session | None:
    """The session for which we are to wait, once the hook beside us has noted it down; None when it does not."""
    end = time.monotonic() + ARRIVAL
    ours = sessions.host()
    while time.monotonic() < end:
        found = find(host, id)
        if found is not None and found.is_live and (ours is None or found.pid == ours.pid):
            return found
        time.sleep(PAUSE)
    return None


@contextmanager
def alone(session: Session) -> Iterator[bool]:
    """Are we its only waiter? The lock ends with this process, whatever ends it."""
    file = os.open(session.waiter_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        me = sessions.look(os.getpid())
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {me.began if me else ''}\n".encode(), 0)
        yield True
    finally:
        os.close(file)


def end_waiter(session: Session) -> None:
    """End its waiter, if there is one, and see that it is gone: another may take its place at once."""
    try:
        file = os.open(session.waiter_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    end = time.monotonic() + GRACE
    try:
        while not _is_free(file) and time.monotonic() < end:
            pid, _, began = os.pread(file, 200, 0).decode("utf-8", "replace").strip().partition(" ")
            if pid.isdecimal() and sessions.is_alive(int(pid), began):
                os.kill(int(pid), signal.SIGTERM)
            time.sleep(PAUSE / 5)
    finally:
        os.close(file)


def _is_free(file: int) -> bool:
    try:
        flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end_with_host(session: Session) -> None:
    """From now on, this process ends in the moment in which the session's host does. It costs nothing to wait for
    that; where the system cannot tell, the next look at the session finds out.
    """
    from threading import Thread  # noqa: PLC0415 - only for those who wait

    try:
        host = os.pidfd_open(session.pid)
    except (AttributeError, OSError):
        return
    Thread(target=_end_after, args=(host,), daemon=True).start()


def _end_after(process: int) -> None:
    from select import POLLIN, poll  # noqa: PLC0415 - only for those who wait

    gone = poll()
    gone.register(process, POLLIN)
    gone.poll()
    os._exit(0)
