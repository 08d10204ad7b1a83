"""What a letter that came is: work for the model, an answer for somebody who asked, or nothing to do.

Looks only. Whose answer it is, our own record says; what the letter claims about sessions is not looked at.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ...core import addressing, inbox, messages, tasks
from ...core import names as core_names
from ...core.core import find_record, put_record
from ...core.task_index import task_of, tasks_of
from ...errors import NotAllowed, PostroomError, UnknownMessage
from ...model.codec import convert, to_plain
from ...model.delivery import State
from ...model.message import OVERDUE, is_broadcast, same_name
from ...model.names import POSTMASTER, fold
from ...model.query import LetterQuery, Query
from ...model.record import SESSION, Record, session_key
from ...model.task import TASK, TASK_UPDATE, Standing, TaskState
from ...policy.admission import check_allowed
from ...store.protocol import Put
from . import auto_reply, gateways
from .auto_reply import MOST_ROUNDS
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.core import Core
    from ...letter import Work
    from ...mailbox import Mailbox
    from ...model.delivery import Delivery
    from ...model.message import Message
    from ...store.protocol import Write
    from .config import Config


LONGEST_SESSION = 100  # characters
MARK = 20  # characters of them, which no other session has
NO_TASK = 'it says that it is a task, and there is none in it: `task` needs an `id` and the `state` "pending"'
TOLD = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED, TaskState.INPUT_REQUIRED}
)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a letter.

    work    the model works on it, in the session of its thread
    go_on   the model goes on with something in a session of mail: an answer came for it
    tell    the model tells whoever asked
    stop    its task was taken back
    refuse  its sender is not allowed, or it is not what it says: `reason`
    done    nothing
    """

    what: Literal["work", "go_on", "tell", "stop", "refuse", "done"]
    session: str = ""
    origin: Origin | None = None  # for `tell` and `go_on`
    task: Standing | None = None
    answers: str | None = None  # the letter of a peer that the model's last word answers
    wants_answer: bool = False
    rounds: int = 0
    reason: str = ""
    home: str = ""  # of the gateway that has the session; empty: whoever takes it
    follows: bool = False  # work that replies to a letter of ours


DONE = Intent(what="done")


def sort(mailbox: Mailbox, work: Work, config: Config) -> Intent:
    """Decide about one letter."""
    letter = work.message
    if letter.kind in {TASK_UPDATE, OVERDUE} and (about := _task_about(mailbox, work)) is not None:
        return _of_task(mailbox, letter, about)
    where = _asked_for(mailbox, letter)
    if where is not None:
        return _back_to(where, None)
    session = _session_with(mailbox, letter.sender, letter.thread)
    opened = task_of(mailbox._core, mailbox.name, letter.id) if letter.kind == TASK else None
    home = _home_of_thread(mailbox, work)
    if opened is not None:  # whether it is allowed is part of its admission
        return Intent(what="work", session=session, task=opened, answers=letter.id, home=home)
    if not _is_allowed(mailbox, letter, config):
        return Intent(what="refuse", reason="unauthorized")
    if _lacks_its_task(letter, work.delivery):
        return Intent(what="refuse", reason=NO_TASK)
    wants = auto_reply.wants_answer(letter, work.delivery)
    answers = letter.id if wants else None
    follows = _is_answer_to_us(mailbox, letter)
    return Intent(what="work", session=session, wants_answer=wants, answers=answers, home=home, follows=follows)


def session_of(peer: str, thread: str) -> str:
    """One session for each thread with a peer: what one peer says is not in the history of another.

    nanobot makes a file name of it, which is no longer than 255 bytes, however it is written there. Some versions
    write ":" as "_", which names and ids may hold: the mark keeps those apart that would be written alike.
    """
    session = f"{OWN_CHANNEL}:{peer}:{thread}"
    mark = hashlib.sha256(session.encode()).hexdigest()[:MARK]
    return f"{session[: LONGEST_SESSION - MARK - 1]}-{mark}"


def _session_with(mailbox: Mailbox, peer: str, thread: str) -> str:
    """The session of a thread with a peer, known by what the peer was called when it first wrote there."""
    core = mailbox._core
    names = core_names.names_of(core, core_names.resident(core, peer))
    if len(names) == 1:
        return session_of(peer, thread)
    letters = (found.message for found in core.store.letters(LetterQuery(thread=thread, party=mailbox.name)))
    return session_of(next((letter.sender for letter in letters if letter.sender in names), peer), thread)


def _lacks_its_task(letter: Message, delivery: Delivery) -> bool:
    """Does a letter to us alone call itself a task and open none? Whoever sent it waits for a result."""
    to_us = delivery.kind == "to" and not any(is_broadcast(one.address) for one in letter.recipients)
    return to_us and letter.kind == TASK and (letter.task is None or letter.task.state != TaskState.PENDING)


