"""Every action of agent-inbox, with its own requests and replies."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from postroom.formats.events import emitted_event
from tests.daemons import Daemon, Line

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def send(daemon: Daemon, **message: Any) -> str:
    reply = daemon.ask(action="send", **message)
    assert set(reply) == {"ok", "messageId"}, reply
    assert reply["ok"] is True
    id: str = reply["messageId"]
    return id


def inbox(daemon: Daemon, **message: Any) -> list[dict[str, Any]]:
    reply = daemon.ask(action="check_inbox", **message)
    assert set(reply) == {"ok", "messages"}, reply
    found: list[dict[str, Any]] = reply["messages"]
    return found


def test_ping(shared: Daemon) -> None:
    assert {"ok": True, "pid": shared.process.pid} == shared.ask(action="ping")


def test_a_letter_is_sent_and_comes_as_a_whole_record(shared: Daemon) -> None:
    to = [{"agent_id": "bob"}, {"agent_id": "eve", "kind": "cc"}]
    params = {"threadTag": "t1", "importance": "high", "meta": {"k": [1]}, "subject": "S", "conversationId": "c-1"}
    id = send(shared, **{"from": "alice", "to": to, "payload": "hi", **params})
    (record,) = inbox(shared, agentId="bob", unreadOnly=True, clear=True)
    stamps = {name: record["recipients"][0].pop(name) for name in ("delivered_at", "read_at")}
    assert all(TIME.fullmatch(stamp) for stamp in (*stamps.values(), record.pop("created_at")))
    assert TIME.fullmatch(record["recipients"][1].pop("delivered_at"))

    assert record == {
        "id": id,
        "scope": "default",
        "sender_id": "alice",
        "recipients": [{"agent_id": "bob", "kind": "to"}, {"agent_id": "eve", "kind": "cc"}],
        "subject": "S",
        "content": {"type": "text", "text": "hi"},
        "thread_tag": "t1",
        "conversation_id": "c-1",
        "importance": "high",
        "metadata": {"k": [1]},
    }


def test_mail_comes_in_the_order_it_was_sent_whatever_its_importance(shared: Daemon) -> None:
    sent = [
        send(shared, **{"from": "a", "to": "order", "payload": str(n), "importance": importance})
        for n, importance in enumerate(("low", "urgent", "normal"))
    ]

    assert sent == [record["id"] for record in inbox(shared, agentId="order")]


def test_priority_counts_before_importance_in_whichever_order_they_stand(shared: Daemon) -> None:
    params = {"from": "a", "to": "both-words", "payload": "x"}
    send(shared, **params, importance="low", priority="high")
    send(shared, **params, priority="high", importance="low")

    assert ["high", "high"] == [record["importance"] for record in inbox(shared, agentId="both-words")]


def test_cc_may_stand_among_the_recipients_and_beside_them(shared: Daemon) -> None:
    to = ["two-ways", {"agent_id": "cc-1", "kind": "cc"}]
    send(shared, **{"from": "a", "to": to, "cc": "cc-2", "bcc": ["cc-3"], "payload": {"n": 1}})
    send(shared, **{"from": "a", "to": "two-ways", "cc": ["cc-1", "cc-2"], "payload": "x"})

    got = [
        [(one["agent_id"], one["kind"]) for one in record["recipients"]]
        for record in inbox(shared, agentId="two-ways")
    ]
    assert [[("two-ways", "to"), ("cc-1", "cc"), ("cc-2", "cc")]] * 2 == got


def test_only_what_is_returned_is_marked_as_read(shared: Daemon) -> None:
    sent = [send(shared, **{"from": "a", "to": "many", "payload": n}) for n in range(5)]
    first = inbox(shared, agentId="many", unreadOnly=True, clear=True, limit=2)
    rest = inbox(shared, agentId="many", unreadOnly=True)

    assert sent[:2] == [record["id"] for record in first]
    assert sent[2:] == [record["id"] for record in rest]
    assert sent == [record["id"] for record in inbox(shared, agentId="many")]


def test_without_a_name_the_scope_is_the_agent_and_then_default(shared: Daemon) -> None:
    send(shared, **{"from": "a", "to": ["default", "elsewhere"], "payload": "x"})

    assert 1 == len(inbox(shared)) == len(inbox(shared, scope="elsewhere"))


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        ("text", {"type": "text", "text": "text"}),
        ({"type": "task", "n": 1}, {"type": "task", "n": 1}),
        ({"type": "text"}, {"type": "text"}),
        ({"no": "type"}, {"type": "data", "data": {"no": "type"}}),
        ([1, None], {"type": "data", "data": [1, None]}),
        (7, {"type": "data", "data": 7}),
        (None, {"type": "data", "data": None}),
        ("", {"type": "text", "text": ""}),
        ({"type": "file", "path": "/etc/passwd"}, {"type": "file", "path": "/etc/passwd"}),
    ],
)
def test_a_payload_comes_back_as_it_was(shared: Daemon, payload: Any, content: Any) -> None:
    id = send(shared, **{"from": "a", "to": "p", "payload": payload})
    (record,) = [record for record in inbox(shared, agentId="p") if record["id"] == id]

    assert content == record["content"]


def test_a_reply_keeps_tag_and_conversation(shared: Daemon) -> None:
    first = send(shared, **{"from": "a", "to": "b", "payload": "?", "threadTag": "tag", "conversationId": "c-9"})
    send(shared, **{"from": "b", "to": "a", "payload": "!", "inReplyTo": first})
    reply = shared.ask(action="read_thread", threadTag="tag")

    assert {"ok", "threadTag", "count", "messages"} == set(reply)
    assert ("tag", 2) == (reply["threadTag"], reply["count"])
    assert [first] == [record["in_reply_to"] for record in reply["messages"] if "in_reply_to" in record]
    assert {"c-9"} == {record["conversation_id"] for record in reply["messages"]}


def test_bcc_is_seen_by_sender_and_recipient_alone(shared: Daemon) -> None:
    to = [{"agent_id": "open"}, {"agent_id": "hidden", "kind": "bcc"}]
    send(shared, **{"from": "a", "to": to, "payload": "x"})
    seen = {name: inbox(shared, agentId=name)[0]["recipients"] for name in ("open", "hidden")}

    assert ["open"] == [recipient["agent_id"] for recipient in seen["open"]]
    assert ["open", "hidden"] == [recipient["agent_id"] for recipient in seen["hidden"]]


def test_agents_come_and_go(shared: Daemon) -> None:
    event = {
        "type": "agent.spawn",
        "agent": {"agentId": "w-1", "name": "W", "role": "worker", "scopes": ["s", "t"]},
    }
    assert {"ok": True} == shared.ask(action="notify", event=event)
    registered = shared.ask(action="register_agent", agentId="w-2", name="V", program="claude-code")
    assert {"ok": True} == registered
    listed = shared.ask(action="list_agents", scope="s")
    assert {"ok", "count", "agents"} == set(listed)
    (row,) = listed["agents"]
    assert TIME.fullmatch(row.pop("lastActive"))
    assert row == {"agentId": "w-1", "name": "W", "scope": "s", "status": "active", "location": "local"}
    assert {"ok": True} == shared.ask(action="notify", event={"type": "agent.done", "agentId": "w-1"})
    assert {"ok": True} == shared.ask(action="notify", event={"type": "agent.done", "agentId": "never"})
    assert {"ok": True} == shared.ask(action="notify", event={"type": "else"})
    everyone = {row["agentId"]: row for row in shared.ask(action="list_agents")["agents"]}
    assert "active" != everyone["w-1"]["status"]
    assert "claude-code" == everyone["w-2"]["program"]


def test_an_agent_that_calls_is_active(shared: Daemon) -> None:
    shared.ask(action="register_agent", agentId="busy")
    shared.ask(action="send", **{"from": "busy", "to": "x", "payload": "y"})
    shared.ask(action="notify", event={"type": "agent.done", "agentId": "busy"})
    assert "active" != _status(shared, "busy")
    shared.ask(action="register_agent", agentId="late")
    shared.ask(action="notify", event={"type": "agent.done", "agentId": "late"})
    shared.ask(action="check_inbox", agentId="late")
    end = time.monotonic() + 5
    while _status(shared, "late") != "active" and time.monotonic() < end:
        time.sleep(0.01)  # it is recorded with the next batch
    assert "active" == _status(shared, "late")


def _status(daemon: Daemon, name: str) -> str:
    rows = daemon.ask(action="list_agents")["agents"]
    status: str = next(row["status"] for row in rows if row["agentId"] == name)
    return status


def test_emit_reaches_those_who_listen(shared: Daemon) -> None:
    with shared.line() as all_of_it, shared.line() as other:
        for line, scope in ((all_of_it, "s-1"), (other, "s-2")):
            line.ask(
                {"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {"filter": {"scopes": [scope]}}}
            )
        shared.ask(action="emit", event={"type": "x.y", "n": 1}, meta={"a": 1}, scope="s-2")
        shared.ask(action="emit", event={"type": "x.y", "n": 2}, scope="s-1")
        received = [line.hear()["params"]["event"] for line in (all_of_it, other)]

    assert [("x.y", 2), ("x.y", 1)] == [(event["type"], event["data"]["event"]["n"]) for event in received]


def test_what_is_emitted_between_two_changes_has_names_of_its_own(shared: Daemon) -> None:
    with shared.line() as line:
        line.ask({"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {}})
        for _ in range(3):
            shared.ask(action="emit", event={"type": "same"})
        results = [line.hear()["params"] for _ in range(3)]
    assert 3 == len({one["eventId"] for one in results})
    assert [one["eventId"] for one in results] == [one["event"]["id"] for one in results]


@pytest.mark.parametrize(
    "word",
    [
        "\u200bmessage.created",
        "\uff4dessage.created",
        "m\u0435ssage.created",
        " x",
        "x y",
        ".message",
        "x\n",
        "x" * 201,
    ],
)
def test_a_word_that_looks_like_another_is_no_type(shared: Daemon, word: str) -> None:
    result = shared.ask(action="emit", event={"type": word})
    assert (False, "event.type") == (result["ok"], result["field"])


def test_emit_is_answered(shared: Daemon) -> None:
    assert {"ok": True} == shared.ask(action="emit", event={"type": "x"}, meta={"a": 1})


def test_errors_in_its_words(shared: Daemon) -> None:
    with shared.line() as line:
        line.say(b"{not json\n", {"action": "nope"}, {"noaction": 1}, b"[]\n", b"7\n")
        results = [line.hear() for _ in range(5)]

    assert [False, "Invalid JSON"] == [results[0]["ok"], results[0]["error"]]
    assert [False, "Unknown action: nope"] == [results[1]["ok"], results[1]["error"]]
    assert [False, "Unknown action: undefined"] == [results[2]["ok"], results[2]["error"]]
    assert -32600 == results[3]["error"]["code"]
    assert [False, "Unknown action: undefined"] == [results[4]["ok"], results[4]["error"]]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"from": "a", "payload": "x"}, "to"),
        ({"from": "a", "to": [{"kind": "to"}], "payload": "x"}, "to"),
        ({"from": "a", "to": "b", "payload": "x", "importance": "zzz"}, "importance"),
        ({"from": "../a", "to": "b", "payload": "x"}, "from"),
        ({"from": "a", "to": "b", "boddy": "x"}, "payload"),
        ({"from": "a", "to": [{"agent_id": "b", "kind": []}], "payload": "x"}, "to"),
        ({"from": "a", "to": "b", "meta": 7}, "meta"),
    ],
)
def test_what_is_wrong_is_reported_with_its_field_and_nothing_is_sent(
    shared: Daemon, params: dict[str, Any], field: str
) -> None:
    before = shared.ask(action="room_stats")["letters"]
    refused = shared.ask(action="send", **params)

    assert (False, field) == (refused["ok"], refused["field"])
    assert before == shared.ask(action="room_stats")["letters"]


def test_our_own_words_are_understood_by_send(shared: Daemon) -> None:
    params = {"agent_id": "a", "to": "own", "cc": "copy", "body": "words", "priority": "urgent"}
    id = send(shared, **params)
    (record,) = inbox(shared, agentId="own")
    assert (id, "urgent", "words") == (record["id"], record["importance"], record["content"]["text"])
    assert 1 == len(inbox(shared, agentId="copy"))


def test_since_and_clear_mark_nothing_that_is_not_returned(shared: Daemon) -> None:
    send(shared, **{"from": "a", "to": "later", "payload": "x"})
    assert [] == inbox(shared, agentId="later", unreadOnly=True, clear=True, since="2099-01-01T00:00:00Z")
    assert 1 == len(inbox(shared, agentId="later", unreadOnly=True, clear=True, since=5))


def test_who_said_goodbye_is_offline_at_once(shared: Daemon) -> None:
    shared.ask(action="register_agent", agentId="gone")
    shared.ask(action="notify", event={"type": "agent.done", "agentId": "gone"})
    assert "offline" == _status(shared, "gone")


def test_a_misspelt_action_is_reported_with_the_nearest_one(shared: Daemon) -> None:
    assert "did you mean send?" == shared.ask(action="sned")["hint"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "check"}
    with shared.line() as line:
        assert "did you mean mail/check?" == line.ask(request)["error"]["data"]["hint"]
        unheard = {"jsonrpc": "2.0", "id": 1, "method": "frobnicate"}
        assert "hint" not in line.ask(unheard)["error"]["data"]


def test_an_id_is_echoed(shared: Daemon) -> None:
    assert 7 == shared.ask(action="ping", id=7)["id"]
    assert "x" == shared.ask(action="nope", id="x")["id"]


TEAM = "swarm:gsd"  # as claude-code-swarm names its scopes


def rpc(daemon: Daemon, method: str, **params: Any) -> dict[str, Any]:
    reply: dict[str, Any] = daemon.ask(jsonrpc="2.0", id=1, method=method, params=params)
    return reply


def types_heard(line: Line) -> Iterator[str]:
    """The types of the next events. Other tests use the daemon, too, and theirs may come between."""
    for _ in range(100):
        yield line.hear()["params"]["event"]["type"]


def test_a_scope_with_a_colon_is_like_any_other(shared: Daemon) -> None:
    for name in ("gsd-main", "gsd-executor"):
        agent = {"agentId": name, "scopes": [TEAM]}
        assert shared.ask(action="notify", event={"type": "agent.spawn", "agent": agent})["ok"]
    assert {TEAM} == {row["scope"] for row in shared.ask(action="list_agents", scope=TEAM)["agents"]}
    params = {"from": "gsd-main", "payload": "x", "scope": TEAM, "threadTag": "t-7"}
    send(shared, to="gsd-executor", **params)
    send(shared, to=f"broadcast:{TEAM}", **params)
    found = inbox(shared, agentId="gsd-executor", scope=TEAM, unreadOnly=True, clear=True)
    assert [TEAM, TEAM] == [record["scope"] for record in found]
    assert 2 == shared.ask(action="read_thread", threadTag="t-7", scope=TEAM)["count"]
    assert [] == inbox(shared, scope=TEAM)
    opened = rpc(shared, "mail/create", scope="org/team", subject="S")["result"]
    assert [opened["id"]] == [
        one["id"] for one in rpc(shared, "mail/list", scope="org/team")["result"]["conversations"]
    ]


def test_what_is_emitted_in_a_scope_with_a_colon_is_received_there(shared: Daemon) -> None:
    with shared.line() as line:
        line.ask({"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {"filter": {"scopes": [TEAM]}}})
        shared.ask(action="emit", event={"type": "x"}, scope=TEAM)
        assert "x" in types_heard(line)


@pytest.mark.parametrize(
    "word", ["task.dispatched", "agent.idle", "session.started", "message", "scope:x", "mail"]
)
def test_what_is_emitted_arrives_under_its_own_name(shared: Daemon, word: str) -> None:
    with shared.line() as line:
        line.ask({"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {}})
        shared.ask(action="emit", event={"type": word})
        assert word in types_heard(line)


@pytest.mark.parametrize("word", ["message.created ", "\nmail.closed", "Agent_Registered\t"])
def test_blanks_around_a_type_of_the_service_do_not_pass_for_it(word: str) -> None:
    """Streams write a type without them."""
    event = emitted_event({"event": {"type": word}}, "1", 1, datetime.now(UTC), "eve")
    assert f"emit.{word.strip()}" == event.type


def test_an_answer_stays_in_the_conversation(shared: Daemon) -> None:
    params = {"subject": "S", "importance": "urgent", "scope": "team-r"}
    first = send(shared, **{"from": "ann-r", "to": "bob-r", "payload": "q", **params})
    send(shared, **{"from": "bob-r", "to": "ann-r", "payload": "a", "inReplyTo": first})
    (request,), (answer,) = inbox(shared, agentId="bob-r"), inbox(shared, agentId="ann-r")
    kept = ("scope", "importance", "conversation_id")
    assert [request[name] for name in kept] == [answer[name] for name in kept]
    assert ("Re: S", first) == (answer["subject"], answer["in_reply_to"])


def test_an_answer_without_a_recipient_goes_to_the_sender(shared: Daemon) -> None:
    first = send(shared, **{"from": "ann-s", "to": ["bob-s", "eve-s"], "payload": "q", "scope": TEAM})
    answer = send(shared, **{"from": "bob-s", "payload": "a", "inReplyTo": first})
    (record,) = inbox(shared, agentId="ann-s")
    assert (answer, TEAM, first) == (record["id"], record["scope"], record["in_reply_to"])
    assert 1 == len(inbox(shared, agentId="eve-s"))
    of_nothing = shared.ask(action="send", **{"from": "bob-s", "payload": "a", "inReplyTo": "no-such-letter"})
    to_nobody = shared.ask(action="send", **{"from": "bob-s", "payload": "a"})
    assert [False, False] == [of_nothing["ok"], to_nobody["ok"]]
    assert ("in_reply_to", "to") == (of_nothing["field"], to_nobody["field"])


def test_without_a_sender_it_is_the_service_that_writes(shared: Daemon) -> None:
    send(shared, to="from-nobody", payload="x")
    (record,) = inbox(shared, agentId="from-nobody")
    assert shared.where["system"] == record["sender_id"]


@pytest.mark.parametrize(
    ("method", "name"),
    [("mail/get", "id"), ("mail/turns/list", "conversationId"), ("mail/thread/list", "conversationId")],
)
def test_a_conversation_that_is_not_there_has_its_number(shared: Daemon, method: str, name: str) -> None:
    """The answer equals the one over HTTP and MAP, alone and in a batch."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {name: "nowhere"}}
    with shared.line() as line:
        alone, (batched,) = line.ask(call), line.ask([call])
    assert (10000, 10000) == (alone["error"]["code"], alone["error"]["data"]["code"])
    assert alone == batched


