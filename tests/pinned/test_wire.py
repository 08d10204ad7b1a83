"""The wire: what a caller of the daemon sends, and the shape of every reply and notification.

Replies are pinned as keys and types, errors with their exact code and name, HTTP with its exact status.
"""

# ruff: noqa: E501 - lines as they are sent

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest

from tests.daemons import Daemon, Line
from tests.pinned.pins import check_pin, shape

# One line each: the action and its fields. `name =` keeps the texts of the reply for later lines, as `$name_field`.
ACTIONS = r"""
    ping {}
    register_agent {"agent_id": "ann", "name": "Ann", "program": "test", "scope": "team", "metadata": {"a": 1}}
    register_agent {"agent_id": "bob", "scopes": ["team"]}
    list_agents {}
    list_agents {"scope": "team", "include_federated": true}
    sent = send {"from": "ann", "to": "bob", "payload": "hello", "thread_tag": "tt", "subject": "Greeting", "importance": "high", "meta": {"a": 1}, "id": 7}
    send {"from": "ann", "to": [{"agent_id": "bob", "kind": "to"}, {"agent_id": "cy", "kind": "cc"}], "payload": {"type": "data", "data": {"n": 1}}}
    send {"from": "bob", "to": "ann", "payload": "answer", "in_reply_to": "$sent_messageId"}
    check_inbox {"agent_id": "bob"}
    check_inbox {"agent_id": "bob", "clear": true, "unread_only": true, "limit": 1}
    read_thread {"thread_tag": "tt", "agent_id": "bob"}
    notify {"event": {"type": "agent.spawn", "agent": {"agentId": "eve", "name": "Eve", "scopes": ["team"]}}}
    notify {"event": {"type": "agent.done", "agentId": "eve"}}
    emit {"event": {"type": "task.dispatched", "n": 1}, "agent_id": "ann", "scope": "team"}
    links {}
    counts {"agent_id": "bob"}
    authenticate {"token": "pr_nonsense"}
    nonsense {}
    send {"from": "ann"}
    send {"from": "no one", "to": "bob", "payload": "x"}
    send {"from": "ann", "to": "Bob", "payload": "x"}
    ping_peer {"system": "far"}
"""

