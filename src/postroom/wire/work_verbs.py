"""Our own verbs for mail that is worked on: leases, dead letters, tasks, questions that climb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from .plain import plain_escalation, plain_letter, plain_message, plain_move, plain_receipt, plain_task, plain_work
from .saying import AGENT, BODY, FIELDS, ID, IDS, LIMIT, RECEIPT, TOKEN, WANTED, box_of, fields_of, some, wanted_of
from .table import LONGEST_WAIT, Method, Param
from .verbs import nothing_came

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..letter import Letter
    from ..mailbox import Mailbox
    from ..room import Room

REASON = Param("reason", "text", "why", required=True)
# What can be said of a task, and the parameter that says it: its name in the library's verb.
STEPS = {
    "accept": "body", "start": "body", "complete": "body", "ask": "body", "answer": "body",
    "reject": "reason", "fail": "reason", "cancel": "reason",
}  # fmt: skip

# -- leases


def _claim(room: Room, said: dict[str, Any]) -> Any:
    """One try; whoever calls waits until there is something."""
    lease = said.get("lease", room.settings.lease)
    claimed = box_of(room, said).claim(
        said.get("count", 1), lease=lease, **some(said, "holder"), **wanted_of(said)
    )
    return {"letters": [plain_work(work, lease) for work in claimed]}


def _ack(room: Room, said: dict[str, Any]) -> Any:
    box, ids = box_of(room, said), said["message_ids"]
    if "reply" not in said:
        return _settle(room, said, lambda box, letters: box.ack(letters, **_archive(said)))
    if len(ids) != 1:
        raise Invalid("is sent with the ack of one letter", field="reply")
    held = _found(box, ids, said.get("token"))[0]
    receipt = held.ack_and_reply(said["reply"], **some(said, "to_all"), **_archive(said))
    return {"letters": [plain_move(held)], "receipts": [plain_receipt(receipt)]}


def _archive(said: dict[str, Any]) -> dict[str, Any]:
    return {"archive": not said.get("keep", False)}


def _fail(room: Room, said: dict[str, Any]) -> Any:
    return _settle(room, said, lambda box, letters: box.fail(letters, said["reason"], **some(said, "retry")))


def _reject(room: Room, said: dict[str, Any]) -> Any:
    return _settle(room, said, lambda box, letters: box.reject(letters, said["reason"]))


def _release(room: Room, said: dict[str, Any]) -> Any:
    return _settle(room, said, lambda box, letters: box.release(letters))


def _renew(room: Room, said: dict[str, Any]) -> Any:
    return _settle(room, said, lambda box, letters: box.renew(letters, said.get("lease")))


def _settle(room: Room, said: dict[str, Any], step: Callable[[Mailbox, Sequence[Letter]], None]) -> Any:
    """All letters that are named, in one commit: all or none."""
    box = box_of(room, said)
    letters = _found(box, said["message_ids"], said.get("token"))
    step(box, letters)
    return {"letters": [plain_move(letter) for letter in letters], "receipts": []}


def _found(box: Mailbox, ids: Sequence[str], token: str | None) -> list[Letter]:
    return [box.held(id, token) if token else box.read(id) for id in dict.fromkeys(ids)]


# -- dead letters


def _dead(room: Room, said: dict[str, Any]) -> Any:
    return {"letters": [plain_letter(letter) for letter in box_of(room, said).dead(said.get("limit"))]}


def _revive(room: Room, said: dict[str, Any]) -> Any:
    return {"letters": [plain_move(letter) for letter in box_of(room, said).revive(*said["message_ids"])]}


def _purge_dead(room: Room, said: dict[str, Any]) -> Any:
    return {"purged": box_of(room, said).purge(*said["message_ids"])}


# -- tasks


def _give_task(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    given = box.give_task(said["to"], said.get("body"), **some(said, "deadline", "session"), **fields_of(said))
    return plain_receipt(given)


def _task(room: Room, said: dict[str, Any]) -> Any:
    task = box_of(room, said).task(said["message_id"])
    return {"task": plain_task(task), "letters": [plain_message(letter) for letter in task.letters()]}


def _tasks(room: Room, said: dict[str, Any]) -> Any:
    found = box_of(room, said).tasks(said.get("role", "any"), **some(said, "states", "limit"))
    return {"tasks": [plain_task(task) for task in found]}


def _task_step(room: Room, said: dict[str, Any]) -> Any:
    step, box = said["step"], box_of(room, said)
    if step not in STEPS:
        raise Invalid(f"{step!a} is no step of a task", field="step", hint=", ".join(STEPS))
    other = "reason" if STEPS[step] == "body" else "body"
    if other in said:
        raise Invalid(f"{step} takes a {STEPS[step]}", field=other)
    token = said.get("token")
    task = box.task(box.held(said["message_id"], token) if token else said["message_id"])
    words = [said[STEPS[step]]] if STEPS[step] in said else []
    if not words and step in {"ask", "answer", "reject", "fail"}:
        raise Invalid("is missing", field=STEPS[step])
    receipt = getattr(task, step)(*words, **fields_of(said))
    return {"task": plain_task(task), "receipt": plain_receipt(receipt)}


# -- questions


def _escalate(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    asked = box.escalate(said.get("body"), reason=said["reason"], **some(said, "ladder"), **fields_of(said))
    return plain_receipt(asked)


def _escalations(room: Room, said: dict[str, Any]) -> Any:
    found = box_of(room, said).escalations(**some(said, "open_only"))
    return {"escalations": [plain_escalation(one) for one in found]}


def _resolve(room: Room, said: dict[str, Any]) -> Any:
    return {"escalation": plain_escalation(box_of(room, said).resolve(said["escalation_id"]))}


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    said = {"action": "settle", "whose": "agent_id"} | more
    return Method(name=name, about=about, run=run, params=(AGENT, *params), result=result, **said)


_MOVED = "letters (id, state, attempts, reason, due_at), receipts"
_TASK: dict[str, Any] = {"action": "task"}
ROWS = (
    _row(
        "claim",
        "take letters under a lease: nobody else gets them meanwhile",
        _claim,
        Param("count", "count", "how many; 1 when nothing is said"),
        Param("lease", "seconds", "how long you need"),
        Param("holder", "text", "who holds it, for people"),
        Param("timeout", "seconds", f"how long to wait; {LONGEST_WAIT:g} at most, 0 when nothing is said"),
        *WANTED,
        result="letters, each with its token and lease_seconds",
        action="claim",
        empty=nothing_came,
    ),
    _row("ack", "done with these; with a reply, both in one commit", _ack, IDS, TOKEN,
         Param("reply", "any", "an answer to its sender"), Param("to_all", "flag", "the answer goes to everyone"),
         Param("keep", "flag", "do not archive"), result=_MOVED),
    _row("fail", "this try failed; they are offered again later", _fail, IDS, TOKEN, REASON,
         Param("retry", "flag", "false: dead at once"), result=_MOVED),
    _row("reject", "refuse them; their senders are told why", _reject, IDS, TOKEN, REASON, result=_MOVED),
    _row("release", "give them back, as if they had never been claimed", _release, IDS, TOKEN, result=_MOVED),
    _row("renew", "hold on to them for longer", _renew, IDS, TOKEN, Param("lease", "seconds", "counted from now"),
         result=_MOVED),
    _row("dead", "dead letters, with the reason", _dead, LIMIT, result="letters", action="dead", many=True,
         writes=False),
    _row("revive", "dead letters back into the inbox", _revive, IDS, result="letters", action="revive"),
    _row("purge_dead", "delete dead letters for good", _purge_dead, IDS, result="purged", action="purge"),
    _row("give_task", "give one agent a task", _give_task, Param("to", "address", "who does it", required=True), BODY,
         Param("deadline", "when", "when it must be over"), Param("session", "object", "where you were asked for it; "
         "stays here"), *(p for p in FIELDS if p.name != "task"), result=RECEIPT, action="send"),
    _row("task", "how a task stands", _task, ID, result="task, letters", action="task", many=True, writes=False),
    _row("tasks", "tasks given or received here", _tasks, Param("role", "text", "given, received or any"),
         Param("states", "texts", "only in these states"), LIMIT, result="tasks", action="task", many=True,
         writes=False),
    _row("task_step", "move a task by one step", _task_step, ID, Param("step", "text", ", ".join(STEPS),
         required=True), TOKEN, BODY, Param("reason", "text", "of reject, fail and cancel"),
         *(p for p in FIELDS if p.name != "task"), result="task, receipt", **_TASK),
    _row("escalate", "ask the one who stands above you", _escalate, BODY, Param("reason", "text",
         "an open word, such as blocked", required=True), Param("ladder", "list", "who is asked, the lowest first"),
         *FIELDS, result=RECEIPT, action="send"),
    _row("escalations", "questions that were escalated here", _escalations, Param("open_only", "flag",
         "true when nothing is said"), result="escalations", action="escalations", many=True,
         writes=False),
    _row("resolve", "close a question", _resolve, Param("escalation_id", "text", "its id", required=True),
         result="escalation", action="escalations"),
)  # fmt: skip
