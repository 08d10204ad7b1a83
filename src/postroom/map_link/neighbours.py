"""Who is on the MAP server, and what we call each of them: `system/name`, within the rules for our names.

The first to hold a name keeps it as long as it is there; a second one of the same name is called by its id until
then. Who restarts before the server knows that its old connection is dead is such a second one for a while.
Whoever is there only by a link of another room is passed over: rooms that are linked to each other would else show
each other their own agents, again and again.

It refuses to know connections and stores.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..model.card import MAP_STATES, Status, Warmth
from ..model.names import fold
from ..wire.map_names import GUEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

LINKED = "map_link"  # in the metadata of a card: it is of an agent that is elsewhere, and we know it by a link
LONGEST = 128
MOST = 10_000  # agents of one server
_NOT_OURS = re.compile(r"[^A-Za-z0-9._-]+")


class Neighbour(Struct, frozen=True, kw_only=True):
    """An agent on the server."""

    id: str  # the server's; another one after each restart of the SDK's server
    mailbox: str  # ours
    title: str  # what it calls itself
    role: str = ""
    state: str = "idle"

    @property
    def is_here(self) -> bool:
        """Can it be sent to?"""
        return _is_here(self.state)

    @property
    def is_away(self) -> bool:
        """Is it known there, and not connected just now? What is sent to it waits."""
        return MAP_STATES.get(self.state) is Warmth.AWAY


def is_here(row: Mapping[str, Any]) -> bool:
    """The same of a row that the server told."""
    return _is_here(str(row.get("state")))


def _is_here(state: str) -> bool:
    """Whoever has stopped comes back under another id."""
    return MAP_STATES.get(state) is not Status.OFFLINE


def clean(text: str, otherwise: str = "") -> str:
    """A name by our rules, as near as can be: a slash becomes a dot, what else is not allowed a dash."""
    name = _NOT_OURS.sub("-", text.replace("/", ".")).lstrip("._-")[:LONGEST].rstrip("-")
    return name or otherwise


def neighbours(
    rows: Iterable[Any], system: str, own: Iterable[str], before: Mapping[str, Neighbour], guests_of: str = ""
) -> dict[str, Neighbour]:
    """By mailbox. `rows`: what `map/agents/list` told; `own`: the ids under which our own agents are there;
    `before`: by mailbox, who was there the last time; `guests_of`: the name by which we brought ours there, also
    those that the server remembers from an earlier visit.
    """
    ours = frozenset(own)
    held = {one.id: one.mailbox for one in before.values()}
    by_id: dict[str, Any] = {}
    for row in rows:
        if _is_sound(row) and row["id"] not in ours and not (guests_of and brought_by(row) == guests_of):
            by_id.setdefault(row["id"], row)
    sound = list(by_id.values())[:MOST]
    sound.sort(key=lambda row: _turn(row, system, held.get(row["id"])))
    found: dict[str, Neighbour] = {}
    taken: set[str] = set()
    for row in sound:
        mailbox = _free_name(row, system, taken, held.get(row["id"]))
        if mailbox is not None:
            taken.add(fold(mailbox))
            found[mailbox] = _neighbour(row, mailbox)
    return found


def _is_sound(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str) and bool(row["id"]) and not _is_elsewhere(row)


def _is_elsewhere(row: Mapping[str, Any]) -> bool:
    metadata = row.get("metadata")
    return isinstance(metadata, dict) and LINKED in metadata


def brought_by(row: Mapping[str, Any]) -> Any:
    """The link that it came by, if by one."""
    metadata = row.get("metadata")
    guest = metadata.get(GUEST) if isinstance(metadata, dict) else None
    return guest.get("of") if isinstance(guest, dict) else None


def _turn(row: Mapping[str, Any], system: str, held: str | None) -> int:
    """Who has the name that it wants chooses first, then who has another, then who is new."""
    if held is None:
        return 2
    return 0 if fold(held) == fold(_wanted(row, system)) else 1


def _free_name(row: Mapping[str, Any], system: str, taken: set[str], held: str | None) -> str | None:
    wanted = _wanted(row, system)
    if held is not None and fold(held) == fold(wanted):
        wanted = held  # as it is spelt here
    choices = (wanted, held, _by_id(row["id"], system))
    return next((mailbox for mailbox in choices if mailbox and fold(mailbox) not in taken), None)


def _wanted(row: Mapping[str, Any], system: str) -> str:
    name = row.get("name")
    cleaned = clean(name) if isinstance(name, str) else ""
    return f"{system}/{cleaned}" if cleaned else ""


def _by_id(id: str, system: str) -> str:
    cleaned = clean(id)
    return f"{system}/{cleaned}" if cleaned else ""


def by_any_name(there: Mapping[str, Neighbour], system: str) -> dict[str, Neighbour]:
    """Also by their ids: that is what some were called for a while, and mail may wait there."""
    by_id = {_by_id(one.id, system): one for one in there.values()}
    return {name: replace(one, mailbox=name) for name, one in by_id.items() if name} | dict(there)


def _neighbour(row: Mapping[str, Any], mailbox: str) -> Neighbour:
    def text(field: str, otherwise: str = "") -> str:
        value = row.get(field)
        return value[:200] if isinstance(value, str) else otherwise

    return Neighbour(
        id=row["id"],
        mailbox=mailbox,
        title=text("name", row["id"][:200]),
        role=text("role"),
        state=text("state", "idle"),
    )


def of_session(
    rows: Sequence[Any], everyone: Collection[str], there: Mapping[str, Neighbour], said: Any
) -> str | None:
    """The mailbox of who spoke, where the server names only its session and `rows` are the agents in that. A name
    that it gave itself counts if it is one of them; else the first is meant. Where these are `everyone`, by their
    ids and with our own, the server knows no sessions.
    """
    ids = [row["id"] for row in rows if _is_sound(row)]
    if set(everyone) <= set(ids):
        return None
    by_id = {one.id: one for one in there.values()}
    speakers = [by_id[id] for id in ids if id in by_id]
    named = [one.mailbox for one in speakers if isinstance(said, str) and said == one.title]
    return next(iter([*named, *(one.mailbox for one in speakers)]), None)