def _task_about(mailbox: Mailbox, work: Work) -> Standing | None:
    try:
        return tasks.find(mailbox._core, mailbox._caller, mailbox.name, work.id)
    except UnknownMessage:
        return None


def _of_task(mailbox: Mailbox, letter: Message, task: Standing) -> Intent:
    if task.giver != mailbox.name:
        return _of_task_received(mailbox, letter, task)
    if letter.kind == TASK_UPDATE and (task.last != letter.id or task.state not in TOLD):
        return DONE  # on the way, or overtaken by a later word
    if letter.kind == OVERDUE and task.is_final:
        return DONE
    where = recall(mailbox._core, mailbox.name, task.letter)
    if where is None:  # given by another program of ours
        return Intent(what="work", session=_session_with(mailbox, letter.sender, letter.thread))
    return _back_to(where, task)


def _of_task_received(mailbox: Mailbox, letter: Message, task: Standing) -> Intent:
    if task.state is TaskState.CANCELED:
        return Intent(what="stop", task=task, home=_home_of_work(mailbox, task))
    if task.is_final or task.last != letter.id:
        return DONE
    session = _session_with(mailbox, task.giver, task.thread)  # the answer to what we asked
    home = _home_of_work(mailbox, task)
    return Intent(what="work", session=session, task=task, answers=task.letter, home=home)


def _home_of_work(mailbox: Mailbox, task: Standing) -> str:
    """Of the gateway that worked on a task: it has its text, and the turn if there is one."""
    lease = inbox.received(mailbox._core, mailbox.name, task.letter).delivery.lease
    return "" if lease is None else gateways.home_of(mailbox._core, mailbox.name, lease.holder)


def _home_of_thread(mailbox: Mailbox, work: Work) -> str:
    """Of the gateway that had what its sender wrote before in this thread: it remembers. Later letters do not
    count, or two gateways that have one each would leave both to each other.
    """
    letter = work.message
    if letter.thread == letter.id:
        return ""
    before = Query(
        mailbox=mailbox.name,
        states=(State.CLAIMED, State.DONE),
        sender=letter.sender,
        thread=letter.thread,
        until=work.delivery.number - 1,
        order="newest",
        limit=1,
    )
    leases = [found.delivery.lease for found in mailbox._core.store.find(before)]
    return gateways.home_of(mailbox._core, mailbox.name, leases[0].holder) if leases and leases[0] else ""


def _asked_for(mailbox: Mailbox, letter: Message) -> Origin | None:
    """Where we asked for what this letter answers, if it comes from whom we wrote to, or from the house. Each is
    let in once; of a task that is over, its own updates have told.
    """
    core, name = mailbox._core, mailbox.name
    where = recall(core, name, letter.in_reply_to)
    if where is None or letter.in_reply_to is None or is_used_up(core, where, letter):
        return None
    task = task_of(core, name, letter.in_reply_to)
    if task is not None and task.is_final:
        return None
    return where if _is_answer_to_us(mailbox, letter) else None


def _is_answer_to_us(mailbox: Mailbox, letter: Message) -> bool:
    """Does it answer a letter that we sent to its sender, whatever that one was called then?"""
    core, name = mailbox._core, mailbox.name
    if letter.in_reply_to is None:
        return False
    try:
        ours = messages.known_letter(core, name, letter.in_reply_to)
    except PostroomError:
        return False
    if not core_names.is_sent_by(core, ours, name):
        return False
    if letter.sender == POSTMASTER:
        return True
    sender = core_names.resident(core, letter.sender)
    asked_for = addressing.routed_to(core, ours).recipients
    return any(same_name(sender, core_names.resident(core, one.address)) for one in asked_for)


def _back_to(where: Origin, task: Standing | None) -> Intent:
    """Into the session that asked. One of mail goes on with the letter it worked on."""
    if where.channel != OWN_CHANNEL:
        rounds = where.rounds + 1
        return Intent(what="tell", session=where.session, origin=where, task=task, rounds=rounds, home=where.home)
    return Intent(
        what="go_on",
        session=where.session,
        origin=where,
        task=task,
        answers=where.letter,
        wants_answer=where.letter is not None,
        rounds=where.rounds + 1,
        home=where.home,
    )


def _is_allowed(mailbox: Mailbox, letter: Message, config: Config) -> bool:
    """Postroom's own senders were asked at the door; a stranger puts its file past it."""
    if letter.sender == POSTMASTER or _is_answer_to_us(mailbox, letter):
        return True
    try:
        check_allowed(letter.sender, mailbox.name, config.allow_from)
    except NotAllowed:
        return False
    return True


