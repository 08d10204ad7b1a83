"""Copying mail from one room into another, of whatever kind each is; repeatable, without loss and duplicates.

Letters keep their ids and keys, so a second run finds the letters of the first and only brings states up to date.
Each slice is one commit in the target room; after an interruption both rooms are whole, and the same copy again
goes on.

A delivery that exists in both rooms: the later state wins. Done is never undone. Dead yields only to a proof that
the letter was revived in the other room after that death. Of two open ones, the one further in its life wins. A
record: the card, template or allow list that was changed more often, the task that moved last, the escalation that
is answered. Nothing is deleted because it is missing in the other room. What waits for a person in the target
stays as it is, whatever another room says of it (G12).

Earlier versions could also move letters: the target holds a note that a letter came to stay (`MOVED_HERE`), and
the source has it as done and archived, with the reason `moved to …`. Later states of the source do not change such
a letter in the target. Copied back, it stays put away until it is settled over there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec.structs import replace

from ..errors import Conflict, IdTaken, Invalid, NotAllowed, StaleRevision, UnknownMessage
from ..model.agent import guard_from
from ..model.codec import convert, digest
from ..model.delivery import COPIED, MOVED_AWAY, OPEN, SETTLED, UNSENT, State
from ..model.names import AT, fold
from ..model.query import LetterQuery, Query
from ..model.record import (
    BEAT,
    CARD,
    CLOSED_ESCALATION,
    DUE,
    FORGOTTEN,
    FORMER,
    GUARD,
    MEMBER,
    MOVED_HERE,
    OPEN_ESCALATION,
    SPENT,
    TASKS,
    pair_key,
)
from ..model.report import Progress
from ..model.task import Escalation, TaskStatus
from ..model.values import Brief, check_progress
from ..store.protocol import Introduce, Move, Post, Put, Rename, record_keys, spelling_of, spelt, vouched
from .authorize import authorize
from .core import Core
from .deliveries import deliveries_of
from .portable import letters_of, record_kinds, without_old_lease
from .proof import people_names, room_id
from .verb import LOCAL, Verb, verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..errors import PostroomError
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.record import (
        Record,
    )
    from ..store.protocol import Posted, Write
    from .authorize import Principal


_LIFE = ("state", "attempts", "delivered_at", "acked_at", "dead_at", "due_at", "archived_at", "expires_at",
         "lease", "reason")  # fmt: skip
_TRIES = ("attempts", "reason", "due_at")


def agreed(ours: Delivery, theirs: Delivery) -> Delivery | None:
    """Return our delivery as it shall be; None if nothing changes."""
    after = _after(ours, theirs)
    if after is None or after == ours:
        return None
    return replace(after, revision=max(ours.revision + 1, theirs.revision))


def _after(ours: Delivery, theirs: Delivery) -> Delivery | None:
    is_here = AT not in ours.mailbox  # a delivery to another system is simply done, in both rooms
    if theirs.has_left and is_here:  # the room where it lies knows its state
        return None
    if ours.has_left and is_here:  # its outcome is reported; it was put away, not read
        return _as(replace(ours, read_at=None), theirs) if theirs.state in SETTLED else None
    if ours.state is State.DONE:
        archived = theirs.archived_at if theirs.state is State.DONE else None
        return replace(ours, archived_at=ours.archived_at or archived)
    if theirs.state is State.DONE:
        return _as(ours, theirs)
    return _not_done(ours, theirs)


def _not_done(ours: Delivery, theirs: Delivery) -> Delivery:
    if ours.state is State.DEAD:
        return _as(ours, theirs) if theirs.state in OPEN and _is_revived(theirs, ours) else ours
    if theirs.state is State.DEAD:
        return ours if _is_revived(ours, theirs) else _as(ours, theirs)
    return _further(ours, theirs)


def _is_revived(alive: Delivery, dead: Delivery) -> bool:
    """Return whether `alive` is `dead` after a revival: that death is part of its history."""
    if dead.reason == UNSENT:
        return False
    if dead.expires_at is not None and alive.expires_at is None:  # only a revival takes an expiry away
        return True
    return bool(dead.history) and alive.history[: len(dead.history)] == dead.history


def _further(ours: Delivery, theirs: Delivery) -> Delivery:
    """Return the further one of two open deliveries."""
    here, there = OPEN.index(ours.state), OPEN.index(theirs.state)
    if there > here:
        return _as(ours, theirs)
    if there < here:
        return ours
    after = replace(ours, read_at=ours.read_at or theirs.read_at)
    if ours.state is State.CLAIMED:
        return _renewed(after, theirs)
    if theirs.attempts > ours.attempts:
        return replace(after, history=theirs.history, **_taken(theirs, _TRIES))
    return after


def _renewed(ours: Delivery, theirs: Delivery) -> Delivery:
    """Return our delivery with the later lease, if both have the same holder."""
    if ours.lease is None or theirs.lease is None or ours.lease.token != theirs.lease.token:
        return ours
    return replace(ours, lease=max(ours.lease, theirs.lease, key=lambda lease: lease.until))


def _as(ours: Delivery, theirs: Delivery) -> Delivery:
    longer = max(ours.history, theirs.history, key=len)
    return replace(ours, read_at=theirs.read_at or ours.read_at, history=longer, **_taken(theirs, _LIFE))


def _taken(delivery: Delivery, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(delivery, name) for name in names}


# -- one run of a copy

WithDeliveries: TypeAlias = "tuple[Message, list[Delivery]]"
SLICE = 100  # letters in one commit: others wait for it, and in folders each is synced
_FOR_PERSON = "it waits for a person, who settles it in this room"
TRIES = 5  # for a letter that somebody else moves at the same time
STAYS = frozenset({BEAT, MOVED_HERE})  # kinds of records that are true of their own room alone


class Refusal(Brief, frozen=True):
    """A letter, name or record that could not be copied. It stays where it is."""

    what: str  # a letter's id, or the name of a mailbox or record
    why: str


class Copied(Brief, frozen=True, kw_only=True):
    """The counts of one run of a copy."""

    letters: int = 0  # new letters in the target
    states: int = 0  # deliveries that were brought up to date
    names: int = 0
    records: int = 0
    refused: tuple[Refusal, ...] = ()

    @property
    def did_something(self) -> bool:
        return bool(self.letters or self.states or self.names or self.records or self.refused)


@verb("copy", Copied, action="import", slow=True, local=True)
class Copy(Verb, kw_only=True):
    """Copy everything that another room has and this one does not have yet."""

    source: Annotated[Core, "the other room"]
    progress: Annotated[Progress | None, LOCAL] = None

    def run(self, core: Core, principal: Principal) -> Copied:
        authorize(principal, "export")  # of the other room
        return _Run(self.source, core).run(check_progress(self.progress))


class _Run:
    """One run of a copy."""

    def __init__(self, source: Core, target: Core) -> None:
        self._source, self._target = source.store, target.store
        self._kinds = record_kinds(source)
        self._people, self._has_keys = people_names(target), bool(room_id(target))
        self._boot = source.now().boot
        self._came = set(record_keys(self._target, MOVED_HERE))
        self._stayed = set(record_keys(self._source, MOVED_HERE))
        self._counts = dict.fromkeys(("letters", "states", "names", "records"), 0)
        self._refused: list[Refusal] = []

    def run(self, tell: Progress) -> Copied:
        self._counts["records"] = self._carry_records()
        self._counts["names"] = self._names()
        total, done = self._source.count(LetterQuery(), by="all"), 0
        for letters in letters_of(self._source, SLICE):
            self._carry(
                [
                    (
                        vouched(self._target, replace(message, proof=None)),
                        [without_old_lease(one, self._boot) for one in held],
                    )
                    for message, held in letters
                ]
            )
            done += len(letters)
            tell(min(done, total), total)
        return Copied(**self._counts, refused=tuple(self._refused))

    def _refuse(self, what: str, why: PostroomError) -> None:
        self._refused.append(Refusal(what, str(why)))

    def _commits(self, what: str, writes: Sequence[Write]) -> bool:
        """Commit writes to the target; if it refuses them, note that."""
        try:
            self._target.commit(writes)
        except (Conflict, Invalid) as refused:
            self._refuse(what, refused)
            return False
        return True

    def _names(self) -> int:
        """Make names known that the target does not have or does not know. A former name counts as its own."""
        there = {name.mailbox: name for name in self._target.names()}
        new = []
        for name in self._source.names():
            held = spelling_of(self._target, name.mailbox)
            if held is None or (name.known and not there[held].known):
                new.append(Introduce(name.mailbox, name.known))
        try:
            self._target.commit(new)
        except (Conflict, Invalid):
            new = [one for one in new if self._commits(one.mailbox, [one])]
        return len(new)

    # -- letters

    def _carry(self, letters: Sequence[WithDeliveries], tries: int = TRIES) -> None:
        """Copy letters in one commit or, on a conflict, one by one; try again what somebody moved meanwhile."""
        try:
            self._commit(letters)
        except (Conflict, Invalid, UnknownMessage) as refused:
            if len(letters) > 1:
                for letter in letters:
                    self._carry([letter])
            elif isinstance(refused, (StaleRevision, UnknownMessage)) and tries > 1:
                self._carry(letters, tries - 1)
            else:
                self._refuse(letters[0][0].id, refused)

    def _commit(self, letters: Sequence[WithDeliveries]) -> None:
        ids = [message.id for message, _ in letters]
        known, there = self._target.get(ids), deliveries_of(self._target, ids)
        writes: list[Write] = []
        for message, ours in letters:
            if message.id not in known:
                writes.append(Post(message=message, deliveries=tuple(ours)))
            elif not _is_same(known[message.id].message, message):
                raise IdTaken("another letter at that system has this id", field="id")
            else:
                writes += self._updates(ours, there[message.id])
        posted = self._target.commit(writes)
        self._counts["letters"] += sum(not one.repeated for one in posted)
        self._counts["states"] += sum(isinstance(write, Move) for write in writes)
        self._repeats([write for write in writes if isinstance(write, Post)], posted)

    def _repeats(self, posts: Sequence[Post], posted: Sequence[Posted]) -> None:
        """Update the states of letters that the target has under another id, by their key."""
        for post, outcome in zip(posts, posted, strict=True):
            if outcome.repeated:
                found = self._target.find(Query(message_ids=(outcome.message_id,)))
                updates = self._updates(list(post.deliveries), [each.delivery for each in found])
                self._target.commit(updates)
                self._counts["states"] += len(updates)

    def _updates(self, ours: Sequence[Delivery], theirs: Sequence[Delivery]) -> list[Write]:
        """Return the writes that bring deliveries up to date, except those that were moved to the target."""
        by_name = {delivery.mailbox: delivery for delivery in theirs}
        writes: list[Write] = []
        for delivery in ours:
            at = pair_key(delivery.message_id, delivery.mailbox)
            before = by_name.get(spelt(self._target, delivery.mailbox))
            if before is None or at in self._came:
                continue
            if at in self._stayed and before.state is State.DONE:  # it came here from there: it is not done
                before = replace(before, reason=before.reason if before.has_left else MOVED_AWAY)
            after = agreed(before, delivery)
            is_settled = after is not None and before.state in OPEN and after.state is not before.state
            if is_settled and fold(before.mailbox) in self._people:
                self._refuse(before.message_id, NotAllowed(_FOR_PERSON))
            elif after is not None:
                writes.append(Move(before, after, COPIED))
        return writes

    # -- records

    def _carry_records(self) -> int:
        """Copy records that are new or later, and return how many."""
        self._alias()
        count = 0
        for kind in self._kinds:
            if kind in STAYS:
                continue
            held = {record.key: record for record in self._target.records(kind)}
            for record in self._source.records(kind):
                writes = self._record_writes(record, held.get(record.key))
                count += bool(writes) and self._commits(f"{record.kind} {record.key}", writes)
        return count

    def _alias(self) -> None:
        """Make former names of renamed agents aliases in the target, before mail comes under the new names."""
        for record in self._source.records(GUARD):
            new, held = guard_from(record.value).moved_to, spelling_of(self._target, record.key)
            is_persons = fold(record.key) in self._people
            if new is not None and (is_persons or (held not in {None, new} and fold(new) in self._people)):
                self._refuse(f"{record.kind} {record.key}", NotAllowed(_FOR_PERSON))
                continue
            if new is None or held == new or (held != record.key and fold(held or "") == fold(new)):
                continue
            cards = self._target.records(CARD, record.key)
            members = [MEMBER + scope for card in cards for scope in card.value.get("scopes", ())]
            stale = [*cards, *(each for kind in members for each in self._target.records(kind, record.key))]
            self._commits(record.key, [Rename(record.key, new), *_removals(stale)])

    def _record_writes(self, record: Record, held: Record | None) -> list[Write]:
        is_known = held is not None and (held.value == record.value or not _is_later(record, held))
        if is_known or not self._may_come(record):
            return []
        if self._waits_for_person(record, held):
            self._refuse(f"{record.kind} {record.key}", NotAllowed(_FOR_PERSON))
            return []
        put = replace(record, revision=0 if held is None else held.revision)
        return [Put(record=put, first=max(record.revision, 1)), *self._with(record)]

    def _may_come(self, record: Record) -> bool:
        if record.kind == GUARD:
            new = guard_from(record.value).moved_to
            return new is None or fold(spelling_of(self._target, record.key) or "") == fold(new)
        if record.kind == FORMER:  # else anybody could become the former sender of another's letters
            return all(fold(spelling_of(self._target, name) or "") == fold(record.key) for name in record.value)
        if record.kind == OPEN_ESCALATION:
            return not self._target.records(CLOSED_ESCALATION, record.key)
        if record.kind in {FORGOTTEN, SPENT}:
            return not self._target.get([record.value["id"]])
        if record.kind == DUE:
            found = self._target.records(TASKS + record.value["giver"], record.key)
            return not any(convert(task.value, TaskStatus).is_final for task in found)
        return True

    def _waits_for_person(self, record: Record, held: Record | None) -> bool:
        """Return whether a record is about something in the target that only a person settles there."""
        named: tuple[str, ...] = ()
        if record.kind in {GUARD, CARD} and (held is not None or self._has_keys):
            named = (record.key,)
        elif record.kind.startswith(TASKS) and held is not None:
            task = convert(held.value, TaskStatus)
            named = () if task.is_final else (task.giver, task.receiver)
        elif record.kind in {OPEN_ESCALATION, CLOSED_ESCALATION}:
            waiting = self._target.records(OPEN_ESCALATION, record.key)
            named = convert(waiting[0].value, Escalation).rungs if waiting else ()
        return any(fold(name) in self._people for name in named)

    def _with(self, record: Record) -> Iterator[Write]:
        """Return what else changes in the target with this record."""
        if record.kind == CLOSED_ESCALATION:
            yield from _removals(self._target.records(OPEN_ESCALATION, record.key))
        elif record.kind.startswith(TASKS) and convert(record.value, TaskStatus).is_final:
            yield from _removals(self._target.records(DUE, record.key))
        elif record.kind == CARD:
            for former in self._target.records(CARD, record.key):
                for scope in set(former.value.get("scopes", ())) - set(record.value.get("scopes", ())):
                    yield from _removals(self._target.records(MEMBER + scope, record.key))


def _is_same(one: Message, other: Message) -> bool:
    """Compare two letters without their recipients: a room of files may have lost former names of them."""
    return digest(replace(one, recipients=())) == digest(replace(other, recipients=()))


def _removals(records: Iterable[Record]) -> Iterator[Put]:
    for record in records:
        yield Put(record=replace(record, value=None))


def _is_later(theirs: Record, ours: Record) -> bool:
    if theirs.kind.startswith(TASKS):
        return convert(theirs.value, TaskStatus).moved_at > convert(ours.value, TaskStatus).moved_at
    return theirs.revision > ours.revision
