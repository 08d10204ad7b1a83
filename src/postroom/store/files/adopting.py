"""What strangers wrote about agents enters the room: as cards, guards, memberships and signs of life.

Inside a transaction of `registry`. A name that nobody can have here stays in the file as it is, and that is all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...errors import PostroomError
from ...model.card import EVERYONE, Beat, Card
from ...model.codec import convert, to_plain
from ...model.guard import OPEN_DOOR, guard_from, guard_value
from ...model.names import check_agent, fold
from ...model.record import ACTIVE, BEAT, CARD, GUARD, MEMBER, Record
from ..base import Put
from ..sqlite.writing import Writing
from . import entries
from .layouts.base import time_or_none

if TYPE_CHECKING:
    from datetime import datetime

    from ...model.query import Moment
    from .connection import FileConnection
    from .layouts.base import Plain

_TAKEN = """
SELECT name FROM mailboxes WHERE folded = ?1 UNION ALL SELECT '' FROM aliases WHERE folded = ?1"""


class Adopting:
    """One look at the registry."""

    def __init__(self, here: FileConnection, moment: Moment, written: datetime) -> None:
        self._here = here
        self._writing = Writing(here.database, here.names)
        self._moment = moment
        self._written = written
        self._lasting: list[Put] = []

    def adopt(self, agent: str, entry: Any, base: Any) -> None:
        if not isinstance(entry, dict) or not self._can_be_called(agent):
            return
        held, beat, active = (self._here.record(kind, agent) for kind in (CARD, BEAT, ACTIVE))
        tasks = () if active is None else tuple(active.value)
        sign = None if beat is None else convert(beat.value, Beat)
        card = None if held is None else convert(held.value, Card)
        before: Plain = base if isinstance(base, dict) else _before(card, entry)
        current = {} if card is None else entries.shown(card, sign, tasks, self._moment)
        fields = entries.merged(current, before, entry)
        self._put(BEAT, agent, to_plain(entries.beat_in(entry, before, sign, tasks, self._moment)), durable=False)
        found = entries.card_in(agent, fields, self._written)
        if found != card:
            self._write_card(found, card)

    def finish(self, *, durable: bool) -> None:
        """A stranger's card lasts as ours do, whatever becomes of the file."""
        self._writing.remember()
        if self._lasting:
            puts = [{"put": to_plain(self._here.record_as_written(put))} for put in self._lasting]
            line = {"n": self._here.ledger.next_line(), "writes": puts, "steps": []}
            self._here.journal.append(line, durable=durable)

    def _write_card(self, card: Card, former: Card | None) -> None:
        self._put(CARD, card.id, to_plain(card))
        held = self._here.record(GUARD, card.id)
        guard = OPEN_DOOR if held is None else guard_from(held.value)
        allowed = (EVERYONE,) if EVERYONE in card.allow_from else card.allow_from
        self._put(GUARD, card.id, guard_value(replace(guard, allow=allowed)))
        left = set() if former is None else set(former.scopes) - set(card.scopes)
        for scope in (*card.scopes, *left):
            self._put(MEMBER + scope, card.id, None if scope in left else True)

    def _put(self, kind: str, key: str, value: Any, *, durable: bool = True) -> None:
        held = self._here.record(kind, key)
        if value == (None if held is None else held.value):
            return
        revision = 0 if held is None else held.revision
        put = Put(record=Record(kind=kind, key=key, value=value, revision=revision), durable=durable)
        self._writing.apply([put])
        if durable:
            self._lasting.append(put)

    def _can_be_called(self, agent: str) -> bool:
        """It is a name, nobody else's, and reads like nobody else's."""
        try:
            if check_agent(agent, "agent_id") != agent:
                return False
        except PostroomError:
            return False
        taken = [name for (name,) in self._here.database.execute(_TAKEN, (fold(agent),)).fetchall()]
        return all(name == agent for name in taken)


def _before(card: Card | None, entry: Plain) -> Plain:
    """What stood in the file, where nobody remembers: of two cards, the later counts."""
    registered = time_or_none(entry.get("registered_at"))
    if card is None or (registered is not None and registered > card.registered_at):
        return {}
    return {name: value for name, value in entry.items() if name not in entries.RUNTIME}
