"""What a command gives back, and the one place where it becomes text: JSON, or what people read.

`data` is what programs rely on; its fields are those of the command table. `view` says the same to people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from ..letter import Letter, Work
from ..model.codec import encode, to_plain
from ..model.delivery import Delivery
from ..model.message import Message
from ..service.present import harmless_json
from ..service.sending import Receipt

SCHEMA = 1  # of every JSON document; grows when a field changes its meaning or goes


class Screen:
    """Where the answer is shown."""

    def __init__(
        self,
        *,
        json: bool,
        tables: bool,
        colour: bool,
        width: int,
        now: datetime,
        caller: str = "",
        room: str = "",
        short: Callable[[str], str] = str,
    ) -> None:
        self.json = json
        self.tables = tables  # a terminal; else Markdown, for a file, a pipe or a prompt
        self.colour = colour
        self.width = width
        self.now = now
        self.caller = caller  # who calls, when the next command must say it again
        self.room = room  # likewise, the room
        self.short = short  # an id as a table shows it


class Answer:
    """One answer. Commands that keep answering give several."""

    def __init__(
        self,
        command: str,
        data: Mapping[str, Any],
        view: Callable[[Screen, Mapping[str, Any]], str],
        *,
        letters: tuple[Message, ...] = (),
        code: int = 0,
    ) -> None:
        self.command = command
        self.data = data
        self.view = view
        self.letters = letters  # as they were accepted, for views that fence them
        self.code = code

    def text(self, screen: Screen) -> str:
        if screen.json:
            said = encode({"schema": SCHEMA, "command": self.command, **self.data})
            return harmless_json(said).decode() + "\n"
        return self.view(screen, {**self.data, "accepted": self.letters})


def sayable(text: str) -> str:
    """A path may hold bytes that are no text; they are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


# -- values of the house as plain JSON, every field always there


def plain_letter(letter: Letter) -> dict[str, Any]:
    """A letter in a mailbox."""
    return plain_message(letter.message) | {"delivery": plain_delivery(letter.delivery)}


def plain_work(work: Work, seconds: float) -> dict[str, Any]:
    """A letter that was claimed, with the proof of it."""
    lease = work.delivery.lease
    return plain_letter(work) | {"token": lease.token if lease else None, "lease_seconds": seconds}


def plain_message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(message))
    plain["priority"] = message.priority.name.lower()
    plain["task"] = None if message.task is None else to_plain(asdict(message.task))
    return plain | {"text": message.text, "thread": message.thread}


def plain_delivery(delivery: Delivery) -> dict[str, Any]:
    """Without the lease's token: it is shown once, to whoever claims."""
    plain: dict[str, Any] = to_plain(asdict(delivery))
    del plain["lease"], plain["priority"], plain["message_id"]
    return plain | {"holder": delivery.lease.holder if delivery.lease else None}


def plain_move(letter: Letter) -> dict[str, Any]:
    """What became of a letter that was settled."""
    held = letter.delivery
    due = to_plain(held.due_at)
    return {
        "id": letter.id,
        "state": str(held.state),
        "attempts": held.attempts,
        "reason": held.reason,
        "due_at": due,
    }


def plain_receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "thread": receipt.thread,
        "repeated": receipt.repeated,
        "unknown": list(receipt.unknown),
        "routed": list(receipt.routed),
        "letter": plain_message(receipt.message),
    }
