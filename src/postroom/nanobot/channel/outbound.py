"""What leaves the model for our channel: which of it is the last word of a turn, which is new mail, which is
neither.

Reads nanobot's messages by their fields alone, so that it is the same with all its versions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import Invalid
from ...model.names import check_id
from ...store.files.layouts.base import time_or_none
from .config import OWN_CHANNEL
from .post import Caller, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from .post import Post
    from .turns import Turn, Turns


ASKED = "mailbox_asked"  # put into a message by us: who speaks
SENT_AS = "mailbox_id"  # likewise: the id of the letter it becomes, so that a second try sends nothing twice
COLLECTED = "mailbox_collected"  # likewise: it is kept for the end of its turn
TYPE = "mailbox_type"  # put there by local code
TASK = "mailbox_task"
TTL = "mailbox_ttl"
CALLBACK = "mailbox_callback"
_PROGRESS = ("_progress", "_tool_hint", "_tool_events", "_stream_delta", "_stream_end", "_retry_wait")
_ERROR = "Sorry, I encountered an error"
_ERRORS = (_ERROR, "Error calling ", "Error: ")  # what old versions say when a turn failed; new ones have an event
_IN_ITS_PLACE = "[Assistant reply unavailable due to model error.]"  # what they keep of it in the session
_NO_ANSWER = re.compile(  # all versions say it in these words, when the model said nothing, or only called tools
    r"I completed the tool steps but couldn't produce a final answer\. Please try again or narrow the task\."
    r"|I reached the maximum number of tool call iterations \(\d+\) without completing the task\."
    r" You can try breaking the task into smaller steps\."
)


class Message(Protocol):
    """An outbound message of nanobot."""

    channel: str
    chat_id: str
    content: str
    media: list[str]
    metadata: Any  # an object, by nanobot's own word; every message passes here, so nothing is taken for granted


class Context(Protocol):
    """nanobot's word for the turn in which a tool is called."""

    channel: str
    chat_id: str
    session_key: str | None
    metadata: dict[str, Any]


def is_progress(message: Message) -> bool:
    """A hint for people who watch; never mailed."""
    event = getattr(message, "event", None)
    marked = any((message.metadata or {}).get(mark) for mark in _PROGRESS)
    return event is not None or marked or not ((message.content or "").strip() or message.media)


def is_last_word(message: Message) -> bool:
    """Does it end a turn at a person's channel? What was streamed there ends with an event of its own."""
    event = getattr(message, "event", None)
    if event is not None:
        return type(event).__name__ == "StreamedResponseEvent"
    return bool((message.metadata or {}).get("_streamed")) or not is_progress(message)


def letter_in(metadata: Any) -> str | None:
    """The letter that began a turn, as we noted it."""
    ours = metadata.get(OWN_CHANNEL) if isinstance(metadata, dict) else None
    letter = ours.get("id") if isinstance(ours, dict) else None
    return letter if isinstance(letter, str) else None


def caller_from(context: Context | None) -> Caller | None:
    """The conversation in which a tool is called."""
    if context is None or not context.channel:
        return None
    session = context.session_key or f"{context.channel}:{context.chat_id}"
    return Caller(
        channel=context.channel, chat=context.chat_id, session=session, letter=letter_in(context.metadata)
    )


def note(message: Message, context: Context | None, turns: Turns | None, *, collects: bool) -> None:
    """Before it is queued: whoever speaks by a tool is noted, and a last word is awaited.

    What a tool says to the chat of its own turn is part of the answer. With `collects` it is kept until the turn
    is over; where it is not known when that is, nothing may be sent after it, so there it is the last word.
    """
    if is_progress(message):
        return
    if context is not None:
        message.metadata = {**(message.metadata or {}), ASKED: caller_from(context)}
    if turns is None:
        return
    if context is None and letter_in(message.metadata) is None and message.content.startswith(_ERROR):
        _give_back_its_turn(message, turns)
    turn = turn_of(message, turns)
    if turn is None:
        return
    if context is not None and collects:
        turn.parts.append((message.content, tuple(message.media)))
        message.metadata[COLLECTED] = True
    else:
        turn.is_answering = True


def turn_of(message: Message, turns: Turns) -> Turn | None:
    """The turn whose last word this is. By a tool it is one if it goes to the chat of its own turn."""
    letter = letter_in(message.metadata)
    return None if letter is None or message.metadata.get(COLLECTED) else turns.get(letter)


def _give_back_its_turn(message: Message, turns: Turns) -> None:
    """0.2.2 says that it is sorry without saying to whom. One such word comes of each turn that broke: it counts
    for the one of that peer that runs longest.
    """
    turn = turns.first_of(message.chat_id)
    if turn is not None:
        turn.failed = True
        message.metadata = {**(message.metadata or {}), OWN_CHANNEL: {"id": turn.id}}


