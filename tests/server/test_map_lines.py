"""MAP in lines of JSON on the socket: told apart by its first line, with dotted names, acknowledged by receipt."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Room
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.map.connection import MOST_JUNK
from tests.daemons import Daemon, Line, until

pytestmark = pytest.mark.daemon


def call(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def connect(line: Line, name: str, **more: Any) -> Any:
    line.ask(call(1, "map/connect", protocolVersion=1, participantType="agent", name=name, **more))
    return line.ask(call(2, "map/agents.register", name=name))


def waiting(room: Room, name: str) -> int:
    return len(room.mailbox(name).check(peek=True, unread_only=False))


def until_none_waits(room: Room, name: str) -> None:
    until(lambda: not waiting(room, name))


def test_what_was_not_received_comes_again_and_an_answer_is_the_receipt(shared: Daemon) -> None:
    with postroom.open(shared.room) as room:
        with shared.line() as first:
            assert "mia" == connect(first, "mia")["result"]["agent"]["id"]
            sent = room.mailbox("ann").send("mia", "are you there?")
            message, sign = first.hear(), first.hear()
            assert (sent.id, "map/ping") == (message["params"]["message"]["id"], sign["method"])
        assert 1 == waiting(room, "mia")
        with shared.line() as second:
            connect(second, "mia")
            message, sign = second.hear(), second.hear()
            assert sent.id == message["params"]["message"]["id"] and 1 == waiting(room, "mia")
            second.say({"jsonrpc": "2.0", "id": sign["id"], "error": {"code": -32601, "message": "?"}})
            until_none_waits(room, "mia")


def test_both_spellings_and_unknown_words(shared: Daemon) -> None:
    with shared.line() as line:
        connect(line, "noa")
        for method in ("map/agents.list", "map/agents/list"):
            assert "noa" in {row["id"] for row in line.ask(call(3, method))["result"]["agents"]}
        assert -32601 == line.ask(call(4, "map/no.such"))["error"]["code"]
        sent = line.ask(call(5, "map/send", to={"agent": "noa2"}, payload={"type": "x", "n": 1}))
        assert ["noa2"] == sent["result"]["delivered"]


@pytest.mark.parametrize("junk", [b"{\n", b"[]\n", b"7\n", b'{"id": "sign-9"}\n', b"x" * 2_000_000 + b"\n"])
def test_junk_is_refused_and_the_connection_goes_on(shared: Daemon, junk: bytes) -> None:
    with shared.line() as line:
        connect(line, "pia")
        line.say(junk, call(7, "map/agents.get", agentId="pia"))
        result = line.hear()
        while result.get("id") != 7:
            assert result["error"]["code"] in {-32700, -32600}
            result = line.hear()
        assert "pia" == result["result"]["agent"]["id"]


def test_lines_of_other_dialects_stay_what_they_were(shared: Daemon) -> None:
    with shared.line() as line:
        assert line.ask({"action": "ping"})["ok"]
        later = line.ask(call(1, "map/connect", protocolVersion=1, participantType="agent", name="q"))
        assert -32601 == later["error"]["code"]  # which dialect it is, its first line says


def test_who_has_a_token_speaks_by_it_alone(daemon: Daemon) -> None:
    with postroom.open(daemon.room) as room:
        token = perform(room.core, OWNER, tokens.CreateToken(agent="coder")).text
    with daemon.line() as thief:
        assert 1003 == connect(thief, "coder")["error"]["code"]
    with daemon.line() as bad:
        auth = {"method": "bearer", "credential": "pr_nothing"}
        result = bad.ask(call(1, "map/connect", protocolVersion=1, participantType="agent", name="x", auth=auth))
        assert "authRequired" in result["result"] and "sessionId" not in result["result"]
    with daemon.line() as owner:
        result = connect(owner, "coder", auth={"method": "bearer", "credential": token})
        assert "coder" == result["result"]["agent"]["id"]


def test_a_room_that_speaks_no_map_says_so(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--http", "off", "--map", "off") as daemon, daemon.line() as line:
        result = line.ask(call(1, "map/connect", protocolVersion=1, participantType="agent", name="q"))
        assert -32601 == result["error"]["code"]


def test_lines_that_come_all_at_once_are_carried_out_in_their_order(shared: Daemon) -> None:
    with shared.line() as line:
        line.say(call(1, "map/connect", protocolVersion=1, participantType="agent", name="the-program"))
        line.say(call(2, "map/agents.register", name="hal"))
        line.say(call(3, "map/send", to="hal", payload="to myself"))
        assert [1, 2, 3] == [
            result["id"] for result in (line.hear(), line.hear(), line.hear()) if "result" in result
        ]
        assert "hal" == line.hear()["params"]["message"]["from"]


def test_lines_that_are_too_long_are_refused_and_count_as_junk(shared: Daemon) -> None:
    with shared.line() as line:
        connect(line, "lon")
        assert -32700 == line.ask("x" * 3_000_000)["error"]["code"]
        assert line.ask(call(3, "map/agents.list"))["result"]["agents"]
        for _ in range(MOST_JUNK - 2):
            assert -32700 == line.ask(b"junk\n")["error"]["code"]
        with suppress(ConnectionError):  # it is ended, maybe in the middle of what it says
            line.say("x" * 3_000_000)
            while line.hear() is not None:
                pass
