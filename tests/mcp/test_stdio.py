"""`postroom mcp`, started as a host starts it: a program behind two pipes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import postroom
from mcp import Client, StdioServerParameters, stdio_client
from postroom.environment import how_to_install
from postroom.errors import PostroomError
from postroom.mcp import sdk
from tests.daemons import Daemon
from tests.mcp.harness import PATIENCE, ask, refused, run

SOURCE = Path(postroom.__file__).parent.parent
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "INBOX_"))}
    return kept | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(SOURCE),
        "POSTROOM_STORE": f"sqlite:{tmp_path}/room.db",
    }


def started(env: dict[str, str], *words: str) -> Any:
    return stdio_client(
        StdioServerParameters(command=sys.executable, args=["-m", "postroom", "mcp", *words], env=env)
    )


def played(env: dict[str, str], *words: str, raw: bytes = b"", answers: int = 0, code: str = "") -> Any:
    """The program's whole life: it gets all of its input, and hears the end once it has answered so often."""
    program = f"{code}\nfrom postroom.cli.main import entry; import sys; sys.argv[0] = 'postroom'; entry()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program, "mcp", *words], env=env, **pipes) as running:  # type: ignore[call-overload]
        bound = threading.Timer(PATIENCE, running.kill)
        bound.start()
        running.stdin.write(raw)
        running.stdin.flush()
        lines = [running.stdout.readline() for _ in range(answers)]
        rest, err = running.communicate()
        bound.cancel()
    return running.returncode, b"".join(lines) + rest, err.decode()


def written(*params: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in params)


def test_two_agents_exchange_mail_through_two_servers(env: dict[str, str]) -> None:
    async def story() -> None:
        result = env | {"INBOX_AGENT_ID": "bob", "INBOX_SCOPE": "swarm:sorting"}
        async with Client(started(env, "--as", "ann"), mode="legacy") as ann, Client(started(result)) as bob:
            assert ("2025-11-25", "2026-07-28") == (ann.protocol_version, bob.protocol_version)
            waiting = asyncio.create_task(ask(bob, "wait_for_mail", timeout=20))
            await ask(ann, "send_message", to="bob", body="grüße\u2028\n")
            assert "grüße\u2028\n" == (await waiting)["message"]["content"]["text"]
            async with bob.listen(resource_subscriptions=["inbox://bob"]) as received:
                await ask(ann, "send_message", to="bob", body="2")
                assert "inbox://bob" == (await anext(received)).uri  # type: ignore[union-attr]
            await ask(bob, "check_inbox")
            agents = {one["agentId"]: one for one in (await ask(ann, "list_agents"))["agents"]}
            assert "swarm:sorting" == agents["bob"]["scope"]

    run(story())


def test_nothing_but_json_rpc_is_on_standard_output(env: dict[str, str]) -> None:
    noise = (
        "import sys, warnings, os, atexit\n"
        "import postroom.mcp.tools as tools\n"
        "kept = tools.counted\n"
        "def loud(*a, **k):\n"
        "    print('stray print'); warnings.warn('stray warning'); os.write(1, b'stray write\\n')\n"
        "    os.system('echo stray child')\n"
        "    return kept(*a, **k)\n"
        "tools.counted = loud\n"
        "atexit.register(print, 'stray end')\n"
    )
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "check_inbox", "arguments": {}}}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    ended, out, err = played(env, "--as", "ann", raw=written(HELLO, ready, call), answers=2, code=noise)
    assert [1, 2] == [json.loads(line)["id"] for line in out.splitlines()], err
    for stray in ("stray print", "stray warning", "stray write", "stray child"):
        assert stray in err
    assert 0 == ended


def test_junk_on_standard_input_ends_nothing(env: dict[str, str]) -> None:
    ended, out, _ = played(env, raw=b"no json\n\xff\xfe\n[]\n" + written(HELLO), answers=1)
    assert any(json.loads(line).get("id") == 1 for line in out.splitlines())
    assert 0 == ended


