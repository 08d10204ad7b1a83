"""Who gets a broadcast, and which mailbox a name means."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from postroom.swarm import MailboxManager, MessagePriority, MessageType, mail
from tests.swarm.project import Project


def subjects(manager: MailboxManager, name: str) -> list[str]:
    return [each.subject for each in manager.check_mailbox(name)]


def test_a_broadcast_reaches_every_member_but_its_sender(project: Project, manager: MailboxManager) -> None:
    sent = manager.broadcast("swarm_dev/architect", "swarm_dev", "News", "x", priority=MessagePriority.HIGH)
    assert ["critic", "implementer"] == [each.to_agent for each in sent]
    assert 2 == len({each.id for each in sent})
    for each in sent:
        assert (each.type, each.priority) == (MessageType.NOTIFICATION, MessagePriority.HIGH)
        assert (each.tags, each.swarm_name) == (["broadcast", "swarm:swarm_dev"], "swarm_dev")
        for name in (each.to_agent, f"swarm_dev/{each.to_agent}"):
            assert [each] == manager.check_mailbox(name)
    assert ["critic", "implementer"] == sorted(path.parent.name for path in project.mail.glob("*/inbox"))


def test_a_broadcast_to_an_agent_who_refuses_it_reaches_nobody(project: Project, manager: MailboxManager) -> None:
    manager.room.mailbox("critic").block("coo")
    with pytest.raises(postroom.NotAllowed):
        manager.broadcast("coo", "swarm_dev", "News", "x")
    assert [] == list(project.mail.glob("*/inbox/*"))


def test_names_that_differ_in_case_only_are_one_agent(project: Project, manager: MailboxManager) -> None:
    project.member("swarm_dev", "Auditor")
    manager.send("coo", "auditor", "bare", "x")
    manager.send("coo", "swarm_dev/auditor", "whole", "x")
    assert ["auditor"] == [
        each.to_agent for each in manager.broadcast("coo", "swarm_dev", "News", "x") if "udit" in each.to_agent
    ]
    for name in ("auditor", "swarm_dev/auditor"):
        assert ["bare", "whole", "News"] == subjects(manager, name)
    for name in ("Auditor", "swarm_dev/Auditor", "Swarm_Dev/auditor"):
        with pytest.raises(postroom.LookAlike, match="auditor"):
            manager.check_mailbox(name)
        with pytest.raises(postroom.LookAlike, match="auditor"):
            manager.send("coo", name, "x", "x")
    with pytest.raises(postroom.LookAlike, match="auditor"):
        manager.send("Auditor", "coo", "x", "x")


def letters_after_a_broadcast_that_fails(project: Project) -> list[str]:
    """The last member's inbox is full, which the commit finds out: who has a letter of the broadcast then?"""
    with postroom.open(f"files:{project.mail}?layout=swarm", inbox_quota=1) as room:
        manager = MailboxManager(room=room)
        manager.send("coo", "implementer", "The one that fits", "x")
        with pytest.raises(postroom.QuotaFull):
            manager.broadcast("coo", "swarm_dev", "News", "x")
        return [name for name in ("architect", "critic", "implementer") if "News" in subjects(manager, name)]


def test_a_broadcast_is_one_commit(project: Project) -> None:
    assert [] == letters_after_a_broadcast_that_fails(project)


