"""One caller is no burden to the others: much asked at once, replies that nobody reads, strangers in the room, and
callers that are gone.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postroom
from tests.conftest import takes_long
from tests.daemons import Daemon, Line
from tests.server.http.running import memory_of, most_memory_of

MANY = 1_500
CHECK = {"action": "check_inbox", "agentId": "full"}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a full inbox."""
    folder = tmp_path_factory.mktemp("crowded")
    fill(folder, "full", MANY)
    with Daemon(folder) as daemon:
        yield daemon


def fill(folder: Path, name: str, number: int, body: str = "x" * 5_000) -> str:
    """The cursor before it."""
    with postroom.open(folder / "room.db", durability="process") as room:
        before = room.cursor()
        for start in range(0, number, 500):
            drafts = [postroom.draft(name, body) for _ in range(min(500, number - start))]
            room.mailbox("filler").send_many(drafts)
        return str(before)


def slowest_ping(daemon: Daemon, seconds: float) -> float:
    slowest = 0.0
    end = time.monotonic() + seconds
    with daemon.line() as line:
        while time.monotonic() < end:
            began = time.monotonic()
            assert line.ask({"action": "ping"})["ok"]
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.01)
    return slowest


def test_one_who_asks_for_much_keeps_nobody_waiting_and_takes_bounded_memory(crowded: Daemon) -> None:
    before = memory_of(crowded.process.pid)
    with crowded.line() as greedy:
        greedy.say(*[CHECK] * 64)  # and never reads
        assert slowest_ping(crowded, 2) < 0.6
        assert memory_of(crowded.process.pid) - before < 200 * 2**20


# A process of its own: what it sends must not wait for the test.
FLOOD = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
said = sys.argv[2].encode().decode("unicode_escape").encode() * int(sys.argv[3])
print("here", flush=True)
while True:
    line.sendall(said)
