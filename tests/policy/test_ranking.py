"""Which letter answers a search best."""

from __future__ import annotations

from postroom.core.search import by_relevance
from postroom.model import message as model_message
from postroom.model.message import Message
from postroom.model.search import read_query
from tests.letters import NOW, letter


def ranked(query: str, *letters: Message) -> list[str]:
    return [message.id for message in by_relevance(letters, read_query(query, NOW))]


def message(id: str, text: str, subject: str = "") -> Message:
    return letter(id, parts=(model_message.text(text),), subject=subject)


def test_more_mentions_come_first() -> None:
    assert ranked("sort", message("once", "sort and go"), message("twice", "sort sort go")) == ["twice", "once"]


def test_a_mention_in_the_subject_counts_more() -> None:
    assert ranked("sort", message("text", "sort sort x"), message("subject", "x y z", "sort")) == [
        "subject",
        "text",
    ]


def test_a_short_letter_says_more_with_the_same_words() -> None:
    assert ranked("sort", message("long", "sort" + " x" * 500), message("short", "sort x")) == ["short", "long"]


def test_phrases_and_beginnings_are_counted_as_such() -> None:
    loose, close = message("loose", "merge it sort it merge"), message("close", "merge sort merge sort x")
    assert ranked('"merge sort"', loose, close) == ["close", "loose"]
    assert ranked("mer*", message("one", "merge sort sort x"), message("two", "merge merged x x")) == [
        "two",
        "one",
    ]


def test_those_that_are_alike_keep_their_order() -> None:
    alike = [message(f"m{number}", "sort") for number in range(5)]
    assert ranked("sort", *alike) == ["m0", "m1", "m2", "m3", "m4"]
    assert ranked("tag:x -sort", *alike) == ["m0", "m1", "m2", "m3", "m4"]
    assert ranked("sort") == []