def test_a_host_that_listens_no_more_ends_it_quietly(env: dict[str, str]) -> None:
    words = [sys.executable, "-m", "postroom", "mcp", "--as", "ann"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=env, **pipes) as running:  # type: ignore[call-overload]
        running.stdin.write(written(HELLO))
        running.stdin.flush()
        running.stdout.readline()
        running.stdout.close()
        running.stdin.write(written({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
        running.stdin.close()
        bound = threading.Timer(PATIENCE, running.kill)
        bound.start()
        err = running.stderr.read().decode()
        bound.cancel()
        assert (0, "") == (running.wait(PATIENCE), err)


def test_a_letter_that_was_accepted_survives_the_server(env: dict[str, str]) -> None:
    async def story() -> None:
        async with Client(started(env)) as client:
            await ask(client, "send_message", to="bob", body="kept", **{"from": "ann"})

    run(story())
    with postroom.open(env["POSTROOM_STORE"]) as room:
        assert ["kept"] == [letter.text for letter in room.mailbox("bob").check()]


@pytest.mark.parametrize(("words", "code"), [
    (("--as", "../x"), 65), (("--scope", "a b"), 65), (("--room", "no/such/folder/room.db"), 73),
    (("--room", "x.db", "--socket", "y.sock"), 64),
])  # fmt: skip
def test_what_is_wrong_is_reported_before_the_sdk_is_loaded(
    env: dict[str, str], words: tuple[str, ...], code: int
) -> None:
    ended, out, err = played(env, *words, code="import sys; sys.modules['mcp'] = None")
    assert (code, b"") == (ended, out), err


def test_the_configuration_is_printed_for_a_host(env: dict[str, str]) -> None:
    _, out, _ = played(env, "--as", "ann", "--config")
    (server,) = json.loads(out)["mcpServers"].values()
    assert ["mcp", "--as", "ann"] == server["args"][-3:]
    assert Path(server["command"]).is_absolute()


def test_no_configuration_is_printed_for_a_server_that_could_not_start(env: dict[str, str]) -> None:
    gone = "import importlib.util as u; find = u.find_spec"
    gone += "\nu.find_spec = lambda name: None if name[:3] == 'mcp' else find(name)"
    code, out, err = played(env, "--as", "ann", "--config", code=gone)
    assert (65, b"") == (code, out) and how_to_install("mcp") in err


def test_the_configuration_means_the_same_from_anywhere_and_wants_a_name(env: dict[str, str]) -> None:
    _, out, err = played(env, "--config", "--room", "./foo.db")
    (server,) = json.loads(out)["mcpServers"].values()
    name, room = server["args"][-2:]
    assert "--room" == name and Path(room).is_absolute() and "foo.db" == Path(room).name
    assert "--as NAME" in err


def test_without_the_sdk_or_with_an_old_one_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, words in ((set[str](), "not installed"), ({"mcp"}, "an older one")):
        monkeypatch.setattr(sdk, "find_spec", lambda name, there=there: object() if name in there else None)
        with pytest.raises(PostroomError, match=words) as result:
            sdk.need_sdk()
        assert how_to_install("mcp") in (result.value.hint or "")
    monkeypatch.setattr(sdk, "find_spec", lambda _name: object())
    sdk.need_sdk()


def test_a_running_daemon_is_asked_over_its_socket(env: dict[str, str], tmp_path: Path) -> None:
    async def story(path: str) -> None:
        result = env | {"INBOX_SOCKET_PATH": path, "POSTROOM_AGENT": "bob", "POSTROOM_STORE": ""}
        async with (
            Client(started(env, "--socket", path, "--as", "ann"), mode="legacy") as ann,
            Client(started(result)) as bob,
            bob.listen(resource_subscriptions=["inbox://bob"]) as received,
        ):
            await ask(ann, "send_message", to="bob", body="over the socket")
            assert "inbox://bob" == (await anext(received)).uri  # type: ignore[union-attr]
            (letter,) = (await ask(bob, "check_inbox", limit=5))["messages"]
            assert "over the socket" == letter["content"]["text"]
            error = await refused(bob, "ack", messageIds="nothing")
            assert "UnknownMessage" == error["name"]
            asking = asyncio.create_task(ask(ann, "send_message", to="bob", body="Shall I?", timeout=20))
            request = (await ask(bob, "wait_for_mail", timeout=20))["message"]
            await ask(bob, "send_message", body="Yes.", inReplyTo=request["id"])
            assert "Yes." == (await asking)["answer"]["content"]["text"]

    with Daemon(tmp_path) as daemon:
        run(story(str(daemon.socket)))
