"""Copying mail from one room into another, of whatever kind each is; repeatable, without loss and duplicates.

Letters keep their ids and keys, so a second run finds the letters of the first and only brings states up to date.
Each slice is one commit in the target room; after an interruption both rooms are whole, and the same copy again
goes on.

A delivery that exists in both rooms: the later state wins. Done is never undone. Dead yields only to a proof that
the letter was revived in the other room after that death. Of two open ones, the one further in its life wins. A
record: the card, template or allow list that was changed more often, the task that moved last, the escalation that
is answered. Nothing is deleted because it is missing in the other room.

A move is a copy after which the letter is worked on only in the target. First it is claimed at the source
(`Fence`), so that no worker takes it meanwhile; then it is copied, with a note at the target that it came to stay;
when that is on stable storage, it is done and archived at the source. A letter that a worker holds is copied with
its lease and left to its holder.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, IdTaken, Invalid, Missing, Resync, StaleRevision, UnknownMessage
from ..model import delivery as model_delivery
from ..model.agent import NO_GUARD, guard_from
from ..model.codec import convert, digest
from ..model.delivery import COPIED, OPEN, SETTLED, UNSENT, Delivery, Lease, State
from ..model.names import AT, fold
from ..model.query import LetterQuery, Query
from ..model.record import (
    BEAT,
    CARD,
    CLOSED_ESCALATION,
    COPIED_UP_TO,
    DUE,
    FORGOTTEN,
    GUARD,
    MEMBER,
    MOVED_HERE,
    OPEN_ESCALATION,
    SPENT,
    TASKS,
    Cursor,
    Record,
    moved_key,
)
from ..model.task import Standing
from ..policy import retry
from ..store.protocol import Introduce, Move, Post, Put, Rename, vouched
from . import rename
from .authorize import OWNER, authorize
from .deliveries import is_process_gone
from .portable import record_kinds
from .validation import check_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..errors import PostroomError
    from ..model.message import Message
    from ..model.report import Progress
    from ..store.protocol import Letter, Posted, Store, Write
    from .authorize import Principal
    from .core import Core


_LIFE = ("state", "attempts", "delivered_at", "acked_at", "dead_at", "due_at", "archived_at", "expires_at",
         "lease", "reason")  # fmt: skip
_TRIES = ("attempts", "reason", "due_at")


def agreed(ours: Delivery, theirs: Delivery, *, stays: bool) -> Delivery | None:
    """Return our delivery as it shall be; None if nothing changes. `stays`: it is moved here, not only copied."""
    after = _after(ours, theirs, stays=stays)
    if after is None or after == ours:
        return None
    return replace(after, revision=max(ours.revision + 1, theirs.revision))


def _after(ours: Delivery, theirs: Delivery, *, stays: bool) -> Delivery | None:
    is_here = AT not in ours.mailbox  # a delivery to another system is simply done, in both rooms
    if theirs.has_left and is_here:  # the room where it lies knows its state
        return None
    if ours.has_left and is_here:  # it comes back, or its outcome is reported
        unseen = replace(ours, read_at=None)  # it was put away, not read
        return _as(unseen, theirs) if stays or theirs.state in SETTLED else None
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
    read_at = theirs.read_at or ours.read_at
    return replace(ours, read_at=read_at, history=longer, **_taken(theirs, _LIFE))


def _taken(delivery: Delivery, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(delivery, name) for name in names}


# -- one run of a copy

SLICE = 100  # letters in one commit: others wait for it, and in folders each is synced
PACE = 0.2  # seconds between two looks at a room that is followed
TRIES = 5  # for a letter that somebody else moves at the same time


class Refusal(Struct, frozen=True):
    """A letter, name or record that could not be copied. It stays where it is."""

    what: str  # a letter's id, or the name of a mailbox or record
    why: str


class Copied(Struct, frozen=True, kw_only=True):
    """The counts of one run of a copy."""

    letters: int = 0  # new letters in the target
    states: int = 0  # deliveries that were brought up to date
    names: int = 0
    records: int = 0
    moved: int = 0  # deliveries that are done at the source, because they go on in the target
    held: int = 0  # deliveries that were not moved, because a worker holds them
    refused: tuple[Refusal, ...] = ()

    @property
    def did_something(self) -> bool:
        return bool(self.letters or self.states or self.names or self.records or self.moved or self.refused)


def copy_room(
    source: Core,
    target: Core,
    caller: Principal,
    *,
    move: bool = False,
    places: tuple[str, str] = ("", ""),
    progress: Progress | None = None,
) -> Copied:
    """Copy everything that `target` does not have yet. `places`: both addresses; moved letters name the second."""
    authorize(caller, "export")
    authorize(caller, "import")
    return _Run(source, target, move=move, places=places).run(check_progress(progress))


def follow(
    source: Core,
    target: Core,
    caller: Principal,
    *,
    move: bool = False,
    places: tuple[str, str] = ("", ""),
    progress: Progress | None = None,
) -> Iterator[Copied]:
    """Copy, then copy each change, for as long as the caller iterates. Yields after a run that did something."""
    first = True
    while True:
        seen = source.store.cursor()
        done = copy_room(source, target, caller, move=move, places=places, progress=progress)
        if first or done.did_something:
            yield done
        first = False
        while source.store.cursor() == seen:
            time.sleep(PACE)


class _Run:
    """One run of a copy."""

    def __init__(self, source: Core, target: Core, *, move: bool, places: tuple[str, str]) -> None:
        self._source, self._target, self._move = source.store, target.store, move
        self._records = RecordCopy(source, target)
        self._fence = Fence(source)
        self._moment = source.now()
        self._began = self._source.cursor()  # changes from now on are seen by the next run
        self._origin, self._room = places[0], places[1] or self._target.cursor().store
        self._came = set(self._target.keys(MOVED_HERE))
        self._stayed = set(self._source.keys(MOVED_HERE))
        self._counts = dict.fromkeys(("letters", "states", "names", "records", "moved"), 0)
        self._refused: list[Refusal] = []

    def run(self, tell: Progress) -> Copied:
        since = self._remembered()
        ids, kinds = (None, None) if since is None else self._changed(since)
        if kinds is None or kinds:
            self._counts["records"] = self._records.carry(kinds, self._refuse)
        self._counts["names"] = self._names()
        total = self._source.count_letters(LetterQuery()) if ids is None else len(ids)
        done = 0
        for letters in self._everything() if ids is None else self._some(ids):
            self._carry(letters)
            done += len(letters)
            tell(min(done, total), total)
        if self._move and not self._refused:
            self._records.end_duties()
        if not self._refused and not self._fence.held:
            self._remember()
        return Copied(**self._counts, held=self._fence.held, refused=tuple(self._refused))

    def _refuse(self, what: str, why: PostroomError) -> None:
        self._refused.append(Refusal(what, str(why)))

    # -- which letters and records to look at

    def _remembered(self) -> Cursor | None:
        """Return the cursor up to which the last run saw everything; None if that is not known any more."""
        found = self._target.records(COPIED_UP_TO, self._began.store)
        if not found or found[0].value["from"] != self._origin:  # a room made by copying files has the same id
            return None
        if self._move and not found[0].value["moved"]:
            return None
        since = Cursor.parse(found[0].value["cursor"])
        try:
            self._source.changes(since, 1)
        except Resync:
            return None
        return since

    def _remember(self) -> None:
        held = self._target.records(COPIED_UP_TO, self._began.store)
        value = {"cursor": str(self._began), "moved": self._move, "from": self._origin}
        if held and held[0].value == value:
            return
        record = Record(
            kind=COPIED_UP_TO, key=self._began.store, value=value, revision=held[0].revision if held else 0
        )
        try:
            self._target.commit([Put(record=record, durable=False)])
        except StaleRevision:  # another copy out of the same room has just ended
            return

    def _changed(self, since: Cursor) -> tuple[list[str], set[str]]:
        """Return the letters and the kinds of records that changed since."""
        ids: dict[str, None] = {}
        kinds: set[str] = set()
        while since.number < self._began.number:
            changes, since = self._source.changes(since, 1000)
            ids |= {c.message_id: None for c in changes if c.message_id is not None and c.what != "forgot"}
            kinds |= {change.kind for change in changes if change.kind is not None}
            if not changes:
                break
        return list(ids), kinds

    def _everything(self) -> Iterator[list[Letter]]:
        after = 0
        while letters := self._source.letters(LetterQuery(after=after, limit=SLICE)):
            yield letters
            after = letters[-1].number

    def _some(self, ids: list[str]) -> Iterator[list[Letter]]:
        for start in range(0, len(ids), SLICE):
            found = self._source.get(ids[start : start + SLICE])
            yield sorted(found.values(), key=lambda letter: letter.number)

    # -- names

    def _names(self) -> int:
        new = self._new_names()
        try:
            self._target.commit(new)
        except (Conflict, Invalid):
            new = [one for one in new if self._introduce(one)]
        return len(new)

    def _new_names(self) -> list[Introduce]:
        """Return the names that the target does not have or does not know. A former name counts as its own."""
        known, known_there = set(self._source.known()), set(self._target.known())
        there = {name: self._target.spelling(name) for name in self._source.mailboxes()}
        return [
            Introduce(name, name in known)
            for name, spelt in there.items()
            if spelt is None or (name in known and spelt not in known_there)
        ]

    def _introduce(self, name: Introduce) -> bool:
        try:
            self._target.commit([name])
        except (Conflict, Invalid) as refused:
            self._refuse(name.mailbox, refused)
            return False
        return True

    # -- letters

    def _carry(self, letters: Sequence[Letter]) -> None:
        held = deliveries_of(self._source, letters)
        fenced = self._fence.take(held) if self._move else {}
        try:
            held = self._fence.as_taken(held)
            here = {id: [_fit(each, self._moment.boot) for each in found] for id, found in held.items()}
            arrived = self._bring(letters, here, fenced)
            self._leave([after for at, after in fenced.items() if at[0] in arrived])
            fenced = {at: after for at, after in fenced.items() if at[0] not in arrived}
        finally:
            self._fence.release(fenced.values())

    def _bring(self, letters: Sequence[Letter], here: dict[str, list[Delivery]], fenced: Fenced) -> set[str]:
        """Copy letters in one commit, or, on a conflict, one by one; return the ids of the copied ones."""
        try:
            self._commit(letters, here, fenced)
        except (Conflict, Invalid, UnknownMessage):
            return {letter.message.id for letter in letters if self._bring_one(letter, here, fenced)}
        return {letter.message.id for letter in letters}

    def _bring_one(self, letter: Letter, here: dict[str, list[Delivery]], fenced: Fenced) -> bool:
        for left in reversed(range(TRIES)):
            try:
                self._commit([letter], here, fenced)
            except (StaleRevision, UnknownMessage) as lost:
                if not left:
                    self._refuse(letter.message.id, lost)
            except (Conflict, Invalid) as refused:
                self._refuse(letter.message.id, refused)
                return False
            else:
                return True
        return False

    def _commit(self, letters: Sequence[Letter], here: dict[str, list[Delivery]], fenced: Fenced) -> None:
        known = self._target.get([letter.message.id for letter in letters])
        there = deliveries_of(self._target, letters)
        writes: list[Write] = []
        for letter in letters:
            message, ours = vouched(self._target, letter.message), here[letter.message.id]
            if message.id in known:
                if not _is_same(known[message.id].message, message):
                    raise IdTaken("another letter has this id over there", field="id")
                writes += self._updates(ours, there[message.id])
            elif ours:
                writes.append(
                    Post(message=message, deliveries=tuple(replace(d, number=0, arrived=0) for d in ours))
                )
            writes += self._notes(ours, fenced)
        posted = self._target.commit(writes)
        self._counts["letters"] += sum(not one.repeated for one in posted)
        self._counts["states"] += sum(isinstance(write, Move) for write in writes)
        self._came |= {write.record.key for write in writes if isinstance(write, Put)}
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
            at = moved_key(delivery.message_id, delivery.mailbox)
            before = by_name.get(self._target.spelling(delivery.mailbox) or delivery.mailbox)
            if before is None or at in self._came:
                continue
            if at in self._stayed and before.state is State.DONE:  # it came here from there: it is not done
                before = replace(before, reason=before.reason if before.has_left else model_delivery.MOVED_AWAY)
            after = agreed(before, delivery, stays=self._move)
            if after is not None:
                writes.append(Move(before, after, COPIED))
        return writes

    # -- moving

    def _notes(self, ours: Sequence[Delivery], fenced: Fenced) -> list[Write]:
        """Return the notes that these deliveries were moved: later states of the source do not change them."""
        value = {"room": self._began.store, "at": self._moment.wall.isoformat()}
        keys = [
            moved_key(each.message_id, each.mailbox) for each in ours if (each.message_id, each.mailbox) in fenced
        ]
        return [Put(record=Record(kind=MOVED_HERE, key=key, value=value)) for key in keys if key not in self._came]

    def _leave(self, fenced: Sequence[Delivery]) -> None:
        """Finish the move at the source; the letters are safe in the target.

        A letter that a foreign program took at the source meanwhile was not moved after all: the next run copies
        its state.
        """
        lost = _keys(self._fence.leave(fenced, self._room))
        self._counts["moved"] += len(fenced) - len(lost)
        self._records.forget(MOVED_HERE, (_keys(fenced) - lost) & self._stayed)
        self._records.take_back(MOVED_HERE, lost)
        self._came -= lost


def _is_same(one: Message, other: Message) -> bool:
    """Compare two letters without their recipients: a room of files may have lost former names of them."""
    return digest(replace(one, recipients=())) == digest(replace(other, recipients=()))


def _keys(deliveries: Iterable[Delivery]) -> set[str]:
    return {moved_key(each.message_id, each.mailbox) for each in deliveries}


def _fit(delivery: Delivery, boot: str) -> Delivery:
    """Return the delivery for another room: without a copy's claim, and with an expired lease of another boot."""
    lease = delivery.lease
    if lease is not None and delivery.state is State.CLAIMED and lease.holder.startswith(HOLDER):
        return replace(delivery, state=State.UNREAD, lease=None)
    if lease is None or lease.boot == boot:
        return delivery
    return replace(delivery, lease=replace(lease, until=0.0))


