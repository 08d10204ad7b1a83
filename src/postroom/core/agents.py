"""Agents: cards, heartbeats and presence; guards of mailboxes; scopes.

A card says what an agent is and can do; a heartbeat (`Heartbeat`) says that it is alive. They are separate
records: a card changes rarely and durably, a heartbeat often and without a sync of its own. Many processes
register and send heartbeats at once; every change is one compare-and-set commit.

A guard is the allow list of a mailbox and the names that it blocks. It is checked inside the commit of each letter
(`addressing`) and exists only for a mailbox that has one.

A scope is a team of agents. Membership is on the agent's card, so that an export includes it, and in
one small record per scope and agent, so that a broadcast does not read every card. A scope exists as soon as it
was created or an agent is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import IdTaken, IllegalMove, Invalid, Missing, NameTaken, NotAllowed, TooLarge, UnknownAgent
from ..model import delivery
from ..model.agent import EVERYONE, NO_GUARD, Agent, Card, Heartbeat, ScopeCard, Warmth, guard_from, guard_value
from ..model.codec import convert, encode
from ..model.delivery import State
from ..model.message import same_name
from ..model.names import AT, POSTMASTER, check_party, check_scope, fold, meant
from ..model.peer import Route
from ..model.query import Query
from ..model.record import BEAT, CARD, GUARD, MEMBER, SCOPE
from ..model.values import as_list, check_count, check_label, check_line, check_object, check_seconds, check_text
from ..policy.routing import is_routable, presence
from ..store.protocol import Move, Put, all_names, record_keys
from . import names as core_names
from . import task_index
from .core import change_record, commit, find_record, find_value, put_record, records_of, values_of
from .proof import check_person, is_person
from .verb import LOCAL, MailboxVerb, Verb, verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..model.agent import Guard
    from ..model.query import Moment
    from ..model.record import Record
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


# Cards, heartbeats and presence.

CARD_FIELDS = (
    "display_name", "description", "capabilities", "program", "model", "scopes", "allow_from",
    "max_concurrent_tasks", "metadata", "extra",
)  # fmt: skip
MOST_REQUEUED = 10_000  # letters that are released when an agent returns; the leases of further ones run out


@verb("register", Agent, under="agent", action="register")
class Register(MailboxVerb, kw_only=True):
    """Register an agent, or change its card.

    An agent may register as often as it likes; a field that is not given gets its default. The name of a live
    agent is not given to another principal, unless a token proves whose it is. When an agent returns after it
    left, the letters that it had claimed go back to its inbox, because the process that held them has ended.
    """

    display_name: Annotated[str | None, "a name for people"] = None
    description: Annotated[str | None, "what it is for"] = None
    capabilities: Annotated[list[str] | None, "what it can do"] = None
    program: Annotated[str | None, "what runs it"] = None
    model: Annotated[str | None, "the model behind it"] = None
    scopes: Annotated[list[str] | None, "the teams it is in"] = None
    allow_from: Annotated[list[str] | None, "who may write to it"] = None
    max_concurrent_tasks: Annotated[int | None, "how many tasks at once"] = None
    metadata: Annotated[dict[str, Any] | None, "anything else"] = None
    extra: Annotated[dict[str, Any] | None, LOCAL] = None  # fields of other protocols

    def run(self, core: Core, principal: Principal) -> Agent:
        moment, name = core.now(), self.agent_id
        values = {field: getattr(self, field) for field in CARD_FIELDS}
        fields = {field: value for field, value in values.items() if value is not None}
        card = replace(check_card(core, name, moment, fields), principal=principal.name)

        def plan() -> Sequence[Write]:
            core_names.check_not_moved(core, name, "id")
            held = find_record(core, CARD, name)
            holder = principal.name if held is None else convert(held.value, Card).principal
            alive = is_routable(presence(_last_beat(core, name), moment, core.limits))
            # Without a token a caller cannot take the name of a live agent; a token proves whose it is (G8).
            if alive and holder != principal.name and principal.token is None:
                raise NameTaken(f"{name!r} is held by another live agent", field="id")
            return [
                put_record(CARD, name, card, held),
                *membership_writes(core, name, card, held),
                *allow_list_writes(core, name, card),
                *_release_claimed(core, name),
                # Last and without a sync of its own: the card before it is durable in the same commit.
                put_record(BEAT, name, first_beat(moment), find_record(core, BEAT, name), durable=False),
            ]

        core.store.commit(plan)
        return registered_agent(core, name)


def registration(core: Core, name: str, fields: Mapping[str, Any]) -> Register:
    """Return the request that registers an agent; fields that are not given, or are None, stay as they were."""
    card = find_value(core, CARD, name, Card)
    kept: dict[str, Any] = {} if card is None else {field: getattr(card, field) for field in CARD_FIELDS}
    changes = {field: value for field, value in fields.items() if value is not None}
    return Register(agent_id=name, **kept | changes)


@verb("update_card", Card, under="card", action="register", local=True)
class UpdateCard(MailboxVerb, kw_only=True):
    """Change the card of an agent by a function; its principal and its presence stay as they were."""

    change: Annotated[Callable[[Card], Card], "returns the changed card"]

    def run(self, core: Core, _principal: Principal) -> Card:
        name = self.agent_id

        def plan() -> tuple[Sequence[Write], Card]:
            held = _held_card(core, name, "agent_id", hint="register it first")
            before = convert(held.value, Card)
            after = self.change(before)
            if after == before:
                return [], after
            for field in ("metadata", "extra"):
                check_object(getattr(after, field), field, core.limits.max_depth)
            # An old card over the limit may be made smaller
            if len(encode(after)) > len(encode(before)):
                check_size(core, after, "card")
            return [
                put_record(CARD, name, after, held),
                *membership_writes(core, name, after, held),
            ], after

        return commit(core, plan)


@verb("heartbeat", Agent, under="agent", action="heartbeat")
class RecordHeartbeat(MailboxVerb, kw_only=True):
    """Record that you are alive. Values that are not given stay as they were."""

    current_tasks: Annotated[list[str] | None, "what you work on"] = None
    poll_interval: Annotated[float | None, "how often you look"] = None
    active: Annotated[bool, "you did something"] = False

    def run(self, core: Core, _principal: Principal) -> Agent:
        moment = core.now()
        changed: dict[str, Any] = {"left": False, "dormant": False}
        if self.current_tasks is not None:
            changed["current_tasks"] = check_tasks(self.current_tasks)
            changed["says"] = ""  # the tasks replace the free text
        if self.poll_interval is not None:
            changed["poll_interval"] = check_seconds(self.poll_interval, "poll_interval", above=0, most=86_400)
        if self.active:
            changed["active_at"] = moment.wall
        return _beat(core, self.agent_id, moment, changed)


@verb("goodbye", Agent, under="agent", action="heartbeat")
class Goodbye(MailboxVerb, kw_only=True):
    """Sign off; mail that comes meanwhile waits."""

    dormant: Annotated[bool, "sleep: you do not expire, and your next heartbeat wakes you"] = False

    def run(self, core: Core, principal: Principal) -> Agent:
        if is_person(core, self.agent_id):  # of people who left, other systems' mail is refused
            check_person(core, principal, self.agent_id, "sign off")
        return _beat(core, self.agent_id, core.now(), {"left": True, "dormant": self.dormant})


def _beat(core: Core, name: str, moment: Moment, changed: dict[str, Any]) -> Agent:
    """Write a heartbeat with these changes, and return the agent."""
    is_dormant = changed["dormant"]

    def plan() -> Sequence[Write]:
        _held_card(core, name, "id", hint="register it first")
        last = _last_beat(core, name)
        warmth = presence(last, moment, core.limits).warmth
        if is_dormant and warmth in {Warmth.EXPIRED, Warmth.GONE}:  # it may not exist any more
            raise IllegalMove(f"{name!r} is {warmth}", field="dormant", hint="a heartbeat brings it back")
        last = last or first_beat(moment)
        beat = replace(last, at=moment.wall, steady=moment.steady, boot=moment.boot, **changed)
        # A lost heartbeat is repeated soon. That an agent is dormant is said once, and must last.
        return [put_record(BEAT, name, beat, find_record(core, BEAT, name), durable=is_dormant)]

    core.store.commit(plan)
    return registered_agent(core, name)


@verb("heartbeats", list[str], under="agents", action="heartbeat", local=True)
class RecordHeartbeats(Verb, kw_only=True):
    """Record that many agents are alive, or that they leave, in one commit.

    Agents that are not registered, and agents that have left already, are skipped.
    """

    names: Annotated[list[str], "the agents"]
    poll_interval: Annotated[float | None, "how often they look"] = None
    leaving: Annotated[bool, "they leave"] = False

    def owners(self, _core: Core, _principal: Principal) -> list[str | None]:
        return list(self.names)

    def run(self, core: Core, _principal: Principal) -> list[str]:
        moment = core.now()
        changed: dict[str, Any] = {"at": moment.wall, "steady": moment.steady, "boot": moment.boot}
        changed["left"] = self.leaving
        if self.poll_interval is not None:
            changed["poll_interval"] = self.poll_interval

        def plan() -> tuple[Sequence[Write], list[str]]:
            cards = set(record_keys(core.store, CARD))
            # One query for all, because a link may beat for a thousand agents.
            beats = records_of(core, BEAT)
            writes = []
            for name in self.names:
                held = beats.get(name)
                last = first_beat(moment) if held is None else convert(held.value, Heartbeat)
                stays = self.leaving and (last.left or is_person(core, name))  # nobody sends a person away (G12)
                if name in cards and not stays:
                    beat = replace(last, dormant=False, **changed)
                    writes.append(put_record(BEAT, name, beat, held, durable=False))
            return writes, [write.record.key for write in writes]

        return commit(core, plan) if self.names else []


@verb("agent", Agent, under="agent", action="agents", writes=False)
class GetAgent(Verb, kw_only=True):
    """Return one agent's card and presence."""

    name: Annotated[str, "its name"]

    def run(self, core: Core, _principal: Principal) -> Agent:
        return registered_agent(core, meant(check_party(self.name, "id"), core.limits.human))


