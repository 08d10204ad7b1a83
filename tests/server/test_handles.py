"""A daemon whose handles for open files are all taken."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons import Daemon, Line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there others may set its limit")
FEW = 20


@pytest.fixture
def old(daemon: Daemon) -> Iterator[Line]:
    """A caller that was there before all others; then come those, until one is turned away."""
    pid = daemon.process.pid
    with daemon.line() as line, ExitStack() as crowd:
        assert line.ask({"action": "ping"})["ok"]
        most = max(int(handle.name) for handle in Path(f"/proc/{pid}/fd").iterdir()) + FEW
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        for _ in range(3 * FEW):
            newcomer = crowd.enter_context(daemon.line())
            try:
                if newcomer.ask({"action": "ping"}) is None:
                    break
            except ConnectionError:
                break
        else:
            pytest.fail("there was room for all of them")
        yield line


@pytest.mark.parametrize(
    ("method", "params"),
    [("mail/search", {"query": "x"}), ("mail/wait", {"timeout": 1}), ("mail/send", {"to": "b"})],
)
def test_who_is_there_is_served_or_may_try_again(old: Line, method: str, params: dict[str, object]) -> None:
    value = {"agentId": "ann", "body": "x"} if method == "mail/send" else {"agentId": "ann"}
    result = old.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": value | params})
    if "error" in result:
        data = result["error"]["data"]
        assert ("StoreFailing", True) == (data["name"], data["retryable"]), result
        assert "open files" in data["hint"]


def test_a_full_server_is_logged_once(daemon: Daemon, old: Line, tmp_path: Path) -> None:
    for _ in range(5):
        with daemon.line() as late:
            try:
                assert late.ask({"action": "ping"}) is None
            except ConnectionError:
                continue
    assert old.ask({"action": "ping"})["ok"]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    (result,) = [line for line in lines if line["level"] != "info"]
    assert "warning" == result["level"] and "handles" in result["message"]
