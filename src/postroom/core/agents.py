"""Guards at the doors of mailboxes: allow lists, and names whose mail is refused.

They are asked inside the commit of each letter (`sending`). A guard is there only where somebody set one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import IdTaken, IllegalMove, Invalid, Missing, NameTaken, NotAllowed, TooLarge, UnknownAgent
from ..model import delivery
from ..model.agent import EVERYONE, OPEN_DOOR, Agent, Beat, Card, ScopeCard, Warmth, guard_from, guard_value
from ..model.codec import convert, encode, to_plain
from ..model.delivery import State
from ..model.message import same_name
from ..model.names import POSTMASTER, check_agent, check_party, check_scope, fold, meant
from ..model.query import Query
from ..model.record import BEAT, CARD, GUARD, MEMBER, SCOPE
from ..model.values import check_label, check_line, check_object, check_text
from ..policy.routing import is_routable, presence
from ..store.protocol import Move
from . import names as core_names
from . import task_index
from .authorize import authorize
from .core import find_record, put_record
from .validation import check_count, check_seconds, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..model.agent import Guard
    from ..model.query import Moment
    from ..model.record import Record
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


MOST = 10_000  # names blocked by one mailbox


def block(core: Core, caller: Principal, mailbox: str, name: str) -> list[str]:
    """Refuse mail from this name from now on. Gives all names that are refused."""
    authorize(caller, "block", mailbox)
    blocked = meant(check_party(name, "name"), core.limits.human)
    if fold(blocked) == POSTMASTER:
        raise Invalid("the notices of the house cannot be refused", field="name")
    if same_name(blocked, mailbox):
        raise Invalid("nobody can refuse their own mail", field="name")

    def add(names: tuple[str, ...]) -> tuple[str, ...]:
        if len(names) >= MOST:
            raise TooLarge(f"{len(names)} names are blocked, the limit is {MOST}", field="name")
        return names if any(same_name(blocked, held) for held in names) else (*names, blocked)

    return _change(core, mailbox, add)


def unblock(core: Core, caller: Principal, mailbox: str, name: str) -> list[str]:
    """Take mail from this agent again, whatever it was called when it was blocked, if the allow list does. Gives
    all names that are still refused.
    """
    authorize(caller, "block", mailbox)
    freed = meant(check_party(name, "name"), core.limits.human)

    def remove(names: tuple[str, ...]) -> tuple[str, ...]:
        known = {fold(one) for one in (freed, *core_names.names_of(core, core_names.resident(core, freed)))}
        return tuple(held for held in names if fold(held) not in known)

    return _change(core, mailbox, remove)


def blocked(core: Core, caller: Principal, mailbox: str) -> list[str]:
    """The names whose mail is refused here, in order."""
    authorize(caller, "block", mailbox)
    core_names.check_not_moved(core, mailbox, "mailbox")
    return sorted(_guard(find_record(core, GUARD, mailbox)).block)


def allow_only(core: Core, name: str, card: Card) -> list[Write]:
    """The guard a card asks for; who is blocked stays so. Part of a plan."""
    held = find_record(core, GUARD, name)
    allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
    return _written(name, held, replace(_guard(held), allow=allowed))


def _change(core: Core, mailbox: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> list[str]:
    after: tuple[str, ...] = ()

    def plan() -> Sequence[Write]:
        nonlocal after
        core_names.check_not_moved(core, mailbox, "mailbox")
        held = find_record(core, GUARD, mailbox)
        guard = _guard(held)
        after = change(guard.block)
        return _written(mailbox, held, replace(guard, block=after))

    core.store.commit(plan)
    return sorted(after)


def _guard(held: Record | None) -> Guard:
    return OPEN_DOOR if held is None else guard_from(held.value)


def _written(name: str, held: Record | None, guard: Guard) -> list[Write]:
    return [] if guard == _guard(held) else [put_record(GUARD, name, guard_value(guard), held)]


# Who is here, what they can do, how they are. Many processes register and beat at once; nothing is torn.

MOST_REQUEUED = 10_000  # letters, when somebody comes back; the leases of others run out


def register(core: Core, caller: Principal, name: str, /, **value: Any) -> Agent:
    """Write an agent's card and its first sign of life. The same agent may come back as often as it likes;
    a live name is not given to another principal, unless a token proves whose it is. Who had left finds what it
    had claimed in its inbox again: whoever held it is gone.
    """
    authorize(caller, "register", check_agent(name, "id"))
    moment = core.now()
    card = replace(check_card(core, name, moment, value), principal=caller.name)

    def plan() -> Sequence[Write]:
        core_names.check_not_moved(core, name, "id")
        held = find_record(core, CARD, name)
        if held is not None:
            _check_taken(core, convert(held.value, Card), moment)
        return [
            put_record(CARD, name, to_plain(card), held),
            *memberships(core, name, card, held),
            *allow_only(core, name, card),
            *_requeued(core, name),
            put_record(BEAT, name, to_plain(first_beat(moment)), find_record(core, BEAT, name), durable=False),
        ]

    def _check_taken(core: Core, held: Card, moment: Moment) -> None:
        alive = is_routable(presence(_last_beat(core, name), moment, core.limits))
        if alive and held.principal != caller.name and caller.token is None:
            raise NameTaken(f"{name!r} is held by another live agent", field="id")

    core.store.commit(plan)
    return agent(core, caller, name)


def rewrite(core: Core, caller: Principal, name: str, change: Callable[[Card], Card]) -> Card:
    """Change a card and nothing else: whose it is, and how its agent does, stays as it was."""
    authorize(caller, "register", check_agent(name, "agent_id"))
    after: list[Card] = []

    def plan() -> Sequence[Write]:
        held = find_record(core, CARD, name)
        if held is None:
            core_names.check_not_moved(core, name, "agent_id")
            raise UnknownAgent(f"{name!r} is not registered", field="agent_id", hint="register it first")
        card = convert(held.value, Card)
        after[:] = [_checked_change(core, card, change(card))]
        if after[0] == card:
            return []
        return [put_record(CARD, name, to_plain(after[0]), held), *memberships(core, name, after[0], held)]

    core.store.commit(plan)
    return after[0]


def _checked_change(core: Core, before: Card, after: Card) -> Card:
    for field in ("metadata", "extra"):
        check_object(getattr(after, field), field, core.limits.max_depth)
    if len(encode(to_plain(after))) > len(encode(to_plain(before))):  # one of older days may be made smaller
        check_size(core, after, "card")
    return after


def heartbeat(
    core: Core,
    caller: Principal,
    name: str,
    *,
    current_tasks: Sequence[str] | None = None,
    poll_interval: float | None = None,
    active: bool = False,
    leaving: bool = False,
    dormant: bool = False,
) -> Agent:
    """A sign of life. What is not said stays as it was. Who leaves `dormant` is kept until it comes back: it is
    offline and never expires.
    """
    authorize(caller, "heartbeat", name)
    moment = core.now()
    changed: dict[str, Any] = {"left": leaving or dormant, "dormant": dormant}
    if current_tasks is not None:
        changed["current_tasks"] = check_tasks(current_tasks)
        changed["says"] = ""  # its tasks say it
    if poll_interval is not None:
        changed["poll_interval"] = check_seconds(poll_interval, "poll_interval", above=0, most=86_400)
    if active:
        changed["active_at"] = moment.wall

    def plan() -> Sequence[Write]:
        if find_record(core, CARD, name) is None:
            core_names.check_not_moved(core, name, "id")
            raise UnknownAgent(f"{name!r} is not registered", field="id", hint="register it first")
        if dormant:
            _check_warm(core, name, moment)
        beat = replace(_beat(core, name, moment), **changed)
        return [put_record(BEAT, name, to_plain(beat), find_record(core, BEAT, name), durable=dormant)]

    core.store.commit(plan)
    return agent(core, caller, name)


def heartbeats(
    core: Core,
    caller: Principal,
    names: Sequence[str],
    *,
    poll_interval: float | None = None,
    leaving: bool = False,
) -> None:
    """Signs of life of many, or their goodbyes, in one commit. Who is not registered, and who left before and
    leaves again, is passed over.
    """
    moment = core.now()
    changed: dict[str, Any] = {"at": moment.wall, "steady": moment.steady, "boot": moment.boot, "left": leaving}
    if poll_interval is not None:
        changed["poll_interval"] = poll_interval
    for name in names:
        authorize(caller, "heartbeat", name)

    def plan() -> Sequence[Write]:
        cards = set(core.store.keys(CARD))
        beats = {record.key: record for record in core.store.records(BEAT)} if names else {}
        writes: list[Write] = []
        for name in names:
            held = beats.get(name)
            last = first_beat(moment) if held is None else convert(held.value, Beat)
            if name in cards and not (leaving and last.left):
                beat = replace(last, dormant=False, **changed)
                writes.append(put_record(BEAT, name, to_plain(beat), held, durable=False))
        return writes

    if names:
        core.store.commit(plan)


def agent(core: Core, caller: Principal, name: str) -> Agent:
    authorize(caller, "agents")
    record = find_record(core, CARD, name)
    if record is None:
        core_names.check_not_moved(core, name, "id")
        raise UnknownAgent(f"{name!r} is not registered", field="id")
    return agent_of(core, record, core.now())


def agents(
    core: Core,
    caller: Principal,
    *,
    scope: str | None = None,
    capability: str | None = None,
    gone: bool = False,
) -> list[Agent]:
    """Everyone registered, by name. Those gone are kept, and shown when asked for; mail for them waits."""
    authorize(caller, "agents")
    moment = core.now()
    cards = [convert(record.value, Card) for record in core.store.records(CARD)]
    beats = {record.key: convert(record.value, Beat) for record in core.store.records(BEAT)}
    busy = task_index.all_active(core)
    everyone = [_agent(core, card, beats.get(card.id), busy, moment) for card in cards]
    return [
        agent
        for agent in everyone
        if (scope is None or scope in agent.card.scopes)
        and (capability is None or capability in agent.card.capabilities)
        and (gone or agent.presence.warmth is not Warmth.GONE)
    ]


def agent_of(core: Core, record: Record, moment: Moment) -> Agent:
    """The agent whose card this record is."""
    busy = {record.key: task_index.active_tasks(core, record.key)}
    return _agent(core, convert(record.value, Card), _last_beat(core, record.key), busy, moment)


def _agent(
    core: Core, card: Card, beat: Beat | None, busy: Mapping[str, tuple[str, ...]], moment: Moment
) -> Agent:
    active = busy.get(card.id, ())
    if beat is not None and beat.current_tasks:
        value = tuple(task for task in beat.current_tasks if not _is_over(core, card.id, task))
        beat = replace(beat, current_tasks=value)
    return Agent(card=card, presence=presence(beat, moment, core.limits, active))


def _is_over(core: Core, name: str, task: str) -> bool:
    """Is this a task that the agent was given, and has finished? Then its last heartbeat is old news."""
    known = task_index.task_of(core, name, task)
    return known is not None and known.is_final


def check_card(core: Core, name: str, moment: Moment, values: dict[str, Any]) -> Card:
    """A checked card. Only known fields are taken."""
    checks: dict[str, Callable[[Any, str], Any]] = {
        "display_name": lambda value, field: check_line(value, field, 200),
        "description": lambda value, field: check_text(value, field, 10_000),
        "program": lambda value, field: check_line(value, field, 200),
        "model": lambda value, field: check_line(value, field, 200),
        "capabilities": lambda value, field: _all(value, field, check_label),
        "scopes": lambda value, field: _all(value, field, check_scope),
        "allow_from": lambda value, field: _all(value, field, partial(_check_allowed_name, core)),
        "max_concurrent_tasks": lambda value, field: check_count(value, field, least=0, most=1_000_000),
        "metadata": lambda value, field: check_object(value, field, core.limits.max_depth),
        "extra": lambda value, field: check_object(value, field, core.limits.max_depth),
    }
    unknown = set(values) - set(checks)
    if unknown:
        raise Invalid("a card has no such field", field=min(unknown), hint=", ".join(checks))
    fields = {field: checks[field](value, field) for field, value in values.items()}
    swarm, slash, _ = name.partition("/")
    if slash:  # swarm/agent belongs to its swarm without saying so
        fields["scopes"] = tuple(dict.fromkeys((swarm, *fields.get("scopes", ()))))
    card = Card(id=name, registered_at=moment.wall, **fields)
    check_size(core, card, "card")
    return card


def check_size(core: Core, value: Card | ScopeCard, field: str) -> None:
    """Everybody who looks around reads it."""
    size, most = len(encode(to_plain(value))), core.limits.max_card_bytes
    if size > most:
        raise TooLarge(f"is {size} bytes, the limit is {most}", field=field, hint="keep what is large in letters")


def check_tasks(value: Any) -> tuple[str, ...]:
    """What an agent says it is busy with."""
    return tuple(check_text(task, "current_tasks", 200) for task in listed(value, "current_tasks"))


def _all(value: Any, field: str, check: Callable[[Any, str], str]) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise Invalid(f"must be a list, not {type(value).__name__}", field=field)
    return tuple(dict.fromkeys(check(item, field) for item in value))


def is_member(core: Core, name: str, scope: str) -> bool:
    """Is somebody in a scope? By one small record: no other card is read."""
    return find_record(core, MEMBER + scope, name) is not None


def _check_allowed_name(core: Core, value: Any, field: str) -> str:
    return EVERYONE if value == EVERYONE else meant(check_party(value, field), core.limits.human)


def memberships(core: Core, name: str, card: Card, held: Record | None) -> list[Write]:
    """One small record per scope, so that a broadcast need not read every card."""
    before = convert(held.value, Card).scopes if held else ()
    joined = [(scope, True) for scope in card.scopes if scope not in before]
    left = [(scope, None) for scope in before if scope not in card.scopes]
    return [put_record(MEMBER + s, name, value, find_record(core, MEMBER + s, name)) for s, value in joined + left]


def _beat(core: Core, name: str, moment: Moment) -> Beat:
    """A further sign of life. What is not said stays as it was."""
    last = _last_beat(core, name) or first_beat(moment)
    return replace(last, at=moment.wall, steady=moment.steady, boot=moment.boot, left=False, dormant=False)


def _requeued(core: Core, name: str) -> list[Write]:
    last = _last_beat(core, name)
    if last is None or not last.left or not core.limits.requeue_on_return:
        return []
    claimed = core.store.find(Query(mailbox=name, states=(State.CLAIMED,), limit=MOST_REQUEUED))
    return [Move(one.delivery, delivery.release(one.delivery), "release") for one in claimed]


def _check_warm(core: Core, name: str, moment: Moment) -> None:
    """Who has expired cannot fall asleep: nobody knows any more whether it is there."""
    last = presence(_last_beat(core, name), moment, core.limits)
    if last.warmth in {Warmth.EXPIRED, Warmth.GONE}:
        raise IllegalMove(f"{name!r} is {last.warmth}", field="dormant", hint="a heartbeat brings it back")


def first_beat(moment: Moment) -> Beat:
    """Who starts, or starts again, is idle."""
    return Beat(at=moment.wall, steady=moment.steady, boot=moment.boot, active_at=moment.wall)


def _last_beat(core: Core, name: str) -> Beat | None:
    record = find_record(core, BEAT, name)
    return None if record is None else convert(record.value, Beat)


# Scopes: teams that agents are in. Membership is on the agent's card, so that a broadcast, a rename and an export
# know it; a scope's own description is a small record. A scope is there as soon as somebody made it or is in it.


def create(core: Core, caller: Principal, creator: str | None, id: str, says: dict[str, Any]) -> ScopeCard:
    """Make a scope; one that somebody made before is not made again."""
    _check_hand(caller, creator)
    scope = ScopeCard(
        id=check_scope(id, "scope_id"),
        created_at=core.now().wall,
        created_by=creator or "",
        says=check_object(says, "scope", core.limits.max_depth),
    )
    check_size(core, scope, "scope")

    def plan() -> Sequence[Write]:
        held = find_record(core, SCOPE, scope.id)
        if held is not None:
            raise IdTaken(f"there is a scope {scope.id!r} already", field="scope_id", hint="join it")
        return [put_record(SCOPE, scope.id, to_plain(scope), None)]

    core.store.commit(plan)
    return scope


def delete(core: Core, caller: Principal, agent: str | None, id: str) -> ScopeCard:
    """Remove a scope that one made oneself: everybody leaves it."""
    _check_hand(caller, agent)
    scope = find(core, caller, id)
    if not caller.operator and (not scope.created_by or _today(core, scope.created_by) != agent):
        raise NotAllowed(f"only who made the scope {id!r} may delete it", field="scope_id")

    def plan() -> Sequence[Write]:
        held = find_record(core, SCOPE, id)
        writes: list[Write] = [] if held is None else [put_record(SCOPE, id, None, held)]
        for name in core.store.keys(MEMBER + id):
            writes += _without(core, name, id)
        return writes

    core.store.commit(plan)
    return scope


def find(core: Core, caller: Principal, id: str) -> ScopeCard:
    authorize(caller, "agents")
    held = find_record(core, SCOPE, check_scope(id, "scope_id"))
    if held is not None:
        return convert(held.value, ScopeCard)
    if not core.store.keys(MEMBER + id):
        raise Missing(f"there is no scope {id!r}", field="scope")
    return ScopeCard(id=id, created_at=core.now().wall)


def everyone(core: Core, caller: Principal) -> list[ScopeCard]:
    """All scopes, by name: those that were made, and those that stand on cards."""
    authorize(caller, "agents")
    made = {record.key: convert(record.value, ScopeCard) for record in core.store.records(SCOPE)}
    now = core.now().wall
    for record in core.store.records(CARD):
        for id in convert(record.value, Card).scopes:
            made.setdefault(id, ScopeCard(id=id, created_at=now))
    return [made[id] for id in sorted(made)]


def members(core: Core, caller: Principal, id: str) -> list[str]:
    """Who is in it; Missing where there is no such scope."""
    return sorted(core.store.keys(MEMBER + find(core, caller, id).id))


def join(core: Core, caller: Principal, agent: str, id: str) -> Card:
    """Be in a scope from now on: what is sent to it comes. Again is no error."""
    return rewrite(core, caller, agent, lambda card: _in(card, (*card.scopes, find(core, caller, id).id)))


def leave(core: Core, caller: Principal, agent: str, id: str) -> Card:
    """Be in it no more. Again is no error."""
    left = check_scope(id, "scope_id")
    return rewrite(core, caller, agent, lambda card: _in(card, [one for one in card.scopes if one != left]))


def _in(card: Card, scopes: Sequence[str]) -> Card:
    return replace(card, scopes=tuple(dict.fromkeys(scopes)))


def _without(core: Core, name: str, id: str) -> list[Write]:
    held = find_record(core, CARD, name)
    if held is None:
        return []
    card = convert(held.value, Card)
    left = replace(card, scopes=tuple(scope for scope in card.scopes if scope != id))
    return [put_record(CARD, name, to_plain(left), held), *memberships(core, name, left, held)]


def _check_hand(caller: Principal, agent: str | None) -> None:
    """Nobody makes or removes a scope in another's name."""
    authorize(caller, "register", agent)


def _today(core: Core, name: str) -> str:
    return core_names.resident(core, name)