def registered_agent(core: Core, name: str) -> Agent:
    """Return a registered agent with its presence; UnknownAgent if there is none of this name."""
    return agent_of(core, _held_card(core, name, "id"), core.now())


def _held_card(core: Core, name: str, field: str, hint: str | None = None) -> Record:
    """Return the record of an agent's card; UnknownAgent if there is none of this name."""
    held = find_record(core, CARD, name)
    if held is None:
        core_names.check_not_moved(core, name, field)
        raise UnknownAgent(f"{name!r} is not registered", field=field, hint=hint)
    return held


def card_of(core: Core, name: str) -> Card | None:
    """Return the card of a name; None if nobody registered under it."""
    return find_value(core, CARD, name, Card)


class Agents(Struct):
    """The agents of the room, and those of other systems if they were asked for, each with its way."""

    agents: list[Agent]
    elsewhere: list[tuple[str, Route]] | None = None


@verb("agents", Agents, action="agents", many=True, writes=False)
class ListAgents(Verb, kw_only=True):
    """Return the agents, with capabilities and presence: an operator also sees mailboxes nobody registered."""

    scope: Annotated[str | None, "only of this team"] = None
    capability: Annotated[str | None, "only agents with this capability"] = None
    gone: Annotated[bool, "also agents that have left"] = False
    elsewhere: Annotated[bool, "also agents of other systems"] = False

    def run(self, core: Core, principal: Principal) -> Agents:
        found = [
            agent
            for agent in registered_agents(core, gone=self.gone)
            if (self.scope is None or self.scope in agent.card.scopes)
            and (self.capability is None or self.capability in agent.card.capabilities)
        ]
        # An agent does not learn who else has mail here; what registers is meant to be seen.
        if (principal.operator or principal.visit) and self.scope is None and self.capability is None:
            found = sorted([*found, *_unregistered(core)], key=lambda agent: agent.card.id)
        if not self.elsewhere:
            return Agents(found)
        from .outbox import announced_agents  # noqa: PLC0415 - most calls are about this room

        return Agents(found, announced_agents(core))


