"""What comes from the server becomes mail, once: the same message has the same key, however often it comes.

It goes through the same door as all mail: allow lists, quotas, hops and sizes hold for agents of the server too.
Only agents that are shown there can be reached from there; what is for nobody of them lies in the link's own
mailbox. The protocol has no way to say that a letter was refused here; the log says it.

On the desk's threads: nothing here waits for the network.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import IdTaken, Invalid, PostroomError, UnknownMessage
from ..model.delivery import State
from ..model.message import MAP_NOTE
from ..model.query import Query
from ..wire.map_addresses import Address, read_address
from ..wire.map_messages import once_key
from .translating import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..room import Room
    from ..wire.map_addresses import Role
    from .translating import Incoming

    Members = Callable[[str | Role], list[str]]

log = logging.getLogger("postroom")
LATELY = 20  # letters
_NEEDED = frozenset({"body", "metadata", "extra", "key"})  # everything else is a label


def recipients(room: Room, message: Incoming, shown: Mapping[str, str], members: Members, own: str) -> list[str]:
    """For whom of ours it is. `shown`: names by the ids they have there; `members`: who of them is in a scope, or
    has a role; `own`: the link's own mailbox.
    """
    names = frozenset(shown.values()) - {own}
    address = _address(message)
    found = sorted(names) if address.everyone else [shown.get(one, one) for one in _named(address, members)]
    found = [name for name in found if name in names]
    if not found and message.target in names:
        found = [str(message.target)]
    if not found and message.answers is not None:
        asked = room._office.store.get((message.answers,)).get(message.answers)
        found = [asked.message.sender] if asked is not None and asked.message.sender in names else []
    return list(dict.fromkeys(found)) or [own]


def is_for(message: Incoming, shown: Mapping[str, str]) -> bool:
    """Is it for one of these by name or id? Others' messages are replayed too."""
    names = frozenset(shown.values())
    said = _named(_address(message), lambda _: [])
    return any(one in shown or one in names for one in said) or message.target in names


def _address(message: Incoming) -> Address:
    try:
        return read_address(message.to)
    except Invalid:
        return Address()


def _named(address: Address, members: Members) -> list[str]:
    named = [*address.agents, *(one.agent for one in address.remote if one.agent)]
    groups: list[str | Role] = [*address.scopes, *address.roles, *named]
    meant = [name for group in groups for name in members(group)]
    return [*named, *meant]  # the SDK's server says only the name of a scope, as if it were an agent's


def only_asker(room: Room, mailbox: str) -> tuple[str | None, str | None]:
    """Who of ours wrote to somebody there, if lately it was one alone; and its last letter, if all were of one
    thread.
    """
    lately = Query(mailbox=mailbox, states=(State.DONE, State.CLAIMED), order="newest", limit=LATELY)
    letters = [found.message for found in room._office.store.find(lately)]
    if len({letter.sender for letter in letters}) != 1:
        return None, None
    return letters[0].sender, letters[0].id if len({letter.thread for letter in letters}) == 1 else None


def take(room: Room, message: Incoming, sender: str, to: list[str]) -> bool:
    """False: it was refused, for good. A temporary error is raised: it is to be tried again."""
    agents = [{"agent": name} for name in to]
    is_one = len(agents) == 1 and not isinstance(message.to, list)
    noted = {"to": agents[0] if is_one else agents, ORIGIN: message.origin}
    key = once_key(message.key, to)  # one letter to several comes as several messages of one id
    fields = message.fields | {"extra": {MAP_NOTE: message.fields["extra"][MAP_NOTE] | noted}, "key": key}
    try:
        _send(room, sender, to, fields, message.answers)
    except IdTaken:  # it came before, and is kept as it was then
        return True
    except PostroomError as refused:
        if refused.temporary:
            raise
        log.warning("a message from %s for %s was refused: %s", sender, ", ".join(to), refused)
        return False
    return True


def _send(room: Room, sender: str, to: list[str], fields: dict[str, Any], answers: str | None) -> None:
    """With all that it says; without what it answers, where its sender never had that letter; at last without the
    labels that mean something there and cannot be followed here. They stay in its metadata.
    """
    box, bare = room.mailbox(sender), {name: fields[name] for name in fields if name in _NEEDED}
    if answers is not None:
        with suppress(UnknownMessage, Invalid):
            box.send(to, **fields, in_reply_to=answers)
            return
    try:
        box.send(to, **fields)
    except Invalid:
        box.send(to, **bare)