def test_a_thread_may_begin_at_a_turn_that_is_not_there(shared: Daemon) -> None:
    id = rpc(shared, "mail/create")["result"]["id"]
    thread = rpc(shared, "mail/thread/create", conversationId=id, rootTurnId="turn-1", subject="T")["result"]
    assert ("turn-1", "T") == (thread["root_turn_id"], thread["subject"])
    listed = rpc(shared, "mail/thread/list", conversationId=id)["result"]["threads"]
    assert [thread["id"]] == [one["id"] for one in listed]


def test_the_scope_of_the_service_is_that_of_what_names_none(tmp_path: Path) -> None:
    with Daemon(tmp_path, INBOX_SCOPE=TEAM) as daemon, daemon.line() as line:
        line.ask({"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {"filter": {"scopes": [TEAM]}}})
        daemon.ask(action="emit", event={"type": "x"})
        assert "x" in types_heard(line)
        daemon.ask(action="notify", event={"type": "agent.spawn", "agent": {"agentId": "bob"}})
        first = send(daemon, **{"from": "ann", "to": "bob", "payload": "q", "threadTag": "t"})
        send(daemon, **{"from": "ann", "to": "bob", "payload": "q", "scope": "other"})
        send(daemon, **{"from": "bob", "to": "ann", "payload": "a", "inReplyTo": first})
        assert [TEAM, "other"] == [record["scope"] for record in inbox(daemon, agentId="bob")]
        assert [TEAM] == [record["scope"] for record in inbox(daemon, agentId="ann")]
        assert [TEAM] == [row["scope"] for row in daemon.ask(action="list_agents")["agents"]]
        assert 2 == daemon.ask(action="read_thread", threadTag="t")["count"]
        assert TEAM == rpc(daemon, "mail/create")["result"]["scope"]