"""


@pytest.mark.parametrize(
    ("line", "times"), [('{"jsonrpc":"2.0","method":"x"}\\n', 3_000), ("\\n", 200_000)], ids=["notes", "blanks"]
)
def test_one_who_says_much_that_is_not_answered_keeps_nobody_waiting(
    daemon: Daemon, line: str, times: int
) -> None:
    words = [sys.executable, "-c", FLOOD, str(daemon.socket), line, str(times)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as flooding:
        try:
            assert flooding.stdout is not None and flooding.stdout.readline()
            assert slowest_ping(daemon, 1) < 0.6
        finally:
            flooding.kill()


def test_lines_that_are_large_in_memory_are_looked_at_one_after_the_other(daemon: Daemon) -> None:
    """A megabyte of JSON may be ninety in memory."""
    before, many = memory_of(daemon.process.pid), 8
    dense = b'{"action":"send","from":"a","to":"b","payload":[' + b"[]," * 200_000 + b"1]}\n"
    with daemon.line() as line, ThreadPoolExecutor(1) as beside:
        saying = beside.submit(line.say, *[dense] * many)
        assert [True] * many == [line.hear()["ok"] for _ in range(many)]
        saying.result()
    assert most_memory_of(daemon.process.pid) - before < 90 * 2**20


@takes_long
def test_many_who_never_read_take_bounded_memory_and_keep_nobody_for_ever(crowded: Daemon) -> None:
    before = memory_of(crowded.process.pid)
    with ExitStack() as lines:
        for _ in range(30):  # each is owed 8 MB
            lines.enter_context(crowded.line()).say(CHECK)
        assert slowest_ping(crowded, 2) < 0.6
        assert memory_of(crowded.process.pid) - before < 250 * 2**20
        assert MANY == len(crowded.ask(**CHECK)["messages"])
    assert "does not read its replies" in crowded.log()


def test_a_batch_that_asks_for_too_much_is_answered_in_part(crowded: Daemon) -> None:
    call = {"jsonrpc": "2.0", "method": "mail/check", "params": {"agent_id": "full", "peek": True, "limit": MANY}}
    send = {"jsonrpc": "2.0", "method": "mail/send", "params": {"agent_id": "a", "to": "part", "body": "x"}}
    with crowded.line() as line:
        result = line.ask([*(call | {"id": n} for n in range(20)), send | {"id": 20}])
    assert list(range(21)) == [reply["id"] for reply in result]
    refused = [reply["error"]["data"]["name"] for reply in result if "error" in reply]
    assert set(refused) == {"TooLarge"} and 15 < len(refused) < 20
    assert 0 == crowded.client.ask("counts", {"agent_id": "part"})["total"]  # it says that it was not carried out


def test_no_line_overtakes_a_batch_of_the_same_caller(shared: Daemon) -> None:
    def call(id: int, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": id, "method": f"mail/{method}", "params": params}

    sends = [call(n, "send", agent_id="a", to="ordered", body=str(n)) for n in range(4)]
    with shared.line() as line:
        line.say(sends[:3], sends[3], call(4, "counts", agent_id="ordered"))
        results = [line.hear() for _ in range(3)]
    assert 4 == results[2]["result"]["total"]
    found = shared.client.ask("check", {"agent_id": "ordered"})["letters"]
    assert ["0", "1", "2", "3"] == [letter["text"] for letter in found]


def test_a_letter_to_very_many_keeps_nobody_waiting(tmp_path: Path) -> None:
    everybody = [f"agent-{n}" for n in range(8_000)]
    with Daemon(tmp_path) as daemon, daemon.line() as line:
        line.say({"action": "send", "from": "a", "to": everybody, "payload": "x"})
        assert slowest_ping(daemon, 1) < 0.3
        assert line.hear()["ok"]


def test_a_stranger_that_holds_the_file_does_not_keep_a_daemon_from_stopping(daemon: Daemon) -> None:
    stranger = sqlite3.connect(daemon.room, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with daemon.line() as line:
        line.say({"action": "send", "from": "a", "to": "b", "payload": "never told"})
        assert daemon.ask(action="ping")["ok"]
        assert 0 == daemon.stop()  # while the file is held
        assert line.hear() is None  # had it waited for the file as long as a send does, it would have been told so
    assert "exited with calls under way" in daemon.log()
    stranger.execute("ROLLBACK")
    stranger.close()
    assert not daemon.socket.exists()


def test_it_stops_in_time_whatever_waits(tmp_path: Path) -> None:
    fill(tmp_path, "full", MANY)
    with Daemon(tmp_path) as daemon:
        lines = [Line(daemon.socket) for _ in range(3)]
        for line in lines:
            line.say(*[CHECK] * 64)
        time.sleep(0.2)
        began = time.monotonic()
        assert 0 == daemon.stop(signal.SIGTERM)
        assert time.monotonic() - began < 2
        assert "Traceback" not in daemon.log()
        for line in lines:
            line.__exit__()


def test_replies_of_one_caller_keep_their_order_with_much_and_little(crowded: Daemon) -> None:
    few = CHECK | {"limit": 3}
    request = [(CHECK if n == 7 else few if n % 3 else {"action": "ping"}) | {"id": n} for n in range(30)]
    with crowded.line() as line:
        line.say(*request)
        results = [line.hear() for _ in request]

    assert list(range(30)) == [reply["id"] for reply in results]
    assert MANY == len(results[7]["messages"])


def test_a_stranger_that_holds_the_file_stops_the_writer_alone(daemon: Daemon) -> None:
    letter = {"action": "send", "from": "a", "to": "b", "payload": "x"}
    assert daemon.ask(**letter)["ok"]
    assert 1 == len(daemon.ask(action="check_inbox", agentId="b")["messages"])
    stranger = sqlite3.connect(daemon.room, isolation_level=None)
    with daemon.line() as writer:
        stranger.execute("BEGIN IMMEDIATE")
        writer.say(letter)
        time.sleep(0.1)
        assert slowest_ping(daemon, 0.3) < 0.5
        assert 1 == len(daemon.ask(action="check_inbox", agentId="b")["messages"])
        stranger.execute("ROLLBACK")
        assert writer.hear()["ok"]
    stranger.close()

    assert 2 == len(daemon.ask(action="check_inbox", agentId="b")["messages"])


# -- those who are gone


@pytest.mark.parametrize("action", ["wait", "claim"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_letter_is_not_handed_to_one_who_waited_and_left(shared: Daemon, action: str, is_batch: bool) -> None:
    name = f"gone-{action}-{is_batch}"
    params: dict[str, Any] = {"agent_id": name, "timeout": 60}
    call = {"jsonrpc": "2.0", "id": 1, "method": f"mail/{action}", "params": params}
    after = {"jsonrpc": "2.0", "method": "mail/send", "params": {"agent_id": "x", "to": f"{name}-2", "body": "x"}}
    with shared.line() as waiting:
        waiting.say([call, after] if is_batch else {"action": action, **params}, {"action": "ping"})
        time.sleep(0.1)
    time.sleep(0.1)
    shared.ask(action="send", **{"from": "a", "to": name, "payload": "x"})
    time.sleep(0.1)

    assert 1 == shared.client.ask("counts", {"agent_id": name})["total"]
    assert 1 == len(shared.client.ask("claim", {"agent_id": name})["letters"])
    assert int(is_batch) == shared.client.ask("counts", {"agent_id": f"{name}-2"})["total"]


# -- those who listen


def test_what_is_resumed_follows_the_reply(shared: Daemon) -> None:
    cursor = shared.ask(action="cursor")["cursor"]
    shared.ask(action="send", **{"from": "a", "to": "b", "payload": "x"})
    foreign = "0" * 16 + ":" + cursor.split(":", 1)[1]
    for since in (cursor, foreign):
        with shared.line() as line:
            line.say({"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {"since": since}})
            first, second = line.hear(), line.hear()
        assert "subscriptionId" in first["result"]
        assert "map/event" == second["method"]


def test_catching_up_keeps_nobody_waiting(crowded: Daemon) -> None:
    with crowded.line() as late:
        params = {"since": _first(crowded), "filter": {"scopes": ["nobody's"]}}
        late.say(*[{"jsonrpc": "2.0", "id": n, "method": "map/subscribe", "params": params} for n in range(8)])
        assert slowest_ping(crowded, 0.5) < 1


def _first(daemon: Daemon) -> str:
    store, epoch, _ = daemon.ask(action="cursor")["cursor"].split(":")
    return f"{store}:{epoch}:0"


def test_what_was_received_while_catching_up_is_not_reported_again(shared: Daemon) -> None:
    cursor = shared.ask(action="cursor")["cursor"]
    letter = {"action": "send", "from": "a", "to": "twice", "payload": "x"}
    filter = {"agent": "twice", "eventTypes": ["message.created"]}
    with shared.line() as line, shared.line() as sender:
        line.say(
            {"jsonrpc": "2.0", "id": 1, "method": "map/subscribe", "params": {"filter": filter, "since": cursor}}
        )
        sender.say(*[letter] * 20)
        sent = [sender.hear()["messageId"] for _ in range(20)]
        line.hear()
        received = [line.hear()["params"]["event"]["data"]["id"] for _ in sent]
        line.say({"action": "ping"})
        assert "pid" in line.hear()

    assert sent == received, json.dumps(received)
