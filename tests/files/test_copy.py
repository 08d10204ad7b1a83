"""Mail that is copied between rooms of all kinds: nothing is lost, nothing is there twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from postroom import copy_room, errors
from postroom import open as open_room
from postroom.clock import RandomIds, SystemClock
from postroom.core import transfer
from postroom.core.core import Core
from postroom.model import delivery as model_delivery
from postroom.model.delivery import COPIED, MOVED_AWAY, Delivery, Lease, State
from postroom.model.message import Message
from postroom.model.query import LetterQuery, Query
from postroom.model.record import MOVED_HERE, Record, pair_key
from postroom.settings import Settings
from postroom.store.address import open_store
from postroom.store.files.layouts.paths import NAMES
from postroom.store.protocol import Move, Post, Put, RenewEpoch, Store
from tests.conftest import LONG
from tests.contract.test_store_values import messages
from tests.letters import NOW, after, attempt, letter, post
from tests.renaming import rename

BOOT = SystemClock().now().boot
QUICK: dict[str, Any] = {"durability": "process"}  # no power is cut here
KINDS = ("sqlite", *NAMES)
CLOCK = SystemClock()


def address(root: Path, kind: str, name: str = "room") -> str:
    return f"sqlite:{root}/{name}.db" if kind == "sqlite" else f"files:{root}/{name}?layout={kind}"


@contextmanager
def opened(where: str) -> Iterator[Store]:
    store = open_store(where, durable=False, busy_timeout=30)
    try:
        yield store
    finally:
        store.close()


def core(store: Store) -> Core:
    return Core(store, Settings(), CLOCK, RandomIds())


def copy(source: str, target: str, **how: Any) -> transfer.Copied:
    return copy_room(source, target, **QUICK, **how)


def content(store: Store) -> dict[str, tuple[Message, dict[str, Delivery]]]:
    """Every letter with its deliveries; numbers are a room's own."""
    found: dict[str, tuple[Message, dict[str, Delivery]]] = {
        each.message.id: (each.message, {}) for each in store.letters(LetterQuery())
    }
    for each in store.find(Query(order="age")):
        found[each.message.id][1][each.delivery.mailbox] = replace(each.delivery, number=0, arrived=0)
    return found


def content_of(where: str) -> dict[str, tuple[Message, dict[str, Delivery]]]:
    with opened(where) as store:
        return content(store)


def state(where: str, id: str = "m1", mailbox: str = "bob") -> State:
    return content_of(where)[id][1][mailbox].state


def step(where: str, how: str, id: str = "m1", mailbox: str = "bob") -> None:
    with opened(where) as store:
        (found,) = store.find(Query(mailbox=mailbox, message_ids=(id,)))
        store.commit([Move(found.delivery, STEPS[how](found.delivery), how)])


def lease(until: float, holder: str) -> Lease:
    return Lease(token="token", holder=holder, until=until, boot=BOOT)  # noqa: S106


def _claim(delivery: Delivery) -> Delivery:
    until = CLOCK.now().steady + 60
    return model_delivery.claim(delivery, lease(until, "bob"))


def moved_away(delivery: Delivery, room: str) -> Delivery:
    """Return a delivery that earlier versions moved to another room."""
    return replace(
        delivery,
        state=State.DONE,
        revision=delivery.revision + 1,
        read_at=delivery.read_at or NOW,
        acked_at=NOW,
        archived_at=NOW,
        due_at=None,
        lease=None,
        reason=f"{MOVED_AWAY}{room}",
    )


STEPS: dict[str, Callable[[Delivery], Delivery]] = {
    "read": lambda d: model_delivery.read(d, NOW),
    "ack": lambda d: model_delivery.ack(d, NOW, archive=False),
    "claim": _claim,
    "bury": lambda d: model_delivery.bury(d, attempt()),
    "revive": model_delivery.revive,
    "expire": lambda d: model_delivery.expire(d, NOW),
    "move": lambda d: moved_away(d, "elsewhere"),
}
LIVES = [
    (),
    ("read",),
    ("ack",),
    ("claim",),
    ("bury",),
    ("expire",),
    ("read", "claim", "ack"),
    ("bury", "revive", "read"),
    ("move",),
]


