"""Mail that is copied or moved between rooms of all kinds: nothing is lost, nothing is there twice."""

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

from postroom import copy_room, errors, follow_room
from postroom import open as open_room
from postroom.clock import RandomIds, SystemClock
from postroom.core import transfer
from postroom.core.authorize import OWNER
from postroom.core.core import Core
from postroom.core.transfer import HOLDER
from postroom.model import delivery as model_delivery
from postroom.model.delivery import Delivery, Lease, State
from postroom.model.message import Message
from postroom.model.query import LetterQuery, Query
from postroom.settings import Settings
from postroom.store.address import open_store
from postroom.store.files.layouts.paths import NAMES
from postroom.store.protocol import Move, Post, Store
from tests.conftest import LONG
from tests.contract.test_store_values import messages
from tests.files.folders import letters_in
from tests.letters import NOW, after, attempt, letter, post

BOOT = SystemClock().now().boot
QUICK: dict[str, Any] = {"durability": "process"}  # no power is cut here
KINDS = ("sqlite", *NAMES)
CLOCK = SystemClock()


def address(root: Path, kind: str, name: str = "room") -> str:
    return f"sqlite:{root}/{name}.db" if kind == "sqlite" else f"files:{root}/{name}?layout={kind}"


@contextmanager
def opened(where: str) -> Iterator[Store]:
    store = open_store(where, boot=BOOT, durable=False, busy_timeout=30)
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


STEPS: dict[str, Callable[[Delivery], Delivery]] = {
    "read": lambda d: model_delivery.read(d, NOW),
    "ack": lambda d: model_delivery.ack(d, NOW, archive=False),
    "claim": _claim,
    "bury": lambda d: model_delivery.bury(d, attempt()),
    "revive": model_delivery.revive,
    "expire": lambda d: model_delivery.expire(d, NOW),
    "move": lambda d: model_delivery.move_away(d, NOW, "elsewhere"),
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


@given(ours=some.sampled_from(LIVES), theirs=some.sampled_from(LIVES), stays=some.booleans())
def test_two_rooms_agree_at_once_and_done_is_never_undone(
    ours: tuple[str, ...], theirs: tuple[str, ...], stays: bool
) -> None:
    expires: dict[str, Any] = {"expires_at": after(60)} if "expire" in (*ours, *theirs) else {}
    here, there = (lived(letter("m1", **expires), [life]).deliveries[0] for life in (ours, theirs))
    agreed = transfer.agreed(here, there, stays=stays)
    now = here if agreed is None else agreed
    assert transfer.agreed(now, there, stays=stays) is None
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
        store.renew_epoch()
    with opened(source) as store:
        store.renew_epoch()  # nothing is remembered any more: everything is compared
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
        room.rename("old", "new")
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
def test_who_gets_another_name_gets_it_in_both_rooms(tmp_path: Path, kind: str) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, kind, "other")
    with open_room(source, **QUICK) as room:
        room.mailbox("bob").register(description="sorts")
        room.mailbox("ann").send("bob", "one")
        copy(source, target)
        room.rename("bob", "robert")
        room.mailbox("ann").send("bob", "two")
    assert copy(source, target).refused == ()
    with open_room(target, **QUICK) as other:
        assert other.mailboxes() == ["ann", "robert"]
        assert [letter.text for letter in other.mailbox("robert").check()] == ["one", "two"]
        assert [agent.card.id for agent in other.agents(gone=True)] == ["robert"]
    assert copy(target, source).refused == ()


def test_what_cannot_come_is_named_and_the_rest_comes(tmp_path: Path) -> None:
    source, target = address(tmp_path, "sqlite"), address(tmp_path, "nanobot", "other")
    with opened(source) as store:
        store.commit([post(letter("m1", subject="this")), post(letter("m2", ("Zoe",))), post(letter("m3"))])
    with opened(target) as store:
        store.commit([post(letter("m1", subject="that")), post(letter("own", ("zoe",)))])
    done = copy(source, target, move=True)
    assert {refusal.what for refusal in done.refused} >= {"m1", "m2"}
    assert state(target, "m3") is State.UNREAD
    assert (state(source, "m1"), state(source, "m2", "Zoe"), state(source, "m3")) == (
        State.UNREAD, State.UNREAD, State.DONE,
    )  # fmt: skip


# -- moving


PLACES = {"nanobot": {"inbox", "processed"}, "chipset": {"archive", "bob"}, "swarm": {"archive", "inbox"}}


@pytest.mark.mechanism
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_moved_is_put_away_at_its_source_and_goes_on_at_its_target(tmp_path: Path, kind: str) -> None:
    source, target = address(tmp_path, kind), address(tmp_path, "sqlite", "other")
    with opened(source) as store:
        store.commit(
            [post(letter("m1", ("bob", "cleo"))), post(letter("m2"), due_at=after(3600)), post(letter("m3"))]
        )
    step(source, "claim", "m3")
    done = copy(source, target, move=True)
    assert (done.letters, done.moved, done.held) == (3, 3, 1)
    assert {(id, d.mailbox): d.state for id, (_, ds) in content_of(target).items() for d in ds.values()} == {
        ("m1", "bob"): State.UNREAD, ("m1", "cleo"): State.UNREAD, ("m2", "bob"): State.QUEUED,
        ("m3", "bob"): State.CLAIMED,
    }  # fmt: skip
    left = content_of(source)["m1"][1]["bob"]
    assert left.has_left and left.archived_at is not None
    if kind != "sqlite":
        places = {Path(path).parent.name for path in letters_in(tmp_path / "room")}
        assert places == PLACES[kind]
    copy(source, target, move=True)
    copy(source, target)
    assert state(target) is State.UNREAD  # put away is not done
    step(source, "ack", "m3")
    copy(source, target, move=True)
    assert state(target, "m3") is State.DONE


