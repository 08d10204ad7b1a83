"""What happened in a room, numbered, and the cursor that says up to where one has seen it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import Invalid
from .delivery import State
from .names import check_agent, check_id

What = Literal["posted", "moved", "put", "forgot"]


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact. A broadcast is one, not one per recipient."""

    number: int
    what: What
    message_id: str | None = None
    mailbox: str | None = None  # of a move
    state: State | None = None  # after a move
    kind: str | None = None  # of a record
    key: str | None = None


class Cursor(Struct, frozen=True):
    """Opaque to its holder. An old epoch is answered with Resync, never with a wrong list."""

    store: str
    epoch: str
    number: int
    mailbox: str = ""  # of a reader of several: up to and with this one, at this number

    def __str__(self) -> str:
        text = f"{self.store}:{self.epoch}:{self.number}"
        return f"{text}:{self.mailbox}" if self.mailbox else text

    def number_for(self, mailbox: str) -> int:
        """What a mailbox must be past: a letter to several has one number, and each of them is a step."""
        return self.number if not self.mailbox or mailbox <= self.mailbox else self.number - 1

    @classmethod
    def parse(cls, text: Any) -> Cursor:
        if isinstance(text, Cursor):
            return text
        head, slash, tail = text.partition("/") if isinstance(text, str) else (text, "", "")
        pieces = check_id(head, "cursor").split(":")
        if len(pieces) not in {3, 4} or not pieces[2].isascii() or not pieces[2].isdecimal():
            raise Invalid(f"{text!a} is not a cursor", field="cursor", hint="use one that the room gave you")
        mailbox = check_agent(pieces[3] + slash + tail, "cursor") if len(pieces) == 4 else ""
        return cls(pieces[0], pieces[1], int(pieces[2]), mailbox)
