"""Programs written for agent-inbox, unchanged, against our socket and our files.

What its own side gets wrong here, whoever serves it:

- the proxy's check_inbox asks for everything, has everything marked as read, and only then cuts to its limit;
- the proxy registers nobody, and never says that an application error is one (isError);
- the prompt hook reads its file and empties it afterwards, knows no collision of names, and prints bodies bare;
- both hooks look below ~/.cache by default, while its daemon works below ~/.claude.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from tests.daemons import Daemon, until
from tests.interop.packages import McpProxy, require_package, run_hook

pytestmark = [pytest.mark.interop, pytest.mark.daemon]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    require_package()
    home = tmp_path_factory.mktemp("interop")
    with Daemon(home, "--http", "off", "--inboxes", str(home / "inboxes")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def proxy(daemon: Daemon) -> Iterator[McpProxy]:
    with McpProxy(daemon.folder, daemon.socket, INBOX_AGENT_ID="ann") as proxy:
        yield proxy


def wait_for(path: Path, count: int) -> None:
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def test_its_mcp_proxy_has_its_four_tools(proxy: McpProxy) -> None:
    assert "agent-inbox" == proxy.server["serverInfo"]["name"]
    names = {tool["name"] for tool in proxy.ask("tools/list")["tools"]}
    assert {"send_message", "check_inbox", "read_thread", "list_agents"} == names


def test_its_mcp_proxy_sends_and_reads_by_our_socket(proxy: McpProxy) -> None:
    sent = proxy.call(
        "send_message", to=["bob", "carol"], body="Grüße 📬", threadTag="t1", importance="high", subject="S"
    )
    assert {"ok", "messageId"} == set(sent) and sent["ok"]
    got = proxy.call("check_inbox", agentId="bob")
    (letter,) = got["messages"]
    assert 1 == got["count"] and re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", letter.pop("createdAt"))
    content = {"type": "text", "text": "Grüße 📬"}
    result = {"id": sent["messageId"], "from": "ann", "subject": "S", "content": content, "threadTag": "t1"}
    assert result | {"importance": "high"} == letter
    assert 0 == proxy.call("check_inbox", agentId="bob")["count"]
    assert 1 == proxy.call("check_inbox", agentId="bob", unreadOnly=False)["count"]

    answer = proxy.call(
        "send_message", **{"from": "bob"}, to="ann", content={"type": "x", "n": 1}, inReplyTo=sent["messageId"]
    )
    (letter,) = proxy.call("check_inbox", agentId="ann")["messages"]
    assert ({"type": "x", "n": 1}, sent["messageId"]) == (letter["content"], letter["inReplyTo"])
    thread = proxy.call("read_thread", threadTag="t1")
    assert ("t1", 2) == (thread["threadTag"], thread["count"])
    assert [sent["messageId"], answer["messageId"]] == [one["id"] for one in thread["messages"]]


def test_its_mcp_proxy_lists_who_is_here(daemon: Daemon, proxy: McpProxy) -> None:
    daemon.ask(action="notify", event={"type": "agent.spawn", "agent": {"agentId": "dora", "name": "D"}})
    agents = proxy.call("list_agents")
    (dora,) = [agent for agent in agents["agents"] if agent["agentId"] == "dora"]
    assert {"name": "D", "scope": "default", "status": "active", "location": "local"}.items() <= dora.items()
    assert agents["count"] == len(agents["agents"])


def test_what_we_refuse_its_mcp_proxy_tells(proxy: McpProxy) -> None:
    refused = proxy.call("send_message", to="../bob", body="x")
    assert refused["ok"] is False and "to" in refused["error"]
    unknown = proxy.call("send_message", to="bob", body="x", inReplyTo="no-such-letter")
    assert unknown["ok"] is False


def test_its_proxy_survives_a_restart_of_ours(tmp_path: Path) -> None:
    require_package()
    with Daemon(tmp_path) as first, McpProxy(tmp_path, first.socket, INBOX_AGENT_ID="ann") as proxy:
        assert proxy.call("send_message", to="bob", body="1")["ok"]
        assert 0 == first.stop()
        with Daemon(tmp_path):
            assert proxy.call("send_message", to="bob", body="2")["ok"]
            assert ["1", "2"] == [
                m["content"]["text"] for m in proxy.call("check_inbox", agentId="bob")["messages"]
            ]


def test_a_swarms_scope_goes_through_its_proxy(tmp_path: Path) -> None:
    """As claude-code-swarm starts it: the scope is said to the daemon and to the proxy."""
    require_package()
    team = "swarm:gsd"
    with (
        Daemon(tmp_path, INBOX_SCOPE=team) as daemon,
        McpProxy(tmp_path, daemon.socket, INBOX_SCOPE=team, INBOX_AGENT_ID="gsd-main") as ann,
    ):
        agent = {"agentId": "gsd-executor", "scopes": [team]}
        assert daemon.ask(action="notify", event={"type": "agent.spawn", "agent": agent})["ok"]
        assert ["gsd-executor"] == [one["agentId"] for one in ann.call("list_agents", scope=team)["agents"]]
        sent = ann.call("send_message", to="gsd-executor", body="?", threadTag="t", subject="S", importance="high")
        ann.call("send_message", **{"from": "gsd-executor"}, to="gsd-main", body="!", inReplyTo=sent["messageId"])
        assert 2 == ann.call("read_thread", threadTag="t")["count"]
        (answer,) = ann.call("check_inbox", agentId="gsd-main")["messages"]
        assert ("Re: S", "high", "t") == (answer["subject"], answer["importance"], answer["threadTag"])
        # The line of its prompt hook. Unless its settings name a scope, it says `default`, not that of the team.
        ann.call("send_message", **{"from": "gsd-executor"}, to="gsd-main", body="new")
        hook = {"agentId": "gsd-main", "scope": "default", "unreadOnly": True, "clear": True}
        (shown,) = daemon.ask(action="check_inbox", **hook)["messages"]
        assert ({"type": "text", "text": "new"}, team) == (shown["content"], shown["scope"])
        assert [] == daemon.ask(action="check_inbox", **hook)["messages"]


def test_its_session_hook_registers(daemon: Daemon) -> None:
    variables = {"INBOX_AGENT_ID": "eve", "INBOX_AGENT_NAME": "Eve E.", "INBOX_SOCKET": str(daemon.socket)}
    assert "" == run_hook("register-hook.mjs", daemon.folder, **variables)
    (eve,) = [agent for agent in daemon.ask(action="list_agents")["agents"] if agent["agentId"] == "eve"]
    assert ("Eve E.", "claude-code") == (eve["name"], eve["program"])


def test_its_prompt_hook_shows_the_mail_in_our_files(daemon: Daemon) -> None:
    inboxes = daemon.folder / "inboxes"
    with postroom.open(daemon.room) as room:  # by another process than the daemon
        room.mailbox("ann").send("team/frank", "Hi.", subject="S", thread_tag="t", priority="urgent", bcc=["spy"])
        room.mailbox("ann").send("team/frank", [{"type": "data", "data": {"n": 1}}])
    file = inboxes / "team_frank.inbox.jsonl"
    wait_for(file, 2)
    time.sleep(0.4)  # what comes within a moment of an emptying is told again, and that is not the point here
    shown = run_hook("inbox-hook.mjs", daemon.folder, INBOX_AGENT_ID="team/frank", INBOX_DIR=str(inboxes))
    assert shown.startswith("## [Inbox] 2 new message(s)\n")
    assert re.search(r"^\*\*From ann\*\* \(.* ago\) \[urgent\] — S \(thread: t\)\n> Hi\.$", shown, re.MULTILINE)
    assert '> `{"type":"data","data":{"n":1}}`' in shown and "spy" not in shown
    assert b"" == file.read_bytes()
    assert "" == run_hook("inbox-hook.mjs", daemon.folder, INBOX_AGENT_ID="team/frank", INBOX_DIR=str(inboxes))


def test_its_prompt_hook_loses_no_line_of_ours(daemon: Daemon) -> None:
    """It empties its file as it does, in the middle of our writing; each letter is shown at least once."""
    many = 60
    inboxes = daemon.folder / "inboxes"
    shown = ""
    with daemon.line() as line:
        for n in range(many):
            line.ask({"action": "send", "from": "ann", "to": "gina", "payload": f"<{n}>"})
            if n % 12 == 5:
                shown += run_hook("inbox-hook.mjs", daemon.folder, INBOX_AGENT_ID="gina", INBOX_DIR=str(inboxes))

    def all_is_shown() -> bool:
        nonlocal shown
        shown += run_hook("inbox-hook.mjs", daemon.folder, INBOX_AGENT_ID="gina", INBOX_DIR=str(inboxes))
        return {f"<{n}>" for n in range(many)} <= set(re.findall(r"<\d+>", shown))

    until(all_is_shown, show=lambda: shown)


def test_its_hook_reads_what_ours_reads(daemon: Daemon) -> None:
    """One line of a file has all that both need."""
    daemon.ask(action="send", **{"from": "ann", "to": "hal", "payload": "x"})
    file = daemon.folder / "inboxes" / "hal.inbox.jsonl"
    wait_for(file, 1)
    (entry,) = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert {"messageId", "from", "to", "content", "importance", "timestamp"} <= set(entry)
