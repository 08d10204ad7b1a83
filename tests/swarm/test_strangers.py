"""A program that knows only the design's files mails both ways with ours, and each sees what the other did."""

from __future__ import annotations

import json

import pytest

from postroom import NotAllowed
from postroom.swarm import HandoffContext, MailboxManager, MessagePriority, MessageStatus, MessageType
from tests.swarm.project import Project
from tests.swarm.stranger import Stranger


def test_a_strangers_letter_arrives_at_once_with_all_it_says(project: Project, manager: MailboxManager) -> None:
    params = {
        "from_agent": "swarm_dev/architect",
        "to_agent": "swarm_dev/implementer",
        "swarm_name": "swarm_dev",
        "type": "handoff",
        "subject": "Parser",
        "body": "It is yours.",
        "payload": {"a": [1, None]},
        "priority": 3,
        "context": {"work_completed": "design"},
        "attachments": ["a.md"],
        "tags": ["handoff"],
        "thread_id": "MSG-root",
    }
    (sent,) = project.stranger(("send", params))
    (found,) = manager.check_mailbox("swarm_dev/implementer")
    assert sent == found.to_dict()


def test_our_letter_is_the_strangers_too(project: Project, manager: MailboxManager) -> None:
    sent = manager.send(
        "coo", "critic", "Look", "at this", priority=MessagePriority.URGENT, payload={"n": 1}, tags=["a"]
    )
    manager.send("coo", "critic", "Less urgent", "x")
    (found,) = project.stranger(("check", {"agent": "critic"}))
    assert sent.to_dict() == found[0] and ["Look", "Less urgent"] == [each["subject"] for each in found]


def test_a_stranger_answers_and_is_answered(project: Project, manager: MailboxManager) -> None:
    request = manager.send("architect", "critic", "Good?", "x", priority=MessagePriority.HIGH)
    project.stranger(("reply", {"id": request.id, "from_agent": "critic", "body": "no"}))
    (answer,) = manager.check_mailbox("architect")
    assert (answer.type, answer.reply_to, answer.thread_id) == (MessageType.RESPONSE, request.id, request.id)
    again = manager.reply(answer.id, "architect", "why?")
    assert again is not None and (again.to_agent, again.subject) == ("critic", "Re: Good?")
    assert [request.id, answer.id, again.id] == [each.id for each in manager.get_thread(request.id)]
    (found,) = project.stranger(("check", {"agent": "critic"}))
    assert {request.id, again.id} == {each["id"] for each in found}


