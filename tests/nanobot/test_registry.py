"""The registry between us and strangers: whoever writes it, in whatever state, no agent is lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.nanobot import MailboxManager
from postroom.store.files import durable
from postroom.store.files import registry as files_registry
from tests.nanobot.folder import registry
from tests.nanobot.stranger import Stranger
from tests.renaming import rename


def names(manager: MailboxManager) -> set[str]:
    return {agent["agent_id"] for agent in manager.list_online_agents()}


def test_a_strangers_entry_is_taken_in_with_all_it_says(manager: MailboxManager, root: Path) -> None:
    manager.register("coder", {})
    Stranger(root, "alien").enrol(description="from afar", capabilities=["fly"], planet="X", status="busy")

    alien = manager.get_agent("alien")
    assert alien is not None
    assert ("from afar", ["fly"], "X", "busy") == tuple(
        alien[name] for name in ("description", "capabilities", "planet", "status")
    )
    manager.register("writer", {})  # publishes all
    assert "X" == registry(root)["alien"]["planet"]


def test_entries_that_a_strangers_rewrite_dropped_are_published_again(manager: MailboxManager, root: Path) -> None:
    manager.register("coder", {"description": "d"})
    alien = Stranger(root, "alien")
    alien.rewrite({})
    alien.enrol()

    assert {"coder", "alien"} == names(manager)
    assert {"coder", "alien"} == set(registry(root))
    (root / "_registry.json").unlink()
    assert {"coder", "alien"} == names(manager)
    assert "d" == registry(root)["coder"]["description"]


def test_a_stale_copy_of_our_entry_changes_nothing(manager: MailboxManager, root: Path) -> None:
    manager.register("coder", {})
    alien = Stranger(root, "alien")
    old = alien.registry()
    manager.update_status("coder", "busy", ["t1"])
    alien.rewrite(old | {"alien": {"agent_id": "alien", "status": "idle"}})

    coder = manager.get_agent("coder")
    assert coder is not None and ("busy", ["t1"]) == (coder["status"], coder["current_tasks"])
    assert ["t1"] == registry(root)["coder"]["current_tasks"]
    assert "alien" in registry(root)


def test_a_stranger_changes_its_status_to_and_fro(manager: MailboxManager, root: Path) -> None:
    alien = Stranger(root, "alien")
    alien.enrol()
    for status in ("busy", "idle", "offline", "idle"):
        entries = alien.registry()
        entries["alien"]["status"] = status
        alien.rewrite(entries)
        shown = manager.get_agent("alien")
        assert shown is not None and status == shown["status"]


def test_a_strangers_old_heartbeat_is_silence_and_a_new_one_is_life(manager: MailboxManager, root: Path) -> None:
    alien = Stranger(root, "alien")
    alien.enrol(last_heartbeat=(datetime.now(UTC) - timedelta(minutes=5)).isoformat())
    assert set() == names(manager)
    manager.register("coder", {})
    assert "offline" == registry(root)["alien"]["status"]

    alien.beat()

    assert {"alien", "coder"} == names(manager)


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o600])
def test_who_may_read_a_strangers_registry_stays_as_it_was(root: Path, mode: int) -> None:
    path = root / "_registry.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}", encoding="utf-8")
    path.chmod(mode)
    with MailboxManager(root) as manager:
        manager.register("coder", {})
    assert {"coder"} == set(registry(root))
    assert mode == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("torn", [b'{"a": {', b"\xff\xfe", b"[]", b"", b'{"a": {}}{"b": {}}'], ids=repr)
def test_a_torn_registry_is_set_aside_and_written_again(
    manager: MailboxManager, root: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manager.register("coder", {})
    path = root / "_registry.json"
    path.write_bytes(torn)
    assert {"coder"} == names(manager)
    assert torn == path.read_bytes()  # somebody may still be writing
    os.utime(path, (1, 1))

    assert {"coder"} == names(manager)

    assert {"coder"} == set(registry(root))
    (aside,) = (root / ".quarantine").iterdir()
    assert torn == aside.read_bytes()
    assert [f".quarantine/{aside.name}"] == manager.room.quarantined()
    assert "was set aside" in caplog.text


def test_links_pipes_and_folders_in_the_place_of_the_registry_are_set_aside(
    manager: MailboxManager, root: Path, tmp_path: Path
) -> None:
    manager.register("coder", {})
    path, secret = root / "_registry.json", tmp_path / "secret"
    secret.write_text("{}", encoding="utf-8")
    places: list[Callable[[], None]] = [lambda: path.symlink_to(secret), lambda: os.mkfifo(path), path.mkdir]
    for place in places:
        path.unlink()
        place()
        manager.register("coder", {"description": "again"})
        assert path.is_file() and not path.is_symlink()
    assert "{}" == secret.read_text(encoding="utf-8")
    assert 3 == len(manager.room.quarantined())


def test_entries_that_can_be_nobody_here_stay_as_they_are(manager: MailboxManager, root: Path) -> None:
    odd = {"研究员": {"agent_id": "研究员"}, "../x": {}, "n": 5, "Coder": {"status": "idle"}}
    manager.register("coder", {})
    Stranger(root, "a").rewrite(registry(root) | odd)

    manager.register("writer", {})

    assert {"coder", "writer"} == names(manager)
    assert odd.items() <= registry(root).items()


def test_wrong_values_of_strangers_count_as_absent_and_are_kept(manager: MailboxManager, root: Path) -> None:
    odd = {
        "description": 5,
        "capabilities": "fly",
        "max_concurrent_tasks": "many",
        "current_tasks": 7,
        "status": [],
    }
    Stranger(root, "alien").rewrite({"alien": odd | {"last_heartbeat": "now"}})

    manager.register("coder", {})

    assert "alien" in manager.room.mailboxes()
    kept = registry(root)["alien"]
    assert (5, "fly", "many") == (kept["description"], kept["capabilities"], kept["max_concurrent_tasks"])


def test_cards_come_back_from_the_registry_when_our_own_folder_is_deleted(root: Path) -> None:
    with MailboxManager(root) as manager:
        manager.room.mailbox("coder").register(description="d", scopes=["team"], allow_from=["a"])
        manager.update_status("coder", "busy", ["t"])
        manager.send("a", "coder", {})
        before = manager.get_agent("coder")
    shutil.rmtree(root / ".postroom")

    with MailboxManager(root) as manager:
        assert before == manager.get_agent("coder")
        assert 1 == len(manager.poll("coder"))
        manager.room.mailbox("a").send("broadcast:team", "hello")
        assert 2 == len(manager.poll("coder"))


def test_the_registry_comes_back_from_our_journal_when_file_and_index_are_gone(root: Path) -> None:
    with MailboxManager(root) as manager:
        manager.register("coder", {"description": "d"})
        manager.register("writer", {})
        entries = registry(root) | {"eve": {"agent_id": "eve", "description": "a stranger's"}}
        (root / "_registry.json").write_text(json.dumps(entries), encoding="utf-8")
        assert manager.get_agent("eve")
    (root / "_registry.json").unlink()
    for index in (root / ".postroom").glob("index.db*"):
        if index.is_file():
            index.unlink()

    with MailboxManager(root) as manager:
        manager.register("third", {})

    assert {"coder": "d", "writer": "", "third": "", "eve": "a stranger's"} == {
        name: entry["description"] for name, entry in registry(root).items()
    }


def test_an_agent_is_busy_with_what_it_took_on_and_idle_again_when_that_is_over(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {"status": "idle"})
    task = manager.room.mailbox("coder").task(manager.room.mailbox("boss").give_task("coder", "sort").id)
    task.accept()
    assert ("busy", [task.id]) == (
        registry(root)["coder"]["status"],
        registry(root)["coder"]["current_tasks"],
    )
    task.complete("done")
    assert ("idle", []) == (registry(root)["coder"]["status"], registry(root)["coder"]["current_tasks"])


def test_a_stranger_that_writes_while_we_publish_is_heard(
    manager: MailboxManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.register("coder", {})
    alien = Stranger(root, "alien")
    write_temporary = durable.write_temporary

    def slow(*args: Any, **more: Any) -> Any:
        written = write_temporary(*args, **more)
        if alien.count == 0:
            alien.count += 1
            alien.enrol()  # after we have looked, before ours is in place
        return written

    monkeypatch.setattr(durable, "write_temporary", slow)
    manager.update_status("coder", "busy")

    assert {"coder", "alien"} == set(registry(root))
    assert "busy" == registry(root)["coder"]["status"]
    assert {"coder", "alien"} == names(manager)


def test_a_plain_heartbeat_writes_no_registry_and_a_later_one_refreshes_all(
    manager: MailboxManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_registry, "REFRESH", 3600.0)
    manager.register("coder", {})
    manager.register("writer", {})
    before = (root / "_registry.json").read_bytes()
    time.sleep(0.002)
    manager.heartbeat("coder")
    assert before == (root / "_registry.json").read_bytes()

    monkeypatch.setattr(files_registry, "REFRESH", 0.0)
    manager.heartbeat("writer")

    shown = registry(root)
    assert json.loads(before)["coder"]["last_heartbeat"] < shown["coder"]["last_heartbeat"]
    assert shown["coder"]["last_heartbeat"] < shown["writer"]["last_heartbeat"]


def test_a_renamed_agent_has_one_entry(manager: MailboxManager, root: Path) -> None:
    manager.register("coder", {"description": "d"})
    rename(manager.room, "coder", "writer")

    assert {"writer": "d"} == {name: entry["description"] for name, entry in registry(root).items()}
