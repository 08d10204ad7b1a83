"""Give an agent another name: all records under the old one follow, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import Invalid, NameTaken, UnknownAgent
from ..model.agent import MAP, Card, Guard, guard_value
from ..model.codec import convert, to_plain
from ..model.names import POSTMASTER, check_agent, fold
from ..model.record import (
    ACTIVE_TASKS,
    ALERT_LOG,
    AUDIT,
    AUDITED,
    BEAT,
    CARD,
    CLOSED_ESCALATION,
    CONVERSATION,
    DUE,
    EVERYONE,
    FORMER,
    GUARD,
    MEMBER,
    OPEN_ESCALATION,
    RECIPIENT_ALERTS,
    SCOPE,
    SEALED,
    SESSION,
    TASKS,
    TOKEN,
    WEBHOOK,
    alert_log_key,
    session_key,
)
from ..model.task import Due, Escalation, Standing
from ..model.thread import ConversationRecord
from ..store.protocol import Rename
from .authorize import authorize
from .core import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


Wanted = dict[tuple[str, str], Any]  # (kind, key) of a record -> its new value; None: no record


def rename(core: Core, caller: Principal, old: str, new: str) -> None:
    """Give an agent another name. Mail to the old name still arrives, and no other agent can take it.

    Card, guard, memberships, heartbeat, tasks, escalations, seats, tokens, webhooks, alerts and all mail follow.
    """
    authorize(caller, "rename")
    before, after = check_agent(old, "old"), check_agent(new, "new")
    for name, field in ((before, "old"), (after, "new")):
        if fold(name) == POSTMASTER:
            raise Invalid(f"{POSTMASTER!r} is reserved for Postroom's own notices", field=field)
    if before == after:
        raise Invalid(f"{before!r} is the name it has", field="new")

    def plan() -> Sequence[Write]:
        _check_names(core, before, after)
        return [Rename(before, after), *_records(core, before, after)]

    core.store.commit(plan)


def _check_names(core: Core, old: str, new: str) -> None:
    held = core.store.spelling(old)
    if held is None:
        raise UnknownAgent(f"nobody here is called {old!r}", field="old")
    if held != old:
        raise UnknownAgent(f"{old!r} is called {held!r} here", field="old", hint=f"write {held!r}")
    taken = core.store.spelling(new)
    if taken == new:
        hint = "two mailboxes do not become one: choose another name"
        raise NameTaken(f"{new!r} has a mailbox here already", field="new", hint=hint)
    if taken not in {None, old}:
        raise NameTaken(f"{new!r} is or was the name of {taken!r}", field="new")


def _records(core: Core, old: str, new: str) -> list[Write]:
    """Return the writes that move all records to the new name and leave `moved_to` under every former one."""
    wanted: Wanted = {(FORMER, old): None}
    for kind in (BEAT, GUARD, ACTIVE_TASKS):
        wanted |= {(kind, old): None, (kind, new): _value(core, kind, old)}
    wanted |= _card(core, old, new)
    former = [name for name in (*_value(core, FORMER, old, ()), old) if name != new]
    wanted |= {(GUARD, name): guard_value(Guard(moved_to=new)) for name in former}
    wanted |= {(FORMER, new): former}
    wanted |= _tasks(core, old, new) | _sessions(core, old, new) | _rings(core, old, new)
    for kind in (OPEN_ESCALATION, CLOSED_ESCALATION):
        wanted |= {(kind, r.key): _escalation(r.value, old, new) for r in core.store.records(kind)}
    wanted |= {(CONVERSATION, r.key): _talk(r.value, old, new) for r in core.store.records(CONVERSATION)}
    wanted |= _tokens(core, old, new) | _children(core, old, new)
    wanted |= {(WEBHOOK, r.key): _webhook(r.value, old, new) for r in core.store.records(WEBHOOK)}
    wanted |= {(SCOPE, r.key): _scope(r.value, old, new) for r in core.store.records(SCOPE)}
    found = {at: find_record(core, *at) for at in wanted}
    changed = [at for at, held in found.items() if wanted[at] != (None if held is None else held.value)]
    return [put_record(*at, wanted[at], found[at], durable=not _is_unannounced(at[0])) for at in changed]


def _is_unannounced(kind: str) -> bool:
    """Tell whether changes of this kind of record are not announced."""
    return kind in {ALERT_LOG, RECIPIENT_ALERTS, AUDITED} or kind.startswith(AUDIT)


def _value(core: Core, kind: str, key: str, default: Any = None) -> Any:
    held = find_record(core, kind, key)
    return default if held is None else held.value


def _card(core: Core, old: str, new: str) -> Wanted:
    """Move the card and its memberships; an agent named swarm/agent changes its swarm with its name."""
    value = _value(core, CARD, old)
    if value is None:
        return {}
    card = convert(value, Card)
    left, joined = ([name.partition("/")[0]] if "/" in name else [] for name in (old, new))
    scopes = tuple(dict.fromkeys((*joined, *(scope for scope in card.scopes if scope not in left))))
    renamed = replace(card, id=new, scopes=scopes)
    members: Wanted = {(MEMBER + scope, old): None for scope in card.scopes}
    members |= {(MEMBER + scope, new): True for scope in scopes}
    return {(CARD, old): None, (CARD, new): to_plain(renamed)} | members


def _children(core: Core, old: str, new: str) -> Wanted:
    """Update the cards of the agent's children."""
    wanted: Wanted = {}
    for record in core.store.records(CARD):
        says = record.value.get("extra", {}).get(MAP)
        if record.key != old and isinstance(says, dict) and says.get("parent") == old:
            wanted[CARD, record.key] = record.value | {
                "extra": record.value["extra"] | {MAP: says | {"parent": new}}
            }
    return wanted


