"""The seam between `Reception` and nanobot: the messages put on nanobot's bus, and the source of its events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from ...formats.nanobot import bus_fields
from . import text as channel_text
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Collection

    from .post import Unpacked
    from .turns import ModelTurn


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


# -- nanobot's events
#
# From 0.3.5 on, the message bus announces the end of turns. Before, another object does, which nanobot passes only
# to tools when it creates them.

_EVENT_SOURCES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # message bus → source of events


def note(context: Any) -> None:
    """Remember the source of events in the context with which nanobot creates a tool."""
    bus, source = getattr(context, "bus", None), getattr(context, "runtime_events", None)
    if bus is not None and source is not None:
        _EVENT_SOURCES[bus] = source


def event_source(bus: Any) -> Any | None:
    """Return the object with `subscribe`, or None if this nanobot does not announce the end of turns."""
    return bus if hasattr(bus, "subscribe") else _EVENT_SOURCES.get(bus)
