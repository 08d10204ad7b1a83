"""Mail from other systems: whether it is accepted, for which mailboxes, and how a repeated letter is recognized.

A letter keeps its id if that is free. If another letter has the id, or for a further recipient of a letter that is
stored already, a copy is stored under an id of ours and a key made from source, id and mailbox. A peer is answered
only after the commit, so a letter it gets confirmed is safe here; a letter that comes twice, even at the same
time, is stored once. Nothing that comes from outside makes a mailbox.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import (
    Damaged,
    HopsSpent,
    IdTaken,
    Invalid,
    LoopDetected,
    NotAllowed,
    PostroomError,
    QuotaFull,
    Refused,
    StoreBusy,
    StoreFailing,
    UnknownAgent,
)
from ..model.agent import Card, Warmth
from ..model.codec import blake2b, digest
from ..model.delivery import open_delivery
from ..model.message import FEDERATION_NOTE, Recipient, same_name
from ..model.names import (
    ANYWHERE,
    AT,
    POSTMASTER,
    Address,
    agent_of,
    at_system,
    check_agent,
    check_id,
    check_party,
    fold,
    format_address,
    meant,
    parse_address,
    system_of,
)
from ..model.query import Query
from ..model.record import CARD, FORGOTTEN, PERSON, SPENT, pair_key
from ..policy import trust
from ..policy.admission import check_expiry
from ..policy.trust import speaks_for
from ..store.protocol import Post, check_space, first_sent, is_known, spelling_of, spelt, waiting_letters
from . import addressing, agents, outbox, task_index
from . import compose as core_compose
from . import peers as core_peers
from .compose import compose, draft_of, encode_within_limit
from .core import commit, find_letter, find_value, values_of
from .messages import AnswerRates, check_answer_rate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.message import Message, Proof
    from ..model.peer import Envelope, Peer
    from ..store.protocol import Write
    from .core import Core


_LONGEST_KEY = 200
_BY_ROUTE: dict[str, Any] = {
    "recipients": (), "hops": 0, "trace": (), "thread_id": None, "thread_tag": None, "conversation_id": None,
}  # fmt: skip


class TargetOutcome(Struct, frozen=True):
    """The outcome of an arrival for one of its targets."""

    target: Address
    problem: PostroomError | None = None  # None: it is stored, now or earlier


def accept(core: Core, peer: Peer, arrival: Envelope) -> list[TargetOutcome]:
    """Store a letter for all of its targets that may have it. Durable when this returns.

    `sender_rate` does not hold here: the letter was accepted elsewhere, by a service that has a rate for its own
    agents, and the operator allowed the peer. A temporary refusal would only move the queue into the peer's outbox
    and slow down a link behind one busy sender. The quotas bound what a peer can fill.
    """
    now = core.now().wall
    arrival = recognize(core, peer, arrival)
    try:
        message = check_arrival(core, peer, arrival, now)
        # Reads and writes in one commit, so that a letter that comes twice at once is stored once.
        outcomes = commit(core, lambda: _Intake(core, peer, arrival, message, now).planned())
    # These say nothing about the letter. Raised, they leave it in the peer's outbox for another attempt (G9).
    except (StoreBusy, StoreFailing, Damaged):
        raise
    except PostroomError as refused:
        outcomes = [TargetOutcome(target, refused) for target in arrival.targets]
    # Only for a peer that may speak for the source: no other peer learns which letters are here (G8).
    if all(one.problem is None for one in outcomes) or not speaks_for(peer, arrival.source):
        return outcomes
    return [TargetOutcome(one.target) if _is_kept(core, arrival, one.target) else one for one in outcomes]


def _is_kept(core: Core, arrival: Envelope, target: Address) -> bool:
    """Return whether the letter was accepted earlier, even if it would be refused today.

    If the peer missed the confirmation and now got a refusal, the sender would get a bounce for a delivered
    letter, or another system would get it, too.
    """
    id = arrival.message.id
    mailbox = named_mailbox(core, target) if target.agent else None
    if mailbox is None or target.scope:  # a letter to a scope is another letter in the same mailbox
        return False
    if _is_copied(core, arrival.message.sender, _key(arrival, id, mailbox)):
        return True
    _, came = _origin_of(core, id)
    is_theirs = same_name(str(came.get("source")), arrival.source)
    is_same = is_theirs and came.get("says") == _content_digest(arrival.message)
    return is_same and any(same_name(mailbox, name) for name in came["to"])


def _origin_of(core: Core, id: str) -> tuple[bool, dict[str, Any]]:
    """Return whether a letter has this id, or had it, and the note of how it came; empty for one of ours."""
    held, memory = core.store.get([id]).get(id), core.store.records(FORGOTTEN, id)
    came: Any = held.message.extra.get(FEDERATION_NOTE) if held else None
    if held is None and memory:
        came = memory[0].value.get(FEDERATION_NOTE)
    return held is not None or bool(memory), came if isinstance(came, dict) else {}


def _is_copied(core: Core, sender: str, key: str) -> bool:
    """Return whether a copy of a letter is stored under this key, or was."""
    return bool(first_sent(core.store, sender, key) or core.store.records(SPENT, pair_key(sender, key)))


class _Intake:
    """One letter in one run of the plan that accepts it."""

    def __init__(self, core: Core, peer: Peer, arrival: Envelope, message: Message, now: datetime) -> None:
        self.core, self._peer, self._arrival = core, peer, arrival
        self._message, self._now = message, now
        self._digest = _content_digest(arrival.message)
        self._with_space: set[str] = set()  # mailboxes that were checked and are not full
        self._per_system: Counter[str] = Counter()  # how many of these are at a remote system, by its folded name

    def planned(self) -> tuple[Sequence[Write], list[TargetOutcome]]:
        """Return the writes of the letter, and the outcome for each of its targets."""
        outcomes = []
        wanted: dict[str, None] = {}
        for target in self._arrival.targets:
            problem = None
            try:
                wanted.update(dict.fromkeys(self._mailboxes(target)))
            except (StoreBusy, StoreFailing, Damaged):
                raise
            except PostroomError as refused:
                problem = refused
            outcomes.append(TargetOutcome(target, problem))
        writes: Sequence[Write] = self._posts([*wanted])
        has_task = writes and self._message.task is not None
        return task_index.with_index(self.core, writes) if has_task else writes, outcomes

    def _mailboxes(self, target: Address) -> list[str]:
        """Return the mailboxes of one target; raise if all of them refuse the letter."""
        open_to, refusal = [], None
        for name in target_mailboxes(self.core, self._peer, self._arrival, self._message, target):
            try:
                if AT not in name:
                    addressing.is_open_to(self.core, self._message, name)
                self._check_space(name)
                open_to.append(name)
            except (QuotaFull, Refused) as refused:
                refusal = refused
        if not open_to and refusal is not None:
            raise refusal
        return open_to

    def _check_space(self, mailbox: str) -> None:
        """Refuse a letter for a mailbox that is full, so that the others get it; not one that it has already."""
        if mailbox in self._with_space:
            return
        limits, sender, system = self.core.limits, self._message.sender, fold(system_of(mailbox))
        limit = limits.outbox_max_letters if system else limits.inbox_quota
        waiting = waiting_letters(self.core.store, mailbox, sender)
        try:
            check_space(sender, mailbox, waiting, limit, 1 + self._per_system[system])
        except QuotaFull:
            if not self._was_taken(mailbox):
                raise
        self._with_space.add(mailbox)
        if system:
            self._per_system[system] += 1

    # -- letters that are stored already

    def _posts(self, mailboxes: Sequence[str]) -> list[Post]:
        id = self._message.id
        is_taken, came = _origin_of(self.core, id)
        if not is_taken:
            return [self._post(self._message, mailboxes)] if mailboxes else []
        # The same letter again, maybe for further mailboxes: those that had it are not asked twice.
        if same_name(str(came.get("source")), self._arrival.source):
            if came.get("says") != self._digest:
                raise IdTaken(f"{self._arrival.source!r} sent another letter with this id", field="id")
            found = self.core.store.find(Query(message_ids=(id,)))
            have = {one.delivery.mailbox for one in found} | {*came["to"]}
            mailboxes = [name for name in mailboxes if name not in have]
        # The id is taken, by a letter of another system or by this one for other recipients: store it under an id
        # of ours.
        return [copy for name in mailboxes if (copy := self._copy(name)) is not None]

    def _was_taken(self, mailbox: str) -> bool:
        """Return whether this mailbox has the letter, under its own id or as a copy."""
        at = Query(mailbox=mailbox, message_ids=(self._message.id,))
        return bool(self.core.store.find(at)) or self._copy(mailbox) is None

    def _copy(self, mailbox: str) -> Post | None:
        """Return the letter under an id of ours; None if that copy is stored, or was."""
        sender, key = self._message.sender, _key(self._arrival, self._message.id, mailbox)
        if _is_copied(self.core, sender, key):
            return None
        return self._post(replace(self._message, id=self.core.new_id(agent_of(sender)), key=key), [mailbox])

    # -- writing

    def _post(self, message: Message, mailboxes: Sequence[str]) -> Post:
        kinds = {recipient.address: recipient.kind for recipient in message.recipients}
        missing = tuple(Recipient(name) for name in mailboxes if name not in kinds)
        if len(mailboxes) == len(missing) and any(not target.agent for target in self._arrival.targets):
            missing = ()  # a broadcast names no recipients
        came = {
            "source": self._arrival.source,
            "id": self._message.id,
            "path": [*self._arrival.path],
            "hops": self._arrival.hops,
            "says": self._digest,
            "to": [*mailboxes],
            "at": self._now.isoformat(),
        }
        message = replace(
            message, recipients=(*message.recipients, *missing), extra=message.extra | {FEDERATION_NOTE: came}
        )
        return Post(
            message=message,
            encoded=encode_within_limit(message, self.core.limits),
            deliveries=tuple(open_delivery(message, name, kinds.get(name, "to"), self._now) for name in mailboxes),
            quota=self.core.limits.inbox_quota,
            outbox=self.core.limits.outbox_max_letters,
        )


def _content_digest(message: Message) -> str:
    """Return a digest of a letter's content, which is the same by whatever route it came.

    A relaying system may change the recipients, allow fewer hops, and know the thread.
    """
    extra = {name: value for name, value in message.extra.items() if name != FEDERATION_NOTE}
    return digest(replace(message, extra=extra, **_BY_ROUTE))


def _key(arrival: Envelope, id: str, mailbox: str) -> str:
    key = f"fed:{fold(arrival.source)}:{id}:{mailbox}"
    return key if len(key) <= _LONGEST_KEY else f"fed:{blake2b(key.encode(), digest_size=16).hexdigest()}"


# -- checks: sender, route, content, recipients


def recognize(core: Core, peer: Peer, arrival: Envelope) -> Envelope:
    """Return the arrival with its system and sender spelt as they are known here."""
    names = (peer.system, *peer.relays_for)
    # With two spellings of its system one agent would get two mailboxes here.
    source = next((name for name in names if same_name(name, arrival.source)), arrival.source)
    message = arrival.message
    if same_name(system_of(message.sender), source):
        sender = outbox.spell_remote(core, at_system(agent_of(message.sender), source))
        message = replace(message, sender=sender)
    return replace(arrival, message=message, source=source)


def check_arrival(core: Core, peer: Peer, arrival: Envelope, now: datetime) -> Message:
    """Return the letter as it would be written here, or raise a refusal of it for all targets."""
    _check_way(core, peer, arrival)
    message = _localized(core, arrival, now)
    # Automatic mail passes the answer rate, so only a room itself may write it (G11).
    if message.is_automatic and agent_of(message.sender) != POSTMASTER:
        raise NotAllowed(f"only a post room itself may send a letter of kind {message.kind!r}", field="kind")
    check_expiry(message.expires_at, now)
    message = _with_thread(core, message, arrival)
    if not message.is_automatic:
        check_answer_rate(core, message, AnswerRates())
    return message


def target_mailboxes(core: Core, peer: Peer, arrival: Envelope, message: Message, target: Address) -> list[str]:
    """Return the mailboxes of one target, or raise a refusal."""
    trust.check_incoming(peer, arrival.source, message.scope, target)
    if not target.system or core_peers.is_ours(core, target.system):
        if target.agent:
            return [_resident(core, peer, arrival.source, message.scope, target.agent)]
        return _visible_agents(core, peer, arrival.source, message.scope, target.scope)
    if target.system == ANYWHERE and is_known(core.store, target.agent):
        return [_resident(core, peer, arrival.source, message.scope, target.agent)]
    return [_relayed_mailbox(core, peer, arrival, message, target)]


def named_mailbox(core: Core, target: Address) -> str | None:
    """Return the mailbox that an address names, also if it may not have the letter; None if there is none."""
    if target.system and not core_peers.is_ours(core, target.system):
        is_here = target.system == ANYWHERE and is_known(core.store, target.agent)
        return target.agent if is_here else outbox.spell_remote(core, format_address(target))
    try:
        return spelling_of(core.store, meant(check_agent(target.agent, "to"), core.limits.human))
    except Invalid:
        return None


def _check_way(core: Core, peer: Peer, arrival: Envelope) -> None:
    sender = parse_address(arrival.message.sender, "from")
    if not same_name(sender.system, arrival.source):
        raise NotAllowed(
            f"{arrival.message.sender!r} is not at {arrival.source!r}",
            field="from",
            hint="agent@system, where the letter was written",
        )
    # A peer speaks for itself and for the systems it relays; anything else would be a forged sender (G8).
    if not trust.speaks_for(peer, arrival.source):
        raise NotAllowed(f"{peer.system!r} does not speak for {arrival.source!r}", field="from")
    if core_peers.is_ours(core, arrival.source):
        raise LoopDetected("the letter was written here", field="from")
    # Hops and path are checked on every way in: a ring of rooms must not pass a letter around (G11).
    here = next((system for system in arrival.path if core_peers.is_ours(core, system)), "")
    hops = max(arrival.hops, len(arrival.path) - 1)
    trust.check_way(here, arrival.path, hops, arrival.most_hops, core.limits)


def _localized(core: Core, arrival: Envelope, now: datetime) -> Message:
    """Return the letter as a local sender would write it: checked, and with local names and limits."""
    fields = arrival.message
    extra = {name: value for name, value in fields.extra.items() if name != FEDERATION_NOTE}
    recipients = _at_home(core, fields)
    drafted = draft_of(replace(fields, key=None, extra=extra, recipients=recipients or (Recipient("x"),)))
    message = compose(core, drafted, now)
    trace = dict.fromkeys([*(_name_here(core, name, arrival.source) for name in fields.trace), message.sender])
    return replace(
        message,
        recipients=message.recipients if recipients else (),
        # A peer cannot grant more hops than a sender here has.
        hops=max(1, min(fields.hops, core.limits.hops)),
        trace=tuple(trace),
        # The clock of the other system may be ahead of ours.
        created_at=min(fields.created_at, now),
        proof=_proof_of(core, arrival),
    )


def _proof_of(core: Core, arrival: Envelope) -> Proof | None:
    """Return the proof of a letter that its sender signed, in their own room and to these agents.

    Only a key that was added here counts. Without one the letter is a peer's, whatever it brings.
    """
    message, proof = arrival.message, arrival.message.proof
    if proof is None:
        return None
    from ..model.person import with_proof  # noqa: PLC0415 - only for people

    # A removed key proves nothing that comes now: its thief could date a letter back.
    keys = [key for key in core.store.records(PERSON) if proof.room and key.value["room"] == proof.room]
    keys = [key for key in keys if key.value["removed_at"] is None]
    written = replace(message, sender=agent_of(message.sender), recipients=proof.recipients)
    return (
        with_proof(written, proof.room, keys, message.sender).proof if _is_to_these(core, arrival, proof) else None
    )


def _may_be_ours(core: Core, system: str) -> bool:
    return system == ANYWHERE or core_peers.is_ours(core, system)


def _is_to_these(core: Core, arrival: Envelope, proof: Proof) -> bool:
    """Return whether the sender wrote to every agent for whom the letter came: a peer hands it to no others.

    A bcc is not signed, so it proves nothing.
    """
    signed = [one.address for one in proof.recipients if one.kind != "bcc"]
    ours = [to for to in signed if AT in to and _may_be_ours(core, system_of(to))]
    named = {fold(agent_of(address)) for address in ours}
    return all(target.agent and fold(target.agent) in named for target in arrival.targets)


def _at_home(core: Core, message: Message) -> tuple[Recipient, ...]:
    """Return the recipients, those of this room by their local names. Unknown ones stay as they are written."""
    ours: dict[str, Recipient] = {}
    for recipient in message.recipients:
        address = recipient.address
        is_ours = AT in address and agent_of(address) and core_peers.is_ours(core, system_of(address))
        if is_ours and outbox.may_exist(core, address):
            address = spelt(core.store, core_compose.check_address(agent_of(address), recipient.kind))
        ours.setdefault(address, replace(recipient, address=address))
    return tuple(ours.values())


def _name_here(core: Core, name: str, source: str) -> str:
    """Return the local name of an agent in the trace of a letter from `source`."""
    party = check_party(name, "trace")
    if AT not in party:
        return at_system(party, source)
    return agent_of(party) if core_peers.is_ours(core, system_of(party)) else party


def _with_thread(core: Core, message: Message, arrival: Envelope) -> Message:
    """Return the letter with its thread.

    It joins the thread of the letter it answers, if its sender knows that letter; else the thread it names, unless
    that is a thread of others here.
    """
    parent = None if message.in_reply_to is None else _known(core, message, arrival, message.in_reply_to)
    if parent is not None:
        return replace(
            message,
            thread_id=parent.thread,
            thread_tag=message.thread_tag or parent.thread_tag,
            conversation_id=message.conversation_id or parent.conversation_id,
        )
    root = arrival.message.thread_id
    # Else a peer that guesses an id could write into a thread of others.
    if root is None or (core.store.get([root]) and _known(core, message, arrival, root) is None):
        return message
    return replace(message, thread_id=check_id(root, "thread_id"))


def _known(core: Core, message: Message, arrival: Envelope, id: str) -> Message | None:
    """Return the letter of this id if the sender of `message` wrote or received it; None otherwise.

    For an automatic notice: if one of its readers wrote it.
    """
    found = find_letter(core, id)
    if found is None:
        return None
    if message.is_automatic:
        is_theirs = any(same_name(found.sender, target.agent) for target in arrival.targets)
    else:
        is_theirs = found.sender == message.sender or outbox.was_sent_to(core, id, message.sender)
    return found if is_theirs else None


def _resident(core: Core, peer: Peer, source: str, scope: str, name: str) -> str:
    """Return the mailbox of a local agent, if this peer may write to it from this scope of that system."""
    spelt = spelling_of(core.store, meant(check_agent(name, "to"), core.limits.human))
    if spelt is None or not is_known(core.store, spelt):
        raise UnknownAgent(f"nobody here is called {name!r}", field="to")
    card = find_value(core, CARD, spelt, Card)
    if card is not None and not _is_there(core, spelt):
        raise UnknownAgent(f"{name!r} has left this room", field="to")
    card = card or Card(id=spelt, registered_at=core.now().wall)
    if not trust.is_reachable(peer, card, source, scope):
        raise NotAllowed(f"{name!r} takes no mail from {peer.system!r}", field="to")
    return spelt


def _visible_agents(core: Core, peer: Peer, source: str, scope: str, within: str) -> list[str]:
    """Return the agents that this peer sees and may write to from this scope; of one of our scopes (`within`)."""
    names = [
        name
        for name, card in values_of(core, CARD, Card).items()
        if AT not in name and trust.is_shown(peer, card) and (not within or within in card.scopes)
        if trust.is_reachable(peer, card, source, scope) and _is_there(core, name)
    ]
    if not names:
        raise UnknownAgent("no agent here is visible to your system", field="to")
    return names


def _is_there(core: Core, name: str) -> bool:
    """Return whether an agent counts as present: False if it left and did not come back in time.

    An agent that is only silent is present: its mail waits for it.
    """
    presence = agents.registered_agent(core, name).presence
    return not presence.left or presence.warmth not in {Warmth.EXPIRED, Warmth.GONE}


def _relayed_mailbox(core: Core, peer: Peer, arrival: Envelope, message: Message, target: Address) -> str:
    """Return the mailbox at a further system, if this peer may relay through this room."""
    peers = core_peers.all_peers(core)
    onward = None if target.system == ANYWHERE else outbox.peer_towards(core, peers, target.system)
    trust.check_relaying(peer, onward)
    if max(arrival.hops, len(arrival.path) - 1) + 1 >= core.limits.federation_hops:
        raise HopsSpent(f"the letter went through {arrival.hops} systems", field="hopCount")
    if target.system == ANYWHERE:
        route = outbox.route_of(core, target.agent, core.now().wall)
        if route is None and not outbox.searches_unknown(core):
            raise UnknownAgent(f"nobody here knows {target.agent!r}", field="to")
        if route is not None:
            target = replace(target, agent=route.name or target.agent, system=route.system)
    if any(same_name(target.system, passed) for passed in (*arrival.path, arrival.source, peer.system)):
        raise LoopDetected(
            f"the letter already passed through {target.system!r} and cannot go back there", field="to"
        )
    outbox.check_routes(core, peers, message, [format_address(target)])
    return outbox.spell_remote(core, format_address(target))
