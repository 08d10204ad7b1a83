"""Whatever hypothesis can think of, said to `send`: a letter as it was, or an error, and never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from postroom import PostroomError, Room
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.rooms import FakeClock

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=3),
    max_leaves=8,
)
GOOD_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
GOOD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | GOOD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(GOOD_TEXT, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
FIELDS = st.dictionaries(
    st.sampled_from(
        "to cc bcc body data subject kind priority scope expires at thread_tag conversation_id in_reply_to task"
        " callback context attachments tags metadata key id extra".split()
    ),
    VALUES,
    max_size=6,
)


@contextmanager
def small_room() -> Iterator[Room]:
    with Room(MemoryStore(), Settings(), clock=FakeClock()) as room:
        yield room


def attempt(room: Room, **message: Any) -> PostroomError | str:
    """The id of the letter, or what was wrong with it."""
    try:
        return room.mailbox("ann").send(**message).id
    except PostroomError as error:
        return error


@given(FIELDS)
def test_send_takes_anything_or_says_what_is_wrong(fields: dict[str, Any]) -> None:
    with small_room() as room:
        outcome = attempt(room, **({"to": "bob", "body": "x"} | fields))
        if isinstance(outcome, PostroomError):
            assert outcome.field
            assert str(outcome)
            assert room.mailboxes() == []
        else:
            assert room.mailbox("ann").reply_chain(outcome)[-1].id == outcome


@given(GOOD_TEXT, GOOD_JSON, st.dictionaries(GOOD_TEXT, GOOD_JSON, max_size=3))
def test_sound_text_and_json_come_back_without_loss(body: str, data: Any, metadata: dict[str, Any]) -> None:
    with small_room() as room:
        room.mailbox("ann").send("bob", body, data={"it": data}, metadata=metadata)
        (letter,) = room.mailbox("bob").check()
        assert letter.text == body
        assert letter.data == {"it": data}
        assert letter.message.metadata == metadata


@given(VALUES)
def test_any_name_is_sound_or_refused(name: Any) -> None:
    with small_room() as room:
        outcome = attempt(room, to=name)
        if isinstance(outcome, PostroomError):
            assert outcome.field == "to"
            assert room.mailboxes() == []
