"""What stands at a mailbox's door: whom it takes mail from, whom it does not, or where its owner is now.

A guard is kept only where there is something to say. A plain list is one that only allows: rooms hold those since
their first version.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .card import EVERYONE
from .codec import convert, to_plain


class Guard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is refused at the door, whoever asks."""

    allow: tuple[str, ...] = (EVERYONE,)
    block: tuple[str, ...] = ()  # beats `allow`
    moved_to: str | None = None  # nobody lives here any more: the name its owner has now


OPEN_DOOR = Guard()


def guard_from(value: Any) -> Guard:
    """A guard as it is kept, in either form."""
    return Guard(allow=tuple(value)) if isinstance(value, list) else convert(value, Guard)


def guard_value(guard: Guard) -> Any:
    """The form in which it is kept; None where there is nothing to say."""
    if guard == OPEN_DOOR:
        return None
    return list(guard.allow) if guard == Guard(allow=guard.allow) else to_plain(guard)
