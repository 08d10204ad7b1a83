"""The waiter: the one process of a session that waits for mail and wakes the session when it is idle.

A host starts a waiter when a session starts and when a turn ends (Claude Code also with each prompt), and does not
wait for it. A session has one waiter at a time: one that finds the lock taken ends. It wakes the session while it
is idle. During a turn the hooks between tools show new mail; the waiter acts only if no hook ran for two minutes,
as an interrupted turn ends without a hook. A waiter ends after its time, with the session, and with the host.

`core.alerts` decides whether there is something to announce. `queue` wakes a Codex session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from shutil import which
from typing import TYPE_CHECKING

from ..environment import environment, without_host
from ..errors import Busy, PostroomError
from ..own_file import LockFile
from . import sessions
from .sessions import BEAT, BUSY, find, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..model.alert import Rung
    from .sessions import Session
    from .sources import VerbSource


SECONDS = 30.0  # for `codex queue`
_LONGEST_COMPLAINT = 300  # characters of its error output


def queue(session: Session, text: str) -> str:
    """Put a text into the queue of a Codex session; return why that failed, or an empty text.

    Codex takes it after the running turn, or at once. The text is an argument of a program, so every user of the
    machine can see it. `codex queue` succeeds even if no Codex is running, so the host is checked first.
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
            start_new_session=True,  # to end it with its children: the npm package starts another program
        )
    except OSError as broken:
        return f"codex cannot be started: {broken.strerror}"
    with running:
        try:
            result = running.communicate(timeout=SECONDS)[1].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            # The whole group: the npm package of Codex is a script whose child would go on.
            os.killpg(running.pid, signal.SIGKILL)
            return f"codex queue did not end in {SECONDS:g} s"
    why = " ".join(result.split())[-_LONGEST_COMPLAINT:]
    return f"codex queue ended with {running.returncode}: {why}" if running.returncode else ""


def _program(host: int) -> str | None:
    """Return the program of the host itself, or the one on the PATH, which may be older."""
    try:
        running = os.readlink(f"/proc/{host}/exe")
    except OSError:
        running = ""
    is_codex = os.path.basename(running).partition("-")[0] == "codex" and os.access(running, os.X_OK)
    return running if is_codex else which("codex")


# -- waiting

SILENCE = 120.0  # seconds without a hook after which a turn may be over
ARRIVAL = 10.0  # seconds in which the hook that runs beside us records a new session
AGAIN = 5.0  # seconds until the next attempt if the room is busy
PAUSE = 0.05
GRACE = 0.5  # seconds in which a waiter ends after SIGTERM


class Over(Exception):
    """The session has ended, or belongs to another agent or process."""


def wait(
    source: VerbSource,
    session: Session,
    seconds: float,
    ring: Callable[[Rung], bool],
    now: Callable[[], float],
) -> None:
    """Wait for mail and call `ring` for each alert, for at most `seconds` or until `ring` returns True.

    `now` is the wall clock.
    """

    def may_alert() -> bool:
        found = _current(session)
        # A turn that was interrupted ends without a hook, so its state says BUSY for ever: silence ends it, too.
        return found.turn != BUSY or abs(now() - found.heard_at) > SILENCE  # abs: the clock may be set back

    end = time.monotonic() + seconds
    with suppress(Over):
        while (left := end - time.monotonic()) > 0:
            try:
                # In pieces of BEAT seconds: in between we see that the session ended, and say that the agent is
                # still here.
                rung = source.wait_for_alert(session.host, min(left, BEAT), may_alert=may_alert)
            except Busy:  # the mail stays unread; try again later
                rung = None
                time.sleep(min(left, AGAIN))
            if rung is not None and ring(rung):
                return
            _current(session)
            with suppress(PostroomError, OSError):  # the agent is not registered, or the daemon is away
                source.stay()


def _current(session: Session) -> Session:
    """Return the session as it is now. Raise Over if it ended, or belongs to another agent or process."""
    found = find(session.host, session.id)
    expected = (session.agent, session.pid, session.began)
    if found is None or (found.agent, found.pid, found.began) != expected or not found.is_live:
        raise Over
    return found


def arrived(host: str, id: str) -> Session | None:
    """Return the session to wait for, once the hook that runs beside us has recorded it; None if it does not."""
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
    """Take the waiter's lock; yield whether we are the only waiter. The lock ends with this process."""
    lock, me = LockFile(session.waiter_path), sessions.look(os.getpid())
    is_alone = lock.take() is None
    # With the start time, `end_waiter` cannot kill another process that got this number later.
    lock.write(f"{os.getpid()} {me.began if me else ''}\n")
    try:
        yield is_alone
    finally:
        lock.leave()


def end_waiter(session: Session) -> None:
    """End the waiter of a session and wait until it is gone, so that another can take its place."""
    end = time.monotonic() + GRACE
    with suppress(OSError):  # it ended, or its file was swept, meanwhile
        while session.has_waiter and time.monotonic() < end:
            with open(session.waiter_path, encoding="utf-8") as file:
                pid, _, began = file.read(200).strip().partition(" ")
            if pid.isdecimal() and sessions.is_alive(int(pid), began):
                os.kill(int(pid), signal.SIGTERM)
            time.sleep(PAUSE / 5)


def end_with_host(session: Session) -> None:
    """End this process as soon as the session's host ends.

    Without pidfd_open (macOS), the next check of the session notices it.
    """
    from threading import Thread  # noqa: PLC0415 - only needed by waiters

    try:
        host = os.pidfd_open(session.pid)
    except (AttributeError, OSError):
        return
    Thread(target=_end_after, args=(host,), daemon=True).start()


def _end_after(process: int) -> None:
    from select import POLLIN, poll  # noqa: PLC0415 - only needed by waiters

    gone = poll()
    gone.register(process, POLLIN)
    gone.poll()
    # Not sys.exit: this is not the main thread, and the main thread may be asleep in the store for minutes.
    os._exit(0)
