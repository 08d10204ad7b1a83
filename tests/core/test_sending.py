"""Sending (M1, M2): one, many, a whole scope; all or none; the same key never twice."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import IdTaken, Invalid, NotAllowed, Room, StoreFailing, UnknownAgent, draft
from postroom.store.protocol import Plan, Posted, Store, Write
from tests.rooms import FakeClock, RoomFactory, addresses, texts


def reached(room: Room, *names: str) -> list[str]:
    return [name for name in names if room.mailbox(name).check(peek=True)]


def test_a_letter_reaches_everyone_it_names_once(room: Room) -> None:
    sent = room.mailbox("ann").send(["bob", "bob"], "x", cc=("bob", "carol"), bcc={"carol", "dave"})
    assert [(r.address, r.kind) for r in sent.message.recipients] == [
        ("bob", "to"), ("carol", "cc"), ("dave", "bcc")
    ]  # fmt: skip
    for name, way in [("bob", "to"), ("carol", "cc"), ("dave", "bcc")]:
        (letter,) = room.mailbox(name).check()
        assert (letter.id, letter.delivery.kind) == (sent.id, way)


def test_a_set_of_names_is_written_in_the_same_order_by_every_process(room: Room) -> None:
    names = {f"agent-{number}" for number in range(50)}
    sent = room.mailbox("ann").send(names, "x").message
    assert addresses(sent) == sorted(names)


def test_each_recipient_has_a_delivery_of_its_own(room: Room) -> None:
    room.mailbox("ann").send(["bob", "carol"], "x")
    room.mailbox("bob").check()[0].ack()
    assert room.mailbox("bob").check(unread_only=False) == []
    assert texts(room.mailbox("carol").check()) == ["x"]


def test_one_may_write_to_oneself(room: Room) -> None:
    room.mailbox("ann").send("ann", "note")
    assert texts(room.mailbox("ann").check()) == ["note"]


def test_one_bad_recipient_stops_the_whole_letter(room: Room) -> None:
    room.mailbox("carol").register(allow_from=["bob"])
    with pytest.raises(NotAllowed) as refused:
        room.mailbox("ann").send(["dave", "carol"], "x")
    assert refused.value.field == "to"
    assert reached(room, "dave", "carol") == []


def test_an_allow_list_is_asked_for_each_of_many(room: Room) -> None:
    room.mailbox("guarded").register(allow_from=["bob"])
    many = [f"agent-{n}" for n in range(20)]
    with pytest.raises(NotAllowed):
        room.mailbox("ann").send([*many, "guarded"], "x")
    room.mailbox("ann").send(many, "x")
    room.mailbox("bob").send([*many, "guarded"], "x")
    assert len(room.mailbox("guarded").check()) == 1


def test_an_allow_list_can_be_opened_again_and_always_lets_oneself_in(room: Room) -> None:
    guarded = room.mailbox("guarded")
    guarded.register(allow_from=[])
    guarded.send("guarded", "note")
    with pytest.raises(NotAllowed):
        room.mailbox("ann").send("guarded", "x")
    guarded.register(allow_from=["*"])
    room.mailbox("ann").send("guarded", "x")
    assert texts(guarded.check()) == ["note", "x"]


def test_a_broadcast_reaches_the_members_but_not_its_sender(room: Room) -> None:
    for name in ("ann", "bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    room.mailbox("dave").register(scopes=["other"])
    room.mailbox("team/eve").register()  # belongs to its swarm without saying so
    sent = room.mailbox("ann").broadcast("team", "hear, hear")
    assert reached(room, "ann", "bob", "carol", "dave", "team/eve") == ["bob", "carol", "team/eve"]
    assert addresses(sent.message) == ["broadcast:team"]
    assert (sent.message.kind, sent.message.scope, sent.message.tags) == (
        "notification", "team", ("broadcast", "swarm:team"),
    )  # fmt: skip
    assert len(room.thread(sent.id)) == 1


@pytest.mark.parametrize("exclude", ["bob", ["bob"], ("BOB", "nobody"), {"bob"}])
def test_a_broadcast_leaves_out_the_excluded_agents(room: Room, exclude: Any) -> None:
    for name in ("bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    room.mailbox("ann").broadcast("team", "x", exclude=exclude)
    assert reached(room, "bob", "carol") == ["carol"]


def test_an_agent_that_leaves_a_scope_is_reached_no_longer(room: Room) -> None:
    room.mailbox("bob").register(scopes=["team", "other"])
    room.mailbox("carol").register(scopes=["team"])
    room.mailbox("bob").register(scopes=["other"])
    room.mailbox("ann").broadcast("team", "x")
    assert reached(room, "bob", "carol") == ["carol"]


def test_a_broadcast_to_nobody_is_an_error(room: Room) -> None:
    room.mailbox("ann").register(scopes=["team"])
    with pytest.raises(UnknownAgent) as refused:
        room.mailbox("ann").broadcast("team", "x")
    assert refused.value.field == "to"


def test_a_scope_and_names_may_be_mixed(room: Room) -> None:
    for name in ("bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    room.mailbox("ann").send(["broadcast:team", "dave"], "x", cc="carol")
    room.mailbox("ann").send("frank", "y", cc=["broadcast:team"])
    ways = {name: [x.delivery.kind for x in room.mailbox(name).check()] for name in ("bob", "carol", "dave")}
    assert ways == {"bob": ["to", "to"], "carol": ["cc", "to"], "dave": ["to"]}
    room.mailbox("ann").send("broadcast:team", "z", cc=["bob", "carol"])
    assert texts(room.mailbox("bob").check()) == ["z"]


def test_a_broadcast_reaches_many_in_one_commit(room: Room) -> None:
    for number in range(40):
        room.mailbox(f"agent-{number}").register(scopes=["team"])
    before = room.cursor()
    room.mailbox("ann").broadcast("team", "x")
    changes, _ = room.changes(before)
    assert [change.what for change in changes] == ["posted"]
    assert all(room.mailbox(f"agent-{number}").counts()["total"] == 1 for number in range(40))


def test_a_recipient_that_was_never_active_gets_a_mailbox_and_is_reported(room: Room) -> None:
    room.mailbox("known").register()
    room.mailbox("writer").send("known", "x")
    sent = room.mailbox("ann").send(["known", "writer", "typo"], "x")
    assert sent.unknown == ("typo",)
    assert room.mailbox("ann").send("typo", "again").unknown == ("typo",)
    room.mailbox("typo").register()
    assert room.mailbox("ann").send("typo", "again").unknown == ()
    assert len(room.mailbox("typo").check()) == 3


def test_an_unknown_recipient_can_be_refused(factory: RoomFactory) -> None:
    room = factory.room(unknown="refuse")
    room.mailbox("known").register()
    with pytest.raises(UnknownAgent) as refused:
        room.mailbox("ann").send(["known", "typo"], "x")
    assert refused.value.field == "to"
    assert room.mailboxes() == ["known"]
    room.mailbox("ann").send("known", "x")
    room.mailbox("known").send("ann", "who writes is known")


def test_the_same_key_sends_one_letter(factory: RoomFactory, room: Room, clock: FakeClock) -> None:
    first = room.mailbox("ann").send({"bob", "carol", "dave"}, "x", key="k", expires=60)
    factory.reopen()
    clock.advance(5)
    again = factory.room().mailbox("ann").send({"dave", "carol", "bob"}, "x", key="k", expires=60)
    assert (again.repeated, again.message) == (True, first.message)
    assert not first.repeated
    assert factory.room().mailbox("bob").counts()["total"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"body": "y"},
        {"to": "carol"},
        {"subject": "s"},
        {"priority": "high"},
        {"metadata": {"a": 1}},
        {"cc": "carol"},
    ],
    ids=str,
)
def test_the_same_key_with_other_content_is_refused(room: Room, change: dict[str, Any]) -> None:
    params: dict[str, Any] = {"to": "bob", "body": "x", "key": "k"}
    room.mailbox("ann").send(**params)
    with pytest.raises(IdTaken) as refused:
        room.mailbox("ann").send(**(params | change))
    assert refused.value.field == "key"
    assert room.mailbox("bob").counts()["total"] == 1


def test_a_key_is_its_senders_own(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", key="k")
    assert not room.mailbox("carol").send("bob", "y", key="k").repeated


def test_a_key_is_remembered_when_its_letter_is_deleted(room: Room) -> None:
    first = room.mailbox("ann").send("bob", "x", key="k")
    room.mailbox("bob").check()[0].reject("no")
    assert room.mailbox("bob").purge(first.id) == 1
    again = room.mailbox("ann").send("bob", "x", key="k")
    assert (again.repeated, again.id) == (True, first.id)
    with pytest.raises(IdTaken):
        room.mailbox("ann").send("bob", "y", key="k")
    with pytest.raises(IdTaken):
        room.mailbox("ann").send("bob", "y", id=first.id)
    assert room.mailbox("bob").check() == []


class Faltering:
    """A store whose next commits fail: before they wrote, or, worse, after."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failures: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, writes: list[Write] | Plan) -> tuple[Posted, ...]:
        failure = self.failures.pop() if self.failures else None
        if failure == "before":
            raise StoreFailing("disk full")
        posted = self._store.commit(writes)
        if failure == "after":
            raise StoreFailing("no word from the disk")
        return posted


