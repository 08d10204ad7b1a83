"""Eight processes over one folder, as the design would have them, and what it loses is not lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from postroom.nanobot import MailboxManager
from tests.nanobot.folder import registry
from tests.nanobot.mail_workers import (
    beat_and_update,
    killed_after,
    poll_and_finish,
    register_for_ever,
    register_many,
    send_many,
    together,
)


def test_eight_processes_register_and_no_entry_is_lost_or_torn(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "POSTROOM_DURABILITY", "process"
    )  # 1,600 files as long as the registry: the disk is not asked

    assert together(register_many, root, 8, 200) == {0}

    expected = {f"agent{number}-{place}" for number in range(8) for place in range(200)}
    assert expected == set(registry(root))
    assert expected == {agent["agent_id"] for agent in MailboxManager(root).list_online_agents()}
    assert registry(root)["agent3-77"]["description"] == "the 77th of 3"


def test_processes_that_are_killed_while_they_register_lose_and_tear_nothing(root: Path, tmp_path: Path) -> None:
    promises = tmp_path / "promises"
    promises.mkdir()

    def promised() -> set[str]:
        return {line for ledger in promises.iterdir() for line in ledger.read_text().split("\n")[:-1]}

    for wanted in (15, 30):
        enough = partial(lambda wanted: len(promised()) >= wanted, wanted)
        killed_after(enough, register_for_ever, root, 3, promises)
        registry(root)  # whole at any time
        with MailboxManager(root) as manager:
            assert promised() <= {agent["agent_id"] for agent in manager.list_online_agents()}
        assert promised() <= set(registry(root))


def test_eight_processes_beat_and_update_and_the_last_word_of_each_stands(root: Path) -> None:
    assert together(beat_and_update, root, 8, 10) == {0}

    assert {f"agent{number}": ["task9"] for number in range(8)} == {
        name: entry["current_tasks"] for name, entry in registry(root).items()
    }
    assert {"busy"} == {entry["status"] for entry in registry(root).values()}


@pytest.mark.parametrize("sender", ["sender{}", "everybody"], ids=["own ids", "one id"])
def test_eight_processes_send_and_every_mail_arrives_once_and_whole(root: Path, sender: str) -> None:
    assert together(send_many, root, 8, 25, sender) == {0}

    files = list((root / "sink" / "inbox").iterdir())
    mails = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    expected = sorted(f"{number}-{place}" for number in range(8) for place in range(25))
    assert expected == sorted(mail["mark"] for mail in mails)
    assert len({mail["id"] for mail in mails}) == 200
    with MailboxManager(root) as manager:
        polled = manager.poll("sink")
    assert sorted(file.name for file in files) == sorted(mail["_filename"] for mail in polled)
    for number in range(8):  # each sender's in its order
        own = [int(mail["mark"].partition("-")[2]) for mail in polled if mail["mark"].startswith(f"{number}-")]
        assert own == sorted(own)


def test_threads_may_share_a_manager(root: Path) -> None:
    manager, count = MailboxManager(root), 8

    def work(number: int) -> None:
        manager.register(f"agent{number}", {})
        for place in range(5):
            manager.send(f"agent{number}", "sink", {"content": {"parts": []}, "mark": f"{number}-{place}"})
            manager.heartbeat(f"agent{number}")
            manager.poll("sink", limit=5)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))

    assert count * 5 == len({mail["mark"] for mail in manager.poll("sink")})
    assert count == len(registry(root))


def test_two_processes_may_poll_the_same_inbox_and_finish_every_mail(root: Path) -> None:
    with MailboxManager(root) as manager:
        for place in range(60):
            manager.send("a", "sink", {"content": {"parts": []}, "mark": place})

    assert together(poll_and_finish, root, 2, 60) == {0}

    assert [] == list((root / "sink" / "inbox").iterdir())
    assert 60 == len(list((root / "sink" / "processed").glob("*.msg.json")))