def place_of(message: Message) -> tuple[str, str]:
    """The channel and the chat that it is for. Old versions say to nobody that a turn broke in which something was
    to be told: to the channel by which it was handed over.
    """
    if message.channel != "system":
        return message.channel, message.chat_id
    channel, _, chat = message.chat_id.partition(":")
    return channel, chat


def is_failure(message: Message | None, kept: str | None) -> bool:
    """Does a nanobot that does not say how a turn ended say by its last word that it failed? It is said in the
    place of an answer, but not kept as one: `kept` is the last answer in the session.
    """
    if message is None:
        return kept == _IN_ITS_PLACE
    if caller_of(message) is not None:  # a tool says it, while the turn goes on
        return False
    return kept == _IN_ITS_PLACE or (message.content.startswith(_ERRORS) and kept != message.content)


def is_no_answer(message: Message) -> bool:
    """Is it nanobot's own word that the model gave no answer?"""
    return caller_of(message) is None and _NO_ANSWER.fullmatch(message.content.strip()) is not None


def last_answer(messages: list[Any]) -> str | None:
    """The last thing the model said in a session, as nanobot keeps it."""
    value = [one for one in messages if isinstance(one, dict) and one.get("role") == "assistant"]
    content = value[-1].get("content") if value else None
    return content if isinstance(content, str) else None


def is_about_turn(message: Message) -> bool:
    """Does it belong to a turn that is settled already? Then it is not mailed again."""
    return letter_in(message.metadata) is not None


def caller_of(message: Message) -> Caller | None:
    caller = (message.metadata or {}).get(ASKED)
    return caller if isinstance(caller, Caller) else None


def outgoing(message: Message, post: Post, warn: Callable[[str], None]) -> Outgoing:
    """New mail. Local code may say that it is a task, its id and when it is due, a lower ttl, and where its answer
    is told. What cannot be done is refused or warned of.
    """
    kind = message.metadata.get(TYPE) or "message"
    if kind not in {"message", "task"}:
        raise Invalid(f"{kind!a} is not a type", field=TYPE, hint="message or task")
    task, most = message.metadata.get(TASK), post.core.limits.hops
    if task is not None and kind != "task":
        warn(f"{TASK} is left out: {TYPE} is not task")
    ttl, callback = _ttl(message.metadata.get(TTL)), _callback(message.metadata.get(CALLBACK))
    if ttl is not None and ttl > most:
        warn(f"{TTL} is {ttl}, and is sent as {most}: it can be lowered, not raised")
    is_retry = SENT_AS in message.metadata
    id = message.metadata.setdefault(SENT_AS, post.new_id())
    return Outgoing(
        to=message.chat_id,
        text=message.content,
        media=tuple(message.media),
        is_task=kind == "task",
        deadline=_deadline(task),
        id=id,
        is_retry=is_retry,
        is_automatic=caller_of(message) is None and TYPE not in message.metadata and callback is None,
        task_id=_task_id(task, warn),
        ttl=None if ttl is None else min(ttl, most),
        callback=callback,
    )


def _ttl(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise Invalid(f"{value!a} is no ttl of a mail that is sent", field=TTL, hint="a whole number from 1 on")


def _callback(value: Any) -> Caller | None:
    """Where local code wants an answer told. It is kept on our side, and stands in no mail."""
    if value is None:
        return None
    fields = value if isinstance(value, dict) else {}
    channel, chat, session = (fields.get(name) for name in ("channel", "chat_id", "session_id"))
    if not (isinstance(channel, str) and channel and isinstance(chat, str) and chat):
        raise Invalid("needs a channel and a chat_id", field=CALLBACK, hint="as text; session_id may be left out")
    return Caller(channel=channel, chat=chat, session=str(session or f"{channel}:{chat}"))


def _task_id(task: Any, warn: Callable[[str], None]) -> str | None:
    if not isinstance(task, dict):
        return None
    for name in sorted(map(str, task.keys() - {"id", "deadline"})):
        if (name, task[name]) != ("state", "pending"):
            warn(f"{TASK}.{name} is left out: a task is given with its id and its deadline")
    return None if task.get("id") is None else check_id(task["id"], f"{TASK}.id")


def _deadline(task: Any) -> datetime | float | None:
    """When a task of local code is due: a time in ISO form, or seconds from now."""
    due = task.get("deadline") if isinstance(task, dict) else None
    if not isinstance(due, str):
        return due
    at = time_or_none(due)
    if at is None:
        raise Invalid(f"{due!a} is no time", field=f"{TASK}.deadline", hint="in ISO form, or seconds from now")
    return at
