"""Letters and agents as agent-inbox writes them down (I1): content comes back as it was sent, bcc stays hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from postroom import Room, data, text
from postroom.formats import inbox
from postroom.formats.inbox import (
    agent_record,
    entry_of,
    line_of,
    message_record,
    milliseconds,
    read_line,
    read_send,
    stamp,
)
from postroom.model.codec import encode
from postroom.model.delivery import Delivery
from postroom.model.message import Message, Recipient, content_of, content_type, part_from_json, payload_to_parts
from postroom.model.query import Query
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.formats.asking import JSON, PAYLOADS, TEXT
from tests.formats.drawn import FULL, letters
from tests.letters import NOW, letter
from tests.rooms import FakeClock, RoomFactory

ROOM = Room(MemoryStore(), Settings(inbox_quota=10**6), clock=FakeClock())  # for many small letters


def record(room: Room, id: str, reader: str | None) -> dict[str, Any]:
    found = room.core.store.find(Query(message_ids=(id,)))
    return record_of(found[0].message, [f.delivery for f in found], reader)


def record_of(message: Message, deliveries: Sequence[Delivery], reader: str | None) -> dict[str, Any]:
    """As it is read on the wire."""
    read: dict[str, Any] = msgspec.json.decode(encode(message_record(message, deliveries, reader)))
    return read


@given(PAYLOADS)
def test_content_comes_out_as_it_went_in(payload: Any) -> None:
    sent = ROOM.mailbox("ann").send("bob", payload_to_parts(payload))
    found = content_of(ROOM.core.store.get((sent.id,))[sent.id].message.parts)
    if isinstance(payload, str):
        assert {"type": "text", "text": payload} == found
    elif isinstance(payload, dict) and isinstance(payload.get("type"), str):
        assert payload == found
    else:
        assert {"type": "data", "data": payload} == found


def test_a_file_of_theirs_is_carried_and_never_opened(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", payload_to_parts({"type": "file", "path": "/etc/passwd"}))
    (part,) = room.mailbox("bob").read(sent.id).message.parts
    assert ("x-content", {"type": "file", "path": "/etc/passwd"}) == (part.type, part["content"])


def test_a_letter_of_several_parts_comes_out_as_its_text_with_all_parts_beside_it() -> None:
    one, two, odd = text("a"), text("b"), data([1])
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "data", "data": [1]}]
    assert {"type": "text", "text": "a\n\nb", "parts": parts} == content_of((one, two, odd))
    assert {"type": "parts", "parts": parts[2:] * 2} == content_of((odd, odd))
    assert {"type": "text", "text": ""} == content_of(())
    assert "data" == content_type(letter("1", parts=(odd,)))


def test_a_letter_has_agent_inboxs_fields_and_no_empty_ones(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    first = ann.send("bob", "hi").id
    assert record(room, first, "bob") == {
        "id": first,
        "scope": "default",
        "sender_id": "ann",
        "recipients": [{"agent_id": "bob", "kind": "to", "delivered_at": "2030-01-01T12:00:00.000Z"}],
        "content": {"type": "text", "text": "hi"},
        "conversation_id": "conv-general:default",
        "importance": "normal",
        "metadata": {},
        "created_at": "2030-01-01T12:00:00.000Z",
    }
    clock.advance(1.5)
    room.mailbox("bob").read(first)
    full = room.mailbox("bob").reply(
        first, "yes", subject="Re", thread_tag="t", priority="high", metadata={"n": 1}, cc=["zoe"]
    )
    found = record(room, full.id, "ann")
    assert {
        "subject": "Re",
        "thread_tag": "t",
        "in_reply_to": first,
        "importance": "high",
    }.items() <= found.items()
    assert [("ann", "to"), ("zoe", "cc")] == [(r["agent_id"], r["kind"]) for r in found["recipients"]]
    assert "2030-01-01T12:00:01.500Z" == record(room, first, "bob")["recipients"][0]["read_at"]
    room.mailbox("bob").read(first).ack()
    assert "2030-01-01T12:00:01.500Z" == record(room, first, "bob")["recipients"][0]["ack_at"]


def test_bcc_is_shown_to_its_sender_and_to_that_recipient(room: Room) -> None:
    id = room.mailbox("ann").send("bob", "psst", bcc=["eve", "zoe"]).id
    bare = room.core.store.get((id,))[id].message
    shown: dict[str | None, list[str]] = {
        "ann": ["bob", "eve", "zoe"], "bob": ["bob"], "eve": ["bob", "eve"], "zoe": ["bob", "zoe"],
        "x": ["bob"], None: ["bob"],
    }  # fmt: skip
    for reader, seen in shown.items():
        for found in (record(room, id, reader), record_of(bare, (), reader)):
            assert seen == sorted(r["agent_id"] for r in found["recipients"])


def test_a_letter_to_a_scope_shows_who_got_it(room: Room) -> None:
    for name in ("ann", "bob", "carol"):
        room.mailbox(name).register(scopes=["team"], capabilities=["sing"])
    to_all = room.mailbox("ann").broadcast("team", "x").id
    assert ["bob", "carol"] == sorted(r["agent_id"] for r in record(room, to_all, "bob")["recipients"])
    room.mailbox("carol").leave()
    to_any = room.mailbox("ann").send("any:sing", "x").id
    assert 1 == len(record(room, to_any, "ann")["recipients"])


def test_an_agent_is_a_row_of_list_agents(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").register()
    room.mailbox("bob").register(display_name="Bob", program="claude-code", scopes=["team", "other"])
    ann, bob = map(agent_record, room.agents())
    time = "2030-01-01T12:00:00.000Z"
    assert ann == {
        "agentId": "ann", "scope": "default", "status": "active", "lastActive": time, "location": "local",
    }  # fmt: skip
    assert bob == ann | {"agentId": "bob", "scope": "team", "name": "Bob", "program": "claude-code"}
    clock.advance(100_000)
    assert {"offline"} == {agent_record(agent)["status"] for agent in room.agents(gone=True)}


def test_times_are_cut_to_the_millisecond_in_both_spellings() -> None:
    time = NOW.replace(microsecond=999_999)
    assert "2030-01-01T12:00:00.999Z" == stamp(time)
    assert 1_893_499_200_999 == milliseconds(time)


def test_stamps_survive_a_restart(factory: RoomFactory) -> None:
    room = factory.room()
    id = room.mailbox("ann").send("bob", "x").id
    room.mailbox("bob").read(id)
    before = record(room, id, "bob")
    factory.reopen()
    assert before == record(factory.room(), id, "bob")


# -- there and back

OURS = {  # a field of a record -> of a request
    "scope": "scope",
    "sender_id": "from",
    "conversation_id": "conversation_id",
    "importance": "importance",
    "metadata": "meta",
    "subject": "subject",
    "thread_tag": "thread_tag",
    "in_reply_to": "in_reply_to",
    "content": "payload",
}
HAD = ROOM.mailbox("bob").send("ann", "a question").id  # that others answer


def request_of(found: dict[str, Any]) -> dict[str, Any]:
    """The request that sends what a record says."""
    to = [{"agent_id": one["agent_id"], "kind": one["kind"]} for one in found["recipients"]]
    return {theirs: found[name] for name, theirs in OURS.items() if name in found} | {"to": to}


def sent_again(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
    """A letter as a record, and the record of the letter that a request with its fields sends."""
    before = record_of(message, (), "ann")
    request = request_of(before)
    if message.conversation_id is None:
        del request["conversation_id"]  # the record names the catch-all of its scope
    fields = read_send(request)
    written = ROOM.mailbox("ann").send(**fields).message
    return before, record_of(written, (), "ann")


def said(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in OURS if name in record}


SAID = st.builds(
    replace,
    letters,
    sender=st.just("ann"),
    recipients=st.lists(
        st.builds(Recipient, st.sampled_from(["bob", "carl", "dora"]), st.sampled_from(["to", "cc"])),
        min_size=1,
        max_size=3,
        unique_by=lambda one: one.address,
    ).map(lambda some: tuple(sorted(some, key=lambda one: one.kind != "to"))),
    subject=st.sampled_from(["", "a line", "ein Gruß"]),
    parts=PAYLOADS.map(lambda payload: tuple(map(part_from_json, payload_to_parts(payload)))),
    metadata=st.dictionaries(TEXT, JSON, max_size=3),
    in_reply_to=st.none() | st.just(HAD),
    conversation_id=st.none() | st.sampled_from(["conv-1", "conv-2"]),
)


@given(SAID)
def test_what_a_record_says_survives_a_request(message: Message) -> None:
    before, again = sent_again(message)
    assert said(before) == said(again)
    assert before["recipients"] == again["recipients"]


@pytest.mark.parametrize("lost", ["scope", "importance", "meta", "subject", "thread_tag", "conversation_id"])
def test_the_loss_of_any_field_of_a_request_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = replace(FULL, in_reply_to=None)
    before, again = sent_again(message)
    assert said(before) == said(again)
    monkeypatch.delitem(inbox._FIELDS, lost)
    _, less = sent_again(message)
    assert said(again) != said(less)


ENTRY = {"id": "messageId", "sender": "from", "subject": "subject", "thread_tag": "threadTag",
         "importance": "importance", "content": "content"}  # fmt: skip


def entry_again(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entry of a letter, and the same fields of what is read of its line."""
    before, found = entry_of(message, "bob"), read_line(line_of(message, "bob"))
    assert found is not None and found.sent_at is not None
    again = {theirs: value for ours, theirs in ENTRY.items() if (value := getattr(found, ours)) != ""}
    again["timestamp"] = stamp(found.sent_at)
    return {name: before[name] for name in (*ENTRY.values(), "timestamp") if name in before}, again


@given(SAID)
def test_a_line_of_inbox_jsonl_comes_back_whole(message: Message) -> None:
    before, again = entry_again(message)
    assert before == again


@pytest.mark.parametrize("lost", ["messageId", "subject", "threadTag", "importance"])
def test_the_loss_of_any_field_of_an_entry_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, again = entry_again(FULL)
    assert before == again
    monkeypatch.delitem(inbox._ENTRY, lost)
    assert before != entry_again(FULL)[1]


@given(st.dictionaries(st.sampled_from([*ENTRY.values(), "timestamp", "payload", "kind"]) | TEXT, JSON))
def test_a_line_that_anybody_wrote_is_a_letter_of_texts(odd: dict[str, Any]) -> None:
    found = read_line(encode(odd))
    assert found is not None
    assert all(isinstance(getattr(found, ours), str) for ours in ENTRY if ours != "content")
    assert found.content == odd.get("content", odd.get("payload"))


def test_a_line_that_is_nested_too_deep_is_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "DEEPEST", 1)
    assert read_line(line_of(FULL, "bob")) is None
