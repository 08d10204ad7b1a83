"""The inbox as lines on a screen, of any size."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import postroom
from postroom.cli import output
from postroom.cli.answer import Screen
from postroom.cli.inbox import session
from postroom.cli.inbox.screen import extent, frame
from postroom.cli.inbox.state import InboxState, arrived
from postroom.cli.output import barred, body_lines, broken, width, wrapped
from postroom.core.actions import GONE
from postroom.core.waiting_list import MOST
from postroom.model.message import Message
from tests.cli.test_inbox_state import NOW, entry, inbox_with, press

NASTY = "a\x1b[31mred\x07\x9b\u202egnp.exe\u2066\u200b\u2028\x85" + "日本語" * 40 + "e" + "\u0301" * 5000
TEXTS = st.text(alphabet=st.sampled_from("ab c\n\t日é́\x1b[31m\u202e👍\u200d\x7f"), max_size=60)


def screen() -> Screen:
    return Screen(json=False, tables=True, colour=False, width=80, now=NOW)


def shown(inbox: InboxState, columns: int = 80, lines: int = 24, letter: list[str] | None = None) -> list[str]:
    return frame(inbox, screen(), letter or [], os.terminal_size((columns, lines))).lines


def test_the_first_line_says_how_many_wait_and_since_when() -> None:
    old = entry("m-1", since=NOW - timedelta(hours=3))
    assert shown(inbox_with(entry("m-2"), old))[0] == "human: 2 wait; the oldest came 3 h ago"
    assert shown(inbox_with(old))[0] == "human: 1 waits; it came 3 h ago"
    assert shown(InboxState(me="human"))[0] == "human: nothing waits"


def test_of_an_open_letter_it_says_which_it_is_and_how_much_is_seen() -> None:
    opened, _ = press(inbox_with(entry("m-1"), entry("m-2")), "j", "enter")
    letter = [f"│ line {number}" for number in range(1, 51)]
    assert shown(opened, letter=letter[:22])[0] == "human: 2 of 2"
    assert shown(opened, letter=letter)[0] == "human: 2 of 2; lines 1 to 22 of 50"
    last = shown(replace(opened, scroll=28), letter=letter)
    assert (last[0], last[-2]) == ("human: 2 of 2; lines 29 to 50 of 50", "│ line 50")
    assert shown(arrived(opened, [entry("m-1")]), letter=letter)[0].startswith("human: 1 waits")


def test_where_nothing_waits_it_says_what_to_expect() -> None:
    assert "Agents write to dana." in " ".join(shown(InboxState(me="dana")))


def test_a_long_name_leaves_room_for_what_a_letter_is_about() -> None:
    long, short = (
        entry("m-1", subject="Merge sort", **{"from": "b" * 60}),
        entry("m-2", subject="A subject of some length"),
    )
    lines = shown(inbox_with(long, short))
    assert any(line.endswith("…  Merge sort") for line in lines) and any(
        "A subject of some length" in line for line in lines
    )


def test_an_open_escalation_is_read_by_people() -> None:
    with postroom.open("memory:") as room:
        room.mailbox("bob").escalate("May I?", reason="approval", subject="The index")
        (letter,) = room.mailbox("human").check()
        lines = session.lines_of(screen(), letter.message, (), ())
    assert lines[-3:] == ["│ May I?", "│ Reason: approval", ""]


def test_what_is_urgent_or_due_is_marked() -> None:
    soon, past = (NOW + timedelta(hours=hours) for hours in (2, -3))
    lines = shown(
        inbox_with(
            entry("e", "escalation", subject="The index", priority="urgent"),
            entry("t-1", "task", subject="Sign it", due_at=soon),
            entry("t-2", "task", subject="Read it", due_at=past, priority="urgent"),
        )
    )
    results = ["[urgent] The index", "[due in 2 h] Sign it", "[urgent] [3 h overdue] Read it"]
    assert results == [line.partition("bob")[2].strip() for line in lines[2:5]]


def test_an_escalation_is_called_so_once() -> None:
    request = inbox_with(entry("e", "escalation", subject="Escalation: The old index"))
    assert shown(request)[2] == "> just now  escalation  bob   The old index"
    assert "escalation from bob (The old index)" in shown(press(request, "a")[0])[-3]


def test_where_more_may_wait_than_is_looked_at_it_says_so() -> None:
    many = inbox_with(*(entry(f"m-{number}") for number in range(MOST)))
    assert shown(many)[0] == f"human: {MOST} or more wait; the oldest came just now"


FORGED = "x" * 70 + " From ceo " + "y" * 60


@pytest.mark.parametrize(("further_in", "is_told_apart"), [(session.FURTHER_IN, True), ("", False)])
def test_no_subject_begins_a_line_as_the_post_room_does(
    further_in: str, is_told_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FURTHER_IN", further_in)
    letter = Message(id="m-1", sender="eve", subject=FORGED, recipients=(), created_at=NOW)
    lines = session.lines_of(screen(), letter, (), ())
    assert all(width(line) <= 80 for line in lines)
    labels = [line.split()[0] for line in lines if not line.startswith((output.BAR, " ")) and line]
    assert (labels == ["Id", "From", "Sent", "Subject"]) is is_told_apart


def test_the_last_line_says_what_can_be_done() -> None:
    assert (
        shown(inbox_with(entry("e", "escalation")))[-1]
        == "a approve  d decline  r reply  Enter open  w write  s sent  ? keys  q leave"
    )
    assert shown(InboxState(me="human"))[-1] == "w write  s sent  ? keys  q leave"
    taken, open_task = inbox_with(entry("t", "task", state="accepted")), inbox_with(entry("t", "task"))
    assert "accepted" in shown(taken)[2] and "task" in shown(open_task)[2], "one that was accepted looks different"
    opened, _ = press(inbox_with(entry("m-1")), "enter")
    assert shown(opened)[-1] == "r reply  x done  q back  ? keys"
    assert shown(arrived(opened, []))[-1] == f"{GONE}  q back  ? keys"
    assert "any key" in shown(press(opened, "?")[0])[-1]


def test_a_notice_of_the_program_does_not_move_the_list() -> None:
    inbox = inbox_with(*(entry(f"m-{n}", text="words " * 90) for n in range(40)))
    quiet, result = shown(inbox), shown(replace(inbox, notice="Answered bob."))
    assert quiet[:21] == result[:21] and quiet[19].startswith("──") and "Answered bob." == result[22]


def test_the_chosen_one_is_always_in_sight() -> None:
    inbox = inbox_with(*(entry(f"m-{n}", text=f"text {n} of") for n in range(100)))
    for place in (0, 1, 50, 98, 99):
        lines = shown(replace(inbox, chosen=f"m-{place}"))
        (marked,) = [line for line in lines if line.startswith(">")]
        assert f"text {place} of" in marked


def test_what_is_no_longer_waiting_is_said_where_one_writes() -> None:
    writing, _ = press(inbox_with(entry("m-1", subject="The index")), "r", "half")
    assert shown(writing)[-3] == "Reply: letter from bob (The index). Your answer:"
    assert shown(arrived(writing, []))[-3].startswith(GONE)


def test_the_cursor_stands_where_the_next_letter_goes() -> None:
    writing, _ = press(inbox_with(entry("m-1")), "r", "日本 a")
    drawn = frame(writing, screen(), [], os.terminal_size((80, 24)))
    assert (drawn.lines[22], drawn.cursor) == ("> 日本 a", (22, 8))
    long, _ = press(inbox_with(entry("m-1")), "r", "x" * 78)
    drawn = frame(long, screen(), [], os.terminal_size((80, 24)))
    assert drawn.cursor == (22, 2) and drawn.lines[21].endswith("x" * 78)


@settings(max_examples=40, deadline=None)
@given(TEXTS, TEXTS, st.integers(20, 100), st.integers(1, 30), st.sampled_from(["", "r", "enter", "?"]))
def test_no_picture_is_larger_than_its_terminal(text: str, typed: str, columns: int, lines: int, key: str) -> None:
    nasty = {"subject": text, "text": NASTY + text, "from": "b" * 200}
    inbox = inbox_with(*(entry(f"m-{n}", **nasty) for n in range(3)))
    inbox = press(inbox, *([key] if key else []), *([typed] if key == "r" else []))[0]
    inbox = replace(inbox, notice=NASTY)
    letter = [piece for line in body_lines(text) for piece in barred(line, columns)]
    size = os.terminal_size((columns, lines))
    drawn = frame(inbox, screen(), letter, size)
    assert len(drawn.lines) == lines
    assert max(map(width, drawn.lines)) <= columns
    assert all(line.isprintable() for line in drawn.lines)
    assert extent(inbox, letter, size).rows >= 1
    if drawn.cursor is not None:
        assert drawn.cursor[0] < lines and drawn.cursor[1] <= columns


@pytest.mark.parametrize("fold", [wrapped, broken])
def test_no_letter_is_looked_at_again_and_again(fold: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a million would else take hours."""
    looks = 0

    def look(letter: str) -> str:
        nonlocal looks
        looks += 1
        return category(letter)

    monkeypatch.setattr(output, "category", look)
    text = "日本" * 10_000
    assert len(fold(text, 80)) == 500
    assert looks <= 3 * len(text)


def test_what_takes_no_room_has_an_end() -> None:
    marks = "e" + "\u0301" * 100_000
    assert max(map(len, wrapped(f"a {marks} b", 80))) <= 8 * 80
