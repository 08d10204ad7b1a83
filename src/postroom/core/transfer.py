"""One delivery in two rooms: what the one that is copied to makes of what the other says.

The later state wins. Done is never taken back. Dead yields only to a proof that somebody revived the letter in the
other room after that very death. Of two open ones, the one further in its life wins.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, IdTaken, Invalid, Missing, Resync, StaleRevision, UnknownMessage
from ..model import delivery as model_delivery
from ..model.agent import OPEN_DOOR, guard_from
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
from .deliveries import is_gone
from .portable import record_kinds
from .validation import progress_of

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
    """Ours as it shall be; None where it is right as it is. `stays`: it is moved to us, not only copied."""
    after = _after(ours, theirs, stays=stays)
    if after is None or after == ours:
        return None
    return replace(after, revision=max(ours.revision + 1, theirs.revision))


def _after(ours: Delivery, theirs: Delivery, *, stays: bool) -> Delivery | None:
    is_here = AT not in ours.mailbox  # what left for another system is simply done, in both rooms
    if theirs.has_left and is_here:  # what became of it is told by the room where it is
        return None
    if ours.has_left and is_here:  # it comes back, or what became of it is reported
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
    """Is this the other's life after that death? Its last failure, or its expiry, is part of this one's past."""
    if dead.reason == UNSENT:
        return False
    if dead.expires_at is not None and alive.expires_at is None:  # only a revival takes an expiry away
        return True
    return bool(dead.history) and alive.history[: len(dead.history)] == dead.history


def _further(ours: Delivery, theirs: Delivery) -> Delivery:
    """Of two that are open."""
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
    """The same holder, who may have asked for more time."""
    if ours.lease is None or theirs.lease is None or ours.lease.token != theirs.lease.token:
        return ours
    return replace(ours, lease=max(ours.lease, theirs.lease, key=lambda lease: lease.until))


def _as(ours: Delivery, theirs: Delivery) -> Delivery:
    longer = max(ours.history, theirs.history, key=len)
    read_at = theirs.read_at or ours.read_at
    return replace(ours, read_at=read_at, history=longer, **_taken(theirs, _LIFE))


def _taken(delivery: Delivery, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(delivery, name) for name in names}


# Mail from one room into another, of whatever kind each is; again and again, without loss and without doubles.
#
# Letters keep their ids and keys, so a second run finds what it brought before and only brings states up to date
# (`policy.agreeing` says how). Each slice is one commit in the room that is copied to; who interrupts us finds
# both
# rooms whole, and the same copy again goes on.
#
# A move is a copy after which nobody handles the letter here any more. First the letter is claimed, so that no
# worker takes it meanwhile (`transfer_fence`); then it is copied, and it is noted over there that it came to
# stay;
# when that is on stable storage, it is done and archived here. What somebody works on is copied with its lease
# and
# left to its holder.

SLICE = 100  # letters in one commit: others wait for it, and in folders each is synced
PACE = 0.2  # seconds between two looks at a room that is followed
TRIES = 5  # for a letter that somebody else moves at the same time


class Refusal(Struct, frozen=True):
    """What could not be copied. It stays where it is."""

    what: str  # a letter's id, or the name of a mailbox or record
    why: str


class Copied(Struct, frozen=True, kw_only=True):
    """What one run of a copy did."""

    letters: int = 0  # that are new over there
    states: int = 0  # deliveries that were brought up to date
    names: int = 0
    records: int = 0
    moved: int = 0  # deliveries that are done with here, because they go on over there
    held: int = 0  # that were not moved, because somebody works on them
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
    """Copy all that `target` does not know yet. `places` says where the two lie: moved letters bear the second."""
    authorize(caller, "export")
    authorize(caller, "import")
    return _Passage(source, target, move=move, places=places).run(progress_of(progress))


def follow(
    source: Core,
    target: Core,
    caller: Principal,
    *,
    move: bool = False,
    places: tuple[str, str] = ("", ""),
    progress: Progress | None = None,
) -> Iterator[Copied]:
    """Copy, then whatever comes, for as long as one asks. Yields after the first run, and when something came."""
    first = True
    while True:
        seen = source.store.cursor()
        done = copy_room(source, target, caller, move=move, places=places, progress=progress)
        if first or done.did_something:
            yield done
        first = False
        while source.store.cursor() == seen:
            time.sleep(PACE)


class _Passage:
    """One run."""

    def __init__(self, source: Core, target: Core, *, move: bool, places: tuple[str, str]) -> None:
        self._source, self._target, self._move = source.store, target.store, move
        self._papers = Papers(source, target)
        self._fence = Fence(source)
        self._moment = source.now()
        self._began = self._source.cursor()  # what happens from now on is seen by the next run
        self._origin, self._room = places[0], places[1] or self._target.cursor().store
        self._came = set(self._target.keys(MOVED_HERE))
        self._stayed = set(self._source.keys(MOVED_HERE))
        self._counts = dict.fromkeys(("letters", "states", "names", "records", "moved"), 0)
        self._refused: list[Refusal] = []

    def run(self, tell: Progress) -> Copied:
        since = self._remembered()
        ids, kinds = (None, None) if since is None else self._changed(since)
        if kinds is None or kinds:
            self._counts["records"] = self._papers.carry(kinds, self._refuse)
        self._counts["names"] = self._names()
        total = self._source.count_letters(LetterQuery()) if ids is None else len(ids)
        done = 0
        for letters in self._everything() if ids is None else self._some(ids):
            self._carry(letters)
            done += len(letters)
            tell(min(done, total), total)
        if self._move and not self._refused:
            self._papers.end_duties()
        if not self._refused and not self._fence.held:
            self._remember()
        return Copied(**self._counts, held=self._fence.held, refused=tuple(self._refused))

    def _refuse(self, what: str, why: PostroomError) -> None:
        self._refused.append(Refusal(what, str(why)))

    # -- what is to be looked at

    def _remembered(self) -> Cursor | None:
        """Up to where the last run saw everything, if that can still be told."""
        found = self._target.records(COPIED_UP_TO, self._began.store)
        if not found or found[0].value["from"] != self._origin:  # a twin, made by copying files, counts for itself
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
        """Letters, and kinds of records."""
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
        """Those that nobody has over there, or nobody has heard from. A former name is one, too."""
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
        """All at once; where something is in the way, one by one. Which of them are over there now?"""
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
        """Letters that are there under another id, by their key: only their states are new."""
        for post, outcome in zip(posts, posted, strict=True):
            if outcome.repeated:
                found = self._target.find(Query(message_ids=(outcome.message_id,)))
                updates = self._updates(list(post.deliveries), [each.delivery for each in found])
                self._target.commit(updates)
                self._counts["states"] += len(updates)

    def _updates(self, ours: Sequence[Delivery], theirs: Sequence[Delivery]) -> list[Write]:
        """What is known here and not over there. What was moved there has its life there."""
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
        """Over there: these came to stay. It protects them from what this room may say of them later."""
        value = {"room": self._began.store, "at": self._moment.wall.isoformat()}
        keys = [
            moved_key(each.message_id, each.mailbox) for each in ours if (each.message_id, each.mailbox) in fenced
        ]
        return [Put(record=Record(kind=MOVED_HERE, key=key, value=value)) for key in keys if key not in self._came]

    def _leave(self, fenced: Sequence[Delivery]) -> None:
        """They are safe over there. What a stranger took here meanwhile did not come to stay, after all: the next
        run tells over there what became of it.
        """
        lost = _keys(self._fence.leave(fenced, self._room))
        self._counts["moved"] += len(fenced) - len(lost)
        self._papers.forget(MOVED_HERE, (_keys(fenced) - lost) & self._stayed)
        self._papers.take_back(MOVED_HERE, lost)
        self._came -= lost


def _is_same(one: Message, other: Message) -> bool:
    """The same letter, whoever else got it: a room of files may have forgotten former names of its recipients."""
    return digest(replace(one, recipients=())) == digest(replace(other, recipients=()))


def _keys(deliveries: Iterable[Delivery]) -> set[str]:
    return {moved_key(each.message_id, each.mailbox) for each in deliveries}


def _fit(delivery: Delivery, boot: str) -> Delivery:
    """As it may be in another room: a lease of another boot is over, and one of a copy is none."""
    lease = delivery.lease
    if lease is not None and delivery.state is State.CLAIMED and lease.holder.startswith(HOLDER):
        return replace(delivery, state=State.UNREAD, lease=None)
    if lease is None or lease.boot == boot:
        return delivery
    return replace(delivery, lease=replace(lease, until=0.0))


# The records of a room on their way into another that may have its own: which of two is the later one.
#
# A card, a template, an allow list: the one that was changed more often. A task: the one that moved last. A
# question
# that is answered beats the same one open. What a deleted letter left behind is no reason to forget a letter that
# is
# still there. Signs of life stay where they were given. Nothing is deleted because it is missing elsewhere.

STAYS = frozenset({BEAT, MOVED_HERE})  # says something of its own room alone
DUTIES = (DUE, OPEN_ESCALATION)  # what the janitor of a room will do one day
_SLICE = 500

Refuse: TypeAlias = "Callable[[str, PostroomError], None]"


class Papers:
    """The records of two rooms."""

    def __init__(self, source: Core, target: Core) -> None:
        self._core, self._other = source, target
        self._source, self._target = source.store, target.store

    def carry(self, kinds: set[str] | None, refuse: Refuse) -> int:
        """Those of these kinds (None: of all) that are new or later; how many they were."""
        if kinds is None or GUARD in kinds:
            self._rename(refuse)
        count = 0
        for kind in record_kinds(self._core):
            if kind in STAYS or (kinds is not None and kind not in kinds):
                continue
            held = {record.key: record for record in self._target.records(kind)}
            for record in self._source.records(kind):
                writes = self._writes(record, held.get(record.key))
                count += bool(writes) and self._commit(record, writes, refuse)
        return count

    def _rename(self, refuse: Refuse) -> None:
        """Whoever got another name at the source gets it over there, before anything comes under the new one."""
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
        """A note where somebody moved makes the old name another name of the new one, also over there."""
        guard = guard_from(record.value) if record.kind == GUARD else OPEN_DOOR
        if guard.moved_to is not None and fold(self._target.spelling(record.key) or "") != fold(guard.moved_to):
            yield Rename(record.key, guard.moved_to)

    def _with(self, record: Record) -> Iterator[Write]:
        """What else changes over there."""
        if record.kind == CLOSED_ESCALATION:
            yield from _removals(self._target.records(OPEN_ESCALATION, record.key))
        elif record.kind.startswith(TASKS) and convert(record.value, Standing).is_final:
            yield from _removals(self._target.records(DUE, record.key))
        elif record.kind == CARD:
            for former in self._target.records(CARD, record.key):
                for scope in set(former.value.get("scopes", ())) - set(record.value.get("scopes", ())):
                    yield from _removals(self._target.records(MEMBER + scope, record.key))

    def forget(self, kind: str, keys: Iterable[str]) -> None:
        """At the source."""
        _remove(self._source, kind, keys)

    def take_back(self, kind: str, keys: Iterable[str]) -> None:
        """At the target."""
        _remove(self._target, kind, keys)

    def end_duties(self) -> None:
        """The source does nothing more about what moved: the janitor of the other room has it now."""
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


# What is being moved out of a room is claimed meanwhile: no worker there takes it. Then it is put away.

HOLDER = "postroom copy"  # who claims what is being moved
TIME = 120.0  # seconds for one slice; a copy that dies leaves its letters claimed for so long at most

Held: TypeAlias = dict[str, list[Delivery]]  # by letter
Fenced: TypeAlias = dict[tuple[str, str], Delivery]  # (letter, mailbox) -> as it is now, claimed by us


class Fence:
    """Around some deliveries of one room, slice by slice."""

    def __init__(self, core: Core) -> None:
        self._core, self._store = core, core.store
        self._lost: set[tuple[str, str]] = set()  # what others took when we wanted it
        self.held = 0  # what is left to those who work on it

    def take(self, held: Held) -> Fenced:
        """Claim what is to be moved; what somebody else holds, or takes at this moment, stays. Mail for later
        needs no claim: nobody is offered it.
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
        """With the claims of those who were quicker: else the letter would be offered elsewhere meanwhile."""
        if not self._lost:
            return held
        ids = tuple({id for id, _ in self._lost})
        now = {_at(found.delivery): found.delivery for found in self._store.find(Query(message_ids=ids))}
        return {
            id: [now.get(_at(each), each) if _at(each) in self._lost else each for each in found]
            for id, found in held.items()
        }

    def leave(self, fenced: Sequence[Delivery], room: str) -> list[Delivery]:
        """Put them away: they go on in that room. Those that were not ours any more: a stranger heeds no claim."""
        now = self._core.now().wall
        lost = self._commit([Move(each, model_delivery.move_away(each, now, room), COPIED) for each in fenced])
        self.held += len(lost)
        return lost

    def release(self, fenced: Iterable[Delivery]) -> None:
        claimed = [each for each in fenced if each.state is State.CLAIMED]
        self._commit([Move(each, model_delivery.release(each), "release") for each in claimed])

    def _lease(self) -> Lease:
        now = self._core.now()
        holder = f"{HOLDER} (process {os.getpid()})"
        return Lease(token=self._core.ids.token(), holder=holder, until=now.steady + TIME, boot=now.boot)

    def _is_held(self, delivery: Delivery) -> bool:
        lease = delivery.lease
        if delivery.state is not State.CLAIMED or lease is None:
            return False
        if retry.has_lapsed(lease, self._core.now()):
            return False
        return not (lease.holder.startswith(HOLDER) and is_gone(lease.holder))

    def _commit(self, steps: Sequence[Move]) -> list[Delivery]:
        """All at once, else one by one; those that somebody else moved first."""
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
