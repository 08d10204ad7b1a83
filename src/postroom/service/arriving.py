"""Mail from other systems: whether it is taken, for whom, and how a letter that comes twice is known again.

A letter keeps its id where that is free. Where it is another letter's, and for a further recipient of a letter
that is here already, a copy is written under an id of ours and a key that tells it from all others. Nothing that
comes from outside makes a mailbox.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from .. import service
from ..errors import Damaged, IdTaken, PostroomError, QuotaFull, Refused, StoreBusy, StoreFailing
from ..model.address import Address, agent_of, system_of
from ..model.codec import digest
from ..model.delivery import open_delivery
from ..model.hashing import blake2b
from ..model.message import CAME, Message, Recipient, same_name
from ..model.names import AT, fold
from ..model.query import Query
from ..model.record import FORGOTTEN, SPENT, spent_key
from ..policy.trust import speaks_for
from ..store.base import Post, check_space
from .compose import seal
from .pace import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import RecipientKind
    from ..model.peer import Peer
    from ..store.base import Letter, Write
    from .office import Office

_LONGEST_KEY = 200
_OF_ITS_WAY: dict[str, Any] = {
    "recipients": (), "hops": 0, "trace": (), "thread_id": None, "thread_tag": None, "conversation_id": None,
}  # fmt: skip


class Arrival(Struct, frozen=True, kw_only=True):
    """A letter as another system brings it."""

    message: Message  # its sender is `agent@system`
    targets: tuple[Address, ...]  # whom it is for
    source: str  # the system where it was written
    path: tuple[str, ...] = ()  # the systems it went through
    hops: int = 0  # how many those are


class Verdict(Struct, frozen=True):
    """What became of it for one of its targets."""

    target: Address
    problem: PostroomError | None = None  # None: it is stored, or was before


def accept(office: Office, peer: Peer, arrival: Arrival) -> list[Verdict]:
    """Take a letter in, for all of its targets that may have it. Durable when this returns.

    `sender_rate` does not hold here: the letter was accepted elsewhere, by a service that has a rate for its own
    agents, and the peer is one that the operator allowed. To refuse it for now would only move the queue into the
    peer's outbox and slow down a link behind one busy sender. What a peer can fill is bounded by the quotas.
    """
    now = office.now().wall
    arrival = service.admitting.recognized(office, peer, arrival)
    try:
        message = service.admitting.checked(office, peer, arrival, now, Batch())
        verdicts = _Intake(office, peer, arrival, message, now, _Seen()).taken()
    except (StoreBusy, StoreFailing, Damaged):
        raise
    except PostroomError as refused:
        verdicts = [Verdict(target, refused) for target in arrival.targets]
    if all(verdict.problem is None for verdict in verdicts) or not speaks_for(peer, arrival.source):
        return verdicts
    return [Verdict(one.target) if _is_kept(office, arrival, one.target) else one for one in verdicts]


def accept_together(office: Office, peer: Peer, arrivals: Sequence[Arrival]) -> bool:
    """Take several letters in by one commit, if they have nothing to do with each other and all their targets may
    have them. False: nothing was done. Durable when this returns.
    """
    now, seen, batch = office.now().wall, _Seen(), Batch()

    def plan() -> Sequence[Write]:
        seen.look(office, [arrival.message.id for arrival in arrivals])
        return [write for intake in intakes for write in intake.unless_refused()]

    try:
        known = [service.admitting.recognized(office, peer, arrival) for arrival in arrivals]
        letters = [service.admitting.checked(office, peer, arrival, now, batch) for arrival in known]
        if not _are_strangers(letters):  # as they are here: their thread may be another than they say
            return False
        intakes = [_Intake(office, peer, *one, now, seen) for one in zip(known, letters, strict=True)]
        office.store.commit(plan)
    except (StoreBusy, StoreFailing, Damaged):
        raise
    except PostroomError:
        return False
    return True


def _are_strangers(letters: Sequence[Message]) -> bool:
    """Does none of them answer another, or belong to the same thread, or to a task? What follows a letter is
    looked at when that is written.
    """
    names = [name for one in letters for name in {one.id, one.in_reply_to or one.id, one.thread}]
    return len(names) == len({*names}) and all(one.task is None for one in letters)


class _Seen:
    """What was found in the room, for letters that are looked at with nobody in between."""

    def __init__(self) -> None:
        self.letters: dict[str, Letter] = {}  # that are here already
        self.mailboxes: dict[tuple[str, str, Address], list[str]] = {}  # by source and scope: those of a target
        self.open: set[str] = set()  # mailboxes without a guard

    def look(self, office: Office, ids: Sequence[str]) -> None:
        """Begin anew."""
        self.letters = office.store.get(ids)
        self.mailboxes.clear()
        self.open.clear()


def _is_kept(office: Office, arrival: Arrival, target: Address) -> bool:
    """Was it taken before, whatever was agreed since? Whoever did not hear of it would take it for refused: its
    sender would be told so, or another system be given it.
    """
    id, store = arrival.message.id, office.store
    mailbox = service.admitting.named(office, target) if target.agent else None
    if mailbox is None or target.scope:  # in another scope it is another's letter, in the same mailbox
        return False
    sender, key = arrival.message.sender, _key(arrival, id, mailbox)
    if store.sent(sender, key) or store.records(SPENT, spent_key(sender, key)):
        return True
    held, memory = store.get([id]).get(id), store.records(FORGOTTEN, id)
    came: Any = held.message.extra.get(CAME) if held else memory[0].value.get(CAME) if memory else None
    if not isinstance(came, dict) or not same_name(str(came.get("source")), arrival.source):
        return False
    return came.get("says") == _said(arrival.message) and any(same_name(mailbox, name) for name in came["to"])


class _Intake:
    """One letter on its way in."""

    def __init__(
        self, office: Office, peer: Peer, arrival: Arrival, message: Message, now: datetime, seen: _Seen
    ) -> None:
        self._office, self._peer, self._arrival = office, peer, arrival
        self._message, self._now, self._seen = message, now, seen
        self._says = _said(arrival.message)
        self._counts = False  # must each inbox be asked whether it is full?
        self._with_space: set[str] = set()  # mailboxes that were asked, and are not full
        self._per_system: Counter[str] = Counter()  # how many of these are at another system, by its folded name
        self._verdicts: dict[int, PostroomError | None] = {}

    def taken(self) -> list[Verdict]:
        try:
            self._office.store.commit(self._plan)
        except QuotaFull:  # of one of them: look who
            self._counts = True
            self._office.store.commit(self._plan)
        return [Verdict(target, self._verdicts[i]) for i, target in enumerate(self._arrival.targets)]

    def _plan(self) -> Sequence[Write]:
        """Look and write with nobody in between, so that a letter that comes twice at once is written once."""
        self._seen.look(self._office, [self._message.id])
        return self._writes()

    def unless_refused(self) -> Sequence[Write]:
        """What is to be written, if all of its targets may have it. Part of a plan."""
        writes = self._writes()
        for refused in self._verdicts.values():
            if refused is not None:
                raise refused
        return writes

    def _writes(self) -> Sequence[Write]:
        self._verdicts.clear()
        self._with_space.clear()
        self._per_system.clear()
        wanted: dict[str, None] = {}
        for i, target in enumerate(self._arrival.targets):
            try:
                wanted.update(dict.fromkeys(self._mailboxes(target)))
                self._verdicts[i] = None
            except (StoreBusy, StoreFailing, Damaged):
                raise
            except PostroomError as refused:
                self._verdicts[i] = refused
        writes: Sequence[Write] = self._posts([*wanted])
        has_task = writes and self._message.task is not None
        return service.taskbook.entered(self._office, writes) if has_task else writes

    def _mailboxes(self, target: Address) -> list[str]:
        """Where the letter goes for one target; a refusal of all means that the target is refused."""
        key = (self._arrival.source, self._message.scope, target)
        names = self._seen.mailboxes.get(key)
        if names is None:
            names = service.admitting.mailboxes(self._office, self._peer, self._arrival, self._message, target)
            if not any(AT in name for name in names):  # on the way further each letter is asked for itself
                self._seen.mailboxes[key] = names
        open_to, refusal = [], None
        for name in names:
            try:
                self._check_door(name)
                open_to.append(name)
            except (QuotaFull, Refused) as refused:
                refusal = refused
        if not open_to and refusal is not None:
            raise refusal
        return open_to

    def _check_door(self, mailbox: str) -> None:
        is_open = AT in mailbox or mailbox in self._seen.open
        if not is_open and service.addressing.is_open_to(self._office, self._message, mailbox):
            self._seen.open.add(mailbox)
        if self._counts and mailbox not in self._with_space and not self._was_taken(mailbox):
            self._check_space(mailbox)
            self._with_space.add(mailbox)

    def _check_space(self, mailbox: str) -> None:
        limits, sender, system = self._office.limits, self._message.sender, fold(system_of(mailbox))
        limit = limits.outbox_max_letters if system else limits.inbox_quota
        waiting = self._office.store.waiting(mailbox, sender)
        check_space(sender, mailbox, waiting, limit, 1 + self._per_system[system])
        if system:
            self._per_system[system] += 1

    # -- what is here already

    def _posts(self, mailboxes: Sequence[str]) -> list[Post]:
        store, id = self._office.store, self._message.id
        held, memory = self._seen.letters.get(id), store.records(FORGOTTEN, id)
        if held is None and not memory:
            return [self._post(self._message, mailboxes)] if mailboxes else []
        came: Any = held.message.extra.get(CAME) if held else memory[0].value.get(CAME)
        if self._is_ours(came):
            have = {found.delivery.mailbox for found in store.find(Query(message_ids=(id,)))} | {*came["to"]}
            mailboxes = [name for name in mailboxes if name not in have]
        return [copy for name in mailboxes if (copy := self._copy(name)) is not None]

    def _is_ours(self, came: Any) -> bool:
        """Is what is here under this id the very letter that comes now?"""
        if not isinstance(came, dict) or not same_name(str(came.get("source")), self._arrival.source):
            return False
        if came.get("says") != self._says:
            raise IdTaken(f"{self._arrival.source!r} sent another letter with this id", field="id")
        return True

    def _was_taken(self, mailbox: str) -> bool:
        """Has this mailbox the letter, under its own id or as a copy?"""
        at = Query(mailbox=mailbox, message_ids=(self._message.id,))
        return bool(self._office.store.find(at)) or self._copy(mailbox) is None

    def _copy(self, mailbox: str) -> Post | None:
        """The letter under an id of ours; None if that is here, or was."""
        sender, key = self._message.sender, _key(self._arrival, self._message.id, mailbox)
        if self._office.store.sent(sender, key) or self._office.store.records(SPENT, spent_key(sender, key)):
            return None
        return self._post(replace(self._message, id=self._office.new_id(agent_of(sender)), key=key), [mailbox])

    # -- what is written

    def _post(self, message: Message, mailboxes: Sequence[str]) -> Post:
        kinds = {recipient.address: recipient.kind for recipient in message.recipients}
        missing = tuple(Recipient(name) for name in mailboxes if name not in kinds)
        if len(mailboxes) == len(missing) and any(not target.agent for target in self._arrival.targets):
            missing = ()  # a letter to everybody names nobody
        came = {
            "source": self._arrival.source,
            "id": self._message.id,
            "path": [*self._arrival.path],
            "hops": self._arrival.hops,
            "says": self._says,
            "to": [*mailboxes],
            "at": self._now.isoformat(),
        }
        message = replace(message, recipients=(*message.recipients, *missing), extra=message.extra | {CAME: came})
        return Post(
            message=message,
            encoded=seal(message, self._office.limits),
            deliveries=tuple(self._delivery(message, name) for name in mailboxes),
            quota=self._office.limits.inbox_quota,
            outbox=self._office.limits.outbox_max_letters,
        )

    def _delivery(self, message: Message, mailbox: str) -> Delivery:
        kind: RecipientKind = next((r.kind for r in message.recipients if r.address == mailbox), "to")
        return open_delivery(message, mailbox, kind, self._now)


def _said(message: Message) -> str:
    """What a letter says, whichever way it came and whoever else it is for. A system that passed it on may
    allow fewer hops, and know the thread.
    """
    extra = {name: value for name, value in message.extra.items() if name != CAME}
    return digest(replace(message, extra=extra, **_OF_ITS_WAY))


def _key(arrival: Arrival, id: str, mailbox: str) -> str:
    key = f"fed:{fold(arrival.source)}:{id}:{mailbox}"
    return key if len(key) <= _LONGEST_KEY else f"fed:{blake2b(key.encode(), digest_size=16).hexdigest()}"
