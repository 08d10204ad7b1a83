"""One who floods: a rate for each sender on every surface, and turns for the others while large calls go on."""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from websockets.sync.client import connect

import postroom
from postroom.errors import TooFast
from postroom.server.client import SocketClient
from tests import daemons
from tests.map.people import Refused, visitor
from tests.server.http import running
from tests.server.http.running import PATIENCE, Client

BURST = 3
TRIES = 12  # far more than a burst and the time that they take allow
Send: TypeAlias = Callable[[], dict[str, Any] | None]  # None: it was taken; else what is told of the error
MCP = {"accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

# -- every surface that carries a send


def _error(result: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = result["error"]["data"] if "error" in result else None
    return found


@contextmanager
def by_action(served: running.Daemon) -> Iterator[Send]:
    def send() -> dict[str, Any] | None:
        result: dict[str, Any] = line.ask({"action": "send", "from": "by-action", "to": "sink", "payload": "x"})
        return None if result["ok"] else result

    with daemons.Line(Path(served.where["sockets"][0])) as line:
        yield send


@contextmanager
def by_line(served: running.Daemon) -> Iterator[Send]:
    with daemons.Line(Path(served.where["sockets"][0])) as line:
        yield lambda: _error(line.ask(rpc("mail/send", agent_id="by-line", to="sink", body="x")))


@contextmanager
def by_many(served: running.Daemon) -> Iterator[Send]:
    drafts = [{"to": "sink", "body": "x"}]
    with daemons.Line(Path(served.where["sockets"][0])) as line:
        yield lambda: _error(line.ask(rpc("mail/send_many", agent_id="by-many", drafts=drafts)))


@contextmanager
def by_turn(served: running.Daemon) -> Iterator[Send]:
    params = {"agentId": "by-turn", "contentType": "text", "content": "x"}
    with daemons.Line(Path(served.where["sockets"][0])) as line:
        made = line.ask(rpc("mail/create", agentId="by-turn", participants=[{"id": "sink"}]))
        id = made["result"]["conversation"]["id"]
        yield lambda: _error(line.ask(rpc("mail/turn", conversationId=id, **params)))


@contextmanager
def by_batch(served: running.Daemon) -> Iterator[Send]:
    call = rpc("mail/send", agent_id="by-batch", to="sink", body="x")
    with daemons.Line(Path(served.where["sockets"][0])) as line:
        yield lambda: _error(line.ask([call])[0])


@contextmanager
def by_http(served: running.Daemon) -> Iterator[Send]:
    client = Client(served.port, served.token("by-http"))
    yield lambda: _error(client.post(rpc("mail/send", to="sink", body="x")).json)
    client.close()


@contextmanager
def by_frames(served: running.Daemon) -> Iterator[Send]:
    def send() -> dict[str, Any] | None:
        talk.send(json.dumps(rpc("mail/send", to="sink", body="x")))
        return _error(json.loads(talk.recv(timeout=PATIENCE)))

    shown = {"authorization": f"Bearer {served.token('by-frames')}"}
    with connect(f"ws://127.0.0.1:{served.port}/ws", additional_headers=shown, compression=None) as talk:
        yield send


@contextmanager
def by_mcp(served: running.Daemon) -> Iterator[Send]:
    def send() -> dict[str, Any] | None:
        call = rpc("tools/call", name="send_message", arguments={"to": "sink", "body": "x"})
        body = client.post(call, "/mcp", **MCP, **session).body.decode()
        result = json.loads(body[body.index("{") :])["result"]
        found: dict[str, Any] = json.loads(result["content"][0]["text"])
        return found if result.get("isError") else None

    client = Client(served.port, served.token("by-mcp"))
    welcome = client.post(rpc("initialize", **HELLO), "/mcp", **MCP)
    session = {"mcp_session_id": welcome.headers["mcp-session-id"]} if "mcp-session-id" in welcome.headers else {}
    client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "/mcp", **MCP, **session)
    yield send
    client.close()


@contextmanager
def by_map(served: running.Daemon) -> Iterator[Send]:
    def send() -> dict[str, Any] | None:
        try:
            person.send({"agent": "sink"}, {"x": 1})
        except Refused as refused:
            result: dict[str, Any] = refused.data["details"]
            is_told_twice = refused.data["retryAfterMs"] == round(1000 * result["retry_after"])
            return result if is_told_twice and refused.code == 4001 else refused.data
        return None

    with visitor(served.port) as person:
        person.join(served.token("by-map"))
        person.register(name="by-map")
        yield send


SURFACES = (by_action, by_line, by_many, by_turn, by_batch, by_http, by_frames, by_mcp, by_map)


def rpc(method: str, **message: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": message}


def flood(send: Send) -> tuple[int, dict[str, Any] | None]:
    """How many were taken before one was refused, and what was told of that."""
    for taken in range(TRIES):
        result = send()
        if result is not None:
            return taken, result
    return TRIES, None


WORDS = ("--http", "127.0.0.1:0", "--set", "durability=process")
RATE = ("--set", "sender_rate=1", "--set", f"sender_burst={BURST}")


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Daemon]:
    with running.daemon(tmp_path_factory.mktemp("paced"), *WORDS, *RATE) as served:
        yield served


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
def test_a_flood_is_slowed_down_on_every_surface_by_a_temporary_error_with_the_time_to_wait(
    paced: running.Daemon, surface: Any
) -> None:
    with surface(paced) as send:
        taken, result = flood(send)
    assert BURST <= taken < TRIES and result is not None
    assert ("TooFast", True) == (result["name"], result["retryable"])
    assert result["field"] in {"sender", "from"}  # as that dialect calls it
    assert 0 < result["retry_after"] <= 1
    assert f"in {result['retry_after']:g} seconds" in result["hint"]


def test_a_program_at_the_socket_hears_the_same(paced: running.Daemon) -> None:
    client = SocketClient(paced.where["sockets"][0])
    drafts = [{"to": "sink", "body": "x"}] * BURST
    client.ask("send_many", {"agent_id": "by-program", "drafts": drafts})
    with pytest.raises(TooFast) as refused:
        client.ask("send_many", {"agent_id": "by-program", "drafts": drafts})
    assert refused.value.retry_after is not None and 0 < refused.value.retry_after <= BURST


PLANTED = """
from msgspec.structs import replace

from postroom.core.core import SenderRates
from postroom.server import callers

usual = callers.authorised

def forgetful(core, principal, request):
    return usual(replace(core, rates=SenderRates()), principal, request)

callers.authorised = forgetful  # every caller begins anew
"""


def test_a_rate_limit_per_caller_instead_of_per_agent_is_found(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "sitecustomize.py").write_text(PLANTED, encoding="utf-8")
    served = running.Daemon(tmp_path, *WORDS, *RATE, before=before)
    try:
        with by_http(served) as send:
            assert (TRIES, None) == flood(send)
    finally:
        served.kill()


def test_the_service_has_a_rate_unless_set_otherwise(tmp_path: Path) -> None:
    call = rpc("mail/send_many", agent_id="ann", drafts=[{"to": "sink", "body": "x"}] * 2000)
    larger = rpc("mail/send_many", agent_id="bob", drafts=[{"to": "sink", "body": "x"}] * 2001)
    with daemons.Daemon(tmp_path) as daemon, daemon.line() as line:
        assert 2000 == len(line.ask(call)["result"]["receipts"])
        assert "TooFast" == line.ask(call)["error"]["data"]["name"]
        refused = line.ask(larger)["error"]["data"]
        assert ("TooLarge", False) == (refused["name"], refused["retryable"])
        assert "smaller pieces" in refused["hint"]
        assert 2000 == daemon.client.ask("counts", {"agent_id": "sink"})["total"]


# -- turns

FLOODERS, LETTERS = 4, 3000


MANY = rpc("mail/send_many", agent_id="flooder", drafts=[{"to": "sink", "body": "x"}] * LETTERS)
WIDE = [
    rpc("mail/broadcast", agent_id="flooder", scope="team", body="x"),
    rpc("mail/send", agent_id="flooder", to="broadcast:team", body="x"),
    rpc("mail/send", agent_id="flooder", to=["ann", "broadcast:team"], body="x"),
]


def with_team(folder: Path) -> None:
    """A room in which many agents are members of one scope."""
    with postroom.open(folder / "room.db", durability="process") as room:
        for i in range(LETTERS):
            room.mailbox(f"member-{i}").register(scopes=["team"])


def answered_before_the_last_flood(daemon: daemons.Daemon, flood: dict[str, Any]) -> int:
    """How many small letters were sent, one after the other, while large calls of others were carried out."""
    letter = {"action": "send", "from": "small", "to": "other", "payload": "x"}
    sent = 0
    with ExitStack() as stack:
        small = stack.enter_context(daemon.line())
        assert small.ask(letter)["ok"]
        flooders = [stack.enter_context(daemon.line()) for _ in range(FLOODERS)]
        for line in flooders:
            line.say(flood)
        waiting = {line.socket for line in flooders}
        while True:
            assert small.ask(letter)["ok"]
            waiting -= set(select.select(waiting, (), (), 0)[0])
            if not waiting:
                break
            sent += 1
        for line in flooders:
            assert "result" in line.hear()
    return sent


def test_small_letters_are_sent_between_the_large_calls_of_others(tmp_path: Path) -> None:
    with daemons.Daemon(tmp_path, "--http", "off", "--set", "sender_rate=0") as daemon:
        assert answered_before_the_last_flood(daemon, MANY) > FLOODERS


@pytest.mark.parametrize("flood", WIDE, ids=("broadcast", "address", "list"))
def test_small_letters_are_sent_between_the_broadcasts_of_others(tmp_path: Path, flood: dict[str, Any]) -> None:
    with_team(tmp_path)
    with daemons.Daemon(tmp_path) as daemon:
        assert answered_before_the_last_flood(daemon, flood) > FLOODERS


NO_TURNS = """
from postroom.server import requests

requests.is_heavy = lambda request: False  # everything is carried out by the one thread beside the loop
"""


def test_an_executor_without_turns_is_found(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_TURNS, encoding="utf-8")
    words = ("--http", "off", "--set", "sender_rate=0")
    with daemons.Daemon(tmp_path, *words, PYTHONPATH=str(tmp_path)) as daemon:
        assert answered_before_the_last_flood(daemon, MANY) <= FLOODERS  # in turn with them, at best
