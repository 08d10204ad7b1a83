"""Names and messages of a link, without a network: whatever a server sends, the result is sound."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from postroom.federation.connection import ConnectionLost, MapRefusal, RpcConnection
from postroom.formats.map import GUEST, decode_message, encode_send, origin_of
from postroom.map.link_directory import LINKED, RemoteAgent, clean, of_session, read_agents, remote_agents
from postroom.model.agent import WORDS
from postroom.model.message import Message, Part, Priority, Recipient
from postroom.model.names import check_agent, fold
from tests.docs.pages import HOME

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(max_size=12) | st.integers()},
        optional={"name": st.text(max_size=12) | st.sampled_from(["bob", "Bob", "a/b"]), "state": json_values},
    )
    | json_values,
    max_size=8,
)


@given(rows, rows)
def test_whatever_a_server_lists_has_sound_names_and_keeps_them(first: list[Any], second: list[Any]) -> None:
    before = remote_agents(read_agents(first), "hive", ["own"], {})
    for mailbox, one in before.items():
        assert mailbox == one.mailbox == check_agent(mailbox, "id") and mailbox.startswith("hive/")
    assert len({fold(mailbox) for mailbox in before}) == len(before)
    here = {one.id: mailbox for mailbox, one in before.items()}
    others = [row for row in second if not isinstance(row, dict) or row.get("id") not in list(here)]
    after = remote_agents(read_agents([*others, *first]), "hive", ["own"], before)
    assert here.items() <= {one.id: mailbox for mailbox, one in after.items()}.items()


def test_the_first_has_the_name_and_the_second_its_id() -> None:
    found = remote_agents(read_agents([{"id": "1", "name": "bob"}, {"id": "2", "name": "BOB"}]), "hive", [], {})
    assert {"hive/bob": "1", "hive/2": "2"} == {mailbox: one.id for mailbox, one in found.items()}
    again = remote_agents(read_agents([{"id": "2", "name": "bob"}, {"id": "3", "name": "bob"}]), "hive", [], found)
    assert {"hive/bob": "2", "hive/3": "3"} == {mailbox: one.id for mailbox, one in again.items()}
    late = remote_agents(read_agents([{"id": "3", "name": "bob"}, {"id": "2", "name": "bob"}]), "hive", [], again)
    assert {"hive/bob": "2", "hive/3": "3"} == {mailbox: one.id for mailbox, one in late.items()}


def test_our_own_and_those_of_other_links_are_passed_over() -> None:
    results = [{"id": "own", "name": "ann"}, {"id": "x", "name": "x", "metadata": {LINKED: {"id": "7"}}}]
    assert {} == remote_agents(read_agents(results), "hive", ["own"], {})


def test_those_we_brought_are_ours_also_after_the_server_forgot_our_visit() -> None:
    brought = {"ann": "berlin", "x": "another"}
    results = [{"id": name, "name": name, "metadata": {GUEST: {"of": of}}} for name, of in brought.items()]
    odd = [{"id": "y", "name": "y", "metadata": {GUEST: 7}}, {"id": "z", "name": "z", "metadata": 7}]
    assert ["hive/x", "hive/y", "hive/z"] == list(
        remote_agents(read_agents([*results, *odd]), "hive", [], {}, "berlin")
    )


@pytest.mark.parametrize(
    ("state", "is_here"),
    [("idle", True), ("busy", True), ("suspended", True), ("stopped", False), ("x-odd", True)],
)
def test_who_has_stopped_is_not_sent_to(state: str, is_here: bool) -> None:
    (one,) = remote_agents(read_agents([{"id": "1", "name": "bob", "state": state}]), "hive", [], {}).values()
    assert is_here == one.is_here


@given(st.text(max_size=300))
def test_a_name_is_cleaned_into_one_of_ours_or_nothing(text: str) -> None:
    name = clean(text)
    assert not name or name == clean(name) == check_agent(f"x{name}", "id")[1:]


def test_who_spoke_is_found_by_its_session_and_nobody_poses() -> None:
    rows = [{"id": "1", "name": "berlin"}, {"id": "2", "name": "ann"}, {"id": "3", "name": "eve"}]
    results, own = read_agents(rows), read_agents([{"id": "own"}])
    there = remote_agents(results, "hive", [], {})
    everyone = ["1", "2", "3", "own"]
    assert "hive/ann" == of_session(results[:2], everyone, there, "ann")
    assert "hive/berlin" == of_session(results[:2], everyone, there, "eve")  # eve is on another connection
    assert of_session([*results, *own], everyone, there, "ann") is None  # it told of everybody
    assert of_session(results, ["1", "2", "3"], there, "ann") is None
    assert of_session([], everyone, there, "ann") is None


# -- messages


def letter(**fields: Any) -> Message:
    params: dict[str, Any] = {"parts": (Part(type="text", text="hi"),)} | fields
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return Message(
        id="L1", sender="ann", recipients=(Recipient("hive/bob"),), created_at=now, hops=3, trace=(), **params
    )


BOB = RemoteAgent(id="id-bob", mailbox="hive/bob", name="bob")


@given(
    st.text(min_size=1, max_size=20),
    st.sampled_from(Priority),
    st.none() | st.just("t1"),
    st.booleans(),
)
def test_a_letter_arrives_as_it_was_sent_even_where_meta_is_dropped(
    text: str, priority: Priority, tag: str | None, is_kept: bool
) -> None:
    sent = letter(parts=(Part(type="text", text=text),), priority=priority, thread_tag=tag, subject="S")
    message = encode_send(
        sent, system="berlin", to=BOB.id, title=BOB.title, expires_in=2.5, answers=None, beside=not is_kept
    )
    wire = json.loads(json.dumps(message))
    if not is_kept:
        del wire["meta"]
    got = decode_message({"id": "M1", "from": "session", "timestamp": 5, **wire})
    assert got is not None
    assert ("ann", "bob", "L1", "L1") == (got.says_from, got.target, got.origin, got.key)
    assert [{"type": "text", "text": text}] == got.fields["body"]
    assert (priority.name.lower(), "S", 2.5) == tuple(
        got.fields[name] for name in ("priority", "subject", "expires")
    )
    assert (tag or sent.thread) == got.fields["thread_tag"]


def test_what_a_sender_says_in_meta_stays_and_what_decides_is_the_letters() -> None:
    params = {"correlationId": "c1", "timestamp": 5, "importance": "low", "x": {"y": 1}, "mail": {"threadId": "t"}}
    forged = {"senderId": "eve", "messageId": "m", "sourceSystem": "x", "targetAgent": "y"}
    sent = letter(metadata=params | forged, priority=Priority.HIGH, conversation_id="conv")
    meta = encode_send(sent, system="b", to=BOB.id, title=BOB.title, expires_in=None, answers=None, beside=False)[
        "meta"
    ]
    assert params | {"mail": {"threadId": "t", "conversationId": "conv"}} == {name: meta[name] for name in params}
    assert ("ann", "L1", "b", "bob", "high") == tuple(meta[name] for name in (*forged, "priority"))
    odd = letter(metadata={"importance": 7, "correlationId": None, "mail": 3, "priority": "x"})
    meta = encode_send(odd, system="b", to=BOB.id, title=BOB.title, expires_in=None, answers=None, beside=False)[
        "meta"
    ]
    assert ("normal", "normal", "L1") == tuple(meta[name] for name in ("priority", "importance", "correlationId"))


def test_an_answer_names_the_letter_as_its_sender_does() -> None:
    came = letter(extra={"map": {"id": "theirs"}})
    message = encode_send(
        letter(in_reply_to="L1"),
        system="b",
        to=BOB.id,
        title=BOB.title,
        expires_in=None,
        answers=came,
        beside=False,
    )
    assert ("theirs", "theirs") == (origin_of(came), message["meta"]["inReplyTo"])
    assert "_meta" not in message["payload"] and origin_of(letter(extra={"map": 7})) is None


@given(st.dictionaries(st.sampled_from(["id", "from", "to", "payload", "meta", "timestamp"]), json_values))
def test_whatever_comes_is_a_letter_or_nothing(message: dict[str, Any]) -> None:
    got = decode_message(message)
    assert got is None or (got.fields["body"] is not None and bool(got.key))
    assert got == decode_message(dict(message))  # and has the same key when it comes again


# -- calls


def test_answers_find_their_calls_and_a_cut_ends_them_all() -> None:
    async def story() -> None:
        sent: list[Any] = []
        received: list[Any] = []

        async def send(args: dict[str, Any]) -> None:
            sent.append(args)

        line = RpcConnection(send, lambda method, params: received.append((method, params)), 5)
        calls = [asyncio.ensure_future(line.call(f"m{n}", n=n)) for n in range(4)]
        await asyncio.sleep(0)
        ids = [args["id"] for args in sent]  # other lines may have asked before
        await line.receive(json.dumps({"id": ids[1], "result": {"two": 2}}))
        error = {"code": 2001, "message": "x", "data": {"retryable": True}}
        await line.receive(json.dumps({"id": ids[0], "error": error}))
        await line.receive(json.dumps({"id": ids[2], "result": 7}))
        await line.receive(json.dumps({"method": "map/message", "params": {"a": 1}}))
        await line.receive(json.dumps({"id": "theirs", "method": "map/inject"}))
        assert ({"two": 2}, {}) == (await calls[1], await calls[2])
        with pytest.raises(MapRefusal) as refused:
            await calls[0]
        assert (2001, True) == (refused.value.code, refused.value.is_temporary)
        assert [("map/message", {"a": 1})] == received and -32601 == sent[-1]["error"]["code"]
        line.abort()
        for lost in (calls[3], line.call("late")):
            with pytest.raises(ConnectionLost):
                await lost

    asyncio.run(story())


def test_an_answer_to_one_line_is_none_to_the_next_on_the_same_connection() -> None:
    """Else a receipt that comes late would be taken for another letter's."""

    async def story() -> None:
        sent: list[int] = []

        async def send(params: dict[str, Any]) -> None:
            sent.append(params["id"])

        before, after = (RpcConnection(send, lambda *_: None, 5) for _ in range(2))
        calls = [asyncio.ensure_future(line.call("m")) for line in (before, after)]
        await asyncio.sleep(0)
        after.receive_response(sent[0], {"result": {}})
        before.abort()
        after.abort()
        for lost in calls:
            with pytest.raises(ConnectionLost):
                await lost

    asyncio.run(story())


# -- the page


def test_the_page_has_the_words_of_the_one_table() -> None:
    page = (HOME / "docs" / "migrating.md").read_text(encoding="utf-8")
    table = page[page.index("| here | agent-inbox") :].splitlines()[2:]
    results = [line.strip("|").split("|") for line in table]
    rows = {tuple(cell.strip() for cell in cells) for cells in results}
    ours = {str(one): astuple(words) for one, words in WORDS.items()}
    wanted = {
        (name, *ours[name.partition(",")[0]]) for name in ("idle", "busy", "away", "expired, gone", "dormant")
    }
    assert wanted == rows and ours["expired"] == ours["gone"]
