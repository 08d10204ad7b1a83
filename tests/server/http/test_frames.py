"""JSON-RPC in frames: order, notices, junk, callers that do not read, tokens that are revoked."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.http.running import PATIENCE, Client, Daemon, memory_of, send_many, until_end
from tests.server.http.test_auth import UPGRADE

Agent = Callable[..., Client]


@contextmanager
def talking(client: Client, **more: Any) -> Iterator[ClientConnection]:
    address = f"ws://127.0.0.1:{client.port}/ws"
    shown = {"authorization": f"Bearer {client.token}"}
    with connect(address, additional_headers=shown, compression=None, open_timeout=PATIENCE, **more) as talk:
        yield talk


def rpc(method: str, id: object = 1, **message: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": message})


def hear(talk: ClientConnection) -> Any:
    return json.loads(talk.recv(timeout=PATIENCE))


def test_calls_are_answered_in_the_order_they_were_made(agent: Agent) -> None:
    with talking(agent("ann")) as talk:
        for number in range(200):
            talk.send(rpc("mail/send", id=number, to="ann", body=f"{number}"))
        assert [*range(200)] == [hear(talk)["id"] for _ in range(200)]
        talk.send(rpc("mail/counts"))
        assert 200 == hear(talk)["result"]["total"]


def test_a_batch_and_a_notification(agent: Agent) -> None:
    with talking(agent("bea")) as talk:
        talk.send(json.dumps({"jsonrpc": "2.0", "method": "mail/send", "params": {"to": "bea", "body": "x"}}))
        talk.send(f"[{rpc('mail/counts')}, {rpc('mail/none', id=2)}]")
        counts, none = hear(talk)
        assert (1, -32601) == (counts["result"]["total"], none["error"]["code"])


def test_nothing_overtakes_a_wait(agent: Agent) -> None:
    with talking(agent("cy")) as talk:
        talk.send(rpc("mail/wait", id=1, timeout=20))
        talk.send(rpc("mail/counts", id=2))
        with talking(agent("dee")) as other:
            other.send(rpc("mail/send", to="cy", body="now"))
            hear(other)
        assert [1, 2] == [hear(talk)["id"] for _ in range(2)]


@pytest.mark.parametrize("junk", ["", "{", "nonsense", "[" * 5000, '{"a": NaN}', "\x00"])
def test_text_that_is_no_json_is_reported_and_the_session_goes_on(agent: Agent, junk: str) -> None:
    with talking(agent("ed")) as talk:
        talk.send(junk)
        assert (-32700, None) == ((result := hear(talk))["error"]["code"], result["id"])
        talk.send(rpc("mail/counts", id=7))
        assert 7 == hear(talk)["id"]


def test_the_dialect_of_the_socket_is_not_spoken_here(agent: Agent) -> None:
    with talking(agent("ed")) as talk:
        talk.send('{"action": "list_agents"}')
        assert -32600 == hear(talk)["error"]["code"]


def test_a_frame_that_is_no_text_ends_it(agent: Agent) -> None:
    with talking(agent("fay")) as talk:
        talk.send(b"\x00\x01")
        with pytest.raises(ConnectionClosed) as closed:
            talk.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None and 1003 == closed.value.rcvd.code


def test_a_frame_that_is_too_large_ends_it(agent: Agent) -> None:
    with talking(agent("gus")) as talk:
        with suppress(ConnectionClosed):  # it may be ended while it still sends
            talk.send("x" * 3_000_000)
        with pytest.raises(ConnectionClosed) as closed:
            talk.recv(timeout=PATIENCE)
        assert closed.value.rcvd is None or 1009 == closed.value.rcvd.code


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff" * 100,  # reserved bits
        b"\x81\x05hello",  # not masked
        b"\x81\x82\x00\x00\x00\x00\xff\xfe",  # not UTF-8
        b"\x81\xff" + struct.pack("!Q", 2**62) + bytes(4),  # very long
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_frames_that_are_none_end_it_and_harm_nobody(agent: Agent, running: Daemon, junk: bytes) -> None:
    client = agent("hal")
    with client.raw() as stream:
        stream.sendall(client.head("GET /ws HTTP/1.1", *UPGRADE))
        assert b" 101 " in stream.recv(4096)
        stream.sendall(junk)
        until_end(stream)
    assert "total" in client.call("mail/counts")
    assert running.process.poll() is None


def test_a_message_in_pieces_without_end_is_ended(agent: Agent) -> None:
    client = agent("hob")
    with client.raw() as stream:
        stream.sendall(client.head("GET /ws HTTP/1.1", *UPGRADE))
        assert b" 101 " in stream.recv(4096)
        stream.sendall(frame("", first=0x01))
        with pytest.raises(ConnectionError):
            send_many(stream, frame("", first=0x00) * 1000, 10_000)


def test_a_caller_that_does_not_read_is_not_read_from_and_loses_nothing(agent: Agent, running: Daemon) -> None:
    """A thousand replies of a hundred kilobytes do not pile up here."""
    client, other = agent("ike"), agent("jo")
    client.call("mail/send", to="ike", body="x" * 100_000)
    before = memory_of(running.process.pid)
    with client.raw() as stream:
        stream.sendall(client.head("GET /ws HTTP/1.1", *UPGRADE))
        assert b" 101 " in stream.recv(4096)
        request = frame(rpc("mail/check", peek=True))
        stream.settimeout(0.5)
        with pytest.raises(TimeoutError):
            send_many(stream, request, 100_000)
        assert "total" in other.call("mail/counts")
        assert memory_of(running.process.pid) < before + 30_000_000
        stream.settimeout(PATIENCE)
        assert b'"jsonrpc"' in stream.recv(65536)


def test_pings_without_end_are_ended_and_pile_up_nowhere(agent: Agent, running: Daemon) -> None:
    client = agent("kit")
    with client.raw(narrow=True) as stream:
        stream.sendall(client.head("GET /ws HTTP/1.1", *UPGRADE))
        assert b" 101 " in stream.recv(4096)
        before = memory_of(running.process.pid)
        pings = frame("p" * 100, first=0x89) * 1000
        with pytest.raises(ConnectionError):
            send_many(stream, pings, 60)  # six megabytes of them
        assert "total" in client.call("mail/counts")
        assert memory_of(running.process.pid) < before + 3_000_000


def test_a_subscriber_that_sleeps_hears_all_of_it_once_it_reads(agent: Agent) -> None:
    sender, reader = agent("kai"), agent("kim")
    with talking(reader, max_queue=1, max_size=None) as talk:
        talk.send(rpc("map/subscribe", filter={"eventTypes": ["message.created"]}))
        hear(talk)
        sent = [sender.call("mail/send", to="kim", body="x" * 600_000)["id"] for _ in range(25)]
        received = [hear(talk)["params"] for _ in sent]
    assert sent == [params["event"]["data"]["id"] for params in received]
    assert [*range(1, 26)] == [params["sequenceNumber"] for params in received]


def test_a_ping_is_answered(agent: Agent) -> None:
    with talking(agent("lou")) as talk:
        assert talk.ping().wait(PATIENCE)


def test_a_revoked_token_ends_it_at_once(agent: Agent, running: Daemon) -> None:
    client = agent("mo")
    with talking(client) as talk:
        talk.send(rpc("mail/counts"))
        hear(talk)
        running.revoke(client.token)
        with pytest.raises(ConnectionClosed) as closed:
            talk.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None and 1008 == closed.value.rcvd.code


@pytest.mark.parametrize("name", ["since", "replayFrom"])
def test_an_empty_cursor_is_none(agent: Agent, name: str) -> None:
    with talking(agent("nia")) as talk:
        talk.send(rpc("map/subscribe", **{name: ""}))
        assert -32602 == hear(talk)["error"]["code"]


def test_so_does_another_one_that_was_shown_on_the_way(agent: Agent, running: Daemon) -> None:
    second = running.token("ned")
    with talking(agent("nan")) as talk:
        talk.send(rpc("authenticate", token=second))
        assert "ned" == hear(talk)["result"]["agent_id"]
        running.revoke(second)
        with pytest.raises(ConnectionClosed):
            talk.recv(timeout=PATIENCE)


def test_a_subscriber_gets_its_cursor_and_may_stop(agent: Agent) -> None:
    with talking(agent("ola")) as talk:
        talk.send(rpc("map/subscribe"))
        result = hear(talk)["result"]
        assert {"subscriptionId", "cursor"} <= set(result)
        talk.send(rpc("map/unsubscribe", subscriptionId=result["subscriptionId"]))
        assert result["subscriptionId"] == hear(talk)["result"]["subscription"]["id"]


def test_a_caller_that_may_not_read_may_not_listen(agent: Agent) -> None:
    client = agent("oz", "send")
    with talking(client) as talk:
        talk.send(rpc("map/subscribe"))
        assert 1003 == hear(talk)["error"]["code"]
    assert 403 == client.ask("GET", "/subscribe").status


def test_a_cursor_from_another_life_is_asked_to_start_over(agent: Agent) -> None:
    with talking(agent("pat")) as talk:
        talk.send(rpc("map/subscribe", since="elsewhere:0:1"))
        received = [hear(talk), hear(talk)]
        notice = next(one for one in received if "method" in one)
        assert ("map/event", "resync") == (notice["method"], notice["params"]["event"]["type"])


def frame(text: str, first: int = 0x81) -> bytes:
    """A masked frame, by hand."""
    data = text.encode()
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
    return bytes([first]) + length + bytes(4) + data