def lived(message: Message, lives: list[tuple[str, ...]]) -> Post:
    """A letter whose deliveries are somewhere in their lives."""
    deliveries = []
    for each, life in zip(post(message).deliveries, lives, strict=False):
        delivery = each
        for how in life:
            delivery = STEPS[how](delivery)
        deliveries.append(delivery)
    return Post(message=message, deliveries=tuple(deliveries))


# -- around the four worlds


@settings(max_examples=100 if LONG else 8)
@given(message=messages, lives=some.lists(some.sampled_from(LIVES), min_size=4, max_size=4))
def test_a_letter_comes_back_from_a_journey_through_all_designs(
    message: Message, lives: list[tuple[str, ...]]
) -> None:
    with TemporaryDirectory() as folder:
        stops = [address(Path(folder), kind, f"stop{place}") for place, kind in enumerate((*KINDS, "sqlite"))]
        with opened(stops[0]) as store:
            store.commit([lived(message, lives)])
            before = content(store)
        for here, there in pairwise(stops):
            copy(here, there)
        assert content_of(stops[-1]) == before


@given(ours=some.sampled_from(LIVES), theirs=some.sampled_from(LIVES))
def test_two_rooms_agree_at_once_and_done_is_never_undone(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    expires: dict[str, Any] = {"expires_at": after(60)} if "expire" in (*ours, *theirs) else {}
    here, there = (lived(letter("m1", **expires), [life]).deliveries[0] for life in (ours, theirs))
    agreed = transfer.agreed(here, there)
    now = here if agreed is None else agreed
    assert transfer.agreed(now, there) is None
    if State.DONE in {here.state, there.state} and not (here.has_left or there.has_left):
        assert now.state is State.DONE
    if agreed is not None:
        assert agreed.revision > here.revision


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_copies_only_what_is_new_and_never_doubles(tmp_path: Path, kind: str) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, kind, "other")
    with opened(source) as store:
        store.commit([post(letter("m1", key="k")), post(letter("m2", ("bob", "cleo")))])
    with opened(target) as store:
        store.commit([post(letter("own"))])
    first = copy(source, target)
    assert (first.letters, first.refused) == (2, ())
    assert not copy(source, target).did_something
    with opened(source) as store:
        store.commit([post(letter("m3"))])
    step(source, "ack", "m2", "cleo")
    again = copy(source, target)
    assert (again.letters, again.states) == (1, 1)
    assert set(content_of(target)) == {"own", "m1", "m2", "m3"}
    assert state(target, "m2", "cleo") is State.DONE
    with opened(target) as store:  # ids and keys are kept: whoever sends it again sends nothing
        assert store.commit([post(letter("new", key="k"))])[0].message_id == "m1"
        store.commit([RenewEpoch()])
    with opened(source) as store:
        store.commit([RenewEpoch()])  # nothing is remembered any more: everything is compared
    assert not copy(source, target).did_something


@pytest.mark.parametrize(
    ("there", "here", "agreed"),
    [
        ("ack", "claim", State.DONE), ("claim", "ack", State.DONE), ("", "ack", State.DONE),
        ("bury", "", State.DEAD), ("", "bury", State.DEAD), ("ack", "bury", State.DONE),
        ("claim", "", State.CLAIMED), ("", "claim", State.CLAIMED),
    ],
)  # fmt: skip
def test_the_later_state_wins_and_done_stays_done(tmp_path: Path, there: str, here: str, agreed: State) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, "swarm", "other")
    with opened(source) as store:
        store.commit([post(letter("m1"))])
    copy(source, target)
    for where, how in ((target, there), (source, here)):
        if how:
            step(where, how)
    copy(source, target)
    assert state(target) is agreed
    assert not copy(source, target).did_something


