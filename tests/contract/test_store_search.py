"""What every store finds by what letters say: before anything is in an index, and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from postroom.errors import Invalid
from postroom.model import message as model_message
from postroom.model.delivery import open_delivery
from postroom.model.message import Message, Recipient
from postroom.model.search import read_query
from postroom.store.protocol import Post, Store
from postroom.store.sqlite import search
from tests.contract.stores import STORES
from tests.letters import BOOT, NOW, ack, after, forget, held, letter, names, post, send


@pytest.fixture(autouse=True, params=["scanned", "indexed"])
def indexed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every test runs twice: with all letters new, and with all letters in the index, where there is one."""
    if request.param == "indexed":
        monkeypatch.setattr(search, "FEW", 0)
    return bool(request.param == "indexed")


def say(store: Store, id: str, text: str = "", **fields: Any) -> Message:
    message = letter(id, parts=(model_message.text(text),), **fields)
    store.commit([post(message)])
    return message


def found(store: Store, query: str, reader: str | None = None, limit: int = 100) -> list[str]:
    return names(store.search(read_query(query, NOW), reader, limit))


TRICKY = {
    "plain": "Merge sort is stable.",
    "accents": "Caf\u00e9 na\u00efve Stra\u00dfe \u0141\u00f3d\u017a",
    "cjk": "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "hindi": "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e",
    "emoji": "ship it \U0001f680\U0001f680 \u2764\ufe0f",
    "code": "app/main_loop.py:12 well-known max_parts=5",
    "quotes": 'he said "so" \\ and \\n left',
    "syntax": "a AND b NEAR(c) ^d *e* said:f {g}",
    "marks": "\ue001 \ue0021 \ue000x",
    "long": "y" * 40_000 + " end",
    "colours": "\x1b[31mscarlet\x1b[0mand\x1b[1;32mgr\u00fcn\x1b[m",
}
ASKED = [
    ("merge", "plain"), ("STABLE sort", "plain"), ('"sort is"', "plain"), ('"is sort"', ""), ("sor*", "plain"),
    ("cafe", "accents"), ("CAFE\u0301", "accents"), ("naive strasse", "accents"), ("\u0142odz", "accents"),
    ("\u65e5\u672c", "cjk"), ("\u672c\u65e5", ""), ("\u30c6\u30ad", "cjk"), ("\u8a9e", "cjk"),
    ("\u0939\u093f\u0928\u094d\u0926\u0940", "hindi"), ("\U0001f680", "emoji"), ("\u2764", "emoji"),
    ("\U0001f680\U0001f680 ship", "emoji"), ("main_loop", "code"), ("app/main_loop.py", "code"), ("loop_main", ""),
    ("known", "code"), ("well-known", "code"), ("max_parts=5", "code"), ("so", "quotes"), ("n", "quotes"),
    ("nleft", ""), ("NEAR", "syntax"), ("and a", "syntax"), ("said:f", "syntax"), ('"g"', "syntax"),
    ("\ue001", None), ("x", "marks"), ("end", "long"), ("yyy*", "long"), ("yyyy", ""), ("ann", " ".join(TRICKY)),
    ("scarlet", "colours"), ("grun", "colours"), ("31mscarlet", ""), ("\x1b[32mscarlet\x1b[0m", "colours"),
]  # fmt: skip


@pytest.fixture
def tricky(store: Store) -> Store:
    for id, text in TRICKY.items():
        say(store, id, text)
    store.trim()
    return store


