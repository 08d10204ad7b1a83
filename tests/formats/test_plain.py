"""Our own JSON, there and back (I1): what a server answers, a client reads as the value that it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.alerts import DueAlert, NextAlert
from postroom.core.inbox import Check, Letters
from postroom.core.stats import MailboxStats
from postroom.core.waiting_list import Entry, Waiting, WaitingList
from postroom.formats import plain as plain_codec
from postroom.formats.plain import plain_result, read_result
from postroom.model.alert import AlertLetter, Rung
from postroom.model.codec import encode
from postroom.model.delivery import Attempt, Delivery, State
from postroom.model.message import Message, Priority
from postroom.model.query import Found, Tally
from tests.formats.drawn import FULL, NOW, letters, times


def there_and_back(verb: Any, value: Any) -> Any:
    """What a client reads of the JSON that a server writes."""
    declaration = verb.declaration()
    return read_result(declaration, msgspec.json.decode(encode({"ok": True} | plain_result(declaration, value))))


def found(message: Message, **fields: Any) -> Found:
    at = {"message_id": message.id, "mailbox": "bob", "priority": message.priority, **fields}
    return Found(message, Delivery(**at))


STATES = [State.UNREAD, State.QUEUED, State.DONE, State.DEAD]
DELIVERED = st.builds(
    found,
    letters,
    number=st.integers(0, 9),
    state=st.sampled_from(STATES),
    revision=st.integers(1, 9),
    attempts=st.integers(0, 3),
    read_at=st.none() | times,
    due_at=st.none() | times,
    reason=st.none() | st.text(max_size=9),
    history=st.lists(
        st.builds(Attempt, at=times, holder=st.just("bob"), reason=st.text(max_size=9)), max_size=2
    ).map(tuple),
)


@given(st.lists(DELIVERED, max_size=3))
def test_letters_come_back_as_they_were(some: list[Found]) -> None:
    letters = Letters("bob", some)
    assert letters == there_and_back(Check, letters)


RUNG = Rung(
    mailbox="bob",
    way="claude",
    letters=(AlertLetter(id="1", sender="ann", subject="s", thread="t", priority=Priority.URGENT, proven=True),),
    unread=3,
)
ENTRY = Entry(
    what="letter", id="1", letter="1", since=NOW, sender="ann", subject="s", priority=Priority.HIGH, answer="ack",
    thread="t", due_at=NOW + timedelta(hours=1), read=False, mailbox="bob",
)  # fmt: skip
TALLY = Tally(mailbox="bob", unread={one: int(one) for one in Priority}, seen=2, oldest_seen_at=NOW)


@pytest.mark.parametrize(
    ("verb", "value"),
    [
        (NextAlert, DueAlert(RUNG)),
        (NextAlert, DueAlert(None, 2.5)),
        (Waiting, WaitingList("bob", [ENTRY], 0)),
        (MailboxStats, TALLY),
        (Check, Letters("bob", [found(FULL)])),
    ],
)
def test_other_answers_come_back_as_they_were(verb: Any, value: Any) -> None:
    assert value == there_and_back(verb, value)


def test_a_letter_with_every_field_comes_back_whole() -> None:
    for name in FULL.__struct_fields__:
        assert name == "proven" or getattr(FULL, name) != getattr(Message, name, None)
    assert [found(FULL)] == there_and_back(Check, Letters("bob", [found(FULL)])).letters


@pytest.mark.parametrize("lost", ["subject", "thread_tag", "task", "metadata", "extra", "delivery"])
def test_the_loss_of_any_field_of_a_letter_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plain_codec._formed

    def without(value: Any, form: plain_codec.Form, times: bool) -> dict[str, Any]:
        made = whole(value, form, times)
        if isinstance(value, Found):
            made[lost] = made[lost] | {"number": 7} if lost == "delivery" else None
            made = {name: one for name, one in made.items() if one is not None}
        return made

    monkeypatch.setattr(plain_codec, "_formed", without)
    assert [found(FULL)] != there_and_back(Check, Letters("bob", [found(FULL)])).letters
