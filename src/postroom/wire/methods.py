"""All methods by name.

Our own verbs are called by their bare name inside the house and on the socket, and as `mail/<verb>` in JSON-RPC.
The actions of agent-inbox are the socket's, and come first there; `mail/*` of its conversations are JSON-RPC's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..service.authorize import authorize
from . import inbox, mail_table, ring_verbs, room_verbs, session_verbs, verbs, work_verbs
from .problems import NoSuchMethod
from .table import taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..room import Room
    from .table import Method

PREFIX = "mail/"
VERBS: dict[str, Method] = {
    row.name: row for row in (*verbs.ROWS, *work_verbs.ROWS, *ring_verbs.ROWS, *room_verbs.ROWS)
}
ACTIONS: dict[str, Method] = {row.name: row for row in inbox.ROWS}
MAIL: dict[str, Method] = {row.name: row for row in mail_table.MAIL}
SESSION: dict[str, Method] = {row.name: row for row in session_verbs.ROWS}  # the caller's connection itself
ALIASES = {"mail/inbox": "check"}  # what agent-inbox's README calls it


def named(name: str) -> Method:
    """Inside the house: a verb of ours, or what agent-inbox calls one."""
    found = VERBS.get(name) or ACTIONS.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name}", field="method")
    return found


def for_action(name: str) -> Method:
    """On the socket."""
    found = ACTIONS.get(name) or VERBS.get(name) or SESSION.get(name)
    if found is None:
        known = (*ACTIONS, *VERBS, *SESSION)
        raise NoSuchMethod(f"Unknown action: {name}", field="action", hint=_meant(name, known))
    return found


def for_rpc(name: str) -> Method:
    """In JSON-RPC."""
    bare = ALIASES.get(name) or name.removeprefix(PREFIX)
    found = MAIL.get(name) or SESSION.get(name) or (VERBS.get(bare) if bare != name else None)
    if found is None:
        known = (*MAIL, *SESSION, *(PREFIX + verb for verb in VERBS))
        raise NoSuchMethod(f"Method not found: {name}", field="method", hint=_meant(name, known))
    return found


def _meant(name: str, known: tuple[str, ...]) -> str | None:
    """What was probably meant. What all names begin with makes none alike."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    verbs = {one.rpartition("/")[2]: one for one in reversed(known)}  # the first of a name counts
    found = get_close_matches(name[:100].rpartition("/")[2], verbs, 1, 0.7)
    return f"did you mean {verbs[found[0]]}?" if found else None


def call(room: Room, name: str, said: Mapping[str, Any]) -> Any:
    """Carry out a method. One that waits only looks."""
    method = named(name)
    given = taken(method, said)
    let_in(room, method, given)
    return method.run(room, given)


def speaker_in(method: Method, said: Mapping[str, Any]) -> str | None:
    """For whom a caller speaks that nothing but its words tells of; None: for nobody. Never more than one: the
    call is carried out as this agent, and so what else it would touch is refused.
    """
    if method.speaker is not None:
        return method.speaker(said)
    return None if method.whose is None else said.get(method.whose)


def let_in(room: Room, method: Method, said: Mapping[str, Any]) -> None:
    """May this caller do this, whatever else is wrong with it? The verbs ask again, for what they touch."""
    principal, whose = room._principal, method.whose
    named = said.get(whose) if whose is not None else None
    authorize(principal, method.action, named or principal.agent)