@verb("mailboxes", list[str], under="mailboxes", action="room", many=True, writes=False)
class ListMailboxes(Verb, kw_only=True):
    """Return every name that ever wrote, was written to, or registered."""

    def run(self, core: Core, _principal: Principal) -> list[str]:
        return all_names(core.store)


def registered_agents(core: Core, *, gone: bool = False) -> list[Agent]:
    """Return the registered agents, sorted by name; with `gone`, also those that are gone, whose mail waits."""
    moment = core.now()
    cards, beats = values_of(core, CARD, Card), values_of(core, BEAT, Heartbeat)
    busy = task_index.all_active(core)
    found = [_agent(core, card, beats.get(card.id), busy, moment) for card in cards.values()]
    return [agent for agent in found if gone or agent.presence.warmth is not Warmth.GONE]


def _unregistered(core: Core) -> list[Agent]:
    """Return the mailboxes of this room that wrote or were written to, and for which nobody registered."""
    moment, cards = core.now(), set(record_keys(core.store, CARD))
    names = [name for name in all_names(core.store) if name not in cards and AT not in name]
    return [
        Agent(
            card=Card(id=name, registered_at=moment.wall),
            presence=presence(_last_beat(core, name), moment, core.limits),
            registered=False,
        )
        for name in names
        if fold(name) != POSTMASTER
    ]


