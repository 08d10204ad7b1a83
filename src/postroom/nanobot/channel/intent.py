"""Intents: what a gateway does with a letter that arrived, and the session in which its answer was requested.

`classify` decides whether a letter is work for the model, an answer for a conversation, or nothing to do. It
changes nothing.

An `Origin` is the session from which a letter of ours was sent. It is stored on our side until the answer comes:
with the task, or, for other letters, in a record of the same kind. Nothing of it stands in a letter, and nothing
that a letter says about sessions is read, so a peer cannot name a session of ours.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ...core import addressing, messages, tasks
from ...core import names as core_names
from ...core.core import change_record, commit, find_record, put_record, records_of
from ...core.deliveries import find_letters
from ...core.task_index import task_of, tasks_of
from ...core.threads import GetThread
from ...core.verb import perform
from ...errors import NotAllowed, PostroomError, UnknownMessage
from ...model.codec import convert, to_plain
from ...model.delivery import State
from ...model.message import OVERDUE, is_broadcast, same_name
from ...model.names import POSTMASTER, fold
from ...model.query import Query
from ...model.record import SESSION, pair_key
from ...model.task import TASK, TASK_UPDATE, TaskState, TaskStatus
from ...policy.admission import check_allowed
from . import auto_reply
from .auto_reply import MOST_ROUNDS
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.core import Core
    from ...mailbox import Mailbox
    from ...model.delivery import Delivery
    from ...model.message import Message
    from ...model.query import Found
    from ...model.record import Record
    from ...store.protocol import Put
    from .config import Config


LONGEST_SESSION = 100  # characters
MARK = 20  # characters of a hash that make a session key unique
NO_TASK = 'it says that it is a task, and there is none in it: `task` needs an `id` and the `state` "pending"'
REPORTED = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED, TaskState.INPUT_REQUIRED}
)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """The action to take for a letter, with what the action needs.

    work      the model works on it, in the session of its thread
    continue  an answer came: the model continues in a session of mail
    report    an answer came: the model reports it in the conversation that asked for it
    stop      its task was cancelled
    refuse    its sender is not allowed, or it is not what it claims to be: see `reason`
    done      nothing
    """

    action: Literal["work", "continue", "report", "stop", "refuse", "done"]
    session: str = ""
    origin: Origin | None = None  # for `report` and `continue`
    task: TaskStatus | None = None
    answers: str | None = None  # the letter of a peer that the model's final answer answers
    rounds: int = 0
    reason: str = ""
    follows: bool = False  # it is work that replies to a letter of ours


DONE = Intent(action="done")


def classify(mailbox: Mailbox, found: Found, config: Config) -> Intent:
    """Return what to do with one letter."""
    letter = found.message
    if letter.kind in {TASK_UPDATE, OVERDUE} and (about := _task_about(mailbox, letter.id)) is not None:
        return _of_task(mailbox, letter, about)
    # Before `allow_from`: whom we asked may answer, whatever the allow list says.
    origin = _origin_of_answer(mailbox, letter)
    if origin is not None:
        return _back_to(origin, None)
    session = _session_with(mailbox, letter.sender, letter.thread)
    opened = task_of(mailbox.core, mailbox.name, letter.id) if letter.kind == TASK else None
    if opened is not None:  # its admission checks whether the sender is allowed
        return Intent(action="work", session=session, task=opened, answers=letter.id)
    # A task has passed its admission above; any other letter may come from a program that skipped `send`.
    if not _is_allowed(mailbox, letter, config):
        return Intent(action="refuse", reason="unauthorized")
    if _lacks_its_task(letter, found.delivery):
        return Intent(action="refuse", reason=NO_TASK)
    answers = letter.id if auto_reply.wants_answer(letter, found.delivery) else None
    follows = _is_answer_to_us(mailbox, letter)
    return Intent(action="work", session=session, answers=answers, follows=follows)


def session_of(peer: str, thread: str) -> str:
    """Return the session key of a thread with a peer: no peer's words enter the history of another.

    nanobot makes a file name of the key, at most 255 bytes in any of its encodings. Some versions replace ":" by
    "_", which names and ids may contain: the hash separates keys that would become equal.
    """
    session = f"{OWN_CHANNEL}:{peer}:{thread}"
    mark = hashlib.sha256(session.encode()).hexdigest()[:MARK]
    return f"{session[: LONGEST_SESSION - MARK - 1]}-{mark}"


def _session_with(mailbox: Mailbox, peer: str, thread: str) -> str:
    """Return the session of a thread with a peer, by the name under which the peer first wrote there."""
    core = mailbox.core
    names = core_names.names_of(core, core_names.current_name(core, peer))
    if len(names) == 1:
        return session_of(peer, thread)
    letters = perform(core, mailbox.principal, GetThread(agent_id=mailbox.name, thread=thread)).letters
    return session_of(next((letter.sender for letter in letters if letter.sender in names), peer), thread)


def _lacks_its_task(letter: Message, delivery: Delivery) -> bool:
    """Return whether a letter to us alone claims to be a task and opens none: its sender waits for a result."""
    to_us = delivery.kind == "to" and not any(is_broadcast(one.address) for one in letter.recipients)
    return to_us and letter.kind == TASK and (letter.task is None or letter.task.state != TaskState.PENDING)


def _task_about(mailbox: Mailbox, letter: str) -> TaskStatus | None:
    try:
        request = tasks.FindTask(agent_id=mailbox.name, id=letter)
        return perform(mailbox.core, mailbox.principal, request).standing
    except UnknownMessage:
        return None


def _of_task(mailbox: Mailbox, letter: Message, task: TaskStatus) -> Intent:
    if task.giver != mailbox.name:
        return _of_task_received(mailbox, letter, task)
    # Each state would be reported to the person; only the one that holds now is of use.
    if letter.kind == TASK_UPDATE and (task.last != letter.id or task.state not in REPORTED):
        return DONE  # an intermediate state, or superseded by a later letter
    if letter.kind == OVERDUE and task.is_final:
        return DONE
    origin = recall(mailbox.core, mailbox.name, task.letter)
    if origin is None:  # another program of this agent gave the task
        return Intent(action="work", session=_session_with(mailbox, letter.sender, letter.thread))
    return _back_to(origin, task)


def _of_task_received(mailbox: Mailbox, letter: Message, task: TaskStatus) -> Intent:
    if task.state is TaskState.CANCELED:
        return Intent(action="stop", task=task)
    if task.is_final or task.last != letter.id:
        return DONE
    session = _session_with(mailbox, task.giver, task.thread)  # the letter answers our question
    return Intent(action="work", session=session, task=task, answers=task.letter)


def _origin_of_answer(mailbox: Mailbox, letter: Message) -> Origin | None:
    """Return the session that sent the letter which this one answers, or None.

    Only a recipient of our letter or the postmaster may answer, each once. The end of a task is reported by its
    own updates, so other answers to a finished task do not count.
    """
    core, name = mailbox.core, mailbox.name
    origin = recall(core, name, letter.in_reply_to)
    if origin is None or letter.in_reply_to is None or was_answered_before(core, origin, letter):
        return None
    task = task_of(core, name, letter.in_reply_to)
    if task is not None and task.is_final:
        return None
    return origin if _is_answer_to_us(mailbox, letter) else None


def _is_answer_to_us(mailbox: Mailbox, letter: Message) -> bool:
    """Return whether it answers a letter of ours to its sender, under any name the sender had then."""
    core, name = mailbox.core, mailbox.name
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
    sender = core_names.current_name(core, letter.sender)
    recipients = addressing.routed_to(core, ours).recipients
    return any(same_name(sender, core_names.current_name(core, one.address)) for one in recipients)


def _back_to(origin: Origin, task: TaskStatus | None) -> Intent:
    """Return an intent for the session that asked. A session of mail continues with the letter it worked on."""
    if origin.channel != OWN_CHANNEL:
        rounds = origin.rounds + 1
        return Intent(action="report", session=origin.session, origin=origin, task=task, rounds=rounds)
    return Intent(
        action="continue",
        session=origin.session,
        origin=origin,
        task=task,
        answers=origin.letter,
        rounds=origin.rounds + 1,
    )


def _is_allowed(mailbox: Mailbox, letter: Message, config: Config) -> bool:
    """Check `allow_from` again: a foreign program may have written its file past the check of `send`."""
    if letter.sender == POSTMASTER or _is_answer_to_us(mailbox, letter):
        return True
    try:
        check_allowed(letter.sender, mailbox.name, config.allow_from)
    except NotAllowed:
        return False
    return True


# -- origins

OPEN = (State.UNREAD, State.CLAIMED)
KEPT = timedelta(days=30)  # how long an answer to a letter that opens no task may take


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session from which a letter was sent. Its fields are stored: their names stay."""

    channel: str
    chat: str
    session: str  # nanobot's session key
    rounds: int = 0  # results in a row since the person last wrote
    letter: str | None = None  # the letter that was worked on there, if it is a session of mail
    at: datetime | None = None
    answers: dict[str, str] = {}  # folded sender → the letter by which it answered; each answers once
    questions: tuple[str, ...] = ()  # letters with questions about the task since our last answer

    def to_record(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain


def remember(core: Core, agent: str, letter: str, origin: Origin) -> None:
    """Store the origin of a letter, before the letter is sent: its answer may come at once."""
    # With its time: an origin whose letter was never sent, because the process died, is deleted by age.
    now = core.now().wall
    value = replace(origin, at=now).to_record()
    change_record(core, SESSION, pair_key(agent, letter), Any, lambda _: value)


def recall(core: Core, agent: str, letter: str | None) -> Origin | None:
    """Return the origin of a letter of ours, or None."""
    held = None if letter is None else find_record(core, SESSION, pair_key(agent, letter))
    return None if held is None else read(held.value)


def read(value: Any) -> Origin | None:
    """Return a stored origin, or None: other programs store their own sessions in the same kind of record."""
    try:
        return convert(value, Origin)
    except msgspec.ValidationError:
        return None


def set_rounds(core: Core, agent: str, letter: str, rounds: int) -> None:
    """Record the number of rounds in the session of a task, and that its open questions are answered."""
    _change(core, agent, letter, lambda origin: replace(origin, rounds=rounds, questions=()))


def admit_question(core: Core, agent: str, letter: str, question: str) -> bool:
    """Return whether this question about a task of ours may enter the session that gave the task.

    At most MOST_ROUNDS questions may, until one is answered. A question that was admitted stays so: after a crash
    it is reported again.
    """

    def add(origin: Origin) -> Origin:
        return replace(origin, questions=(*dict.fromkeys((*origin.questions, question)),)[:MOST_ROUNDS])

    origin = _change(core, agent, letter, add)
    return origin is not None and question in origin.questions


def mark_answered(core: Core, agent: str, answer: Message) -> None:
    """Record that a sender has answered: its other letters no longer enter the session that asked.

    The same letter may come again, if the gateway dies before it is reported.
    """
    if answer.in_reply_to is not None:
        used = {fold(answer.sender): answer.id}
        _change(core, agent, answer.in_reply_to, lambda origin: replace(origin, answers=used | origin.answers))


def _change(core: Core, agent: str, letter: str, change: Callable[[Origin], Origin]) -> Origin | None:
    """Change a stored origin in one commit. Return the new value, or None if nothing is stored."""

    def step(value: Any) -> Any:
        # A record of another program is left as it is.
        origin = read(value)
        return value if origin is None else change(origin).to_record()

    return read(change_record(core, SESSION, pair_key(agent, letter), Any, step))


def was_answered_before(core: Core, origin: Origin, answer: Message) -> bool:
    """Return whether another letter of this sender, under any of its names, answered first."""
    # Under each of its names: otherwise one agent could answer once for each.
    names = core_names.names_of(core, core_names.current_name(core, answer.sender))
    used = {origin.answers[fold(name)] for name in names if fold(name) in origin.answers}
    return bool(used) and answer.id not in used


def has_open_requests(core: Core, agent: str, letter: str, but: str) -> bool:
    """Return whether tasks given to others while working on this letter are still open.

    An answer to such a task counts as open until it is settled; `but` is an answer that is being settled now.
    """
    given_tasks = (task for task in tasks_of(core, agent) if task.giver == agent and not task.is_final)
    updates = find_letters(core, Query(mailbox=agent, states=OPEN, kinds=(TASK_UPDATE,)))
    requests: list[str | None] = [task.letter for task in given_tasks]
    requests += [found.message.in_reply_to for found in updates if found.message.id != but]
    found = (recall(core, agent, one) for one in requests)
    return any(origin is not None and origin.letter == letter for origin in found)


def forget_old(core: Core, agent: str) -> int:
    """Delete the origins of letters that got no answer in time; return their number."""
    # Answers may come after days; what is older was lost with its sender.
    before = core.now().wall - KEPT

    def plan() -> tuple[list[Put], int]:
        old = [one for one in records_of(core, SESSION).values() if _is_old(core, agent, one, before)]
        return [put_record(SESSION, record.key, None, record) for record in old], len(old)

    return commit(core, plan)


def _is_old(core: Core, agent: str, record: Record, before: datetime) -> bool:
    """Return whether an origin may be deleted. Origins of tasks are deleted with their tasks."""
    own, _, letter = record.key.partition(" ")
    origin = read(record.value)
    return (
        own == agent
        and origin is not None
        and origin.at is not None
        and origin.at < before
        and task_of(core, agent, letter) is None
    )
