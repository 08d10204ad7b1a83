"""nanobot's message bus: the messages that the channel puts on it, those that come from the model, and its events.

An outbound message is the final answer of a turn, new mail, or neither. The messages of nanobot are read by their
fields alone, so this works with all versions.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from ...errors import Invalid
from ...formats.nanobot import TYPE, bus_fields, read_bus_fields
from . import text as channel_text
from .config import OWN_CHANNEL
from .post import Outgoing, ToolCaller

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .post import AgentPost
    from .text import Unpacked
    from .turns import ModelTurn, Turns


# -- to the model


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A message for nanobot's bus."""

    channel: str
    sender: str
    chat: str
    session: str
    content: str
    media: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


class Bus(Protocol):
    @property
    def reports_turn_ends(self) -> bool:
        """True if this nanobot announces the end of every turn, also of one that only reports to a person."""

    async def hand_over(self, inbound: Inbound) -> None: ...
    async def reaches(self, channel: str) -> bool: ...


class Logger(Protocol):
    def info(self, text: str, *args: Any) -> None: ...
    def warning(self, text: str, *args: Any) -> None: ...


def inbound(turn: ModelTurn, unpacked: Unpacked, people: Collection[str]) -> Inbound:
    """Return the message that hands the letter of a turn to nanobot; `people` as `people_names` returns them."""
    message, intent = turn.work.message, turn.intent
    # Drawn for each letter: a peer that has seen one fence cannot close the next.
    nonce = os.urandom(8).hex()
    if intent.action == "work":
        answered = intent.answers is not None
        content = channel_text.work(
            message, unpacked.text, nonce, answered=answered, task=intent.task, people=people
        )
    else:
        content = channel_text.result(message, unpacked.text, nonce, task=intent.task, people=people)
    origin = intent.origin if intent.action == "report" else None
    return Inbound(
        channel="system" if origin else OWN_CHANNEL,
        sender=f"{OWN_CHANNEL}:{message.sender}" if origin else message.sender,
        chat=f"{origin.channel}:{origin.chat}" if origin else turn.peer,
        session=intent.session,
        content=content,
        media=unpacked.media,
        metadata=bus_fields(message),
    )


def stop(turn: ModelTurn) -> Inbound:
    """Return nanobot's command `/stop` for the session of a turn."""
    return Inbound(
        channel=OWN_CHANNEL,
        sender=turn.peer,
        chat=turn.peer,
        session=turn.intent.session,
        content="/stop",
        metadata={OWN_CHANNEL: {"id": turn.id, "stopped": True}},
    )


# -- from the model

# Keys in the metadata of a message. The channel itself sets:
CALLER = "mailbox_asked"  # the conversation that sends it
SENT_AS = "mailbox_id"  # the id of the letter it becomes, so that a retry sends nothing twice
COLLECTED = "mailbox_collected"  # it is kept for the end of its turn
# Local code sets, besides those of `formats/nanobot.py`:
CALLBACK = "mailbox_callback"
_PROGRESS = ("_progress", "_tool_hint", "_tool_events", "_stream_delta", "_stream_end", "_retry_wait")
_ERROR = "Sorry, I encountered an error"
_ERRORS = (_ERROR, "Error calling ", "Error: ")  # old versions send these if a turn failed; new ones have an event
_STORED_ERROR = "[Assistant reply unavailable due to model error.]"  # old versions store this in the session then
_NO_ANSWER = re.compile(  # all versions send one of these if the model gave no text, or only called tools
    r"I completed the tool steps but couldn't produce a final answer\. Please try again or narrow the task\."
    r"|I reached the maximum number of tool call iterations \(\d+\) without completing the task\."
    r" You can try breaking the task into smaller steps\."
)


class BusMessage(Protocol):
    """An outbound message of nanobot."""

    channel: str
    chat_id: str
    content: str
    media: list[str]
    metadata: Any  # nanobot declares a dict; any plugin's message passes here, so each use checks it


class RequestContext(Protocol):
    """nanobot's request context: the turn in which a tool is called."""

    channel: str
    chat_id: str
    session_key: str | None
    metadata: dict[str, Any]


def is_progress(message: BusMessage) -> bool:
    """Return whether a message only shows progress to people who watch; it is never mailed."""
    event = getattr(message, "event", None)
    marked = any((message.metadata or {}).get(mark) for mark in _PROGRESS)
    return event is not None or marked or not ((message.content or "").strip() or message.media)


def is_last_word(message: BusMessage) -> bool:
    """Return whether a message ends a turn in a person's channel. A streamed answer ends with its own event."""
    event = getattr(message, "event", None)
    if event is not None:
        return type(event).__name__ == "StreamedResponseEvent"
    return bool((message.metadata or {}).get("_streamed")) or not is_progress(message)


def letter_in(metadata: Any) -> str | None:
    """Return the id of the letter that began a turn, from the metadata that the channel set."""
    ours = metadata.get(OWN_CHANNEL) if isinstance(metadata, dict) else None
    letter = ours.get("id") if isinstance(ours, dict) else None
    return letter if isinstance(letter, str) else None


def caller_from(context: RequestContext | None) -> ToolCaller | None:
    """Return the conversation in which a tool is called."""
    if context is None or not context.channel:
        return None
    session = context.session_key or f"{context.channel}:{context.chat_id}"
    return ToolCaller(
        channel=context.channel, chat=context.chat_id, session=session, letter=letter_in(context.metadata)
    )


