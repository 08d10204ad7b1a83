"""unread → read → processing → completed → archived; failed, retried, expired; one worker at a time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from postroom.room import open_with
from postroom.settings import chosen_settings
from postroom.store.files import durable as files_durable
from postroom.store.files import transaction
from postroom.swarm import MailboxManager, Message, MessageStatus, mail
from tests.rooms import FakeClock
from tests.swarm.project import Project, output_of


def status(message: Message | None) -> str | None:
    return None if message is None else message.status.value


def unread(manager: MailboxManager) -> list[str]:
    return [each.id for each in manager.check_mailbox("b")]


@pytest.fixture
def letter(manager: MailboxManager) -> str:
    return manager.send("a", "b", "s", "x").id


def test_the_whole_life(project: Project, manager: MailboxManager, letter: str) -> None:
    assert [letter] == unread(manager)
    assert "read" == status(manager.read_message(letter))
    assert [] == unread(manager) and [letter] == [
        each.id for each in manager.check_mailbox("b", unread_only=False)
    ]
    assert "processing" == status(manager.mark_processing(letter))
    done = manager.mark_completed(letter, archive=False)
    assert done is not None and done.status is MessageStatus.COMPLETED and done.completed_at is not None
    assert [f"{letter}.json"] == project.files("b/inbox")
    assert "archived" == status(manager.mark_completed(letter))
    assert [f"{letter}.json"] == project.files("b/archive") and [] == project.files("b/inbox")
    assert ["archived"] == [status(each) for each in manager.check_mailbox("b", unread_only=False)]
    assert "archived" == status(manager.read_message(letter)) == status(manager.mark_completed(letter))


def test_completed_letters_are_listed_until_they_are_old_enough_for_the_archive(project: Project) -> None:
    clock = FakeClock()
    chosen = chosen_settings(f"files:{project.mail}?layout=swarm", {"durability": "process"})
    with open_with(chosen, clock) as room:
        manager = MailboxManager(room=room)
        kept, put_away = (manager.send("a", "b", subject, "x").id for subject in ("kept", "put away"))
        manager.mark_completed(kept, archive=False)
        manager.mark_completed(put_away)
        clock.jump(23 * 3600)
        room.sweep()
        listed = {each.id: each.status.value for each in manager.check_mailbox("b", unread_only=False)}
        assert {kept: "completed", put_away: "archived"} == listed
        clock.jump(2 * 3600)
        room.sweep()
        assert [] == manager.check_mailbox("b", unread_only=False)
        assert "archived" == status(manager.read_message(kept)) == status(manager.read_message(put_away))


def lost_at(paths: list[Path], do: Callable[[], object]) -> list[str]:
    """Do something, and return the calls at which none of these files was there, or none held a whole letter."""
    lost: list[str] = []

    def look(_frame: object, event: str, function: object) -> None:
        if event == "c_return" and not any(is_whole(path) for path in paths):
            lost.append(getattr(function, "__name__", "?"))

    sys.setprofile(look)
    try:
        do()
    finally:
        sys.setprofile(None)
    return lost


def is_whole(path: Path) -> bool:
    try:
        return "subject" in json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False


def unlink_then_write(self: transaction.RewriteFile, *, durable: bool, spare: str = "") -> files_durable.Stamp:
    """The design's own archive step: the inbox copy goes before the archive copy is written."""
    Path(self.former, self.name).unlink()
    files_durable.make_folder(self.folder)
    return files_durable.write_new(self.folder, self.name, self.content, durable=durable)


@pytest.mark.parametrize("first", [None, "completed"])
@pytest.mark.parametrize("bug", [None, unlink_then_write])
def test_there_is_a_whole_copy_at_every_step_of_archiving(
    project: Project, manager: MailboxManager, letter: str, monkeypatch: pytest.MonkeyPatch, bug: Any, first: Any
) -> None:
    if first:
        manager.mark_completed(letter, archive=False)
    if bug:
        monkeypatch.setattr(transaction.RewriteFile, "do", bug)
    places = [project.mail / "b" / place / f"{letter}.json" for place in ("inbox", "archive")]
    lost = lost_at(places, lambda: manager.mark_completed(letter))
    assert bool(bug) == bool(lost), lost
    assert [f"{letter}.json"] == project.files("b/archive")


def test_reading_twice_keeps_the_first_time(manager: MailboxManager, letter: str) -> None:
    first = manager.read_message(letter)
    assert first is not None and first == manager.read_message(letter)


def test_a_letter_may_be_completed_without_more_ado(manager: MailboxManager, letter: str) -> None:
    assert "archived" == status(manager.mark_completed(letter))


def test_what_is_done_is_not_worked_on_again(manager: MailboxManager, letter: str) -> None:
    manager.mark_completed(letter)
    assert manager.mark_processing(letter) is None is manager.mark_failed(letter)
    assert "archived" == status(manager.read_message(letter))


