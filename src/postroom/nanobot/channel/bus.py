"""nanobot as the reception knows it: what is put on its bus, and what it is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from ...model.codec import to_plain
from . import text as channel_text
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from ...model.message import Message
    from .post import Unpacked
    from .turns import Turn


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """What is put on nanobot's bus."""

    channel: str
    sender: str
    chat: str
    session: str
    content: str
    media: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


class Bus(Protocol):
    @property
    def says_what_is_over(self) -> bool:
        """Does this nanobot say when a turn is over, also one that only tells a person something?"""

    async def hand_over(self, inbound: Inbound) -> None: ...
    async def reaches(self, channel: str) -> bool: ...


class Log(Protocol):
    def info(self, text: str, *args: Any) -> None: ...
    def warning(self, text: str, *args: Any) -> None: ...


def inbound(turn: Turn, unpacked: Unpacked) -> Inbound:
    """The letter of a turn."""
    message, errand = turn.work.message, turn.intent
    nonce = os.urandom(8).hex()
    if errand.what == "work":
        answered = errand.answers is not None
        content = channel_text.work(message, unpacked.text, nonce, answered=answered, task=errand.task)
    else:
        content = channel_text.result(message, unpacked.text, nonce, task=errand.task)
    ours = {"id": message.id, "from": message.sender, "kind": message.kind, "thread": message.thread}
    where = errand.origin if errand.what == "tell" else None
    return Inbound(
        channel="system" if where else OWN_CHANNEL,
        sender=f"{OWN_CHANNEL}:{message.sender}" if where else message.sender,
        chat=f"{where.channel}:{where.chat}" if where else turn.peer,
        session=errand.session,
        content=content,
        media=unpacked.media,
        metadata={OWN_CHANNEL: ours, **_designed(message)},
    )


def _designed(message: Message) -> dict[str, Any]:
    """The letter's fields under the keys of the design. Values are those of the checked letter: nothing that a
    peer wrote becomes a key here, for nanobot obeys some keys.
    """
    return {
        "mailbox_type": message.kind,
        "mailbox_task": None if message.task is None else to_plain(message.task),
        "mailbox_parts": [
            {name: value for name, value in part.to_json().items() if name != "bytes"} for part in message.parts
        ],
        "mailbox_ttl": message.hops,
        "mailbox_trace": list(message.trace),
        "reply_to": message.in_reply_to,
    }


def stop(turn: Turn) -> Inbound:
    """A command of nanobot, in the session of a turn."""
    return Inbound(
        channel=OWN_CHANNEL,
        sender=turn.peer,
        chat=turn.peer,
        session=turn.intent.session,
        content="/stop",
        metadata={OWN_CHANNEL: {"id": turn.id, "stopped": True}},
    )


# Where a nanobot says that a turn is over. It differs with its versions.
#
# From 0.3.5 on the bus for messages does. Before, another does, which is shown to tools alone when they are made.

_SHOWN: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the bus for messages


def note(context: Any) -> None:
    """What a tool is shown when it is made."""
    bus, said_at = getattr(context, "bus", None), getattr(context, "runtime_events", None)
    if bus is not None and said_at is not None:
        _SHOWN[bus] = said_at


def said_at(bus: Any) -> Any | None:
    """Has `subscribe`. None: this nanobot does not say when a turn is over."""
    return bus if hasattr(bus, "subscribe") else _SHOWN.get(bus)
