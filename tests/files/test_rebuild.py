"""Deleting `.postroom/` loses no letter and nothing of any letter: the files are the truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from postroom.errors import IdTaken, LeaseLost, StaleRevision
from postroom.model import delivery
from postroom.model.delivery import Delivery, State
from postroom.model.message import Message, Recipient
from postroom.model.query import LetterQuery, Query
from postroom.store.files import recovery
from postroom.store.files.connection import FileConnection
from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.reconcile import Reconciler
from postroom.store.files.store import FileStore
from postroom.store.files.watch import FileChanges
from postroom.store.protocol import Move
from tests.conftest import LONG
from tests.contract.test_store_values import messages
from tests.files.folders import opened, rob, room
from tests.letters import NOW, ack, after, attempt, bury, claim, forget, held, letter, names, post, read, send


@settings(max_examples=200 if LONG else 15)
@given(message=messages)
def test_a_letter_comes_back_from_its_files_alone(layout: Layout, message: Message) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "mail"
        with opened(root, layout) as store:
            store.commit([post(message)])
        rob(root)
        with opened(root, layout) as store:
            assert store.get([message.id])[message.id].message == message
            found = {each.delivery.mailbox: each.delivery for each in store.find(Query())}
            assert {name: each.kind for name, each in found.items()} == {
                r.address: r.kind for r in message.recipients
            }


def test_states_come_back_as_far_as_the_design_can_say_them(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        for id in ("new", "seen", "held", "done", "dead", "put-away"):
            send(store, id)
        store.commit([post(letter("later"), due_at=after(3600))])
        read(store, held(store, "seen"))
        claim(store, held(store, "held"))
        ack(store, held(store, "done"))
        bury(store, held(store, "dead"))
        away = ack(store, held(store, "put-away"))
        store.commit([Move(away, delivery.archive(away, NOW), "archive")])
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        states = {each.message.id: each.delivery.state for each in store.find(Query())}
        busy = State.CLAIMED if layout.name == "swarm" else State.UNREAD
        assert states == {
            "new": State.UNREAD, "seen": State.UNREAD, "held": busy, "done": State.DONE, "dead": State.DEAD,
            "put-away": State.DONE, "later": State.QUEUED,
        }  # fmt: skip
        assert held(store, "dead").reason == attempt().reason
        assert held(store, "later").due_at == after(3600)


def test_the_order_of_acceptance_comes_back_though_the_clock_stood_still_or_went_back(
    layout: Layout, tmp_path: Path
) -> None:
    sent = [f"m{number}" for number in range(20)]
    with opened(tmp_path, layout) as store:
        for number, id in enumerate(sent):
            send(store, id, created_at=after(-(number // 3)))
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert names(store.letters(LetterQuery())) == sent
        store.commit([post(letter("next", created_at=after(-999)))])
        assert names(store.letters(LetterQuery()))[-1] == "next"


def test_keys_come_back(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "first", key="k")
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        (again,) = store.commit([post(letter("second", key="k"))])
        assert (again.message_id, again.repeated) == ("first", True)
        with pytest.raises(IdTaken):
            store.commit([post(letter("third", key="k", subject="another"))])


def test_hidden_recipients_are_hidden_in_the_files_of_others_and_come_back(layout: Layout, tmp_path: Path) -> None:
    to = (Recipient("bob"), Recipient("spy", "bcc"), Recipient("cleo", "cc"), Recipient("mole", "bcc"))
    message = replace(letter("m1"), recipients=to)
    with opened(tmp_path, layout) as store:
        store.commit([post(message)])
    for path in tmp_path.rglob("*.json"):
        text = path.read_text()
        whose = path.relative_to(tmp_path / layout.home).parts[0]
        assert ("spy" in text, "mole" in text) == (whose == "spy", whose == "mole")
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert store.get(["m1"])["m1"].message == message


def test_an_index_that_is_damaged_is_made_again(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
    index = tmp_path / ".postroom" / "index.db"
    for path in (index, index.with_name("index.db-wal")):
        path.write_bytes(b"no database" * 1000)
    with opened(tmp_path, layout) as store:
        assert list(store.get(["m1"])) == ["m1"]


def test_an_index_that_is_deleted_under_a_running_program_is_made_again(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        rob(tmp_path)
        send(store, "m2")
        assert names(store.letters(LetterQuery())) == ["m1", "m2"]


# -- numbers are of one index


def with_other_numbers(store: FileStore) -> tuple[Delivery, Callable[[], dict[str, State]]]:
    """A letter of a room in which the numbers of the next index are those of other letters; and all states."""
    message = letter("forgotten")
    store.commit([post(message)])
    ack(store, held(store, message.id))
    store.commit(forget(message))
    for number in range(10):
        send(store, f"m{number}")
    return held(store, "m0"), lambda: {found.message.id: found.delivery.state for found in store.find(Query())}


def test_a_move_on_what_an_index_said_moves_no_other_letter_in_the_next(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        before, states = with_other_numbers(store)
        rob(tmp_path)
        with pytest.raises(StaleRevision):
            ack(store, before)
        assert set(states().values()) == {State.UNREAD}
        ack(store, held(store, "m0"))
        assert [id for id, state in states().items() if state is State.DONE] == ["m0"]


def test_moving_by_the_number_alone_is_noticed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        before, states = with_other_numbers(store)
        rob(tmp_path)
        monkeypatch.setattr(Reconciler, "_first_revision", lambda _self: 1)
        ack(store, before)
        assert states()["m0"] is State.UNREAD
        assert State.DONE in states().values()


def test_a_worker_whose_claim_went_with_the_index_settles_nobodys_letter(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        mine, _ = with_other_numbers(store)
    with room(tmp_path, layout) as first, room(tmp_path, layout) as second:
        held_by_first = first.mailbox("bob").claim()
        assert held_by_first is not None and held_by_first.id == mine.message_id
        rob(tmp_path)
        held_by_second = second.mailbox("bob").claim(20)
        with pytest.raises(LeaseLost):
            held_by_first.ack()
        held_by_second.ack()


def claim_what_was_unread_in_the_last_index(root: Path, layout: Layout) -> State:
    """It was done since. What comes of it."""
    with opened(root, layout) as store:
        unread = send(store, "m1")
        ack(store, unread)
        rob(root)
        with suppress(StaleRevision):
            claim(store, unread)
        return held(store, "m1").state


def test_what_was_done_is_not_claimed_by_what_an_index_said_before(layout: Layout, tmp_path: Path) -> None:
    assert claim_what_was_unread_in_the_last_index(tmp_path, layout) is State.DONE


def test_revisions_that_another_index_had_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "_first_revision", lambda _self: 1)
    assert claim_what_was_unread_in_the_last_index(tmp_path, layout_named("nanobot")) is State.CLAIMED


# -- while others are at work


def test_our_folder_may_be_deleted_while_a_room_is_opened(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
    left = [recovery.recover, FileConnection._check_lock]

    def deleting(*place: Any, do: Callable[..., None]) -> None:
        if do in left:
            left.remove(do)
            rob(tmp_path)
        do(*place)

    monkeypatch.setattr(recovery, "recover", partial(deleting, do=recovery.recover))
    check = FileConnection._check_lock
    monkeypatch.setattr(FileConnection, "_check_lock", lambda here: deleting(here, do=check))
    with opened(tmp_path, layout, "another boot") as store:
        assert left == []
        assert names(store.letters(LetterQuery())) == ["m1"]
        send(store, "m2")


def test_the_holder_of_a_deleted_lock_takes_the_new_one(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store, opened(tmp_path, layout) as reader:
        send(store, "m1")
        assert list(reader.get(["m1"])) == ["m1"]
        (tmp_path / ".postroom" / "index.db.lock").unlink()
        with opened(tmp_path, layout) as newcomer:
            send(newcomer, "m2")
            send(store, "m3")
            assert list(reader.get(["m2", "m3"])) == ["m2", "m3"]
            assert all(each.connection().lock.is_in_place() for each in (store, reader, newcomer))


def ack_into_the_deleted_index(root: Path, layout: Layout, holder: FileStore) -> None:
    """One who was in the room when our folder was deleted finishes what it began, after others began anew."""
    before = held(holder, "m1")
    rob(root)
    with opened(root, layout) as newcomer, pytest.MonkeyPatch.context() as planted:
        newcomer.find(Query())
        planted.setattr(FileConnection, "recover", lambda _self: None)
        ack(holder, before)


def state_seen_by_one_that_looked_meanwhile(root: Path, layout: Layout) -> State:
    with opened(root, layout) as holder, opened(root, layout) as reader:
        send(holder, "m1")
        for _ in range(3):
            reader.find(Query())
        look = reader._watcher.poll

        def look_too_late() -> FileChanges:
            planted.undo()
            ack_into_the_deleted_index(root, layout, holder)
            return look()

        with pytest.MonkeyPatch.context() as planted:
            planted.setattr(reader._watcher, "poll", look_too_late)
            reader.find(Query())
        return held(reader, "m1").state


def test_an_ack_that_went_into_the_deleted_index_is_seen_in_the_next(layout: Layout, tmp_path: Path) -> None:
    assert state_seen_by_one_that_looked_meanwhile(tmp_path, layout) is State.DONE


def test_not_to_look_again_at_what_was_seen_with_another_index_is_noticed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileStore, "_recheck_everything", lambda _self: None)
    assert state_seen_by_one_that_looked_meanwhile(tmp_path, layout) is State.UNREAD
