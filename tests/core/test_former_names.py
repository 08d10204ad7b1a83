"""A name that was given up: under it nobody finds anything but the new one, and everything old is still found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from postroom import IdTaken, Room, UnknownAgent
from postroom.store.sqlite import search
from tests.letters import everything
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory, addresses, spoken


def acts(room: Room) -> dict[str, Callable[[], object]]:
    bob = room.mailbox("bob")
    return {
        "thread": lambda: bob.thread("m-1"),
        "tagged": lambda: bob.tagged("t"),
        "reply_chain": lambda: bob.reply_chain("m-1"),
        "threads": bob.threads,
        "conversations": bob.conversations,
        "conversation": lambda: bob.conversation("c-1"),
        "turns": lambda: bob.turns("c-1"),
        "escalations": bob.escalations,
        "resolve": lambda: bob.resolve("ESC-1"),
        "tasks": bob.tasks,
        "task": lambda: bob.task("t-1"),
        "give_task": lambda: bob.give_task("ann", "x"),
        "search": lambda: bob.search("hello"),
        "stats": bob.stats,
        "trace": lambda: bob.trace("m-1"),
        "trace own": lambda: bob.trace("m-2"),
        "unsend": lambda: bob.unsend("m-2"),
        "reply": lambda: bob.reply("m-1", "x"),
        "reply own": lambda: bob.reply("m-2", "x"),
        "forward": lambda: bob.forward("m-2", "carol"),
        "revive": lambda: bob.revive("m-1"),
        "purge": lambda: bob.purge("m-1"),
    }


VERBS = (
    "thread tagged reply_chain threads conversations conversation turns escalations resolve tasks task give_task"
    " search stats trace trace+own unsend reply reply+own forward revive purge"
).split()


@pytest.mark.parametrize("verb", VERBS)
def test_a_reader_under_the_old_name_gets_the_new_one(factory: RoomFactory, verb: str) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", "hello", thread_tag="t", conversation_id="c-1", id="m-1")
    room.mailbox("bob").reply("m-1", "hello back", id="m-2")
    room.mailbox("ann").give_task("bob", "hello", id="t-1")
    room.mailbox("ann").escalate("hello", reason="blocked", ladder=["bob"])
    rename(room, "bob", "bert")
    before = factory.store.cursor()
    with pytest.raises(UnknownAgent, match="'bob' is now 'bert'"):
        acts(room)[verb.replace("+", " ")]()
    assert factory.store.cursor() == before


def test_a_key_that_was_used_under_the_old_name_is_spent(factory: RoomFactory, room: Room) -> None:
    bob = room.mailbox("bob")
    first = [bob.send("ann", "x", key="k"), bob.give_task("ann", "y", key="t", session={"n": 1})]
    rename(room, "bob", "bert")
    bert = room.mailbox("bert")
    before = everything(factory.store)
    again = [bert.send("ann", "x", key="k"), bert.give_task("ann", "y", key="t", session={"n": 2})]
    assert [(one.id, one.repeated) for one in again] == [(one.id, True) for one in first]
    for send in (bert.send, bert.give_task):
        with pytest.raises(IdTaken):
            send("ann", "something else", key="k")
    assert everything(factory.store) == before
    assert not bert.send("ann", "new", key="k2").repeated


# -- search


@pytest.fixture(params=["new", "in the index"])
def renamed(request: pytest.FixtureRequest, room: Room, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A room where bob wrote and was written to, was renamed, and wrote and was written to again."""
    ann, carol = room.mailbox("ann"), room.mailbox("carol")
    room.mailbox("bob").send("ann", "one", bcc="dave")
    ann.send("carol", "two", bcc=["bob", "eve"])
    carol.send("bob", "three")
    rename(room, "bob", "bert")
    room.mailbox("bert").send("ann", "four")
    ann.send("bert", "five")
    if request.param == "in the index":
        monkeypatch.setattr(search, "FEW", 0)
        room.sweep()
    return room


@pytest.mark.parametrize("name", ["bob", "bert", "BOB"])
def test_letters_are_found_by_every_name_of_an_agent(renamed: Room, name: str) -> None:
    assert set(spoken(renamed.search(f"from:{name}"))) == {"one", "four"}
    assert set(spoken(renamed.search(f"to:{name}"))) == {"three", "five"}
    assert set(spoken(renamed.search(f"-from:{name}"))) == {"two", "three", "five"}
    assert set(spoken(renamed.search(f"-to:{name} -from:{name}"))) == {"two"}
    ann = renamed.mailbox("ann")
    assert set(spoken(ann.search(f"from:{name}"))) == {"one", "four"}
    assert set(spoken(ann.search(f"to:{name}"))) == {"two", "five"}
    assert spoken(ann.search(f"to:{name} to:carol from:{name} from:ann")) == ["two"]


def test_a_hidden_copy_for_the_old_name_is_ones_own_and_no_others(renamed: Room) -> None:
    bert = renamed.mailbox("bert")
    (two,) = bert.search("two")
    assert addresses(two) == ["carol", "bob"]
    for name in ("bob", "bert"):
        assert spoken(bert.search(f"two to:{name}")) == ["two"]
        assert bert.search(f"two -to:{name}") == []
        assert renamed.mailbox("carol").search(f"two to:{name}") == []
        assert spoken(renamed.mailbox("carol").search(f"two -to:{name}")) == ["two"]
    assert bert.search("two to:eve") == []
    (one,) = bert.search("one")
    assert addresses(one) == ["ann", "dave"]  # its sender sees bcc
    assert spoken(bert.search("one to:dave")) == ["one"]
    assert renamed.mailbox("ann").search("one to:dave") == []


