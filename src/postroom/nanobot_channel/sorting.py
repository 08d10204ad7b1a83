"""What a letter that came is: work for the model, an answer for somebody who asked, or nothing to do.

Looks only. Whose answer it is, our own record says; what the letter claims about sessions is not looked at.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import msgspec

from .. import service
from ..errors import NotAllowed, PostroomError, UnknownMessage
from ..model.delivery import State
from ..model.message import OVERDUE, is_broadcast, same_name
from ..model.names import POSTMASTER
from ..model.query import LetterQuery, Query
from ..model.task import TASK, TASK_UPDATE, Standing, TaskState
from ..policy.admission import check_allowed
from ..service.taskbook import task_of
from . import asked, homes, manners
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from ..letter import Work
    from ..mailbox import Mailbox
    from ..model.delivery import Delivery
    from ..model.message import Message
    from .config import Config

LONGEST_SESSION = 100  # characters
MARK = 20  # characters of them, which no other session has
NO_TASK = 'it says that it is a task, and there is none in it: `task` needs an `id` and the `state` "pending"'
TOLD = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED, TaskState.INPUT_REQUIRED}
)


class Errand(msgspec.Struct, frozen=True, kw_only=True):
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
    asked: asked.Asked | None = None  # for `tell` and `go_on`
    task: Standing | None = None
    answers: str | None = None  # the letter of a peer that the model's last word answers
    wants_answer: bool = False
    rounds: int = 0
    reason: str = ""
    home: str = ""  # of the gateway that has the session; empty: whoever takes it
    follows: bool = False  # work that replies to a letter of ours


DONE = Errand(what="done")


def sort(mailbox: Mailbox, work: Work, config: Config) -> Errand:
    """Decide about one letter."""
    letter = work.message
    if letter.kind in {TASK_UPDATE, OVERDUE} and (about := _task_about(mailbox, work)) is not None:
        return _of_task(mailbox, letter, about)
    where = _asked_for(mailbox, letter)
    if where is not None:
        return _back_to(where, None)
    session = _session_with(mailbox, letter.sender, letter.thread)
    opened = task_of(mailbox._office, mailbox.name, letter.id) if letter.kind == TASK else None
    home = _home_of_thread(mailbox, work)
    if opened is not None:  # whether it is allowed is part of its admission
        return Errand(what="work", session=session, task=opened, answers=letter.id, home=home)
    if not _is_allowed(mailbox, letter, config):
        return Errand(what="refuse", reason="unauthorized")
    if _lacks_its_task(letter, work.delivery):
        return Errand(what="refuse", reason=NO_TASK)
    wants = manners.wants_answer(letter, work.delivery)
    answers = letter.id if wants else None
    follows = _is_answer_to_us(mailbox, letter)
    return Errand(what="work", session=session, wants_answer=wants, answers=answers, home=home, follows=follows)


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
    office = mailbox._office
    names = service.naming.names_of(office, service.naming.resident(office, peer))
    if len(names) == 1:
        return session_of(peer, thread)
    letters = (found.message for found in office.store.letters(LetterQuery(thread=thread, party=mailbox.name)))
    return session_of(next((letter.sender for letter in letters if letter.sender in names), peer), thread)


def _lacks_its_task(letter: Message, delivery: Delivery) -> bool:
    """Does a letter to us alone call itself a task and open none? Whoever sent it waits for a result."""
    to_us = delivery.kind == "to" and not any(is_broadcast(one.address) for one in letter.recipients)
    return to_us and letter.kind == TASK and (letter.task is None or letter.task.state != TaskState.PENDING)


def _task_about(mailbox: Mailbox, work: Work) -> Standing | None:
    try:
        return service.tasks.find(mailbox._office, mailbox._caller, mailbox.name, work.id)
    except UnknownMessage:
        return None


def _of_task(mailbox: Mailbox, letter: Message, task: Standing) -> Errand:
    if task.giver != mailbox.name:
        return _of_task_received(mailbox, letter, task)
    if letter.kind == TASK_UPDATE and (task.last != letter.id or task.state not in TOLD):
        return DONE  # on the way, or overtaken by a later word
    if letter.kind == OVERDUE and task.is_final:
        return DONE
    where = asked.recall(mailbox._office, mailbox.name, task.letter)
    if where is None:  # given by another program of ours
        return Errand(what="work", session=_session_with(mailbox, letter.sender, letter.thread))
    return _back_to(where, task)


def _of_task_received(mailbox: Mailbox, letter: Message, task: Standing) -> Errand:
    if task.state is TaskState.CANCELED:
        return Errand(what="stop", task=task, home=_home_of_work(mailbox, task))
    if task.is_final or task.last != letter.id:
        return DONE
    session = _session_with(mailbox, task.giver, task.thread)  # the answer to what we asked
    home = _home_of_work(mailbox, task)
    return Errand(what="work", session=session, task=task, answers=task.letter, home=home)


def _home_of_work(mailbox: Mailbox, task: Standing) -> str:
    """Of the gateway that worked on a task: it has its text, and the turn if there is one."""
    lease = service.reading.received(mailbox._office, mailbox.name, task.letter).delivery.lease
    return "" if lease is None else homes.home_of(mailbox._office, mailbox.name, lease.holder)


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
    leases = [found.delivery.lease for found in mailbox._office.store.find(before)]
    return homes.home_of(mailbox._office, mailbox.name, leases[0].holder) if leases and leases[0] else ""


def _asked_for(mailbox: Mailbox, letter: Message) -> asked.Asked | None:
    """Where we asked for what this letter answers, if it comes from whom we wrote to, or from the house. Each is
    let in once; of a task that is over, its own updates have told.
    """
    office, name = mailbox._office, mailbox.name
    where = asked.recall(office, name, letter.in_reply_to)
    if where is None or letter.in_reply_to is None or asked.is_used_up(office, where, letter):
        return None
    task = task_of(office, name, letter.in_reply_to)
    if task is not None and task.is_final:
        return None
    return where if _is_answer_to_us(mailbox, letter) else None


def _is_answer_to_us(mailbox: Mailbox, letter: Message) -> bool:
    """Does it answer a letter that we sent to its sender, whatever that one was called then?"""
    office, name = mailbox._office, mailbox.name
    if letter.in_reply_to is None:
        return False
    try:
        ours = service.sending.known_letter(office, name, letter.in_reply_to)
    except PostroomError:
        return False
    if not service.naming.is_sent_by(office, ours, name):
        return False
    if letter.sender == POSTMASTER:
        return True
    sender = service.naming.resident(office, letter.sender)
    asked_for = service.addressing.routed_to(office, ours).recipients
    return any(same_name(sender, service.naming.resident(office, one.address)) for one in asked_for)


def _back_to(where: asked.Asked, task: Standing | None) -> Errand:
    """Into the session that asked. One of mail goes on with the letter it worked on."""
    if where.channel != OWN_CHANNEL:
        rounds = where.rounds + 1
        return Errand(what="tell", session=where.session, asked=where, task=task, rounds=rounds, home=where.home)
    return Errand(
        what="go_on",
        session=where.session,
        asked=where,
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