def note_message(
    message: BusMessage, context: RequestContext | None, turns: Turns | None, *, collects: bool
) -> None:
    """Mark a message before it is queued: the calling conversation of a tool, and a turn whose answer comes.

    A tool's message to the chat of its own turn is part of the answer. With `collects` it is kept until the turn
    is over. Where the end of a turn is not announced, nothing may be sent later, so the message is the final
    answer.
    """
    if is_progress(message):
        return
    if context is not None:
        message.metadata = {**(message.metadata or {}), CALLER: caller_from(context)}
    if turns is None:
        return
    if context is None and letter_in(message.metadata) is None and message.content.startswith(_ERROR):
        _assign_error(message, turns)
    turn = turn_of(message, turns)
    if turn is None:
        return
    if context is not None and collects:
        turn.parts.append((message.content, tuple(message.media)))
        message.metadata[COLLECTED] = True
    else:
        turn.is_answering = True


def turn_of(message: BusMessage, turns: Turns) -> ModelTurn | None:
    """Return the turn whose final answer this is. A tool's message counts if it goes to the chat of its turn."""
    letter = letter_in(message.metadata)
    return None if letter is None or message.metadata.get(COLLECTED) else turns.get(letter)


def _assign_error(message: BusMessage, turns: Turns) -> None:
    """Assign an error message to a turn.

    nanobot 0.2.2 sends one for each failed turn without naming the turn: it counts for the longest turn of that
    peer.
    """
    turn = turns.first_of(message.chat_id)
    if turn is not None:
        turn.failed = True
        message.metadata = {**(message.metadata or {}), OWN_CHANNEL: {"id": turn.id}}


def place_of(message: BusMessage) -> tuple[str, str]:
    """Return the channel and the chat that a message is for. If a turn with a report fails, old versions address
    the error to `system`, the channel by which the turn was handed over, with the real place in `chat_id`.
    """
    if message.channel != "system":
        return message.channel, message.chat_id
    channel, _, chat = message.chat_id.partition(":")
    return channel, chat


def is_failure(message: BusMessage | None, kept: str | None) -> bool:
    """Return whether a final message of an old nanobot means that the turn failed. Such an error is sent instead
    of an answer, but not stored as one: `kept` is the last answer in the session.
    """
    if message is None:
        return kept == _STORED_ERROR
    if caller_of(message) is not None:  # a tool sent it; the turn goes on
        return False
    return kept == _STORED_ERROR or (message.content.startswith(_ERRORS) and kept != message.content)


def is_no_answer(message: BusMessage) -> bool:
    """Return whether it is nanobot's own notice that the model gave no answer."""
    return caller_of(message) is None and _NO_ANSWER.fullmatch(message.content.strip()) is not None


def last_answer(messages: list[Any]) -> str | None:
    """Return the last answer of the model in a session, as nanobot stores it."""
    answers = [one for one in messages if isinstance(one, dict) and one.get("role") == "assistant"]
    content = answers[-1].get("content") if answers else None
    return content if isinstance(content, str) else None


def is_about_turn(message: BusMessage) -> bool:
    """Return whether it belongs to a turn, though a settled one; then it is not mailed again."""
    return letter_in(message.metadata) is not None


def caller_of(message: BusMessage) -> ToolCaller | None:
    caller = (message.metadata or {}).get(CALLER)
    return caller if isinstance(caller, ToolCaller) else None


def outgoing(message: BusMessage, post: AgentPost, warn: Callable[[str], None]) -> Outgoing:
    """Return the new mail in a message. Local code may make it a task with an id and a deadline, lower its ttl,
    and name the conversation for its answer.
    """
    fields = read_bus_fields(message.metadata, post.core.limits.hops, warn)
    callback = _callback(message.metadata.get(CALLBACK))
    is_retry = SENT_AS in message.metadata
    return Outgoing(
        to=message.chat_id,
        text=message.content,
        media=tuple(message.media),
        is_task=fields.is_task,
        deadline=fields.deadline,
        id=message.metadata.setdefault(SENT_AS, post.new_id()),
        is_retry=is_retry,
        is_automatic=caller_of(message) is None and TYPE not in message.metadata and callback is None,
        task_id=fields.task_id,
        ttl=fields.ttl,
        callback=callback,
    )


def _callback(value: Any) -> ToolCaller | None:
    """Return the conversation for the answer. It is stored on our side and stands in no mail."""
    if value is None:
        return None
    fields = value if isinstance(value, dict) else {}
    channel, chat, session = (fields.get(name) for name in ("channel", "chat_id", "session_id"))
    if not (isinstance(channel, str) and channel and isinstance(chat, str) and chat):
        raise Invalid(
            "needs a channel and a chat_id", field=CALLBACK, hint="give both as text; session_id is optional"
        )
    return ToolCaller(channel=channel, chat=chat, session=str(session or f"{channel}:{chat}"))


# -- nanobot's events
#
# From 0.3.5 on, the message bus announces the end of turns. Before, another object does, which nanobot passes only
# to tools when it creates them.

_EVENT_SOURCES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # message bus → source of events


def note_source(context: Any) -> None:
    """Remember the source of events in the context with which nanobot creates a tool."""
    bus, source = getattr(context, "bus", None), getattr(context, "runtime_events", None)
    if bus is not None and source is not None:
        _EVENT_SOURCES[bus] = source


def event_source(bus: Any) -> Any | None:
    """Return the object with `subscribe`, or None if this nanobot does not announce the end of turns."""
    return bus if hasattr(bus, "subscribe") else _EVENT_SOURCES.get(bus)
