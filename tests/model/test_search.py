"""What people type to find letters: every piece of the language, every slip, and how text becomes words."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import Invalid, TooLarge
from postroom.model import message as model_message
from postroom.model.search import (
    BREAK,
    LONGEST,
    MOST_TERMS,
    Marks,
    SearchQuery,
    Term,
    read_query,
    search_text,
    stands_alone,
    texts,
    words,
)
from tests.letters import NOW, letter


def terms(*text: str) -> tuple[Term, ...]:
    return tuple(Term(tuple(each.split())) for each in text)


READ: list[tuple[str, SearchQuery]] = [
    ("merge sort", SearchQuery(terms=terms("merge", "sort"))),
    ("  merge \t\n sort  ", SearchQuery(terms=terms("merge", "sort"))),
    ('"Merge  Sort"', SearchQuery(terms=terms("merge sort"))),
    ("\u201cMerge Sort\u201d", SearchQuery(terms=terms("merge sort"))),
    ("app/a_b.py", SearchQuery(terms=terms("app a b py"))),
    ("sort*", SearchQuery(terms=(Term(("sort",), begins=True),))),
    ("merge-sor*", SearchQuery(terms=(Term(("merge", "sor"), begins=True),))),
    ('"sort*"', SearchQuery(terms=terms("sort"))),
    ('"sort"*', SearchQuery(terms=terms("sort"))),
    ("\u65e5*", SearchQuery(terms=terms("\u65e5"))),
    ("sort -merge", SearchQuery(terms=terms("sort"), without=terms("merge"))),
    ('-"merge sort"', SearchQuery(without=terms("merge sort"))),
    ("--x", SearchQuery(without=terms("x"))),
    ("from:Bob", SearchQuery(wanted=Marks(senders=("bob",)))),
    ("FROM:bob from:team/cleo", SearchQuery(wanted=Marks(senders=("bob", "team/cleo")))),
    ("to:bob to:broadcast:Team", SearchQuery(wanted=Marks(recipients=("bob", "broadcast:team")))),
    ('tag:Red tag:"to do"', SearchQuery(wanted=Marks(tags=("red", "to do")))),
    ("kind:Task thread:A:b.1", SearchQuery(wanted=Marks(kinds=("task",), threads=("A:b.1",)))),
    ("-from:bob -tag:old", SearchQuery(unwanted=Marks(senders=("bob",), tags=("old",)))),
    ("after:2030-01-31", SearchQuery(after=datetime(2030, 1, 31, tzinfo=UTC))),
    ("before:2030-01-31T14:00", SearchQuery(before=datetime(2030, 1, 31, 14, tzinfo=UTC))),
    ("before:2030-01-31T14:00+02:00", SearchQuery(before=datetime(2030, 1, 31, 12, tzinfo=UTC))),
    ("after:7d after:2W", SearchQuery(after=NOW - timedelta(days=7))),
    ("before:12h before:30m", SearchQuery(before=NOW - timedelta(hours=12))),
    ("https://x.org/a 12:30 foo:bar", SearchQuery(terms=terms("https x org a", "12 30", "foo bar"))),
    ('x:"y z"', SearchQuery(terms=terms("x y z"))),
    ("NEAR(a b) OR ^c AND d + {e}", SearchQuery(terms=terms("near a", "b", "or", "c", "and", "d", "e"))),
    ("a & b \u2014 \u2026", SearchQuery(terms=terms("a", "b"))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), READ, ids=[text for text, _ in READ])
def test_a_query_is_read_piece_by_piece(text: str, expected: SearchQuery) -> None:
    assert read_query(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to look for"),
        (' - "" \u2026', "nothing to look for"),
        ('a "b c', "not closed"),
        ('from:"bob', "not closed"),
        ("from:", "needs a value"),
        ("from: bob", "needs a value"),
        ('to:""', "needs a value"),
        ("from:../x", "not allowed"),
        ("to:broadcast:a//b", "not allowed"),
        ("thread:a/b", "not allowed"),
        ("kind:9", "not allowed"),
        ('tag:" "', "blanks"),
        ("form:bob", "from: or"),
        ("sender:bob", "from: or"),
        ("-thred:x", "thread: or"),
        ("since:7d", "after: or"),
        ("before:soon", "not a time"),
        ("after:999999w", "not a time"),
        ("after:0001-01-01T00:00+23:00", "not a time"),
        ("-before:7d", "after:7d"),
        ("ab*", "three letters"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_query(text, NOW)
    assert refused.value.field == "query"
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [None, 5, b"x", ["x"]])
def test_a_query_is_text(text: Any) -> None:
    with pytest.raises(Invalid) as refused:
        read_query(text, NOW)
    assert refused.value.field == "query"


def test_a_query_has_its_limits() -> None:
    read_query("x" * LONGEST, NOW)
    read_query("x " * MOST_TERMS, NOW)
    for text in ("x" * (LONGEST + 1), "x " * (MOST_TERMS + 1), "-tag:x " * (MOST_TERMS + 1), "(" * 10_000):
        with pytest.raises(TooLarge) as refused:
            read_query(text, NOW)
        assert refused.value.field == "query"


@given(st.text() | st.text('abc -:"*()^+\u201cfromtagbefr0129dhw', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(Invalid):
        query = read_query(text, NOW)
        message = [word for term in (*query.terms, *query.without) for word in term.words]
        assert all(words(word) == [word] for word in message)  # nothing in it can be taken for syntax


# -- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Merge-Sort_v2.py", "merge sort v2 py"),
        ("Caf\u00e9 cafe\u0301 CAFE", "cafe cafe cafe"),
        ("Stra\u00dfe \ufb01n \u0130x", "strasse fin ix"),
        ("\u0141\u00f3d\u017a \u0395\u03bb\u03bb\u03ac\u03c2", "\u0142odz \u03b5\u03bb\u03bb\u03b1\u03c3"),
        ("\u65e5\u672c\u8a9e", "\u65e5 \u672c \u8a9e"),
        ("\u30c6\u30b9\u30c8ok", "\u30c6 \u30b9 \u30c8 ok"),
        ("go\U0001f680\u2764\ufe0fgo", "go \U0001f680 \u2764 go"),
        ("\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0940"),
        ("co\u00adder zero\u200bwidth", "coder zero width"),
        ("zero\u200dwidth \ufeffbom", "zerowidth bom"),
        ("\u33920.5\u00bd", "mhz0 51 2"),
        (f"a{BREAK}b\ue001c", "a b c"),
        ("\t\x01 \u2028", ""),
        ("a\x1b[31mred\x1b[0;1mbold\x1b[K", "a red bold"),
        ("\x9b1;31mred\x1b[?25lx \x1bred", "red x red"),
        ("\x1b[31", "31"),
    ],
)
def test_text_becomes_words(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_some_characters_are_words_by_themselves() -> None:
    assert [stands_alone(word) for word in ("\u65e5", "\U0001f680", "a", "\u0142", "ab")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_letter_is_searched_by_what_it_shows_and_not_by_what_it_keeps() -> None:
    content = (
        model_message.text("body"),
        model_message.data({"key": "inner", "list": ["deep", {"more": "deeper"}, 5, None]}),
        model_message.event("happened", {"what": "it"}),
        model_message.part_from_json({"type": "file", "path": "a.txt", "bytes": "secret"}),
        model_message.reference("https://x", "label"),
        model_message.reference("https://y"),
        model_message.part_from_json({"type": "x-own", "own": "word"}),
    )
    private: dict[str, Any] = {
        "metadata": {"m": "secret"},
        "context": {"c": "secret"},
        "extra": {"e": "secret"},
        "key": "secret",
    }
    message = letter("m1", subject="subject", tags=("red",), parts=content, **private)
    assert list(texts(message)) == [
        "subject", "ann", "red", "body", "inner", "deep", "deeper", "happened", "it", "a.txt", "https://x",
        "label", "https://y", "", "word",
    ]  # fmt: skip
    assert search_text(message).startswith(f" subject {BREAK} ann {BREAK} red ")
