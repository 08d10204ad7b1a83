"""Values that may not enter, field by field and verb by verb."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from postroom import Handoff, Mailbox, draft
from postroom.model.message import TaskNote

HUGE = 10**5000  # a number that Python refuses to write out
NAMES: list[Any] = [
    "../x", "", "a" * 129, "x" * 300, "a/b/c", "/a", "a/", "-a", ".a", "a b", "a\n", "a\0", "\x1b[31m",
    "c\u043eder", "coder\u200b", "\uff43oder", "\ud800", "postmaster", "Postmaster",
    5, None, b"coder", 1.5, True, {}, HUGE,
]  # fmt: skip
LINES: list[Any] = [
    "x" * 1001,
    "two\nlines",
    "\x07",
    "\x85",
    "\u2028",
    "nul\0",
    "\ud800",
    5,
    0,
    False,
    [],
    b"x",
    HUGE,
]
LABELS: list[Any] = [*LINES, "", " x", "x ", "\t"]
OBJECTS: list[Any] = [
    5, "text", [], {5: 1}, {None: 1}, {b"k": 1}, {"k": float("nan")}, {"k": float("inf")}, {"k": 2**63},
    {"k": -(2**63) - 1}, {"k": HUGE}, {"k": "\ud800"}, {"\ud800": 1}, {"k": "\0"}, {"k": b"x"}, {"k": {1, 2}},
    {"k": object()}, {"k": datetime(2030, 1, 1)},  # noqa: DTZ001
]  # fmt: skip
IDS: list[Any] = ["", "../x", "a b", "x" * 201, "ä", "a/b", 5, b"x", "\ud800", "a\n", HUGE]
TIMES: list[Any] = [
    "tomorrow", True, [], float("nan"), float("inf"), 1e300, HUGE, timedelta.max, datetime(2030, 1, 1),  # noqa: DTZ001
]  # fmt: skip
SENT: dict[str, list[Any]] = {
    "to": [*NAMES, [], ["bob", "../x"], ["bob", 5], {"bob": 1}, "broadcast:", "broadcast:a//b", "broadcast:../x",
           "broadcast:a:"],
    "cc": [*(v for v in NAMES if v is not None), ["bob", None]],
    "bcc": [*(v for v in NAMES if v is not None), "broadcast:team"],
    "subject": LINES,
    "kind": ["", "two words", "9lives", "x" * 65, "k\n", "ключ", 5, b"task"],
    "priority": ["highest", "", 0, 5, -1, True, 2.5, [], {}, b"high", HUGE],
    "scope": ["", "../x", "a/../b", "a//b", "a:", ":a", "a b", "x" * 129, 5, b"x", "\ud800"],
    "expires": TIMES,
    "at": TIMES,
    "thread_tag": LABELS,
    "conversation_id": IDS,
    "in_reply_to": [*IDS, "nobody-has-it"],
    "callback": OBJECTS,
    "context": OBJECTS,
    "metadata": OBJECTS,
    "extra": OBJECTS,
    "attachments": [5, 0, {}, ["\0"], [5], ["x" * 4097], ["x"] * 257, "\ud800"],
    "tags": [5, 0, {}, ["two\nlines"], [""], [" x"], ["x" * 129], [5], ["t"] * 257],
    "key": ["", " k", "k\n", "x" * 201, 5, b"k", HUGE],
    "id": IDS,
    "data": [float("nan"), 2**64, b"x", {1: 1}, object(), "\ud800"],
}  # fmt: skip
TASKS: list[Any] = [
    5, "t", {}, {"id": ""}, {"id": 5}, {"id": "t", "state": "lost"}, {"id": "t", "reason": 5},
    {"id": "t", "deadline": "2030-01-01T00:00:00"}, {"id": "t", "deadline": "soon"},
    {"id": "t", "deadline": "9999-12-31T23:59:59-12:00"}, TaskNote(id="../x"), TaskNote(id="t", state="lost"),
    TaskNote(id=object()), TaskNote(id="t", deadline=datetime(2030, 1, 1)),  # type: ignore[arg-type]  # noqa: DTZ001
]  # fmt: skip
CARD: dict[str, list[Any]] = {
    "display_name": [*LINES],
    "description": [5, "\ud800", "x" * 10_001],
    "program": ["two\nlines", 5],
    "model": ["two\nlines", 5],
    "capabilities": [5, "python", [5], [""], ["x\n"], {"python": 1}],
    "scopes": [5, "team", [5], ["a//b"], ["../x"]],
    "allow_from": [5, "ann", [5], ["../x"], [""]],
    "max_concurrent_tasks": [-1, True, "3", 1.5, HUGE],
    "metadata": OBJECTS,
}


def rings(box: Mailbox) -> list[tuple[str, Callable[[Any], object], list[Any]]]:
    """Bad values for the verbs of rings."""
    ways = [*SENT["kind"], None, "a/b", "\ud800"]
    ids: list[Any] = [5, None, {}, [5], [None], *([id] for id in IDS), [f"m-{number}" for number in range(1001)]]
    lines = [5, None, b"x", "\ud800", "nul\0"]
    return [
        ("way", box.begin_alerts, ways),
        ("way", box.next_alert, ways),
        ("way", lambda v: box.wait_for_alert(v, 0), ways),
        ("timeout", lambda v: box.wait_for_alert("exec", v), [-1, True, "1", float("nan"), None]),
        ("may_alert", lambda v: box.next_alert("exec", may_alert=v), [5, "x", True]),
        ("way", lambda v: box.alert_failed(v, "m-1", "x"), ways),
        ("ids", lambda v: box.alert_failed("exec", v, "x"), ids),
        ("why", lambda v: box.alert_failed("exec", "m-1", v), lines),
        ("way", lambda v: box.alert_done(v, "m-1"), ways),
        ("ids", lambda v: box.alert_done("exec", v), ids),
        ("within", lambda v: box.next_alert("exec", within=v), [-1, 0, True, "1", float("nan")]),
        ("way", lambda v: box.retry_alerts(way=v), [v for v in ways if v is not None]),
        ("ids", lambda v: box.retry_alerts(ids=v), [v for v in ids if v is not None]),
        ("ids", lambda v: box.mark_shown(v, "claude"), ids),
        ("host", lambda v: box.mark_shown("m-1", v), ways),
        ("where", lambda v: box.mark_shown("m-1", "claude", v), [*lines, "two\nlines", "x" * 201]),
    ]


def acts(box: Mailbox) -> list[tuple[str, Callable[[Any], object], list[Any]]]:
    """(the field an error must name, a call with one bad value, the values)"""
    room = box.room
    counts = [0, -1, True, "1", 1.5, None, [], HUGE, 2**60]
    seconds = [-1, True, "1", float("nan"), [], -HUGE]
    lists = [5, None, [5], [""], ["../x"], [b"x"]]
    words = [5, b"x", "\ud800", "x" * 300]
    return [
        ("limit", lambda v: box.check(limit=v), [v for v in counts if v is not None]),
        ("limit", lambda v: box.dead(limit=v), [v for v in counts if v is not None]),
        ("limit", lambda v: box.threads(limit=v), counts),
        ("limit", lambda v: box.conversations(limit=v), counts),
        ("limit", lambda v: room.threads(limit=v), counts),
        ("limit", lambda v: box.search("x", limit=v), [*counts, 10_001]),
        ("limit", lambda v: room.search("x", limit=v), [*counts, 10_001]),
        ("query", box.search, [5, None, b"x", "", " ", "\ud800", "a\0b", '"open', "from:", "form:x", "x" * 1001]),
        ("query", room.search, [5, None, "", "to:../x", "kind:9", "thread:a/b", 'tag:" "', "before:soon", "ab*"]),
        ("limit", lambda v: room.conversations(limit=v), counts),
        ("limit", lambda v: room.changes(room.cursor(), v), counts),
        ("count", box.claim, [0, -1, True, "1", 1.5, [], 10_001, HUGE]),
        ("lease", lambda v: box.claim(lease=v), [0, *seconds, float("inf"), 7 * 86400 + 1]),
        ("timeout", lambda v: box.claim(timeout=v), [*seconds, None]),
        ("timeout", lambda v: box.wait(timeout=v), [*seconds, None]),
        ("timeout", lambda v: next(iter(box.work(timeout=v))), seconds),
        ("timeout", lambda v: box.ask("ann", "x", timeout=v), seconds),
        *rings(box),
        ("holder", lambda v: box.claim(holder=v), [*words, "two\nlines"]),
        ("kinds", lambda v: box.check(kinds=v), [v for v in lists if v is not None]),
        ("kinds", lambda v: box.claim(kinds=v), [v for v in lists if v is not None]),
        ("min_priority", lambda v: box.check(min_priority=v), SENT["priority"]),
        ("sender", lambda v: box.check(sender=v), ["", "../x", 5]),
        ("thread", lambda v: box.check(thread=v), ["", "../x", 5]),
        ("thread_tag", lambda v: box.check(thread_tag=v), ["", 5, "x\n"]),
        ("tag", lambda v: box.check(tag=v), ["", 5, "x\n"]),
        ("scope", lambda v: box.check(scope=v), ["", "a//b", 5]),
        ("since", lambda v: box.check(since=v), ["now", 5, datetime(2030, 1, 1)]),  # noqa: DTZ001
        ("scope", lambda v: box.conversations(scope=v), ["", "a//b", 5, "\ud800"]),
        ("scope", lambda v: box.tagged("t", v), ["", "a//b", 5, "\ud800"]),
        ("thread_tag", box.tagged, ["", *words, None]),
        ("id", box.read, [*IDS, None]),
        ("id", lambda v: box.reply(v, "x"), [*IDS, None]),
        ("id", lambda v: box.forward(v, "bob"), [*IDS, None]),
        ("id", box.revive, [*IDS, None, []]),
        ("id", box.purge, [*IDS, None, []]),
        ("id", box.reply_chain, [*IDS, None]),
        ("thread", box.thread, [*IDS, None]),
        ("conversation", box.turns, [*IDS, None]),
        ("cursor", lambda v: box.wait(0, since=v), ["", "x", "a:b", "a:b:c", "a:b:-1", 5, f"a:b:{'9' * 50}"]),
        ("cursor", room.changes, ["", "x", "a:b:c", None, f"a:b:{'9' * 50}"]),
        ("mailboxes", lambda v: room.wait(v, 0), [*lists, []]),
        ("id", room.agent, ["", "../x", 5]),
        ("scope", lambda v: box.broadcast(v, "x"), ["", "../x", "a//b", 5, None]),
        ("exclude", lambda v: box.broadcast("team", "x", exclude=v), [5, [5], ["../x"], "../x"]),
        ("drafts", box.send_many, [5, None, "x", [5], [draft("bob"), "x"]]),
        ("handoff", lambda v: box.handoff("bob", v), [5, None, {}, Handoff(work_completed=5),  # type: ignore[arg-type]
                                                      Handoff(work_completed="x", next_steps="abc"),  # type: ignore[arg-type]
                                                      Handoff(work_completed=object())]),  # type: ignore[arg-type]
        ("body", lambda v: box.forward("known", "bob", v), [5, b"x", {"x"}]),
        ("current_tasks", lambda v: box.heartbeat(current_tasks=v), [5, {}, [5], ["\0"], ["x" * 201]]),
        ("poll_interval", lambda v: box.heartbeat(poll_interval=v), [0, *seconds, 86_401, float("inf")]),
        ("id", box.task, [*IDS, None]),
        ("role", box.tasks, ["", "giver", 5, None, [], HUGE]),
        ("states", lambda v: box.tasks(states=v), ["", "done", [5], 5, {}, "\ud800", ["working", "x" * 100]]),
        ("limit", lambda v: box.tasks(limit=v), counts),
        ("to", lambda v: box.give_task(v, "x"), [*NAMES, [], ["ann", "bob"], "broadcast:team", {"bob": 1}]),
        ("deadline", lambda v: box.give_task("ann", deadline=v), TIMES),
        ("session", lambda v: box.give_task("ann", session=v), [*OBJECTS, {"k": "x" * 70_000}]),
        ("kind", lambda v: box.give_task("ann", kind=v), ["task", "message"]),
        ("task", lambda v: box.give_task("ann", task=v), [{"id": "t"}]),
        ("id", lambda v: box.give_task("ann", id=v), [v for v in IDS if v is not None]),
        ("key", lambda v: box.give_task("ann", key=v), SENT["key"]),
        ("id", box.trace, [*IDS, None]),
        ("id", room.trace, [*IDS, None]),
        ("last", room.flow, [5, "x", {}]),
        ("older_than", lambda v: room.purge(older_than=v), seconds),
        ("older_than", lambda v: room.archive(older_than=v), seconds),
        ("keep", lambda v: room.purge(keep=v), [-1, True, "1", 1.5, [], HUGE]),
        ("progress", lambda v: room.sweep(progress=v), [5, "x", []]),
        ("progress", lambda v: list(room.export(progress=v)), [5, "x", []]),
        ("path", room.backup, [None, 5, "", b"x", "a\0", "\ud800", "~nobody-here/x"]),
        ("budget", lambda v: box.digest(budget=v), [-1, "1", None]),
        ("most", lambda v: box.digest(most=v), [-1, "1", [], HUGE]),
        ("longest", lambda v: box.digest(longest=v), [-1, "1", None]),
    ]  # fmt: skip
