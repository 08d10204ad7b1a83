"""Dead letters: list, revive and delete them.

A letter is dead when nobody took it: it expired, was refused, or failed too often. It stays until somebody revives
it, deletes it, or the retention of the room ends.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, TooLarge, UnknownMessage
from ..model import delivery as model_delivery
from ..model.codec import digest
from ..model.delivery import SETTLED, UNSENT, State
from ..model.message import FEDERATION_NOTE
from ..model.names import AT, check_id
from ..model.query import Found, Query
from ..model.record import FORGOTTEN, SPENT, Record, pair_key
from ..model.values import Brief, as_list, check_count, check_limit
from ..store.protocol import Forget, Move, Put, all_names
from . import alerts, deliveries, messages, names, task_index
from .core import commit
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


MOST_NAMED = 10_000  # ids in one call


class DeadLetters(Struct):
    """Dead letters; `delivery.reason` and `.history` say why each died."""

    letters: list[Found]


class DeadGroup(Brief, frozen=True):
    """Dead letters of one mailbox with one reason."""

    mailbox: str
    reason: str
    count: int


class DeadGroups(Struct):
    """The dead letters in groups, the largest first, and when they were counted."""

    groups: list[DeadGroup]
    total: int
    until: datetime  # `until` of revive_all: what dies later is left


@verb("dead_groups", DeadGroups, action="dead", many=True, writes=False, everyone=True)
class GroupDead(MailboxVerb, kw_only=True):
    """Count dead letters by mailbox and reason."""

    limit: Annotated[int, "how many groups at most"] = 1000

    def run(self, core: Core, _principal: Principal) -> DeadGroups:
        most, moment = check_count(self.limit, "limit"), core.now()
        deliveries.apply_timers(core, moment, (self.agent_id,) if self.agent_id else None)
        counted = Counter(core.store.count(_dead_of(self.mailbox), by="reason"))
        outgoing = _dead_outgoing(core, self.agent_id)
        counted.update((one.delivery.mailbox, one.delivery.reason or "") for one in outgoing)
        groups = [DeadGroup(mailbox, reason, many) for (mailbox, reason), many in counted.items()]
        ordered = sorted(groups, key=lambda group: (-group.count, group.mailbox, group.reason))
        return DeadGroups(ordered[:most], sum(counted.values()), moment.wall)


@verb("dead", DeadLetters, action="dead", many=True, writes=False, everyone=True)
class Dead(MailboxVerb, kw_only=True):
    """Return dead letters with the reason, the oldest first.

    Letters that were sent to other systems and died before they left this room are their sender's.
    """

    limit: Annotated[int | None, "how many at most"] = None
    reason: Annotated[str | None, "only with exactly this reason"] = None
    after: Annotated[int | None, "only behind this one: the `number`, or the `arrived`, of a delivery"] = None

    def run(self, core: Core, _principal: Principal) -> DeadLetters:
        most = check_limit(self.limit)
        query = replace(_dead_of(self.mailbox), reason=self.reason, after=self.after or 0, limit=most)
        deliveries.apply_timers(core, core.now(), (self.agent_id,) if self.agent_id else None)
        if self.agent_id:
            names.check_not_moved(core, self.agent_id, "mailbox")
        outgoing = _dead_outgoing(core, self.agent_id, reason=self.reason)
        found = [*core.store.find(query), *(one for one in outgoing if _place(one)[0] > (self.after or 0))]
        return DeadLetters(sorted(found, key=_place)[:most])


def _dead_of(mailbox: str | None) -> Query:
    return Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, order="age")


def _place(found: Found) -> tuple[int, str]:
    """Return the place of a dead letter in the list: by when it came."""
    return found.delivery.arrived or found.delivery.number, found.delivery.mailbox


class Revived(Struct):
    """Letters that are in the inbox again."""

    letters: list[Found]


@verb("revive", Revived, action="revive", old_names={"message_ids": "ids"})
class Revive(MailboxVerb, kw_only=True):
    """Return dead letters to the inbox with no attempts counted; all of them or none."""

    ids: Annotated[str | list[str], "ids of letters"]

    def run(self, core: Core, _principal: Principal) -> Revived:
        def plan() -> tuple[Sequence[Write], list[Found]]:
            dead = _find_dead(core, self.agent_id, self.ids)
            moves = [_revival(found.delivery, core.now().wall) for found in dead]
            return moves, [Found(found.message, move.after) for found, move in zip(dead, moves, strict=True)]

        return Revived(commit(core, plan))


class RevivedSlice(Struct):
    """How many dead letters are in the inbox again, and how many of those that were meant are left."""

    revived: int
    left: int


@verb("revive_all", RevivedSlice, action="revive", many=True, everyone=True)
class ReviveAll(MailboxVerb, kw_only=True):
    """Return dead letters that match to their inboxes, the oldest first: a slice at a time, until none is left."""

    reason: Annotated[str | None, "only with exactly this reason"] = None
    until: Annotated[datetime, "only those that were dead by then: the `until` of dead_groups"]
    limit: Annotated[int, "how many at most"] = 500

    def run(self, core: Core, _principal: Principal) -> RevivedSlice:
        most = check_count(self.limit, "limit", most=MOST_NAMED)
        query = replace(_dead_of(self.mailbox), reason=self.reason, dead_by=self.until)

        def plan() -> tuple[Sequence[Write], RevivedSlice]:
            found = core.store.find(replace(query, limit=most))
            outgoing = self._outgoing(core)
            # Counted in the plan, so that the caller's loop ends even while more letters die.
            matching = core.store.count(query, by="all") + len(outgoing)
            moves = [_revival(one.delivery, core.now().wall) for one in [*found, *outgoing][:most]]
            return moves, RevivedSlice(len(moves), matching - len(moves))

        return commit(core, plan)

    def _outgoing(self, core: Core) -> list[Found]:
        """Return the matching letters of one mailbox that died on their way to other systems."""
        return [
            one
            for one in _dead_outgoing(core, self.agent_id, reason=self.reason)
            if one.delivery.dead_at is not None and one.delivery.dead_at <= self.until
        ]


def _revival(dead: Delivery, now: datetime) -> Move:
    # It died on its way to another system: it goes back to the outbox, not to an inbox.
    if AT in dead.mailbox:
        return Move(dead, model_delivery.requeue(dead, now), "requeue")
    return Move(dead, model_delivery.revive(dead), "revive")


@verb("purge_dead", int, under="purged", action="purge", old_names={"message_ids": "ids"})
class PurgeDead(MailboxVerb, kw_only=True):
    """Delete dead letters for good; one that is not settled in another mailbox is kept."""

    ids: Annotated[str | list[str], "ids of letters"]

    def run(self, core: Core, _principal: Principal) -> int:
        def plan() -> tuple[Sequence[Write], int]:
            dead = _find_dead(core, self.agent_id, self.ids)
            # Another recipient may still work on it: its copy must not vanish (G4).
            letters = [f.message for f in dead if _is_settled(core, f.message.id)]
            return forget(core, letters, core.now().wall), len(letters)

        return commit(core, plan)


def forget(core: Core, letters: Sequence[Message], now: datetime) -> list[Write]:
    """Return the writes that delete letters and the tasks they opened, and keep their ids and keys spent.

    Part of a plan, because it reads first.
    """
    memories: dict[tuple[str, str], dict[str, Any]] = {}
    for letter in letters:
        derived = messages.derived_fields(letter)
        memory = {"id": letter.id, "digest": digest(letter), "at": now.isoformat(), "way": derived}
        if FEDERATION_NOTE in letter.extra:
            memory[FEDERATION_NOTE] = letter.extra[FEDERATION_NOTE]
        # Ids and keys stay spent after the letter is gone: a late retry must not send it again (G3).
        memories[FORGOTTEN, letter.id] = memory
        # The id of one letter may be the key of another: an existing entry stays.
        memories.setdefault((SPENT, pair_key(letter.sender, letter.key or letter.id)), memory)
    new = [Record(kind=at[0], key=at[1], value=v) for at, v in memories.items() if not core.store.records(*at)]
    return [
        *(Forget(letter.id) for letter in letters),
        *(Put(record=record) for record in new),
        *alerts.forget_letters(core, letters),
        *task_index.remove_tasks(core, letters),
    ]


def _find_dead(core: Core, mailbox: str, named: str | Sequence[str]) -> list[Found]:
    ids = [check_id(id, "id") for id in as_list(named, "id")]
    if len(ids) > MOST_NAMED:
        raise TooLarge(f"{len(ids)} letters, the limit is {MOST_NAMED}", field="id")
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, message_ids=tuple(ids), order="age")
    found = core.store.find(query)
    # Only where some are missing: the look through all other systems costs a query each.
    if len(found) < len(set(ids)):
        found += _dead_outgoing(core, mailbox, tuple(ids))
    missing = set(ids) - {f.message.id for f in found}
    if not ids:
        raise Invalid("no letter is named", field="id", hint="give the ids of dead letters")
    if missing:
        names.check_not_moved(core, mailbox, "mailbox")
        raise UnknownMessage(f"no dead letter {min(missing)!r} in {mailbox!r}", field="id")
    return found


def _dead_outgoing(core: Core, mailbox: str, ids: tuple[str, ...] = (), reason: str | None = None) -> list[Found]:
    """Return letters to other systems that died in this room, which belong to their sender; none for no sender."""
    if not mailbox:  # the whole room: these are among its dead letters anyway
        return []
    places = [name for name in all_names(core.store) if AT in name]
    wanted = Query(states=(State.DEAD,), sender=mailbox, message_ids=ids, order="age")
    found = (one for place in places for one in core.store.find(replace(wanted, mailbox=place)))
    return [one for one in found if one.delivery.reason != UNSENT and reason in {None, one.delivery.reason or ""}]


def _is_settled(core: Core, id: str) -> bool:
    everywhere = core.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
