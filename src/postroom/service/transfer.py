"""Mail from one room into another, of whatever kind each is; again and again, without loss and without doubles.

Letters keep their ids and keys, so a second run finds what it brought before and only brings states up to date
(`policy.agreeing` says how). Each slice is one commit in the room that is copied to; who interrupts us finds both
rooms whole, and the same copy again goes on.

A move is a copy after which nobody handles the letter here any more. First the letter is claimed, so that no
worker takes it meanwhile (`transfer_fence`); then it is copied, and it is noted over there that it came to stay;
when that is on stable storage, it is done and archived here. What somebody works on is copied with its lease and
left to its holder.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .. import policy
from ..errors import Conflict, IdTaken, Invalid, Resync, StaleRevision, UnknownMessage
from ..model import delivery as moves
from ..model.change import Cursor
from ..model.codec import digest
from ..model.delivery import COPIED, State
from ..model.query import LetterQuery, Query
from ..model.record import COPIED_UP_TO, MOVED_HERE, Record, moved_key
from ..store.base import Introduce, Move, Post, Put, vouched
from .authorize import authorize
from .given import told
from .transfer_fence import HOLDER, Fence, deliveries_of
from .transfer_records import Papers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..errors import PostroomError
    from ..model.delivery import Delivery
    from ..model.health import Progress
    from ..model.message import Message
    from ..store.base import Letter, Posted, Write
    from .authorize import Principal
    from .office import Office
    from .transfer_fence import Fenced

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
    source: Office,
    target: Office,
    caller: Principal,
    *,
    move: bool = False,
    places: tuple[str, str] = ("", ""),
    progress: Progress | None = None,
) -> Copied:
    """Copy all that `target` does not know yet. `places` says where the two lie: moved letters bear the second."""
    authorize(caller, "export")
    authorize(caller, "import")
    return _Passage(source, target, move=move, places=places).run(told(progress))


def follow(
    source: Office,
    target: Office,
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

    def __init__(self, source: Office, target: Office, *, move: bool, places: tuple[str, str]) -> None:
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
                before = replace(before, reason=before.reason if before.has_left else moves.MOVED_AWAY)
            after = policy.agreeing.agreed(before, delivery, stays=self._move)
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