def test_a_revived_letter_is_open_in_both_rooms(tmp_path: Path) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, "nanobot", "other")
    with opened(source) as store:
        store.commit([post(letter("here")), post(letter("there"))])
    for id in ("here", "there"):
        step(source, "bury", id)
    copy(source, target)
    step(source, "revive", "here")
    step(target, "revive", "there")
    copy(source, target)
    assert (state(target, "here"), state(target, "there")) == (State.UNREAD, State.UNREAD)


def test_names_cards_templates_and_tasks_come_along_and_the_later_one_counts(tmp_path: Path) -> None:
    source, target = address(tmp_path, "chipset"), address(tmp_path, "sqlite", "other")
    with open_room(source, **QUICK) as room:
        room.mailbox("ann").register(capabilities=["python"], scopes=["team"])
        room.mailbox("old").register()
        rename(room, "old", "new")
        room.save_template("daily", body="Hello {name}")
        task = room.mailbox("ann").give_task("bob", "sort it", deadline=timedelta(hours=1))
        room.mailbox("ann").block("eve")
    copy(source, target)
    with open_room(source, **QUICK) as room, open_room(target, **QUICK) as other:
        assert other.mailboxes() == room.mailboxes()
        assert other.template("daily") == room.template("daily")
        assert other.agent("ann").card == room.agent("ann").card
        assert other.mailbox("ann").task(task.id).state == "pending"
        other.mailbox("bob").send("old", "still arrives")
        assert other.mailbox("new").check()[0].text == "still arrives"
        other.save_template("daily", body="Bye {name}")
        room.mailbox("bob").task(task.id).accept()
    copy(source, target)
    with open_room(target, **QUICK) as other:
        assert other.template("daily").body == "Bye {name}"
        assert other.mailbox("bob").task(task.id).state == "accepted"
        with pytest.raises(errors.Refused):
            other.mailbox("eve").send("ann", "no")


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_renamed_since_the_last_copy_is_renamed_in_both_rooms(tmp_path: Path, kind: str) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, kind, "other")
    with open_room(source, **QUICK) as room:
        room.mailbox("bob").register(description="sorts")
        room.mailbox("ann").send("bob", "one")
        copy(source, target)
        rename(room, "bob", "robert")
        room.mailbox("ann").send("bob", "two")
    assert copy(source, target).refused == ()
    with open_room(target, **QUICK) as other:
        assert other.mailboxes() == ["ann", "robert"]
        assert [letter.text for letter in other.mailbox("robert").check()] == ["one", "two"]
        assert [agent.card.id for agent in other.agents(gone=True) if agent.registered] == ["robert"]
    assert copy(target, source).refused == ()


def test_a_former_name_that_is_somebody_elses_over_there_is_refused_and_stays_theirs(tmp_path: Path) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, "swarm", "other")
    with open_room(source, **QUICK) as room, open_room(target, **QUICK) as other:
        for name in ("bob", "robert"):
            other.mailbox(name).register()
        room.mailbox("bob").register()
        rename(room, "bob", "robert")
    assert [refusal.what for refusal in copy(source, target).refused] == ["bob"]
    with open_room(target, **QUICK) as other:
        other.mailbox("ann").send("bob", "for bob")
        assert [letter.text for letter in other.mailbox("bob").check()] == ["for bob"]
        assert [agent.card.id for agent in other.agents() if agent.registered] == ["bob", "robert"]


def test_what_cannot_come_is_named_and_the_rest_comes(tmp_path: Path) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, "nanobot", "other")
    with opened(source) as store:
        store.commit([post(letter("m1", subject="this")), post(letter("m2", ("Zoe",))), post(letter("m3"))])
    with opened(target) as store:
        store.commit([post(letter("m1", subject="that")), post(letter("own", ("zoe",)))])
    done = copy(source, target)
    assert {refusal.what for refusal in done.refused} >= {"m1", "m2"}
    assert state(target, "m3") is State.UNREAD


# -- letters that an earlier version moved


