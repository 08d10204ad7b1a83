"""What every store answers about letters, threads, conversations, records and names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from postroom.errors import StaleRevision
from postroom.model.message import Recipient
from postroom.model.query import LetterQuery
from postroom.model.record import CARD, Record
from postroom.model.thread import conversation_of, general_conversation, tag_conversation
from postroom.store.protocol import Put, Store, all_names, record_keys
from tests.letters import ack, after, bury, held, letter, names, note, post, send

ALL = ("root", "reply", "again", "tagged", "talk", "team's", "secret")


@pytest.fixture
def talks(store: Store) -> Store:
    """Letters of one thread, of a tag, of an explicit conversation, of a scope."""
    send(store, "root")
    send(store, "reply", ["ann"], sender="bob", thread_id="root", in_reply_to="root")
    send(store, "again", ["cleo"], sender="ann", thread_id="root", in_reply_to="reply")
    send(store, "tagged", thread_tag="release", scope="team")
    send(store, "talk", conversation_id="conv-1", thread_tag="release")
    send(store, "team's", ["dan"], scope="team", sender="bob")
    hidden = replace(letter("secret", ["bob"], sender="eve"), recipients=(Recipient("dan", "bcc"),))
    store.commit([post(hidden)])
    return store


QUERIES = [
    (LetterQuery(), ALL),
    (LetterQuery(thread="root"), ("root", "reply", "again")),
    (LetterQuery(thread="reply"), ()),
    (LetterQuery(thread="talk"), ("talk",)),
    (LetterQuery(thread_tag="release"), ("tagged", "talk")),
    (LetterQuery(conversation="conv-1"), ("talk",)),
    (LetterQuery(conversation=tag_conversation("release", "team")), ("tagged",)),
    (LetterQuery(conversation=tag_conversation("release")), ()),
    (LetterQuery(conversation=general_conversation()), ("root", "reply", "again", "secret")),
    (LetterQuery(conversation=general_conversation("team")), ("team's",)),
    (LetterQuery(scope="team"), ("tagged", "team's")),
    (LetterQuery(scope="default", thread_tag="release"), ("talk",)),
    (LetterQuery(party="cleo"), ("again",)),
    (LetterQuery(party="dan"), ("team's", "secret")),
    (LetterQuery(party="bob"), ("root", "reply", "tagged", "talk", "team's")),
    (LetterQuery(party="Bob"), ()),
    (LetterQuery(sender="bob"), ("reply", "team's")),
    (LetterQuery(sender="bob", spared=("reply", "not there")), ("team's",)),
    (LetterQuery(sender="Bob"), ()),
    (LetterQuery(sender="ann", scope="default"), ("root", "again", "talk")),
    (LetterQuery(replies_in="root"), ("reply", "again")),
    (LetterQuery(replies_in="root", sender="ann"), ("again",)),
    (LetterQuery(replies_in="reply"), ()),
    (LetterQuery(received_by="bob"), ("root", "tagged", "talk")),
    (LetterQuery(received_by="Bob"), ()),
    (LetterQuery(replies_in="root", newest=1), ("again",)),
    (LetterQuery(replies_in="root", newest=9), ("reply", "again")),
    (LetterQuery(conversation=tag_conversation("release", "team"), newest=1), ("tagged",)),
]


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=lambda value: repr(value)[12:60])
def test_every_field_of_a_letter_query_narrows(
    talks: Store, query: LetterQuery, expected: tuple[str, ...]
) -> None:
    assert tuple(names(talks.letters(query))) == expected
    assert tuple(names(talks.letters(replace(query, order="newest")))) == expected[::-1]
    assert tuple(names(talks.letters(replace(query, limit=2)))) == expected[:2]
    assert tuple(names(talks.letters(replace(query, limit=1, order="newest")))) == expected[::-1][:1]
    assert tuple(names(talks.letters(replace(query, skip=1)))) == expected[1:]
    assert tuple(names(talks.letters(replace(query, skip=1, limit=1)))) == expected[1:2]


def test_letters_to_several_are_those_with_more_than_one_delivery(talks: Store) -> None:
    send(talks, "all", ["bob", "cleo", "dan"])
    assert names(talks.letters(LetterQuery(to_several=True))) == ["all"]


def test_letters_after_a_number_are_the_later_ones(talks: Store) -> None:
    number = held(talks, "talk").number

    assert names(talks.letters(LetterQuery(after=number))) == ["team's", "secret"]
    assert [found.number for found in talks.letters(LetterQuery(after=number))] > [number]


def test_a_letter_is_settled_when_its_last_delivery_is(store: Store) -> None:
    send(store, "open")
    ack(store, send(store, "half", ["bob", "cleo"]))
    ack(store, send(store, "done", ["bob", "cleo"]))
    ack(store, held(store, "done", "cleo"), after(10))
    bury(store, send(store, "dead"))

    assert names(store.letters(LetterQuery(settled_before=after(0)))) == []
    assert names(store.letters(LetterQuery(settled_before=after(10)))) == ["dead"]
    assert names(store.letters(LetterQuery(settled_before=after(10.5)))) == ["done", "dead"]


def active(store: Store, query: LetterQuery) -> list[str]:
    """The threads or conversations of a query, the most recently active first."""
    name = (lambda message: message.thread) if query.newest_of == "thread" else conversation_of
    return [name(letter.message) for letter in store.letters(query)]


def test_threads_are_those_with_replies_the_latest_first(store: Store) -> None:
    send(store, "alone")
    send(store, "one")
    send(store, "two", sender="cleo")
    send(store, "r2", ["cleo"], sender="bob", thread_id="two")
    send(store, "r1", ["ann"], sender="bob", thread_id="one")
    assert active(store, LetterQuery(newest_of="thread", limit=10)) == ["one", "two"]

    send(store, "r3", ["cleo"], sender="bob", thread_id="two")
    assert active(store, LetterQuery(newest_of="thread", limit=10)) == ["two", "one"]
    assert active(store, LetterQuery(newest_of="thread", limit=1)) == ["two"]
    assert active(store, LetterQuery(newest_of="thread", party="ann", limit=10)) == ["one"]
    assert active(store, LetterQuery(newest_of="thread", party="bob", limit=10)) == ["two", "one"]
    assert active(store, LetterQuery(newest_of="thread", party="nobody", limit=10)) == []


def test_conversations_are_explicit_or_by_tag_and_scope_or_catch_all(talks: Store) -> None:
    general, team = general_conversation(), general_conversation("team")
    release = tag_conversation("release", "team")

    assert active(talks, LetterQuery(newest_of="conversation", limit=10)) == [general, team, "conv-1", release]
    assert active(talks, LetterQuery(newest_of="conversation", limit=2)) == [general, team]
    assert active(talks, LetterQuery(newest_of="conversation", scope="team", limit=10)) == [team, release]
    assert active(talks, LetterQuery(newest_of="conversation", scope="default", limit=10)) == [general, "conv-1"]
    assert active(talks, LetterQuery(newest_of="conversation", party="cleo", limit=10)) == [general]
    assert active(talks, LetterQuery(newest_of="conversation", party="dan", scope="team", limit=10)) == [team]
    send(talks, "more", conversation_id="conv-1")
    assert active(talks, LetterQuery(newest_of="conversation", limit=1)) == ["conv-1"]


def test_records_are_found_by_kind_and_key_in_the_order_of_keys(store: Store) -> None:
    other = Put(record=Record(kind="other", key="a", value=1))
    store.commit([note("B", key="b"), note(["ä", None, {"x": 1.5}], key="a"), other])

    assert [(r.key, r.value) for r in store.records("note")] == [("a", ["ä", None, {"x": 1.5}]), ("b", "B")]
    assert [r.value for r in store.records("note", "b")] == ["B"]
    assert store.records("note", "c") == []
    assert store.records("nothing") == []
    assert (record_keys(store, "note"), record_keys(store, "nothing")) == (["a", "b"], [])


def test_a_record_that_may_be_lost_is_written_all_the_same(store: Store) -> None:
    store.commit([Put(record=Record(kind="beat", key="bob", value=1), durable=False)])

    assert store.records("beat") == [Record(kind="beat", key="bob", value=1, revision=1)]


def test_mailboxes_are_all_who_wrote_were_written_to_or_registered(store: Store) -> None:
    assert all_names(store) == []
    send(store, "m1", ["zoe", "swarm/bob"])
    store.commit([Put(record=Record(kind=CARD, key="Max", value={})), note(1, key="nobody")])

    assert all_names(store) == sorted(["ann", "zoe", "swarm/bob", "Max"])


def test_ids_are_found_by_how_they_begin_and_only_those_that_a_party_may_see(store: Store) -> None:
    for id in ("01AB", "01AA", "01ABC", "01B", "ab", "01a"):
        send(store, id, ["bob"] if id != "01B" else ["dan"])
    assert ids_with(store, "01A") == ["01AA", "01AB", "01ABC"]
    assert ids_with(store, "01A", "bob", limit=2) == ["01AA", "01AB"]
    assert ids_with(store, "01AB", "bob") == ["01AB", "01ABC"]  # the whole id comes first
    assert ids_with(store, "01", "dan") == ["01B"]
    assert ids_with(store, "01", "ann") == ["01AA", "01AB", "01ABC", "01B", "01a"]  # who sent them
    assert ids_with(store, "01A", "zoe") == ids_with(store, "02") == ids_with(store, "01%") == []


def ids_with(store: Store, beginning: str, party: str | None = None, limit: int = 9) -> list[str]:
    query = LetterQuery(beginning=beginning, party=party, order="id", limit=limit)
    return [letter.message.id for letter in store.letters(query)]


def test_a_record_may_come_in_at_a_revision_and_goes_on_from_there(store: Store) -> None:
    store.commit([Put(record=Record(kind="k", key="a", value=1), first=7)])
    (held,) = store.records("k", "a")
    assert (held.revision, held.value) == (7, 1)
    store.commit([Put(record=replace(held, value=2), first=3)])  # there already: the next one
    assert store.records("k", "a")[0].revision == 8
    with pytest.raises(StaleRevision):
        store.commit([Put(record=Record(kind="k", key="a", value=3), first=9)])
