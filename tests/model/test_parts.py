"""The pieces of a letter's content, and letters as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from postroom.errors import Invalid, TooLarge, Unreadable
from postroom.model import codec
from postroom.model.message import (
    BOUNCE,
    FIELDS,
    Handoff,
    Message,
    Part,
    Recipient,
    check_part,
    data,
    event,
    file,
    reference,
    text,
)
from tests.letters import after, letter

GOOD = [
    text("hi"),
    data([1]),
    data({"a": 1}, "schema"),
    event("started"),
    event("moved", {"to": 1}),
    file("/a.txt"),
    file("/a.txt", "text/plain"),
    reference("https://example.org"),
    reference("https://example.org", "Example"),
    Part("x-mine", anything=[{"deep": True}]),
]


@pytest.mark.parametrize("part", GOOD, ids=repr)
def test_a_part_comes_through_json_unchanged(part: Part) -> None:
    assert check_part(part, "parts", 8) == part
    assert check_part(part.to_json(), "parts", 8) == part
    assert codec.convert(codec.to_plain(part), Part) == part


def test_text_alone_is_a_text_part() -> None:
    assert check_part("hello", "parts", 8) == text("hello")


def test_fields_a_source_format_added_are_kept() -> None:
    part = check_part({"type": "text", "text": "a", "lang": "en"}, "parts", 8)

    assert (part["text"], part.get("lang"), part.get("mood", "none")) == ("a", "en", "none")


def test_a_part_is_a_private_copy() -> None:
    fields: dict[str, Any] = {"type": "data", "data": [1]}
    part = check_part(fields, "parts", 8)
    fields["data"].append(2)

    assert part["data"] == [1]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (7, "p"),
        (["text"], "p"),
        ({}, "p.type"),
        ({"type": 7}, "p.type"),
        ({"type": "image"}, "p.type"),
        ({"type": "x-"}, "p.type"),
        *(({"type": kind}, f"p.{next(iter(fields))}") for kind, fields in FIELDS.items()),
        ({"type": "text", "text": 7}, "p.text"),
        ({"type": "file", "path": "/a", "mime": None}, "p.mime"),
        ({"type": "reference", "uri": ["a"]}, "p.uri"),
        ("a\0", "p"),
    ],
)
def test_a_bad_part_is_refused_where_it_is_bad(value: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_part(value, "p", 8)
    assert refused.value.field == field


def test_a_part_is_not_deeper_than_allowed() -> None:
    with pytest.raises(TooLarge):
        check_part(data([[[1]]]), "parts", 3)


def test_parts_are_equal_by_type_and_fields_in_any_order() -> None:
    one, other = Part("x-a", a=1, b=[2]), Part("x-a", b=[2], a=1)

    assert one == other
    assert hash(one) == hash(other)
    assert one != Part("x-b", a=1, b=[2])
    assert one != {"type": "x-a"}
    assert repr(one) == "Part('x-a', a=1, b=[2])"


# -- letters


def test_a_letters_text_is_all_its_text_parts() -> None:
    assert letter("m1", parts=(text("one"), data(1), text("two"))).text == "one\n\ntwo"
    assert letter("m1").text == ""


def test_a_letter_belongs_to_its_roots_thread() -> None:
    assert letter("m1").thread == "m1"
    assert letter("m2", thread_id="m1").thread == "m1"


def test_a_bounce_is_automatic() -> None:
    assert letter("m1", kind=BOUNCE).is_automatic
    assert not letter("m1").is_automatic


def test_bcc_is_shown_to_the_sender_and_to_that_recipient_alone() -> None:
    open_one = letter("m1")
    assert open_one.seen_by("anyone") is open_one

    bob, cleo, dan = Recipient("bob"), Recipient("cleo", "bcc"), Recipient("dan", "bcc")
    hidden = replace(open_one, recipients=(bob, cleo, dan))
    assert hidden.seen_by("ann").recipients == (bob, cleo, dan)
    assert hidden.seen_by("cleo").recipients == (bob, cleo)
    assert hidden.seen_by("bob").recipients == (bob,)
    assert hidden.seen_by(None).recipients == (bob,)


def test_a_digest_is_of_what_a_letter_says_and_not_of_when_or_under_which_name() -> None:
    first = letter("m1", metadata={"a": 1, "b": 2}, expires_at=after(9))
    same = letter("m2", key="k", created_at=after(5), metadata={"b": 2, "a": 1}, expires_at=after(20))

    assert codec.digest(first) == codec.digest(same)
    for other in (
        replace(first, subject="other"),
        replace(first, recipients=(Recipient("bob", "cc"),)),
        replace(first, expires_at=None),
        replace(first, parts=(text("x"),)),
        replace(first, extra={"x": 1}),
    ):
        assert codec.digest(other) != codec.digest(first)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"id": "m1"}', b'{"id": "\xff"}', b'{"id": 7}', b"null"])
def test_a_stored_letter_that_cannot_be_read_is_damaged(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        codec.decode_message(raw)


def test_a_stored_part_that_cannot_be_read_is_damaged() -> None:
    raw = codec.encode(letter("m1", parts=(text("a"),)))

    for spoiled in (b'"type":7', b'"typo":"text"'):
        with pytest.raises(Unreadable):
            codec.decode_message(raw.replace(b'"type":"text"', spoiled))


def test_a_time_in_another_zone_is_the_same_time() -> None:
    raw = codec.encode(letter("m1")).replace(b"2030-01-01T12:00:00Z", b"2030-01-01T14:00:00+02:00")

    message = codec.decode_message(raw)
    assert message.created_at == datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert message.created_at.utcoffset() in {timedelta(0), timedelta(hours=2)}


def test_values_that_have_no_json_form_are_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        codec.encode({"a": object()})
    with pytest.raises(msgspec.ValidationError):
        codec.convert({"id": "m1"}, Message)
    with pytest.raises(msgspec.ValidationError, match="not a Part"):
        codec.convert("text", Part)


def test_a_handoff_names_each_file_once() -> None:
    handoff = Handoff(
        work_completed="half",
        files_modified=("a", "b"),
        files_created=("b", "c"),
        state_file="state.json",
    )

    assert handoff.files == ("a", "b", "c", "state.json")
    assert Handoff(work_completed="").files == ()
