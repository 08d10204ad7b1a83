"""The directory (D1 to D3): cards, presence, and many who register and beat at once."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import astuple

from postroom import NameTaken, Room, UnknownAgent
from postroom.core.authorize import Principal, agent_principal
from postroom.errors import TooLarge
from postroom.formats.plain import plain
from postroom.model.agent import MAP_STATES, WORDS, Status, Warmth
from postroom.store.protocol import record_keys
from tests.rooms import FakeClock, RoomFactory, texts

CARD: dict[str, Any] = {
    "display_name": "Der Coder", "description": "Writes\ncode.", "capabilities": ("python", "sql"),
    "program": "claude", "model": "opus", "scopes": ("team", "night"), "allow_from": ("ann", "bob"),
    "max_concurrent_tasks": 7, "metadata": {"k": [1, {"deep": True}]},
}  # fmt: skip


def test_a_card_is_kept_as_it_was_written(factory: RoomFactory, clock: FakeClock) -> None:
    factory.room().mailbox("coder").register(**CARD)
    factory.reopen()
    agent = factory.room().agent("coder")
    assert {name: getattr(agent.card, name) for name in CARD} == CARD
    assert (agent.card.id, agent.card.registered_at, agent.card.principal) == ("coder", clock.wall, "owner")
    assert (agent.presence.last_heartbeat, agent.presence.last_active_at) == (clock.wall, clock.wall)


def test_a_bare_card_has_the_defaults(room: Room) -> None:
    card = room.mailbox("coder").register().card
    assert (card.allow_from, card.max_concurrent_tasks, card.scopes) == (("*",), 3, ())


def test_a_card_that_is_too_large_is_refused(factory: RoomFactory) -> None:
    most = 4000
    room = factory.room(max_card_bytes=most)
    box = room.mailbox("ann")
    box.register(metadata={"k": "x" * (most // 2)})
    many = [f"scope-{number}" for number in range(most // 8)]
    for message in ({"metadata": {"k": "x" * most}}, {"scopes": many}):
        with pytest.raises(TooLarge) as refused:
            box.register(**message)
        assert "card" == refused.value.field
    assert most // 2 == len(room.agent("ann").card.metadata["k"])


def test_agents_are_found_by_scope_and_capability(room: Room) -> None:
    room.mailbox("a").register(scopes=["team"], capabilities=["sort"])
    room.mailbox("b").register(scopes=["team"])
    room.mailbox("team/c").register(capabilities=["sort"])
    assert [agent.card.id for agent in room.agents()] == ["a", "b", "team/c"]
    assert [agent.card.id for agent in room.agents(scope="team")] == ["a", "b", "team/c"]
    assert [agent.card.id for agent in room.agents(capability="sort")] == ["a", "team/c"]
    assert [agent.card.id for agent in room.agents(scope="team", capability="dance")] == []


def test_who_never_registered_is_unknown(room: Room) -> None:
    room.mailbox("ann").send("ghost", "x")
    for act in (room.mailbox("ghost").heartbeat, room.mailbox("ghost").leave):
        with pytest.raises(UnknownAgent) as refused:
            act()
        assert refused.value.field == "id"
    with pytest.raises(UnknownAgent):
        room.agent("ghost")


def test_mailboxes_that_nobody_registered_are_listed_for_the_operator_alone(room: Room) -> None:
    room.mailbox("coder").register(scopes=["team"])
    room.mailbox("ann").send("ghost", "x")
    room.mailbox("ghost").claim().reject("no")  # type: ignore[union-attr]
    listed = {agent.card.id: agent.registered for agent in room.agents()}
    assert listed == {"ann": False, "coder": True, "ghost": False}
    ghost = room.agents()[2]
    assert (ghost.presence.status, ghost.presence.last_heartbeat) == (Status.OFFLINE, None)
    assert {"registered": False}.items() <= plain(ghost).items()
    assert plain(ghost)["card"]["registered_at"] is None
    assert ["coder"] == [agent.card.id for agent in room.agents(scope="team")]
    for principal in (agent_principal("coder"), Principal("nobody")):
        assert ["coder"] == [agent.card.id for agent in room.acting_as(principal).agents()]


# seconds of silence -> what an agent counts as, with the default limits
SILENCE = [
    (0, Status.IDLE, Warmth.ACTIVE),
    (60, Status.IDLE, Warmth.ACTIVE),
    (60.1, Status.OFFLINE, Warmth.AWAY),
    (119.9, Status.OFFLINE, Warmth.AWAY),
    (120, Status.OFFLINE, Warmth.EXPIRED),
    (3719, Status.OFFLINE, Warmth.EXPIRED),
    (3720, Status.OFFLINE, Warmth.GONE),
    (10**7, Status.OFFLINE, Warmth.GONE),
]


@pytest.mark.parametrize(("seconds", "status", "warmth"), SILENCE)
def test_presence_follows_the_last_sign_of_life(
    room: Room, clock: FakeClock, seconds: float, status: Status, warmth: Warmth
) -> None:
    room.mailbox("coder").register()
    clock.advance(seconds)
    presence = room.agent("coder").presence
    assert (presence.status, presence.warmth) == (status, warmth)
    room.mailbox("coder").heartbeat()
    assert room.agent("coder").presence.status is Status.IDLE


def test_the_words_of_the_designs_map_by_one_table() -> None:
    assert {str(ours): astuple(theirs) for ours, theirs in WORDS.items()} == {
        "idle": ("active", "idle", "idle"), "busy": ("active", "busy", "busy"),
        "active": ("active", "idle", "active"), "away": ("idle", "offline", "orphaned"),
        "offline": ("offline", "offline", "stopped"), "expired": ("offline", "offline", "stopped"),
        "gone": ("offline", "offline", "stopped"), "dormant": ("offline", "offline", "suspended"),
    }  # fmt: skip
    assert set(Status) | set(Warmth) == set(WORDS)
    with_other_words = {"registered", "active", "waiting", "stopping", "failed", "error"}
    assert with_other_words == {state for state, ours in MAP_STATES.items() if WORDS[ours].map != state}


def test_tasks_make_an_agent_busy_until_all_are_done(room: Room) -> None:
    coder = room.mailbox("coder")
    assert coder.register().presence.status is Status.IDLE
    busy = coder.heartbeat(current_tasks=["t-1", "t-2"]).presence
    assert (busy.status, busy.current_tasks) == (Status.BUSY, ("t-1", "t-2"))
    assert coder.heartbeat().presence.current_tasks == ("t-1", "t-2")  # what is not said stays
    assert coder.heartbeat(current_tasks=[]).presence.status is Status.IDLE


def test_status_and_current_tasks_follow_the_tasks_an_agent_takes_on(room: Room) -> None:
    ann, coder = room.mailbox("ann"), room.mailbox("coder")
    coder.register()
    first, second = (ann.give_task("coder", text).id for text in ("one", "two"))

    def now() -> tuple[str, tuple[str, ...]]:
        one, (_, listed) = room.agent("coder"), room.agents()
        assert one == listed
        return one.presence.status, one.presence.current_tasks

    assert now() == ("idle", ())
    coder.task(second).accept()
    assert now() == ("busy", (second,))
    coder.task(first).accept()
    coder.task(second).start()
    assert now() == ("busy", (second, first))
    coder.task(second).ask("?")
    assert now() == ("busy", (second, first))
    ann.task(second).answer("!")
    coder.task(second).complete()
    assert now() == ("busy", (first,))
    ann.task(first).cancel()
    assert now() == ("idle", ())


def test_tasks_taken_on_and_tasks_an_agent_tells_of_count_once(room: Room) -> None:
    coder = room.mailbox("coder")
    coder.register()
    id = room.mailbox("ann").give_task("coder", "x").id
    coder.task(id).accept()
    assert coder.heartbeat(current_tasks=["own", id]).presence.current_tasks == (id, "own")
    coder.task(id).complete()
    assert room.agent("coder").presence.current_tasks == ("own",)  # a heartbeat of before is old news
    assert coder.heartbeat(current_tasks=[]).presence.status is Status.IDLE


def test_what_was_taken_on_is_still_there_after_a_restart(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("coder").register()
    id = room.mailbox("ann").give_task("coder", "x").id
    room.mailbox("coder").task(id).accept()
    factory.reopen()
    assert factory.room().mailbox("coder").register().presence.status is Status.BUSY
    assert [task.id for task in factory.room().mailbox("coder").tasks(states=["accepted", "working"])] == [id]


def test_agents_that_are_gone_are_shown_on_request(room: Room, clock: FakeClock) -> None:
    room.mailbox("old").register(scopes=["team"], capabilities=["sort"])
    clock.advance(3720)
    room.mailbox("new").register()
    assert [agent.card.id for agent in room.agents()] == ["new"]
    assert [agent.card.id for agent in room.agents(gone=True)] == ["new", "old"]
    assert room.agents(capability="sort") == room.agents(scope="team") == []
    assert [agent.card.id for agent in room.agents(scope="team", gone=True)] == ["old"]
    assert room.agent("old").presence.warmth is Warmth.GONE
    room.mailbox("old").heartbeat()
    assert [agent.card.id for agent in room.agents()] == ["new", "old"]


def test_who_starts_again_is_idle(room: Room) -> None:
    coder = room.mailbox("coder")
    coder.register()
    coder.heartbeat(current_tasks=["t-1"], poll_interval=100)
    presence = coder.register().presence
    assert (presence.status, presence.current_tasks) == (Status.IDLE, ())


def test_a_slow_poller_is_given_three_of_its_intervals(room: Room, clock: FakeClock) -> None:
    coder = room.mailbox("coder")
    coder.register()
    coder.heartbeat(poll_interval=100)
    clock.advance(300)
    assert room.agent("coder").presence.warmth is Warmth.ACTIVE
    clock.advance(1)
    assert room.agent("coder").presence.warmth is Warmth.AWAY


def test_activity_is_stamped_when_it_is_reported(room: Room, clock: FakeClock) -> None:
    coder = room.mailbox("coder")
    coder.register()
    began = clock.wall
    clock.advance(10)
    assert coder.heartbeat().presence.last_active_at == began
    assert coder.heartbeat(active=True).presence.last_active_at == began + timedelta(seconds=10)
    assert room.agent("coder").presence.last_heartbeat == clock.wall


def test_who_says_goodbye_is_away_at_once_and_mail_waits(room: Room, clock: FakeClock) -> None:
    coder = room.mailbox("coder")
    coder.register()
    assert coder.leave().presence.warmth is Warmth.AWAY
    clock.advance(60)
    assert room.agent("coder").presence.warmth is Warmth.EXPIRED
    room.mailbox("ann").send("coder", "for your return")
    assert coder.heartbeat().presence.warmth is Warmth.ACTIVE
    assert texts(coder.check()) == ["for your return"]


@pytest.mark.parametrize("jump", [-(10**8), 10**8])
def test_a_wall_clock_that_jumps_kills_nobody(room: Room, clock: FakeClock, jump: float) -> None:
    room.mailbox("coder").register()
    clock.jump(jump)
    assert room.agent("coder").presence.status is Status.IDLE


def test_nobody_survives_a_reboot(factory: RoomFactory, clock: FakeClock) -> None:
    factory.room().mailbox("coder").register()
    clock.reboot()
    factory.reopen()
    assert factory.room().agent("coder").presence.warmth is Warmth.EXPIRED
    clock.advance(3601)
    assert factory.room().agent("coder").presence.warmth is Warmth.GONE


def test_a_live_name_is_not_given_to_another_principal(factory: RoomFactory, clock: FakeClock) -> None:
    owner, agent = factory.room(), factory.room(agent_principal("coder"))
    agent.mailbox("coder").register(description="first")
    agent.mailbox("coder").register(description="itself again")
    for seconds in (0, 119):  # away is still there
        clock.advance(seconds)
        with pytest.raises(NameTaken) as refused:
            owner.mailbox("coder").register(description="thief")
        assert refused.value.field == "id"
    assert owner.agent("coder").card.description == "itself again"
    clock.advance(2)
    assert owner.mailbox("coder").register(description="heir").card.principal == "owner"


def at_once(*acts: Any) -> None:
    start = threading.Barrier(len(acts))
    failures: list[BaseException] = []

    def run(act: Any) -> None:
        start.wait(30)
        try:
            act()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_eight_at_once_register_and_beat_and_none_is_lost(room: Room) -> None:
    def live(number: int) -> None:
        box = room.mailbox(f"agent-{number}")
        box.register(scopes=["team", f"own-{number}"])
        for beat in range(5):
            box.heartbeat(current_tasks=[f"task-{beat}"])

    at_once(*(lambda n=n: live(n) for n in range(8)))
    agents = room.agents(scope="team")
    assert [agent.card.id for agent in agents] == [f"agent-{n}" for n in range(8)]
    assert all(agent.presence.current_tasks == ("task-4",) for agent in agents)
    room.mailbox("ann").broadcast("team", "x")
    assert all(room.mailbox(f"agent-{n}").counts()["total"] == 1 for n in range(8))


def test_eight_at_once_at_one_card_tear_nothing(room: Room) -> None:
    def rename(number: int) -> None:
        for _ in range(5):
            room.mailbox("coder").register(description=str(number), scopes=[f"scope-{number}"])
            room.mailbox("coder").heartbeat(current_tasks=[str(number)])

    at_once(*(lambda n=n: rename(n) for n in range(8)))
    card = room.agent("coder").card
    assert card.scopes == (f"scope-{card.description}",)
    assert [n for n in range(8) if record_keys(room.core.store, f"member:scope-{n}")] == [int(card.description)]
