"""What every store promises about writing: repeats, recipients, preconditions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from postroom.errors import IdTaken, IllegalMove, LookAlike, QuotaFull, StaleRevision, UnknownAgent, UnknownMessage
from postroom.model import delivery as model_delivery
from postroom.model.delivery import Delivery, State
from postroom.model.message import Message, text
from postroom.model.query import LetterQuery, Query
from postroom.model.record import CARD, Record
from postroom.store.protocol import (
    Forget,
    Move,
    Post,
    Posted,
    Put,
    Rename,
    Store,
    Write,
    known_names,
    waiting_letters,
)
from tests.letters import (
    ack,
    after,
    bury,
    claim,
    everything,
    forget,
    held,
    ids,
    lease,
    letter,
    note,
    post,
    read,
    send,
)

# -- the protocol


def test_the_protocol_stays_small_and_every_store_has_all_of_it(store: Store) -> None:
    methods = [name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")]
    assert len(methods) <= 18
    assert all(hasattr(store, name) for name in (*methods, *Store.__annotations__))


# -- posting


def test_a_new_letter_is_accepted_with_a_number_and_one_delivery_per_recipient(store: Store) -> None:
    message = letter("m1", ["bob", "cleo"], parts=(text("hello"),))

    (posted,) = store.commit([post(message)])

    assert posted == Posted(message_id="m1", number=1, unknown=("bob", "cleo"))
    assert {found.delivery.mailbox: found.message for found in store.find(Query())} == {
        "bob": message,
        "cleo": message,
    }
    assert {delivery.number for delivery in (held(store, "m1"), held(store, "m1", "cleo"))} == {1}


def test_numbers_rise_in_the_order_of_writing(store: Store) -> None:
    batch = store.commit([post(letter("m1")), post(letter("m2"))])
    later = store.commit([post(letter("m3"))])

    numbers = [posted.number for posted in (*batch, *later)]
    assert numbers == sorted(set(numbers))
    assert ids(store, Query(order="age")) == ["m1", "m2", "m3"]


def test_copies_are_deliveries_like_the_first(store: Store) -> None:
    message = letter("m1", ["bob"], expires_at=after(9))
    store.commit([replace(post(message, due_at=after(5)), copies=("cleo", "dan"))])

    first = held(store, "m1", "bob")
    assert [held(store, "m1", name) for name in ("cleo", "dan")] == [
        replace(first, mailbox="cleo"),
        replace(first, mailbox="dan"),
    ]


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(letter("m1", key="k", subject="tea"), id="by id and key"),
        pytest.param(letter("m1", subject="tea"), id="by id"),
        pytest.param(letter("m2", key="k", subject="tea"), id="by key"),
        pytest.param(letter("m1", key="k", subject="tea", created_at=after(99)), id="written later"),
    ],
)
def test_the_same_letter_again_changes_nothing_and_returns_the_first(store: Store, again: Message) -> None:
    store.commit([post(letter("m1", key="k", subject="tea"))])
    before = everything(store)

    assert store.commit([post(again)]) == (Posted(message_id="m1", number=0, repeated=True),)
    assert everything(store) == before


def test_a_letter_sent_without_a_key_is_repeated_by_its_id_as_key(store: Store) -> None:
    store.commit([post(letter("m1", subject="tea"))])

    assert store.commit([post(letter("m2", key="m1", subject="tea"))]) == (
        Posted(message_id="m1", number=0, repeated=True),
    )


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (letter("m1", subject="coffee"), "id"),
        (letter("m2", key="k", subject="coffee"), "key"),
        (letter("m2", key="m0", subject="coffee"), "key"),
    ],
)
def test_an_id_or_key_with_other_content_is_refused(store: Store, other: Message, field: str) -> None:
    store.commit([post(letter("m0", subject="tea")), post(letter("m1", key="k", subject="tea"))])

    with pytest.raises(IdTaken) as refused:
        store.commit([post(other)])
    assert refused.value.field == field


def test_a_key_belongs_to_its_sender(store: Store) -> None:
    store.commit([post(letter("m1", key="k")), post(letter("m2"))])

    posted = store.commit([post(letter("m3", sender="bob", key="k")), post(letter("m4", sender="bob", key="m2"))])
    assert [(p.message_id, p.repeated) for p in posted] == [("m3", False), ("m4", False)]


def test_a_letter_that_has_a_key_is_not_repeated_by_its_id_as_key(store: Store) -> None:
    store.commit([post(letter("m1", key="k"))])

    assert not store.commit([post(letter("m2", key="m1"))])[0].repeated


def test_a_letter_is_repeated_within_one_batch(store: Store) -> None:
    first, again = store.commit([post(letter("m1", key="k")), post(letter("m2", key="k"))])

    assert (first.repeated, again.repeated, again.message_id) == (False, True, "m1")


@pytest.mark.parametrize("again", [letter("m1", key="k"), letter("m1"), letter("m2", key="k")])
def test_a_forgotten_letter_stays_spent(store: Store, again: Message) -> None:
    ack(store, send(store, "m1", key="k"))
    store.commit(forget(letter("m1", key="k")))

    assert store.commit([post(again)]) == (Posted(message_id="m1", number=0, repeated=True),)
    assert store.get(["m1", "m2"]) == {}
    with pytest.raises(IdTaken):
        store.commit([post(replace(again, subject="other"))])


def test_a_forgotten_letter_without_a_key_stays_spent_by_its_id_as_key(store: Store) -> None:
    ack(store, send(store, "m1"))
    store.commit(forget(letter("m1")))

    assert store.commit([post(letter("m2", key="m1"))])[0].repeated


# -- recipients


@pytest.mark.parametrize("move", ["read", "claim"])
def test_who_reads_or_claims_mail_is_known(store: Store, move: str) -> None:
    store.commit([post(letter("m1", ["bob", "cleo"]))])
    (read if move == "read" else claim)(store, held(store, "m1"))
    assert known_names(store) == ["ann", "bob"]
    assert store.commit([post(letter("m2", ["bob", "cleo"]))])[0].unknown == ("cleo",)


def test_what_the_post_room_does_to_mail_makes_no_agent_known(store: Store) -> None:
    store.commit([post(letter("m1"))])
    bury(store, held(store, "m1"))
    assert store.commit([post(letter("m2"))])[0].unknown == ("bob",)


def test_recipients_are_unknown_until_they_write_or_register(store: Store) -> None:
    def unknown(id: str) -> tuple[str, ...]:
        return store.commit([post(letter(id, ["bob", "cleo"]))])[0].unknown

    assert unknown("m1") == ("bob", "cleo")
    store.commit([post(letter("m2", sender="bob"))])
    assert unknown("m3") == ("cleo",)
    store.commit([Put(record=Record(kind=CARD, key="cleo", value={}))])
    assert unknown("m4") == ()


def test_a_letter_for_known_recipients_only_is_refused_for_others(store: Store) -> None:
    before = everything(store)

    with pytest.raises(UnknownAgent, match="bob"):
        store.commit([post(letter("m1"), known_only=True)])
    assert everything(store) == before

    store.commit([post(letter("m2", ["ann"]), known_only=True)])
    assert ids(store, Query()) == ["m2"]


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (post(letter("m2", ["zoe"], sender="ANN")), "sender"),
        (post(letter("m2", ["zoe", "Bob"])), "to"),
        (replace(post(letter("m2", ["zoe"])), copies=("Bob",)), "to"),
        (Put(record=Record(kind=CARD, key="Ann", value={})), "id"),
    ],
)
def test_a_name_that_reads_like_another_is_refused(store: Store, write: Write, field: str) -> None:
    send(store, "m1")
    before = everything(store)

    with pytest.raises(LookAlike) as refused:
        store.commit([write])
    assert refused.value.field == field
    assert everything(store) == before


def test_an_inbox_is_full_exactly_at_its_quota(store: Store) -> None:
    store.commit([post(letter(f"m{i}", sender=f"s{i}"), quota=3) for i in range(3)])

    with pytest.raises(QuotaFull, match="the inbox of 'bob' is full"):
        store.commit([post(letter("m3"), quota=3)])
    with pytest.raises(QuotaFull):
        store.commit([replace(post(letter("m3", ["cleo"]), quota=3), copies=("bob",))])
    assert ids(store, Query(mailbox="cleo")) == []

    store.commit([post(letter("m4"), quota=4), post(letter("m5", ["cleo"]), quota=3)])
    assert len(ids(store, Query(mailbox="bob"))) == 4


def test_only_mail_that_waits_unread_fills_an_inbox(store: Store) -> None:
    waiting = [send(store, f"m{i}", sender=f"s{i}") for i in range(3)]
    store.commit([post(letter("later", sender="s3"), due_at=after(9))])
    claim(store, waiting[0])

    with pytest.raises(QuotaFull):
        store.commit([post(letter("n0"), quota=4)])

    read(store, held(store, "m0"))
    store.commit([post(letter("n0"), quota=4)])
    ack(store, waiting[1])
    store.commit([post(letter("n1", sender="s4"), quota=4)])
    with pytest.raises(QuotaFull):
        store.commit([post(letter("n2", sender="s5"), quota=4)])


@pytest.mark.parametrize(("to", "limit"), [("bob", "quota"), ("bob@far", "outbox")])
@pytest.mark.parametrize(
    ("quota", "shares"),
    [(1, {"ann": 1}), (2, {"ann": 1, "eve": 1}), (3, {"ann": 1, "eve": 1, "max": 1}), (8, {"ann": 4, "eve": 2})],
)
def test_one_sender_gets_half_of_what_is_free_and_at_least_one_letter(
    store: Store, to: str, limit: str, quota: int, shares: dict[str, int]
) -> None:
    for name, share in shares.items():
        for n in range(share):
            store.commit([replace(post(letter(f"{name}{n}", [to], sender=name)), **{limit: quota})])
        with pytest.raises(QuotaFull) as refused:
            store.commit([replace(post(letter("more", [to], sender=name)), **{limit: quota})])
        assert (refused.value.temporary, refused.value.field) == (True, "to")
    assert waiting_letters(store, to, "ann") == (sum(shares.values()), shares["ann"])


def test_letters_that_are_committed_together_count_each_other_and_go_all_or_none(store: Store) -> None:
    with pytest.raises(QuotaFull, match="3 letters of 'ann' are unread in the inbox of 'bob'"):
        store.commit([post(letter(f"m{n}"), quota=6) for n in range(4)])
    with pytest.raises(QuotaFull, match="half of what is free"):
        store.commit([post(letter("m0", ["a@far", "b@far", "c@far/team", "d@FAR"]), outbox=6)])
    assert (waiting_letters(store, "bob", "ann"), waiting_letters(store, "x@far", "ann")) == ((0, 0), (0, 0))
    store.commit([post(letter(f"m{n}"), quota=6) for n in range(3)])
    store.commit([post(letter("n0", ["a@far", "b@far", "c@far/team"]), outbox=6)])
    assert (waiting_letters(store, "bob", "ann"), waiting_letters(store, "x@FAR", "ann")) == ((3, 3), (3, 3))


def test_letters_that_wait_are_counted_by_their_senders(store: Store) -> None:
    for number, sender in enumerate(("ann", "eve", "ann", "max")):
        send(store, f"m{number}", sender=sender)
    send(store, "m4", ["x@far"], sender="ann")
    assert {"ann": 2, "eve": 1, "max": 1} == store.count(Query(mailbox="bob"), by="sender")
    read(store, held(store, "m0"))
    ack(store, held(store, "m3"))
    assert {"ann": 1, "eve": 1} == store.count(Query(mailbox="BOB"), by="sender")
    assert {} == store.count(Query(mailbox="nobody"), by="sender")


def test_what_came_between_two_numbers_is_counted_by_pairs_and_moves(store: Store) -> None:
    numbers = [send(store, f"m{number}", sender=sender).number for number, sender in enumerate("aabc")]
    ack(store, held(store, "m0"))
    end = store.cursor().number
    ack(store, held(store, "m1"))
    between = LetterQuery(after=numbers[0], before=numbers[3])
    assert {("a", "bob"): 1, ("b", "bob"): 1} == store.count(between, by="pair")
    assert {("c", "bob"): 1} == store.count(LetterQuery(after=numbers[2]), by="pair")
    done = store.count(LetterQuery(after=numbers[3], before=end + 1), by="moved")
    assert 1 == done["bob", State.DONE]
    assert 2 == store.count(LetterQuery(after=numbers[3]), by="moved")["bob", State.DONE]


def test_a_broadcast_counts_in_every_inbox(store: Store) -> None:
    store.commit([replace(post(letter("m1")), copies=("cleo", "dora"))])
    counts = [waiting_letters(store, name, "ann") for name in ("bob", "cleo", "dora", "eve")]
    assert counts == [(1, 1)] * 3 + [(0, 0)]
    with pytest.raises(QuotaFull, match="dora"):
        store.commit([replace(post(letter("m2", ["eve"]), quota=3), copies=("dora",))])


def test_who_is_renamed_keeps_its_mail_and_its_share(store: Store) -> None:
    send(store, "m1")
    store.commit([Rename("ann", "anna"), Rename("bob", "bert")])
    assert {waiting_letters(store, to, by) for to in ("bob", "bert") for by in ("ann", "anna")} == {(1, 1)}
    with pytest.raises(QuotaFull, match="half of what is free"):
        store.commit([post(letter("m2", ["bert"], sender="anna"), quota=3)])
    ack(store, held(store, "m1", "bert"))
    assert waiting_letters(store, "bert", "anna") == (0, 0)


# -- moves, records, forgetting


def test_a_move_changes_the_delivery_it_names_and_no_other(store: Store) -> None:
    before = send(store, "m1", ["bob", "cleo"])

    claimed = claim(store, before)

    assert (held(store, "m1"), held(store, "m1", "cleo").state) == (claimed, State.UNREAD)


def test_of_two_moves_from_the_same_revision_the_second_is_stale(store: Store) -> None:
    before = send(store, "m1")
    claimed = claim(store, before)

    with pytest.raises(StaleRevision):
        ack(store, before)
    assert held(store, "m1") == claimed


def test_a_move_under_another_lease_is_stale_whatever_the_revision(store: Store) -> None:
    claimed = claim(store, send(store, "m1"))
    assert claimed.lease
    another = replace(claimed, lease=lease(token="another"))  # noqa: S106

    for stale in (another, replace(claimed, lease=None)):
        with pytest.raises(StaleRevision):
            store.commit([Move(stale, model_delivery.release(stale), "release")])
    assert held(store, "m1") == claimed
    ack(store, claimed)


@pytest.mark.parametrize(
    "nowhere",
    [Delivery(message_id="m1", mailbox="cleo", number=1), Delivery(message_id="m9", mailbox="bob", number=9)],
)
def test_a_move_of_a_delivery_that_is_not_there_is_refused(store: Store, nowhere: Delivery) -> None:
    send(store, "m1")
    before = everything(store)

    with pytest.raises(UnknownMessage):
        ack(store, nowhere)
    assert everything(store) == before


def test_a_record_is_written_at_the_revision_it_was_read_at(store: Store) -> None:
    store.commit([note({"n": 1})])
    assert store.records("note") == [Record(kind="note", key="k", value={"n": 1}, revision=1)]
    store.commit([note({"n": 2}, revision=1)])
    assert store.records("note", "k") == [Record(kind="note", key="k", value={"n": 2}, revision=2)]

    for stale in (0, 1, 3):
        with pytest.raises(StaleRevision):
            store.commit([note({"n": 3}, revision=stale)])
    assert store.records("note", "k")[0].value == {"n": 2}


def test_a_record_is_removed_by_the_value_none(store: Store) -> None:
    store.commit([note({"n": 1})])

    with pytest.raises(StaleRevision):
        store.commit([note(None)])
    store.commit([note(None, revision=1)])
    assert store.records("note") == []
    store.commit([note({"n": 2})])
    assert store.records("note")[0].revision == 1


def test_a_letter_is_forgotten_only_when_it_is_settled_everywhere(store: Store) -> None:
    ack(store, send(store, "m1", ["bob", "cleo"]))

    with pytest.raises(IllegalMove):
        store.commit([Forget("m1")])
    assert store.get(["m1"])

    bury(store, held(store, "m1", "cleo"))
    store.commit([Forget("m1")])
    assert (store.get(["m1"]), store.find(Query()), store.letters(LetterQuery())) == ({}, [], [])
    with pytest.raises(UnknownMessage):
        store.commit([Forget("m1")])


def test_a_letter_without_deliveries_is_kept(store: Store) -> None:
    store.commit([Post(message=letter("m1", []), deliveries=())])

    assert (list(store.get(["m1"])), store.find(Query())) == (["m1"], [])
