"""The first look of a host's hook: is there surely nothing to say? Then the session is marked, and that is all.

A host calls between any two steps and waits, and mostly there is nothing. What is unusual is left to `hosts`.
"""

from __future__ import annotations

from ..hosts.heard import HOST, hear, text_of
from ..hosts.moments import BETWEEN, PROMPT, START, STOP
from ..hosts.sessions import BUSY, IDLE, OVER, find
from ..whereabouts import variable
from .hook_quick import (
    agent_of,
    end_in_time,
    folder_has_nothing,
    go_where_the_host_is,
    socket_has_nothing,
)
from .main import end

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..hosts.sessions import Session
    from .parse import Call


def quick_host(call: Call) -> str | None:
    """What to print when that is certain: nothing. None: run the command."""
    said = call.heard = hear(HOST)
    dialect, event = dialect_of(call.name), text_of(said, "hook_event_name")
    moment, is_waiter = dialect.EVENTS.get(event), "wait" in call.values
    if not event or (moment is None and not is_waiter):
        _tell_ignored(event)
        return ""  # nothing to us
    if is_waiter:
        return "" if _is_waited_for(call.name, said, moment) else None
    end_in_time()
    go_where_the_host_is(text_of(said, "cwd"))
    if said.get("agent_id"):
        return ""  # it is a helper's that works for the session, and the mail is not its own
    if moment not in {BETWEEN, PROMPT, STOP} or not call.values.keys() <= {"as", "room"}:
        return None
    session = find(host_of(call.name), text_of(said, "session_id"))
    is_ours = session is not None and is_going_on(session, name_said(call.values, dialect))
    if session is None or not is_ours or not _has_nothing(session, moment):
        return None
    holds = 0 if moment == PROMPT and is_typed(dialect, said) else None
    return "" if _is_marked(session, IDLE if moment == STOP else BUSY, holds) else None


def _is_waited_for(command: str, said: Mapping[str, Any], moment: str | None) -> bool:
    """Has the session a waiter already? One that starts may have that of an earlier life, which just ends."""
    session = find(host_of(command), text_of(said, "session_id"))
    return session is not None and moment != START and session.has_waiter


def _is_marked(session: Session, turn: str, holds: int | None) -> bool:
    try:
        session.mark(turn, holds)
    except OSError:  # whoever comes next tells
        return False
    return True


def _tell_ignored(event: str) -> None:
    """Say on standard error why nothing is shown. A host has more events than we need, and hears nothing of those;
    a person at a terminal would wonder. Input without an event is a mistake, whoever reads of it.
    """
    from ..hosts.processes import is_played  # noqa: PLC0415 - most hooks are for something

    if not event:
        end("postroom: no mail is shown: standard input held no JSON object with a hook_event_name\n", 0)
    elif is_played():
        end(f"postroom: nothing is done at the event {event[:80]!a}; docs/hosts.md says how to play host\n", 0)


def host_of(command: str) -> str:
    return command.removeprefix("hook ")


def dialect_of(command: str) -> Any:
    """The module that knows how this host speaks."""
    name = host_of(command)
    return __import__(f"{__package__.rpartition('.')[0]}.hosts.{name}", fromlist=[name])  # importlib weighs more


def name_said(values: Mapping[str, Any], dialect: Any) -> str:
    """Who the session's agent is, if anybody said so."""
    return agent_of(values) or (variable(dialect.AGENT) if dialect.AGENT else "")


def is_typed(dialect: Any, said: Mapping[str, Any]) -> bool:
    """Did somebody say something to the session? What wakes it comes as a prompt, too."""
    return not text_of(said, "prompt").startswith(dialect.UNTYPED)


def is_going_on(session: Session, name: str) -> bool:
    """Is it the session that was begun, with the same agent, if anybody says which?"""
    return session.turn != OVER and name in {"", session.agent}


def _has_nothing(session: Session, moment: str) -> bool:
    from .glance import FILES, is_plain_name, room_has_nothing  # noqa: PLC0415 - loaded already

    if not is_plain_name(session.agent):
        return False
    if session.socket:
        return socket_has_nothing(session.socket, session.agent)
    if session.folder:
        return folder_has_nothing(session.folder, session.agent)
    if not session.room.startswith(("/", FILES)) or not room_has_nothing(session.room, session.agent):
        return False
    if not session.room.startswith(FILES):
        return True
    from .chipset_quick import has_nothing, state_of  # noqa: PLC0415 - only for rooms of files

    state = state_of(session.room)
    return not state or has_nothing(state, session.agent, session.heard_at, only_new=moment == BETWEEN)
