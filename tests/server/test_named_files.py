"""Nobody reads the service's files (L2, threat 6): a path in a request or in a received letter is never opened.

Every method of every table is asked with a file part that has no bytes in each place where JSON may stand, with a
file of that name in the working folder. A method that is added to a table is asked too.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import postroom
from postroom import PostroomError, Room
from postroom.core import compose, tokens
from postroom.core.authorize import OWNER, SOCKET
from postroom.core.verb import Verb, parameters, perform
from postroom.map.session import MAP
from postroom.mcp.tools import PREFIX, TOOLS, arguments
from postroom.server.broker import Broker
from postroom.server.callers import PrincipalCalls
from postroom.server.describe import kind_of
from postroom.server.executor import Executor
from postroom.server.inbox_actions import ACTIONS
from postroom.server.requests import SESSION, SessionVerb
from tests.contract.mcp_surface import Mcp
from tests.daemons import PATIENCE, Daemon
from tests.map.people import Refused, visitor
from tests.server import gullible
from tests.server.test_who_may import METHODS, Filled, carried_out

SECRET = b"the room's own secret, in its own file"
ENCLOSED = base64.b64encode(SECRET)
PART = {"type": "file", "path": "secret.txt"}
DRAFT = {"to": "bob", "body": ["see", PART]}
SHAPES: tuple[Any, ...] = (
    PART, ["see", PART | {"bytes": None}], [DRAFT], {"parts": [PART], "content": PART, "payload": PART},
    {"type": "file", "path": "secret.txt", "message": {"payload": PART}, "federation": {}},
)  # fmt: skip
JSON = {"any", "json", "object", "list"}  # kinds of parameters that may hold a part
BODIES = {"body", "reply", "drafts"}  # our own words for a letter's content
# Where a tool or a session's method asks for more than the methods of a room do.
WORDS: dict[str, Any] = {
    "participant_type": "agent", "method": "api-key", "credential": "x", "subscription_id": "x", "system_id": "x",
    "up_to_sequence": 1, "agent": "bob", "exposure": {}, "id": "x", "pattern": "x", "events": ["x"],
    "token": "x", "system": "x",
    "messageIds": ["x"], "workCompleted": "x", "threadTag": "tag", "action": "give", "call": 1, "verb": "send",
}  # fmt: skip


def places(method: type[Verb]) -> list[str]:
    return [one.name for one in parameters(method).values() if kind_of(one) in JSON]


OURS = [name for name, row in METHODS.items() if BODIES & {*places(row)}]


def held(room: Room) -> bytes:
    return b"\n".join(room.export())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of whoever serves."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_bytes(SECRET)
    return tmp_path


# -- every method of every table, as a daemon carries it out


def leaks(name: str) -> set[str]:
    """The parameters by which a method can be made to tell what is in the file."""
    method, found = METHODS[name], set()
    for place in places(method):
        with postroom.open("memory:") as room:
            filled = Filled(room)
            message = filled.params_of(name, method)
            if place in BODIES:
                message.pop("payload", None)  # agent-inbox's own word for a body comes before it
            replies = [carried_out(room, SOCKET, method, message | {place: shape}) for shape in SHAPES]
            if ENCLOSED in held(room) or ENCLOSED.decode() in str(replies):
                found.add(place)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_no_method_opens_a_path(name: str) -> None:
    assert set() == leaks(name)


@pytest.mark.parametrize("name", OURS)
def test_a_verb_of_ours_refuses_a_file_without_its_bytes_and_says_what_to_do(name: str) -> None:
    method = METHODS[name]
    (place,) = BODIES & {*places(method)}
    with postroom.open("memory:") as room:
        message = Filled(room).params_of(name, method)
        message.pop("payload", None)
        reply = carried_out(room, SOCKET, method, message | {place: [DRAFT] if place == "drafts" else PART})
    assert "Invalid" == reply["told"]
    assert "].bytes: is missing" in reply["error"] and "base64" in reply["error"]


@pytest.mark.parametrize("name", OURS)
def test_with_the_old_fault_each_verb_of_ours_tells_the_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "with_content", gullible.enclosed)
    assert BODIES & leaks(name)


def test_verbs_of_ours_are_known() -> None:
    verbs = "send send_many ask reply forward broadcast give_task task_step escalate ack"
    assert {"action send", *(f"mail/{verb}" for verb in verbs.split())} == {*OURS}


@pytest.mark.parametrize("name", TOOLS)
def test_no_tool_opens_a_path(name: str) -> None:
    async def call(room: Room, params: dict[str, Any]) -> Any:
        executor = Executor(room.core)
        broker = Broker(executor)
        try:
            calls = PrincipalCalls(executor, broker)
            return await calls.call(OWNER, PREFIX + name, {**params, "me": "alice"})
        except PostroomError as refused:
            return str(refused)
        finally:
            broker.close()
            await executor.close()

    with postroom.open("memory:") as room:
        filled = Filled(room)
        known = WORDS | {"to": "bob", "query": "x", "messageIds": [filled.letter], "timeout": 0}
        params = {
            arg.name: known[arg.name]
            for arg in arguments(TOOLS[name])
            if arg.required or arg.name in {"to", "timeout"}
        }
        for arg in arguments(TOOLS[name]):
            replies = [asyncio.run(call(room, params | {arg.name: shape})) for shape in SHAPES]
            assert ENCLOSED.decode() not in str(replies)
        assert ENCLOSED not in held(room)


# -- over real wires

Ask = Callable[[str, dict[str, Any]], Any]


class Served:
    """A daemon whose working folder holds the secret."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.daemon = Daemon(folder, "--http", "127.0.0.1:0", cwd=folder, **more)
        with postroom.open(self.daemon.room, durability="process") as room:
            self.filled = Filled(room)
            self.token = perform(room.core, room.principal, tokens.CreateToken()).text
        self.port = int(self.daemon.where["http"].rpartition(":")[2])

    def everything(self, ask: Ask, methods: dict[str, type[Verb]]) -> list[str]:
        """All replies: verbs of ours first, while there is something for them to speak about; what makes a
        connection hear of events last.
        """
        replies = []
        for name, method in sorted(
            methods.items(), key=lambda row: (row[0] not in OURS, issubclass(row[1], SessionVerb))
        ):
            message = self.filled.params_of(name, method, WORDS)
            for place in places(method):
                replies += [json.dumps(ask(name, message | {place: shape})) for shape in SHAPES]
        return replies

    def enclosed(self) -> int:
        """How often the secret lies in the room."""
        with postroom.open(self.daemon.room, durability="process") as room:
            return held(room).count(ENCLOSED)


