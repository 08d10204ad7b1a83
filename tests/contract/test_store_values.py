"""A letter comes back exactly as it was accepted, and nobody can change it afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from postroom.model.message import (
    Message,
    Part,
    Priority,
    Recipient,
    TaskNote,
    data,
    event,
    file,
    part_from_json,
    reference,
    text,
)
from postroom.model.query import LetterQuery, Query
from postroom.model.record import Record
from postroom.model.task import TaskState
from postroom.model.values import check_json
from postroom.store.protocol import Put, Store
from tests.contract.stores import Kind
from tests.letters import BOOT, letter, note, post

words = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
labels = some.from_regex(r"[A-Za-z0-9._:-]{1,20}", fullmatch=True)
agents = some.sampled_from(["ann", "bob", "cleo", "swarm/dan", "x" * 128])
times = some.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=some.just(UTC))  # noqa: DTZ001
numbers = some.integers(-(2**63), 2**63 - 1) | some.floats(allow_nan=False, allow_infinity=False)
plain = some.recursive(
    some.none() | some.booleans() | numbers | words,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = some.dictionaries(words, plain, max_size=3)


def part_of_own_type(kind: str, fields: dict[str, Any]) -> Part:
    return part_from_json({**fields, "type": f"x-{kind}"})


parts = some.one_of(
    some.builds(text, words),
    some.builds(data, plain, some.none() | words),
    some.builds(event, words, plain),
    some.builds(file, words, some.none() | words),
    some.builds(reference, words, some.none() | words),
    some.builds(part_of_own_type, labels, objects),
)
notes = some.builds(
    TaskNote,
    id=labels,
    state=some.sampled_from([state.value for state in TaskState]),
    deadline=some.none() | times,
    reason=some.none() | words,
)
messages = some.builds(
    Message,
    id=labels,
    sender=agents,
    recipients=some.lists(
        some.builds(Recipient, agents, some.sampled_from(["to", "cc", "bcc"])),
        unique_by=lambda recipient: recipient.address,
        min_size=1,
        max_size=4,
    ).map(tuple),
    created_at=times,
    kind=labels,
    subject=words,
    parts=some.lists(parts, max_size=4).map(tuple),
    priority=some.sampled_from(Priority),
    scope=labels,
    expires_at=some.none() | times,
    thread_tag=some.none() | words.filter(bool),
    thread_id=some.none() | labels,
    conversation_id=some.none() | labels,
    in_reply_to=some.none() | labels,
    hops=some.integers(0, 9),
    trace=some.lists(agents, max_size=3).map(tuple),
    task=some.none() | notes,
    callback=some.none() | objects,
    context=some.none() | objects,
    attachments=some.lists(words, max_size=2).map(tuple),
    tags=some.lists(words, max_size=3).map(tuple),
    metadata=objects,
    key=some.none() | words.filter(bool),
    extra=objects,
)

FULL = letter(
    "full",
    parts=(text("hé\u2028llo 🦉"), data({"a": [1, 2.5, None]}, "s"), Part("x-mine", deep={"er": [True]})),
    metadata={"list": [1], "object": {"a": 1}},
    extra={"X-Old": "kept", "nested": {"a": []}},
    callback={"url": "https://example.org"},
    context={"why": ["because"]},
)


@settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=messages)
def test_a_letter_comes_back_as_it_was_accepted(kind: Kind, message: Message) -> None:
    with TemporaryDirectory() as folder:
        store = kind.open(Path(folder), BOOT)
        store.commit([post(message)])
        if kind.lasts:
            store.close()
            store = kind.open(Path(folder), BOOT)

        assert store.get([message.id])[message.id].message == message
        assert [found.message for found in store.find(Query())] == [message] * len(message.recipients)
        assert [found.message for found in store.letters(LetterQuery(thread=message.thread))] == [message]
        assert store.commit([post(message)])[0].repeated
        store.close()


fresh_keys = map(str, count())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=plain.filter(lambda value: value is not None))
def test_a_record_comes_back_as_it_was_written(store: Store, value: Any) -> None:
    key = next(fresh_keys)
    store.commit([note(value, key=key)])

    assert store.records("note", key) == [Record(kind="note", key=key, value=value, revision=1)]


@given(value=plain)
def test_what_these_tests_write_is_what_may_enter(value: Any) -> None:
    assert check_json(value, "value", 64) == value


def test_changing_what_was_returned_changes_nothing_stored(store: Store) -> None:
    store.commit([post(FULL), Put(record=Record(kind="note", key="k", value={"list": [1]}))])

    def spoil(message: Message) -> None:
        message.metadata["list"].append(2)
        message.extra.clear()
        assert message.callback is not None
        message.callback["url"] = "https://elsewhere.example"
        message.parts[1]["data"]["a"].clear()
        message.parts[2].to_json()["deep"]["er"].clear()

    spoil(store.get(["full"])["full"].message)
    spoil(store.find(Query())[0].message)
    spoil(store.letters(LetterQuery())[0].message)
    store.records("note")[0].value["list"].append(2)
    store.records("note", "k")[0].value.clear()

    assert store.find(Query())[0].message == FULL
    assert store.get(["full"])["full"].message == FULL
    assert store.records("note")[0].value == store.records("note", "k")[0].value == {"list": [1]}


def test_changing_what_was_handed_in_changes_nothing_stored(store: Store) -> None:
    metadata, value = {"list": [1]}, {"list": [1]}
    store.commit([post(letter("m1", metadata=metadata)), note(value)])

    metadata["list"].append(2)
    value["list"].append(2)
    assert store.get(["m1"])["m1"].message.metadata == {"list": [1]}
    assert store.records("note")[0].value == {"list": [1]}
