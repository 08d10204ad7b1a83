"""The hooks of agent hosts: show mail at each event of a session, and wait to wake an idle one.

`agent_inbox_start` and `agent_inbox_prompt` act as the hooks of agent-inbox do. `SessionHook` carries out one call
of Claude Code, Codex or Gemini CLI, and `wait_for_mail` is the waiter that such a host starts beside a session.

Each of them yields the data that the command prints. What was shown is marked as read after it was printed: a
letter is shown twice rather than never. Where nobody can see what is printed, nothing is marked.
"""

from __future__ import annotations

import gc
import os
import sys
import unicodedata
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from ..clock import SystemClock
from ..environment import state_folder, variable, whole_path
from ..errors import Busy, Invalid, Missing, StoreFailing
from ..model.names import HUMAN, ONE_MAILBOX, POSTMASTER, check_agent, fold
from ..own_file import LockFile
from ..policy.limits import people_of
from . import sessions
from .dialects import DIALECTS, END, PROMPT, START, STOP, text_of
from .inbox_files import InboxFolder
from .quick import is_going_on, is_typed
from .sessions import BUSY, IDLE, OVER, Session, all_sessions, find, is_plain, keep, sweep
from .sources import WAITER_PATIENCE, FileSource, SocketSource, daemon_answers, program_of, room_source, source_of
from .text import LONGEST, MOST_HELD_STOPS, SHORT, HookText, host_output, ring, ring_in_public, session_text, shown
from .waiter import alone, arrived, end_waiter, end_with_host, queue
from .waiter import wait as wait_and_ring

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from ..model.alert import Rung
    from .dialects import Dialect
    from .sources import Access, MailSource, VerbSource


AGENT_INBOX_HOST = "claude"  # the host that runs agent-inbox's hooks
AGENT_INBOX_PROGRAM = "claude-code"  # the program as which agent-inbox's hook registers an agent
_HOST_PROGRAMS = frozenset(dialect.program for dialect in DIALECTS.values())
CLEAR, COMPACT = "clear", "compact"  # reasons for which a session starts again; CLEAR is also one for its end


class HookCall(NamedTuple):
    """One call of a hook: what the host passed, and where the options and the environment say that the mail is."""

    host: str  # claude, codex or gemini
    host_input: dict[str, object]
    agent: str  # the agent that an option or variable names; empty for none
    socket: str  # of a daemon; empty for none
    folder: str  # of inbox files; empty unless it is the only place that is named
    now: datetime

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.host]


def is_discarded() -> bool:
    """Return whether standard output is the null device, as it is after the host closed it."""
    return os.fstat(1).st_rdev == os.stat(os.devnull).st_rdev


# -- the hooks that speak as agent-inbox does


def agent_inbox_start(
    access: Access, agent: str, socket: str, folder: str, now: datetime
) -> Iterator[dict[str, Any]]:
    """Register the agent and show how its waiting letters begin; mark nothing."""
    source = _agent_inbox_source(access, agent, socket, folder)
    source.register(variable("INBOX_AGENT_NAME"), AGENT_INBOX_PROGRAM)
    yield _shown_mail(access, source, now, SHORT)


def agent_inbox_prompt(
    access: Access, agent: str, socket: str, folder: str, now: datetime
) -> Iterator[dict[str, Any]]:
    """Show new mail, and mark what was shown as read once it is printed."""
    if is_discarded():
        return
    source = _agent_inbox_source(access, agent, socket, folder)
    data = _shown_mail(access, source, now, LONGEST)
    yield data
    source.show(data["count"], AGENT_INBOX_HOST, "prompt")


def _shown_mail(access: Access, source: MailSource, now: datetime, longest: int) -> dict[str, Any]:
    letters, total = source.waiting()
    text, count = shown(letters, total, now, os.urandom(8).hex(), longest) if letters else ("", 0)
    return {"mailbox": access.me, "count": count, "total": total, "text": text}


def _agent_inbox_source(access: Access, agent: str, socket: str, folder: str) -> MailSource:
    access.choose(agent)
    if folder:
        return FileSource(InboxFolder(folder), agent, people_of(access.settings))
    if socket and daemon_answers(socket, is_room_named=bool(variable("POSTROOM_STORE"))):
        return SocketSource(agent, socket)
    return room_source(access)


