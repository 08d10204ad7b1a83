"""The hooks of agent hosts: one command for each host, which acts by the event that the host names.

Whatever goes wrong with the mail, the session goes on: one line on standard error, and the exit code is 0. What
was shown is marked after it was printed; where nobody can see what is printed, nothing is shown.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import Invalid, Missing, StoreFailing
from ..hosts import claude, codex, gemini, processes
from ..hosts.heard import text_of
from ..hosts.moments import END, PROMPT, START, STOP
from ..hosts.naming import plain, settle
from ..hosts.sessions import BUSY, IDLE, OVER, Session, all_sessions, find, is_plain, sweep
from ..hosts.telling import Told, said, tell
from ..hosts.unkept import Unkept, unkept
from ..hosts.waiter import end_waiter
from ..model.codec import encode
from ..model.names import HUMAN, check_agent, fold
from ..whereabouts import sessions_folder, variable
from .answers import Answer
from .hook import is_unheard, tell_error
from .host_quick import dialect_of, host_of, is_going_on, is_typed, name_said
from .host_sources import place_of_mail, program_of, source_of
from .notes import note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .answers import Screen
    from .context import Context

_HOSTS = frozenset({claude.PROGRAM, codex.PROGRAM, gemini.PROGRAM})
CLEAR, COMPACT = "clear", "compact"  # how a session starts anew, and why one ends


def run_hook_host(context: Context) -> Iterator[Answer]:
    context.session = None  # the host says whose it is; another of its sessions, or one above it, has another room
    try:
        if "wait" in context.values:
            from .host_waiter import wait  # noqa: PLC0415 - most hooks wait for nothing

            yield from wait(context)
        else:
            yield from Visit(context).answers()
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        tell_error(error)


class Visit:
    """One call of a host."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heard = context.call.heard
        self._host, self._dialect = host_of(context.name), dialect_of(context.name)
        self._event = text_of(self._heard, "hook_event_name")
        self._moment = self._dialect.EVENTS[self._event]
        self._began_by = text_of(self._heard, "source") if self._moment == START else ""
        self._was_idle = True
        self._was_held = False
        self._id = text_of(self._heard, "session_id")
        if not is_plain(self._id):
            raise Invalid(f"{self._id[:80]!a} is no session's id", field="session_id")

    def answers(self) -> Iterator[Answer]:
        """What is said to the host; what that showed is marked afterwards."""
        session = find(self._host, self._id)
        if self._moment == END:
            self._end(session)
            return
        name = name_said(self._context.values, self._dialect)
        is_new = self._moment == START or session is None or not is_going_on(session, name)
        session = self._begin(session, name) if is_new or session is None else session
        source = source_of(self._context, session, is_new=is_new)
        is_noted_anew = is_new and not isinstance(session, Unkept)
        if is_noted_anew or self._moment == START:
            source.register(variable("INBOX_AGENT_NAME"), self._dialect.PROGRAM)
        with session.in_turn():
            self._catch_up(session)
            told = self._told(source, session) if not is_unheard() else Told()
            yield Answer(self._context.name, self._data(session, told), self._view)
            if told.holds:
                self._mark(session, told)  # it counts even if the room is busy, and our time up before it is free
            source.show(told.shown, self._host, self._event)
            if is_noted_anew and self._dialect.WAKES:
                source.begin_rings(self._host, told.total - told.shown)
            if not told.holds:
                self._mark(session, told)

    # -- a session begins and ends

    def _begin(self, before: Session | None, name: str) -> Session:
        """Busy at first: nobody is woken for what it is about to be told."""
        self._was_idle = before is None or before.turn == IDLE
        host = processes.host()
        room, socket, folder = place_of_mail(self._context)
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
        project = (variable(self._dialect.PROJECT) if self._dialect.PROJECT else "") or self._folder()
        if before is not None and _is_elsewhere(before):
            end_waiter(before)  # it would wake the other process
        human = self._context.settings.human if room else HUMAN
        alone, cleared = self._dialect.ALONE, self._began_by == CLEAR
        others = () if name else self._others(session, plain(project, human))
        try:
            settle(session, project, alone=alone, cleared=cleared, human=human, others=others)
        except OSError as refused:
            return self._unkept(session, name or (before.agent if before else ""), refused)
        sweep(self._context.screen.now.timestamp())
        return session

    def _unkept(self, session: Session, agent: str, refused: OSError) -> Session:
        """Its mail is shown, if somebody says whose that is."""
        what = f"the session cannot be noted down in {sessions_folder()}: {refused.strerror}"
        if not agent:
            raise StoreFailing(what, hint="with --as its mail is shown all the same")
        note(self._context.call, f"{what}; its mail is shown, but no turn is held up and nobody wakes it")
        return unkept(session, check_agent(agent, "--as"))

    def _others(self, session: Session, name: str) -> tuple[str, ...]:
        """Is that of the folder the name of an agent that another program runs? Its mail is not for a session that
        nobody called so.
        """
        program = program_of(self._context, session, name)
        return (fold(name),) if program and program not in _HOSTS else ()

    def _folder(self) -> str:
        """Where the host works; as it says, where that is gone."""
        try:
            return os.getcwd()  # noqa: PTH109 - as text
        except FileNotFoundError:
            return text_of(self._heard, "cwd")

    def _end(self, session: Session | None) -> None:
        """Its agent has left, unless it goes on in another session."""
        if session is None or session.turn == OVER or _is_elsewhere(session):
            return
        session.mark(OVER)
        end_waiter(session)
        others = [one for one in all_sessions() if not one.is_same(session) and one.is_live]
        if text_of(self._heard, "reason") == CLEAR or any(
            fold(one.agent) == fold(session.agent) for one in others
        ):
            return
        with suppress(Missing):  # it never came as far as to register
            source_of(self._context, session).leave()

    # -- what it is told

    def _catch_up(self, session: Session) -> None:
        """A host that was given our hooks twice calls both at once: did the other one hold up this turn?"""
        found = find(self._host, self._id)
        if found is not None:
            self._was_held, session.holds = found.holds > session.holds, found.holds
            session.heard_at = found.heard_at

    def _told(self, source: Any, session: Session) -> Told:
        budget, now, nonce = self._dialect.BUDGET, self._context.screen.now, os.urandom(8).hex()
        return tell(self._moment, source, session, budget, began_by=self._began_by, now=now, nonce=nonce)

    def _data(self, session: Session, told: Told) -> dict[str, Any]:
        about = {"mailbox": session.agent, "event": self._event}
        output = said(self._dialect, self._event, told)
        return {**about, "count": told.shown, "total": told.total, "text": told.text, "output": output}

    @staticmethod
    def _view(_screen: Screen, data: Mapping[str, Any]) -> str:
        return "" if data["output"] is None else encode(data["output"]).decode() + "\n"

    def _mark(self, session: Session, told: Told) -> None:
        holds = session.holds + 1 if told.holds else None
        is_typed_now = self._moment == PROMPT and is_typed(self._dialect, self._heard)
        session.mark(IDLE if self._is_idle(told) else BUSY, 0 if is_typed_now else holds)

    def _is_idle(self, told: Told) -> bool:
        """Is nothing under way now? A context may be compacted in the middle of a turn, and between two."""
        if self._moment == START:
            return self._was_idle or self._began_by != COMPACT
        return self._moment == STOP and not (told.holds or self._was_held)


def _is_elsewhere(session: Session) -> bool:
    """Does it go on in another process than that of this host? One session may be resumed beside itself."""
    host = processes.host()
    return host is not None and (host.pid, host.began) != (session.pid, session.began) and session.is_live