@pytest.mark.parametrize("shared", [False, True], ids=["own managers", "one manager"])
def test_one_of_many_gets_a_letter(project: Project, manager: MailboxManager, letter: str, shared: bool) -> None:
    others = [manager if shared else project.manager() for _ in range(4)]
    start, got = Barrier(4), []

    def work(other: MailboxManager) -> None:
        start.wait()
        got.append(other.mark_processing(letter))

    threads = [Thread(target=work, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 == sum(each is not None for each in got)
    assert manager.mark_processing(letter) is None


def test_who_looks_before_another_moves_looks_again(
    project: Project, manager: MailboxManager, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = mail.find(manager.room.core, manager.room.principal, letter)
    project.manager().mark_completed(letter)
    seen = [before, mail.find(manager.room.core, manager.room.principal, letter)]
    monkeypatch.setattr(mail, "find", lambda *_: seen.pop(0))
    assert "archived" == status(manager.read_message(letter)) and [] == seen


def test_who_always_comes_second_gives_up(
    project: Project, manager: MailboxManager, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = mail.find(manager.room.core, manager.room.principal, letter)
    project.manager().mark_processing(letter)
    monkeypatch.setattr(mail, "find", lambda *_: before)
    assert manager.mark_processing(letter) is None


def test_who_holds_a_letter_may_say_so_again(manager: MailboxManager, letter: str) -> None:
    assert "processing" == status(manager.mark_processing(letter)) == status(manager.mark_processing(letter))


def test_another_process_may_complete_what_one_began(
    project: Project, manager: MailboxManager, letter: str
) -> None:
    code = "from postroom.swarm import *; print(get_mailbox_manager().{}({!r}).status.value)"
    assert "processing" == output_of(project.python(code.format("mark_processing", letter))).strip()
    assert manager.mark_processing(letter) is None
    assert "archived" == output_of(project.python(code.format("mark_completed", letter))).strip()
    assert "archived" == status(manager.read_message(letter))


def test_what_nobody_finished_in_time_is_unread_again(project: Project, letter: str) -> None:
    slow, other = project.manager(lease=0.2), project.manager()
    slow.read_message(letter)
    slow.mark_processing(letter)
    assert [] == unread(other)
    time.sleep(0.3)
    assert [letter] == unread(other)
    assert "unread" == project.fields("b/inbox", letter)["status"]
    assert "read" == status(other.read_message(letter)) and [] == unread(other)
    assert "read" == project.fields("b/inbox", letter)["status"]


def test_who_came_too_late_is_refused_where_another_has_begun(project: Project, letter: str) -> None:
    slow, quick = project.manager(lease=0.2), project.manager()
    slow.mark_processing(letter)
    time.sleep(0.3)
    assert "processing" == status(quick.mark_processing(letter))
    assert slow.mark_completed(letter) is None is slow.mark_failed(letter) and slow.mark_processing(letter) is None
    assert "archived" == status(quick.mark_completed(letter))
    assert "archived" == status(slow.mark_completed(letter))


def test_who_came_too_late_may_still_complete_what_nobody_took(project: Project, letter: str) -> None:
    slow = project.manager(lease=0.2)
    slow.mark_processing(letter)
    time.sleep(0.3)
    assert "archived" == status(slow.mark_completed(letter))


def test_a_failed_try_is_unread_again_until_the_tries_are_spent(manager: MailboxManager, letter: str) -> None:
    for _ in range(4):
        assert "processing" == status(manager.mark_processing(letter))
        assert "unread" == status(manager.mark_failed(letter)) and [letter] == unread(manager)
    assert "failed" == status(manager.mark_failed(letter)) and [] == unread(manager)
    (left,) = manager.check_mailbox("b", unread_only=False)
    assert left.id == letter


def test_without_retry_it_has_failed_and_its_sender_is_notified(manager: MailboxManager, letter: str) -> None:
    manager.mark_processing(letter)
    assert "failed" == status(manager.mark_failed(letter, retry=False, reason="no such file"))
    (notice,) = manager.check_mailbox("a")
    assert "no such file" in notice.body
    assert "failed" == status(manager.mark_failed(letter))


def test_what_failed_may_be_tried_again_or_called_done(manager: MailboxManager, letter: str) -> None:
    manager.mark_failed(letter, retry=False)
    assert "processing" == status(manager.mark_processing(letter))
    manager.mark_failed(letter, retry=False)
    assert "archived" == status(manager.mark_completed(letter))


def test_what_its_sender_took_back_is_unknown(manager: MailboxManager, letter: str) -> None:
    manager.room.mailbox("a").unsend(letter)
    assert manager.read_message(letter) is None is manager.mark_completed(letter)
