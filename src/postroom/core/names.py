"""Current and former names of an agent that an earlier version renamed; agents keep their names now.

The guard record of a former name holds `moved_to`, the current one. Letters never change: they keep the name under
which they were sent.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import UnknownAgent
from ..model.agent import guard_from
from ..model.names import ONE_MAILBOX
from ..model.record import FORMER, GUARD
from .core import find_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.message import Message
    from .core import Core


def mailbox_named(core: Core, name: str) -> str | None:
    """Return the mailbox with this name or former name, however it is spelt; None if there is none."""
    found = core.store.names(name)
    return found[0].mailbox if found else None


def is_known(core: Core, name: str) -> bool:
    """Return whether the agent with this name or former name registered, wrote, or read or claimed mail."""
    return any(found.known for found in core.store.names(name))


def names_of(core: Core, mailbox: str) -> tuple[str, ...]:
    """Return the current name of a mailbox and all its former ones."""
    held = find_record(core, FORMER, mailbox)
    former = () if held is None else held.value
    return (mailbox, *former, *(name for name, one in ONE_MAILBOX.items() if one == mailbox))


def current_name(core: Core, name: str) -> str:
    """Return what the agent with this name, current or former, is called today."""
    held = find_record(core, GUARD, name)
    return (guard_from(held.value).moved_to if held else None) or name


def name_resolver(core: Core) -> Callable[[str], str]:
    """Return a function like `current_name` that looks up each name once."""
    return cache(partial(current_name, core))


def is_sent_by(core: Core, message: Message, mailbox: str) -> bool:
    """Return whether this mailbox sent the message, under its current name or a former one."""
    return message.sender == mailbox or message.sender in names_of(core, mailbox)


def seen_by(core: Core, message: Message, mailbox: str | None) -> Message:
    """Return the letter as `mailbox` may see it: bcc recipients are visible to the sender and to themselves."""
    shown = message.seen_by(mailbox)
    if shown is message or mailbox is None:
        return shown
    names = names_of(core, mailbox)
    if message.sender in names:
        return message
    return replace(
        message, recipients=tuple(r for r in message.recipients if r.kind != "bcc" or r.address in names)
    )


def renamed_error(name: str, now: str, field: str) -> UnknownAgent:
    """Return the error for the use of a former name."""
    return UnknownAgent(f"{name!r} is now {now!r}", field=field, hint=f"write {now!r}")


def check_not_moved(core: Core, name: str, field: str) -> None:
    """Raise UnknownAgent if this is the former name of an agent."""
    now = current_name(core, name)
    if now != name:
        raise renamed_error(name, now, field)