def agent_of(core: Core, record: Record, moment: Moment) -> Agent:
    """Return the agent whose card this record holds."""
    busy = {record.key: task_index.active_tasks(core, record.key)}
    return _agent(core, convert(record.value, Card), _last_beat(core, record.key), busy, moment)


def _agent(
    core: Core, card: Card, beat: Heartbeat | None, busy: Mapping[str, tuple[str, ...]], moment: Moment
) -> Agent:
    active = busy.get(card.id, ())
    if beat is not None and beat.current_tasks:
        # Without the tasks that have ended since its last heartbeat.
        known = {task: task_index.task_of(core, card.id, task) for task in beat.current_tasks}
        beat = replace(beat, current_tasks=tuple(id for id, task in known.items() if not (task and task.is_final)))
    return Agent(card=card, presence=presence(beat, moment, core.limits, active))


def check_card(core: Core, name: str, moment: Moment, values: dict[str, Any]) -> Card:
    """Return a card with these checked values."""

    def allowed_name(value: Any, field: str) -> str:
        return EVERYONE if value == EVERYONE else meant(check_party(value, field), core.limits.human)

    checks: dict[str, Callable[[Any, str], Any]] = {
        "display_name": lambda value, field: check_line(value, field, 200),
        "description": lambda value, field: check_text(value, field, 10_000),
        "program": lambda value, field: check_line(value, field, 200),
        "model": lambda value, field: check_line(value, field, 200),
        "capabilities": lambda value, field: _check_each(value, field, check_label),
        "scopes": lambda value, field: _check_each(value, field, check_scope),
        "allow_from": lambda value, field: _check_each(value, field, allowed_name),
        "max_concurrent_tasks": lambda value, field: check_count(value, field, least=0, most=1_000_000),
        "metadata": lambda value, field: check_object(value, field, core.limits.max_depth),
        "extra": lambda value, field: check_object(value, field, core.limits.max_depth),
    }
    fields = {field: checks[field](value, field) for field, value in values.items()}
    swarm, slash, _ = name.partition("/")
    if slash:  # an agent named swarm/agent is always a member of its swarm
        fields["scopes"] = tuple(dict.fromkeys((swarm, *fields.get("scopes", ()))))
    card = Card(id=name, registered_at=moment.wall, **fields)
    check_size(core, card, "card")
    return card


def check_size(core: Core, value: Card | ScopeCard, field: str) -> None:
    """Raise TooLarge if a card is over the limit: every listing of agents reads all cards."""
    size, most = len(encode(value)), core.limits.max_card_bytes
    if size > most:
        raise TooLarge(f"is {size} bytes, the limit is {most}", field=field, hint="put large data into letters")


def check_tasks(value: Any) -> tuple[str, ...]:
    """Return the checked list of tasks that an agent is busy with."""
    return tuple(check_text(task, "current_tasks", 200) for task in as_list(value, "current_tasks"))


def _check_each(value: Any, field: str, check: Callable[[Any, str], str]) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise Invalid(f"must be a list, not {type(value).__name__}", field=field)
    return tuple(dict.fromkeys(check(item, field) for item in value))


def is_member(core: Core, name: str, scope: str) -> bool:
    """Return whether an agent is in a scope, by one small record."""
    return find_record(core, MEMBER + scope, name) is not None


def membership_writes(core: Core, name: str, card: Card, held: Record | None) -> list[Write]:
    """Return the writes of the membership records that a changed card needs."""
    before = convert(held.value, Card).scopes if held else ()
    joined = [(scope, True) for scope in card.scopes if scope not in before]
    left = [(scope, None) for scope in before if scope not in card.scopes]
    return [put_record(MEMBER + s, name, value, find_record(core, MEMBER + s, name)) for s, value in joined + left]


def _release_claimed(core: Core, name: str) -> list[Write]:
    last = _last_beat(core, name)
    if last is None or not last.left or not core.limits.requeue_on_return:
        return []
    claimed = core.store.find(Query(mailbox=name, states=(State.CLAIMED,), limit=MOST_REQUEUED))
    return [Move(one.delivery, delivery.release(one.delivery), "release") for one in claimed]


