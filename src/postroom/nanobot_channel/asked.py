"""The session in which we were asked for something, remembered on our side until the answer comes.

Nothing of it stands in a letter, and nothing that a letter says of sessions is looked at: a peer cannot name a
session of ours. For a task it is kept with the task; for other letters in a record of the same kind.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from .. import service
from ..model.codec import convert, to_plain
from ..model.delivery import State
from ..model.names import fold
from ..model.query import Query
from ..model.record import SESSION, Record, session_key
from ..model.task import TASK_UPDATE
from ..service.records import find_record, put_record
from ..service.taskbook import task_of, tasks_of
from ..store.base import Put
from .manners import MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.message import Message
    from ..service.office import Office
    from ..store.base import Write

OPEN = (State.UNREAD, State.CLAIMED)
KEPT = timedelta(days=30)  # how long an answer to a letter that opens no task may take


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where we were asked."""

    channel: str
    chat: str
    session: str  # nanobot's key of it
    rounds: int = 0  # how many results it got in a row since its person last spoke
    letter: str | None = None  # the letter that was worked on there, if it is a session of mail
    home: str = ""  # of the gateway that has the session
    at: datetime | None = None
    answers: dict[str, str] = {}  # who has answered, and by which letter: each is let in once
    questions: tuple[str, ...] = ()  # letters that asked about the task, since we last answered

    def to_record(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain


def remember(office: Office, agent: str, letter: str, asked: Asked) -> None:
    """Before the letter is sent: its answer may come at once."""
    now = office.now().wall
    said = replace(asked, at=now).to_record()
    office.store.commit([Put(record=Record(kind=SESSION, key=session_key(agent, letter), value=said))])


def recall(office: Office, agent: str, letter: str | None) -> Asked | None:
    """Where we were asked for what this letter of ours says."""
    held = None if letter is None else find_record(office, SESSION, session_key(agent, letter))
    return None if held is None else read(held.value)


def read(value: Any) -> Asked | None:
    """A record of a session, if it is one of ours: other programs may keep theirs in the same way."""
    try:
        return convert(value, Asked)
    except msgspec.ValidationError:
        return None


def set_rounds(office: Office, agent: str, letter: str, rounds: int) -> None:
    """So many rounds went on where we asked, when we answered a question about it."""
    _change(office, agent, letter, lambda where: replace(where, rounds=rounds, questions=()))


def is_let_in(office: Office, agent: str, letter: str, question: str) -> bool:
    """May this question about a task of ours come into the session in which we were asked? So many may without an
    answer, and each again, if we die before it is told.
    """

    def add(where: Asked) -> Asked:
        return replace(where, questions=(*dict.fromkeys((*where.questions, question)),)[:MOST_ROUNDS])

    where = _change(office, agent, letter, add)
    return where is not None and question in where.questions


def use_up(office: Office, agent: str, answer: Message) -> None:
    """From now on no other letter of its sender comes into the session in which we asked. This one may come again,
    if we die before it is told.
    """
    if answer.in_reply_to is not None:
        used = {fold(answer.sender): answer.id}
        _change(office, agent, answer.in_reply_to, lambda where: replace(where, answers=used | where.answers))


def _change(office: Office, agent: str, letter: str, change: Callable[[Asked], Asked]) -> Asked | None:
    """What is remembered then; None if nothing was."""
    changed: Asked | None = None

    def plan() -> Sequence[Write]:
        nonlocal changed
        held = find_record(office, SESSION, session_key(agent, letter))
        where = None if held is None else read(held.value)
        if held is None or where is None:
            return ()
        changed = change(where)
        return [put_record(SESSION, held.key, changed.to_record(), held)] if changed != where else ()

    office.store.commit(plan)
    return changed


def is_used_up(office: Office, where: Asked, answer: Message) -> bool:
    """Did another letter of its sender come first, whatever that one was called then?"""
    names = service.naming.names_of(office, service.naming.resident(office, answer.sender))
    used = {where.answers[fold(name)] for name in names if fold(name) in where.answers}
    return bool(used) and answer.id not in used


def is_waiting(office: Office, agent: str, letter: str, but: str) -> bool:
    """Is something open that was given to others while this letter was worked on? What they answered counts until
    it is dealt with; `but` is an answer that just was.
    """
    given = (task for task in tasks_of(office, agent) if task.giver == agent and not task.is_final)
    updates = office.store.find(Query(mailbox=agent, states=OPEN, kinds=(TASK_UPDATE,)))
    asked_by: list[str | None] = [task.letter for task in given]
    asked_by += [found.message.in_reply_to for found in updates if found.message.id != but]
    found = (recall(office, agent, one) for one in asked_by)
    return any(where is not None and where.letter == letter for where in found)


def forget_old(office: Office, agent: str) -> int:
    """Strike what was kept for letters that nobody answered in all this time; says how many."""
    before = office.now().wall - KEPT
    gone = 0

    def plan() -> Sequence[Write]:
        nonlocal gone
        old = [record for record in office.store.records(SESSION) if _is_old(office, agent, record, before)]
        gone = len(old)
        return [put_record(SESSION, record.key, None, record) for record in old]

    office.store.commit(plan)
    return gone


def _is_old(office: Office, agent: str, record: Record, before: datetime) -> bool:
    """Those of tasks go with their tasks."""
    own, _, letter = record.key.partition(" ")
    asked = read(record.value)
    return (
        own == agent
        and asked is not None
        and asked.at is not None
        and asked.at < before
        and task_of(office, agent, letter) is None
    )
