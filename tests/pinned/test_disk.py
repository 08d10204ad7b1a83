"""What stands on disk: the files of each layout, inbox.jsonl, exports, a project's folder, the room's schema and words.

Values are pinned too, except for times and random ids: words that are stored never change.
"""

# ruff: noqa: E501 - questions in SQL

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

import postroom
from postroom.chipset import Chipset, Mayor
from postroom.nanobot import MailboxManager
from postroom.swarm import MailboxManager as SwarmManager
from postroom.swarm import MessageType
from tests.cli.shell import Shell
from tests.daemons import Daemon, until
from tests.pinned.pins import check_pin, steady

RICH: dict[str, Any] = {
    "subject": "Sorting",
    "kind": "request",
    "priority": "high",
    "tags": ["x"],
    "data": {"n": 1},
    "metadata": {"a": 1},
    "thread_tag": "tt",
    "conversation_id": "c-1",
    "key": "k-1",
    "expires": 3600,
    "callback": {"c": 1},
    "context": {"d": 1},
    "attachments": ["f"],
}


def live_in(room: postroom.Room) -> None:
    """Letters in every state, a task, a question, a card, a template, a block."""
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    bob.register(display_name="Bob", scopes=["team"], capabilities=["python"])
    ann.send("bob", "plain", id="m-1")
    ann.send(["bob", "cy"], "rich", id="m-2", **RICH)
    ann.send("bob", "later", id="m-3", at=3600)
    ann.send("bob", "done", id="m-4", tags=["done"])
    ann.send("bob", "dead", id="m-5", tags=["dead"])
    ann.send("bob", "held", id="m-6", tags=["held"])
    bob.reply("m-2", "answer", id="m-7")
    done, dead = bob.claim(tag="done"), bob.claim(tag="dead")
    assert done is not None and dead is not None and bob.claim(tag="held") is not None
    done.ack()
    dead.reject("no thanks")
    bob.read("m-1")
    ann.give_task("bob", "sort it", id="t-1")
    bob.task("t-1").accept(id="t-2")
    bob.block("dora")
    ann.escalate("no access", reason="blocked", ladder=["human"], id="e-1")
    room.save_template("review", body="Look at {file}.")


@pytest.mark.parametrize("layout", ["nanobot", "chipset", "swarm"])
def test_a_layout_writes_the_files_it_wrote(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "mail"
    with postroom.open(f"files:{root}?layout={layout}", durability="process") as room:
        live_in(room)
    check_pin(f"disk-{layout}", files_in(root))


def files_in(root: Path) -> list[Any]:
    """Show each file below a folder: JSON with its values, of others only that it is there."""
    found = []
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        is_kept = not name.startswith(".postroom/") or path.name in {"index.db", "journal", "layout"}
        if path.is_file() and is_kept:
            text = (
                path.read_text(encoding="utf-8")
                if path.suffix in {".json", ".md"} or path.name == "layout"
                else None
            )
            content = json.loads(text) if text and path.suffix == ".json" else text
            if path.name == "journal":
                content = journal(path)
            found.append({"path": steady(name), "content": steady(content)})
    return sorted(found, key=lambda file: json.dumps([file["path"], file["content"]], sort_keys=True))


def journal(path: Path) -> dict[str, Any]:
    """Show the kinds of lines in the journal, the records it keeps and the steps it takes in files."""
    found = [json.loads(line.partition(b" ")[2]) for line in path.read_bytes().splitlines()]
    return {
        "lines": sorted({" ".join(sorted(line)) for line in found}),
        "steps": sorted(
            {" ".join([step["type"], *sorted(step)]) for line in found for step in line.get("steps", [])}
        ),
        "writes": [write for line in found for write in line.get("writes", [])],
    }


def test_the_classes_of_each_design_write_the_files_they_wrote(tmp_path: Path) -> None:
    with MailboxManager(tmp_path / "nanobot") as nanobot:
        nanobot.register("bob", {"description": "sorts", "capabilities": ["python"]})
        nanobot.send("ann", "bob", {"type": "message", "content": {"parts": [{"type": "text", "text": "hello"}]}})
        polled = steady(nanobot.poll("bob"))
    Mayor(Chipset(tmp_path / "chipset")).dispatch("dora", "b-1", "Sort", "sort it")
    sent = steady(
        SwarmManager(tmp_path / "swarm").send("ann", "bob", "Sorting", "hello", MessageType.REQUEST).to_dict()
    )
    found = {name: files_in(tmp_path / name) for name in ("nanobot", "chipset", "swarm")}
    check_pin("disk-designs", found | {"polled": polled, "sent": sent})


def test_the_lines_of_inbox_jsonl_are_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "inboxes" / "bob.inbox.jsonl"
    with Daemon(tmp_path, "--http", "off", "--inboxes", str(tmp_path / "inboxes")) as daemon:
        fields = {
            "subject": "S",
            "threadTag": "tt",
            "importance": "high",
            "conversationId": "c-1",
            "meta": {"a": 1},
        }
        daemon.ask(action="send", **{"from": "ann", "to": "bob", "payload": "hello", **fields})
        until(lambda: file.exists() and file.read_bytes().endswith(b"\n"))
    check_pin("disk-inbox-jsonl", [steady(json.loads(line)) for line in file.read_bytes().splitlines()])


def test_an_export_has_the_lines_it_had(tmp_path: Path) -> None:
    shell = Shell(tmp_path, durable=False)
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        live_in(room)
    shell.json("export", "out.jsonl")
    check_pin(
        "disk-export", [steady(json.loads(line)) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    )


def test_a_project_has_the_folder_it_had(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    Shell(tmp_path, durable=False).json("init", "project")
    made = tmp_path / "project" / ".postroom"
    modes = {name: oct((made / name).stat().st_mode & 0o777) for name in (".", "room.db")}
    check_pin("disk-project", {"modes": modes, ".gitignore": (made / ".gitignore").read_text(encoding="utf-8")})


def test_the_room_has_the_tables_and_words_it_had(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    with postroom.open(path, durability="process") as room:
        live_in(room)
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [
        name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    ]
    definitions = {
        f"{kind} {name}": " ".join(re.sub(r"--.*", "", sql or "").split())
        for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
    }
    found = {
        "user_version": database.pragma("user_version"),
        "application_id": database.pragma("application_id"),
        "definitions": definitions,
        "columns": {
            table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")] for table in tables
        },
        "letters": [
            stored(row)
            for row in database.execute(
                "SELECT id, kind, scope, tags, thread, thread_tag, conversation, key, body FROM letters WHERE id LIKE '_-%' ORDER BY number"
            )
        ],
        "deliveries": [
            stored(row)
            for row in database.execute(
                "SELECT id, deliveries.kind, state, seen, rank, revision, attempts, reason, history FROM deliveries JOIN letters USING (number) WHERE id LIKE '_-%' ORDER BY number, mailbox"
            )
        ],
        "records": [
            stored(row)
            for row in database.execute("SELECT kind, key, revision, value FROM records ORDER BY kind, key")
        ],
        "changes": [
            stored(row) for row in database.execute("SELECT DISTINCT what, kind FROM changes ORDER BY what, kind")
        ],
    }
    database.close()
    check_pin("disk-room", found)


def stored(row: Any) -> list[Any]:
    return [steady(json.loads(value)) if isinstance(value, bytes) else steady(value) for value in row]