@pytest.mark.parametrize("lost", ["source", "target", "nobody"])
def test_what_was_moved_survives_the_loss_of_an_index_and_can_be_moved_back(tmp_path: Path, lost: str) -> None:
    source, target = address(tmp_path, "nanobot", "source"), address(tmp_path, "swarm", "target")
    with opened(source) as store:
        store.commit([post(letter("m1"))])
    copy(source, target, move=True)
    if lost != "nobody":
        shutil.rmtree(tmp_path / lost / ".postroom")
    copy(source, target)
    assert (state(source), state(target)) == (State.DONE, State.UNREAD)
    if lost == "target":
        return
    copy(target, source)
    assert state(source) is State.DONE
    copy(target, source, move=True)
    assert (state(source), state(target)) == (State.UNREAD, State.DONE)
    copy(source, target, move=True)
    step(target, "ack")
    copy(target, source)
    assert not content_of(source)["m1"][1]["bob"].has_left


@pytest.mark.mechanism
def test_a_move_that_was_cut_off_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = address(tmp_path, "nanobot"), address(tmp_path, "swarm", "other")
    with opened(source) as here, opened(target) as there:
        here.commit([post(letter(f"m{n}")) for n in range(5)])
        calls = 0

        def cut_off(*_: object) -> None:
            nonlocal calls
            calls += 1
            raise KeyboardInterrupt

        for at in ("_leave", "_bring", "_notes"):
            with monkeypatch.context() as cut:
                cut.setattr(transfer._Run, at, cut_off)
                with pytest.raises(KeyboardInterrupt):
                    transfer.copy_room(core(here), core(there), OWNER, move=True)
            assert {d.state for _, ds in content(here).values() for d in ds.values()} == {State.UNREAD}
        assert calls == 3
        done = transfer.copy_room(core(here), core(there), OWNER, move=True)
        assert done.moved == 5
        assert {d.state for _, ds in content(there).values() for d in ds.values()} == {State.UNREAD}


@pytest.mark.mechanism
def test_what_a_stranger_is_done_with_meanwhile_is_done_over_there_after_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = address(tmp_path, "nanobot"), address(tmp_path, "sqlite", "other")
    with opened(source) as here, opened(target) as there:
        here.commit([post(letter("m1"))])
        leave = transfer._Run._leave

        def after_the_stranger(passage: Any, fenced: Any) -> None:
            (path,) = letters_in(tmp_path / "room")
            processed = tmp_path / "room" / "bob" / "processed"
            processed.mkdir(exist_ok=True)
            (tmp_path / "room" / path).rename(processed / Path(path).name)
            leave(passage, fenced)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(transfer._Run, "_leave", after_the_stranger)
            done = transfer.copy_room(core(here), core(there), OWNER, move=True)
        assert (done.moved, done.held) == (0, 1)
        transfer.copy_room(core(here), core(there), OWNER, move=True)
    assert (state(source), state(target)) == (State.DONE, State.DONE)


def test_a_copy_that_was_killed_holds_nothing_back(tmp_path: Path) -> None:
    source, target = address(tmp_path, "nanobot"), address(tmp_path, "swarm", "other")
    with opened(source) as store:
        store.commit([post(letter("m1"))])
        (found,) = store.find(Query())
        dead = lease(1e12, f"{HOLDER} (process 99999999)")
        store.commit([Move(found.delivery, model_delivery.claim(found.delivery, dead), "claim")])
    assert copy(source, target, move=True).moved == 1
    assert (state(source), state(target)) == (State.DONE, State.UNREAD)


@pytest.mark.mechanism
def test_a_follower_of_a_room_gets_new_mail(tmp_path: Path) -> None:
    source, target = address(tmp_path, "chipset"), address(tmp_path, "sqlite", "other")
    with opened(source) as store:
        store.commit([post(letter("m1"))])
        runs = follow_room(source, target, **QUICK)
        assert next(runs).letters == 1
        store.commit([post(letter("m2"))])
        assert next(runs).letters == 1
        runs.close()  # type: ignore[attr-defined]
    assert set(content_of(target)) == {"m1", "m2"}


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
    copy_room(here, there, move=True, **QUICK)
    for name in robbed:
        shutil.rmtree(tmp_path / name / ".postroom")
    copy_room(here, there, **QUICK)  # what was moved there has its life there
    with open_room(there, **QUICK) as room:
        assert [found.text for found in room.mailbox("bob").check(peek=True)] == ["one"]
    copy_room(there, here, move=True, **QUICK)
    with open_room(here, **QUICK) as room:
        assert [found.text for found in room.mailbox("bob").check(peek=True)] == ["one"]
