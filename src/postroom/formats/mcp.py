"""The codec of MCP: letters, agents and tasks as models get them, and the content of letters that models write.

Field names are camelCase, and empty fields are left out: every model pays for each word. Bodies of letters are
data, and stay in their own fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core.presentation import TAKEN_BACK_NOTICE, UNPROVEN_NOTICE, persons_notice
from ..errors import Invalid
from ..model.codec import to_plain
from ..model.message import content_of, is_typed, payload_to_parts
from ..model.names import PEOPLE
from .inbox import agent_record, present, stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..core.inbox import Messages, NextLetter
    from ..core.messages import Receipt
    from ..core.tasks import FoundTask
    from ..core.work import Claimed, Settled
    from ..model.agent import Agent
    from ..model.message import Message
    from ..model.query import Found
    from ..model.report import Trace


def record(
    letter: Message, *, people: Collection[str] = PEOPLE, taken_back: Collection[str] = (), **more: Any
) -> dict[str, Any]:
    """Return a letter as a model gets it. `people` are the folded names of people, whose letters say so first.

    A letter that is among those taken back says that in place of it.
    """
    notice = persons_notice(letter, people)
    return _without_empty(
        {
            "notice": TAKEN_BACK_NOTICE if letter.id in taken_back else notice,
            "id": letter.id,
            "from": letter.sender,
            "verified": (letter.proven and notice != UNPROVEN_NOTICE) or None,  # left out if it is not
            "subject": letter.subject,
            "content": content_of(letter.parts),
            "threadTag": letter.thread_tag,
            "importance": letter.priority.name.lower(),
            "createdAt": stamp(letter.created_at),
            "inReplyTo": letter.in_reply_to,
            "thread": letter.thread,
            "kind": letter.kind,
            "task": None if letter.task is None else to_plain(asdict(letter.task)),
            **more,
        }
    )


def received(found: Found, *, people: Collection[str] = PEOPLE, **more: Any) -> dict[str, Any]:
    """Return a letter as the owner of the mailbox may see it."""
    return record(found.message.seen_by(found.delivery.mailbox), people=people, **more)


def read_content(body: str | None, content: dict[str, Any] | None) -> str | list[dict[str, Any]]:
    """Return the body of the letter that a model writes: its text, or the parts for its `content`."""
    if content is None:
        return body or ""
    if not is_typed(content):
        raise Invalid("must be an object with a string `type`", field="content")
    return payload_to_parts(content)


def sent(receipt: Receipt) -> dict[str, Any]:
    """Return the result of a tool that sends. `unknown` lists recipients never seen before: new, or misspelt."""
    return present(ok=True, messageId=receipt.id, thread=receipt.thread, unknown=list(receipt.unknown) or None)


def counted(records: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return records of letters with their number."""
    shown = list(records)
    return {**more, "count": len(shown), "messages": shown}


def found_letters(found: Messages, people: Collection[str]) -> dict[str, Any]:
    """Return the letters that a search found."""
    return counted(record(letter, people=people) for letter in found.letters)


def next_letter(found: NextLetter, people: Collection[str]) -> dict[str, Any]:
    """Return the letter that came, null if there is none, and the cursor after it."""
    letter = None if found.letter is None else received(found.letter, people=people)
    return {"message": letter, "cursor": found.cursor}


def claimed(found: Claimed, people: Collection[str]) -> dict[str, Any]:
    """Return claimed letters, each with the token that settles it."""
    held = ((one, one.delivery.lease) for one in found.letters)
    tokens = ((one, lease.token if lease else None) for one, lease in held)
    return counted(received(one, people=people, token=token, leaseSeconds=found.lease) for one, token in tokens)


def trace_record(life: Trace, *, people: Collection[str] = PEOPLE) -> dict[str, Any]:
    """Return a letter with what became of it."""
    stops = [{"agentId": stop.mailbox, "state": str(stop.state)} for stop in life.stops]
    return record(life.message, people=people) | {
        "recipients": stops,
        "replies": [record(reply, people=people) for reply in life.replies],
    }


def settled(found: Settled) -> dict[str, Any]:
    """Return the result of a tool that settles."""
    messages = [{"id": one.message.id, "state": str(one.delivery.state)} for one in found.letters]
    return {"messages": messages} | ({"replyId": found.receipts[0].id} if found.receipts else {})


def agent_row(agent: Agent) -> dict[str, Any]:
    """Return an agent as a row of agent-inbox's list, with what tells whom to ask."""
    card = agent.card
    about = present(description=card.description or None, capabilities=list(card.capabilities) or None)
    return agent_record(agent) | about


def task_record(found: FoundTask) -> dict[str, Any]:
    """Return a task, named by the letter that opened it."""
    task = found.standing
    return _without_empty(
        {
            "id": task.letter,
            "state": str(task.state),
            "giver": task.giver,
            "receiver": task.receiver,
            "thread": task.thread,
            "deadline": to_plain(task.deadline),
            "reason": task.reason,
            "subject": task.subject,
            "is_final": task.is_final,
        }
    )


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "")}