@pytest.mark.parametrize(("query", "expected"), ASKED, ids=[ascii(query) for query, _ in ASKED])
def test_words_are_the_same_words_everywhere(tricky: Store, query: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(Invalid):
            found(tricky, query)
    else:
        for reader in (None, "ann", "bob"):
            assert sorted(found(tricky, query, reader)) == sorted(expected.split())
        assert found(tricky, query, "cleo") == []


@pytest.fixture
def mixed(store: Store) -> Store:
    say(store, "root", "first", subject="Plan")
    say(store, "reply", "second", sender="bob", to=["ann"], thread_id="root", kind="response")
    say(store, "task", "third", kind="Task", tags=("Red", "to do"), created_at=after(60))
    message = letter("secret", ["bob"], parts=(model_message.text("fourth"),), tags=("red",))
    hidden = (*message.recipients, Recipient("cleo", "cc"), Recipient("dave", "bcc"))
    message = Message(
        **{name: getattr(message, name) for name in message.__struct_fields__} | {"recipients": hidden}
    )
    store.commit([post(message)])
    team = letter("team", ["broadcast:Team"], sender="cleo", parts=(model_message.text("fifth"),))
    first = open_delivery(team, "bob", "to", NOW, None)
    store.commit([Post(message=team, deliveries=(first,), copies=("ann", "eve"))])
    store.trim()
    return store


@pytest.mark.parametrize(
    ("query", "reader", "expected"),
    [
        ("from:ann", None, "secret task root"),
        ("from:Ann", "bob", "secret task root"),
        ("from:bob from:cleo", None, "team reply"),
        ("-from:ann", "ann", "team reply"),
        ("to:bob", None, "secret task root"),
        ("to:bob to:cleo", "bob", "secret"),
        ("to:ann", "ann", "reply"),
        ("to:broadcast:team", "eve", "team"),
        ("to:eve", "eve", ""),
        ("to:dave", "ann", "secret"),
        ("to:dave", "dave", "secret"),
        ("to:dave", "bob", ""),
        ("to:dave", None, ""),
        ("-to:dave", "bob", "team secret task reply root"),
        ("-to:dave", "ann", "team task reply root"),
        ("-to:dave fourth", None, "secret"),
        ("tag:red", None, "secret task"),
        ("tag:RED tag:to do", None, ""),
        ('tag:RED tag:"to do"', None, "task"),
        ("red -tag:red", None, ""),
        ("kind:task", None, "task"),
        ("kind:task kind:response", None, "task reply"),
        ("-kind:message", None, "task reply"),
        ("thread:root", None, "reply root"),
        ("thread:root thread:task -first", None, "task reply"),
        ("thread:reply", None, ""),
        ("after:2030-01-01T12:01", None, "task"),
        ("before:2030-01-01T12:01 from:ann", None, "secret root"),
        ("before:2030-01-01T12:00", None, ""),
        ("after:0d", "cleo", "team secret"),
        ("plan", "bob", "root"),
        ("plan", "cleo", ""),
        ("third", "cleo", ""),
        ("fifth", "dave", ""),
        ("-nothing", "dave", "secret"),
        ("first", "nobody", ""),
        ("first", "Bob", ""),
        ("from:nobody", None, ""),
    ],
)
def test_every_mark_narrows_and_nobody_sees_more_than_their_own(
    mixed: Store, query: str, reader: str | None, expected: str
) -> None:
    assert found(mixed, query, reader) == expected.split()


def test_the_newest_come_first_as_many_as_wanted(store: Store) -> None:
    for number in range(40):
        say(store, f"m{number}", "odd" if number % 2 else "even", to=["bob"] if number % 4 else ["cleo"])
    store.trim()
    for number in range(40, 45):
        say(store, f"m{number}", "odd" if number % 2 else "even")
    odd = [f"m{number}" for number in range(44, -1, -1) if number % 2]
    for limit in (1, 2, 3, 5, 22, 23, 100):
        assert found(store, "odd", limit=limit) == odd[:limit]
        assert found(store, "odd", "bob", limit=limit) == odd[:limit]
        assert found(store, "even", "cleo", limit=limit) == [f"m{n}" for n in range(36, -1, -4)][:limit]


def test_a_search_goes_on_below_a_number(store: Store, indexed: bool) -> None:
    for number in range(12):
        say(store, f"m{number}", f"word {number}")
        if indexed and number == 8:  # some are in the index, the newest are not
            store.trim()
    shown: list[str] = []
    query = read_query("word", NOW)
    while page := store.search(query, None, 5):
        shown += names(page)
        query = replace(query, below=page[-1].number)
    assert [f"m{number}" for number in reversed(range(12))] == shown


def test_a_letter_that_is_not_due_is_found_by_its_sender_alone(store: Store) -> None:
    store.commit([post(letter("later", subject="surprise"), due_at=after(60))])
    store.trim()
    assert found(store, "surprise", "ann") == ["later"]
    assert found(store, "surprise", "bob") == []


def test_a_deleted_letter_is_not_found(store: Store) -> None:
    gone = say(store, "gone", "word")
    say(store, "kept", "word")
    store.trim()
    ack(store, held(store, "gone"))
    store.commit(forget(gone))
    assert found(store, "word") == ["kept"]


def test_what_is_committed_is_found_at_once(store: Store) -> None:
    for number in range(30):
        say(store, f"m{number}", f"word{number}")
        assert found(store, f"word{number}", "bob") == [f"m{number}"]
        if number % 7 == 0:
            store.trim()


def test_a_long_phrase_and_many_terms_are_no_trouble(store: Store) -> None:
    say(store, "cjk", "\u65e5" * 2000)
    say(store, "many", " ".join(f"w{number}" for number in range(64)))
    store.trim()
    assert found(store, "\u65e5" * 999) == ["cjk"]
    assert found(store, " ".join(f"w{number}" for number in range(64))) == ["many"]
    assert found(store, "-x " * 64) == ["many", "cjk"]
    assert found(store, " ".join(f"from:a{number}" for number in range(63)) + " from:ann") == ["many", "cjk"]


# -- any text, any question: all stores give the same answer

WORDS = st.sampled_from(
    ["sort", "Sort", "caf\u00e9", "\u65e5\u672c", "a_b", "x", "\U0001f680", "b", '"', "\n", "\ue001"]
)
TEXTS = st.lists(WORDS | st.text(max_size=6), max_size=6).map(" ".join)
PIECES = st.sampled_from(
    ["sort", "-sort", "sor*", "cafe", "\u65e5", '"a b"', "from:ann", "-from:bob", "tag:t", "to:cleo", "-to:cleo",
     "kind:message", "after:1d", "before:0m", "AND", "NEAR(", "*", "^x", '"', "b"]
)  # fmt: skip
QUERIES = st.lists(PIECES | st.text(max_size=8), max_size=5).map(" ".join)
LETTERS = st.lists(
    st.tuples(TEXTS, TEXTS, st.sampled_from(["ann", "bob"]), st.sampled_from(["bob", "cleo"]), st.booleans()),
    max_size=6,
)


def hostless(text: str) -> str:
    return "".join(c for c in text if c != "\0" and not "\ud800" <= c <= "\udfff")


def rooms(folder: str) -> Iterator[Store]:
    for kind in STORES:
        place = Path(folder) / kind.name
        place.mkdir()
        yield kind.open(place, BOOT)


@given(LETTERS, st.lists(QUERIES, min_size=1, max_size=5), st.integers(0, 6))
@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_store_answers_any_question_alike(
    indexed: bool, letters: list[tuple[str, str, str, str, bool]], queries: list[str], in_index: int
) -> None:
    with TemporaryDirectory() as folder:
        stores = list(rooms(folder))
        for store in stores:
            for number, (subject, text, sender, to, tagged) in enumerate(letters):
                if number == in_index:
                    store.trim()
                content = (model_message.text(hostless(text)), model_message.data([hostless(subject)]))
                tags = ("t",) if tagged else ()
                fields = {"subject": hostless(subject), "sender": sender, "parts": content, "tags": tags}
                send(store, f"m{number}", [to], **fields)
        for query in queries:
            for reader in (None, "ann", "bob", "cleo"):
                matches_search = [answer_of(store, query, reader) for store in stores]
                assert matches_search[1:] == matches_search[:-1]
        for store in stores:
            store.close()


def answer_of(store: Store, query: str, reader: str | None) -> list[str] | str:
    try:
        return found(store, query, reader)
    except Invalid as refused:
        return str(refused)