def _scope(value: Any, old: str, new: str) -> Any:
    return value | {"created_by": new} if value.get("created_by") == old else value


def _webhook(value: Any, old: str, new: str) -> Any:
    return value | {"mailbox": new} if value["mailbox"] == old else value


def _tokens(core: Core, old: str, new: str) -> Wanted:
    """Move its tokens, and its place among the sealed agents."""
    wanted: Wanted = {}
    for record in core.store.records(TOKEN):
        if record.value.get("agent") == old:
            wanted[TOKEN, record.key] = record.value | {"agent": new}
    closed = _value(core, SEALED, EVERYONE, [])
    if old in closed:
        wanted[SEALED, EVERYONE] = sorted(_renamed(name, old, new) for name in closed)
    return wanted


def _tasks(core: Core, old: str, new: str) -> Wanted:
    """Move its entries in the task index; update those of the other parties and the deadlines."""
    wanted: Wanted = {}
    for record in core.store.records(TASKS + old):
        letter, task = record.key, convert(record.value, Standing)
        renamed = replace(task, giver=_renamed(task.giver, old, new), receiver=_renamed(task.receiver, old, new))
        wanted[TASKS + old, letter] = None
        wanted |= {(TASKS + party, letter): to_plain(renamed) for party in _parties(core, task, old, new)}
        due = _value(core, DUE, letter) if task.giver == old else None
        if due is not None:
            wanted[DUE, letter] = to_plain(replace(convert(due, Due), giver=new))
    return wanted


def _parties(core: Core, task: Standing, old: str, new: str) -> set[str]:
    """Return the agents with an entry: a receiver that never saw an unsent task has none."""
    others = {task.giver, task.receiver} - {old}
    return {new} | {name for name in others if find_record(core, TASKS + name, task.letter)}


def _sessions(core: Core, old: str, new: str) -> Wanted:
    """Move the sessions that wait for an answer to the agent."""
    wanted: Wanted = {}
    for record in core.store.records(SESSION):
        giver, _, letter = record.key.partition(" ")
        if giver == old:
            wanted |= {(SESSION, record.key): None, (SESSION, session_key(new, letter)): record.value}
    return wanted


def _rings(core: Core, old: str, new: str) -> Wanted:
    """Move the log of alerts and the state of the alerters, so that no alert is repeated."""
    wanted: Wanted = {}
    for kind in (AUDITED, RECIPIENT_ALERTS):
        wanted |= {(kind, old): None, (kind, new): _value(core, kind, old)}
    for record in core.store.records(AUDIT + old):
        wanted |= {(AUDIT + old, record.key): None, (AUDIT + new, record.key): record.value}
    for record in core.store.records(ALERT_LOG):
        mailbox, _, way = record.key.partition(" ")
        if mailbox == old:
            wanted |= {(ALERT_LOG, record.key): None, (ALERT_LOG, alert_log_key(new, way)): record.value}
    return wanted


def _escalation(value: Any, old: str, new: str) -> Any:
    """Return an escalation with the new name in place of the old one."""
    one = convert(value, Escalation)
    rungs = tuple(_renamed(name, old, new) for name in one.rungs)
    closed_by = None if one.closed_by is None else _renamed(one.closed_by, old, new)
    return to_plain(replace(one, asker=_renamed(one.asker, old, new), rungs=rungs, closed_by=closed_by))


def _talk(value: Any, old: str, new: str) -> Any:
    """Return a conversation with the new name in place of the old one."""
    one = convert(value, ConversationRecord)
    seats = tuple(replace(seat, agent=_renamed(seat.agent, old, new)) for seat in one.seats)
    strands = tuple(replace(strand, created_by=_renamed(strand.created_by, old, new)) for strand in one.strands)
    return to_plain(replace(one, seats=seats, strands=strands, created_by=_renamed(one.created_by, old, new)))


def _renamed(name: str, old: str, new: str) -> str:
    return new if name == old else name
