"""A verb that is declared once is on every surface: a toy verb, declared in this test and nowhere else.

On the command line it is found by `test_a_verb_is_a_command_without_a_line_of_the_command_line` in tests/cli.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from msgspec import Struct

from postroom.core.verb import VERBS, MailboxVerb, verb
from postroom.errors import Invalid
from postroom.mcp.tools import PREFIX, TOOLS, row
from postroom.server.protocol import ADDED
from postroom.server.unix_socket import UnixServer
from tests.server.http.running import PATIENCE, Client, in_thread, make_token, open_server, port_of

if TYPE_CHECKING:
    from postroom.core.authorize import Principal
    from postroom.core.core import Core


HOME = Path(__file__).parents[2]


class Echoed(Struct):
    """A text, as often as it was wanted."""

    mailbox: str
    texts: list[str]


@pytest.fixture
def toy() -> Iterator[None]:
    """Two verbs, as long as a test lasts: one returns an object, the other a value that has a name in its JSON."""

    @verb("echo", Echoed, action="check", writes=False, old_names={"words": "text"})
    class Echo(MailboxVerb, kw_only=True):
        """Return a text several times."""

        text: Annotated[str, "what to return"]
        times: Annotated[int, "how often"] = 1

        def run(self, _core: Core, _principal: Principal) -> Echoed:
            if self.times > 3:
                raise Invalid("is too often", field="times")
            return Echoed(self.agent_id, [self.text] * self.times)

    @verb("length", int, under="characters", action="check", writes=False)
    class Length(MailboxVerb, kw_only=True):
        """Return how long a text is."""

        text: Annotated[str, "what to measure"]

        def run(self, _core: Core, _principal: Principal) -> int:
            return len(self.text)

    yield
    del VERBS["echo"], VERBS["length"]


def over_socket(place: Path, line: dict[str, Any]) -> Any:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE)
        stream.connect(str(place))
        stream.sendall(json.dumps(line).encode() + b"\n")
        return json.loads(stream.makefile("rb").readline())


@pytest.mark.usefixtures("toy")
def test_a_verb_is_found_on_every_wire_and_in_every_description(tmp_path: Path) -> None:
    params = {"agent_id": "ann", "text": "x", "times": 2}
    expected = {"mailbox": "ann", "texts": ["x", "x"]}

    def calls(client: Client, place: Path) -> None:
        call = {"jsonrpc": "2.0", "id": 1, "method": "mail/echo", "params": params}
        assert expected == over_socket(place, call)["result"]
        assert {"ok": True, **expected} == over_socket(place, {"action": "echo", **params})
        assert expected == client.call("mail/echo", **params)
        assert expected == client.post(params, "/v1/echo").json
        assert expected == client.post({"agentId": "ann", "words": "x", "times": 2}, "/v1/echo").json
        too_often = client.post({**params, "times": 4}, "/v1/echo")
        assert (400, "times") == (too_often.status, too_often.json["field"])
        wrong = client.post({"agent_id": "ann", "words": 1}, "/v1/echo")
        assert (400, "words") == (wrong.status, wrong.json["field"])  # as the caller wrote it

        described = client.ask("GET", "/openapi.json").json
        post = described["paths"]["/v1/echo"]["post"]
        fields = post["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert "Return a text several times." == post["summary"]
        assert {"type": "integer", "description": "how often", "default": 1} == fields["times"]
        assert fields["words"]["deprecated"]
        assert ["mailbox", "texts"] == [*described["components"]["schemas"]["Echoed"]["properties"]]
        assert {"characters": 3} == client.post({"agent_id": "ann", "text": "abc"}, "/v1/length").json
        length = described["paths"]["/v1/length"]["post"]["responses"]["200"]["content"]["application/json"]
        assert {"characters": {"type": "integer"}} == length["schema"]["properties"]
        for found in (client.call("rpc.discover"), over_socket(place, {"action": "rpc.discover"})):
            assert "mail/echo" in [method["name"] for method in found["methods"]]

    async def play() -> None:
        async with open_server(tmp_path) as (server, room, executor, broker):
            place = tmp_path / "socket"
            unix = UnixServer(executor, broker, str(place))
            await unix.start()
            try:
                # The socket is asked as the operator: no agent has a token in this room.
                with closing(Client(port_of(server), make_token(room))) as client:
                    await in_thread(calls, client, place)
            finally:
                await unix.stop()

    asyncio.run(play())


@pytest.mark.usefixtures("toy")
def test_a_verb_is_on_the_reference_page() -> None:
    page = runpy.run_path(str(HOME / "tools" / "wire.py"))["service_page"]()
    section = page.partition("### `echo`\n")[2].partition("###")[0]
    assert "Return a text several times. Callers: the mailbox's own agent" in section
    assert "| `times` | count | how often |" in section and "Result: mailbox, texts." in section
    assert "Result: characters." in page.partition("### `length`\n")[2].partition("###")[0]


@pytest.mark.usefixtures("toy")
def test_a_row_makes_a_tool_of_a_verb() -> None:
    pytest.importorskip("mcp_types", reason="needs the extra postroom[mcp]")
    from tests.mcp.harness import Harness, ask, played, refused

    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann:
            listed = {tool.name: tool for tool in (await ann.list_tools()).tools}
            assert "Say it again." == listed["echo"].description
            assert {"type": "integer", "description": "so often"} == listed["echo"].input_schema["properties"][
                "times"
            ]
            assert ["text"] == listed["echo"].input_schema["required"]
            assert {"texts": ["x", "x"]} == await ask(ann, "echo", text="x", times=2)
            assert "times" == (await refused(ann, "echo", text="x", times=4))["field"]

    row(
        "echo",
        cast("type[MailboxVerb]", VERBS["echo"]),
        {"text": "", "times": "so often"},
        lambda found, people: {"texts": found.texts},  # noqa: ARG005 - what every row gets
        title="Echo",
        about="Say it again.",
        answer={"texts": {"type": "array"}},
    )
    try:
        played(story)
    finally:
        del TOOLS["echo"], ADDED[PREFIX + "echo"]


METHOD = """
    def echo(self, text: str, *, times: int = 1) -> list[Letter]:
        return self._perform(Echo, text=text, times=times)
