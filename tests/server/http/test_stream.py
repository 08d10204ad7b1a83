"""Events as a stream: how it begins, how it is kept alive, how it ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom.server import streams
from postroom.server.streams import MAX_WAITING_BYTES, Outbox, sse_event, subscribe_params
from tests.server.http.running import (
    PATIENCE,
    Client,
    Daemon,
    in_thread,
    make_token,
    memory_of,
    open_server,
    port_of,
    until_end,
)

Agent = Callable[..., Client]


def subscribe(client: Client, query: str = "", *more: str) -> socket.socket:
    stream = client.raw()
    stream.sendall(client.head(f"GET /subscribe{query} HTTP/1.1", *more))
    return stream


def until(stream: socket.socket, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        piece = stream.recv(65536)
        assert piece, found
        found += piece
    return found


def test_a_stream_begins_at_once(agent: Agent) -> None:
    with subscribe(agent("ann")) as stream:
        head = until(stream, b":\n\n").lower()
        assert b" 200 " in head and b"content-type: text/event-stream" in head and b"no-store" in head
        assert b"access-control" not in head


@pytest.mark.parametrize("query", ["?nonsense=1", "?since=nonsense", "?since=", "?token=pr_1_2", "?since=%00"])
def test_a_wish_that_is_not_understood_is_refused(agent: Agent, query: str) -> None:
    message = agent("bob").ask("GET", f"/subscribe{query}")
    assert (400, -32602) == (message.status, message.json["error"]["code"])


@pytest.mark.parametrize("how", ["?since=elsewhere:0:1", "last-event-id: elsewhere:0:1"])
def test_a_cursor_from_another_life_is_asked_to_start_over(agent: Agent, how: str) -> None:
    query, more = (how, ()) if how.startswith("?") else ("", (how,))
    with subscribe(agent("cy"), query, *more) as stream:
        received = until(stream, b"event: resync\n")
        received += b"" if b"id: " in received else until(stream, b"id: ")
        assert b"data: {}\n" in received


def test_the_header_beats_the_address() -> None:
    request = subscribe_params(b"since=a&eventTypes=x,y&scopes=s&conversation_id=c", [(b"last-event-id", b"b")])
    assert {"event_types": ["x", "y"], "scopes": ["s"], "mail": {"conversation_id": "c"}} == request["filter"]
    assert "b" == request["since"]


def test_an_empty_header_says_nothing() -> None:
    assert "a" == subscribe_params(b"since=a", [(b"last-event-id", b"")])["since"]
    assert subscribe_params(b"", [(b"last-event-id", b" ")])["since"] is None


def test_an_event_stays_within_its_lines() -> None:
    event = {"type": "x\ndata: forged\r\n\r\n", "data": {"text": "one\ntwo"}}
    result = sse_event({"params": {"cursor": "c:0:1", "event": event}})
    assert b'event: x data: forged\ndata: {"text":"one\\ntwo"}\nid: c:0:1\n\n' == result


def test_a_revoked_token_ends_a_stream_at_once(agent: Agent, running: Daemon) -> None:
    client = agent("dan")
    with subscribe(client) as stream:
        until(stream, b":\n\n")
        running.revoke(client.token)
        assert b"" == until_end(stream).removesuffix(b"0\r\n\r\n").strip()


def test_others_go_on_when_one_is_revoked(agent: Agent, running: Daemon) -> None:
    client, other = agent("eve"), agent("fay")
    with subscribe(client) as stream, subscribe(other) as going_on:
        until(stream, b":\n\n")
        until(going_on, b":\n\n")
        running.revoke(client.token)
        until_end(stream)
        going_on.settimeout(0.2)
        with pytest.raises(TimeoutError):
            going_on.recv(1)


def test_a_stream_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)

    async def scenario() -> None:
        async with open_server(tmp_path) as (server, room, executor, _):
            client = Client(port_of(server), make_token(room, "ann"))
            with subscribe(client) as stream:
                await in_thread(until, stream, b":\n\n")
                assert 1 == executor.counters.subscribers()
                await in_thread(until, stream, b":\n\n")
                await in_thread(until, stream, b":\n\n")
            while executor.counters.subscribers():  # it has hung up
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_an_outbox_takes_no_more_than_it_can_hold() -> None:
    async def scenario() -> None:
        outbox = Outbox(lambda: None)
        piece = b"x" * 1000
        taken = 0
        while outbox.offer(piece):
            taken += 1
        assert MAX_WAITING_BYTES // 1000 <= taken <= MAX_WAITING_BYTES // 1000 + 1
        assert outbox.has_refused
        assert taken == len(await outbox.take())
        assert outbox.offer(piece)
        outbox.close()
        assert not outbox.offer(piece)
        assert [piece] == await outbox.take()
        assert [] == await outbox.take()
        outbox.written()

    asyncio.run(scenario())


def test_a_client_that_never_reads_the_end_is_cut_off() -> None:
    async def scenario() -> None:
        cut = asyncio.Event()
        outbox = Outbox(cut.set)
        outbox.drop()
        await asyncio.wait_for(cut.wait(), 5)

    asyncio.run(scenario())


# -- what is heard


def listen(client: Client, query: str = "", **headers: str) -> http.client.HTTPResponse:
    """A stream whose head has come."""
    line = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE)
    shown = {"authorization": f"Bearer {client.token}"} | {n.replace("_", "-"): v for n, v in headers.items()}
    line.request("GET", f"/subscribe{query}", headers=shown)
    answer = line.getresponse()
    assert 200 == answer.status
    return answer


def events(answer: http.client.HTTPResponse, many: int) -> list[tuple[str, Any, str]]:
    """The next ones: type, data, cursor."""
    found: list[tuple[str, Any, str]] = []
    fields: dict[str, str] = {}
    while len(found) < many:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if not line and fields:
            found.append((fields["event"], json.loads(fields["data"]), fields["id"]))
            fields = {}
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
    return found


MESSAGES = "?event_types=message.created"


def test_events_of_a_letter_go_to_its_sender_and_recipients_alone(agent: Agent, operator: Client) -> None:
    sender, reader, other = agent("ida"), agent("jim"), agent("kay")
    with listen(sender, MESSAGES) as one, listen(reader, MESSAGES) as two, listen(other, MESSAGES) as three:
        with listen(operator, MESSAGES) as four:
            first = sender.call("mail/send", to="jim", body="hello")
            last = sender.call("mail/send", to=["jim", "kay"], body="to both")
            for stream in (one, two, four):
                assert [first["id"], last["id"]] == [data["id"] for _, data, _ in events(stream, 2)]
        ((kind, data, _),) = events(three, 1)
        assert ("message.created", last["id"]) == (kind, data["id"])


def test_bcc_recipients_are_shown_to_nobody(agent: Agent) -> None:
    sender, reader, hidden = agent("lea"), agent("max"), agent("secret-nat")
    with listen(reader) as one, listen(hidden) as two:
        sent = sender.call("mail/send", to="max", bcc=["secret-nat"], body="psst")
        received = events(one, 2)
        assert {"message.created", "mail.turn.added"} == {kind for kind, _, _ in received}
        assert "secret-nat" not in json.dumps(received)
        assert sent["id"] == events(two, 1)[0][1]["id"]
    with listen(reader, f"?since={start_of(received)}") as again:
        assert "secret-nat" not in json.dumps(events(again, 2))


def start_of(received: list[tuple[str, Any, str]]) -> str:
    """A cursor from before they were told."""
    head, _, number = received[0][2].rpartition(":")
    return f"{head}:{int(number) - 1}"


def test_a_subscriber_that_comes_back_gets_missed_events_once(agent: Agent) -> None:
    sender, reader = agent("ola"), agent("pia")
    with listen(reader, MESSAGES) as stream:
        sender.call("mail/send", to="pia", body="0")
        ((_, _, cursor),) = events(stream, 1)
    drafts = [{"to": "pia", "body": f"{n}"} for n in range(1, 300)]  # more than are told in one go
    missed = [receipt["id"] for receipt in sender.call("mail/send_many", drafts=drafts)["receipts"]]
    for how in ({"query": f"{MESSAGES}&since={cursor}"}, {"query": MESSAGES, "last_event_id": cursor}):
        with listen(reader, **how) as again:
            assert missed == [data["id"] for _, data, _ in events(again, len(missed))]
            last = sender.call("mail/send", to="pia", body="last")
            ((_, data, _),) = events(again, 1)
            assert last["id"] == data["id"]
        missed.append(last["id"])


def test_only_what_was_asked_for_is_heard(agent: Agent) -> None:
    sender, reader = agent("quy"), agent("rex")
    with listen(reader, f"{MESSAGES}&fromAgents=somebody,quy&priorities=high") as stream:
        sender.call("mail/send", to="rex", body="no")
        yes = sender.call("mail/send", to="rex", body="yes", priority="high")
        assert yes["id"] == events(stream, 1)[0][1]["id"]


def test_a_reader_that_sleeps_takes_bounded_memory_and_hears_all_of_it_once(agent: Agent, running: Daemon) -> None:
    sender, reader = agent("sam"), agent("tom")
    with listen(reader, "?event_types=message.created,mail.turn.added") as stream:
        before = memory_of(running.process.pid)
        body = "x" * 500_000  # larger than what may wait
        sent = [sender.call("mail/send", to="tom", body=body)["id"] for _ in range(40)]
        assert memory_of(running.process.pid) < before + 28_000_000
        received = [(data["id"], kind) for kind, data, _ in events(stream, 2 * len(sent))]
    assert sent == [id for id, kind in received if kind == "message.created"]
    assert len(sent) == len([1 for _, kind in received if kind == "mail.turn.added"])


def test_a_revoked_token_hears_nothing_of_what_comes_after(agent: Agent, running: Daemon) -> None:
    sender, reader = agent("uma"), agent("vic")
    with listen(reader) as stream:
        running.revoke(reader.token)
        sender.call("mail/send", to="vic", body="too late")
        assert b"too late" not in stream.read()


UPSTREAM = {
    "mail.created": {"id", "scope", "subject", "status", "participants", "metadata", "created_at", "updated_at"},
    "mail.participant.joined": {"conversation_id", "agent_id"},
    "mail.turn.added": {"id", "conversation_id", "participant_id", "source_message_id", "content_type", "content",
                        "thread_id", "in_reply_to", "importance", "created_at"},
    "message.created": {"id", "scope", "sender_id", "recipients", "subject", "content", "thread_tag",
                        "in_reply_to", "conversation_id", "importance", "metadata", "created_at"},
    "mail.closed": {"conversation_id", "status"},
    "mail.reopened": {"conversation_id", "status"},
}  # fmt: skip


def test_events_have_agent_inboxs_fields_and_ours_under_one_key(operator: Client) -> None:
    with subscribe(operator, "?eventTypes=" + ",".join(UPSTREAM)) as stream:
        until(stream, b":\n\n")
        params = {"subject": "S", "scope": "swarm:sse", "initialParticipants": [{"id": "sse-a", "role": "r"}]}
        id = operator.call("mail/create", **params)["id"]
        operator.call("mail/join", conversationId=id, agentId="sse-b")
        operator.call("mail/turn", conversationId=id, participantId="sse-a", content="x")
        operator.call("mail/close", id=id)
        operator.call("mail/reopen", id=id)
        received = until(stream, b"event: mail.reopened")
        received += until(stream, b"\n\n") if b"\n\n" not in received.rpartition(b"event:")[2] else b""
    events = re.findall(r"event: (\S+)\ndata: (.*)\n", received.decode())
    found = {kind: json.loads(data) for kind, data in events}  # the last of each
    assert UPSTREAM.keys() == found.keys()
    for kind, data in found.items():
        assert set(data) - UPSTREAM[kind] <= {"postroom"}, kind
    assert {"conversation_id": id, "agent_id": "sse-b"} == found["mail.participant.joined"]
    assert {"conversation_id": id, "status": "completed"} == found["mail.closed"]
    # The event is made a moment later: the second may have joined by then.
    assert {"agent_id", "role", "joined_at"} == set(found["mail.created"]["participants"][0])
    assert "multi-agent" == found["mail.created"]["postroom"]["type"]
