"""What waits for somebody whom one sender floods: every other sender is seen, and everything can be answered."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Invalid, Room
from postroom.core import waiting_list
from postroom.core.actions import Act
from postroom.core.verb import perform
from postroom.core.waiting_list import Waiting, WaitingList
from tests.people import signing

LOOK = 5  # letters that are looked at, in place of a thousand


@pytest.fixture
def flooded(room: Room, monkeypatch: pytest.MonkeyPatch) -> Room:
    """The person's mailbox holds twelve letters of one sender, and after them one of each of two others."""
    monkeypatch.setattr(waiting_list, "MOST", LOOK)
    for number in range(12):
        room.mailbox("flood").send("human", f"noise {number}")
    room.mailbox("ann").send("human", "May I?", subject="A question", kind="request")
    room.mailbox("bob").send("human", "Ready.")
    return room


def waits(room: Room, **more: Any) -> WaitingList:
    return perform(room.core, signing(room).principal, Waiting(agent_id="human", opened=True, **more))


def test_whoever_a_flood_hides_is_named(flooded: Room) -> None:
    found = waits(flooded)
    assert ["flood"] * LOOK == [entry.sender for entry in found.waiting]
    assert [("ann", 1), ("bob", 1), ("flood", 12 - LOOK)] == [(one.sender, one.letters) for one in found.senders]
    assert 2 + 12 - LOOK == found.more


def test_letters_of_one_sender_are_read_page_by_page(flooded: Room) -> None:
    (asked,) = waits(flooded, sender="ann").waiting
    assert ("A question", True) == (asked.subject, asked.asks)
    texts, after = [], None
    while True:
        page = waits(flooded, sender="flood", after=after, limit=None)
        texts += [entry.text for entry in page.waiting]
        if (after := page.next) is None:
            break
    assert sorted(f"noise {number}" for number in range(12)) == sorted(texts), "each once"
    with pytest.raises(Invalid, match="pages are of the letters of one sender"):
        waits(flooded, after=3)


def test_steps_of_one_sender_stand_on_its_first_page(flooded: Room) -> None:
    flooded.mailbox("ann").escalate("May I drop it?", reason="approval", ladder=["human"])
    flooded.mailbox("bob").give_task("human", "Sign it.")
    assert {"escalation", "letter"} == {entry.what for entry in waits(flooded, sender="ann").waiting}
    assert {"task", "letter"} == {entry.what for entry in waits(flooded, sender="bob").waiting}


def test_a_hidden_letter_is_answered_as_any_other(flooded: Room) -> None:
    (asked,) = waits(flooded, sender="ann").waiting
    request = Act(agent_id="human", action="reply", letter=asked.letter, words="Yes.")
    assert "Answered ann." == perform(flooded.core, signing(flooded).principal, request).done
    assert [] == waits(flooded, sender="ann").waiting
    assert ["bob", "flood"] == [one.sender for one in waits(flooded).senders]


def test_entries_that_the_limit_cuts_off_belong_to_somebody(flooded: Room) -> None:
    found = waits(flooded, limit=2)
    assert {"ann": 1, "bob": 1, "flood": 10} == {one.sender: one.letters for one in found.senders}
    assert 12 == found.more


def test_a_list_that_shows_everything_names_nobody(room: Room) -> None:
    room.mailbox("ann").send("human", "May I?")
    room.mailbox("eve").send("human", "Later.", at=60)
    found = waits(room)
    assert (1, 0, [], None) == (len(found.waiting), found.more, found.senders, found.next)


def test_a_letter_that_has_not_arrived_is_not_counted(flooded: Room) -> None:
    flooded.mailbox("eve").send("human", "Later.", at=60)
    assert "eve" not in {one.sender for one in waits(flooded).senders}


def test_the_first_line_of_a_letter_is_no_longer_than_a_line(room: Room) -> None:
    room.mailbox("ann").send("human", "\n  " + "x" * 50_000 + "\nmore")
    (entry,) = waits(room).waiting
    assert "x" * waiting_list.LONGEST == entry.text


def test_a_page_holds_as_many_letters_as_are_asked_for(flooded: Room) -> None:
    page = waits(flooded, sender="flood", limit=3)
    assert (3, 1) == (len(page.waiting), page.more)
    rest = waits(flooded, sender="flood", after=page.next, limit=3)
    assert not {entry.letter for entry in page.waiting} & {entry.letter for entry in rest.waiting}
