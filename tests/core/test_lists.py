"""Long lists: letters by number, queues, tasks and hits page by page, dead letters in groups."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Invalid, NotAllowed, Room, UnknownMessage
from postroom.core.authorize import agent_principal
from postroom.core.dead import Dead, DeadGroup, GroupDead, PurgeDead, ReviveAll
from postroom.core.queues import ListQueues
from postroom.core.search import LONGEST, ListLetters, Search
from postroom.core.tasks import ListTasks
from postroom.core.verb import perform
from postroom.core.work import Ack
from tests.rooms import FakeClock, RoomFactory


def letters(room: Room, **asked: Any) -> list[str]:
    return [one.line for one in perform(room.core, room.principal, ListLetters(**asked)).letters]


def test_letters_are_listed_by_number_the_newest_first_and_each_once(room: Room) -> None:
    sent = [room.mailbox("ann").send("bob" if n % 2 else "cleo", f"{n}\nmore", subject="s").id for n in range(7)]
    room.mailbox("bob").read(sent[1])
    found, before = list[str](), None
    while True:
        page = perform(room.core, room.principal, ListLetters(limit=3, before=before))
        assert (page.total == 7) is (before is None) and page.newest >= page.letters[0].number
        found += [one.line for one in page.letters]
        before = page.next
        if before is None:
            break
    assert ["6", "5", "4", "3", "2", "1", "0"] == found
    assert ["5", "3", "1"] == letters(room, recipient="bob")
    assert ["6", "5"] == letters(
        room, after=perform(room.core, room.principal, ListLetters(limit=3)).letters[2].number
    )
    assert ["2"] == letters(room, thread=sent[2])
    assert [] == letters(room, sender="bob") and 7 == len(letters(room, sender="ann", agent_id="ann"))
    (first,) = perform(room.core, room.principal, ListLetters(recipient="bob", limit=1)).letters
    assert (first.sender, first.to, first.state, first.characters) == ("ann", ["bob"], "unread", 6)


def test_the_number_of_letters_follows_without_counting_all_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def total() -> int | None:
        return perform(room.core, room.principal, ListLetters(limit=1)).total

    for sent in range(1, 4):
        room.mailbox("ann").send("bob", "x")
        assert sent == total() == total()
    work = room.mailbox("bob").claim()
    assert work
    work.reject("no")  # the bounce is a letter, too
    assert 4 == total()
    perform(room.core, room.principal, PurgeDead(agent_id="bob", ids=work.id))
    assert 4 == total()
    room.core.letter_count.recount_at = 0.0
    assert 3 == total()


def test_a_summary_is_short_whatever_the_letter(room: Room) -> None:
    names = [f"agent-{n}" for n in range(8)]
    room.mailbox("ann").send(names, "x" * 100_000, subject="y" * 200, bcc="eve")
    (one,) = perform(room.core, room.principal, ListLetters()).letters
    assert (len(one.line), len(one.subject), len(one.to)) == (LONGEST, LONGEST, 5) and one.more_to >= 3
    (seen,) = perform(room.core, agent_principal("agent-1"), ListLetters(agent_id="agent-1")).letters
    assert "eve" not in seen.to and 3 == seen.more_to


def test_an_agent_lists_its_own_letters_alone(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", "for bob")
    room.mailbox("ann").send("cleo", "for cleo")
    bob = factory.room(agent_principal("bob"))
    assert ["for bob"] == letters(bob) == letters(bob, sender="ann")
    with pytest.raises(NotAllowed):
        letters(bob, agent_id="cleo")
    with pytest.raises(Invalid, match="sent or received here"):
        letters(bob, recipient="cleo")


def test_queues_are_of_whoever_registered_or_has_mail(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("coder").register(scopes=["web"])
    for text in ("1", "2"):
        room.mailbox("coder").send("bob", text)
    assert room.mailbox("bob").claim()
    found = perform(room.core, room.principal, ListQueues())
    bob, coder = found.queues
    assert (bob.agent, bob.registered, bob.status, bob.unread, bob.claimed, bob.backlog) == (
        "bob",
        False,
        None,
        1,
        1,
        2,
    )
    assert (coder.agent, coder.scopes, coder.status, coder.backlog) == ("coder", ["web"], "idle", 0)
    room.mailbox("coder").leave(dormant=True)
    assert room.agent("coder").presence.status == perform(room.core, room.principal, ListQueues()).queues[1].status
    page = perform(room.core, room.principal, ListQueues(limit=1))
    assert (page.next, len(page.queues)) == ("bob", 1)
    assert ["coder"] == [one.agent for one in perform(room.core, room.principal, ListQueues(after="bob")).queues]
    with pytest.raises(NotAllowed):
        perform(room.core, agent_principal("bob"), ListQueues())


def test_tasks_and_hits_go_on_behind_the_last_that_was_shown(room: Room, clock: FakeClock) -> None:
    for number in range(5):
        clock.advance(1)
        room.mailbox("ann").give_task("bob", f"Task zebra {number}")
    first = perform(room.core, room.principal, ListTasks(agent_id="bob", limit=2))
    second = perform(
        room.core, room.principal, ListTasks(agent_id="bob", limit=2, after=first[-1].standing.letter)
    )
    third = perform(
        room.core, room.principal, ListTasks(agent_id="bob", limit=2, after=second[-1].standing.letter)
    )
    pages = [one.standing.letter for page in (first, second, third) for one in page]
    whole = [one.standing.letter for one in perform(room.core, room.principal, ListTasks(limit=10))]
    assert pages == whole and len(whole) == 5
    assert [] == perform(room.core, room.principal, ListTasks(after=whole[-1]))

    found, before = list[str](), None
    while page := perform(room.core, room.principal, Search(query="zebra", limit=2, before=before)).letters:
        found += [letter.id for letter in page]
        before = page[-1].id
    assert whole == found
    with pytest.raises(UnknownMessage):
        perform(room.core, room.principal, Search(query="zebra", before="none"))


def bury(room: Room, to: str, reason: str) -> str:
    id = room.mailbox("ann").send(to, reason).id
    room.mailbox(to).read(id).reject(reason)
    return id


def test_dead_letters_are_counted_by_mailbox_and_reason(factory: RoomFactory) -> None:
    room = factory.room()
    ids = [
        bury(room, to, reason)
        for to, reason in (("bob", "late"), ("bob", "late"), ("bob", "wrong"), ("cleo", "late"))
    ]
    found = perform(room.core, room.principal, GroupDead())
    assert [
        DeadGroup("bob", "late", 2),
        DeadGroup("bob", "wrong", 1),
        DeadGroup("cleo", "late", 1),
    ] == found.groups
    assert 4 == found.total
    assert [DeadGroup("cleo", "late", 1)] == perform(room.core, room.principal, GroupDead(agent_id="cleo")).groups
    dead = perform(room.core, room.principal, Dead(reason="late", limit=2)).letters
    assert ids[:2] == [one.message.id for one in dead]
    rest = perform(room.core, room.principal, Dead(reason="late", after=dead[-1].delivery.number)).letters
    assert [ids[3]] == [one.message.id for one in rest]


def test_what_matches_is_revived_in_slices_and_what_died_since_is_left(factory: RoomFactory) -> None:
    room = factory.room()
    for to in ("bob", "bob", "cleo", "bob"):
        bury(room, to, "late")
    bury(room, "bob", "wrong")
    until = perform(room.core, room.principal, GroupDead()).until
    factory.clock.advance(1)
    bury(room, "bob", "late")
    slices = [perform(room.core, room.principal, ReviveAll(reason="late", until=until, limit=3)) for _ in range(3)]
    assert [(3, 1), (1, 0), (0, 0)] == [(one.revived, one.left) for one in slices]
    assert 2 == perform(room.core, room.principal, GroupDead()).total
    assert 1 == perform(room.core, room.principal, ReviveAll(agent_id="bob", until=until)).revived
    with pytest.raises(NotAllowed):
        perform(room.core, agent_principal("bob"), ReviveAll(agent_id="cleo", until=until))


def test_an_answer_that_is_said_again_with_its_key_is_sent_once(room: Room) -> None:
    id = room.mailbox("ann").send("bob", "How?").id
    for _ in range(2):
        perform(room.core, room.principal, Ack(agent_id="bob", ids=id, reply="So.", key="k"))
    assert ["So."] == [letter.text for letter in room.mailbox("ann").check()]
    other = room.mailbox("ann").send("bob", "And?").id
    for _ in range(2):  # without a key, over a wire, each ack sends its answer
        perform(room.core, room.principal, Ack(agent_id="bob", ids=other, reply="So."))
    assert 2 == len(room.mailbox("ann").check())