# -- records

STAYS = frozenset({BEAT, MOVED_HERE})  # kinds that are true of their own room alone
DUTIES = (DUE, OPEN_ESCALATION)  # kinds that a janitor acts on
_SLICE = 500

Refuse: TypeAlias = "Callable[[str, PostroomError], None]"


class RecordCopy:
    """The copy of records from one room into another."""

    def __init__(self, source: Core, target: Core) -> None:
        self.core, self._other = source, target
        self._source, self._target = source.store, target.store

    def carry(self, kinds: set[str] | None, refuse: Refuse) -> int:
        """Copy records of these kinds (None: all) that are new or later, and return how many."""
        if kinds is None or GUARD in kinds:
            self._rename(refuse)
        count = 0
        for kind in record_kinds(self.core):
            if kind in STAYS or (kinds is not None and kind not in kinds):
                continue
            held = {record.key: record for record in self._target.records(kind)}
            for record in self._source.records(kind):
                writes = self._writes(record, held.get(record.key))
                count += bool(writes) and self._commit(record, writes, refuse)
        return count

    def _rename(self, refuse: Refuse) -> None:
        """Rename agents in the target that were renamed at the source, before mail comes under the new name."""
        for record in self._source.records(GUARD):
            new = guard_from(record.value).moved_to
            if new is not None and self._target.spelling(record.key) == record.key != new:
                try:
                    rename.rename(self._other, OWNER, record.key, new)
                except (Conflict, Invalid, Missing) as refused:
                    refuse(record.key, refused)

    def _commit(self, record: Record, writes: list[Write], refuse: Refuse) -> bool:
        try:
            self._target.commit(writes)
        except (Conflict, Invalid) as refused:
            refuse(f"{record.kind} {record.key}", refused)
            return False
        return True

    def _writes(self, record: Record, held: Record | None) -> list[Write]:
        if held is not None and (held.value == record.value or not _is_later(record, held)):
            return []
        if not self._may_come(record):
            return []
        put = replace(record, revision=0 if held is None else held.revision)
        first = max(record.revision, 1)
        return [*self._renamed(record), Put(record=put, first=first), *self._with(record)]

    def _may_come(self, record: Record) -> bool:
        if record.kind == OPEN_ESCALATION:
            return not self._target.records(CLOSED_ESCALATION, record.key)
        if record.kind in {FORGOTTEN, SPENT}:
            return not self._target.get([record.value["id"]])
        if record.kind == DUE:
            return not self._is_over(record)
        return True

    def _is_over(self, due: Record) -> bool:
        found = self._target.records(f"{TASKS}{due.value['giver']}", due.key)
        return bool(found) and convert(found[0].value, Standing).is_final

    def _renamed(self, record: Record) -> Iterator[Write]:
        """Return the write that makes the former name of a renamed agent an alias in the target."""
        guard = guard_from(record.value) if record.kind == GUARD else NO_GUARD
        if guard.moved_to is not None and fold(self._target.spelling(record.key) or "") != fold(guard.moved_to):
            yield Rename(record.key, guard.moved_to)

    def _with(self, record: Record) -> Iterator[Write]:
        """Return what else changes in the target with this record."""
        if record.kind == CLOSED_ESCALATION:
            yield from _removals(self._target.records(OPEN_ESCALATION, record.key))
        elif record.kind.startswith(TASKS) and convert(record.value, Standing).is_final:
            yield from _removals(self._target.records(DUE, record.key))
        elif record.kind == CARD:
            for former in self._target.records(CARD, record.key):
                for scope in set(former.value.get("scopes", ())) - set(record.value.get("scopes", ())):
                    yield from _removals(self._target.records(MEMBER + scope, record.key))

    def forget(self, kind: str, keys: Iterable[str]) -> None:
        """Delete records at the source."""
        _remove(self._source, kind, keys)

    def take_back(self, kind: str, keys: Iterable[str]) -> None:
        """Delete records at the target."""
        _remove(self._target, kind, keys)

    def end_duties(self) -> None:
        """Delete the duties of moved letters at the source: the janitor of the target has them now."""
        for kind in DUTIES:
            self.forget(kind, set(self._source.keys(kind)) & set(self._target.keys(kind)))