# The session in which we were asked for something, remembered on our side until the answer comes.
#
# Nothing of it stands in a letter, and nothing that a letter says of sessions is looked at: a peer cannot name a
# session of ours. For a task it is kept with the task; for other letters in a record of the same kind.

OPEN = (State.UNREAD, State.CLAIMED)
KEPT = timedelta(days=30)  # how long an answer to a letter that opens no task may take


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


def remember(core: Core, agent: str, letter: str, origin: Origin) -> None:
    """Before the letter is sent: its answer may come at once."""
    now = core.now().wall
    value = replace(origin, at=now).to_record()
    core.store.commit([Put(record=Record(kind=SESSION, key=session_key(agent, letter), value=value))])


def recall(core: Core, agent: str, letter: str | None) -> Origin | None:
    """Where we were asked for what this letter of ours says."""
    held = None if letter is None else find_record(core, SESSION, session_key(agent, letter))
    return None if held is None else read(held.value)


def read(value: Any) -> Origin | None:
    """A record of a session, if it is one of ours: other programs may keep theirs in the same way."""
    try:
        return convert(value, Origin)
    except msgspec.ValidationError:
        return None


def set_rounds(core: Core, agent: str, letter: str, rounds: int) -> None:
    """So many rounds went on where we asked, when we answered a question about it."""
    _change(core, agent, letter, lambda where: replace(where, rounds=rounds, questions=()))


def is_let_in(core: Core, agent: str, letter: str, question: str) -> bool:
    """May this question about a task of ours come into the session in which we were asked? So many may without an
    answer, and each again, if we die before it is told.
    """

    def add(where: Origin) -> Origin:
        return replace(where, questions=(*dict.fromkeys((*where.questions, question)),)[:MOST_ROUNDS])

    where = _change(core, agent, letter, add)
    return where is not None and question in where.questions


def use_up(core: Core, agent: str, answer: Message) -> None:
    """From now on no other letter of its sender comes into the session in which we asked. This one may come again,
    if we die before it is told.
    """
    if answer.in_reply_to is not None:
        used = {fold(answer.sender): answer.id}
        _change(core, agent, answer.in_reply_to, lambda where: replace(where, answers=used | where.answers))


def _change(core: Core, agent: str, letter: str, change: Callable[[Origin], Origin]) -> Origin | None:
    """What is remembered then; None if nothing was."""
    changed: Origin | None = None

    def plan() -> Sequence[Write]:
        nonlocal changed
        held = find_record(core, SESSION, session_key(agent, letter))
        where = None if held is None else read(held.value)
        if held is None or where is None:
            return ()
        changed = change(where)
        return [put_record(SESSION, held.key, changed.to_record(), held)] if changed != where else ()

    core.store.commit(plan)
    return changed


def is_used_up(core: Core, where: Origin, answer: Message) -> bool:
    """Did another letter of its sender come first, whatever that one was called then?"""
    names = core_names.names_of(core, core_names.resident(core, answer.sender))
    used = {where.answers[fold(name)] for name in names if fold(name) in where.answers}
    return bool(used) and answer.id not in used


def is_waiting(core: Core, agent: str, letter: str, but: str) -> bool:
    """Is something open that was given to others while this letter was worked on? What they answered counts until
    it is dealt with; `but` is an answer that just was.
    """
    value = (task for task in tasks_of(core, agent) if task.giver == agent and not task.is_final)
    updates = core.store.find(Query(mailbox=agent, states=OPEN, kinds=(TASK_UPDATE,)))
    asked_by: list[str | None] = [task.letter for task in value]
    asked_by += [found.message.in_reply_to for found in updates if found.message.id != but]
    found = (recall(core, agent, one) for one in asked_by)
    return any(where is not None and where.letter == letter for where in found)


def forget_old(core: Core, agent: str) -> int:
    """Strike what was kept for letters that nobody answered in all this time; says how many."""
    before = core.now().wall - KEPT
    gone = 0

    def plan() -> Sequence[Write]:
        nonlocal gone
        old = [record for record in core.store.records(SESSION) if _is_old(core, agent, record, before)]
        gone = len(old)
        return [put_record(SESSION, record.key, None, record) for record in old]

    core.store.commit(plan)
    return gone


def _is_old(core: Core, agent: str, record: Record, before: datetime) -> bool:
    """Those of tasks go with their tasks."""
    own, _, letter = record.key.partition(" ")
    origin = read(record.value)
    return (
        own == agent
        and origin is not None
        and origin.at is not None
        and origin.at < before
        and task_of(core, agent, letter) is None
    )
