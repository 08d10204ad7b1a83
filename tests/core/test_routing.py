"""Routing by capability (M17): whoever can do it, the least busy first, chosen in the commit."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

import postroom
from postroom import Invalid, LoopDetected, NotAllowed, QuotaFull, Room, UnknownAgent
from postroom.policy.routing import Candidate, least_busy
from tests.rooms import FakeClock, RoomFactory, addresses, texts


@pytest.fixture
def team(room: Room) -> Room:
    """Python: bob and carol. SQL: dave. Both: eve."""
    for name, skills in {
        "bob": ["python"],
        "carol": ["python"],
        "dave": ["sql"],
        "eve": ["python", "sql"],
    }.items():
        room.mailbox(name).register(capabilities=skills)
    return room


def test_the_least_busy_is_found_by_tasks_then_letters_then_idleness_then_name() -> None:
    early, late = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)
    ranked = [
        Candidate(name="never", most_tasks=3),
        Candidate(name="idle", most_tasks=3, active_at=early),
        Candidate(name="later", most_tasks=3, active_at=late),
        Candidate(name="later2", most_tasks=3, active_at=late),
        Candidate(name="letters", most_tasks=3, letters=1, active_at=early),
        Candidate(name="tasks", most_tasks=3, tasks=1, active_at=early),
        Candidate(name="full", most_tasks=0, active_at=early),
        Candidate(name="fuller", most_tasks=1, tasks=1, active_at=early),
    ]
    assert least_busy(reversed(ranked)) == ranked


def test_a_letter_to_any_skill_reaches_an_agent_with_it(team: Room) -> None:
    sent = team.mailbox("ann").send("any:sql", "select it")
    assert len(sent.routed) == 1
    assert sent.routed[0] in {"dave", "eve"}
    assert addresses(sent.message) == ["any:sql"]
    assert sent.unknown == ()
    assert texts(team.mailbox(sent.routed[0]).check()) == ["select it"]
    both = team.mailbox("ann").send("any:python, sql", "both")
    assert (both.routed, addresses(both.message)) == (("eve",), ["any:python,sql"])


def test_work_is_spread_by_what_each_has_to_do(team: Room) -> None:
    ann = team.mailbox("ann")
    routed = Counter(ann.send("any:python", str(n)).routed[0] for n in range(9))
    assert routed == {"bob": 3, "carol": 3, "eve": 3}
    for work in team.mailbox("carol").claim(3):
        work.ack()
    assert ann.send("any:python", "x").routed == ("carol",)
    team.mailbox("carol").heartbeat(current_tasks=["t1"])
    for name in ("bob", "eve"):
        assert ann.send("any:python", "x").routed != ("carol",), name


def test_a_batch_is_spread_too(team: Room) -> None:
    receipts = team.mailbox("ann").send_many([postroom.draft("any:python", str(n)) for n in range(6)])
    assert Counter(receipt.routed[0] for receipt in receipts) == {"bob": 2, "carol": 2, "eve": 2}


def test_never_the_sender_nor_one_who_has_it_already(team: Room) -> None:
    assert {team.mailbox("bob").send("any:python", "x").routed[0] for _ in range(6)} == {"carol", "eve"}
    sent = team.mailbox("ann").send(["bob", "any:python"], "x", cc="eve")
    assert sent.routed == ("carol",)
    both = team.mailbox("ann").send(["any:sql", "any:python,sql"], "x")
    assert sorted(both.routed) == ["dave", "eve"]
    with pytest.raises(UnknownAgent):
        team.mailbox("dave").send(["eve", "any:sql"], "x")


def test_only_those_who_are_there_are_asked(team: Room, clock: FakeClock) -> None:
    clock.advance(10_000)
    with pytest.raises(
        UnknownAgent, match="all agents that can do 'python' are offline: bob, carol, eve"
    ) as refused:
        team.mailbox("ann").send("any:python", "x")
    assert refused.value.field == "to"
    team.mailbox("carol").heartbeat()
    assert team.mailbox("ann").send("any:python", "x").routed == ("carol",)
    team.mailbox("carol").leave()  # away is still routable
    assert team.mailbox("ann").send("any:python", "x").routed == ("carol",)


def test_agents_that_refuse_or_are_full_are_passed_over(factory: RoomFactory, team: Room) -> None:
    ann = team.mailbox("ann")
    team.mailbox("bob").block("ann")
    team.mailbox("carol").register(capabilities=["python"], allow_from=["zoe"])
    assert {ann.send("any:python", "x").routed[0] for _ in range(3)} == {"eve"}
    team.mailbox("eve").block("ann")
    with pytest.raises(NotAllowed):
        ann.send("any:python", "x")
    small = factory.room(inbox_quota=6)  # eve has three letters of ann: one sender more gets half of the others
    zoe = small.mailbox("zoe")
    routed = [zoe.send("any:python", str(n)).routed[0] for n in range(7)]
    assert [routed.count(name) for name in ("bob", "carol", "eve")] == [3, 3, 1]
    with pytest.raises(QuotaFull):
        zoe.send("any:python", "x")


def test_the_same_key_asks_nobody_again(team: Room) -> None:
    first = team.mailbox("ann").send("any:python", "x", key="k")
    again = team.mailbox("ann").send("any:python", "x", key="k")
    assert again.repeated and again.id == first.id
    assert sum(team.mailbox(name).counts()["total"] for name in ("bob", "carol", "eve")) == 1


def test_an_answer_and_a_further_word_find_each_other(team: Room) -> None:
    ann = team.mailbox("ann")
    sent = ann.send("any:sql", "question", cc="zoe")
    chosen = team.mailbox(sent.routed[0])
    answer = chosen.reply(sent.id, "answer", to_all=True)
    assert addresses(answer.message) == ["ann", "zoe"]
    more = ann.reply(sent.id, "one more thing")
    assert addresses(more.message) == [chosen.name]
    assert more.message.hops == sent.message.hops  # no relay: it went to who has the letter
    assert set(ann.conversations()[0].participants) == {"ann", "zoe", chosen.name}


def test_a_letter_is_never_routed_back_along_its_way(team: Room) -> None:
    first = team.mailbox("dave").send("bob", "x")
    passed = team.mailbox("bob").forward(first.id, "any:sql")
    assert passed.routed == ("eve",)
    with pytest.raises(UnknownAgent):
        team.mailbox("eve").forward(passed.id, "any:sql")
    with pytest.raises(LoopDetected):
        team.mailbox("eve").forward(passed.id, "dave")


@pytest.mark.parametrize("address", ["any:", "any:,", "any: ", "any:a,", "any:a\nb", "any:" + "x" * 129])
def test_a_bad_address_is_refused(factory: RoomFactory, team: Room, address: Any) -> None:
    before = factory.store.cursor()
    with pytest.raises(Invalid) as refused:
        team.mailbox("ann").send(address, "x")
    assert refused.value.field == "to"
    assert factory.store.cursor() == before


def test_two_senders_at_once_do_not_choose_the_same_idle_agent(factory: RoomFactory) -> None:
    room = factory.room()
    names = [f"w{n}" for n in range(8)]
    for name in names:
        room.mailbox(name).register(capabilities=["x"])
    start = threading.Barrier(8)

    def send(number: int) -> None:
        box = factory.room().mailbox(f"s{number}")
        start.wait(10)
        box.send("any:x", "x")

    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [room.mailbox(name).counts()["total"] for name in names] == [1] * 8


def test_routed_letters_go_with_an_export(factory: RoomFactory, team: Room, tmp_path: Any) -> None:
    team.mailbox("ann").send("any:sql", "x")
    (tmp_path / "other").mkdir()
    other = RoomFactory(factory.kind, tmp_path / "other", factory.clock)
    other.room().load(list(team.export()))
    assert sum(other.room().mailbox(name).counts()["total"] for name in ("dave", "eve")) == 1
    other.store.close()
