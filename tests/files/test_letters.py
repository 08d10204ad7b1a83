"""A letter file is byte for byte as the design writes it where that loses nothing; else our key has the rest."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from postroom.model.message import Message, Priority, TaskNote, data, text
from postroom.model.query import Query
from postroom.store.files.layouts.base import OWN, Layout, Where, layout_named
from postroom.store.files.layouts.swarm import local
from postroom.store.files.letter_files import fields_of, parse_file
from postroom.store.files.tree import OWN_FOLDER
from tests.contract.test_store_values import messages
from tests.files.folders import home, inbox, letters_in, opened, rob
from tests.letters import NOW, ack, after, attempt, bury, held, letter, post

ORDER = int(NOW.timestamp() * 1_000_000)
LARGEST = 1 << 24
PLAIN: dict[str, dict[str, Any]] = {
    "nanobot": {"id": "msg_1893499200000_ann_0000cafe"},
    "chipset": {"id": "2030-01-01T12-00-00.000000123Z-ann", "kind": "coordination", "subject": "Sorting"},
    "swarm": {"id": "MSG-abc123def456", "kind": "request", "subject": "Sorting"},
}
FILES = {
    "nanobot": (
        "bob/inbox/1893499200000_ann_0000cafe.msg.json",
        '{"id": "msg_1893499200000_ann_0000cafe", "from": "ann", "to": "bob", "timestamp": "2030-01-01T12:00:00Z",'
        ' "type": "message", "ttl": 3, "trace": ["ann"],'
        ' "content": {"parts": [{"type": "text", "text": "Which sört?"}]}, "reply_to": null, "metadata": {}}',
    ),
    "chipset": (
        "mail/bob/2030-01-01T12-00-00.000000123Z-ann.json",
        """{
  "body": "Which sört?",
  "from": "ann",
  "priority": "normal",
  "read": false,
  "subject": "Sorting",
  "timestamp": "2030-01-01T12:00:00Z",
  "to": "bob",
  "type": "coordination"
}
""",
    ),
    "swarm": (
        "bob/inbox/MSG-abc123def456.json",
        f"""{{
  "id": "MSG-abc123def456",
  "from_agent": "ann",
  "to_agent": "bob",
  "swarm_name": null,
  "type": "request",
  "subject": "Sorting",
  "body": "Which s\\u00f6rt?",
  "payload": {{}},
  "priority": 2,
  "created_at": "{local(NOW)}",
  "expires_at": null,
  "status": "unread",
  "read_at": null,
  "completed_at": null,
  "reply_to": null,
  "thread_id": null,
  "context": {{}},
  "attachments": [],
  "tags": []
}}""",
    ),
}


def plain_letter(layout: Layout) -> Message:
    params = {"parts": (text("Which sört?"),), "trace": ("ann",), **PLAIN[layout.name]}
    return letter(params.pop("id"), **params)


def test_a_plain_letter_is_byte_for_byte_the_designs(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(plain_letter(layout))])
    name, content = FILES[layout.name]
    assert (tmp_path / name).read_text() == content
    assert list(letters_in(tmp_path)) == [name]


@given(message=messages)
def test_what_the_design_cannot_say_stands_under_one_key_and_comes_back(layout: Layout, message: Message) -> None:
    mailbox = message.recipients[0].address
    name = layout.file_name(message, ORDER)
    raw = layout.dump(fields_of(layout, message, mailbox, name=name, order=ORDER))
    where = Where(layout.folder(mailbox), layout.places[0], name, datetime.now(UTC))
    parsed = parse_file(layout, raw, where)
    assert (parsed.message, parsed.mailbox, parsed.order) == (message.seen_by(mailbox), mailbox, ORDER)
    assert len(name.encode()) < 256


@pytest.mark.parametrize(
    ("name", "kind", "there"),
    [
        ("nanobot", "task", "task"), ("nanobot", "handoff", "message"),
        ("chipset", "merge_notification", "merge_notification"), ("chipset", "task", "coordination"),
        ("swarm", "handoff", "handoff"), ("swarm", "task", "request"), ("swarm", "coordination", "notification"),
    ],
)  # fmt: skip
def test_kinds_are_translated_and_come_back(tmp_path: Path, name: str, kind: str, there: str) -> None:
    layout = layout_named(name)
    with opened(tmp_path, layout) as store:
        store.commit([post(letter("m1", kind=kind))])
    (fields,) = letters_in(tmp_path).values()
    assert fields["type"] == there
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert store.get(["m1"])["m1"].message.kind == kind


@pytest.mark.parametrize("priority", Priority)
def test_priorities_are_translated_and_come_back(layout: Layout, tmp_path: Path, priority: Priority) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(letter("m1", priority=priority))])
    (fields,) = letters_in(tmp_path).values()
    words = {Priority.LOW: "low", Priority.NORMAL: "normal", Priority.HIGH: "urgent", Priority.URGENT: "urgent"}
    result = {"nanobot": None, "chipset": words[priority], "swarm": int(priority)}[layout.name]
    assert fields.get("priority") == result
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert held(store, "m1").priority is priority


def test_subjects_are_shown_where_the_design_has_a_place_for_them(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(letter("with", subject="Hello", parts=(text("there"),)))])
        store.commit([post(letter("without", parts=(text("first words of a longer body " * 5),)))])
    by_id = letters_in(tmp_path)
    bodies = [json.dumps(fields) for fields in by_id.values()]
    if layout.name == "nanobot":
        assert any('"Hello\\nthere"' in body for body in bodies)
    else:
        subjects = {fields["subject"] for fields in by_id.values()}
        assert subjects == {"Hello", "first words of a longer body first words of a longer body…"}
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        found = {each.message.id: each.message for each in store.find(Query())}
        assert (found["with"].subject, found["with"].text) == ("Hello", "there")
        assert found["without"].subject == ""


def test_task_states_that_nanobot_lacks_come_back(tmp_path: Path) -> None:
    layout = layout_named("nanobot")
    states = {"canceled": "failed", "input_required": "working", "accepted": "accepted"}
    with opened(tmp_path, layout) as store:
        for state in states:
            store.commit([post(letter(state, kind="task_update", task=TaskNote(id="t", state=state)))])
    result = {fields["id"]: fields["task"]["state"] for fields in letters_in(tmp_path).values()}
    assert result == states
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert {
            id: found.message.task.state for id, found in store.get(list(states)).items() if found.message.task
        } == {state: state for state in states}


# -- states


def test_states_lie_where_the_design_has_them(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        for id in ("new", "done", "dead"):
            store.commit([post(replace(plain_letter(layout), id=id))])
        store.commit([post(letter("later"), due_at=after(60))])
        ack(store, held(store, "done"))
        bury(store, held(store, "dead"))
    places = {
        "nanobot": {"inbox": 1, "processed": 2, ".queued": 1},
        "chipset": {"bob": 2, "archive": 1, ".queued": 1},
        "swarm": {"inbox": 3, ".queued": 1},
    }[layout.name]
    found: dict[str, int] = {}
    for path in letters_in(tmp_path):
        place = Path(path).parent.name
        found[place] = found.get(place, 0) + 1
    assert found == places
    reasons = [fields for fields in letters_in(tmp_path).values() if attempt().reason in json.dumps(fields)]
    assert len(reasons) == 1
    results = [fields.get("read", fields.get("status")) for fields in letters_in(tmp_path).values()]
    expected = {"nanobot": [None] * 4, "chipset": [False, False, False, True],
                "swarm": ["completed", "failed", "unread", "unread"]}  # fmt: skip
    assert sorted(results, key=str) == expected[layout.name]


def test_what_strangers_added_survives_a_change_of_state(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(plain_letter(layout))])
        (path,) = letters_in(tmp_path)
        file = tmp_path / path
        fields = json.loads(file.read_text()) | {"x-theirs": {"kept": [1]}}
        file.write_text(json.dumps(fields))
        id = PLAIN[layout.name]["id"]
        assert store.get([id])[id].message.extra == {"x-theirs": {"kept": [1]}}
        bury(store, held(store, id))
    (fields,) = letters_in(tmp_path).values()
    assert fields["x-theirs"] == {"kept": [1]}


NOTES = {"federation": {"source": "far", "to": ["bob"]}, "turn": {"thread": "t"}, "map": {"has_meta": True}}


def test_what_postroom_notes_of_a_letter_stands_under_its_one_key(layout: Layout, tmp_path: Path) -> None:
    noted = replace(plain_letter(layout), extra=NOTES | {"x-theirs": 1})
    with opened(tmp_path, layout) as store:
        store.commit([post(plain_letter(layout)), post(replace(noted, id="noted"))])
        plain, fields = sorted(letters_in(tmp_path).values(), key=len)
        assert {"x-theirs"} == fields.keys() - plain.keys() - {OWN}
        assert NOTES == layout.own(fields)["extra"]
    shutil.rmtree(tmp_path / OWN_FOLDER)
    with opened(tmp_path, layout) as store:
        assert noted.extra == store.get(["noted"])["noted"].message.extra


def test_notes_that_an_earlier_version_wrote_beside_its_key_are_read(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(replace(plain_letter(layout), extra=NOTES))])
        (path,) = letters_in(tmp_path)
        file = tmp_path / path
        fields = json.loads(file.read_text())
        layout.set_own(fields, {name: value for name, value in layout.own(fields).items() if name != "extra"})
        id = PLAIN[layout.name]["id"]
        for added in ({}, {"x-theirs": 1}):  # a stranger may add to such a file, too
            (tmp_path / "new").write_text(json.dumps(fields | NOTES | added))
            (tmp_path / "new").replace(file)
            assert store.get([id])[id].message.extra == NOTES | added
        bury(store, held(store, id))
    (fields,) = letters_in(tmp_path).values()
    assert NOTES == {name: fields[name] for name in NOTES}
    shutil.rmtree(tmp_path / OWN_FOLDER)
    with opened(tmp_path, layout) as store:
        assert store.get([id])[id].message.extra == NOTES | added


def test_files_and_folders_are_for_their_owner_alone(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path / "new", layout) as store:
        store.commit([post(letter("m1", parts=(data({"a": 1}),)))])
    for path in (tmp_path / "new").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert inbox(tmp_path / "new", layout).is_dir() and home(tmp_path / "new", layout).is_dir()
