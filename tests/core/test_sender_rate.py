"""`sender_rate`: every verb that writes letters counts them, by sender; what was not accepted does not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Mailbox, QuotaFull, Room, TooFast, TooLarge, draft
from postroom.core import conversations
from postroom.core.authorize import OWNER, agent_principal
from postroom.core.core import MANY_SENDERS, SenderRates
from postroom.settings import SERVICE_DEFAULTS, load_settings
from tests import conversing
from tests.rooms import FakeClock, RoomFactory

BURST = 3


@pytest.fixture
def paced(factory: RoomFactory) -> Room:
    return factory.room(sender_rate=1, sender_burst=BURST, thread_rate=0)


def spend(box: Mailbox, letters: int = BURST) -> None:
    for _ in range(letters):
        box.send("sink", "x")


def test_one_sender_is_slowed_down_and_no_other(paced: Room, clock: FakeClock) -> None:
    ann, bob = paced.mailbox("ann"), paced.mailbox("bob")
    spend(ann)
    with pytest.raises(TooFast) as refused:
        ann.send("sink", "one too many")
    assert refused.value.temporary and refused.value.retry_after == pytest.approx(1, abs=0.01)
    assert refused.value.keys
    spend(bob)
    clock.tick(1)
    ann.send("sink", "later")
    with pytest.raises(TooFast):
        ann.send("sink", "one too many")
    clock.tick(3600)
    spend(ann)
    with pytest.raises(TooFast):
        ann.send("sink", "what is not used is not saved")
    assert 2 * BURST + BURST + 1 == paced.mailbox("sink").counts()["total"]


def test_a_name_in_other_letters_is_the_same_sender(paced: Room) -> None:
    spend(paced.mailbox("ann"))
    with pytest.raises(TooFast):
        paced.acting_as(agent_principal("ann")).mailbox("ann").send("sink", "as another caller")


def test_several_letters_pass_all_together_or_not_at_all(paced: Room, clock: FakeClock) -> None:
    ann = paced.mailbox("ann")
    spend(ann, 1)
    with pytest.raises(TooFast):
        ann.send_many([draft("sink", str(n)) for n in range(BURST)])
    assert 1 == paced.mailbox("sink").counts()["total"]
    assert BURST - 1 == len(ann.send_many([draft("sink", str(n)) for n in range(BURST - 1)]))
    clock.tick(60)
    with pytest.raises(TooLarge, match="smaller pieces"):
        ann.send_many([draft("sink", str(n)) for n in range(BURST + 1)])
    assert BURST == paced.mailbox("sink").counts()["total"]


def test_a_letter_to_many_is_one_letter(paced: Room) -> None:
    paced.mailbox("ann").send([f"agent{n}" for n in range(10 * BURST)], "to everybody")
    spend(paced.mailbox("ann"), BURST - 1)


def test_the_same_letter_once_more_is_not_counted(paced: Room) -> None:
    ann = paced.mailbox("ann")
    ann.send("sink", "x", key="k")
    spend(ann, BURST - 1)
    assert ann.send("sink", "x", key="k").repeated


def test_what_was_not_accepted_is_not_counted(factory: RoomFactory) -> None:
    room = factory.room(sender_rate=1, sender_burst=BURST, inbox_quota=1)
    room.mailbox("bob").send("full", "x")
    for _ in range(2 * BURST):
        with pytest.raises(QuotaFull):
            room.mailbox("ann").send("full", "x")
    for n in range(BURST):
        room.mailbox("ann").send(f"other{n}", "x")


def _reply(room: Room) -> object:
    return room.mailbox("ann").reply(room.mailbox("ann").check(peek=True)[0].id, "x")


def _ack_and_reply(room: Room) -> object:
    return room.mailbox("ann").check(peek=True)[0].ack_and_reply("x")


def _turn(room: Room) -> object:
    saying = conversations.TakeTurn(body=["x"])
    return conversing.turn(room.core, OWNER, "talk", "ann", saying)


def _open_talk(room: Room) -> object:
    first = conversations.TakeTurn(body=["x"])
    opening = conversations.OpenConversation(id="second", creator="ann", first=first)
    return conversing.create(room.core, OWNER, opening)


VERBS: dict[str, Callable[[Room], object]] = {
    "send": lambda room: room.mailbox("ann").send("sink", "x"),
    "send_many": lambda room: room.mailbox("ann").send_many([draft("sink", "x")]),
    "reply": _reply,
    "forward": lambda room: room.mailbox("ann").forward(room.mailbox("ann").check(peek=True)[0].id, "sink"),
    "broadcast": lambda room: room.mailbox("ann").broadcast("team", "x"),
    "handoff": lambda room: room.mailbox("ann").handoff("sink", postroom.Handoff(work_completed="x")),
    "ack_and_reply": _ack_and_reply,
    "escalate": lambda room: room.mailbox("ann").escalate("x", reason="decision", ladder=["boss"]),
    "give_task": lambda room: room.mailbox("ann").give_task("sink", "x"),
    "admit": lambda room: room.mailbox("ann").tasks()[0].admit(),
    "accept": lambda room: room.mailbox("ann").tasks()[0].accept(),
    "turn": _turn,
    "create a conversation": _open_talk,
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_every_verb_that_writes_a_letter_is_counted(factory: RoomFactory, verb: Callable[[Room], Any]) -> None:
    free = factory.room()
    free.mailbox("bob").register(scopes=["team"])
    free.mailbox("bob").give_task("ann", "a task that ann was given")
    conversing.create(
        free.core,
        OWNER,
        conversations.OpenConversation(id="talk", creator="ann", guests=(conversations.Guest(agent="bob"),)),
    )
    paced = factory.room(sender_rate=1, sender_burst=1)
    paced.mailbox("ann").send("sink", "this was all")
    with pytest.raises(TooFast) as refused:
        verb(paced)
    assert refused.value.retry_after is not None
    verb(free)  # and nothing else is wrong with it


def test_senders_who_rest_are_forgotten() -> None:
    limits = load_settings({"sender_rate": 1000, "sender_burst": 1}, {"XDG_CONFIG_HOME": "/nowhere"})
    rates = SenderRates()
    for n in range(10 * MANY_SENDERS):
        rates.take(limits, {f"agent{n}": 1}, n / 1000)
    assert len(rates._full_at) <= MANY_SENDERS + 1


def test_the_library_has_no_rate_and_the_service_has_one(tmp_path: Path) -> None:
    nowhere = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert 0 == load_settings({}, nowhere).sender_rate
    served = load_settings({}, nowhere, defaults=SERVICE_DEFAULTS)
    assert (100, 2000) == (served.sender_rate, served.sender_burst)
    variable = nowhere | {"POSTROOM_SENDER_RATE": "7"}
    assert 7 == load_settings({}, variable, defaults=SERVICE_DEFAULTS).sender_rate
    assert 0 == load_settings({"sender_rate": "0"}, variable, defaults=SERVICE_DEFAULTS).sender_rate
    (tmp_path / "postroom").mkdir()
    (tmp_path / "postroom" / "config.toml").write_text("sender_rate = 9\n")
    assert 9 == load_settings({}, nowhere, defaults=SERVICE_DEFAULTS).sender_rate