@pytest.mark.parametrize("failure", ["before", "after"])
@pytest.mark.parametrize("key", [None, "mine"])
def test_a_temporary_error_carries_the_key_with_which_to_try_again(
    factory: RoomFactory, failure: str, key: str | None
) -> None:
    store = Faltering(factory.store)
    factory.store = store  # type: ignore[assignment]
    ann = factory.room().mailbox("ann")
    store.failures = [failure]
    named: dict[str, Any] = {} if key is None else {"key": key}
    with pytest.raises(StoreFailing) as failed:
        ann.send("bob", "x", **named)
    assert failed.value.key
    assert key in {None, failed.value.key}
    assert failed.value.key in str(failed.value)
    again = ann.send("bob", "x", key=failed.value.key)
    assert again.repeated == (failure == "after")
    assert texts(factory.room().mailbox("bob").check()) == ["x"]


@pytest.mark.parametrize("failure", ["before", "after"])
def test_an_ack_with_a_reply_can_be_tried_again(factory: RoomFactory, failure: str) -> None:
    factory.room().mailbox("ann").send("bob", "do it")
    store = Faltering(factory.store)
    factory.store = store  # type: ignore[assignment]
    work = factory.room().mailbox("bob").claim(lease=60)
    assert work
    store.failures = [failure]
    with pytest.raises(StoreFailing):
        work.ack_and_reply("done")
    factory.clock.tick(61 if failure == "after" else 1)  # what was acknowledged in time stays so
    work.ack_and_reply("done")
    assert work.state == "done"
    assert texts(factory.room().mailbox("ann").check()) == ["done"]


