"""Templates (M17): named, with places for values; a strict format that no value and no template can abuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom import Invalid, Missing, Priority, Room, TooLarge
from tests.rooms import RoomFactory


@pytest.fixture
def review(room: Room) -> None:
    room.save_template(
        "review",
        subject="Review {branch}",
        body="Look at {branch}, {who}. {{not a place}}",
        kind="request",
        priority="high",
        tags=["review", "on:{branch}"],
    )


@pytest.mark.usefixtures("review")
def test_a_letter_is_made_with_a_value_in_each_place(room: Room) -> None:
    sent = room.mailbox("ann").send_template("bob", "review", {"branch": "main", "who": "Bob"})
    assert sent.message.subject == "Review main"
    (letter,) = room.mailbox("bob").check()
    assert letter.text == "Look at main, Bob. {not a place}"
    assert (letter.kind, letter.priority, letter.tags) == ("request", Priority.HIGH, ("review", "on:main"))


@pytest.mark.usefixtures("review")
def test_passed_fields_beat_the_template(room: Room) -> None:
    values = {"branch": "main", "who": "Bob"}
    sent = room.mailbox("ann").send_template(
        "bob", "review", values, priority="low", subject="Now", cc="carol", key="k"
    )
    assert (sent.message.priority, sent.message.subject) == (Priority.LOW, "Now")
    assert room.mailbox("carol").check()
    again = room.mailbox("ann").send_template(
        "bob", "review", values, priority="low", subject="Now", cc="carol", key="k"
    )
    assert again.repeated


@pytest.mark.usefixtures("review")
@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"branch": "main"}, "values.who", "is missing"),
        (None, "values.branch", "is missing"),
        ({"branch": "main", "who": "x", "more": "y"}, "values", "no place 'more'"),
        ({"branch": "main", "who": "x", 7: "y"}, "values", "no place 7"),
        ({"branch": "main", "who": None}, "values.who", "must be text"),
        ({"branch": "main", "who": True}, "values.who", "must be text"),
        ({"branch": "main", "who": "\0"}, "values.who", "NUL"),
        ({"branch": "two\nlines", "who": "x"}, "subject", "control character"),
        ("text", "values", "must be an object"),
        ([1], "values", "must be an object"),
    ],
)
def test_values_that_do_not_fit_are_named(
    factory: RoomFactory, room: Room, values: Any, field: str, words: str
) -> None:
    before = factory.store.cursor()
    with pytest.raises(Invalid, match=words) as refused:
        room.mailbox("ann").send_template("bob", "review", values)
    assert refused.value.field == field
    assert factory.store.cursor() == before


def test_a_value_is_never_looked_at_again(room: Room) -> None:
    room.save_template("t", body="{a} {b}")
    sent = room.mailbox("ann").send_template("bob", "t", {"a": "{b} {{x}} {0.__class__}", "b": 1.5})
    assert sent.message.text == "{b} {{x}} {0.__class__} 1.5"


@pytest.mark.parametrize(
    "text", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{ a }", "{{{", "{ä}"]
)
@pytest.mark.parametrize("field", ["body", "subject", "tags"])
def test_only_places_and_braces_stand_in_braces(factory: RoomFactory, room: Room, text: str, field: str) -> None:
    params: dict[str, Any] = {field: [text] if field == "tags" else text}
    with pytest.raises(Invalid, match="single brace") as refused:
        room.save_template("t", **params)
    assert refused.value.field == field
    assert room.templates() == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"body": 7}, "body"),
        ({"subject": "a\nb"}, "subject"),
        ({"kind": "no spaces"}, "kind"),
        ({"priority": "very"}, "priority"),
        ({"tags": 7}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"bcc": "eve"}, "bcc"),
    ],
)
def test_a_bad_field_is_named(room: Room, params: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        room.save_template("t", **params)
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["", "a b", "../x", None, 7])
def test_a_bad_name_is_refused_everywhere(room: Room, name: Any) -> None:
    for act in (
        lambda: room.save_template(name, body="x"),
        lambda: room.template(name),
        lambda: room.delete_template(name),
        lambda: room.mailbox("ann").send_template("bob", name),
    ):
        with pytest.raises(Invalid) as refused:
            act()
        assert refused.value.field == "template"


def test_templates_have_limits(factory: RoomFactory) -> None:
    room = factory.room(max_message_bytes=1000)
    with pytest.raises(TooLarge):
        room.save_template("t", body="x" * 1001)
    with pytest.raises(TooLarge):
        room.save_template("t", tags=[str(n) for n in range(257)])


@pytest.mark.usefixtures("review")
def test_templates_are_listed_replaced_and_deleted(factory: RoomFactory, room: Room) -> None:
    room.save_template("alarm", body="Fire in {where}!")
    assert [t.name for t in room.templates()] == ["alarm", "review"]
    assert room.template("review").places == ("branch", "who")
    room.save_template("alarm", body="Flood")
    factory.reopen()
    room = factory.room()
    assert room.template("alarm").body == "Flood"
    room.delete_template("alarm")
    with pytest.raises(Missing, match="there are review"):
        room.template("alarm")
    with pytest.raises(Missing):
        room.delete_template("alarm")
    room.delete_template("review")
    with pytest.raises(Missing, match="none yet"):
        room.mailbox("ann").send_template("bob", "review")


@pytest.mark.usefixtures("review")
def test_templates_go_with_an_export_and_nothing_comes_in_around_the_checks(
    factory: RoomFactory, room: Room, tmp_path: Path
) -> None:
    lines = list(room.export())
    (tmp_path / "other").mkdir()
    other = RoomFactory(factory.kind, tmp_path / "other", factory.clock)
    for bad in (b"Review {0.__class__}", b"Review {"):
        with pytest.raises(Invalid, match="single brace"):
            other.room().load([line.replace(b"Review {branch}", bad) for line in lines])
    other.room().load(lines)
    assert other.room().templates() == room.templates()
    other.store.close()
