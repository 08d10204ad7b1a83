"""Tasks: give one, find it again, list them. How they move is `task_moves`.

A task is opened by a letter to one agent. The session its giver was asked in is recorded on our side, never in the
letter; nothing here looks at what a peer says of sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import DeadlinePassed, Invalid, TooLarge, UnknownMessage
from ..model.codec import encode
from ..model.delivery import State
from ..model.hashing import blake2b
from ..model.message import TaskNote
from ..model.names import POSTMASTER, check_id
from ..model.query import Query
from ..model.record import SESSION, Record, session_key
from ..model.task import TASK, TaskState, check_state, open_task
from ..model.values import check_label, check_object, check_text
from ..store.base import Put
from .authorize import authorize
from .given import check_count, listed, quoted
from .taskbook import session_of, task_of, tasks_of, was_sent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ..model.task import Standing
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office
    from .sending import Receipt

LARGEST_SESSION = 65_536  # bytes, as JSON
ROLES = {"any": {"giver", "receiver"}, "given": {"giver"}, "received": {"receiver"}}


def give(
    office: Office,
    caller: Principal,
    mailbox: str,
    to: Any,
    body: Any,
    *,
    deadline: Any = None,
    session: Any = None,
    fields: Mapping[str, Any],
) -> Receipt:
    """Open a task: a letter to one agent. The session it is asked for in stays on our side."""
    authorize(caller, "send", mailbox)
    check_own_fields(fields, ("kind", "task"))
    now = office.now().wall
    due = service.compose.check_when(deadline, "deadline", now)
    asked_in = None if session is None else _check_session(office, session)
    post = service.sending.prepare(office, caller, _opening(office, mailbox, to, body, due, fields), now)
    if open_task(post.message) is None:
        raise Invalid("a task is for one agent", field="to", hint="give each its own; others may have a copy (cc)")

    def plan() -> Sequence[Write]:
        if was_sent(office, post.message):
            return [post]
        if due is not None and due <= now:
            raise DeadlinePassed(f"{due.isoformat()} is over already", field="deadline")
        key = session_key(mailbox, post.message.id)
        asked = [] if asked_in is None else [Put(record=Record(kind=SESSION, key=key, value=asked_in))]
        return [*asked, post]

    return service.sending.commit_posts(office, [post], plan)[0]


def _opening(
    office: Office, mailbox: str, to: Any, body: Any, deadline: datetime | None, fields: Mapping[str, Any]
) -> service.compose.Draft:
    """A task is called by its letter's id or, so that giving it again says the same, by its key."""
    id = office.new_id(mailbox) if fields.get("id") is None else check_id(fields["id"], "id")
    key = fields.get("key")
    name = id if key is None else _as_id(check_label(key, "key", 200))
    note = TaskNote(id=name, state=TaskState.PENDING, deadline=deadline)
    own = {"sender": mailbox, "to": to, "body": body, "kind": TASK, "task": note, "id": id}
    return service.compose.Draft(**(dict(fields) | own))


def _as_id(key: str) -> str:
    try:
        return check_id(key, "key")
    except Invalid:  # a key may hold blanks, an id may not
        return f"task-{blake2b(key.encode(), digest_size=16).hexdigest()}"


def _check_session(office: Office, session: Any) -> dict[str, Any]:
    checked = check_object(session, "session", office.limits.max_depth)
    if len(encode(checked)) > LARGEST_SESSION:
        raise TooLarge(f"is over {LARGEST_SESSION} bytes", field="session")
    return checked


def check_own_fields(fields: Mapping[str, Any], own: Sequence[str]) -> None:
    service.compose.check_fields(fields)
    for name in own:
        if name in fields:
            raise Invalid("cannot be chosen for this letter about a task", field=name)


# -- looking


def find(office: Office, caller: Principal, mailbox: str, id: Any) -> Standing:
    """A task that `mailbox` gave or was given, by a letter of it or by what the letters call it."""
    authorize(caller, "task", mailbox)
    check_id(id, "id")
    service.moving.let_time_pass(office, office.now(), (mailbox,))
    task = task_of(office, mailbox, id) or _task_told_of(office, mailbox, id) or _task_called(office, mailbox, id)
    if task is None:
        service.reading.check_spelling(office, mailbox)
        raise UnknownMessage(f"no task {id!r} in {mailbox!r}", field="id")
    if mailbox != task.giver:
        service.reading.received(office, mailbox, task.letter)  # not before it has come
    return task


def _task_told_of(office: Office, mailbox: str, id: str) -> Standing | None:
    """The task a later letter is about. Our own book decides, by what it answers, not what is written in it."""
    try:
        letter = service.sending.known_letter(office, mailbox, id)
    except UnknownMessage:
        return None
    for above in (letter.in_reply_to, letter.thread_id):
        task = None if above is None else task_of(office, mailbox, above)
        parties = set() if task is None else {task.giver, task.receiver, POSTMASTER}
        if service.naming.resident(office, letter.sender) in parties:
            return task
    return None


def _task_called(office: Office, mailbox: str, id: str) -> Standing | None:
    called = [task for task in tasks_of(office, mailbox) if task.id == id]
    if len(called) > 1:
        raise Invalid(f"{len(called)} tasks are called so", field="id", hint="give the id of the opening letter")
    return called[0] if called else None


def list_tasks(
    office: Office, caller: Principal, mailbox: str, *, role: Any, states: Any, limit: Any
) -> list[Standing]:
    """Tasks given or received, those that moved last first."""
    authorize(caller, "task", mailbox)
    if not isinstance(role, str) or role not in ROLES:
        raise Invalid(f"{quoted(role)} is not a role", field="role", hint=", ".join(ROLES))
    wanted = {_check_word(word) for word in listed(states, "states")} if states is not None else set(TaskState)
    most = check_count(limit, "limit")
    service.moving.let_time_pass(office, office.now(), (mailbox,))
    to_come = Query(mailbox=mailbox, states=(State.QUEUED,), kinds=(TASK,))
    hidden = {
        found.message.id
        for found in office.store.find(to_come)
        if not service.naming.is_sent_by(office, found.message, mailbox)
    }
    found = [
        task
        for task in tasks_of(office, mailbox)
        if task.state in wanted and ROLES[role] & set(task.roles_of(mailbox)) and task.letter not in hidden
    ]
    if not found:
        service.reading.check_spelling(office, mailbox)
    return sorted(found, key=lambda task: task.moved_at, reverse=True)[:most]


def _check_word(word: Any) -> TaskState:
    return check_state(check_text(word, "states", 64), "states")


def session(office: Office, caller: Principal, mailbox: str, letter: str) -> dict[str, Any] | None:
    """Where `mailbox` was asked for a task it gave; None for any other."""
    authorize(caller, "task", mailbox)
    return session_of(office, mailbox, letter)
