"""Ids that the house made, shortened: a beginning that only one of them has is shown and understood for the whole.

An id that somebody chose is always said whole: `job-1` must never mean `job-10` because the one is gone.
"""

from __future__ import annotations

from ..errors import Invalid, PostroomError
from ..whereabouts import variable

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from typing import Any

    from .context import Context

WHOLE = 26  # characters of such an id
LEAST = 4  # of a beginning that is understood
_SHOWN = (10, 12, 14)  # of one that is shown: the first that is enough
_MOST = 20  # candidates that are looked at
_TOLD = 5  # and told
_DIGITS = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_LETTERS = frozenset({"letters", "sent", "dead", "tasks"})  # what options that take a letter's id complete


def complete_ids(context: Context) -> None:
    """Put whole ids in the place of their beginnings, wherever the command takes a letter's id."""
    for option in context.call.command.options if context.call.command else ():
        said: Any = context.get(option.name)
        if option.complete in _LETTERS and said is not None:
            whole = [_whole(context, word) for word in said] if option.many else _whole(context, said)
            context.values[option.name] = whole


def short(context: Context, id: str) -> str:
    """As much of an id as the next command needs."""
    if len(id) != WHOLE or not _DIGITS.issuperset(id) or not _caller(context) or _is_operator(context):
        return id
    return next((id[:length] for length in _SHOWN if _beginning(context, id[:length]) == [id]), id)


def _whole(context: Context, word: str) -> str:
    """The id that is meant. What nothing begins with is left for the command to refuse."""
    if not LEAST <= len(word) < WHOLE or not _DIGITS.issuperset(word) or context.is_new_room:
        return word
    if not _caller(context) and not _is_operator(context):
        return word
    found = _beginning(context, word)
    if word in found or not found:
        return word
    made = [id for id in found if len(id) == WHOLE and _DIGITS.issuperset(id)]
    if len(made) > 1:
        more = ", …" if len(made) > _TOLD else ""
        raise Invalid(f"{word!r} begins several ids", field="ID", hint=", ".join(made[:_TOLD]) + more)
    return made[0] if made else word


def _beginning(context: Context, word: str) -> list[str]:
    from ..service.search import ids_beginning  # noqa: PLC0415 - only for what is shortened

    room = context.room
    mailbox = None if _is_operator(context) else context.mailbox.name
    try:
        return ids_beginning(room._office, room._principal, mailbox, word, _MOST)  # noqa: SLF001 - no verb of its own
    except PostroomError:  # the command itself tells what is wrong
        return []


def _caller(context: Context) -> str:
    return context.get("as") or variable("POSTROOM_AGENT")


def _is_operator(context: Context) -> bool:
    """Does the command show the whole room's mail?"""
    return bool(context.get("everyone")) or (context.name == "trace" and not _caller(context))
