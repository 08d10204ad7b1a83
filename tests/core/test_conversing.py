"""Conversations that are opened, joined, spoken in and closed (I3, I8): letters tell turns, a record the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from postroom import IdTaken, IllegalMove, Invalid, LookAlike, Missing, NotAllowed, Room, TooLarge
from postroom.core import conversations
from postroom.core import threads as core_threads
from postroom.core.authorize import OWNER, Principal, agent_principal
from postroom.core.conversations import Guest, OpenConversation, RecentLetters, TakeTurn, View
from postroom.core.threads import TurnFilter, ViewTurns
from postroom.core.verb import perform
from postroom.formats.mail import presence_record, stats_record
from postroom.model.message import payload_to_parts
from postroom.model.query import Query
from postroom.model.record import CONVERSATION, HAPPENED
from postroom.model.thread import general_conversation, tag_conversation, thread_of
from postroom.store.protocol import record_keys
from tests import conversing
from tests.people import signing
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory

ANN, BOB, EVE = map(agent_principal, ("ann", "bob", "eve"))


def opened(room: Room, *members: str, **message: Any) -> str:
    opening = OpenConversation(
        creator=members[0] if members else None, guests=tuple(Guest(agent=x) for x in members[1:]), **message
    )
    return conversing.create(room.core, OWNER, opening).talk.id


def say(room: Room, id: str, who: str, text: Any, caller: Any = OWNER, **more: Any) -> str:
    return conversing.turn(room.core, caller, id, who, TakeTurn(body=payload_to_parts(text), **more)).id


def names(view: View) -> list[str]:
    return [seat.agent for seat in view.seats]


def spoken(view: View) -> list[str]:
    return [letter.text for letter in view.letters]


def inbox(room: Room, name: str) -> list[str]:
    return [letter.text for letter in room.mailbox(name).check(peek=True)]


def test_a_turn_reaches_everybody_else_and_is_the_same_after_a_restart(factory: RoomFactory) -> None:
    room = factory.room()
    id = opened(room, "ann", "bob", subject="Sort")
    room.mailbox("ann").send("carol", "you too", conversation_id=id)  # a letter makes participants too
    letter = say(room, id, "ann", "hello")
    assert inbox(room, "bob") == ["hello"]
    assert inbox(room, "carol") == ["you too", "hello"]
    before = conversing.get_view(room.core, OWNER, id)
    factory.reopen()
    after = conversing.get_view(factory.room().core, OWNER, id)
    assert before == after
    assert (after.talk.subject, names(after), spoken(after)) == (
        "Sort", ["ann", "bob", "carol"], ["you too", "hello"],
    )  # fmt: skip
    assert letter == after.letters[-1].id


def test_who_is_alone_takes_a_turn_that_disturbs_nobody(factory: RoomFactory) -> None:
    id = opened(factory.room(), "ann")
    say(factory.room(), id, "ann", "anybody?")
    factory.reopen()
    room = factory.room()
    assert ["anybody?"] == spoken(conversing.get_view(room.core, ANN, id))
    assert [] == inbox(room, "ann")
    room.sweep()
    assert ["anybody?"] == spoken(conversing.get_view(room.core, OWNER, id))


def test_letters_alone_make_conversations_that_can_be_spoken_in(room: Room) -> None:
    room.mailbox("ann").send("bob", "1", thread_tag="plan")
    room.mailbox("ann").send("bob", "2")
    for id in (tag_conversation("plan"), general_conversation()):
        say(room, id, "bob", "yes")
        view = conversing.get_view(room.core, OWNER, id)
        assert (view.held, view.talk.status, names(view), len(view.letters)) == (None, "active", ["ann", "bob"], 2)
    assert inbox(room, "ann") == ["yes", "yes"]


def test_the_members_of_a_scope_who_got_a_broadcast_are_in_its_conversation(room: Room) -> None:
    for name in ("ann", "bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    room.mailbox("ann").broadcast("team", "all hands", conversation_id="c-1")
    say(room, "c-1", "bob", "here", BOB)
    assert inbox(room, "carol") == ["all hands", "here"]


def test_nobody_speaks_in_a_closed_conversation_until_it_is_reopened(room: Room) -> None:
    id = opened(room, "ann", "bob")
    for status in ("paused", "completed", "archived"):
        assert conversing.close(room.core, OWNER, id, status).talk.status == status
        assert conversing.close(room.core, OWNER, id, status).talk.closed_at is not None
        with pytest.raises(IllegalMove, match=status):
            say(room, id, "ann", "late")
    with pytest.raises(IllegalMove, match="legal from here: reopen"):
        conversing.close(room.core, OWNER, id, "failed")
    with pytest.raises(Invalid):
        conversing.close(room.core, OWNER, id, "nonsense")
    view = conversing.reopen(room.core, BOB, id)
    assert (view.talk.status, view.talk.closed_at) == ("active", None)
    say(room, id, "ann", "on")
    assert inbox(room, "bob") == ["on"]


def test_who_joins_gets_later_turns_and_who_leaves_gets_none(room: Room, clock: FakeClock) -> None:
    id = opened(room, "ann", "bob")
    say(room, id, "ann", "1")
    conversing.join(room.core, OWNER, id, "carol", "observer")
    conversing.join(room.core, OWNER, id, "carol")
    clock.advance(1)
    left = conversing.leave(room.core, BOB, id, "bob")
    assert left == clock.wall == conversing.leave(room.core, OWNER, id, "bob")
    say(room, id, "ann", "2")
    assert (inbox(room, "bob"), inbox(room, "carol")) == (["1"], ["2"])
    for caller in (BOB, OWNER):
        with pytest.raises(NotAllowed):
            say(room, id, "bob", "still here", caller)
    view = conversing.join(room.core, BOB, id, "bob")
    assert names(view) == ["ann", "bob", "carol"]
    assert ["observer"] == [seat.role for seat in view.seats if seat.agent == "carol"]
    conversing.leave(room.core, OWNER, id, "stranger")
    assert "stranger" not in names(conversing.get_view(room.core, OWNER, id))


def test_what_an_agent_may_not_see_is_as_if_it_were_not_there(room: Room) -> None:
    id = opened(room, "ann", "bob")
    root = say(room, id, "ann", "1")
    core = room.core
    for unseen in (id, "not-there"):
        verbs: list[Callable[[str], object]] = [
            lambda x: conversing.get_view(core, EVE, x),
            lambda x: conversing.join(core, EVE, x, "eve"),
            lambda x: conversing.leave(core, EVE, x, "eve"),
            lambda x: conversing.close(core, EVE, x),
            lambda x: conversing.reopen(core, EVE, x),
            lambda x: conversing.invite(core, EVE, x, Guest(agent="eve")),
            lambda x: conversing.start_thread(core, EVE, x, root),
            lambda x: say(room, x, "eve", "hi", EVE),
        ]
        for verb in verbs:
            with pytest.raises(Missing, match="no conversation"):
                verb(unseen)
    assert [] == list(conversing.conversations(core, EVE, None, None))
    forgeries: list[Callable[[], object]] = [
        lambda: conversing.join(core, EVE, id, "bob"),
        lambda: conversing.leave(core, EVE, id, "bob"),
        lambda: say(room, id, "bob", "forged", EVE),
        lambda: conversing.create(core, EVE, OpenConversation(creator="bob")),
    ]
    for forged in forgeries:
        with pytest.raises(NotAllowed):
            forged()


def test_an_agent_sees_only_turns_it_sent_or_received(room: Room) -> None:
    id = opened(room, "ann", "bob")
    say(room, id, "ann", "early")
    room.mailbox("ann").send("dave", "aside", conversation_id=id)
    conversing.invite(room.core, ANN, id, Guest(agent="eve", role="observer"))
    say(room, id, "bob", "late", BOB)
    assert ["late"] == spoken(conversing.get_view(room.core, EVE, id))
    assert ["early", "late"] == spoken(conversing.get_view(room.core, BOB, id))
    assert ["ann", "bob", "eve"] == names(conversing.get_view(room.core, EVE, id))  # nothing tells them of dave
    assert ["early", "aside", "late"] == spoken(conversing.get_view(room.core, OWNER, id))
    assert inbox(room, "dave") == ["aside"]


@pytest.mark.parametrize("to", ["eve", "bob"])
def test_a_letter_of_ones_own_lets_nobody_into_a_conversation(room: Room, to: str) -> None:
    """Its id is no secret, and anybody can write it on a letter, to themselves or to somebody in it."""
    core = room.core
    id = opened(room, "ann", "bob", subject="Private", metadata={"secret": 1})
    root = room.mailbox("eve").send(to, "let me in", conversation_id=id).id
    verbs: list[Callable[[], object]] = [
        lambda: conversing.join(core, EVE, id, "eve"),
        lambda: conversing.leave(core, EVE, id, "eve"),
        lambda: conversing.close(core, EVE, id),
        lambda: conversing.reopen(core, EVE, id),
        lambda: conversing.invite(core, EVE, id, Guest(agent="eve")),
        lambda: conversing.start_thread(core, EVE, id, root),
        lambda: conversing.create(core, EVE, OpenConversation(creator="eve", parent=id)),
        lambda: say(room, id, "eve", "hi", EVE),
    ]
    for verb in verbs:
        with pytest.raises(Missing, match="no conversation"):
            verb()
    for caller, speaker in ((ANN, "ann"), (BOB, "bob"), (OWNER, "ann")):
        say(room, id, speaker, "among us", caller)
        assert "eve" not in names(conversing.get_view(core, caller, id))
    (seen,) = [conversing.get_view(core, EVE, id)]
    assert (["let me in"], "", {}) == (spoken(seen), seen.talk.subject, seen.talk.metadata)
    assert "ann" not in names(seen)
    assert not conversations.is_notified(core, EVE, conversing.get_view(core, OWNER, id).talk)
    assert "among us" not in inbox(room, "eve")


def test_who_is_in_a_conversation_lets_others_in_by_writing_to_them(room: Room) -> None:
    core = room.core
    id = opened(room, "ann", subject="Ours")
    room.mailbox("ann").send("bob", "1", conversation_id=id)
    room.mailbox("bob").send("eve", "2", conversation_id=id)
    assert "Ours" == conversing.get_view(core, EVE, id).talk.subject
    say(room, id, "eve", "3", EVE)
    assert ["1"] == [text for text in inbox(room, "bob") if text != "3"]
    say(room, id, "ann", "4", ANN)
    assert "4" in inbox(room, "bob")
    assert {"ann", "eve"} <= {*names(conversing.join(core, EVE, id, "eve"))}


def test_nobody_takes_over_a_conversation_that_only_letters_tell_of(room: Room) -> None:
    core = room.core
    room.mailbox("ann").send("bob", "1", conversation_id="c-1")
    room.mailbox("eve").send("eve", "mine?", conversation_id="c-1")
    for verb in (conversing.close, conversing.reopen):
        with pytest.raises(Missing):
            verb(core, EVE, "c-1")
    with pytest.raises(Missing):
        conversing.join(core, EVE, "c-1", "eve")
    with pytest.raises(IdTaken):
        conversing.create(core, EVE, OpenConversation(id="c-1", creator="eve"))
    conversing.close(core, BOB, "c-1")
    assert ("completed", "ann") == _status(conversing.get_view(core, ANN, "c-1"))


def _status(view: View) -> tuple[str, str]:
    return view.talk.status, view.talk.created_by


def test_who_is_spoken_for_by_the_operator_is_in_the_conversation_from_then_on(room: Room) -> None:
    id = opened(room, "ann", "bob")
    say(room, id, "carol", "here I am")
    say(room, id, "ann", "welcome", ANN)
    assert ["welcome"] == inbox(room, "carol")


def test_hidden_recipients_stay_hidden(room: Room) -> None:
    room.mailbox("ann").send("bob", "1", bcc="eve", conversation_id="c-1")
    for caller in (OWNER, ANN, BOB, EVE):
        assert ["ann", "bob"] == names(conversing.get_view(room.core, caller, "c-1"))
    assert conversing.get_view(room.core, BOB, "c-1").letters[0].recipients == (
        conversing.get_view(room.core, OWNER, "c-1").letters[0].recipients
    )
    say(room, "c-1", "bob", "2", BOB)
    assert inbox(room, "eve") == ["1"]
    with pytest.raises(NotAllowed):
        say(room, "c-1", "eve", "3", EVE)


def test_a_turn_may_be_for_some_alone(room: Room) -> None:
    id = opened(room, "ann", "bob", "carol")
    conversing.invite(room.core, OWNER, id, Guest(agent="mod", role="moderator"))
    say(room, id, "ann", "b", visibility={"type": "participants", "ids": ["bob", "stranger"]})
    say(room, id, "ann", "m", visibility={"type": "role", "roles": ["moderator"]})
    say(room, id, "ann", "p", visibility={"type": "private"})
    say(room, id, "ann", "a", visibility={"type": "all"})
    assert [inbox(room, name) for name in ("bob", "carol", "mod")] == [["b", "a"], ["a"], ["m", "a"]]
    for wrong in ({"type": "role"}, {"type": "others"}, "all"):
        with pytest.raises(Invalid):
            say(room, id, "ann", "x", visibility=wrong)


def test_replies_and_threads(factory: RoomFactory) -> None:
    room = factory.room()
    id = opened(room, "ann", "bob")
    root = say(room, id, "ann", "q")
    answer = say(room, id, "bob", "a", reply_to=root)
    conversing.join(room.core, OWNER, id, "carol")
    late = say(room, id, "carol", "me too", reply_to=root)  # which she never got: no letter passes it on
    opened_thread = conversing.start_thread(room.core, OWNER, id, answer, subject="Side")
    inside = say(room, id, "ann", "aside", thread=opened_thread.id)
    again = conversing.start_thread(room.core, ANN, id, answer, parent=opened_thread.id)
    assert again.id != opened_thread.id == f"thread-{answer}"
    factory.reopen()
    view = conversing.get_view(factory.room().core, OWNER, id)
    assert [s.id for s in view.strands] == [f"thread-{root}", opened_thread.id, again.id]
    threads = {letter.id: thread_of(letter) for letter in view.letters}
    assert threads == {
        root: None, answer: f"thread-{root}", late: f"thread-{root}", inside: opened_thread.id,
    }  # fmt: skip
    by_id = {letter.id: letter for letter in view.letters}
    assert (by_id[answer].in_reply_to, by_id[late].in_reply_to) == (root, None)
    with pytest.raises(Missing, match="no thread"):
        say(room, id, "ann", "x", thread="thread-nowhere")
    with pytest.raises(Missing, match="no turn"):
        conversing.start_thread(room.core, ANN, id, "nowhere")
    assert "nowhere" == conversing.start_thread(room.core, OWNER, id, "nowhere").root  # as agent-inbox does
    with pytest.raises(Missing, match="no turn"):  # she joined after it
        say(room, id, "carol", "x", agent_principal("carol"), reply_to=root)


def test_many_may_join_one_after_another_and_answer(room: Room) -> None:
    """An answer to somebody new is no relay: hops are never spent by talking."""
    id = opened(room, "ann")
    last = say(room, id, "ann", "0")
    for number in range(6):
        conversing.join(room.core, OWNER, id, f"agent-{number}")
        last = say(room, id, f"agent-{number}", str(number), reply_to=last)
    assert len(inbox(room, "ann")) == 6


def test_a_conversation_of_others_cannot_be_opened_under_them(room: Room) -> None:
    room.mailbox("ann").send("bob", "1", conversation_id="c-1")
    for taken in ("c-1", tag_conversation("plan")):
        with pytest.raises(IdTaken):
            conversing.create(room.core, EVE, OpenConversation(id=taken))
    conversing.create(room.core, ANN, OpenConversation(id="c-1", subject="Ours"))
    with pytest.raises(IdTaken):
        conversing.create(room.core, OWNER, OpenConversation(id="c-1"))
    with pytest.raises(Invalid, match="catch-all"):
        conversing.create(room.core, OWNER, OpenConversation(id=general_conversation()))
    assert conversing.get_view(room.core, BOB, "c-1").talk.subject == "Ours"


def test_the_first_turn_is_in_the_commit_that_opens_the_conversation(room: Room) -> None:
    first = TakeTurn(body=payload_to_parts("go"))
    opening = OpenConversation(creator="ann", guests=(Guest(agent="bob"),))
    view = conversing.create(room.core, ANN, replace(opening, first=first))
    assert (spoken(view), inbox(room, "bob")) == (["go"], ["go"])
    room.mailbox("bob").block("ann")
    with pytest.raises(NotAllowed):
        conversing.create(room.core, OWNER, replace(opening, id="c-2", first=first))
    with pytest.raises(Missing):
        conversing.get_view(room.core, OWNER, "c-2")
    with pytest.raises(NotAllowed):  # and nobody is drawn into a conversation by whom they blocked
        conversing.create(room.core, ANN, opening)


def test_names_are_checked_before_they_take_a_seat(room: Room) -> None:
    room.mailbox("Bob").register()
    id = opened(room, "ann")
    for wrong, error in (
        ("bob", LookAlike),
        ("Ann", LookAlike),
        ("postmaster", Invalid),
        ("a b", Invalid),
        (3, Invalid),
    ):
        with pytest.raises(error):
            conversing.invite(room.core, OWNER, id, Guest(agent=wrong))


def test_the_human_has_one_seat_whatever_they_are_called(room: Room) -> None:
    id = opened(room, "ceo", "bob")
    conversing.join(room.core, OWNER, id, "user")
    say(room, id, "User", "do it")
    assert (["human", "bob"], ["do it"]) == (
        names(conversing.get_view(room.core, OWNER, id)),
        inbox(room, "bob"),
    )
    with pytest.raises(NotAllowed, match="with a person's key"):
        conversing.leave(room.core, OWNER, id, "user")
    conversing.leave(room.core, signing(room).principal, id, "user")
    assert ["bob"] == names(conversing.get_view(room.core, OWNER, id))


def test_a_conversation_is_bounded(factory: RoomFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    room = factory.room(max_recipients=2)
    id = opened(room, "ann", "bob")
    with pytest.raises(TooLarge, match="participants"):
        conversing.join(room.core, OWNER, id, "carol")
    root = say(room, id, "ann", "1")
    monkeypatch.setattr(conversations, "MOST_STRANDS", 1)
    conversing.start_thread(room.core, OWNER, id, root)
    with pytest.raises(TooLarge, match="threads"):
        conversing.start_thread(room.core, OWNER, id, root)
    with pytest.raises(Invalid, match="the first turn"):
        conversing.create(room.core, OWNER, OpenConversation(first=TakeTurn(body=["x"])))
    with pytest.raises(Invalid, match="type of conversation"):
        conversing.create(room.core, OWNER, OpenConversation(type="party"))


def test_a_turn_sent_twice_with_one_key_is_one_turn(room: Room) -> None:
    id = opened(room, "ann", "bob")
    first = say(room, id, "ann", "1", key="k")
    conversing.join(room.core, OWNER, id, "carol")
    conversing.close(room.core, OWNER, id)
    assert first == say(room, id, "ann", "1", key="k")
    assert 1 == len(conversing.get_view(room.core, OWNER, id).letters)


def test_a_seat_follows_its_owner_to_another_name(room: Room) -> None:
    id = opened(room, "ann", "bob")
    say(room, id, "bob", "1")
    rename(room, "bob", "robert")
    say(room, id, "ann", "2")
    assert inbox(room, "robert") == ["2"]
    view = conversing.get_view(room.core, agent_principal("robert"), id)
    assert (names(view), spoken(view)) == (["ann", "robert"], ["1", "2"])


def test_conversations_are_listed_by_their_last_sign(room: Room, clock: FakeClock) -> None:
    first = opened(room, "ann", "bob", id="c-1")
    clock.advance(1)
    room.mailbox("ann").send("bob", "x", thread_tag="plan", scope="team")
    clock.advance(1)
    opened(room, "eve", id="c-3")
    clock.advance(1)
    say(room, first, "ann", "again")
    tagged = tag_conversation("plan", "team")

    def ids(caller: Any, scope: str | None = None, after: str | None = None) -> list[str]:
        return [view.talk.id for view in conversing.conversations(room.core, caller, scope, after)]

    assert ids(OWNER) == ["c-1", "c-3", tagged]
    assert ids(BOB) == ["c-1", tagged]
    assert ids(OWNER, "team") == [tagged]
    assert ids(OWNER, None, "c-3") == [tagged]
    with pytest.raises(Invalid):
        ids(BOB, None, "c-3")


def test_a_summary_counts_and_lists(room: Room, clock: FakeClock) -> None:
    id = opened(room, "ann", "bob")
    core = room.core
    assert (
        "0 turns, 2 participants, 0 threads; active."
        == core_threads.summary(core, conversing.get_view(core, OWNER, id), ()).text
    )
    root = say(room, id, "ann", "1")
    clock.advance(60)
    say(room, id, "bob", {"n": 2}, reply_to=root, content_type="data")
    say(room, id, "ann", {"type": "tool", "x": 1}, content_type="tool")
    view = conversing.get_view(core, OWNER, id)
    found = core_threads.summary(core, view, view.letters)
    counted = stats_record(view, found)
    assert (counted["totalTurns"], counted["turnsByParticipant"]) == (3, {"ann": 2, "bob": 1})
    assert counted["turnsByContentType"] == {"text": 1, "data": 1, "tool": 1}
    assert found.text == (
        "3 turns, 2 participants, 1 thread; active. 2030-01-01 12:00 UTC to 2030-01-01 12:01 UTC. "
        "Turns: ann 2, bob 1."
    )
    assert found.turns[0].id == root


def test_turns_are_picked_by_place_time_thread_speaker_and_type(room: Room, clock: FakeClock) -> None:
    id = opened(room, "ann", "bob")
    ids: list[str] = []
    times = []
    for number, who in enumerate(("ann", "bob", "ann", "bob")):
        clock.advance(1)
        reply = {"reply_to": ids[0]} if number == 2 else {}
        ids.append(say(room, id, who, str(number), content_type="x-n" if number == 3 else "text", **reply))
        times.append(clock.wall)

    def picked(**wanted: Any) -> list[str]:
        turns = ViewTurns(conversation=id, wanted=TurnFilter(**wanted))
        return [letter.text for letter in perform(room.core, OWNER, turns).letters]

    assert picked() == ["0", "1", "2", "3"]
    assert picked(after=ids[1]) == ["2", "3"] == picked(since=times[1])
    assert picked(before=ids[1]) == ["0"] == picked(until=times[1])
    assert picked(after=ids[2], before=ids[1]) == []
    assert picked(thread=f"thread-{ids[0]}") == ["2"]
    assert picked(participant="bob") == ["1", "3"]
    assert picked(content_types=("x-n",)) == ["3"]
    with pytest.raises(Missing):
        picked(after="nowhere")


def test_presence_comes_from_the_directory(room: Room) -> None:
    id = opened(room, "ann", "bob")
    room.mailbox("ann").register()
    found = core_threads.participants(room.core, conversing.get_view(room.core, BOB, id))
    shown = [presence_record(*one) for one in found]
    assert [(one["agent_id"], one["presence"]) for one in shown] == [("ann", "active"), ("bob", "unknown")]


def test_who_is_nobodys_agent_sees_and_opens_nothing(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    work = room.mailbox("bob").claim()
    assert work is not None
    work.fail("no", retry=False)
    assert "bounce" in [letter.kind for letter in room.mailbox("ann").check(peek=True)]
    opened(room)
    nobody = Principal("nobody")
    verbs: list[Callable[[], object]] = [
        lambda: perform(room.core, nobody, RecentLetters(limit=10)),
        lambda: list(conversing.conversations(room.core, nobody, None, None)),
        lambda: conversing.create(room.core, nobody, OpenConversation()),
    ]
    for verb in verbs:
        with pytest.raises(NotAllowed):
            verb()


def test_registration_joins_no_conversation(room: Room) -> None:
    room.mailbox("ann").register(scopes=["team"])
    assert [] == list(conversing.conversations(room.core, OWNER, None, None))


def test_the_numbered_past_says_what_happened_and_nothing_is_kept_of_it(factory: RoomFactory) -> None:
    room = factory.room()
    start = room.cursor()
    id = opened(room, "ann", "bob", id="c-1")
    conversing.close(room.core, ANN, id)
    conversing.close(room.core, ANN, id)
    conversing.reopen(room.core, OWNER, id)
    factory.reopen()
    changes, _ = factory.room().changes(start)
    results = [(change.key or "").rsplit(" ", 1)[0] for change in changes if change.kind == HAPPENED]
    assert results == [
        "c-1 created ann",
        "c-1 joined ann",
        "c-1 joined bob",
        "c-1 completed ann",
        "c-1 reopened -",
    ]
    assert [] == factory.store.records(HAPPENED)
    assert [id] == record_keys(factory.store, CONVERSATION)


def test_conversations_travel_with_the_room(factory: RoomFactory, empty_room: Room) -> None:
    room = factory.room()
    id = opened(room, "ann", "bob", subject="Sort", metadata={"n": 1})
    say(room, id, "ann", "1")
    conversing.start_thread(room.core, OWNER, id, conversing.get_view(room.core, OWNER, id).letters[0].id)
    conversing.close(room.core, OWNER, id)
    empty_room.load(list(room.export()))
    assert conversing.get_view(room.core, OWNER, id) == conversing.get_view(empty_room.core, OWNER, id)


@pytest.fixture
def empty_room(clock: FakeClock) -> Room:
    from postroom.settings import Settings
    from postroom.store.sqlite.memory import MemoryStore

    return Room(MemoryStore(), Settings(), clock=clock)


def test_nothing_of_a_conversation_is_in_anybodys_way(room: Room) -> None:
    """A turn's letter is a letter: it is found, read and done like any other."""
    id = opened(room, "ann", "bob")
    letter = say(room, id, "ann", "1")
    with room.mailbox("bob").claim() as work:  # type: ignore[union-attr]
        assert work.id == letter
    (found,) = room.core.store.find(Query(message_ids=(letter,)))
    assert "done" == found.delivery.state


def test_many_at_once_lose_no_seat_and_no_turn_comes_after_the_end(factory: RoomFactory) -> None:
    room, start = factory.room(), factory.store.cursor()
    id = opened(room, "ann", "bob")

    def enter(first: int) -> None:
        for number in range(first, first + 5):
            conversing.join(room.core, OWNER, id, f"agent-{number}")

    def talk(who: str) -> None:
        with suppress(IllegalMove):
            for number in range(1000):
                say(room, id, who, str(number))

    def end() -> None:
        while len(conversing.get_view(room.core, OWNER, id).letters) < 5:
            time.sleep(0.001)
        conversing.close(room.core, OWNER, id)

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(enter, 0), pool.submit(enter, 5)]:
            done.result()
        for done in [pool.submit(talk, "ann"), pool.submit(talk, "bob"), pool.submit(end)]:
            done.result()
    assert {f"agent-{n}" for n in range(10)} <= set(names(conversing.get_view(room.core, OWNER, id)))
    changes, _ = factory.store.changes(start, 10_000)
    (closed,) = [change.number for change in changes if " completed " in (change.key or "")]
    assert closed > max(change.number for change in changes if change.what == "posted")