def first_beat(moment: Moment) -> Heartbeat:
    """Return the heartbeat of an agent that starts, or starts again: it is idle."""
    return Heartbeat(at=moment.wall, steady=moment.steady, boot=moment.boot, active_at=moment.wall)


def _last_beat(core: Core, name: str) -> Heartbeat | None:
    return find_value(core, BEAT, name, Heartbeat)


# Guards: allow lists and blocked names.

MAX_BLOCKED = 10_000  # names blocked by one mailbox


@verb("block", list[str], under="blocked", action="block")
class Block(MailboxVerb, kw_only=True):
    """Refuse the mail of an agent from now on."""

    name: Annotated[str, "its name"]

    def run(self, core: Core, _principal: Principal) -> list[str]:
        blocked = meant(check_party(self.name, "name"), core.limits.human)
        # A bounce must reach the sender, whatever it has blocked (G6).
        if fold(blocked) == POSTMASTER:
            raise Invalid("Postroom's own notices cannot be blocked", field="name")
        if same_name(blocked, self.agent_id):
            raise Invalid("a mailbox cannot block itself", field="name")

        def add(names: tuple[str, ...]) -> tuple[str, ...]:
            if len(names) >= MAX_BLOCKED:
                raise TooLarge(f"{len(names)} names are blocked, the limit is {MAX_BLOCKED}", field="name")
            return names if any(same_name(blocked, held) for held in names) else (*names, blocked)

        return _change_blocked(core, self.agent_id, add)


@verb("unblock", list[str], under="blocked", action="block")
class Unblock(MailboxVerb, kw_only=True):
    """Accept its mail again, under all its names. The allow list applies all the same."""

    name: Annotated[str, "its name"]

    def run(self, core: Core, _principal: Principal) -> list[str]:
        freed = meant(check_party(self.name, "name"), core.limits.human)

        def remove(names: tuple[str, ...]) -> tuple[str, ...]:
            # Under any of its names, so that a renamed agent does not stay blocked by half.
            known = {
                fold(one) for one in (freed, *core_names.names_of(core, core_names.current_name(core, freed)))
            }
            return tuple(held for held in names if fold(held) not in known)

        return _change_blocked(core, self.agent_id, remove)


@verb("blocked", list[str], under="blocked", action="block", writes=False)
class ListBlocked(MailboxVerb, kw_only=True):
    """Return the senders that are blocked here."""

    def run(self, core: Core, _principal: Principal) -> list[str]:
        core_names.check_not_moved(core, self.agent_id, "mailbox")
        return sorted(_guard(find_record(core, GUARD, self.agent_id)).block)


def allow_list_writes(core: Core, name: str, card: Card) -> list[Write]:
    """Return the writes that set the allow list of a card; blocked names stay blocked. Part of a plan."""
    held = find_record(core, GUARD, name)
    # Names beside the star add nothing; without them the guard equals NO_GUARD and needs no record.
    allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
    before = _guard(held)
    after = replace(before, allow=allowed)
    return [] if after == before else [put_record(GUARD, name, guard_value(after), held)]


