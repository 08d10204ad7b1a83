"""Cached values save work, and are not trusted where another process may have changed them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from postroom.model.query import LetterQuery, Query
from postroom.nanobot import MailboxManager
from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.store import FileStore
from postroom.store.protocol import Rename, spelling_of
from tests.files.folders import inbox, opened, rob
from tests.letters import ack, after, claim, ids, letter, names, post, send

LONG_AGO = 1_700_000_000_000_000_000  # nanoseconds


def send_quietly(store: FileStore, id: str, **fields: Any) -> None:
    store.commit([post(letter(id, **fields))])


def rob_of_the_index(root: Path) -> None:
    """The journal stays: it has the names."""
    for path in (root / ".postroom").glob("index.db*"):
        path.unlink()


def send_in_a_quiet_folder(store: FileStore, root: Path) -> None:
    """In whose own folder nothing came or went for long."""
    for number in range(3):
        send_quietly(store, f"m{number}")
        os.utime(root / ".postroom", ns=(LONG_AGO, LONG_AGO))


def steps(manager: MailboxManager, agent: str) -> int:
    """Of SQLite's machine, for one sign of life."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    store = manager.core.store
    assert isinstance(store, FileStore)
    database = store.connection().database
    database.set_progress_handler(step, 1)
    manager.heartbeat(agent)
    database.set_progress_handler(None)
    return count


# -- what is saved


def test_a_sign_of_life_takes_as_many_steps_among_many_agents_as_among_few(tmp_path: Path) -> None:
    taken = []
    for agents in (5, 100):
        with MailboxManager(tmp_path / str(agents)) as manager:
            for number in range(agents):
                manager.register(f"agent-{number}", {})
            steps(manager, "agent-1")
            taken.append(min(steps(manager, "agent-1") for _ in range(3)))
    few, many = taken
    assert many < 1.2 * few


# -- what is not believed


def test_a_mailbox_that_another_renamed_meanwhile_keeps_its_folder_and_its_mail(
    layout: Layout, tmp_path: Path
) -> None:
    with opened(tmp_path, layout) as ours, opened(tmp_path, layout) as theirs:
        send_quietly(ours, "m1")
        send_quietly(ours, "m2")
        theirs.commit([Rename("bob", "bert")])
        send_quietly(ours, "m3")
        assert 3 == len([path for path in inbox(tmp_path, layout, "bob").iterdir() if path.is_file()])
        assert ["m1", "m2", "m3"] == ids(theirs, Query(mailbox="bert"))
    rob_of_the_index(tmp_path)
    with opened(tmp_path, layout) as store:
        assert ["m1", "m2", "m3"] == ids(store, Query(mailbox="bert"))
        assert spelling_of(store, "bob") == "bert"


def test_a_letter_comes_after_those_of_others_though_our_clock_is_behind(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as ours, opened(tmp_path, layout) as theirs:
        for number in range(0, 6, 2):
            send_quietly(ours, f"m{number}", created_at=after(-3600))
            send_quietly(theirs, f"m{number + 1}", created_at=after(number))
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert [f"m{number}" for number in range(6)] == names(store.letters(LetterQuery()))


def test_an_index_that_is_deleted_is_noticed_though_its_folder_was_quiet_for_long(
    layout: Layout, tmp_path: Path
) -> None:
    with opened(tmp_path, layout) as store:
        send_in_a_quiet_folder(store, tmp_path)
        for end in ("", "-wal", "-shm"):
            (tmp_path / ".postroom" / f"index.db{end}").unlink()
        send_quietly(store, "m3")
        assert ["m0", "m1", "m2", "m3"] == names(store.letters(LetterQuery()))


def test_a_log_that_is_deleted_is_noticed_though_its_folder_was_quiet_for_long(
    layout: Layout, tmp_path: Path
) -> None:
    with opened(tmp_path, layout) as store:
        send_in_a_quiet_folder(store, tmp_path)
        log = tmp_path / ".postroom" / "index.db-wal"
        log.unlink()
        send_quietly(store, "m3")
        assert ["m0", "m1", "m2", "m3"] == names(store.letters(LetterQuery()))
        assert log.exists()


def test_a_file_that_was_changed_just_before_its_ack_is_looked_at(tmp_path: Path) -> None:
    layout = layout_named("nanobot")
    with opened(tmp_path, layout) as store:
        claimed = claim(store, send(store, "m1", subject="what was accepted"))
        store.find(Query())
        (file,) = inbox(tmp_path, layout).iterdir()
        file.write_bytes(file.read_bytes().replace(b"was accepted", b"was excepted"))
        ack(store, claimed)
        assert "what was accepted" == store.get(["m1"])["m1"].message.subject
        (aside,) = store.quarantined()
        assert b"was excepted" in (tmp_path / aside).read_bytes()
