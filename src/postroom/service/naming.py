"""Names: what somebody is called now, what they were called before, and how an agent gets another name.

A note at the old door says where its owner is now. Letters never change: they go on saying the old name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import Invalid, NameTaken, UnknownAgent
from ..model.card import Card
from ..model.codec import convert, to_plain
from ..model.escalation import Escalation
from ..model.guard import Guard, guard_from, guard_value
from ..model.message import Message
from ..model.names import ONE_MAILBOX, check_agent, fold
from ..model.record import BEAT, CARD, CLOSED_ESCALATION, FORMER, GUARD, MEMBER, OPEN_ESCALATION
from ..store.base import Rename, Write
from .authorize import Principal, authorize
from .office import POSTMASTER, Office
from .records import find_record, put_record


def rename(office: Office, caller: Principal, old: str, new: str) -> None:
    """Give an agent another name: card, guard, memberships, signs of life and all mail follow, in one commit.
    Mail to the old name still arrives; nobody else can have it.
    """
    authorize(caller, "rename")
    before, after = check_agent(old, "old"), check_agent(new, "new")
    for name, field in ((before, "old"), (after, "new")):
        if fold(name) == POSTMASTER:
            raise Invalid(f"{POSTMASTER!r} is the house's own name", field=field)
    if before == after:
        raise Invalid(f"{before!r} is the name it has", field="new")

    def plan() -> Sequence[Write]:
        _check_names(office, before, after)
        return [Rename(before, after), *_records(office, before, after)]

    office.store.commit(plan)


def names_of(office: Office, mailbox: str) -> tuple[str, ...]:
    """What a mailbox is called, and all it was called before."""
    held = find_record(office, FORMER, mailbox)
    former = () if held is None else held.value
    return (mailbox, *former, *(name for name, one in ONE_MAILBOX.items() if one == mailbox))


def resident(office: Office, name: str) -> str:
    """Who is meant by a name today."""
    held = find_record(office, GUARD, name)
    return (guard_from(held.value).moved_to if held else None) or name


def is_sent_by(office: Office, message: Message, mailbox: str) -> bool:
    return message.sender == mailbox or message.sender in names_of(office, mailbox)


def seen_by(office: Office, message: Message, mailbox: str | None) -> Message:
    """The letter as `mailbox` may see it, whatever it was called when the letter was sent."""
    shown = message.seen_by(mailbox)
    if shown is message or mailbox is None:
        return shown
    names = names_of(office, mailbox)
    if message.sender in names:
        return message
    return replace(
        message, recipients=tuple(r for r in message.recipients if r.kind != "bcc" or r.address in names)
    )


def moved(name: str, now: str, field: str) -> UnknownAgent:
    """The error for whoever uses a name that its owner has given up."""
    return UnknownAgent(f"{name!r} is now {now!r}", field=field, hint=f"write {now!r}")


def check_not_moved(office: Office, name: str, field: str) -> None:
    """Refuse whoever acts under a name that its owner has given up."""
    now = resident(office, name)
    if now != name:
        raise moved(name, now, field)


def _check_names(office: Office, old: str, new: str) -> None:
    held = office.store.spelling(old)
    if held is None:
        raise UnknownAgent(f"nobody here is called {old!r}", field="old")
    if held != old:
        raise UnknownAgent(f"{old!r} is called {held!r} here", field="old", hint=f"write {held!r}")
    taken = office.store.spelling(new)
    if taken not in {None, old}:
        raise NameTaken(f"{new!r} is or was the name of {taken!r}", field="new")


def _records(office: Office, old: str, new: str) -> list[Write]:
    """All that is kept under the old name, under the new one; and a note at every door it had."""
    wanted: dict[tuple[str, str], Any] = {(FORMER, old): None}
    for kind in (BEAT, GUARD):
        wanted |= {(kind, old): None, (kind, new): _value(office, kind, old)}
    wanted |= _card(office, old, new)
    former = [name for name in (*_value(office, FORMER, old, ()), old) if name != new]
    wanted |= {(GUARD, name): guard_value(Guard(moved_to=new)) for name in former}
    wanted |= {(FORMER, new): former}
    for kind in (OPEN_ESCALATION, CLOSED_ESCALATION):
        wanted |= {(kind, r.key): _renamed(r.value, old, new) for r in office.store.records(kind)}
    found = {at: find_record(office, *at) for at in wanted}
    changed = [at for at, held in found.items() if wanted[at] != (None if held is None else held.value)]
    return [put_record(*at, wanted[at], found[at]) for at in changed]


def _value(office: Office, kind: str, key: str, default: Any = None) -> Any:
    held = find_record(office, kind, key)
    return default if held is None else held.value


def _card(office: Office, old: str, new: str) -> dict[tuple[str, str], Any]:
    """The card and its memberships; who is named after a swarm goes with the name."""
    value = _value(office, CARD, old)
    if value is None:
        return {}
    card = convert(value, Card)
    left, joined = ([name.partition("/")[0]] if "/" in name else [] for name in (old, new))
    scopes = tuple(dict.fromkeys((*joined, *(scope for scope in card.scopes if scope not in left))))
    renamed = replace(card, id=new, scopes=scopes)
    members: dict[tuple[str, str], Any] = {(MEMBER + scope, old): None for scope in card.scopes}
    members |= {(MEMBER + scope, new): True for scope in scopes}
    return {(CARD, old): None, (CARD, new): to_plain(renamed)} | members


def _renamed(value: Any, old: str, new: str) -> Any:
    """An escalation in which somebody is called otherwise."""
    one = convert(value, Escalation)
    rungs = tuple(new if name == old else name for name in one.rungs)
    return to_plain(replace(one, asker=new if one.asker == old else one.asker, rungs=rungs))
