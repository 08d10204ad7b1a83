"""MailboxManager: sending, looking, answering, with the design's defaults and results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

import postroom
from postroom.core.authorize import agent_principal
from postroom.swarm import HandoffContext, MailboxManager, MessagePriority, MessageStatus, MessageType
from tests.swarm.project import Project


def test_a_letter_is_a_request_of_normal_priority_in_the_designs_file(
    project: Project, manager: MailboxManager
) -> None:
    sent = manager.send("a", "b", "Subject", "Body")
    assert (sent.type, sent.priority, sent.status) == (
        MessageType.REQUEST,
        MessagePriority.NORMAL,
        MessageStatus.UNREAD,
    )
    assert sent.to_dict() == project.fields("b/inbox", sent.id)
    assert sent.id.startswith("MSG-") and len(sent.id) == 16


def test_the_default_folder_is_the_designs(project: Project, manager: MailboxManager) -> None:
    assert Path("workspace/mailboxes") == manager.mailboxes_dir and project.mail.is_dir()


def test_a_folder_may_be_named(project: Project, tmp_path: Path) -> None:
    MailboxManager(tmp_path / "elsewhere").send("a", "b", "s", "x")
    assert (tmp_path / "elsewhere" / "b" / "inbox").is_dir() and not project.mail.exists()


def test_mail_may_be_kept_in_any_room(project: Project, tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        manager = MailboxManager(room=room)
        sent = manager.send("a", "b", "s", "x", payload={"n": 1})
        assert [sent] == manager.check_mailbox("b")
        done = manager.mark_completed(sent.id)
        assert done is not None and done.status is MessageStatus.ARCHIVED


def test_a_mailbox_is_sorted_by_priority_then_age_and_looking_marks_nothing(manager: MailboxManager) -> None:
    for subject, priority in (("1", 2), ("2", 4), ("3", 1), ("4", 2), ("5", 3), ("6", 4)):
        manager.send("a", "b", subject, "x", priority=MessagePriority(priority))
    for _ in range(2):
        assert ["2", "6", "5", "1", "4", "3"] == [each.subject for each in manager.check_mailbox("b")]
    assert {"urgent": 2, "high": 1, "normal": 2, "low": 1, "total": 6} == manager.get_pending_count("b")
    assert ["urgent", "high", "normal", "low", "total"] == list(manager.get_pending_count("nobody"))


def test_a_mailbox_is_filtered_by_type_and_priority(manager: MailboxManager) -> None:
    manager.send("a", "b", "news", "x", MessageType.NOTIFICATION, MessagePriority.HIGH)
    manager.send("a", "b", "work", "x", MessageType.REQUEST, MessagePriority.LOW)
    found = manager.check_mailbox("b", message_types=[MessageType.REQUEST, MessageType.HANDOFF])
    assert ["work"] == [each.subject for each in found]
    found = manager.check_mailbox("b", min_priority=MessagePriority.NORMAL)
    assert ["news"] == [each.subject for each in found]


@pytest.mark.parametrize("zone", [None, UTC])
def test_expired_mail_is_not_shown_whenever_it_expired(manager: MailboxManager, zone: object) -> None:
    now = datetime.now(UTC) if zone else datetime.now()  # noqa: DTZ005 - as in the design
    late = manager.send("a", "b", "late", "x", expires_at=now - timedelta(seconds=1))
    kept = manager.send("a", "b", "kept", "x", expires_at=now + timedelta(hours=1))
    for unread_only in (True, False):
        assert [kept.id] == [each.id for each in manager.check_mailbox("b", unread_only=unread_only)]
    assert 1 == manager.get_pending_count("b")["total"]
    read = manager.read_message(late.id)
    assert read is not None and read.status is MessageStatus.FAILED
    assert manager.mark_processing(late.id) is None


def test_a_handoff_attaches_its_files_and_says_all_it_knows(manager: MailboxManager) -> None:
    context = HandoffContext(
        work_completed="the design",
        files_modified=["m.md"],
        files_created=["c.md"],
        current_state="ready",
        state_file="STATE.md",
        next_steps=["build"],
        blockers=["no disk"],
        dependencies=["apsw"],
        related_escalations=["ESC-1"],
        notes="mind the gap",
    )
    sent = manager.handoff("a", "b", "Parser", context, MessagePriority.HIGH, "dev", additional_notes="and hurry")
    assert (sent.type, sent.priority, sent.tags) == (MessageType.HANDOFF, MessagePriority.HIGH, ["handoff"])
    assert (sent.attachments, sent.swarm_name, sent.context) == (["m.md", "c.md"], "dev", context.to_dict())
    for words in ("the design", "ready", "STATE.md", "- build", "- no disk", "- apsw", "- ESC-1", "mind the gap"):
        assert words in sent.body
    assert sent.body.startswith("Work handoff from a to b.\n\n**Work Completed:** the design\n")
    assert sent.body.endswith("**Notes:**\nand hurry")
    assert [sent] == manager.check_mailbox("b")


def test_a_reply_goes_back_with_thread_swarm_and_priority(manager: MailboxManager) -> None:
    request = manager.send("a", "b", "Q", "x", priority=MessagePriority.URGENT, swarm_name="dev")
    answer = manager.reply(request.id, "b", "yes", {"ok": True})
    assert answer is not None
    assert (answer.to_agent, answer.subject, answer.type) == ("a", "Re: Q", MessageType.RESPONSE)
    assert (answer.priority, answer.swarm_name, answer.payload) == (MessagePriority.URGENT, "dev", {"ok": True})
    assert (answer.reply_to, answer.thread_id) == (request.id, request.id)
    again = manager.reply(answer.id, "a", "sure?")
    assert again is not None and (again.subject, again.thread_id, again.reply_to) == (
        "Re: Q",
        request.id,
        answer.id,
    )
    assert [request.id, answer.id, again.id] == [each.id for each in manager.get_thread(request.id)]


def test_any_agent_that_knows_the_id_may_reply(manager: MailboxManager) -> None:
    request = manager.send("a", "b", "Q", "x", priority=MessagePriority.HIGH)
    answer = manager.reply(request.id, "critic", "I think so")
    assert answer is not None
    assert (answer.from_agent, answer.to_agent, answer.priority) == ("critic", "a", MessagePriority.HIGH)
    assert (answer.reply_to, answer.thread_id, answer.subject) == (request.id, request.id, "Re: Q")
    assert [request.id, answer.id] == [each.id for each in manager.get_thread(request.id)]


def test_a_reply_by_send_joins_the_thread_and_an_unknown_one_only_says_so(manager: MailboxManager) -> None:
    request = manager.send("a", "b", "Q", "x")
    answer = manager.send("b", "a", "A", "x", reply_to=request.id)
    assert (answer.reply_to, answer.thread_id) == (request.id, request.id)
    lost = manager.send("b", "a", "A", "x", reply_to="MSG-gone")
    assert (lost.reply_to, lost.thread_id) == ("MSG-gone", None)


def test_a_thread_may_have_a_name_of_its_own(manager: MailboxManager) -> None:
    first = manager.send("a", "b", "1", "x", thread_id="sprint-7")
    second = manager.send("c", "d", "2", "x", thread_id="sprint-7", reply_to=first.id)
    assert [first, second] == manager.get_thread("sprint-7")
    assert "sprint-7" == second.thread_id


@pytest.mark.parametrize("id", ["MSG-000000000000", "", "no id at all", "../x", "MSG-1@b", "MSG-1@", "x" * 500])
def test_an_unknown_id_is_none(manager: MailboxManager, id: str) -> None:
    assert manager.read_message(id) is None is manager.mark_processing(id)
    assert manager.mark_completed(id) is None is manager.mark_failed(id)
    assert manager.reply(id, "a", "x") is None
    assert [] == manager.get_thread(id)


@pytest.mark.parametrize("name", ["", "a b", "../x", "/etc", "a/b/c", ".hidden", "x" * 300])
def test_a_bad_name_is_refused_and_nothing_is_written(
    project: Project, manager: MailboxManager, name: str
) -> None:
    for message in ((name, "b"), ("b", name)):
        with pytest.raises(postroom.Invalid):
            manager.send(*message, "s", "x")
    with pytest.raises(postroom.Invalid):
        manager.check_mailbox(name)
    assert [] == list(project.mail.glob("*/inbox/*"))


@pytest.mark.parametrize(("first", "second"), [("a/b", "a_b"), ("a_b", "a/b"), ("a/b_c", "a_b/c")])
def test_a_second_name_for_the_same_folder_is_refused_and_names_the_first(
    manager: MailboxManager, first: str, second: str
) -> None:
    manager.send("x", first, "s", "x")
    with pytest.raises(postroom.NameTaken, match=first):
        manager.send("x", second, "s", "x")
    assert 1 == manager.get_pending_count(first)["total"] and [] == manager.check_mailbox(second)


def test_a_letter_to_several_has_an_id_for_each(manager: MailboxManager) -> None:
    receipt = manager.room.mailbox("a").send(["b", "c"], "for both", bcc=["d"])
    ids = {name: manager.check_mailbox(name)[0].id for name in "bcd"}
    assert {name: f"{receipt.id}@{name}" for name in "bcd"} == ids
    done = manager.mark_completed(ids["c"])
    assert done is not None and done.to_agent == "c"
    assert [1, 0, 1] == [manager.get_pending_count(name)["total"] for name in "bcd"]
    answer = manager.reply(ids["d"], "d", "thanks")
    assert answer is not None and answer.reply_to == receipt.id


def test_an_agents_own_room_shows_that_agents_mail_alone(project: Project, manager: MailboxManager) -> None:
    store, settings = manager.room.core.store, manager.room.settings
    own = MailboxManager(room=postroom.Room(store, settings, principal=agent_principal("swarm_dev/critic")))
    mine = manager.send("coo", "swarm_dev/critic", "mine", "x")
    theirs = manager.send("coo", "swarm_dev/architect", "theirs", "x")
    manager.send("coo", "critic", "of a namesake", "x", swarm_name=None)
    assert [mine] == own.check_mailbox("swarm_dev/critic")
    assert own.read_message(theirs.id) is None is own.mark_completed(theirs.id)
    with pytest.raises(postroom.NotAllowed):
        own.check_mailbox("swarm_dev/architect")
    with pytest.raises(postroom.NotAllowed):
        own.send("coo", "swarm_dev/critic", "not by the coo", "x")
    done = own.mark_completed(mine.id)
    assert done is not None and done.status is MessageStatus.ARCHIVED


def test_a_kind_that_the_design_has_no_word_for_is_a_notification(manager: MailboxManager) -> None:
    for kind in ("task", "merge_notification"):
        manager.room.mailbox("a").send("b", "x", kind=kind)
    assert [MessageType.REQUEST, MessageType.NOTIFICATION] == [each.type for each in manager.check_mailbox("b")]


def test_threads_share_a_manager(manager: MailboxManager) -> None:
    def work(name: str) -> None:
        for number in range(5):
            manager.send(name, "b", f"{name}{number}", "x")

    threads = [Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = manager.check_mailbox("b")
    assert 20 == len(found) == len({each.id for each in found})