"""
AWAITED = f"""
import asyncio, sys
from typing import Annotated
from postroom.core.verb import MailboxVerb, verb
from postroom.letter import Letter
from postroom.mailbox import Mailbox

@verb("echo", list, under="texts", action="check", writes=False)
class Echo(MailboxVerb, kw_only=True):
    text: Annotated[str, "what to return"]
    times: Annotated[int, "how often"] = 1

    def run(self, _core, _principal):
        return [self.text] * self.times

class Methods:{METHOD}
Mailbox.echo = Methods.echo

from postroom import aio

async def play():
    async with aio.open("memory:") as room:
        print(await room.mailbox("ann").echo("x", times=2))

asyncio.run(play())
"""


def test_a_method_of_a_verb_is_awaited_and_in_the_types_of_the_async_face(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", AWAITED], capture_output=True, text=True, check=False)
    assert ("['x', 'x']\n", "") == (done.stdout, done.stderr)
    stub = runpy.run_path(str(HOME / "tools" / "aio_stub.py"))["stub"]
    home, package = stub.__globals__["PACKAGE"], tmp_path / "postroom"
    shutil.copytree(home, package, ignore=shutil.ignore_patterns("*.pyc"))
    source = package / "mailbox.py"
    first = "    def send_many("
    source.write_text(source.read_text().replace(first, METHOD.lstrip("\n") + f"\n{first}", 1))
    whole = stub()
    assert "echo" not in whole
    stub.__globals__["PACKAGE"] = package
    added = "    async def echo(self, text: str, *, times: int = 1) -> list[AsyncLetter]: ..."
    assert {added} == {*stub().splitlines()} - {*whole.splitlines()}


def test_a_verb_that_nobody_declares_is_nowhere(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_server(tmp_path) as (server, room, *_):
            with closing(Client(port_of(server), make_token(room))) as client:
                assert 404 == (await in_thread(client.post, {}, "/v1/echo")).status

    asyncio.run(play())


def test_a_local_verb_is_on_no_wire(tmp_path: Path) -> None:
    @verb("whisper", Echoed, action="check", local=True)
    class Whisper(MailboxVerb, kw_only=True):
        """Return what is told to nobody."""

        def run(self, _core: Core, _principal: Principal) -> Echoed:
            return Echoed(self.agent_id, [])

    async def play() -> None:
        async with open_server(tmp_path) as (server, room, *_):
            with closing(Client(port_of(server), make_token(room))) as client:
                assert 404 == (await in_thread(client.post, {}, "/v1/whisper")).status
                described = await in_thread(client.ask, "GET", "/openapi.json")
            assert "/v1/whisper" not in described.json["paths"]

    try:
        asyncio.run(play())
    finally:
        del VERBS["whisper"]