def move(source: str, target: str) -> None:
    """Leave both rooms as an earlier version left them when it moved all open letters."""
    copy(source, target)
    with opened(source) as here, opened(target) as there:
        note = {"room": here.cursor().store, "at": NOW.isoformat()}
        for found in here.find(Query(states=(State.UNREAD,))):
            key = pair_key(found.message.id, found.delivery.mailbox)
            there.commit([Put(record=Record(kind=MOVED_HERE, key=key, value=note))])
            here.commit([Move(found.delivery, moved_away(found.delivery, target), COPIED)])


@pytest.mark.parametrize("lost", ["source", "target", "nobody"])
def test_what_was_moved_stays_so_and_survives_the_loss_of_an_index(tmp_path: Path, lost: str) -> None:
    source, target = address(tmp_path, "nanobot", "source"), address(tmp_path, "swarm", "target")
    with opened(source) as store:
        store.commit([post(letter("m1"))])
    move(source, target)
    if lost != "nobody":
        shutil.rmtree(tmp_path / lost / ".postroom")
    for here, there in ((source, target), (target, source)):
        copy(here, there)
        assert (state(source), state(target)) == (State.DONE, State.UNREAD)  # put away is not done
    step(target, "ack")
    copy(target, source)
    assert not content_of(source)["m1"][1]["bob"].has_left


@pytest.mark.parametrize("kind", KINDS)
def test_later_states_of_the_source_do_not_change_what_was_moved(tmp_path: Path, kind: str) -> None:
    source, target = address(tmp_path, kind), address(tmp_path, "sqlite", "other")
    with opened(source) as store:
        store.commit([post(letter("m1")), post(letter("m2"))])
    copy(source, target)
    with opened(source) as here, opened(target) as there:  # a stranger has settled it after it was moved
        note = {"room": here.cursor().store, "at": NOW.isoformat()}
        there.commit([Put(record=Record(kind=MOVED_HERE, key=pair_key("m1", "bob"), value=note))])
    step(source, "ack", "m1")
    step(source, "ack", "m2")
    copy(source, target)
    assert (state(target, "m1"), state(target, "m2")) == (State.UNREAD, State.DONE)


# -- mistakes


@pytest.mark.parametrize(
    ("source", "target", "field"),
    [
        ("files:{0}/none?layout=swarm", "{0}/x.db", "source"), ("{0}/none.db", "{0}/x.db", "source"),
        ("{0}/a.db", "{0}/../{1}/a.db", "target"),
        ("files:{0}/f?layout=swarm", "files:{0}/f?layout=nanobot", "target"),
        ("{0}/a.db", "files:{0}/x?layout=maildir", "target"), ("{0}/a.db", "files:{0}/x", "target"),
        ("{0}/a.db", "memory:", "target"), ("memory:", "{0}/x.db", "source"), ("", "{0}/x.db", "source"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_and_nothing_is_made(tmp_path: Path, source: str, target: str, field: str) -> None:
    for where in (address(tmp_path, "sqlite", "a"), address(tmp_path, "swarm", "f")):
        with opened(where):
            pass
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.PostroomError) as refused:
        copy(source.format(tmp_path, tmp_path.name), target.format(tmp_path, tmp_path.name))
    assert refused.value.field == field
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("source", "target"), [("chipset", "nanobot"), ("nanobot", "swarm"), ("swarm", "chipset")]
)
@pytest.mark.parametrize("robbed", [("a",), ("b",), ("a", "b")], ids=str)
def test_what_was_moved_is_known_to_have_moved_from_its_file_alone(
    tmp_path: Path, source: str, target: str, robbed: tuple[str, ...]
) -> None:
    here, there = address(tmp_path, source, "a"), address(tmp_path, target, "b")
    with open_room(here, **QUICK) as room:
        room.mailbox("ann").send("bob", "one")
    move(here, there)
    for name in robbed:
        shutil.rmtree(tmp_path / name / ".postroom")
    copy_room(here, there, **QUICK)  # what was moved there has its life there
    with open_room(there, **QUICK) as room:
        assert [found.text for found in room.mailbox("bob").check(peek=True)] == ["one"]
    copy_room(there, here, **QUICK)
    with open_room(here, **QUICK) as room:
        assert room.mailbox("bob").check(peek=True) == []
