"""nanobot as the reception knows it: what is put on its bus, and what it is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from . import wording
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from .enclosures import Unpacked
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
    message, errand = turn.work.message, turn.errand
    nonce = os.urandom(8).hex()
    if errand.what == "work":
        answered = errand.answers is not None
        content = wording.work(message, unpacked.text, nonce, answered=answered, task=errand.task)
    else:
        content = wording.result(message, unpacked.text, nonce, task=errand.task)
    ours = {"id": message.id, "from": message.sender, "kind": message.kind, "thread": message.thread}
    where = errand.asked if errand.what == "tell" else None
    return Inbound(
        channel="system" if where else OWN_CHANNEL,
        sender=f"{OWN_CHANNEL}:{message.sender}" if where else message.sender,
        chat=f"{where.channel}:{where.chat}" if where else turn.peer,
        session=errand.session,
        content=content,
        media=unpacked.media,
        metadata={OWN_CHANNEL: ours},
    )


def stop(turn: Turn) -> Inbound:
    """A command of nanobot, in the session of a turn."""
    return Inbound(
        channel=OWN_CHANNEL,
        sender=turn.peer,
        chat=turn.peer,
        session=turn.errand.session,
        content="/stop",
        metadata={OWN_CHANNEL: {"id": turn.id, "stopped": True}},
    )