def over_socket(served: Served) -> list[str]:
    """Actions in one dialect, JSON-RPC in the other."""
    actions = {f"action {name}": row for name, row in (ACTIONS | SESSION).items()}
    with served.daemon.line() as line:
        found = served.everything(lambda name, message: line.ask({"action": name[7:], **message}), actions)
    with served.daemon.line() as line:
        return found + served.everything(lambda name, message: line.ask(rpc(name, message)), by_rpc())


def over_http(served: Served) -> list[str]:
    line = HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    shown = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}

    def ask(name: str, params: dict[str, Any]) -> Any:
        line.request("POST", "/", json.dumps(rpc(name, params)), shown)
        return json.loads(line.getresponse().read())

    try:
        return served.everything(ask, by_rpc())
    finally:
        line.close()


def over_frames(served: Served) -> list[str]:
    shown = {"authorization": f"Bearer {served.token}"}
    with connect(f"ws://127.0.0.1:{served.port}/ws", additional_headers=shown, compression=None) as talk:

        def ask(name: str, params: dict[str, Any]) -> Any:
            talk.send(json.dumps(rpc(name, params)))
            return json.loads(talk.recv(timeout=PATIENCE))

        return served.everything(ask, by_rpc())


def over_map(served: Served) -> list[str]:
    replies = []
    with visitor(served.port) as person:
        person.join(served.token, name="visitor")
        person.register(name="visitor")

        def ask(name: str, params: dict[str, Any]) -> Any:
            with suppress(Refused):
                return person.ask(name, **params)

        replies = served.everything(ask, MAP)
        replies += [json.dumps(person.ask("map/send", to="visitor", payload=shape)) for shape in SHAPES]
        assert PART == person.message()["payload"]
    return replies


def rpc(name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}


def by_rpc() -> dict[str, type[Verb]]:
    return {name: row for name, row in METHODS.items() if name.startswith("mail/")} | SESSION


WIRES = {"socket": over_socket, "http": over_http, "frames": over_frames, "map": over_map}


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    found = Served(folder)
    with found.daemon:
        yield found


def test_no_wire_tells_what_is_in_the_daemons_folder(served: Served) -> None:
    for wire, over in WIRES.items():
        replies = over(served)
        assert ENCLOSED.decode() not in "".join(replies), wire
        assert wire == "map" or any("].bytes: is missing" in reply for reply in replies), wire
    assert 0 == served.enclosed()


def test_with_the_old_fault_each_wire_tells_it(folder: Path) -> None:
    source, result = str(Path(__file__).parents[2]), 0
    found = Served(folder, program=("tests.server.gullible",), PYTHONPATH=source)
    with found.daemon:
        for over in (over_socket, over_http, over_frames):
            over(found)
            assert result < (result := found.enclosed()), over


def test_the_tools_of_a_host_keep_it_as_a_reference(folder: Path) -> None:
    """`content` is agent-inbox's word: what it holds goes as it is."""
    host = Mcp(folder)
    sent = host.tool("send_message", to="bob", content=PART, **{"from": "alice"})
    (letter,) = host.tool("check_inbox", agentId="bob")["messages"]
    for shape in SHAPES:
        with suppress(PostroomError):
            host.tool("send_message", to="bob", body=shape, **{"from": "alice"})
    assert (sent["messageId"], PART) == (letter["id"], letter["content"])
    assert ENCLOSED not in held(host.room)
    host.close()
