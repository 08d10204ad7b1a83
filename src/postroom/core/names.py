"""Names: what somebody is called now, and what they were called before (`renaming` gives another name).

A note at the old door says where its owner is now. Letters never change: they go on saying the old name.
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


def names_of(core: Core, mailbox: str) -> tuple[str, ...]:
    """What a mailbox is called, and all it was called before."""
    held = find_record(core, FORMER, mailbox)
    former = () if held is None else held.value
    return (mailbox, *former, *(name for name, one in ONE_MAILBOX.items() if one == mailbox))


def resident(core: Core, name: str) -> str:
    """Who is meant by a name today."""
    held = find_record(core, GUARD, name)
    return (guard_from(held.value).moved_to if held else None) or name


def residents(core: Core) -> Callable[[str], str]:
    """The same, for who asks for many: each name is looked up once."""
    return cache(partial(resident, core))


def is_sent_by(core: Core, message: Message, mailbox: str) -> bool:
    return message.sender == mailbox or message.sender in names_of(core, mailbox)


def seen_by(core: Core, message: Message, mailbox: str | None) -> Message:
    """The letter as `mailbox` may see it, whatever it was called when the letter was sent."""
    shown = message.seen_by(mailbox)
    if shown is message or mailbox is None:
        return shown
    names = names_of(core, mailbox)
    if message.sender in names:
        return message
    return replace(
        message, recipients=tuple(r for r in message.recipients if r.kind != "bcc" or r.address in names)
    )


def moved(name: str, now: str, field: str) -> UnknownAgent:
    """The error for whoever uses a name that its owner has given up."""
    return UnknownAgent(f"{name!r} is now {now!r}", field=field, hint=f"write {now!r}")


def check_not_moved(core: Core, name: str, field: str) -> None:
    """Refuse whoever acts under a name that its owner has given up."""
    now = resident(core, name)
    if now != name:
        raise moved(name, now, field)
