"""The rules of rings alone (B2), over any history; and a twin of each rule that the witness finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from postroom.model.message import Priority
from postroom.model.query import Moment
from postroom.model.ring import Book
from postroom.policy import ringing
from postroom.policy.ringing import Waiting
from tests.rings.histories import EXAMPLES, HISTORIES, History, Ringer, history, plant, play
from tests.rings.witness import LIMITS


class Rules(Ringer):
    """No room, no store: letters in a list, and a book."""

    def __init__(self) -> None:
        super().__init__()
        self._book = Book(up_to=0)
        self._waiting: dict[str, Waiting] = {}

    def send(self, word: str) -> None:
        id = f"m-{len(self._waiting)}"
        priority = Priority.NORMAL if word == "brief" else Priority[word.upper()]
        self._waiting[id] = Waiting(id=id, priority=priority, came=self.clock.wall)
        self.note(id, word)

    def touch(self, what: str, id: str) -> None:
        self.let_time_pass()
        seen = self.witness.letters[id]
        if seen.is_over:
            return
        if what == "read":
            seen.is_read = True
        elif what in {"claim", "release"}:
            seen.is_held = what == "claim"
        else:
            seen.is_over = True

    def fail(self, _: None = None) -> None:
        for id in self.witness.last:
            self._book = ringing.failed(self._book, id, "exit 1", self.clock.moment, LIMITS)
        self.witness.failed()

    def look(self, _: str | None = None) -> float | None:
        self.let_time_pass()
        now = self.clock.moment
        waiting = [
            self._seen(id) for id, seen in self.witness.letters.items() if not (seen.is_over or seen.is_held)
        ]
        verdict = ringing.decide(waiting, self._book, now, LIMITS)
        if not verdict.ring:
            self.witness.later(verdict.look_again, now)
            return verdict.look_again
        rung = [letter for letter in waiting if letter.id in verdict.ring]
        self._book = ringing.rang(self._book, rung, 0, now, LIMITS)
        self.witness.rang(verdict.ring, now, set())
        return 0.0

    def _seen(self, id: str) -> Waiting:
        seen, letter = self.witness.letters[id], self._waiting[id]
        return Waiting(
            id=id,
            priority=letter.priority,
            came=letter.came,
            is_unread=not seen.is_read,
            is_new=not seen.rings,
        )


def run(steps: History) -> None:
    play(Rules(), steps)


@settings(max_examples=EXAMPLES * 5)
@given(HISTORIES)
def test_the_rules_hold_in_any_history(steps: History) -> None:
    run(steps)


# complaint -> a history, and the line that makes it one to complain of: its function, as it is, as it must not be
BUGS = {
    "rung for what is read": (
        "normal, read 0", "_is_fresh", "letter.is_new and letter.is_unread", "letter.is_new",
    ),
    "rung for mail of low priority": ("low", "_is_fresh", " and letter.priority > Priority.LOW", ""),
    "not all were told together": ("normal, urgent", "decide", "own[w.id] == 0 or _is_fresh(w)", "own[w.id] == 0"),
    "no pause between two rings": (
        "urgent, look, normal", "decide", "0.0 if letter.is_urgent else pause", "0.0",
    ),
    "more rings in an hour than there may be": (
        "urgent, look, urgent, look, urgent, look, urgent, look, urgent",
        "decide", "max(seconds, cap, ", "max(seconds, ",
    ),
    "rung for twice": (
        "normal, wait 1, look, fail", "_own_time", "letter.is_urgent and limits.ring_again", "limits.ring_again",
    ),
    "rung for again too soon": ("urgent", "_own_time", "note.last + limits.ring_again", "note.last"),
    "rung for too often": ("urgent", "_own_time", " and note.rung < limits.ring_most", ""),
    "urgent mail was not rung for again": (
        "urgent, look, fail", "_noted", "rung=held.rung + 1", "rung=held.rung + 2",
    ),
    "rung for after it was given up": (
        "urgent, look, fail, wait 45, look, fail",
        "failed", "tries >= limits.ring_tries", "tries > limits.ring_tries",
    ),
    "tried again too soon": (
        "urgent, look, fail", "failed", "backoff(max(tries, 1), limits).total_seconds()", "0.0",
    ),
    "tried again for what is read": (
        "normal, urgent, look, read 0, fail", "_own_time", " or not (letter.is_unread or letter.is_urgent)", "",
    ),
    "a ring that failed was never tried again": (
        "normal, urgent, look, fail", "failed", "tries=tries, due=due", "tries=tries, due=None",
    ),
    "somebody was never told": ("normal", "decide", "look_again=min(times, default=None)", "look_again=None"),
    "somebody is told too late": (
        "normal, jump -86400", "_gathering", "0 < left <= limits.ring_gather", "0 < left",
    ),
    "it says when to look, and then does not ring": (
        "normal", "decide", "look_again=min(times, default=None)", "look_again=min(times) / 2 if times else None",
    ),
}  # fmt: skip


@pytest.mark.parametrize("complaint", BUGS)
def test_a_rule_that_is_broken_is_found_out(complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, name, right, wrong = BUGS[complaint]
    run(history(words))
    plant(monkeypatch, ringing, name, right, wrong)
    with pytest.raises(AssertionError, match=complaint):
        run(history(words))


def test_uptimes_of_an_earlier_boot_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "urgent, look, reboot, normal"
    run(history(words))
    monkeypatch.setattr(ringing, "of_this_boot", lambda book, _: book)
    with pytest.raises(AssertionError, match="somebody is told too late"):
        run(history(words))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("urgent, look, jump -86400, normal", "somebody is told too late"),
        ("normal, wait 1, look, jump 86400, normal, wait 1, look", "no pause between two rings"),
    ],
)
def test_pauses_by_the_wall_clock_are_found_out(
    words: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that is set, a bell would be silenced for a day, or ring without a pause."""

    def by_the_wall(rule: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*said: Any) -> Any:
            return rule(*(replace(x, steady=x.wall.timestamp()) if isinstance(x, Moment) else x for x in said))

        return asked

    run(history(words))
    for name in ("decide", "rang", "failed"):
        monkeypatch.setattr(ringing, name, by_the_wall(getattr(ringing, name)))
    with pytest.raises(AssertionError, match=complaint):
        run(history(words))
