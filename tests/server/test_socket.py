"""The socket itself: packets, order, bad callers, stopping, who may listen."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from postroom import PostroomError
from postroom.app.app import lock_room
from postroom.errors import NameTaken
from postroom.server.client import SocketClient
from tests.daemons import Daemon, Line, until

CALLS = 50


def test_the_socket_is_its_owners_alone(shared: Daemon) -> None:
    assert 0o600 == stat.S_IMODE(shared.socket.stat().st_mode)


def test_a_character_may_be_split_over_packets(shared: Daemon) -> None:
    line = json.dumps(
        {"action": "send", "from": "a", "to": "split", "payload": "žluťoučký 🐎"}, ensure_ascii=False
    )
    with shared.line() as caller:
        for byte in line.encode() + b"\n":
            caller.say(bytes([byte]))
        caller.hear()

    (record,) = shared.ask(action="check_inbox", agentId="split")["messages"]
    assert "žluťoučký 🐎" == record["content"]["text"]


def test_one_who_writes_a_line_and_closes_at_once_is_served(shared: Daemon) -> None:
    for number in range(CALLS):
        caller = Line(shared.socket)
        caller.say({"action": "send", "from": "a", "to": "hasty", "payload": str(number)})
        with caller:
            pass

    def found() -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = shared.ask(action="check_inbox", agentId="hasty")["messages"]
        return messages if len(messages) >= CALLS else []

    assert {str(number) for number in range(CALLS)} == {record["content"]["text"] for record in until(found)}


def test_a_last_line_without_its_end_is_a_line(shared: Daemon) -> None:
    with shared.line() as caller:
        caller.say(b'{"action":"ping"}')
        caller.socket.shutdown(socket.SHUT_WR)
        assert caller.hear()["ok"]
        assert caller.hear() is None


def test_replies_come_in_the_order_of_the_lines(shared: Daemon) -> None:
    request = [
        {"action": "wait", "agent_id": "nobody", "timeout": 0.05, "id": number}
        if number % 10 == 5
        else {"jsonrpc": "2.0", "id": number, "method": "mail/search", "params": {"agent_id": "x", "query": "y"}}
        if number % 10 == 7
        else {"action": "send", "from": "a", "to": "b", "payload": number, "id": number}
        for number in range(CALLS)
    ]
    with shared.line() as caller:
        caller.say(*request)
        results = [caller.hear()["id"] for _ in request]

    assert list(range(CALLS)) == results


def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(shared: Daemon) -> None:
    with shared.line() as caller:
        caller.say(b'{"action":"send","payload":"' + b"x" * 3_000_000 + b'"}\n', {"action": "ping"})
        refused, ping = caller.hear(), caller.hear()

    assert (False, "TooLarge", True) == (refused["ok"], refused["name"], ping["ok"])


@pytest.mark.parametrize(
    "junk",
    [bytes(range(128, 256)), b"\0\0\0", b"{}", b"[" * 100_000, b'{"action":"send","action":"ping"}', b"NaN"],
)
def test_junk_is_answered_and_harms_nobody(shared: Daemon, junk: bytes) -> None:
    with shared.line() as caller:
        caller.say(junk + b"\n", {"action": "ping"})
        assert False is caller.hear()["ok"]
        assert caller.hear()["ok"]


def test_one_who_never_reads_is_not_read_from_and_others_are_served(shared: Daemon) -> None:
    big = {"action": "send", "from": "a", "to": "big", "payload": "x" * 500_000}
    assert shared.ask(**big)["ok"]
    with shared.line() as deaf:
        deaf.socket.setblocking(False)
        line = json.dumps({"action": "check_inbox", "agentId": "big"}).encode() + b"\n"
        message = 0
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                message += deaf.socket.send(line * 100)
            except BlockingIOError:
                time.sleep(0.05)
        assert message < 2_000_000
        began = time.monotonic()
        assert shared.ask(action="ping")["ok"]
        assert time.monotonic() - began < 2
    assert _memory(shared) < 300 * 2**20


def _memory(daemon: Daemon) -> int:
    pages = int(Path(f"/proc/{daemon.process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_batch_is_answered_as_a_batch(shared: Daemon) -> None:
    with shared.line() as caller:
        caller.say(
            [
                {"jsonrpc": "2.0", "id": 1, "method": "mail/counts", "params": {"agentId": "x"}},
                {"jsonrpc": "2.0", "method": "mail/send", "params": {"agentId": "x", "to": "noted", "body": "n"}},
                {"jsonrpc": "2.0", "id": 2, "method": "nope"},
                7,
            ],
            {"jsonrpc": "2.0", "method": "mail/send", "params": {"agentId": "x", "to": "noted", "body": "n"}},
            {"jsonrpc": "1.0", "id": 3, "method": "mail/counts"},
            {"jsonrpc": "2.0", "id": 4, "method": "mail/counts", "params": [1]},
        )
        batch, version, positional = caller.hear(), caller.hear(), caller.hear()

    assert [1, 2, None] == [reply["id"] for reply in batch]
    assert [-32601, -32600] == [reply["error"]["code"] for reply in batch[1:]]
    assert [(3, -32600), (4, -32602)] == [(r["id"], r["error"]["code"]) for r in (version, positional)]
    assert 2 == shared.client.ask("counts", {"agent_id": "noted"})["total"]


def test_params_of_null_say_nothing(shared: Daemon) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "mail/list", "params": None}
    assert "conversations" in shared.ask(**call)["result"]


def test_a_waiter_is_woken_by_a_letter_from_another_process(shared: Daemon) -> None:
    with shared.line() as caller:
        caller.say({"action": "wait", "agentId": "sleeper", "timeout": 20})
        time.sleep(0.1)
        shared.ask(action="send", **{"from": "a", "to": "sleeper", "payload": "wake"})
        assert "wake" == caller.hear()["letter"]["text"]


def test_waiting_with_a_cursor_misses_nothing(shared: Daemon) -> None:
    cursor = shared.ask(action="cursor")["cursor"]
    sent = [shared.ask(action="send", **{"from": "a", "to": "c", "payload": n})["messageId"] for n in range(3)]
    received = []
    for _ in sent:
        result = shared.client.ask("wait", {"agent_id": "c", "since": cursor, "peek": True, "timeout": 5})
        received.append(result["letter"]["id"])
        cursor = result["cursor"]

    assert sent == received


# -- stopping and starting


def test_it_stops_at_once_with_callers_connected(daemon: Daemon) -> None:
    with daemon.line() as idle, daemon.line() as waiting:
        idle.ask({"action": "ping"})
        waiting.say({"action": "wait", "agentId": "x", "timeout": 60})
        time.sleep(0.1)
        began = time.monotonic()
        assert 0 == daemon.stop()
        assert time.monotonic() - began < 2

    assert not daemon.socket.exists()


def test_a_second_daemon_on_the_same_socket_or_room_is_refused_by_name_of_the_first(
    daemon: Daemon, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(AssertionError, match=f"process {daemon.process.pid} serves"):
        Daemon(other, "--http", "off", "--socket", str(daemon.socket))
    with pytest.raises(AssertionError, match=f"served already, by process {daemon.process.pid}"):
        Daemon(other, "--http", "off", "--room", str(daemon.room))

    assert daemon.ask(action="ping")["ok"]


def test_one_that_begins_to_serve_is_named_in_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "room.db.serving").write_text("process 1 at s", encoding="utf-8")
    first = lock_room(str(tmp_path / "room.db"))
    with pytest.raises(NameTaken, match=f"by process {os.getpid()} "):
        lock_room(str(tmp_path / "room.db"))
    first.leave()
    lock_room(str(tmp_path / "room.db")).leave()


def test_what_a_killed_daemon_left_behind_is_cleared(daemon: Daemon, tmp_path: Path) -> None:
    daemon.ask(action="send", **{"from": "a", "to": "b", "payload": "x"})
    daemon.stop(signal.SIGKILL)
    assert daemon.socket.exists()
    with Daemon(tmp_path) as again:
        assert 1 == len(again.ask(action="check_inbox", agentId="b")["messages"])


def test_a_socket_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(tmp_path / "s"))
        theirs.listen()
        with pytest.raises(AssertionError, match="another program serves"):
            Daemon(tmp_path)
    assert (tmp_path / "s").exists()


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine", encoding="utf-8")
    with pytest.raises(AssertionError, match="is not a socket"):
        Daemon(tmp_path)
    assert "mine" == (tmp_path / "s").read_text(encoding="utf-8")


def test_one_daemon_may_listen_at_several_sockets(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, "--http", "off", "--socket", str(tmp_path / "t")) as daemon,
        Line(tmp_path / "t") as other,
    ):
        assert daemon.ask(action="ping") == other.ask({"action": "ping"})


def test_nobody_there_is_reported_by_the_client(tmp_path: Path) -> None:
    client = SocketClient(str(tmp_path / "s"), patience=0)
    with pytest.raises(PostroomError, match="no post room answers"):
        client.ask("counts", {"agent_id": "x"})


def test_a_room_behind_a_link_is_the_same_room(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(daemon.room)
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError, match="served already"):
        Daemon(tmp_path / "other", "--http", "off", "--room", str(tmp_path / "link.db"))


def test_a_burst_of_callers_finds_room_at_the_door(daemon: Daemon) -> None:
    """While nobody opens: the daemon stands still, and the kernel keeps those who knock."""
    daemon.process.send_signal(signal.SIGSTOP)
    with ExitStack() as knocking:
        for _ in range(300):
            caller = knocking.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            caller.connect(str(daemon.socket))  # BlockingIOError: the door is too narrow
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.ask(action="ping")["ok"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_replies_to_requests_sent_together_are_written_together(tmp_path: Path) -> None:
    trace, pings = tmp_path / "trace", 8
    with Daemon(tmp_path) as daemon, daemon.line() as line:
        words = ["strace", "-f", "-qq", "-e", "trace=sendto", "-o", str(trace), "-p", str(daemon.process.pid)]
        with subprocess.Popen(words) as watching:
            while f"TracerPid:\t{watching.pid}" not in Path(f"/proc/{daemon.process.pid}/status").read_text():
                time.sleep(0.01)
            line.say(*[{"action": "ping"}] * pings)
            assert all(line.hear()["ok"] for _ in range(pings))
            watching.send_signal(signal.SIGINT)

    assert trace.read_text().count("sendto(") <= pings // 2  # one, unless the machine is busy
