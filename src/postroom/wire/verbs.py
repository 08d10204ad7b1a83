"""Our own verbs for sending and reading, over any wire. Each says what the library's verb of that name says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Invalid
from ..mailbox import draft
from ..model.codec import to_plain
from ..model.handoff import Handoff
from .plain import plain_letter, plain_message, plain_receipt, plain_tally, plain_trace
from .saying import (
    AGENT,
    BODY,
    FIELDS,
    ID,
    IDS,
    LETTERS,
    LIMIT,
    RECEIPT,
    WANTED,
    box_of,
    fields_of,
    some,
    wanted_of,
)
from .table import LONGEST_WAIT, Method, Param

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..mailbox import Mailbox
    from ..model.message import Message
    from ..room import Room

TO = Param("to", "any", "a name, or a list of names", required=True)
TO_OR_REPLY = Param("to", "any", "a name, or a list of names; without it, the sender of the letter in in_reply_to")
SINCE = Param("since", "text", "a cursor: what came after it, read or not, so that nothing is missed")
TIMEOUT = Param("timeout", "seconds", f"how long to wait; {LONGEST_WAIT:g} at most, 30 when nothing is said")

# -- sending


def _send(room: Room, said: dict[str, Any]) -> Any:
    return plain_receipt(box_of(room, said).send(said.get("to"), said.get("body"), **fields_of(said)))


def _send_many(room: Room, said: dict[str, Any]) -> Any:
    drafts = []
    for place, one in enumerate(said["drafts"]):
        if not isinstance(one, dict) or one.keys().isdisjoint({"to", "in_reply_to"}):
            raise Invalid("must be an object with at least `to` or `in_reply_to`", field=f"drafts[{place}]")
        fields = {name: value for name, value in one.items() if name not in {"to", "body"}}
        drafts.append(draft(one.get("to"), one.get("body"), **fields))
    return {"receipts": [plain_receipt(receipt) for receipt in box_of(room, said).send_many(drafts)]}


def _reply(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    sent = box.reply(said["message_id"], said.get("body"), **some(said, "to_all"), **fields_of(said))
    return plain_receipt(sent)


def _forward(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    return plain_receipt(box.forward(said["message_id"], said["to"], said.get("body"), **fields_of(said)))


def _broadcast(room: Room, said: dict[str, Any]) -> Any:
    fields = fields_of(said)
    scope = fields.pop("scope")
    return plain_receipt(box_of(room, said).broadcast(scope, said.get("body"), **some(said, "exclude"), **fields))


def _handoff(room: Room, said: dict[str, Any]) -> Any:
    told = said["handoff"]
    unknown = told.keys() - set(Handoff.__struct_fields__)
    if unknown:
        hint = ", ".join(Handoff.__struct_fields__)
        raise Invalid("a handoff has no such field", field=f"handoff.{min(unknown)}", hint=hint)
    try:
        handoff = msgspec.convert(told, Handoff)
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field="handoff", hint="say at least work_completed") from None
    return plain_receipt(box_of(room, said).handoff(said["to"], handoff, **fields_of(said)))


def _send_template(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    return plain_receipt(box.send_template(said["to"], said["name"], said.get("values"), **fields_of(said)))


def _unsend(room: Room, said: dict[str, Any]) -> Any:
    return {"letter": plain_message(box_of(room, said).unsend(said["message_id"]))}


def _sent(room: Room, said: dict[str, Any]) -> Any:
    return _letters(box_of(room, said).sent(**some(said, "limit")))


# -- reading


def _check(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    found = box.check(said.get("limit", 20), **some(said, "unread_only", "peek"), **wanted_of(said))
    return {"mailbox": box.name, "letters": [plain_letter(letter) for letter in found]}


def _read(room: Room, said: dict[str, Any]) -> Any:
    return {"letter": plain_letter(box_of(room, said).read(said["message_id"]))}


def _shown(room: Room, said: dict[str, Any]) -> Any:
    return {"shown": box_of(room, said).mark_shown(said["message_ids"], said["host"], said.get("where", ""))}


def _counts(room: Room, said: dict[str, Any]) -> Any:
    box = box_of(room, said)
    return {"mailbox": box.name, **box.counts()}


def _wait(room: Room, said: dict[str, Any]) -> Any:
    """One look; whoever calls waits until there is something."""
    now = said.get("since") or str(room.cursor())  # before the look: what comes in between is seen by the next
    found = box_of(room, said).wait(0, **some(said, "since", "peek"), **wanted_of(said))
    if found is None:
        return {"letter": None, "cursor": now}
    return {"letter": plain_letter(found), "cursor": str(found.cursor)}


def _search(room: Room, said: dict[str, Any]) -> Any:
    return _letters(box_of(room, said).search(said["query"], **some(said, "limit", "ranked")))


def _digest(room: Room, said: dict[str, Any]) -> Any:
    return {"text": box_of(room, said).digest(**some(said, "budget", "most", "longest"))}


def _thread(room: Room, said: dict[str, Any]) -> Any:
    return _letters(_view(room, said).thread(said["thread"]))


def _tagged(room: Room, said: dict[str, Any]) -> Any:
    return _letters(_view(room, said).tagged(said["tag"], said.get("scope")))


def _view(room: Room, said: dict[str, Any]) -> Room | Mailbox:
    """A mailbox and what it sent or got; or everything, where an operator names none."""
    return room if "agent_id" not in said and room.principal.operator else box_of(room, said)


def _threads(room: Room, said: dict[str, Any]) -> Any:
    return {"threads": to_plain(box_of(room, said).threads(**some(said, "limit")))}


def _stats(room: Room, said: dict[str, Any]) -> Any:
    return plain_tally(box_of(room, said).stats())


def _trace(room: Room, said: dict[str, Any]) -> Any:
    return plain_trace(box_of(room, said).trace(said["message_id"]))


def _letters(found: Sequence[Message]) -> dict[str, Any]:
    return {"letters": [plain_message(message) for message in found]}


def nothing_came(answer: Any) -> bool:
    """Of a method that waits: is there nothing yet?"""
    return not (answer.get("letter") or answer.get("letters"))


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    said = {"action": "send", "whose": "agent_id"} | more
    return Method(name=name, about=about, run=run, params=(AGENT, *params), result=result, **said)


_LOOKS: dict[str, Any] = {"action": "check", "writes": False}
ROWS = (
    _row("send", "send a letter to one or many", _send, TO_OR_REPLY, BODY, *FIELDS, result=RECEIPT),
    _row(
        "send_many",
        "send several letters in one commit: all or none",
        _send_many,
        Param("drafts", "list", "letters as objects: to, body and the fields of send", required=True),
        result="receipts",
    ),
    _row(
        "reply",
        "answer a letter; thread, subject and scope are kept",
        _reply,
        ID,
        BODY,
        Param("to_all", "flag", "to everyone who got it"),
        *FIELDS,
        result=RECEIPT,
    ),
    _row("forward", "pass a letter on", _forward, ID, TO, BODY, *FIELDS, result=RECEIPT),
    _row(
        "broadcast",
        "one letter to everyone registered in a scope",
        _broadcast,
        BODY,
        Param("exclude", "list", "who is left out"),
        *(Param("scope", "text", "whose members get it", required=True) if p.name == "scope" else p for p in FIELDS),
        result=RECEIPT,
        wide=True,
    ),
    _row(
        "handoff",
        "hand work over, with all its context",
        _handoff,
        TO,
        Param("handoff", "object", "work_completed, current_state, next_steps and so on", required=True),
        *FIELDS,
        result=RECEIPT,
    ),
    _row(
        "send_template",
        "send a letter made from a template",
        _send_template,
        TO,
        Param("name", "text", "the template", required=True),
        Param("values", "object", "a value for each of its places"),
        *FIELDS,
        result=RECEIPT,
    ),
    _row("unsend", "take a letter back while nobody has claimed it", _unsend, ID, result="letter", action="unsend"),
    _row("sent", "what was sent here, the newest first", _sent, LIMIT, result="letters", action="search", slow=True,
         writes=False),
    _row(
        "check",
        "the inbox: unread first, by priority, then age; stamps what it returns as read",
        _check,
        LIMIT,
        Param("unread_only", "flag", "true when nothing is said"),
        Param("peek", "flag", "stamp nothing"),
        *WANTED,
        result=f"mailbox, {LETTERS}",
        action="check",
        many=True,
    ),
    _row("read", "one letter, stamped as read", _read, ID, result="letter", action="read"),
    _row("shown", "letters were put before the agent's model; stamps them as read", _shown, IDS,
         Param("host", "text", "in what, such as claude", required=True),
         Param("where", "text", "at what occasion"), result="shown", action="show"),
    _row("counts", "unread letters by priority and in total", _counts, result="mailbox, urgent, high, normal, low, "
         "total", action="count", writes=False),
    _row(
        "wait",
        "the next unread letter, as soon as there is one; with a cursor, the next that came after it",
        _wait,
        TIMEOUT,
        SINCE,
        Param("peek", "flag", "stamp nothing"),
        *WANTED,
        result="letter (null when the time is up), cursor (for the next call)",
        action="wait",
        empty=nothing_came,
        waits=30.0,
    ),
    _row("search", "letters sent or received here, by what they say", _search, Param("query", "text",
         "words, phrases, from: to: tag: kind: thread: before: after:", required=True), LIMIT,
         Param("ranked", "flag", "the best first, not the newest"), result="letters", action="search", slow=True,
         writes=False),
    _row("digest", "the unread mail as text for a prompt, in a fence; marks nothing", _digest,
         Param("budget", "count", "characters at most"), Param("most", "count", "letters at most"),
         Param("longest", "count", "characters of one letter at most"), result="text", **_LOOKS),
    _row("thread", "the letters of a thread", _thread, Param("thread", "text", "its id, that of its first letter",
         required=True), result="letters", action="threads", many=True, writes=False),
    _row("tagged", "the letters with a thread tag", _tagged, Param("tag", "text", "the tag", required=True),
         Param("scope", "text", "only of this scope"), result="letters", action="threads", many=True, writes=False),
    _row("threads", "threads with replies, the most recently active first", _threads, LIMIT, result="threads",
         action="threads", slow=True, writes=False),
    _row("stats", "a mailbox in numbers", _stats, result="mailbox, unread, seen, claimed, queued, dead and so on",
         action="count", writes=False),
    _row("trace", "the life of a letter", _trace, ID, result="letter, stops, replies, relays, bounces",
         action="trace", many=True, writes=False),
)  # fmt: skip
