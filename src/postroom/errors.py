"""The tree of errors, and what each kind means for the caller.

`fault` says where the cause lies: with the caller, with Postroom and its machine (`house`), or in a race with
another process. `temporary` says whether the same call can succeed later. The docstring of a class is its
default message. This module imports nothing else of Postroom.

    PostroomError                  code   fault    temporary
    ├─ Invalid                     1000   caller   no      a value breaks a rule
    │  ├─ LookAlike                1001                    it differs only in case from another name
    │  ├─ TooLarge                 1002                    a size, count or depth is over its limit
    │  └─ BadStore                 1003                    the store's address or file cannot be used
    ├─ Refused                     2000   caller   no      a rule forbids it
    │  ├─ NotAllowed               2001                    this caller may not do this here
    │  ├─ LoopDetected             2002                    the target already relayed this letter
    │  ├─ HopsSpent                2003                    the letter was relayed too often
    │  ├─ DeadlinePassed           2004                    too late for this
    │  ├─ IllegalMove              2005                    the transition table has no such move
    │  └─ Undeliverable            2006                    the letter came back with a reason
    ├─ Busy                        3000   house    yes     trying again later helps
    │  ├─ QuotaFull                3001                    the inbox is full, or an agent has tasks enough
    │  ├─ StoreBusy                3002                    another process holds the store
    │  ├─ StoreFailing             3003                    the disk is full or failing
    │  ├─ TooFast                  3004                    too many letters in too short a time
    │  └─ NoAnswer                 3005                    no answer came in time
    ├─ Missing                     4000   caller   no      there is no such thing (or it is not yours)
    │  ├─ UnknownAgent             4001                    no agent of that name is registered
    │  └─ UnknownMessage           4002                    no such letter in this mailbox
    ├─ Conflict                    5000   race     no      someone else was first
    │  ├─ LeaseLost                5001                    the lease ran out or belongs to another
    │  ├─ StaleRevision            5002   race     yes     the thing changed since you read it
    │  ├─ IdTaken                  5003                    the id or key cannot be used for this content
    │  ├─ NameTaken                5004                    a live agent holds this name
    │  └─ Resync                   5005                    the cursor is of an earlier epoch of the room
    └─ Damaged                     6000   house    no      the store is damaged
       ├─ Unreadable               6001                    an item is damaged
       └─ SchemaTooNew             6002                    a newer Postroom wrote this room
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import ClassVar, Literal

    Fault = Literal["caller", "house", "race"]


class PostroomError(Exception):
    """Something went wrong in the post room."""

    code: ClassVar[int] = 0
    fault: ClassVar[Fault] = "house"
    temporary: ClassVar[bool] = False  # the same call may succeed later

    def __init__(self, message: str = "", *, field: str | None = None, hint: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.field = field  # the argument or field that is wrong
        self.hint = hint  # what to do about it
        self.keys: tuple[str, ...] = ()  # of a failed send: the idempotency keys, one per letter, for a safe retry
        self.retry_after: float | None = None  # seconds after which a retry may succeed, if known
        super().__init__(self.message)

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}" if self.field else self.message
        if self.hint:
            text = f"{text} ({self.hint})"
        return f"{text} [retry with key={self.key!r}]" if self.key else text

    @property
    def key(self) -> str | None:
        """The idempotency key for sending one failed letter again; for several letters, see `keys`."""
        return self.keys[0] if len(self.keys) == 1 else None


class Invalid(PostroomError):
    """A value breaks a rule."""

    code = 1000
    fault = "caller"


class LookAlike(Invalid):
    """The name differs only in case from that of another agent."""

    code = 1001


class TooLarge(Invalid):
    """A size, a count or a depth is over its limit."""

    code = 1002


class BadStore(Invalid):
    """The store's address or file cannot be used."""

    code = 1003


class Refused(PostroomError):
    """A rule forbids this."""

    code = 2000
    fault = "caller"


class NotAllowed(Refused):
    """This caller may not do this here."""

    code = 2001


class LoopDetected(Refused):
    """The letter already went through this agent."""

    code = 2002


class HopsSpent(Refused):
    """The letter was relayed as often as it may be."""

    code = 2003


class DeadlinePassed(Refused):
    """It is too late for this."""

    code = 2004


class IllegalMove(Refused):
    """The transition table has no such move."""

    code = 2005


class Undeliverable(Refused):
    """The letter came back: its recipient did not take it."""

    code = 2006


class Busy(PostroomError):
    """Not now; trying again later helps."""

    code = 3000
    temporary = True


class QuotaFull(Busy):
    """An inbox or outbox is full, the sender has its share of it, or an agent has as many tasks as it takes."""

    code = 3001


class StoreBusy(Busy):
    """Another process holds the store."""

    code = 3002


class StoreFailing(Busy):
    """The disk is full or failing."""

    code = 3003


class TooFast(Busy):
    """Too many letters in too short a time."""

    code = 3004


class NoAnswer(Busy):
    """No answer came in time."""

    code = 3005


class Missing(PostroomError):
    """There is no such thing here."""

    code = 4000
    fault = "caller"


class UnknownAgent(Missing):
    """There is no such agent here."""

    code = 4001


class UnknownMessage(Missing):
    """There is no such letter here."""

    code = 4002


class Conflict(PostroomError):
    """Someone else was first."""

    code = 5000
    fault = "race"


class LeaseLost(Conflict):
    """The lease ran out, was given back, or belongs to another holder."""

    code = 5001


class StaleRevision(Conflict):
    """The thing changed since it was read."""

    code = 5002
    temporary = True


class IdTaken(Conflict):
    """This id or key cannot be used for this content."""

    code = 5003

    @classmethod
    def of_letter(cls, field: str, first: str | None) -> IdTaken:
        """Return the error for a letter whose id or key is in use. A key belongs to the sender, so the error names
        the letter that has it. An id may belong to a letter between other agents, so the error names nothing (G8).
        """
        if field == "key":
            which = f"your letter {first}" if first else "a letter of yours that is deleted by now"
            return cls(f"{which} has this key and other content", field=field, hint="send this with another key")
        return cls(field=field, hint="leave it out, or choose another one")


class NameTaken(Conflict):
    """A live agent holds this name."""

    code = 5004


class Resync(Conflict):
    """The cursor is of an earlier epoch of this room; start from the present."""

    code = 5005


class Damaged(PostroomError):
    """The store is damaged."""

    code = 6000


class Unreadable(Damaged):
    """An item in the store cannot be read."""

    code = 6001


class SchemaTooNew(Damaged):
    """A newer version of Postroom wrote this room."""

    code = 6002