def _change_blocked(core: Core, mailbox: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> list[str]:
    core_names.check_not_moved(core, mailbox, "mailbox")

    def step(held: Any) -> Any:
        guard = NO_GUARD if held is None else guard_from(held)
        after = replace(guard, block=change(guard.block))
        return held if after == guard else guard_value(after)

    guard = change_record(core, GUARD, mailbox, Any, step)
    return [] if guard is None else sorted(guard_from(guard).block)


def _guard(held: Record | None) -> Guard:
    return NO_GUARD if held is None else guard_from(held.value)


# Scopes.


@verb("create_scope", ScopeCard, under="scope", action="register", everyone=True)
class CreateScope(MailboxVerb, kw_only=True):
    """Create a scope, a team of agents; an error if it was created before."""

    scope_id: Annotated[str, "the scope"]
    says: Annotated[dict[str, Any] | None, "its name, description and the like"] = None

    def run(self, core: Core, _principal: Principal) -> ScopeCard:
        scope = ScopeCard(
            id=check_scope(self.scope_id, "scope_id"),
            created_at=core.now().wall,
            created_by=self.agent_id,
            says=check_object({} if self.says is None else self.says, "scope", core.limits.max_depth),
        )
        check_size(core, scope, "scope")

        def created(held: ScopeCard | None) -> ScopeCard:
            if held is not None:
                raise IdTaken(
                    f"there is a scope {scope.id!r} already",
                    field="scope_id",
                    hint="join that scope, or choose another id",
                )
            return scope

        return change_record(core, SCOPE, scope.id, ScopeCard, created)


@verb("delete_scope", ScopeCard, under="scope", action="register", everyone=True)
class DeleteScope(MailboxVerb, kw_only=True):
    """Delete a scope that the agent created; all its members leave it."""

    scope_id: Annotated[str, "the scope"]

    def run(self, core: Core, principal: Principal) -> ScopeCard:
        id, scope = self.scope_id, find_scope(core, self.scope_id)
        creator = core_names.current_name(core, scope.created_by) if scope.created_by else None
        if not principal.operator and creator != self.agent_id:
            raise NotAllowed(f"only the creator of the scope {id!r} may delete it", field="scope_id")

        def plan() -> Sequence[Write]:
            writes: list[Write] = [Put(record=replace(held, value=None)) for held in core.store.records(SCOPE, id)]
            # In the commit of the deletion: a broadcast finds the scope with all its members, or none.
            for name in members_of(core, id):
                for held in core.store.records(CARD, name):
                    card = convert(held.value, Card)
                    left = replace(card, scopes=tuple(scope for scope in card.scopes if scope != id))
                    writes += [put_record(CARD, name, left, held)]
                    writes += membership_writes(core, name, left, held)
            return writes

        core.store.commit(plan)
        return scope


class ScopeWithMembers(Struct):
    """One scope, and the names of the agents in it."""

    scope: ScopeCard
    members: list[str]


@verb("scope", ScopeWithMembers, action="agents", many=True, writes=False)
class GetScope(Verb, kw_only=True):
    """Return a scope that was created or has members, with its members."""

    scope_id: Annotated[str, "the scope"]

    def run(self, core: Core, _principal: Principal) -> ScopeWithMembers:
        scope = find_scope(core, self.scope_id)
        return ScopeWithMembers(scope, sorted(members_of(core, scope.id)))


def members_of(core: Core, scope: str) -> list[str]:
    """Return the names of the agents in a scope, by small records and not by their cards."""
    return record_keys(core.store, MEMBER + scope)


def find_scope(core: Core, id: str) -> ScopeCard:
    """Return a scope that was created or has members; Missing if there is none."""
    made = find_value(core, SCOPE, check_scope(id, "scope_id"), ScopeCard)
    if made is None and not members_of(core, id):
        raise Missing(f"there is no scope {id!r}", field="scope")
    return made or ScopeCard(id=id, created_at=core.now().wall)


@verb("scopes", list[ScopeCard], under="scopes", action="agents", many=True, writes=False)
class ListScopes(Verb, kw_only=True):
    """Return all scopes: those that were created and those that cards name."""

    def run(self, core: Core, _principal: Principal) -> list[ScopeCard]:
        now, made = core.now().wall, values_of(core, SCOPE, ScopeCard)
        named = {id for card in values_of(core, CARD, Card).values() for id in card.scopes}
        return [made.get(id) or ScopeCard(id=id, created_at=now) for id in sorted(named | made.keys())]


@verb("join_scope", Card, under="card", action="register")
class JoinScope(MailboxVerb, kw_only=True):
    """Add an agent to a scope, so that it gets broadcasts to it. Joining twice is no error."""

    scope_id: Annotated[str, "the scope"]

    def run(self, core: Core, principal: Principal) -> Card:
        return _change_scopes(self, core, principal, lambda held: (*held, find_scope(core, self.scope_id).id))


@verb("leave_scope", Card, under="card", action="register")
class LeaveScope(MailboxVerb, kw_only=True):
    """Remove an agent from a scope. Leaving twice is no error."""

    scope_id: Annotated[str, "the scope"]

    def run(self, core: Core, principal: Principal) -> Card:
        left = check_scope(self.scope_id, "scope_id")
        return _change_scopes(self, core, principal, lambda held: (one for one in held if one != left))


def _change_scopes(
    request: MailboxVerb, core: Core, principal: Principal, change: Callable[[tuple[str, ...]], Iterable[str]]
) -> Card:
    changed = UpdateCard(
        agent_id=request.agent_id,
        change=lambda card: replace(card, scopes=tuple(dict.fromkeys(change(card.scopes)))),
    )
    return changed.run(core, principal)
