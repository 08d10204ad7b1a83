"""Alerts as other programs read them (B3): every field of a waiting letter that they are shown, and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.formats import alerts
from postroom.formats.alerts import LONGEST_SUBJECT, MOST_NAMED, alert_record, webhook_call
from postroom.model.alert import AlertLetter, Rung
from postroom.model.message import Priority
from tests.formats.drawn import NOW, labels, names

WAITING = st.builds(
    AlertLetter,
    id=labels,
    sender=names,
    subject=st.text(max_size=2 * LONGEST_SUBJECT),
    thread=labels,
    priority=st.sampled_from(Priority),
    proven=st.booleans(),
)


def read_letter(shown: dict[str, Any]) -> AlertLetter:
    """A letter as a receiver may take it from a call."""
    return AlertLetter(
        id=shown["id"],
        sender=shown["from"],
        subject=shown["subject"],
        thread=shown["thread"],
        priority=Priority[shown["priority"].upper()],
        proven=shown["verified"],
    )


def cut(letter: AlertLetter) -> AlertLetter:
    return AlertLetter(**{n: getattr(letter, n) for n in letter.__struct_fields__} | {
        "subject": letter.subject[:LONGEST_SUBJECT],
    })  # fmt: skip


def called(letters: list[AlertLetter]) -> tuple[list[AlertLetter], int]:
    read = json.loads(webhook_call("bob", NOW, len(letters), letters))
    assert (read["mailbox"], read["unread"], read["type"]) == ("bob", len(letters), "mail.waiting")
    return list(map(read_letter, read["letters"])), read["more"]


@given(st.lists(WAITING, max_size=4), st.sampled_from([1, MOST_NAMED]))
def test_a_call_tells_what_waits(letters: list[AlertLetter], times: int) -> None:
    many = letters * times
    assert (list(map(cut, many[:MOST_NAMED])), max(0, len(many) - MOST_NAMED)) == called(many)


LETTER = AlertLetter(id="1", sender="ann", subject="s", thread="t", priority=Priority.HIGH, proven=True)


@pytest.mark.parametrize("lost", ["subject", "thread", "verified", "priority"])
def test_the_loss_of_any_field_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [LETTER] == called([LETTER])[0]
    whole, less = alerts._call_record, {"subject": "", "thread": "", "verified": False, "priority": "low"}
    monkeypatch.setattr(alerts, "_call_record", lambda letter: whole(letter) | {lost: less[lost]})
    assert [LETTER] != called([LETTER])[0]


def test_the_program_of_a_watch_reads_who_wrote_what() -> None:
    record = alert_record(Rung(mailbox="bob", way="exec", letters=(LETTER,), unread=2))
    shown = {"id": "1", "from": "ann", "subject": "s", "priority": "high", "unproven": False}
    assert {"mailbox": "bob", "unread": 2, "letters": [shown]} == record