def test_many_letters_go_in_one_commit_or_not_at_all(room: Room) -> None:
    ann = room.mailbox("ann")
    receipts = ann.send_many([draft("bob", str(n)) for n in range(5)])
    assert [r.message.text for r in receipts] == texts(room.mailbox("bob").check())
    with pytest.raises(Invalid):
        ann.send_many([draft("bob", "good"), draft("../x", "bad")])
    with pytest.raises(IdTaken):
        ann.send_many([draft("bob", "good", key="k"), draft("bob", "other", key="k")])
    assert room.mailbox("bob").check() == []
    assert ann.send_many([]) == []


def test_the_error_says_which_of_many_letters_is_wrong(room: Room) -> None:
    bad = {"type": "file", "path": "a.txt"}
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send_many([draft("bob", "good"), draft("bob", [bad])])
    assert "drafts[1].body[0].bytes" == refused.value.field
    with pytest.raises(Invalid) as one:
        room.mailbox("ann").send("bob", [bad])
    assert "body[0].bytes" == one.value.field


def test_a_draft_may_be_sent_again_and_from_elsewhere(room: Room) -> None:
    letter = draft("bob", "x")
    room.mailbox("ann").send_many([letter, letter])
    room.mailbox("carol").send_many([letter])
    assert letter.agent_id == ""
    assert [found.sender for found in room.mailbox("bob").check()] == ["ann", "ann", "carol"]


def test_a_letter_that_would_expire_before_it_is_delivered_is_refused(room: Room) -> None:
    ann = room.mailbox("ann")
    for expires in (1, 2):
        with pytest.raises(Invalid, match="not after the time of its delivery") as refused:
            ann.send("bob", "x", at=2, expires=expires)
        assert (refused.value.field, bool(refused.value.hint)) == ("expires", True)
    ann.send("bob", "x", at=2, expires=3)
    ann.send("bob", "x", at=-5, expires=1)  # at once
    assert len(room.mailbox("ann").sent()) == 2