def test_a_broadcast_in_several_commits_would_be_seen(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mail._commit
    monkeypatch.setattr(mail, "_commit", lambda room, posts: [whole(room, [post])[0] for post in posts])
    assert ["architect", "critic"] == letters_after_a_broadcast_that_fails(project)


def missed_by_a_broadcast(project: Project) -> set[str]:
    """Return the members, by file or directory, that got nothing or got it twice."""
    with postroom.open(f"files:{project.mail}?layout=swarm") as room:
        room.mailbox("helper").register(scopes=["swarm_dev"])
        manager = MailboxManager(room=room)
        manager.broadcast("coo", "swarm_dev", "News", "x")
        names = {"architect", "critic", "implementer", "helper"}
        return {name for name in names if ["News"] != subjects(manager, name)}


def test_a_broadcast_misses_nobody(project: Project) -> None:
    assert set() == missed_by_a_broadcast(project)


@pytest.mark.parametrize(
    ("source", "missed"), [("_registered", {"helper"}), ("_files_of", {"architect", "critic", "implementer"})]
)
def test_a_broadcast_that_misses_members_would_be_seen(
    project: Project, monkeypatch: pytest.MonkeyPatch, source: str, missed: set[str]
) -> None:
    monkeypatch.setattr(mail, source, lambda *_: [])
    assert missed == missed_by_a_broadcast(project)


@pytest.mark.parametrize("name", ["critic", "swarm_dev/critic", "Critic"])
def test_a_broadcast_leaves_out_the_excluded_agents(manager: MailboxManager, name: str) -> None:
    exclude = [name]
    sent = manager.broadcast("architect", "swarm_dev", "News", "x", exclude=exclude)
    assert ["implementer"] == [each.to_agent for each in sent] and [name] == exclude


def test_a_broadcast_takes_what_send_takes(manager: MailboxManager) -> None:
    more: dict[str, Any] = {"payload": {"n": 1}, "attachments": ["a"], "thread_id": "t-1", "tags": ["late"]}
    sent = manager.broadcast("coo", "swarm_dev", "News", "x", **more)
    assert 3 == len(sent)
    for each in sent:
        assert (each.payload, each.attachments, each.thread_id) == ({"n": 1}, ["a"], "t-1")
        assert ["broadcast", "swarm:swarm_dev", "late"] == each.tags
    with pytest.raises(TypeError):
        manager.broadcast("coo", "swarm_dev", "News", "x", nonsense=1)


def test_send_to_a_broadcast_address_is_a_broadcast(manager: MailboxManager) -> None:
    sent = manager.send("coo", "broadcast:swarm_dev", "All", "x")
    assert ("broadcast:swarm_dev", "swarm_dev", MessageType.REQUEST) == (sent.to_agent, sent.swarm_name, sent.type)
    for name in ("architect", "critic", "implementer"):
        (found,) = manager.check_mailbox(f"swarm_dev/{name}")
        assert "broadcast" in found.tags and found.type is MessageType.REQUEST


def test_an_empty_swarm_gets_nothing_and_says_so(manager: MailboxManager) -> None:
    assert [] == manager.broadcast("coo", "nobody", "News", "x")
    with pytest.raises(postroom.UnknownAgent, match="no other agent is in 'nobody'"):
        manager.send("coo", "broadcast:nobody", "News", "x")


@pytest.mark.parametrize("swarm", ["../swarm_dev", "a/../b", "", ".."])
def test_a_swarms_name_is_never_a_path(manager: MailboxManager, swarm: str) -> None:
    with pytest.raises(postroom.Invalid):
        manager.broadcast("coo", swarm, "News", "x")


def test_in_a_swarm_whose_name_holds_a_colon_everybody_has_the_bare_name(manager: MailboxManager) -> None:
    manager.room.mailbox("helper").register(scopes=["swarm:dev"])
    assert 1 == len(manager.broadcast("coo", "swarm:dev", "News", "x"))
    (letter,) = manager.check_mailbox("helper")
    assert "swarm:dev" == letter.swarm_name


def test_who_registered_with_the_swarm_is_a_member_too_and_each_once(manager: MailboxManager) -> None:
    for name in ("helper", "swarm_dev/critic", "critic", "swarm_dev/implementer"):
        manager.room.mailbox(name).register(scopes=["swarm_dev"])
    sent = manager.broadcast("coo", "swarm_dev", "News", "x")
    expected = ["architect", "critic", "helper", "swarm_dev/implementer"]  # by the names they registered
    assert expected == sorted(each.to_agent for each in sent)


def test_a_file_that_can_be_nobodys_name_is_no_member(project: Project, manager: MailboxManager) -> None:
    project.member("swarm_dev", "read me", "-x")
    assert 3 == len(manager.broadcast("coo", "swarm_dev", "News", "x"))


def test_a_bare_name_with_a_swarm_is_the_member(manager: MailboxManager) -> None:
    sent = manager.send("architect", "critic", "s", "x", swarm_name="swarm_dev")
    assert ("architect", "critic") == (sent.from_agent, sent.to_agent)
    assert ["s"] == subjects(manager, "swarm_dev/critic") == subjects(manager, "critic")
    answer = manager.reply(sent.id, "critic", "fine")
    assert answer is not None and answer.from_agent == "critic"
    assert ["Re: s"] == subjects(manager, "swarm_dev/architect") == subjects(manager, "architect")


def test_who_is_no_member_keeps_a_bare_name(manager: MailboxManager) -> None:
    sent = manager.send("architect", "coo", "s", "x", swarm_name="swarm_dev")
    assert ("architect", "coo") == (sent.from_agent, sent.to_agent)
    assert ["s"] == subjects(manager, "coo") and [] == subjects(manager, "swarm_dev/coo")


def test_a_bare_name_finds_the_mail_of_its_only_swarm(project: Project, manager: MailboxManager) -> None:
    manager.broadcast("coo", "swarm_dev", "News", "x")
    manager.send("coo", "critic", "bare", "x")
    manager.send("coo", "swarm_dev/critic", "full", "x")
    for name in ("critic", "swarm_dev/critic"):
        assert ["News", "bare", "full"] == subjects(manager, name)
    project.member("swarm_ops", "critic")  # now a bare name alone may mean either
    assert ["News", "bare"] == subjects(manager, "critic") and [] == subjects(manager, "swarm_ops/critic")
    assert ["News", "full"] == subjects(manager, "swarm_dev/critic")


def test_a_letter_to_a_bare_name_reaches_the_member_that_is_registered_with_its_swarm(
    manager: MailboxManager,
) -> None:
    """No member file tells that the two spellings are one, so the letter lies where that agent looks."""
    manager.room.mailbox("swarm_dev/helper").register(scopes=["swarm_dev"])
    request = manager.send("helper", "coo", "Question", "x", swarm_name="swarm_dev")
    manager.send("coo", "helper", "News", "x", swarm_name="swarm_dev")
    assert manager.reply(request.id, "coo", "yes") is not None
    assert ["News", "Re: Question"] == sorted(subjects(manager, "swarm_dev/helper"))
    manager.room.mailbox("helper").register(scopes=["swarm_dev"])
    manager.send("coo", "helper", "By its own name", "x", swarm_name="swarm_dev")
    assert ["By its own name"] == subjects(manager, "helper")
