"""What can be done with each thing that waits, and by which key: one table, for keys, hints and help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ...model.task import TaskState

if TYPE_CHECKING:
    from ..waiting import Entry


class Verb(Struct, frozen=True):
    """One thing to do."""

    key: str
    name: str  # of the deed, too
    asks: str = ""  # for words, in a line below; empty: it takes none
    optional: bool = False  # may the words be left out?


APPROVE = Verb("a", "approve", "Words, if you like:", True)
DECLINE = Verb("d", "decline", "Why?")
REPLY = Verb("r", "reply", "Your answer:")
ANSWER = Verb("r", "answer", "Your answer:")
ACCEPT = Verb("a", "accept", "Words, if you like:", True)
REJECT = Verb("d", "reject", "Why?")
COMPLETE = Verb("c", "complete", "The result, if there is one:", True)
FAIL = Verb("d", "give up", "Why?")
WRITE = Verb("r", "write", "Your letter:")
DONE = Verb("x", "done")

# What each key is for, whatever it is pressed at.
KEYS = {
    "a": "approve what is asked; accept a task",
    "d": "decline it, reject a task, give one up; you say why",
    "r": "answer in your own words; to a task: write to who gave it",
    "c": "a task is complete; your words are its result",
    "x": "done with a letter or news; an unread one asks once more",
    "e": "answer in $VISUAL or $EDITOR; of a task you took on: its result",
}

# What waits, and, of a task, where it stands.
OFFERED: dict[str, tuple[Verb, ...]] = {
    "escalation": (APPROVE, DECLINE, REPLY),
    "question": (ANSWER,),
    f"task {TaskState.PENDING}": (ACCEPT, REJECT, WRITE),
    f"task {TaskState.ACCEPTED}": (COMPLETE, REJECT, WRITE),
    f"task {TaskState.WORKING}": (COMPLETE, FAIL, WRITE),
    "letter": (REPLY, DONE),
    "news": (DONE,),
}


def offered(entry: Entry) -> tuple[Verb, ...]:
    """What can be done with this."""
    what = entry["what"]
    return OFFERED.get(f"task {entry['state']}" if what == "task" else what, ())


def in_own_words(entry: Entry) -> Verb | None:
    """What is written at length, if anything: that for which the editor is opened at once."""
    by_key = {verb.key: verb for verb in offered(entry)}
    return by_key.get("c") or by_key.get("r")
