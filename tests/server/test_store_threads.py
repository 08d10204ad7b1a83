"""The loop's thread never reads or writes the store, whatever a client asks for and over whichever transport."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.sync.client import connect

import postroom
from postroom.core import peers, tokens
from postroom.core.authorize import OWNER
from postroom.core.core import Core
from postroom.core.verb import perform
from postroom.federation.exchange import Exchange
from postroom.map.server import MapServer
from postroom.server.broker import Broker
from postroom.server.executor import Executor
from postroom.server.http import HttpAddress
from postroom.server.http_server import HttpServer
from postroom.server.unix_socket import UnixServer
from tests.server.http.running import PATIENCE, port_of

# They touch no table: a watch is a descriptor, and the others return what the caller holds.
APART = {"watch", "close", "batch", "fresh_id"}


class NotedStore:
    """A store that notes on which thread each of its methods is called."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: set[tuple[str, int]] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name in APART:
            return found

        def noted(*words: Any, **more: Any) -> Any:
            self.calls.add((name, threading.get_ident()))
            return found(*words, **more)

        return noted


class Lines:
    """A client of the Unix socket."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")

    def ask(self, **line: Any) -> dict[str, Any]:
        self.socket.sendall(json.dumps(line).encode() + b"\n")
        return self.hear()

    def hear(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.replies.readline())
        return reply

    def close(self) -> None:
        self.replies.close()
        self.socket.close()


def rpc(method: str, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def use_the_socket(path: str, text: str) -> None:
    with closing(Lines(path)) as one, closing(Lines(path)) as other:
        assert "result" in other.ask(**rpc("map/subscribe"))
        assert one.ask(action="send", **{"from": "ann", "to": "bob", "payload": "x"})["ok"]
        assert other.hear()["method"] == "map/event"
        assert one.ask(action="check_inbox", agentId="bob", clear=True)["messages"]
        assert one.ask(action="emit", event={"type": "build.done"}, agentId="ann")["ok"]
        assert other.hear()["method"] == "map/event"
        assert one.ask(action="authenticate", token=text)["ok"]
        assert one.ask(action="wait", agent_id="ann", timeout=0.05)["ok"]
        assert "result" in one.ask(**rpc("map/subscribe", since="0" * 16 + ":" + "0" * 8 + ":1"))
        assert one.hear()["method"] == "map/event"  # a resync


def use_map(path: str, text: str) -> None:
    with closing(Lines(path)) as line:
        auth = {"method": "api-key", "credential": text}
        assert "result" in line.ask(**rpc("map/connect", protocolVersion=1, participantType="agent", auth=auth))
        assert "result" in line.ask(**rpc("map/agents/register", name="ann"))
        assert "result" in line.ask(**rpc("map/agents/spawn", parent="ann", name="child"))
        assert "result" in line.ask(**rpc("map/auth/refresh", **auth))
        assert "result" in line.ask(**rpc("map/subscribe"))


def use_federation(path: str, proof: str) -> None:
    for shown, word in (("prp_wrong", "authRequired"), (proof, "sessionId")):
        with closing(Lines(path)) as line:
            auth = {"method": "bearer", "credential": shown}
            hello = rpc("map/connect", protocolVersion=1, participantType="gateway", name="berlin", auth=auth)
            assert word in line.ask(**hello)["result"]
            meet = rpc("map/federation/connect", systemId="berlin", auth=auth)
            assert ("result" in line.ask(**meet)) == (shown == proof)


def use_http(port: int, text: str) -> None:
    bearer = {"authorization": f"Bearer {text}"}
    asked = (
        ("POST", "/v1/send", {"agent_id": "ann", "to": "bob", "body": "x"}),
        ("POST", "/", rpc("mail/counts", agentId="ann")),
        ("GET", "/healthz", None),
        ("GET", "/metrics", None),
        ("GET", "/openapi.json", None),
    )
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as http:
        for method, path, body in asked:
            http.request(method, path, json.dumps(body), {**bearer, "content-type": "application/json"})
            reply = http.getresponse()
            reply.read()
            assert reply.status in {200, 403}, path
        http.request("GET", "/subscribe", headers=bearer)
        assert http.getresponse().read(1) == b":"
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=bearer, open_timeout=PATIENCE) as talk:
        talk.send(json.dumps(rpc("mail/send", agentId="ann", to="bob", body="x")))
        assert "result" in json.loads(talk.recv(timeout=PATIENCE))
        talk.send(json.dumps(rpc("map/subscribe")))
        assert "result" in json.loads(talk.recv(timeout=PATIENCE))


async def served(core: Core, folder: Path, text: str, proof: str) -> None:
    executor = Executor(core)
    broker = Broker(executor)
    reception = MapServer(executor, broker)
    reception.exchange = Exchange(executor)
    linking = asyncio.ensure_future(reception.exchange.run())
    unix = UnixServer(executor, broker, str(folder / "s"), reception)
    http = HttpServer(executor, broker, HttpAddress(host="127.0.0.1", port=0), None, reception)
    await unix.start()
    await http.start()
    use: tuple[Callable[[], None], ...] = (
        lambda: use_the_socket(str(folder / "s"), text),
        lambda: use_map(str(folder / "s"), text),
        lambda: use_http(port_of(http), text),
        lambda: use_federation(str(folder / "s"), proof),
    )
    try:
        for one in use:
            await asyncio.to_thread(one)
    finally:
        linking.cancel()
        await asyncio.wait([linking])
        await http.stop()
        await unix.stop()
        reception.close()
        broker.close()
        await executor.close()


def calls_on_the_loop(folder: Path) -> set[str]:
    with postroom.open(folder / "room.db", durability="process") as room:
        text = perform(room.core, OWNER, tokens.CreateToken(scopes=[tokens.OPERATOR])).text
        proof = perform(room.core, OWNER, peers.AddPeer(system="berlin", fields={"auth": "bearer"})).token
        store = NotedStore(room.core.store)
        asyncio.run(served(replace(room.core, store=store), folder, text, proof or ""))
    assert {ident for _, ident in store.calls} - {threading.get_ident()}
    return {name for name, ident in store.calls if ident == threading.get_ident()}


def test_the_loops_thread_never_touches_the_store(tmp_path: Path) -> None:
    assert calls_on_the_loop(tmp_path) == set()


def test_a_store_that_is_read_on_the_loops_thread_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug."""

    def read(self: Executor, run: Callable[..., Any], *words: Any, caller: object = None) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(run(*words))
        except Exception as error:
            done.set_exception(error)
        return done

    monkeypatch.setattr(Executor, "read", read)
    assert {"records", "cursor", "changes"} <= calls_on_the_loop(tmp_path)