CALLS = r"""
    mail/send {"agentId": "ann", "to": "bob", "body": "hello", "subject": "Greeting", "key": "k-1", "letter_id": "m-1", "conversation_id": "c-0", "thread_tag": "tt"}
    mail/send {"agentId": "ann", "to": "bob", "body": "hello", "subject": "Greeting", "key": "k-1", "letter_id": "m-1", "conversation_id": "c-0", "thread_tag": "tt"}
    mail/send_many {"agentId": "ann", "drafts": [{"to": "bob", "body": "one"}, {"to": "bob", "body": "two"}]}
    mail/reply {"agentId": "bob", "message_id": "m-1", "body": "answer", "letter_id": "m-2"}
    mail/forward {"agentId": "bob", "message_id": "m-1", "to": ["dora"], "letter_id": "m-3"}
    mail/register {"agentId": "bob", "scopes": ["team"]}
    mail/broadcast {"agentId": "ann", "scope": "team", "body": "all"}
    mail/broadcast {"agentId": "ann", "scope": "empty", "body": "all"}
    mail/handoff {"agentId": "ann", "to": ["bob"], "handoff": {"work_completed": "half"}}
    mail/save_template {"name": "review", "body": "Look at {file}.", "priority": "high"}
    mail/templates {}
    mail/template {"name": "review"}
    mail/send_template {"agentId": "ann", "name": "review", "to": "bob", "values": {"file": "sort.py"}}
    mail/delete_template {"name": "review"}
    mail/send {"agentId": "ann", "to": "bob", "body": "later", "at": 3600, "letter_id": "m-4"}
    mail/unsend {"agentId": "ann", "message_id": "m-4"}
    mail/sent {"agentId": "ann", "limit": 1}
    mail/check {"agentId": "bob", "peek": true, "limit": 1}
    mail/inbox {"agentId": "bob", "limit": 1}
    mail/read {"agentId": "bob", "message_id": "m-1"}
    mail/shown {"agentId": "bob", "message_ids": ["m-1"], "host": "claude", "where": "prompt"}
    mail/counts {"agentId": "bob"}
    mail/wait {"agentId": "dora", "timeout": 5}
    mail/wait {"agentId": "nobody", "timeout": 0}
    mail/search {"agentId": "bob", "query": "hello"}
    mail/digest {"agentId": "bob"}
    mail/thread {"agentId": "bob", "thread": "m-1"}
    mail/tagged {"agentId": "bob", "tag": "tt"}
    mail/threads {"agentId": "bob", "limit": 1}
    mail/stats {"agentId": "bob"}
    mail/trace {"agentId": "ann", "message_id": "m-1"}
    claimed = mail/claim {"agentId": "bob", "count": 2, "lease": 60}
    mail/renew {"agentId": "bob", "message_ids": ["$claimed_id"], "token": "$claimed_token", "lease": 90}
    mail/fail {"agentId": "bob", "message_ids": ["$claimed_id"], "token": "$claimed_token", "reason": "not now"}
    claimed = mail/claim {"agentId": "bob"}
    mail/release {"agentId": "bob", "message_ids": ["$claimed_id"], "token": "$claimed_token"}
    claimed = mail/claim {"agentId": "bob"}
    mail/ack {"agentId": "bob", "message_ids": ["$claimed_id"], "token": "$claimed_token", "reply": "done"}
    mail/reject {"agentId": "dora", "message_ids": ["m-3"], "reason": "no"}
    mail/dead {"agentId": "dora"}
    mail/revive {"agentId": "dora", "message_ids": ["m-3"]}
    mail/reject {"agentId": "dora", "message_ids": ["m-3"], "reason": "no"}
    mail/purge_dead {"agentId": "dora", "message_ids": ["m-3"]}
    mail/give_task {"agentId": "ann", "to": "bob", "body": "sort it", "letter_id": "t-1"}
    mail/task_step {"agentId": "bob", "message_id": "t-1", "step": "accept"}
    mail/task {"agentId": "ann", "message_id": "t-1"}
    mail/tasks {"agentId": "bob"}
    mail/task_step {"agentId": "bob", "message_id": "t-1", "step": "start"}
    mail/task_step {"agentId": "bob", "message_id": "t-1", "step": "complete", "body": "sorted"}
    mail/escalate {"agentId": "bob", "reason": "blocked", "body": "No access", "ladder": ["ann", "human"]}
    asked = mail/escalations {"agentId": "bob"}
    mail/resolve {"agentId": "bob", "escalation_id": "$asked_id"}
    mail/ring {"agentId": "bob", "way": "claude"}
    mail/ring_failed {"agentId": "bob", "way": "claude", "message_ids": ["m-1"], "why": "broken"}
    mail/register {"agentId": "dora", "display_name": "Dora", "scopes": ["team"], "capabilities": ["python"]}
    mail/heartbeat {"agentId": "dora"}
    mail/agents {}
    mail/agent {"name": "dora"}
    mail/goodbye {"agentId": "dora"}
    mail/block {"agentId": "bob", "name": "cy"}
    mail/blocked {"agentId": "bob"}
    mail/unblock {"agentId": "bob", "name": "cy"}
    mail/room_stats {}
    mail/sweep {}
    now = mail/cursor {}
    mail/changes {"since": "$now_cursor"}
    made = mail/create {"agentId": "ann", "conversationId": "c-1", "subject": "Sorting", "initialParticipants": [{"id": "bob", "role": "reader"}], "initialTurn": {"contentType": "text", "content": "hello"}}
    mail/create {"agentId": "ann", "id": "c-1"}
    mail/get {"conversationId": "c-1", "agentId": "ann", "include": {"participants": true, "threads": true, "recentTurns": 2, "stats": true}}
    mail/list {"agentId": "ann"}
    mail/join {"conversationId": "c-1", "agentId": "cy", "role": "guest", "catchUp": {"limit": 5}}
    mail/invite {"conversationId": "c-1", "agentId": "ann", "participant": {"id": "dora"}}
    turn = mail/turn {"conversationId": "c-1", "agentId": "bob", "contentType": "text", "content": "quick sort", "key": "t-1"}
    mail/turns/list {"conversationId": "c-1", "agentId": "ann", "limit": 1}
    mail/thread/create {"conversationId": "c-1", "agentId": "ann", "rootTurnId": "$turn_id", "subject": "Aside"}
    mail/thread/list {"conversationId": "c-1", "agentId": "ann"}
    mail/summary {"conversationId": "c-1", "agentId": "ann"}
    mail/replay {"conversationId": "c-1", "agentId": "ann"}
    mail/presence {"conversationId": "c-1", "agentId": "ann"}
    mail/recent {"limit": 1}
    mail/leave {"conversationId": "c-1", "agentId": "cy"}
    mail/close {"conversationId": "c-1", "agentId": "ann"}
    mail/reopen {"conversationId": "c-1", "agentId": "ann"}
    mail/nonsense {}
    mail/send {"agentId": "ann"}
    mail/send {"agentId": "ann", "to": "bob", "body": 5, "nonsense": 1}
    mail/read {"agentId": "bob", "message_id": "m-99"}
    mail/ack {"agentId": "bob", "message_ids": ["m-1"], "token": "wrong"}
    mail/send {"agentId": "ann", "to": "bob", "body": "other", "key": "k-1"}
    mail/changes {"since": "0:0:1"}
    mail/turns/list {"conversationId": "c-99", "agentId": "ann"}
    mail/get {"conversationId": "c-99", "agentId": "ann"}
    mail/close {"conversationId": "c-1", "agentId": "stranger"}
    mail/task_step {"agentId": "bob", "message_id": "t-1", "step": "start"}
    map/nonsense {}
"""

