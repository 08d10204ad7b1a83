"""A small named thing with a revision: agent cards, signs of life, forgotten ids, where tasks stand."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import Invalid
from .delivery import State
from .names import check_agent, check_id

CARD = "card"  # an agent's card
BEAT = "beat"  # its last sign of life
GUARD = "guard"  # whose mail it takes and whose not, only where it is not everybody's
FORMER = "former"  # the names it had before, only where there are any
MEMBER = "member:"  # and a scope: one record per agent in it
TEMPLATE = "template"  # a letter written beforehand
OPEN_ESCALATION = "escalation"  # a question that waits for an answer
CLOSED_ESCALATION = "escalated"  # one that has it
FORGOTTEN = "forgotten"  # a purged letter's id and digest, so that it cannot come back
SPENT = "spent"  # a purged letter's idempotency key
TASKS = "tasks:"  # and an agent: where each task it gave or was given stands, by the letter that opened it
ACTIVE_TASKS = "active"  # the tasks an agent is busy with
DUE = "due"  # a task's deadline, until the task is over or its giver was told
SESSION = "session"  # where a giver was asked for a task; never in a letter
COPIED_UP_TO = "copied"  # how far a copy out of another room has come, by that room's name
TOKEN = "token"  # noqa: S105 - who may call as whom; only a hash of the token itself
SEALED = "sealed"  # under EVERYONE, the agents for which nobody speaks without a token
EVERYONE = "all"  # one record for all of them: it is asked at every call
CONVERSATION = "conversation"  # what letters do not tell of one, by its id
HAPPENED = "happened"  # never kept: that it was put says what happened to a conversation, in its key
SYSTEM = "system"  # under EVERYONE, what the room is called among others, where no setting says it
GATEWAY = "gateway"  # the last sign of one of several programs that are one agent, by its name and a mark
MAP_LINK = "maplink"  # what is remembered of a MAP server, by its address
SCOPE = "scope"  # what is said of one; who is in it stands on cards
PEER = (
    "peer"  # another system and what it may, by its name, folded; holds what is shown there, so it never travels
)
ROUTE = "route"  # at which system an agent is, by its name, folded
WEBHOOK = "webhook"  # whom to call when mail waits, by its id; holds a secret, so it never travels
CALLS = "calls"  # of a webhook, by its id: those that were not answered yet
BELL = "bell"  # what a ringer remembers, by mailbox and way
TOLD = "told"  # what all ringers of a mailbox remember together
AUDIT = "audit:"  # and a mailbox: who was told of each of its letters, by letter; it goes with the letter
AUDITED = "audited"  # the letters of a mailbox of which somebody was told last
MOVED_HERE = "moved"  # a delivery that came from another room to stay, by letter and mailbox


class Record(Struct, frozen=True, kw_only=True):
    """`revision` is what it was when read; 0 means there was none. A value of None removes it."""

    kind: str
    key: str
    value: Any
    revision: int = 0


def spent_key(sender: str, key: str) -> str:
    return f"{sender} {key}"


def session_key(giver: str, letter: str) -> str:
    return f"{giver} {letter}"


def moved_key(letter: str, mailbox: str) -> str:
    return f"{letter} {mailbox}"


def bell_key(mailbox: str, way: str) -> str:
    return f"{mailbox} {way}"


# What happened in a room, numbered, and the cursor that says up to where one has seen it.

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