def _remove(store: Store, kind: str, keys: Iterable[str]) -> None:
    gone = [record for key in keys for record in store.records(kind, key)]
    for start in range(0, len(gone), _SLICE):
        store.commit(list(_removals(gone[start : start + _SLICE])))


def _removals(records: Iterable[Record]) -> Iterator[Put]:
    for record in records:
        yield Put(record=replace(record, value=None))


def _is_later(theirs: Record, ours: Record) -> bool:
    if theirs.kind.startswith(TASKS):
        return convert(theirs.value, Standing).moved_at > convert(ours.value, Standing).moved_at
    return theirs.revision > ours.revision


# -- the fence: claims on the letters that are being moved

HOLDER = "postroom copy"  # the holder of these claims
TIME = 120.0  # seconds for one slice; a copy that dies leaves its letters claimed for so long at most

Held: TypeAlias = dict[str, list[Delivery]]  # by letter
Fenced: TypeAlias = dict[tuple[str, str], Delivery]  # (letter, mailbox) -> as it is now, claimed by us


class Fence:
    """Claims on deliveries of one room while they are moved, slice by slice."""

    def __init__(self, core: Core) -> None:
        self.core, self._store = core, core.store
        self._lost: set[tuple[str, str]] = set()  # deliveries that others claimed first
        self.held = 0  # deliveries that are left to their holders

    def take(self, held: Held) -> Fenced:
        """Claim the deliveries that are to be moved, except those that a worker holds or takes at this moment.

        Scheduled mail needs no claim: it is not offered to anybody.
        """
        lease, fenced, claims = self._lease(), Fenced(), []
        for delivery in (each for found in held.values() for each in found if each.state in OPEN):
            if self._is_held(delivery):
                self.held += 1
            elif delivery.state is State.QUEUED:
                fenced[_at(delivery)] = delivery
            else:
                claimed = replace(delivery, state=State.CLAIMED, lease=lease, revision=delivery.revision + 1)
                fenced[_at(delivery)] = claimed
                claims.append(Move(delivery, claimed, "claim"))
        self._lost = {_at(each) for each in self._commit(claims)}
        self.held += len(self._lost)
        for at in self._lost:
            del fenced[at]
        return fenced

    def as_taken(self, held: Held) -> Held:
        """Return the deliveries with the claims of workers that were first; else the target would offer them."""
        if not self._lost:
            return held
        ids = tuple({id for id, _ in self._lost})
        now = {_at(found.delivery): found.delivery for found in self._store.find(Query(message_ids=ids))}
        return {
            id: [now.get(_at(each), each) if _at(each) in self._lost else each for each in found]
            for id, found in held.items()
        }

    def leave(self, fenced: Sequence[Delivery], room: str) -> list[Delivery]:
        """Mark the deliveries as moved; return those that a foreign program took in spite of the claim."""
        now = self.core.now().wall
        lost = self._commit([Move(each, model_delivery.move_away(each, now, room), COPIED) for each in fenced])
        self.held += len(lost)
        return lost

    def release(self, fenced: Iterable[Delivery]) -> None:
        claimed = [each for each in fenced if each.state is State.CLAIMED]
        self._commit([Move(each, model_delivery.release(each), "release") for each in claimed])

    def _lease(self) -> Lease:
        now = self.core.now()
        holder = f"{HOLDER} (process {os.getpid()})"
        return Lease(token=self.core.ids.token(), holder=holder, until=now.steady + TIME, boot=now.boot)

    def _is_held(self, delivery: Delivery) -> bool:
        lease = delivery.lease
        if delivery.state is not State.CLAIMED or lease is None:
            return False
        if retry.has_lapsed(lease, self.core.now()):
            return False
        return not (lease.holder.startswith(HOLDER) and is_process_gone(lease.holder))

    def _commit(self, steps: Sequence[Move]) -> list[Delivery]:
        """Commit in one go, else one by one; return the deliveries that another process moved first."""
        try:
            self._store.commit(steps)
        except (StaleRevision, UnknownMessage):
            if len(steps) == 1:
                return [steps[0].before]
            return [lost for step in steps for lost in self._commit([step])]
        return []


def deliveries_of(store: Store, letters: Sequence[Letter]) -> Held:
    held: Held = {letter.message.id: [] for letter in letters}
    for found in store.find(Query(message_ids=tuple(held), order="age")):
        held[found.message.id].append(found.delivery)
    return held


def _at(delivery: Delivery) -> tuple[str, str]:
    return delivery.message_id, delivery.mailbox