# -- trace and numbers


def test_a_trace_shows_the_letter_as_it_was_and_the_agent_as_it_is(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.send(["bob", "carol"], "x", bcc="bob2").id
    bob.reply(id, "before")
    rename(room, "bob", "bert")
    rename(room, "bob2", "bert2")
    rename(room, "ann", "anna")
    anna, bert = room.mailbox("anna"), room.mailbox("bert")
    bert.reply(id, "after")
    bert.send("anna", "by hand", in_reply_to=id)
    bert.forward(id, "dave")
    whole, own, part = room.trace(id), anna.trace(id), bert.trace(id)
    assert addresses(whole.message) == addresses(own.message) == ["bob", "carol", "bob2"]
    assert [s.mailbox for s in whole.stops] == [s.mailbox for s in own.stops] == ["bert", "bert2", "carol"]
    assert ([s.mailbox for s in part.stops], addresses(part.message)) == (["bert"], ["bob", "carol"])
    assert addresses(room.mailbox("bert2").trace(id).message) == ["bob", "carol", "bob2"]
    for trace in (whole, own, part):
        assert spoken(list(trace.replies)) == ["before", "after", "by hand"]
    assert [addresses(m) for m in whole.relays] == [addresses(m) for m in part.relays] == [["dave"]]


def test_a_word_to_the_chosen_agent_is_a_reply(room: Room) -> None:
    room.mailbox("bob").register(capabilities=["python"])
    ann = room.mailbox("ann")
    id = ann.send("any:python", "x").id
    room.mailbox("bob").reply(id, "from bob")
    ann.reply(id, "and another thing")
    rename(room, "bob", "bert")
    trace = ann.trace(id)
    assert [stop.mailbox for stop in trace.stops] == ["bert"]
    assert spoken(list(trace.replies)) == ["from bob", "and another thing"]
    assert trace.relays == ()


def test_what_flows_is_counted_under_the_name_of_today(factory: RoomFactory, room: Room, clock: FakeClock) -> None:
    first = room.flow()
    room.mailbox("ann").send(["bob", "user"], "x")
    clock.advance(5)
    work = room.mailbox("bob").claim()
    assert work
    work.ack()
    room.mailbox("ann").send("bob", "y")
    rename(room, "bob", "bert")
    flow = room.flow(first)
    agents = {agent.mailbox: agent for agent in flow.agents}
    assert set(agents) == {"bert", "human"}
    assert (agents["bert"].settled, agents["bert"].backlog, flow.sent) == (1, 1, 2)
    assert room.mailbox("bert").stats().total_unread == 1
    assert room.mailbox("ceo").stats().total_unread == 1
    assert [tally.mailbox for tally in room.stats().mailboxes] == ["bert", "human"]
    changes, _ = factory.store.changes(replace(factory.store.cursor(), number=0), 100)
    assert {change.mailbox for change in changes if change.mailbox} == {"bert"}


@pytest.mark.disk  # the doctor warns of rooms in memory
def test_the_doctor_finds_nothing_wrong_with_other_names(room: Room) -> None:
    room.mailbox("bob").register(capabilities=["python"])
    room.mailbox("ann").send("any:python", "x")
    room.mailbox("ann").send("user", "y")
    rename(room, "bob", "bert")
    room.mailbox("ann").send("bob", "z")
    assert room.doctor(full=True).is_healthy


# -- escalation and guards


def test_a_ladder_that_says_an_old_name_means_its_owner(
    factory: RoomFactory, room: Room, clock: FakeClock
) -> None:
    room.mailbox("lead").register()
    room.mailbox("coo").register()
    for old, new in (("lead", "chief"), ("coo", "owner")):
        rename(room, old, new)
    ladder = ["lead", "coo", "human"]
    room.mailbox("ann").escalate("x", reason="blocked", ladder=ladder, key="k")
    assert [one.waits_for for one in room.mailbox("chief").escalations()] == ["chief"]
    assert addresses(room.mailbox("chief").escalate("y", reason="blocked", ladder=ladder).message) == ["owner"]
    room.mailbox("owner").block("ann")
    clock.advance(4 * 3600)
    room.sweep()
    waits = {one.asker: one.waits_for for one in room.escalations()}
    assert waits == {"ann": "human", "chief": "human"}
    assert {letter.sender for letter in room.mailbox("owner").check()} == {"chief"}
    rename(room, "chief", "boss")
    assert room.mailbox("ann").escalate("x", reason="blocked", ladder=ladder, key="k").repeated


def test_who_closed_an_escalation_is_called_as_today(room: Room) -> None:
    room.mailbox("ann").escalate("x", reason="blocked", ladder=["lead", "coo"])
    (one,) = room.escalations()
    room.mailbox("lead").resolve(one.id)
    rename(room, "lead", "chief")
    assert [e.closed_by for e in room.escalations(open_only=False)] == ["chief"]


@pytest.mark.parametrize("name", ["eve", "eva", "EVE"])
def test_who_was_blocked_under_one_name_is_freed_by_any(room: Room, name: str) -> None:
    bob = room.mailbox("bob")
    room.mailbox("eve").register()
    bob.block("eve")
    rename(room, "eve", "eva")
    if name == "eva":
        bob.block("eva")
    assert bob.unblock(name) == []
    room.mailbox("eva").send("bob", "x")


def test_a_letter_is_not_routed_back_to_who_was_renamed(room: Room) -> None:
    room.mailbox("bob").register(capabilities=["python"])
    sent = room.mailbox("bob").send("ann", "x")
    rename(room, "bob", "bert")
    with pytest.raises(UnknownAgent):
        room.mailbox("ann").forward(sent.id, "any:python")
