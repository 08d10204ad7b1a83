"""Two agents that answer each other are slowed down alike, whatever they answer by and on every surface."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import postroom
from postroom import Room
from postroom.core.authorize import OWNER
from postroom.core.conversations import Guest, OpenConversation, TakeTurn
from tests.conversing import create, turn
from tests.daemons import PATIENCE, Daemon
from tests.map.people import Refused, agent
from tests.server.http.running import make_token

RATE = 3
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
numbers = itertools.count(1)

Say = Callable[[str, str, str, dict[str, Any]], str]  # (verb, from whom, to whom, by what) -> an id


class TooFastHere(Exception):
    """The surface answered with its word for TooFast."""


class Running:
    """One daemon with all its surfaces, and the same room by the library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon = Daemon(folder, "--http", "127.0.0.1:0", "--set", f"thread_rate={RATE}")
        self.room: Room = postroom.open(self.daemon.room, thread_rate=RATE, durability="process")
        self.token = make_token(self.room)
        self.port = int(self.daemon.where["http"].rpartition(":")[2])
        self.session = ""

    def close(self) -> None:
        self.room.close()
        self.daemon.stop()

    def post(self, path: str, params: dict[str, Any]) -> Any:
        line = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        session = {"mcp-session-id": self.session} if self.session and path == "/mcp" else {}
        line.request("POST", path, json.dumps(params), JSON | session | {"Authorization": f"Bearer {self.token}"})
        answer = line.getresponse()
        self.session = answer.headers.get("mcp-session-id", self.session)
        body = answer.read().decode()
        line.close()
        events = [one.removeprefix("data: ") for one in body.splitlines() if one.startswith("data: {")]
        return json.loads(events[-1] if events else body) if body else None


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    one = Running(tmp_path_factory.mktemp("pace"))
    yield one
    one.close()


def rpc(verb: str, me: str, to: str, by: dict[str, Any]) -> dict[str, Any]:
    """One call of ours, as JSON-RPC."""
    if verb == "turn":
        params = {"id": by["conversation_id"], "agentId": me, "content": "re"}
    else:
        params = {"agent_id": me, "to": [to], "body": "re", **by}
    return {"jsonrpc": "2.0", "id": 1, "method": f"mail/{verb}", "params": params}


def result(reply: dict[str, Any]) -> str:
    if "error" in reply:
        if reply["error"]["data"]["name"] == "TooFast":
            raise TooFastHere(reply["error"]["message"])
        raise AssertionError(reply)
    answer = reply["result"]
    found: str = (
        answer["turn"]["id"]
        if "turn" in answer
        else answer["letter"]["id"]
        if "letter" in answer
        else answer["id"]
    )
    return found


def library(running: Running, _: ExitStack) -> Say:
    def say(verb: str, me: str, to: str, by: dict[str, Any]) -> str:
        core = running.room.core
        try:
            if verb == "turn":
                return turn(core, OWNER, by["conversation_id"], me, TakeTurn(body=["re"])).id
            return running.room.mailbox(me).send(to, "re", **by).id
        except postroom.TooFast as refused:
            raise TooFastHere(str(refused)) from None

    return say


def socket(running: Running, stack: ExitStack) -> Say:
    line = stack.enter_context(running.daemon.line())
    return lambda *message: result(line.ask(rpc(*message)))


def http(running: Running, _: ExitStack) -> Say:
    return lambda *message: result(running.post("/", rpc(*message)))


def websocket(running: Running, stack: ExitStack) -> Say:
    shown = {"Authorization": f"Bearer {running.token}"}
    line = stack.enter_context(connect(f"ws://127.0.0.1:{running.port}/ws", additional_headers=shown))

    def say(*message: Any) -> str:
        line.send(json.dumps(rpc(*message)))
        return result(json.loads(line.recv(PATIENCE)))

    return say


def inbox(running: Running, stack: ExitStack) -> Say:
    """agent-inbox's own actions on the socket."""
    line = stack.enter_context(running.daemon.line())
    words = {"in_reply_to": "inReplyTo", "thread_tag": "threadTag", "conversation_id": "conversationId"}

    def say(verb: str, me: str, to: str, by: dict[str, Any]) -> str:
        if verb == "turn":
            return result(line.ask(rpc(verb, me, to, by)))
        more = {words[name]: value for name, value in by.items()}
        reply = line.ask({"action": "send", "from": me, "to": to, "payload": "re", **more})
        if not reply["ok"]:
            raise TooFastHere(reply["error"])
        return str(reply["messageId"])

    return say


def mcp(running: Running, _: ExitStack) -> Say:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    running.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
    running.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    words = {"in_reply_to": "inReplyTo", "thread_tag": "threadTag"}

    def say(_: str, me: str, to: str, by: dict[str, Any]) -> str:
        more = {words[name]: value for name, value in by.items()}
        called = {"name": "send_message", "arguments": {"from": me, "to": to, "body": "re", **more}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": called}
        reply = running.post("/mcp", call)["result"]
        if reply.get("isError"):
            raise TooFastHere(json.dumps(reply))
        return str(reply["structuredContent"]["messageId"])

    return say


def map_(running: Running, stack: ExitStack) -> Say:
    people: dict[str, Any] = {}

    def say(verb: str, me: str, to: str, by: dict[str, Any]) -> str:
        for name in (me, to):
            if name not in people:
                people[name] = stack.enter_context(agent(running.port, running.token, name))
        try:
            if verb == "turn":
                reply = people[me].ask("mail/turn", conversationId=by["conversation_id"], content="re")
                return str(reply["turn"]["id"])
            return str(people[me].send({"agent": to}, "re", inReplyTo=by["in_reply_to"])["messageId"])
        except Refused as refused:
            raise TooFastHere(str(refused)) from None

    return say


SURFACES: dict[str, Callable[[Running, ExitStack], Say]] = {
    "library": library, "socket": socket, "HTTP": http, "WebSocket": websocket, "agent-inbox": inbox, "MCP": mcp,
    "MAP": map_,
}  # fmt: skip
LACKS = {("MCP", "conversation"), ("MCP", "turn"), ("MAP", "tag"), ("MAP", "conversation")}  # no words for it
KINDS = ("thread", "tag", "conversation", "turn")
CASES = [(surface, kind) for surface in SURFACES for kind in KINDS if (surface, kind) not in LACKS]


@pytest.mark.parametrize(("surface", "kind"), CASES)
def test_two_agents_that_answer_each_other_are_slowed_down(running: Running, surface: str, kind: str) -> None:
    number = next(numbers)
    ann, bob = f"ann-{number}", f"bob-{number}"
    guests = (Guest(agent=bob),)
    create(running.room.core, OWNER, OpenConversation(id=f"c-{number}", creator=ann, guests=guests))
    by = {
        "thread": {"in_reply_to": running.room.mailbox(ann).send(bob, "first").id},
        "tag": {"thread_tag": f"t-{number}"},
        "conversation": {"conversation_id": f"c-{number}"},
        "turn": {"conversation_id": f"c-{number}"},
    }[kind]
    verb = "turn" if kind == "turn" else "send"
    with ExitStack() as stack:
        say = SURFACES[surface](running, stack)
        for me, to in ((bob, ann), (ann, bob)) * RATE:
            id = say(verb, me, to, by)
            by = {"in_reply_to": id} if kind == "thread" else by
        with pytest.raises(
            TooFastHere, match=rf"you wrote {RATE} answers in (thread|conversation) \S+ within a minute"
        ):
            say(verb, bob, ann, by)
