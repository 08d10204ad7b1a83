"""Letters from other systems: who may bring what for whom, and how one that comes twice is known again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from postroom import Room
from postroom.core import outbox, peers
from postroom.core.arrivals import accept
from postroom.errors import (
    DeadlinePassed,
    HopsSpent,
    IdTaken,
    Invalid,
    LoopDetected,
    NotAllowed,
    PostroomError,
    QuotaFull,
    TooFast,
    TooLarge,
    UnknownAgent,
)
from postroom.model import message as model_message
from postroom.model.delivery import State
from postroom.model.message import BOUNCE, Message, Recipient, TaskNote
from postroom.model.names import parse_address
from postroom.model.peer import Envelope, Peer
from postroom.model.query import Query
from postroom.store.protocol import is_known, waiting_letters
from tests.core.peering import know_peer
from tests.letters import NOW
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory, addresses

FAR = Peer(system="far", exposure="all", relays_for=("moon",))


@pytest.fixture
def room(factory: RoomFactory) -> Room:
    room = factory.room(system="here")
    know_peer(room, FAR)
    for name in ("bob", "carl"):
        room.mailbox(name).register()
    return room


def letter(text: str = "hello", *, id: str = "far-1", sender: str = "ann@far", **fields: Any) -> Message:
    params: dict[str, Any] = {"recipients": (Recipient("bob@here"),), "created_at": NOW, "trace": ("ann",)}
    return Message(id=id, sender=sender, parts=(model_message.text(text),), **(params | fields))


def arrival(message: Message, *to: str, **fields: Any) -> Envelope:
    params: dict[str, Any] = {"source": message.sender.partition("@")[2], "path": ("far",)}
    targets = tuple(parse_address(one, "to") for one in to or ("bob@here",))
    return Envelope(message=message, targets=targets, **(params | fields))


def bring(room: Room, message: Message, *to: str, peer: Peer = FAR, **fields: Any) -> list[PostroomError | None]:
    return [verdict.problem for verdict in accept(room.core, peer, arrival(message, *to, **fields))]


def refusal(room: Room, message: Message, *to: str, **fields: Any) -> PostroomError:
    before = room.core.store.count(Query(), by="all")
    (problem,) = bring(room, message, *to, **fields)
    assert problem is not None
    assert room.core.store.count(Query(), by="all") == before
    return problem


def texts(room: Room, name: str = "bob") -> list[str]:
    return [found.text for found in room.mailbox(name).check(peek=True)]


def test_a_letter_from_another_system_lies_in_the_inbox(room: Room) -> None:
    assert bring(room, letter(subject="Plans", scope="team", tags=("a",), metadata={"k": 1})) == [None]

    (found,) = room.mailbox("bob").check()
    message = found.message
    assert (message.id, message.sender, message.subject, message.text) == ("far-1", "ann@far", "Plans", "hello")
    assert (message.scope, message.tags, message.metadata, message.proven) == ("team", ("a",), {"k": 1}, False)
    assert (message.recipients, message.trace) == ((Recipient("bob"),), ("ann@far",))
    came = message.extra["federation"]
    assert (came["source"], came["id"], came["path"], came["hops"]) == ("far", "far-1", ["far"], 0)
    assert [f.message.id for f in room.mailbox("bob").check(sender="ann@far", unread_only=False)] == ["far-1"]


def test_it_is_answered_and_the_answer_waits_for_the_other_system(room: Room) -> None:
    bring(room, letter(recipients=(Recipient("bob@here"), Recipient("dora@far", "cc"))))
    answer = room.mailbox("bob").reply("far-1", "yes", to_all=True)

    assert addresses(answer.message) == ["ann@far", "dora@far"]
    assert (answer.message.thread_id, answer.message.hops) == ("far-1", 3)
    assert outbox.waiting_mailboxes(room.core) == ["ann@far", "dora@far"]


def test_the_answer_to_our_letter_joins_its_thread(room: Room) -> None:
    sent = room.mailbox("bob").send("ann@far", "a question", thread_tag="plans")
    bring(room, letter(in_reply_to=sent.id, thread_id="their-thread"))

    (found,) = room.mailbox("bob").check()
    assert (found.message.in_reply_to, found.message.thread_id, found.message.thread_tag) == (
        sent.id,
        sent.id,
        "plans",
    )


def test_what_it_answers_is_kept_as_said_where_nobody_knows_it(room: Room) -> None:
    bring(room, letter(in_reply_to="unknown-1", thread_id="unknown-0"))

    (found,) = room.mailbox("bob").check()
    assert (found.message.in_reply_to, found.message.thread_id) == ("unknown-1", "unknown-0")


def test_nobody_writes_into_a_thread_of_others(room: Room) -> None:
    theirs = room.mailbox("carl").send("dora", "between us")
    bring(room, letter(in_reply_to=theirs.id, thread_id=theirs.id))

    (found,) = room.mailbox("bob").check()
    assert found.message.thread_id is None


# -- once


def test_what_comes_twice_is_here_once(room: Room) -> None:
    assert [bring(room, letter()), bring(room, letter(), hops=2, path=("x", "far"))] == [[None], [None]]

    assert texts(room) == ["hello"]


def test_a_letter_that_is_done_or_deleted_is_confirmed_and_does_not_come_back(
    room: Room, clock: FakeClock
) -> None:
    bring(room, letter())
    room.mailbox("bob").check()[0].ack()
    assert bring(room, letter()) == [None]
    clock.advance(60)
    assert room.purge(older_than=1) == 1

    assert bring(room, letter()) == [None]
    assert room.core.store.count(Query(), by="all") == 0
    assert isinstance(refusal(room, letter("other words")), IdTaken)


def test_what_was_taken_is_confirmed_whatever_is_agreed_by_then(room: Room, clock: FakeClock) -> None:
    """Else its sender is told that it is dead, or gives it to another system."""
    soon = clock.now().wall + timedelta(minutes=1)
    first, second = letter(), letter("bye", id="far-2", expires_at=soon)
    assert [None] == bring(room, first, "bob") and [None] == bring(room, second, "bob")
    clock.advance(120)
    shut = replace(FAR, exposure="none")
    assert [None] == bring(room, first, "bob", peer=shut) and [None] == bring(room, second, "bob")
    assert "takes no mail" in str(refusal(room, letter(id="far-3"), "bob", peer=shut))
    assert "does not speak for" in str(refusal(room, first, "bob", peer=replace(FAR, system="else")))
    with pytest.raises(PostroomError, match="another letter"):
        raise refusal(room, letter("other words"), "bob")
    assert ["hello"] == texts(room)


def test_a_further_recipient_gets_a_copy_once(room: Room, clock: FakeClock) -> None:
    bring(room, letter())
    for _ in range(2):
        assert bring(room, letter(), "bob@here", "carl@here") == [None, None]

    (copy,) = room.mailbox("carl").check(peek=True)
    assert (texts(room), copy.text, copy.message.id != "far-1") == (["hello"], "hello", True)
    assert (copy.message.key, copy.message.extra["federation"]["id"]) == ("fed:far:far-1:carl", "far-1")
    copy.ack()
    clock.advance(60)
    assert room.purge(older_than=1) == 1
    assert bring(room, letter(), "carl@here") == [None]
    assert texts(room, "carl") == []


def test_the_id_of_another_letter_is_no_obstacle(room: Room) -> None:
    room.mailbox("carl").send("bob", "our own", id="far-1")
    for _ in range(2):
        assert bring(room, letter()) == [None]

    assert texts(room) == ["our own", "hello"]


def test_two_systems_may_use_the_same_id(room: Room) -> None:
    bring(room, letter("from far"))
    bring(room, letter("from the moon", sender="ann@moon"))

    assert texts(room) == ["from far", "from the moon"]


def test_other_words_under_the_same_id_are_refused(room: Room) -> None:
    bring(room, letter())

    assert isinstance(refusal(room, letter("other words")), IdTaken)
    assert texts(room) == ["hello"]


# -- for whom


@pytest.mark.parametrize("to", ["nobody@here", "Nobody", "x/y@here"])
def test_nobody_is_made_by_mail_from_outside(room: Room, to: str) -> None:
    assert isinstance(refusal(room, letter(), to), UnknownAgent)
    assert room.mailboxes() == ["bob", "carl"]


def test_a_name_that_was_only_written_to_is_unknown(room: Room) -> None:
    room.mailbox("bob").send("dora", "are you there?")

    assert isinstance(refusal(room, letter(), "dora@here"), UnknownAgent)


def test_one_who_writes_here_without_a_card_is_known(room: Room) -> None:
    room.mailbox("dora").send("bob", "hi")

    assert bring(room, letter(), "dora@here") == [None]


def test_names_are_found_as_they_are_spelt_and_called_now(room: Room) -> None:
    rename(room, "carl", "karl")

    assert bring(room, letter(), "BOB@HERE", "carl@here") == [None, None]
    assert (texts(room), texts(room, "karl")) == (["hello"], ["hello"])


def test_who_is_silent_for_long_takes_mail_and_it_waits(room: Room, clock: FakeClock) -> None:
    clock.advance(100_000)

    assert bring(room, letter()) == [None]
    assert texts(room) == ["hello"]


def test_who_left_for_good_gets_nothing_and_who_sleeps_or_left_just_now_does(room: Room, clock: FakeClock) -> None:
    room.mailbox("bob").leave()
    room.mailbox("carl").leave(dormant=True)
    assert bring(room, letter()) == [None]
    clock.advance(1000)

    assert isinstance(refusal(room, letter(id="far-2")), UnknownAgent)
    assert bring(room, letter(id="far-3"), "carl@here") == [None]


def test_each_target_is_distinguished(room: Room) -> None:
    room.mailbox("carl").block("ann@far")
    known, unknown, blocked = bring(room, letter(), "bob@here", "nobody@here", "carl@here")

    assert (known, type(unknown), type(blocked)) == (None, UnknownAgent, NotAllowed)
    assert (texts(room), texts(room, "carl")) == (["hello"], [])


def test_an_allow_list_may_name_an_agent_elsewhere_or_a_whole_system(room: Room) -> None:
    room.mailbox("bob").register(allow_from=["ann@far"])
    room.mailbox("carl").register(allow_from=["@moon"])

    assert bring(room, letter()) == [None]
    assert isinstance(refusal(room, letter(id="far-2", sender="eve@far")), NotAllowed)
    assert bring(room, letter(id="far-3", sender="eve@moon"), "carl@here") == [None]
    assert isinstance(refusal(room, letter(id="far-4"), "carl@here"), NotAllowed)


def test_who_asked_gets_the_answer(room: Room) -> None:
    room.mailbox("bob").register(allow_from=["carl"])
    sent = room.mailbox("bob").send("ann@far", "a question")

    assert bring(room, letter(in_reply_to=sent.id)) == [None]


def test_everybody_who_is_shown_gets_a_letter_to_the_system(room: Room) -> None:
    room.mailbox("carl").register(scopes=["team"])
    room.mailbox("dora").send("bob", "I have no card")

    assert bring(room, letter(), "@here") == [None]
    assert bring(room, letter("team", id="far-2"), "@here/team") == [None]
    assert (texts(room)[-1:], texts(room, "carl"), texts(room, "dora")) == (["hello"], ["hello", "team"], [])
    assert isinstance(
        refusal(room, letter(id="far-3"), "@here", peer=replace(FAR, exposure="gateway")), UnknownAgent
    )


def test_who_is_not_exposed_is_refused(room: Room) -> None:
    room.mailbox("carl").register(scopes=["open"])
    tagged = replace(FAR, exposure="tagged", tags=("open",))

    assert isinstance(refusal(room, letter(), peer=replace(FAR, exposure="none")), NotAllowed)
    assert isinstance(refusal(room, letter(), peer=tagged), NotAllowed)
    assert bring(room, letter(), "carl@here", peer=tagged) == [None]
    assert bring(room, letter(id="far-2"), peer=replace(FAR, exposure="gateway")) == [None]


def test_a_full_inbox_is_distinguished_from_one_that_is_not(factory: RoomFactory) -> None:
    room = factory.room(system="here", inbox_quota=1)
    know_peer(room, FAR)
    for name in ("bob", "carl"):
        room.mailbox(name).register()
    bring(room, letter())
    full, free = bring(room, letter(id="far-2"), "bob@here", "carl@here")

    assert (type(full), free) == (QuotaFull, None)
    assert bring(room, letter()) == [None]  # a repeat needs no room


# -- who says it, and which way it came


def test_a_peer_speaks_for_itself_and_for_those_that_it_relays_for(room: Room) -> None:
    assert bring(room, letter(sender="ann@moon")) == [None]
    assert isinstance(refusal(room, letter(id="far-2", sender="ann@mars")), NotAllowed)
    assert isinstance(refusal(room, letter(id="far-3", sender="ann@moon"), source="far"), NotAllowed)
    assert isinstance(refusal(room, letter(id="far-4", sender="bob")), PostroomError)
    assert isinstance(refusal(room, letter(id="far-5"), peer=replace(FAR, trusted=False)), NotAllowed)


def test_a_letter_goes_in_no_circle_and_not_too_far(room: Room) -> None:
    assert isinstance(refusal(room, letter(), path=("x", "HERE", "far")), LoopDetected)
    assert isinstance(refusal(room, letter(), hops=10), HopsSpent)
    assert isinstance(refusal(room, letter(), path=tuple("abcdefghijk")), HopsSpent)
    assert bring(room, letter(), hops=9) == [None]


def test_only_a_post_room_writes_notices(room: Room) -> None:
    assert isinstance(refusal(room, letter(kind=BOUNCE)), NotAllowed)


def test_the_notice_of_another_system_belongs_to_the_letter_it_is_about(room: Room) -> None:
    sent = room.mailbox("bob").send("ann@far", "hello")
    assert bring(room, letter("dead", sender="postmaster@far", kind=BOUNCE, in_reply_to=sent.id)) == [None]

    (found,) = room.mailbox("bob").check()
    assert (found.message.thread_id, found.message.is_automatic) == (sent.id, True)
    assert len(room.mailbox("bob").trace(sent.id).bounces) == 1


# -- what it says


def test_what_no_letter_may_say_is_refused(room: Room) -> None:
    past = NOW - timedelta(seconds=1)

    assert isinstance(refusal(room, letter("x" * 2_000_000)), TooLarge)
    assert isinstance(refusal(room, letter(expires_at=past)), DeadlinePassed)
    assert isinstance(refusal(room, letter(kind="no kind")), Invalid)
    assert isinstance(refusal(room, letter(trace=("../x",))), Invalid)


def test_a_path_in_a_letter_from_outside_is_never_followed(room: Room, factory: RoomFactory) -> None:
    (factory.folder / "files" / "secret.txt").write_text("secret")
    named = model_message.Part("file", path="secret.txt", bytes=None)
    assert bring(room, replace(letter(), parts=(named,))) == [None]
    (found,) = room.mailbox("bob").check()

    assert found.parts == (named,)
    assert found.forward("carol").message.parts == (named,)


def test_hops_are_never_more_than_ours_and_the_trace_knows_who_is_where(room: Room) -> None:
    bring(room, letter(hops=99, trace=("zoe", "carl@here", "ann")))
    (found,) = room.mailbox("bob").check()

    assert (found.message.hops, found.message.trace) == (3, ("zoe@far", "carl", "ann@far"))
    with pytest.raises(LoopDetected):
        room.mailbox("bob").forward("far-1", "zoe@far")


def test_a_task_from_another_system_stands_in_the_book(room: Room) -> None:
    bring(room, letter(kind="task", task=TaskNote(id="far-1")))

    (task,) = room.mailbox("bob").tasks()
    assert (task.id, task.giver, task.receiver) == ("far-1", "ann@far", "bob")
    task.accept()
    assert outbox.waiting_mailboxes(room.core) == ["ann@far"]


# -- through here


def hub(room: Room, **fields: Any) -> Peer:
    know_peer(room, Peer(system="mars"))
    return replace(FAR, **({"relays_to": True} | fields))


def test_a_hub_passes_on_what_may_go_through_it(room: Room) -> None:
    peer = hub(room)
    assert bring(room, letter(), "dora@mars", "bob@here", peer=peer, hops=1) == [None, None]
    assert bring(room, letter(), "dora@mars", "bob@here", peer=peer, hops=1) == [None, None]

    (found,) = outbox.next_letters(room.core, outbox.waiting_mailboxes(room.core), 10)
    assert (found.message.sender, found.delivery.mailbox, found.delivery.state) == (
        "ann@far",
        "dora@mars",
        State.QUEUED,
    )
    assert (found.message.extra["federation"]["path"], texts(room)) == (["far"], ["hello"])


def test_a_hub_refuses_what_may_not(room: Room) -> None:
    peer = hub(room)

    assert isinstance(refusal(room, letter(), "dora@mars"), NotAllowed)
    assert isinstance(refusal(room, letter(), "dora@nowhere", peer=peer), PostroomError)
    assert isinstance(refusal(room, letter(), "dora@mars", peer=peer, path=("mars", "far")), LoopDetected)
    assert isinstance(refusal(room, letter(), "dora@far", peer=peer), LoopDetected)
    assert isinstance(refusal(room, letter(), "dora@mars", peer=peer, hops=9), HopsSpent)


def test_a_refusal_further_on_comes_back_as_a_notice(room: Room) -> None:
    bring(room, letter(), "dora@mars", peer=hub(room))
    (found,) = outbox.next_letters(room.core, outbox.waiting_mailboxes(room.core), 10)
    outbox.record_refusal(room.core, found, "nobody is called dora")

    (notice,) = outbox.next_letters(room.core, outbox.waiting_mailboxes(room.core), 10)
    assert (notice.delivery.mailbox, notice.message.kind) == ("ann@far", BOUNCE)
    assert notice.message.in_reply_to == "far-1"
    outbox.record_refusal(room.core, notice, "no")
    assert outbox.waiting_mailboxes(room.core) == []


def test_who_is_to_be_found_is_found_here_or_passed_on(factory: RoomFactory, room: Room) -> None:
    assert bring(room, letter(), "bob@*") == [None]
    asks_nobody = factory.room(system="here", federation_refresh_on_miss=False)
    assert isinstance(refusal(asks_nobody, letter(), "dora@*", peer=hub(room)), UnknownAgent)
    assert bring(room, letter(id="far-2"), "dora@*", peer=hub(room)) == [None]
    assert outbox.waiting_mailboxes(room.core) == ["dora@*"]


def test_an_agent_is_reached_only_from_a_scope_that_exchanges_mail_with_its_own(room: Room) -> None:
    room.mailbox("dora").register(scopes=["dev"])
    room.mailbox("olga").register(scopes=["ops"])
    peer = know_peer(room, replace(FAR, scopes={"dev": ("far/dev",), "ops": ("far/ops",)}))
    assert bring(room, letter(id="1", scope="dev"), "dora@here/dev", peer=peer) == [None]
    (refused,) = bring(room, letter(id="2", scope="dev"), "olga@here/dev", peer=peer)
    assert isinstance(refused, NotAllowed)
    assert bring(room, letter(id="3", scope="dev"), "@here", peer=peer) == [None]
    assert (2, 0) == tuple(len(room.mailbox(name).check(peek=True)) for name in ("dora", "olga"))


def test_a_sender_is_known_however_it_or_its_system_is_spelt(room: Room) -> None:
    room.mailbox("bob").send("Ann@far", "a question")
    assert bring(room, letter("one", id="1")) == [None]
    assert bring(room, letter("two", id="2", sender="ANN@FAR")) == [None]
    assert bring(room, letter("two", id="2", sender="ann@Far")) == [None]
    assert ["one", "two"] == texts(room)
    assert {"Ann@far"} == {found.sender for found in room.mailbox("bob").check(peek=True)}


def test_a_spelling_of_one_writer_keeps_no_other_from_the_name(room: Room) -> None:
    know_peer(room, Peer(system="mars"))
    passing = replace(FAR, relays_to=True)
    for id, to in (("1", "ZOE@mars"), ("2", "zoe@mars"), ("3", "zoe@MARS")):
        assert bring(room, letter(id=id), to, peer=passing) == [None]
    assert ["ZOE@mars"] == outbox.waiting_mailboxes(room.core)
    assert bring(room, letter(id="4", sender="zoe@mars"), peer=Peer(system="mars", exposure="all")) == [None]


def test_who_is_hidden_stays_so_in_another_spelling(room: Room) -> None:
    message = (Recipient("carl@here"), Recipient("BOB@here", "bcc"))
    assert bring(room, letter(recipients=message), "carl@here", "BOB@here") == [None, None]
    (found,) = room.mailbox("carl").check()
    assert ["carl"] == addresses(found.message)


def test_what_is_passed_on_waits_since_it_came_whatever_the_clock_where_it_was_written(
    room: Room, clock: FakeClock
) -> None:
    know_peer(room, Peer(system="mars"))
    passing = replace(FAR, relays_to=True)
    old = letter(created_at=NOW - timedelta(days=30))
    assert bring(room, old, "zoe@mars", peer=passing) == [None]
    assert 0 == outbox.give_up_old(room.core, clock.wall)
    clock.advance(24 * 3600)
    assert 1 == outbox.give_up_old(room.core, clock.wall)


def test_a_name_that_nobody_here_has_stays_elsewheres_and_an_answer_to_all_makes_no_mailbox(room: Room) -> None:
    to = (Recipient("bob@here"), Recipient("nobody@here", "cc"), Recipient("carl@here", "cc"))
    bring(room, letter(recipients=to), "bob@here", "carl@here")
    (found,) = room.mailbox("bob").check()
    assert ["bob", "nobody@here", "carl"] == [one.address for one in found.message.recipients]

    answer = found.reply("to all", to_all=True)
    assert ["ann@far", "carl"] == addresses(room.core.store.get([answer.id])[answer.id].message)
    assert not is_known(room.core.store, "nobody") and room.mailbox("nobody").check() == []


def test_a_letter_is_known_again_whichever_way_it_comes(room: Room) -> None:
    """Its own system brought it, and nobody told that system so; then a hub brings it, in words of its own."""
    know_peer(room, Peer(system="hub", exposure="all", relays_for=("FAR",)))
    hub = peers.known_peer(room.core, "hub")
    direct = letter(key="k", hops=3, thread_tag="t", thread_id="root", conversation_id="c")
    passed_on = letter(hops=1, trace=("ann@far", "zoe@far"), thread_id="other")
    assert [None] == bring(room, direct)
    assert [None] == bring(room, passed_on, peer=hub, source="FAR", path=("FAR", "hub"), hops=1)
    assert 1 == len(room.mailbox("bob").check())
    assert isinstance(bring(room, letter("something else"), peer=hub, path=("far", "hub"))[0], IdTaken)


# -- several at once


def test_letters_that_come_together_do_not_pass_the_pace_of_a_thread_that_they_do_not_name(
    factory: RoomFactory,
) -> None:
    """They answer two letters of one thread: only here is it known that this is one."""
    room = factory.room(system="here", thread_rate=1)
    know_peer(room, FAR)
    request = room.mailbox("bob").send("ann@far", "which one?")
    more = room.mailbox("bob").send("ann@far", "or both?", in_reply_to=request.id)
    message = [letter(id=f"r{n}", in_reply_to=one.id) for n, one in enumerate((request, more))]

    assert bring(room, message[0]) == [None]
    assert isinstance(refusal(room, message[1]), TooFast)


def test_of_a_letter_to_several_at_a_system_those_go_further_that_fit(factory: RoomFactory) -> None:
    room = factory.room(system="here", outbox_max_letters=4)
    peer = know_peer(room, replace(FAR, relays_to=True))
    know_peer(room, Peer(system="sun"))
    room.mailbox("bob").register()

    result = bring(room, letter(), "a@sun", "b@sun", "c@SUN", "bob@here", "a@sun", peer=peer)
    assert [type(one) for one in result] == [type(None), type(None), QuotaFull, type(None), type(None)]
    assert waiting_letters(room.core.store, "x@sun", "ann@far") == (2, 2)


def test_one_sender_elsewhere_gets_half_of_what_is_free(factory: RoomFactory) -> None:
    room = factory.room(system="here", inbox_quota=4)
    know_peer(room, FAR)
    room.mailbox("bob").register()
    assert [bring(room, letter(id=f"f{n}")) for n in range(2)] == [[None], [None]]
    (refused,) = bring(room, letter(id="f3"))
    assert isinstance(refused, QuotaFull) and "half of what is free" in str(refused)
    assert bring(room, letter(id="f4", sender="eve@far")) == [None]
