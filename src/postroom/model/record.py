"""Records (small named values with a revision), numbered changes, and cursors.

The constants below are the kinds of records. Their values are stored in rooms and never change.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import Invalid
from .delivery import State
from .names import check_agent, check_id
from .values import Brief

CARD = "card"  # an agent's card
BEAT = "beat"  # its last sign of life
GUARD = "guard"  # the senders whose mail it takes or refuses, if it does not take all mail
FORMER = "former"  # its former names, if it has any
MEMBER = "member:"  # followed by a scope: one record per agent in it
TEMPLATE = "template"  # a template of a letter, by its name
OPEN_ESCALATION = "escalation"  # a question that waits for an answer
CLOSED_ESCALATION = "escalated"  # a question that was answered
FORGOTTEN = "forgotten"  # a purged letter's id and digest, so that it cannot come back
SPENT = "spent"  # a purged letter's idempotency key
TASKS = "tasks:"  # followed by an agent: the status of each task it gave or received, by the opening letter
ACTIVE_TASKS = "active"  # the tasks that an agent is busy with
DUE = "due"  # a task's deadline, until the task is finished or its giver was notified
SESSION = "session"  # the session in which a giver asked for a task; never part of a letter
TOKEN = "token"  # noqa: S105 - the agent as which a token's holder may call; only a hash of the token
SEALED = "sealed"  # under EVERYONE, the agents for which every call needs a token
EVERYONE = "all"  # the key of a record for the whole room: every call reads it
CONVERSATION = "conversation"  # the part of a conversation that letters do not hold, by its id
HAPPENED = "happened"  # never stored: writing it makes a change whose key says what happened to a conversation
SYSTEM = "system"  # under EVERYONE, the room's name among other systems, if no setting holds it
GATEWAY = "gateway"  # earlier versions recorded here which gateways of nanobot ran
MAP_LINK = "maplink"  # the state of a link to a MAP server, by its address
SCOPE = "scope"  # the description of a scope; its members are on the agents' cards
PEER = "peer"  # another system, by its folded name; holds our token for it, so it is never exported
LINK = "link"  # whether the link to a peer is up, since when, and why not, by the folded name of the peer
SERVED = "served"  # under EVERYONE, the last sign of life of the process that serves a room with peers
ROUTE = "route"  # the system of a remote agent, by its folded name
WEBHOOK = "webhook"  # a webhook, by its id; holds a secret, so it is never exported
CALLS = "calls"  # the unanswered calls of a webhook, by its id
ALERT_LOG = "bell"  # the alert log of one channel, by mailbox and channel
RECIPIENT_ALERTS = "told"  # the alerts of a mailbox, shared by all its channels
AUDIT = "audit:"  # followed by a mailbox: the alerts of each of its letters, by letter; deleted with the letter
AUDITED = "audited"  # the letters of a mailbox that had the latest alerts
PERSON = "person"  # a public key of a person, by its id; never imported, because it grants
IDENTITY = "identity"  # under EVERYONE, a random name of the room, which proofs name; made with the first key
NONCES = "nonces"  # under EVERYONE, the proofs of requests that were used in the last minutes
MOVED_HERE = "moved"  # a delivery that was moved here from another room, by letter and mailbox


class Record(Struct, frozen=True, kw_only=True):
    """A named value. `revision` is that of the last read, 0 if there was none. A value of None removes it."""

    kind: str
    key: str
    value: Any
    revision: int = 0


def pair_key(first: str, second: str) -> str:
    """Return the key of a record about two things, such as a mailbox and a letter, or a sender and its key."""
    return f"{first} {second}"


What = Literal["posted", "moved", "put", "forgot"]


class Change(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered change of a room. A broadcast is one change, not one per recipient."""

    number: int
    what: What
    message_id: str | None = None
    mailbox: str | None = None  # of a move
    state: State | None = None  # after a move
    kind: str | None = None  # of a record
    key: str | None = None


class Cursor(Brief, frozen=True):
    """A position in the changes of a room, opaque to its holder.

    A cursor of an earlier epoch gets the error Resync, never a wrong list.
    """

    store: str
    epoch: str
    number: int
    mailbox: str = ""  # for a reader of several mailboxes: the last mailbox that was read at this number

    def __str__(self) -> str:
        text = f"{self.store}:{self.epoch}:{self.number}"
        return f"{text}:{self.mailbox}" if self.mailbox else text

    def number_for(self, mailbox: str) -> int:
        """Return the number that a mailbox has seen.

        A letter to several mailboxes has one number in all of them.
        """
        return self.number if not self.mailbox or mailbox <= self.mailbox else self.number - 1

    @classmethod
    def parse(cls, text: Any) -> Cursor:
        if isinstance(text, Cursor):
            return text
        head, slash, tail = text.partition("/") if isinstance(text, str) else (text, "", "")
        pieces = check_id(head, "cursor").split(":")
        if len(pieces) not in {3, 4} or not pieces[2].isascii() or not pieces[2].isdecimal():
            raise Invalid(f"{text!a} is not a cursor", field="cursor", hint="use a cursor that this room returned")
        mailbox = check_agent(pieces[3] + slash + tail, "cursor") if len(pieces) == 4 else ""
        return cls(pieces[0], pieces[1], int(pieces[2]), mailbox)


def names_of_key(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of people in the value of a record of kind `PERSON`.

    They are those of its person, today's and former ones, and of the further people whom that person named.

    A removed key has none: a name whose last key was removed counts no more, unless the settings name it.
    """
    if value.get("removed_at") is not None:
        return ()
    return (value["person"], *value.get("formerly", ()), *value.get("further_people", ()))