MAP_CALLS = r"""
    map/connect {"protocolVersion": 1, "participantType": "agent", "name": "Ann", "capabilities": {"delivery": {"acks": true}}}
    map/agents/register {"agentId": "ann", "name": "Ann", "role": "asker", "scopes": ["team"], "metadata": {"a": 1}}
    map/agents/register {"agentId": "bob", "role": "sorter"}
    map/agents/spawn {"parent": "ann", "agentId": "kid", "name": "Kid"}
    map/agents/update {"agentId": "ann", "state": "busy", "metadata": {"b": 2}}
    map/agents/list {}
    map/agents/get {"agentId": "ann"}
    map/structure/graph {}
    subscribed = map/subscribe {"filter": {}}
    map/scopes/create {"agentId": "ann", "scopeId": "hall", "name": "Hall"}
    map/scopes/list {}
    map/scopes/get {"scopeId": "hall"}
    map/scopes/join {"scopeId": "hall", "agentId": "bob"}
    map/scopes/members {"scopeId": "hall"}
    map/send {"from": "ann", "to": {"agent": "bob"}, "payload": {"n": 1}, "meta": {"priority": "high", "correlationId": "x"}}
    map/send {"from": "ann", "to": {"scope": "hall"}, "payload": "all"}
    map/replay {"limit": 2}
    map/scopes/leave {"scopeId": "hall", "agentId": "bob"}
    map/scopes/delete {"scopeId": "hall"}
    map/agents/suspend {"agentId": "bob"}
    map/agents/resume {"agentId": "bob"}
    map/agents/stop {"agentId": "kid"}
    map/agents/unregister {"agentId": "bob"}
    map/unsubscribe {"subscriptionId": "$subscribed_subscriptionId"}
    map/agents/get {"agentId": "nobody"}
    map/scopes/get {"scopeId": "nowhere"}
    map/send {"from": "ann", "to": {"nonsense": 1}, "payload": 1}
    map/nonsense {}
    map/disconnect {}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("wire")) as daemon:
        yield daemon


def lines(script: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name to keep, the method and the parameters of each line."""
    for line in script.strip().splitlines():
        name, method, params = re.match(r"\s*(?:(\w+) = )?(\S+) (.*)", line).groups()  # type: ignore[union-attr]
        yield name or "", method, params


def texts(name: str, reply: dict[str, Any]) -> dict[str, str]:
    first = next((reply[key][0] for key in ("letters", "escalations") if reply.get(key)), reply)
    return {f"{name}_{key}": value for key, value in first.items() if isinstance(value, str)}


def reply_shape(reply: dict[str, Any]) -> Any:
    """Show the shape of a reply; of an error, what a program decides by."""
    found = shape(reply)
    if reply.get("ok") is False:
        found |= {key: reply[key] for key in ("name", "code", "retryable", "field") if key in reply}
    if "error" in reply and isinstance(reply["error"], dict):
        found["error"]["code"] = reply["error"]["code"]
        data = reply["error"].get("data") or {}
        kept = ("name", "code", "field", "category", "retryable", "temporary")
        found["error"] |= {"data": shape(data) | {key: data[key] for key in kept if key in data}}
    return found


