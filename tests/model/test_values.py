"""Which text and which JSON may enter a letter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from postroom.errors import Invalid, TooLarge
from postroom.model.codec import decode_message, digest, encode, with_defaults
from postroom.model.values import (
    check_json,
    check_label,
    check_line,
    check_object,
    check_text,
    check_time,
    read_json,
)


def parsed(raw: bytes | str, depth: int = 64, largest: int = 10_000) -> Any:
    return read_json(raw, "body", depth=depth, largest=largest)


# -- text


def test_text_is_kept_as_it_is() -> None:
    assert check_text("héllo\n\t🦉", "text") == "héllo\n\t🦉"
    assert check_text("four", "text", 4) == "four"


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (None, Invalid, "not NoneType"),
        (b"bytes", Invalid, "not bytes"),
        ("a\0b", Invalid, "NUL"),
        ("\ud800", Invalid, "lone surrogate"),
        ("five!", TooLarge, "the limit is 4"),
    ],
)
def test_text_no_store_could_hold_is_refused(value: Any, error: type[Invalid], words: str) -> None:
    with pytest.raises(error, match=words):
        check_text(value, "text", 4)


@pytest.mark.parametrize("line", ["a\nb", "a\rb", "\x1b[31m", "a\u2028b", "a\u2029b", "\x85"])
def test_a_line_has_no_control_characters(line: str) -> None:
    with pytest.raises(Invalid, match="control character"):
        check_line(line, "subject", 100)


@pytest.mark.parametrize("line", ["", "plain", "käse 🧀", "zero\u200bwidth"])
def test_a_line_may_be_in_any_language(line: str) -> None:
    assert check_line(line, "subject", 100) == line


@pytest.mark.parametrize("label", ["", " ", " a", "a ", "x" * 129])
def test_a_label_is_neither_empty_nor_blank_at_its_ends(label: str) -> None:
    with pytest.raises(Invalid):
        check_label(label, "tag")
    assert check_label("two words", "tag") == "two words"


# -- time


def test_a_time_is_turned_to_utc() -> None:
    paris = timezone(timedelta(hours=2))
    assert check_time(datetime(2030, 1, 1, 12, tzinfo=paris), "at") == datetime(2030, 1, 1, 10, tzinfo=UTC)
    assert check_time(datetime(2030, 1, 1, tzinfo=UTC), "at").tzinfo is UTC


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _moment: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize(
    "value",
    [
        "2030-01-01",
        datetime(2030, 1, 1),  # noqa: DTZ001 - that is the point
        datetime(2030, 1, 1, tzinfo=Nowhere()),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_time_without_a_place_in_utc_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        check_time(value, "at")


# -- JSON


def test_json_is_copied_so_that_no_caller_can_change_it_later() -> None:
    values = {"list": [1, (2, 3)], "object": {"deep": None}, "yes": True, "half": 0.5}
    copy = check_object(values, "metadata", 8)

    assert copy == {"list": [1, [2, 3]], "object": {"deep": None}, "yes": True, "half": 0.5}
    values["list"].append(4)  # type: ignore[attr-defined]
    assert copy["list"] == [1, [2, 3]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": {1}}, "set"),
        ({1: "a"}, "not text"),
        ({"a\0": 1}, "NUL"),
        (float("nan"), "not JSON"),
        ([float("-inf")], "not JSON"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (["\udfff"], "lone surrogate"),
        (b"bytes", "bytes"),
    ],
)
def test_what_is_not_json_is_refused(value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_json(value, "metadata", 8)


def test_the_complaint_names_the_place() -> None:
    with pytest.raises(Invalid) as refused:
        check_json({"a": {"b": [{"c": object()}]}}, "metadata", 8)
    assert refused.value.field == "metadata.a.b.c"


def test_depth_is_bounded() -> None:
    assert check_json([[["x"]]], "data", 3) == [[["x"]]]
    with pytest.raises(TooLarge, match="deep"):
        check_json([[["x"]]], "data", 2)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TooLarge):
        check_json(endless, "data", 64)


def test_an_object_is_an_object() -> None:
    with pytest.raises(Invalid, match="must be an object, not list"):
        check_object([], "metadata", 8)


# -- JSON from outside


def test_json_from_outside_is_parsed() -> None:
    assert parsed(b'{"a": [1, 2.5, "\\u00e9", null]}') == {"a": [1, 2.5, "é", None]}
    assert parsed("[]") == []
    assert parsed(b"9223372036854775807") == 2**63 - 1


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1, "a": 2}',
        b'{"x": {"a": 1, "a": 1}}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b'"\\ud800"',
        b'"a\\u0000b"',
        b'{"\\udc00": 1}',
        b'{"a":1,"a":2}',
        b'{"a" :1,"b":"c:d","a":2}',
        b'{"a":{"b":1,"b":2}}',
        b"9223372036854775808",
        b"1" * 5000,
        b"\xff\xfe",
        b"\xe2\x28\xa1",
        b"{",
        b"",
        b"{'a': 1}",
        b"[1,]",
        b"01",
    ],
)
def test_json_that_readers_disagree_about_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid):
        parsed(raw)


def test_size_is_checked_before_parsing() -> None:
    assert parsed(b'"' + b"x" * 98 + b'"', largest=100) == "x" * 98
    with pytest.raises(TooLarge, match="101 bytes, the limit is 100"):
        parsed(b"{" * 101, largest=100)


@pytest.mark.parametrize("levels", [65, 900, 5000, 200_000])
def test_deep_json_is_refused_however_deep(levels: int) -> None:
    with pytest.raises(TooLarge, match="deep"):
        parsed(b"[" * levels + b"]" * levels, largest=1_000_000)
    with pytest.raises(TooLarge, match="deep"):
        parsed(b'{"a":' * levels + b"1" + b"}" * levels, largest=2_000_000)


def test_a_letter_that_says_its_default_says_the_same() -> None:
    """What a file spells out and what a caller leaves out is one letter, also inside a task's note."""
    message = b'{"id":"m1","sender":"ann","recipients":[],"created_at":"2030-01-01T00:00:00Z","task":{"id":"t"%b}}'
    short, long = (decode_message(message % more) for more in (b"", b',"state":"pending"'))
    assert digest(short) == digest(long)
    assert encode(with_defaults(short)) == encode(with_defaults(long))