def test_what_a_stranger_read_is_no_longer_unread(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x")
    assert 1 == manager.get_pending_count("b")["total"]
    project.stranger(("mark", {"id": sent.id, "status": "read"}))
    assert [] == manager.check_mailbox("b")
    (found,) = manager.check_mailbox("b", unread_only=False)
    assert found.status is MessageStatus.READ and found.read_at is not None


def test_what_a_stranger_made_unread_again_is_unread(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x")
    manager.read_message(sent.id)
    project.stranger(("mark", {"id": sent.id, "status": "unread"}))
    assert [sent.id] == [each.id for each in manager.check_mailbox("b")]


def test_what_a_stranger_works_on_is_left_to_it_and_may_be_completed_here(
    project: Project, manager: MailboxManager
) -> None:
    sent = manager.send("a", "b", "s", "x")
    project.stranger(("mark", {"id": sent.id, "status": "processing"}))
    assert [] == manager.check_mailbox("b")
    assert manager.mark_processing(sent.id) is None
    done = manager.mark_completed(sent.id)
    assert done is not None and done.status is MessageStatus.ARCHIVED
    assert [f"{sent.id}.json"] == project.files("b/archive") and [] == project.files("b/inbox")


def test_what_a_stranger_completed_or_archived_is_done(project: Project, manager: MailboxManager) -> None:
    first, second = (manager.send("a", "b", "s", "x") for _ in range(2))
    project.stranger(("mark", {"id": first.id, "status": "completed"}), ("archive", {"id": second.id}))
    assert [] == manager.check_mailbox("b")
    statuses = [each and each.status for each in map(manager.read_message, (first.id, second.id))]
    assert [MessageStatus.COMPLETED, MessageStatus.ARCHIVED] == statuses


def test_what_we_did_stands_in_the_strangers_file(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x")
    for verb, status in ((manager.read_message, "read"), (manager.mark_processing, "processing")):
        shown = verb(sent.id)
        assert shown is not None and status == shown.status.value
        assert shown.to_dict() == project.fields("b/inbox", sent.id)
    manager.mark_completed(sent.id, archive=False)
    assert "completed" == project.fields("b/inbox", sent.id)["status"]
    manager.mark_completed(sent.id)
    assert "archived" == project.fields("b/archive", sent.id)["status"]


def test_the_human_is_the_user_to_strangers(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("coo", "ceo", "Decide", "x")
    (found,) = project.stranger(("check", {"agent": "user"}))
    assert [sent.id] == [each["id"] for each in found]
    request = manager.send("user", "coo", "How is it?", "x")
    project.stranger(("reply", {"id": request.id, "from_agent": "coo", "body": "fine"}))
    assert {"Decide", "Re: How is it?"} == {each.subject for each in manager.check_mailbox("user")}


def test_a_stranger_may_call_a_member_by_its_bare_name(project: Project, manager: MailboxManager) -> None:
    params = {"from_agent": "coo", "to_agent": "critic", "swarm_name": "swarm_dev"}
    (sent,) = project.stranger(("send", params))
    assert [sent["id"]] == [each.id for each in manager.check_mailbox("swarm_dev/critic")]
    assert [sent["id"]] == [each.id for each in manager.check_mailbox("critic")]


def test_a_stranger_that_checks_a_bare_name_sees_what_ours_sent_with_a_swarm(
    project: Project, manager: MailboxManager
) -> None:
    manager.broadcast("coo", "swarm_dev", "News", "x")
    context = HandoffContext("The grammar is done.")
    manager.handoff("architect", "critic", "Yours", context, swarm_name="swarm_dev")
    (found,) = project.stranger(("check", {"agent": "critic"}))
    assert {("News", "coo"), ("Yours", "architect")} == {(each["subject"], each["from_agent"]) for each in found}
    for each in found:  # the stranger finds each again where it will write it
        project.stranger(("mark", {"id": each["id"], "status": "read"}))
        assert [] == [path for path in project.mail.glob(f"*/*/{each['id']}.json") if path.parts[-3] != "critic"]
    for name in ("critic", "swarm_dev/critic"):
        assert [] == manager.check_mailbox(name)
        assert {"News", "Yours"} == {each.subject for each in manager.check_mailbox(name, unread_only=False)}


def test_ours_sees_what_a_stranger_sent_with_either_spelling(project: Project, manager: MailboxManager) -> None:
    project.stranger(
        ("broadcast", {"swarm": "swarm_dev", "from_agent": "coo", "subject": "News"}),
        ("send", {"from_agent": "architect", "to_agent": "critic", "subject": "bare"}),
        ("send", {"from_agent": "architect", "to_agent": "swarm_dev/critic", "subject": "full"}),
    )
    for name in ("critic", "swarm_dev/critic"):
        assert ["News", "bare", "full"] == [each.subject for each in manager.check_mailbox(name)]
    assert 1 == len(manager.check_mailbox("implementer")) == len(manager.check_mailbox("swarm_dev/implementer"))


def test_an_answer_reaches_a_stranger_under_the_name_it_used(project: Project, manager: MailboxManager) -> None:
    params = {"from_agent": "architect", "to_agent": "critic", "swarm_name": "swarm_dev"}
    (sent,) = project.stranger(("send", params))
    answer = manager.reply(sent["id"], "swarm_dev/critic", "fine")
    assert answer is not None
    ((found,),) = project.stranger(("check", {"agent": "architect"}))
    assert (answer.id, sent["id"], "swarm_dev") == (found["id"], found["reply_to"], found["swarm_name"])


def test_a_stranger_whose_name_reads_like_anothers_stops_nobody(project: Project, manager: MailboxManager) -> None:
    first = manager.send("coo", "b", "s", "x")
    project.stranger(
        ("send", {"from_agent": "Coo", "to_agent": "b"}), ("send", {"from_agent": "x", "to_agent": "B"})
    )
    assert [first.id] == [each.id for each in manager.check_mailbox("b")]


def test_what_a_stranger_says_oddly_is_read_as_far_as_it_makes_sense(
    project: Project, manager: MailboxManager
) -> None:
    (sent,) = project.stranger(("send", {"from_agent": "a", "to_agent": "b"}))
    path = project.mail / "b" / "inbox" / f"{sent['id']}.json"
    odd = {"id": "no id", "to_agent": "no name", "swarm_name": "no swarm", "priority": "high", "status": 7}
    path.write_text(json.dumps(sent | odd | {"own": {"x": 1}, "created_at": "soon"}), encoding="utf-8")
    (found,) = manager.check_mailbox("b")
    assert (found.id, found.to_agent, found.swarm_name) == (sent["id"], "b", None)
    assert MessagePriority.HIGH is found.priority
    manager.read_message(found.id)
    assert {"x": 1} == project.fields("b/inbox", sent["id"])["own"]


def test_what_a_stranger_gave_up_has_failed(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x")
    project.stranger(("mark", {"id": sent.id, "status": "failed"}))
    assert [] == manager.check_mailbox("b")
    again = manager.mark_processing(sent.id)
    assert again is not None and again.status is MessageStatus.PROCESSING


def test_a_stranger_that_knows_an_old_state_brings_nothing_back(project: Project, manager: MailboxManager) -> None:
    sent = manager.send("a", "b", "s", "x")
    stranger = Stranger(project.mail)
    manager.mark_completed(sent.id)
    stranger.mark(sent.id, "read")
    assert ["archived"] == [each.status.value for each in manager.check_mailbox("b", unread_only=False)]
    assert [f"{sent.id}.json"] == project.files("b/archive") and [] == project.files("b/inbox")


def test_a_stranger_may_call_the_human_the_ceo(project: Project, manager: MailboxManager) -> None:
    (request,) = project.stranger(("send", {"from_agent": "coo", "to_agent": "ceo"}))
    manager.send("coo", "user", "s", "x")
    assert 2 == manager.get_pending_count("user")["total"]
    with pytest.raises(NotAllowed, match="with a person's key"):
        manager.mark_completed(request["id"])