def converse(
    line: Line, script: str, call: Any, kept: dict[str, str] | None = None
) -> tuple[list[Any], list[Any]]:
    """Send each line of the script; return what was answered and what came unasked."""
    kept = {} if kept is None else kept
    found, notices = [], []
    for number, (name, method, params) in enumerate(lines(script)):
        line.say(call(number, method, json.loads(Template(params).safe_substitute(kept))))
        while "method" in (reply := line.hear()):
            notices.append(reply)
        if name:
            kept |= texts(name, reply.get("result", reply))
        found.append({"call": f"{method} {params}", "reply": reply_shape(reply)})
    return found, notices


def as_action(_: int, name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"action": name, **params}


def as_call(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def events_of(notices: list[Any]) -> Any:
    """Show the notifications by their type: how many come together depends on the moment."""
    return {
        f"{notice['method']} {notice['params'].get('event', {}).get('type', '')}": shape(notice)
        for notice in notices
    }


def test_the_actions_of_agent_inbox_are_answered_as_they_were(daemon: Daemon) -> None:
    with daemon.line() as line:
        found, _ = converse(line, ACTIONS, as_action)
    check_pin("wire-actions", found)


def test_calls_are_answered_as_they_were(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.line() as line:
        found, _ = converse(line, CALLS, as_call)
    check_pin("wire-calls", found)


def test_map_is_answered_as_it_was(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.line() as line:
        kept: dict[str, str] = {}
        before, unsubscribe, after = MAP_CALLS.partition("map/unsubscribe")
        found, notices = converse(line, before, as_call, kept)
        while notices[-1]["params"]["event"]["type"] != "agent.unregistered":  # it may come behind the reply
            notices.append(line.hear())
        more, _ = converse(line, unsubscribe + after, as_call, kept)
        found += more
    check_pin("wire-map", {"replies": found, "notices": events_of(notices)})


def test_broken_lines_are_answered_as_they_were(daemon: Daemon) -> None:
    broken = [b"nonsense\n", b"5\n", b"[]\n", b"{}\n", b'{"jsonrpc": "1.0", "id": 1, "method": "x"}\n']
    batch = (
        b'[{"jsonrpc": "2.0", "id": 1, "method": "mail/cursor"}, {"jsonrpc": "2.0", "method": "mail/cursor"}]\n'
    )
    found = []
    for message in (*broken, batch):
        with daemon.line() as line:
            line.say(message)
            reply = line.hear()
            answer = [reply_shape(one) for one in reply] if isinstance(reply, list) else reply_shape(reply)
            found.append({"line": message.decode(), "reply": answer})
    check_pin("wire-broken", found)


def test_events_are_reported_as_they_were(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.line() as subscriber, daemon.line() as line:
        subscribed = subscriber.ask(as_call(1, "map/subscribe", {"filter": {}}))
        converse(line, ACTIONS, as_action)
        converse(line, CALLS, as_call)
        line.ask({"action": "emit", "event": {"type": "last"}, "agent_id": "ann"})
        notices: list[Any] = []
        while not notices or notices[-1]["params"]["event"]["type"] != "last":
            notices.append(subscriber.hear())
    check_pin("wire-events", {"subscribed": shape(subscribed), "events": events_of(notices)})


def test_methods_take_the_parameters_they_took() -> None:
    """The pages are written from the tables of the wire, and another test compares them; so they are read here."""
    docs = Path(__file__).parent.parent.parent / "docs"
    found: dict[str, list[str]] = {}
    for page in ("service.md", "federation-wire.md"):
        chapter = ""
        methods: list[str] = []
        for line in (docs / page).read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                chapter, methods = line.removeprefix("## "), []
            elif method := re.fullmatch(r"### `(.+)`", line):
                methods = found.setdefault(f"{page} {chapter}: {method[1]}", [])
            elif parameter := re.match(r"\| `(\w+)` \| ([^|]+) \|", line):
                methods.append(f"{parameter[1]}: {parameter[2]}")
    check_pin("wire-methods", found)
