"""Parameters that several methods share, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from .table import Param

if TYPE_CHECKING:
    from ..mailbox import Mailbox
    from ..room import Room

AGENT = Param("agent_id", "text", "whose mailbox; with a token, the token's agent")
IDS = Param("message_ids", "texts", "ids of letters", required=True)
ID = Param("message_id", "text", "the id of a letter", required=True)
TOKEN = Param("token", "text", "the lease's token, from claim")
LIMIT = Param("limit", "count", "how many at most")
BODY = Param("body", "any", "text, or a list of parts; a file part needs its `bytes`, as base64")
FIELDS = (
    Param("cc", "any", "further recipients"),
    Param("bcc", "any", "recipients that the others do not see"),
    Param("data", "any", "any JSON; becomes a data part"),
    Param("subject", "text", "one line"),
    Param("kind", "text", "an open word, such as question"),
    Param("priority", "any", "low, normal, high or urgent"),
    Param("scope", "text", "the team or project it belongs to"),
    Param("expires", "when", "not offered after this"),
    Param("at", "when", "not delivered before this"),
    Param("thread_tag", "text", "a label for the thread"),
    Param("conversation_id", "text", "the conversation it belongs to"),
    Param("in_reply_to", "text", "the letter it answers"),
    Param("task", "object", "what it says of a task"),
    Param("callback", "object", "echoed, never acted on"),
    Param("context", "object", "of a handoff"),
    Param("attachments", "list", "names of what belongs to it"),
    Param("tags", "list", "labels"),
    Param("metadata", "object", "anything else"),
    Param("key", "text", "the same key again sends nothing twice"),
    Param("letter_id", "text", "only for a letter that has an id already"),
)
WANTED = (
    Param("kinds", "texts", "only these kinds"),
    Param("min_priority", "any", "only from this priority on"),
    Param("sender", "text", "only from this agent"),
    Param("thread", "text", "only of this thread"),
    Param("thread_tag", "text", "only with this label of a thread"),
    Param("tag", "text", "only with this tag"),
    Param("scope", "text", "only of this scope"),
)
_FIELD_NAMES = tuple(param.name for param in FIELDS)
_WANTED_NAMES = tuple(param.name for param in WANTED)

RECEIPT = "id, thread, repeated, unknown, routed, letter"
LETTERS = "letters, each with its delivery"


def box_of(room: Room, said: dict[str, Any], param: str = "agent_id") -> Mailbox:
    """The mailbox that is meant: the one that was named, else the caller's own."""
    name = said.get(param) or room.principal.agent
    if name is None:
        raise Invalid("who are you?", field=param, hint="the name of an agent")
    return room.mailbox(name)


def fields_of(said: dict[str, Any]) -> dict[str, Any]:
    """What was said of a letter, under the library's names."""
    fields = {name: said[name] for name in _FIELD_NAMES if name in said}
    if "letter_id" in fields:
        fields["id"] = fields.pop("letter_id")
    return fields


def wanted_of(said: dict[str, Any]) -> dict[str, Any]:
    """Which letters are wanted."""
    return {name: said[name] for name in _WANTED_NAMES if name in said}


def some(said: dict[str, Any], *names: str) -> dict[str, Any]:
    """Those of these that were said."""
    return {name: said[name] for name in names if name in said}
