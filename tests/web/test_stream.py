"""Events as a stream: how it begins, how it is kept alive, how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.web import house
from postroom.web.outbox import MOST, Outbox
from postroom.web.stream import event_of, wishes
from tests.web.running import Client, Daemon, aside, make_token, open_house, port_of, until_end

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


@pytest.mark.parametrize("query", ["?nonsense=1", "?since=nonsense", "?token=pr_1_2", "?since=%00"])
def test_a_wish_that_is_not_understood_is_refused(agent: Agent, query: str) -> None:
    said = agent("bob").ask("GET", f"/subscribe{query}")
    assert (400, -32602) == (said.status, said.json["error"]["code"])


@pytest.mark.parametrize("how", ["?since=elsewhere:0:1", "last-event-id: elsewhere:0:1"])
def test_a_cursor_from_another_life_is_told_to_start_over(agent: Agent, how: str) -> None:
    query, more = (how, ()) if how.startswith("?") else ("", (how,))
    with subscribe(agent("cy"), query, *more) as stream:
        heard = until(stream, b"event: resync\n")
        heard += b"" if b"id: " in heard else until(stream, b"id: ")
        assert b"data: {}\n" in heard


def test_the_header_beats_the_address() -> None:
    asked = wishes(b"since=a&eventTypes=x,y&scopes=s&conversation_id=c", [(b"last-event-id", b"b")])
    assert {"event_types": ["x", "y"], "scopes": ["s"], "mail": {"conversation_id": "c"}} == asked["filter"]
    assert "b" == asked["since"]


def test_an_event_stays_within_its_lines() -> None:
    event = {"type": "x\ndata: forged\r\n\r\n", "data": {"text": "one\ntwo"}}
    told = event_of({"params": {"cursor": "c:0:1", "event": event}})
    assert b'event: x data: forged\ndata: {"text":"one\\ntwo"}\nid: c:0:1\n\n' == told


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
    monkeypatch.setattr(house, "KEEP_ALIVE", 0.05)

    async def scenario() -> None:
        async with open_house(tmp_path) as (server, room, desk, _):
            client = Client(port_of(server), make_token(room, "ann"))
            with subscribe(client) as stream:
                await aside(until, stream, b":\n\n")
                assert 1 == desk.counters.subscribers()
                await aside(until, stream, b":\n\n")
                await aside(until, stream, b":\n\n")
            while desk.counters.subscribers():  # it has hung up
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_an_outbox_takes_no_more_than_it_can_hold() -> None:
    async def scenario() -> None:
        outbox = Outbox(lambda: None)
        piece = b"x" * 1000
        taken = 0
        while outbox.offer(piece):
            taken += 1
        assert MOST // 1000 <= taken <= MOST // 1000 + 1
        assert outbox.has_refused
        assert taken == len(await outbox.take())
        assert outbox.offer(piece)
        outbox.close()
        assert not outbox.offer(piece)
        assert [piece] == await outbox.take()
        assert [] == await outbox.take()
        outbox.emptied()

    asyncio.run(scenario())


def test_whoever_never_reads_the_end_is_cut_off() -> None:
    async def scenario() -> None:
        cut = asyncio.Event()
        outbox = Outbox(cut.set)
        outbox.drop()
        await asyncio.wait_for(cut.wait(), 5)

    asyncio.run(scenario())
