"""Who gets a broadcast, and which mailbox a name means."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from postroom.swarm import MailboxManager, MessagePriority, MessageType
from tests.swarm.project import Project


def subjects(manager: MailboxManager, name: str) -> list[str]:
    return [each.subject for each in manager.check_mailbox(name)]


def test_a_broadcast_reaches_every_member_but_its_sender(project: Project, manager: MailboxManager) -> None:
    sent = manager.broadcast("swarm_dev/architect", "swarm_dev", "News", "x", priority=MessagePriority.HIGH)
    assert ["swarm_dev/critic", "swarm_dev/implementer"] == [each.to_agent for each in sent]
    assert 2 == len({each.id for each in sent})
    for each in sent:
        assert (each.type, each.priority) == (MessageType.NOTIFICATION, MessagePriority.HIGH)
        assert (each.tags, each.swarm_name) == (["broadcast", "swarm:swarm_dev"], "swarm_dev")
        assert [each] == manager.check_mailbox(each.to_agent)
    assert not (project.mail / "swarm_dev__template").exists()


def test_a_broadcast_is_one_commit(project: Project, manager: MailboxManager) -> None:
    manager.room.mailbox("swarm_dev/critic").block("coo")
    with pytest.raises(postroom.NotAllowed):
        manager.broadcast("coo", "swarm_dev", "News", "x")
    assert [] == list(project.mail.glob("*/inbox/*"))


@pytest.mark.parametrize("name", ["critic", "swarm_dev/critic", "Critic"])
def test_a_broadcast_leaves_out_whom_it_is_told_to(manager: MailboxManager, name: str) -> None:
    exclude = [name]
    sent = manager.broadcast("architect", "swarm_dev", "News", "x", exclude=exclude)
    assert ["swarm_dev/implementer"] == [each.to_agent for each in sent] and [name] == exclude


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
    with pytest.raises(postroom.UnknownAgent, match="nobody else is in 'nobody'"):
        manager.send("coo", "broadcast:nobody", "News", "x")


@pytest.mark.parametrize("swarm", ["../swarm_dev", "a/b", "", ".."])
def test_a_swarms_name_is_never_a_path(manager: MailboxManager, swarm: str) -> None:
    with pytest.raises(postroom.Invalid):
        manager.broadcast("coo", swarm, "News", "x")


def test_who_registered_with_the_swarm_is_a_member_too_and_each_once(manager: MailboxManager) -> None:
    for name in ("helper", "swarm_dev/critic", "critic"):
        manager.room.mailbox(name).register(scopes=["swarm_dev"])
    sent = manager.broadcast("coo", "swarm_dev", "News", "x")
    expected = ["helper", "swarm_dev/architect", "swarm_dev/critic", "swarm_dev/implementer"]
    assert expected == sorted(each.to_agent for each in sent)


def test_a_file_that_can_be_nobodys_name_is_no_member(project: Project, manager: MailboxManager) -> None:
    project.member("swarm_dev", "read me", "-x")
    assert 3 == len(manager.broadcast("coo", "swarm_dev", "News", "x"))


def test_a_bare_name_with_a_swarm_is_the_member(manager: MailboxManager) -> None:
    sent = manager.send("architect", "critic", "s", "x", swarm_name="swarm_dev")
    assert ("swarm_dev/architect", "swarm_dev/critic") == (sent.from_agent, sent.to_agent)
    answer = manager.reply(sent.id, "critic", "fine")
    assert answer is not None and answer.from_agent == "swarm_dev/critic"
    assert ["Re: s"] == subjects(manager, "swarm_dev/architect") == subjects(manager, "architect")


def test_who_is_no_member_keeps_a_bare_name(manager: MailboxManager) -> None:
    sent = manager.send("architect", "coo", "s", "x", swarm_name="swarm_dev")
    assert ("swarm_dev/architect", "coo") == (sent.from_agent, sent.to_agent)
    assert ["s"] == subjects(manager, "coo") and [] == subjects(manager, "swarm_dev/coo")


def test_a_bare_name_finds_the_mail_of_its_only_swarm(project: Project, manager: MailboxManager) -> None:
    manager.broadcast("coo", "swarm_dev", "News", "x")
    manager.send("coo", "critic", "bare", "x")
    assert ["News", "bare"] == subjects(manager, "critic") and ["News"] == subjects(manager, "swarm_dev/critic")
    project.member("swarm_ops", "critic")  # now nobody knows which is meant
    assert ["bare"] == subjects(manager, "critic") and ["News"] == subjects(manager, "swarm_dev/critic")
