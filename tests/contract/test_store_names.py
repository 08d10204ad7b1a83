"""What every store promises about a mailbox that gets another name: mail follows, the old name still means it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom.errors import LookAlike, NameTaken, StaleRevision
from postroom.model import delivery as model_delivery
from postroom.model.delivery import Delivery, State
from postroom.model.query import LetterQuery, Query
from postroom.store.protocol import Move, Rename, Store, Write, all_names, first_sent, spelling_of
from tests.contract.conftest import Reboot
from tests.letters import BOOT, NOW, everything, held, ids, lease, letter, names, note, post, send


def test_all_mail_follows_the_new_name(store: Store, reboot: Reboot) -> None:
    for id in ("m1", "m2", "m3"):
        send(store, id)
    send(store, "m4", ["ann"], sender="bob", key="k")
    store.commit([Move(held(store, "m2"), model_delivery.ack(held(store, "m2"), NOW, archive=False), "ack")])
    store.commit([Rename("bob", "bert")])
    for room in (store, reboot(BOOT)):
        assert ids(room, Query(mailbox="bert", order="age")) == ["m1", "m2", "m3"]
        assert ids(room, Query(mailbox="bob")) == []
        assert ids(room, Query(mailbox="ann", sender="bert")) == ["m4"]
        assert names(room.letters(LetterQuery(sender="bert"))) == ["m4"]
        assert names(room.letters(LetterQuery(party="bert"))) == ["m1", "m2", "m3", "m4"]
        assert {found.delivery.mailbox for found in room.find(Query(mailbox="bert"))} == {"bert"}
        assert all_names(room) == ["ann", "bert"]
        assert spelling_of(room, "bob") == spelling_of(room, "BOB") == spelling_of(room, "bert") == "bert"
        first = first_sent(room, "bert", "k")
        assert first and first.message.sender == "bob"  # letters never change


def test_mail_to_the_old_name_arrives_and_is_known(store: Store) -> None:
    send(store, "m1", ["ann"], sender="bob")
    store.commit([Rename("bob", "bert")])
    (posted,) = store.commit([post(letter("m2", ["bob"]))])
    assert posted.unknown == ()
    assert ids(store, Query(mailbox="bert")) == ["m2"]
    store.commit([post(letter("m3", ["ann"], sender="bob"))])  # as an import does
    assert names(store.letters(LetterQuery(sender="bert"))) == ["m1", "m3"]
    assert all_names(store) == ["ann", "bert"]
    with pytest.raises(LookAlike):
        store.commit([post(letter("m4", ["Bob"]))])


def test_a_delivery_found_under_the_old_name_can_still_be_moved(store: Store) -> None:
    before = send(store, "m1")
    store.commit([Rename("bob", "bert")])
    claimed = model_delivery.claim(before, lease())
    store.commit([Move(before, claimed, "claim")])
    assert held(store, "m1", "bert").state is State.CLAIMED
    with pytest.raises(StaleRevision):
        store.commit([Move(before, claimed, "claim")])


def test_a_name_may_be_changed_again_and_back(store: Store, reboot: Reboot) -> None:
    send(store, "m1")
    store.commit([Rename("bob", "bert")])
    store.commit([Rename("bert", "bart")])
    assert [spelling_of(store, name) for name in ("bob", "bert", "bart")] == ["bart"] * 3
    store.commit([Rename("bart", "bob")])
    again = reboot(BOOT)
    assert [spelling_of(again, name) for name in ("bob", "bert", "bart")] == ["bob"] * 3
    assert ids(again, Query(mailbox="bob")) == ["m1"]
    again.commit([post(letter("m2", ["bert"])), post(letter("m3", ["bart"])), post(letter("m4", ["bob"]))])
    assert ids(again, Query(mailbox="bob", order="age")) == ["m1", "m2", "m3", "m4"]


def acked(delivery: Delivery) -> Move:
    return Move(delivery, model_delivery.ack(delivery, NOW, archive=False), "ack")


RENAME = Rename("bob", "bert")
TOGETHER: dict[str, Callable[[Delivery], list[Write]]] = {
    "written, renamed": lambda _: [post(letter("m2", ["bob", "cleo"])), RENAME],
    "renamed, written to the new name": lambda _: [RENAME, post(letter("m2", ["bert"]))],
    "renamed, written to the old name": lambda _: [RENAME, post(letter("m2"))],
    "moved, renamed, written": lambda m1: [acked(m1), RENAME, post(letter("m2"))],
    "renamed, moved, written": lambda m1: [RENAME, acked(m1), post(letter("m2"))],
    "renamed twice": lambda m1: [
        Rename("bob", "rob"),
        post(letter("m2", ["rob"])),
        acked(m1),
        Rename("rob", "bert"),
    ],
}


@pytest.mark.parametrize("together", TOGETHER)
def test_a_name_may_change_in_the_commit_that_writes_or_moves_its_mail(
    store: Store, reboot: Reboot, together: str
) -> None:
    writes = TOGETHER[together](send(store, "m1"))
    store.commit(writes)
    done = [State.DONE] if any(isinstance(write, Move) for write in writes) else [State.UNREAD]
    for room in (store, reboot("another boot")):
        assert ids(room, Query(mailbox="bert", order="age")) == ["m1", "m2"]
        assert [held(room, id, "bert").state for id in ("m1", "m2")] == [*done, State.UNREAD]
        assert spelling_of(room, "bob") == "bert"
        assert room.quarantined() == []
    last = reboot("another boot")
    claimed = model_delivery.claim(held(last, "m2", "bert"), lease())
    last.commit([Move(held(last, "m2", "bert"), claimed, "claim"), post(letter("m3", ["bert"]))])
    assert ids(last, Query(mailbox="bert", order="age")) == ["m1", "m2", "m3"]


def test_only_the_case_may_change(store: Store) -> None:
    send(store, "m1")
    store.commit([Rename("bob", "Bob")])
    assert spelling_of(store, "bob") == "Bob"
    assert ids(store, Query(mailbox="Bob")) == ["m1"]
    assert all_names(store) == ["Bob", "ann"]


def test_a_name_that_is_taken_is_refused_and_nothing_happens(store: Store) -> None:
    send(store, "m1")
    send(store, "m2", ["cleo"])
    store.commit([Rename("cleo", "clio")])
    before = everything(store)
    for old, new in (("bob", "ann"), ("bob", "ANN"), ("bob", "cleo"), ("cleo", "bob")):
        with pytest.raises(NameTaken):
            store.commit([Rename(old, new)])
    with pytest.raises(StaleRevision):
        store.commit([Rename("bob", "bert"), note("never", revision=99)])
    assert everything(store) == before
    assert (spelling_of(store, "bert"), spelling_of(store, "bob"), ids(store, Query(mailbox="bob"))) == (
        None,
        "bob",
        ["m1"],
    )
    store.commit([post(letter("m3"))])
    assert ids(store, Query(mailbox="bob", order="age")) == ["m1", "m3"]


def test_a_name_nobody_has_becomes_another_name(store: Store) -> None:
    """As an import needs it: first the names, then the letters."""
    store.commit([Rename("old", "new")])
    store.commit([Rename("old", "new")])
    store.commit([post(letter("m1", ["old"])), post(letter("m2", ["new"], sender="old"))])
    assert ids(store, Query(mailbox="new", order="age")) == ["m1", "m2"]
    assert all_names(store) == ["ann", "new"]


def test_a_waiter_under_the_old_name_is_woken(store: Store) -> None:
    send(store, "m1")
    watch = store.watch(["bob"])
    store.commit([Rename("bob", "bert")])
    assert watch.wait(5)
    watch.close()