# -- the waiter of a session


def wait_for_mail(access: Access, call: HookCall, seconds: float) -> Iterator[dict[str, Any]]:
    """Wait for mail and wake the session as its host allows.

    Yield once where the session is woken by the end of this process; nothing otherwise.
    """
    if call.dialect.entry and variable(call.dialect.entry) != call.dialect.interactive:
        return
    session = arrived(call.host, text_of(call.host_input, "session_id"))
    if session is None:
        return
    with alone(session) as is_alone:
        if not is_alone:
            return
        # Opened once for all the days of the session; each wait uses the same connection.
        alerts = _alerts_of(access, session)
        end_with_host(session)
        alert = _wait(alerts, session, seconds)
        if alert is not None:
            text = ring(alert)
            sys.stderr.write(text)
            sys.stderr.flush()
            yield {
                "mailbox": alert.mailbox,
                "event": "",
                "count": 0,
                "total": alert.unread,
                "text": text,
                "output": None,
            }


def _alerts_of(access: Access, session: Session) -> VerbSource:
    """Return the alerts of a session: the room's own where its address is known, else the daemon's."""
    if session.folder:
        raise Invalid("inbox files have no alerts", field="POSTROOM_STORE", hint="name a room there")
    access.choose(session.agent, session.room)
    gc.freeze()  # a waiter runs for days: what was loaded is never collected
    return room_source(access) if session.room else SocketSource(session.agent, session.socket, WAITER_PATIENCE)


def _wait(alerts: VerbSource, session: Session, seconds: float) -> Rung | None:
    """Return the alert with which this process is to end, where the host is woken by that; else None."""
    last: list[Rung] = []

    def end_with(alert: Rung) -> bool:
        last.append(alert)
        return True

    def put_in_queue(alert: Rung) -> bool:
        # The text is visible to every user of the machine, so it holds no word of the letter.
        if why := queue(session, ring_in_public(alert)):
            with suppress(Busy, OSError):  # an alert is only a hint: the mail stays unread
                alerts.alert_failed(session.host, alert.ids, why)
        return False

    on_alert = end_with if session.host == "claude" else put_in_queue
    wait_and_ring(alerts, session, seconds, on_alert, _now)
    return last[0] if last else None


def _now() -> float:
    return SystemClock().now().wall.timestamp()


# -- the agent name of a new session: that of the folder, or a numbered one if a live session has it

LONGEST_NAME = 60  # characters of a folder's name that are taken
_RESERVED = frozenset({*ONE_MAILBOX, *ONE_MAILBOX.values(), POSTMASTER})


def settle(
    session: Session,
    project: str,
    *,
    alone: bool,
    cleared: bool,
    human: str = HUMAN,
    others: Collection[str] = (),
) -> None:
    """Name the agent of a session, unless it has a name, and record the session.

    alone    a process of this host runs one session at a time, so earlier sessions of the process are over
    cleared  it continues the last session of the process
    human    the name of the person's mailbox, which no session gets
    others   folded names that belong to other agents
    """
    folder = state_folder("sessions")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with LockFile(os.path.join(folder, ".lock")):  # of two sessions that start at once, the second sees the first
        beside = [one for one in all_sessions() if not one.is_same(session)]
        before = [one for one in beside if (one.pid, one.began) == (session.pid, session.began)]
        if not session.agent:
            taken = {fold(one.agent) for one in beside if one.is_live and not (alone and one in before)}
            taken.update(others)
            name = plain(project, human)
            numbered = (f"{name}-{number}" for number in count(2))
            names = chain(_earlier(session, before if cleared else ()), [name], numbered)
            session.agent = next(one for one in names if fold(one) not in taken)
        keep(session)
        for one in before:
            if alone and one.turn != OVER:
                one.mark(OVER)


def plain(folder: str, human: str = HUMAN) -> str:
    """Return an agent name made of the name of a folder; `agent` if nothing of it can be used.

    A reserved name, or the person's own (their home folder often has it), gets `-agent` appended.
    """
    letters = (
        unicodedata.normalize("NFKD", os.path.basename(folder.rstrip("/"))).encode("ascii", "ignore").decode()
    )
    words = "".join(letter if letter.isalnum() else " " for letter in letters.lower()).split()
    name = "-".join(words)[:LONGEST_NAME].rstrip("-")
    return name if name and name not in {*_RESERVED, fold(human)} else f"{name}-agent".lstrip("-")


def _earlier(session: Session, before: Sequence[Session]) -> list[str]:
    """Return the name that the session had before, and that of the session it continues."""
    own = find(session.host, session.id)
    last = max(before, key=lambda one: one.heard_at, default=None)
    return [one.agent for one in (own, last) if one is not None and one.agent]


# -- one call of a host


class SessionHook:
    """One call of a host for one of its sessions: the event decides what happens."""

    def __init__(self, access: Access, call: HookCall) -> None:
        self._access = access
        self._call = call
        self._host, self._dialect = call.host, call.dialect
        self._event = text_of(call.host_input, "hook_event_name")
        self._moment = self._dialect.events[self._event]
        self._began_by = text_of(call.host_input, "source") if self._moment == START else ""
        self._was_idle = True
        self._was_held = False
        self._id = text_of(call.host_input, "session_id")
        if not is_plain(self._id):
            raise Invalid(f"{self._id[:80]!a} is not a session id", field="session_id")

    def run(self) -> Iterator[dict[str, Any]]:
        """Yield what is printed for the host; mark what that showed afterwards."""
        session = find(self._host, self._id)
        if self._moment == END:
            self._end(session)
            return
        name = self._call.agent
        is_new = self._moment == START or session is None or not is_going_on(session, name)
        session = self._begin(session, name) if is_new or session is None else session
        source = source_of(self._access, session, is_new=is_new)
        is_saved_anew = is_new and session.is_kept
        if is_saved_anew or self._moment == START:
            source.register(variable("INBOX_AGENT_NAME"), self._dialect.program)
            # Before the mail is shown: whoever sends now sees the agent as present.
            source.stay()
        # Hooks of tools that run in parallel would show the same mail twice.
        with session.in_turn():
            self._catch_up(session)
            # If nobody reads the output, no mail is shown: it would be marked as read.
            result = self._text(source, session) if not is_discarded() else HookText()
            yield self._data(session, result)
            # A held stop is counted first: it counts even if the room is busy, and the hook's time up before it is
            # free. Any other result is marked only when the room has recorded what was shown.
            if result.holds:
                self._mark(session, result)
            source.show(result.shown, self._host, self._event)
            if is_saved_anew and self._dialect.wakes:
                source.begin_alerts(self._host, result.total - result.shown)
            if not result.holds:
                self._mark(session, result)

    # -- start and end of a session

    def _begin(self, before: Session | None, name: str) -> Session:
        """Save a new session. It is busy at first: nothing wakes it for the mail it is about to be shown."""
        self._was_idle = before is None or before.turn == IDLE
        host = sessions.host()
        room, socket, folder = self._place_of_mail()
        session = Session(
            host=self._host,
            id=self._id,
            agent=check_agent(name, "--as") if name else "",
            pid=host.pid if host else 0,
            began=host.began if host else "",
            turn=BUSY,
            holds=before.holds if before and self._began_by == COMPACT else 0,
            room=room,
            socket=socket,
            folder=folder,
        )
        project = (variable(self._dialect.project) if self._dialect.project else "") or self._folder()
        if before is not None and _is_elsewhere(before):
            end_waiter(before)  # it would wake the other process
        human = self._access.settings.human if room else HUMAN
        alone, cleared = self._dialect.is_alone, self._began_by == CLEAR
        others = () if name else self._others(session, plain(project, human))
        try:
            settle(session, project, alone=alone, cleared=cleared, human=human, others=others)
        except OSError as refused:
            return self._unsaved(session, name or (before.agent if before else ""), refused)
        sweep(self._call.now.timestamp())
        return session

    def _place_of_mail(self) -> tuple[str, str, str]:
        """Return where the mail of a new session is: a room's address, a socket, a folder of inbox files."""
        if self._call.folder:
            return "", "", whole_path(self._call.folder)
        socket, is_room_named = self._call.socket, bool(variable("POSTROOM_STORE"))
        room = self._access.room_address if is_room_named or not socket else ""
        is_served = bool(socket) and daemon_answers(socket, is_room_named=is_room_named)
        return room, whole_path(socket) if is_served else "", ""

    def _unsaved(self, session: Session, agent: str, refused: OSError) -> Session:
        """Return a session that no file keeps: no folder, a full or read-only disk. Its agent must be known.

        Two hooks at once may both show its mail, no end of a turn is blocked, as nothing counts how often, and no
        waiter wakes it.
        """
        what = f"the session cannot be recorded in {state_folder('sessions')}: {refused.strerror}"
        if not agent:
            raise StoreFailing(what, hint="with --as NAME, hooks show the mail of that agent anyway")
        self._access.warn(f"{what}; its mail is shown, but no turn is held up and it is not woken")
        session.agent, session.holds, session.is_kept = check_agent(agent, "--as"), MOST_HELD_STOPS, False
        return session

    def _others(self, session: Session, name: str) -> tuple[str, ...]:
        """Return the name derived from the folder if it is an agent that another program runs.

        That agent's mail is not for a session which nobody gave the name.
        """
        program = program_of(self._access, session, name)
        return (fold(name),) if program and program not in _HOST_PROGRAMS else ()

    def _folder(self) -> str:
        """Return the host's working folder; as the host names it, where that folder is gone."""
        try:
            return os.getcwd()
        except FileNotFoundError:
            return text_of(self._call.host_input, "cwd")

    def _end(self, session: Session | None) -> None:
        """End a session. Its agent leaves the room unless it goes on in another session."""
        if session is None or session.turn == OVER or _is_elsewhere(session):
            return
        session.mark(OVER)
        end_waiter(session)
        if text_of(self._call.host_input, "reason") == CLEAR:
            return  # the next session of this process continues with the same agent
        # One agent may be shown in two windows. It leaves the room with the last of them.
        others = [one for one in all_sessions() if not one.is_same(session) and one.is_live]
        if any(fold(one.agent) == fold(session.agent) for one in others):
            return
        with suppress(Missing):  # it ended before it was registered
            source_of(self._access, session).leave()

    # -- what the session is shown

    def _catch_up(self, session: Session) -> None:
        """Read again how often turns were held up: a host with our hooks installed twice runs both at once."""
        found = find(self._host, self._id)
        if found is not None:
            self._was_held, session.holds = found.holds > session.holds, found.holds
            session.heard_at = found.heard_at

    def _text(self, source: MailSource, session: Session) -> HookText:
        budget, nonce = self._dialect.budget, os.urandom(8).hex()
        return session_text(
            self._moment, source, session, budget, began_by=self._began_by, now=self._call.now, nonce=nonce
        )

    def _data(self, session: Session, result: HookText) -> dict[str, Any]:
        about = {"mailbox": session.agent, "event": self._event}
        output = host_output(self._dialect, self._event, result)
        return {**about, "count": result.shown, "total": result.total, "text": result.text, "output": output}

    def _mark(self, session: Session, result: HookText) -> None:
        holds = session.holds + 1 if result.holds else None
        is_typed_now = self._moment == PROMPT and is_typed(self._dialect.untyped, self._call.host_input)
        session.mark(IDLE if self._is_idle(result) else BUSY, 0 if is_typed_now else holds)

    def _is_idle(self, result: HookText) -> bool:
        """Return whether no turn is under way now. A context may be compacted within a turn and between two."""
        if self._moment == START:
            return self._was_idle or self._began_by != COMPACT
        return self._moment == STOP and not (result.holds or self._was_held)


def _is_elsewhere(session: Session) -> bool:
    """Return whether another process than this host runs the session: one session may be resumed twice at once."""
    host = sessions.host()
    return host is not None and (host.pid, host.began) != (session.pid, session.began) and session.is_live
