"""Escalation (M10): up a ladder, with ids, reasons and priorities; answers come down; unanswered ones climb."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from postroom import Escalation, Invalid, Missing, NotAllowed, Priority, Room, UnknownMessage
from postroom.core import escalation
from postroom.policy.routing import REASONS, after_climb, rungs_above, urgency
from tests.people import person
from tests.rooms import FakeClock, RoomFactory, addresses, spoken, texts

HOUR = 3600


@pytest.fixture(autouse=True)
def coo(room: Room) -> None:
    """The first rung is somebody."""
    room.mailbox("coo").register()


def only(found: list[Escalation]) -> Escalation:
    (one,) = found
    return one


def climb(room: Room, clock: FakeClock) -> int:
    clock.advance(4 * HOUR)
    return room.sweep().climbed


# -- asking


def test_a_question_goes_to_the_rung_above_with_id_reason_and_priority(room: Room, clock: FakeClock) -> None:
    sent = room.mailbox("ann").escalate("May I delete it?", reason="permission", subject="The branch")
    (letter,) = room.mailbox("coo").check()
    assert (letter.kind, letter.subject, letter.priority) == (
        "escalation",
        "Escalation: The branch",
        Priority.HIGH,
    )
    assert letter.text == "May I delete it?"
    one = only(room.mailbox("ann").escalations())
    assert one.id.startswith("ESC-")
    assert letter.data == {"escalation_id": one.id, "reason": "permission", "asker": "ann", "rung": 1}
    assert (one.asker, one.reason, one.rungs, one.rung) == ("ann", "permission", ("coo", "human"), 0)
    assert (one.waits_for, one.thread, one.letters) == ("coo", sent.thread, (sent.id,))
    assert (one.opened_at, one.status) == (clock.wall, "open")
    assert room.mailbox("coo").escalations() == room.escalations() == [one]
    assert room.mailbox("zoe").escalations() == room.mailbox("human").escalations() == []


@pytest.mark.parametrize(
    ("asker", "ladder", "target"),
    [
        ("ann", None, "coo"),
        ("swarm/ann", None, "coo"),
        ("coo", None, "human"),
        ("ann", ["ann", "bob", "carol"], "bob"),
        ("bob", ["ann", "bob", "carol"], "carol"),
        ("zoe", ["ann", "bob"], "ann"),
        ("zoe", "lead", "lead"),
    ],
)
def test_where_the_asker_stands_decides_who_is_asked(room: Room, asker: str, ladder: Any, target: str) -> None:
    sent = room.mailbox(asker).escalate("x", reason="blocked", ladder=ladder)
    assert addresses(sent.message) == [target]


def test_an_agent_never_active_is_passed_over_unless_named(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ladder="nobody, coo, ghost, human")
    sent = room.mailbox("ann").escalate("x", reason="blocked")
    assert addresses(sent.message) == ["coo"]
    assert only(room.escalations()).rungs == ("coo", "human")  # the last one counts in any case
    assert climb(room, clock) == 1
    assert [letter.sender for letter in room.mailbox("human").check()] == ["ann"]
    assert room.mailbox("ghost").check() == room.mailbox("nobody").check() == []
    assert addresses(room.mailbox("coo").escalate("x", reason="blocked").message) == ["human"]
    named = room.mailbox("ann").escalate("x", reason="blocked", ladder=["nobody", "human"])
    assert addresses(named.message) == ["nobody"]
    room.mailbox("ghost").send("ann", "boo")  # heard from now
    assert addresses(room.mailbox("coo").escalate("x", reason="blocked").message) == ["ghost"]


def test_the_ladder_is_a_setting(factory: RoomFactory) -> None:
    room = factory.room(ladder="lead, boss,human")
    for name in ("lead", "boss"):
        room.mailbox(name).register()
    assert addresses(room.mailbox("ann").escalate("x", reason="blocked").message) == ["lead"]
    assert only(room.mailbox("ann").escalations()).rungs == ("lead", "boss", "human")


def test_the_reason_decides_how_urgent_it_is_unless_the_asker_does(room: Room) -> None:
    ann = room.mailbox("ann")
    assert ann.escalate("x", reason="security").message.priority is Priority.URGENT
    assert ann.escalate("x", reason="question").message.priority is Priority.NORMAL
    assert ann.escalate("x", reason="my-own-word").message.priority is Priority.HIGH
    assert ann.escalate("x", reason="security", priority="low").message.priority is Priority.LOW
    assert ann.escalate("x", reason="blocked").message.subject == "Escalation: blocked"
    assert ann.escalate("x", reason="blocked", subject="escalation: y").message.subject == "escalation: y"
    assert {urgency(word) for word in REASONS} == {Priority.NORMAL, Priority.HIGH, Priority.URGENT}
    assert [after_climb(p) for p in Priority] == [Priority.HIGH, Priority.HIGH, Priority.HIGH, Priority.URGENT]


def test_data_and_other_fields_go_along(room: Room) -> None:
    room.mailbox("ann").escalate("x", reason="blocked", data={"n": 1}, tags=["t"], cc="zoe")
    (letter,) = room.mailbox("coo").check()
    assert [part["data"] for part in letter.parts if part.type == "data"][1] == {"n": 1}
    assert letter.tags == ("t",)
    assert room.mailbox("zoe").check()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "two words"}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": "x", "ladder": []}, "ladder"),
        ({"reason": "x", "ladder": ["bob", "ann"]}, "ladder"),
        ({"reason": "x", "ladder": ["postmaster"]}, "ladder"),
        ({"reason": "x", "ladder": [7]}, "ladder"),
        ({"reason": "x", "ladder": 7}, "ladder"),
        ({"reason": "x", "key": 7}, "key"),
        ({"reason": "x", "id": 7}, "id"),
        ({"reason": "x", "priority": "very"}, "priority"),
        ({"reason": "x", "subject": "a\nb"}, "subject"),
        ({"reason": "x", "nonsense": 1}, "nonsense"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    factory: RoomFactory, room: Room, params: dict[str, Any], field: str
) -> None:
    before = factory.store.cursor()
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").escalate("x", **params)
    assert refused.value.field == field
    assert factory.store.cursor() == before
    assert room.escalations() == []


def test_nobody_stands_above_the_top(room: Room) -> None:
    with pytest.raises(Invalid, match="no agent stands above 'human'"):
        room.mailbox("human").escalate("x", reason="blocked")
    with pytest.raises(Invalid):
        rungs_above([], "ann")


def test_a_refused_question_leaves_nothing_behind(factory: RoomFactory, room: Room) -> None:
    room.mailbox("coo").block("ann")
    person(room).block("ann")
    with pytest.raises(NotAllowed):
        room.mailbox("ann").escalate("x", reason="blocked", ladder=["coo", "human"])
    assert room.escalations() == []


def test_a_question_begins_at_the_first_rung_that_takes_it(room: Room, clock: FakeClock) -> None:
    ann, ladder = room.mailbox("ann"), ["lead", "coo", "human"]
    room.mailbox("lead").block("ann")
    sent = ann.escalate("x", reason="blocked", ladder=ladder, key="k")
    assert addresses(sent.message) == ["coo"]
    assert only(room.escalations()).waits_for == "coo"
    assert room.mailbox("lead").escalations() == []
    assert climb(room, clock) == 1
    assert only(room.escalations()).waits_for == "human"
    room.mailbox("coo").block("ann")
    room.mailbox("lead").unblock("ann")
    assert ann.escalate("x", reason="blocked", ladder=ladder, key="k").repeated  # whoever takes it by now


def test_the_same_key_escalates_once_also_when_it_is_over(room: Room) -> None:
    ann = room.mailbox("ann")
    first = ann.escalate("x", reason="blocked", key="k")
    again = ann.escalate("x", reason="blocked", key="k")
    assert again.repeated and again.id == first.id
    one = only(room.escalations())
    ann.resolve(one.id)
    assert ann.escalate("x", reason="blocked", key="k").repeated
    assert room.escalations() == []
    plain = ann.escalate("y", reason="blocked")
    assert ann.escalate("y", reason="blocked", key=plain.id).repeated  # the id is the key
    assert len(room.escalations()) == 1


# -- answering


def test_an_answer_at_the_first_rung_reaches_the_asker(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    sent = ann.escalate("May I?", reason="permission")
    work = room.mailbox("coo").claim()
    assert work
    work.ack_and_reply("You may.")
    answer = ann.wait(0, thread=sent.thread)
    assert answer
    assert answer.text == "You may."
    assert ann.escalations() == []
    one = only(ann.escalations(open_only=False))
    assert (one.status, one.closed_by, one.waits_for) == ("answered", "coo", None)
    assert climb(room, clock) == 0
    assert room.mailbox("human").check() == []
    assert only(ann.escalations(open_only=False)).status == "answered"  # kept by the janitor


def test_an_answer_comes_back_down_all_rungs(room: Room, clock: FakeClock) -> None:
    """Three rungs: who answers at the top answers the asker, and all in between get a copy."""
    ladder = ["lead", "coo", "human"]
    ann = room.mailbox("ann")
    sent = ann.escalate("May I?", reason="permission", subject="S", ladder=ladder)
    assert climb(room, clock) == 1
    assert climb(room, clock) == 1
    (letter,) = person(room).check()
    assert letter.sender == "ann"
    assert letter.thread == sent.thread
    assert letter.subject == "Escalation: S"
    assert letter.data["rung"] == 3
    assert "unanswered by coo for 4 h 0 min" in letter.text and "May I?" in letter.text
    letter.reply("Yes.")
    assert "Yes." in texts(ann.check())
    for name in ("lead", "coo"):
        box = room.mailbox(name)
        assert "Yes." in texts(box.check())
        assert spoken(box.thread(sent.thread))[-1] == "Yes."
    one = only(room.escalations(open_only=False))
    assert (one.status, one.closed_by) == ("answered", "human")
    assert climb(room, clock) == 0


def two_questions(room: Room) -> tuple[str, list[str]]:
    """The first of two questions in one thread is answered: its id, and the subjects of those still open."""
    ann, human = room.mailbox("ann"), person(room)
    chat = ann.send("human", "About the index")
    first, _ = (
        ann.escalate(f"May I {what}?", reason="approval", subject=what, in_reply_to=chat.id, ladder=["human"])
        for what in ("run the tests", "drop the database")
    )
    human.reply(first.id, "approved")
    room.sweep()
    return first.id, [one.subject for one in ann.escalations()]


def test_an_answer_settles_only_the_question_that_it_answers(room: Room) -> None:
    first, still_open = two_questions(room)
    assert still_open == ["Escalation: drop the database"]
    ann = room.mailbox("ann")
    below = ann.escalate("And this?", reason="approval", subject="below", in_reply_to=first, ladder=["human"])
    person(room).reply(below.id, "yes")
    assert [one.subject for one in ann.escalations()] == still_open


def test_an_answer_to_a_letter_about_the_question_answers_it_too(room: Room) -> None:
    sent = room.mailbox("ann").escalate("May I?", reason="approval", ladder=["human"])
    more = room.mailbox("ann").send("human", "It is the old one.", in_reply_to=sent.id)
    person(room).reply(more.id, "then yes")
    assert room.escalations() == []


def closed_by_another(room: Room, clock: FakeClock, how: str) -> list[tuple[str, str, str]]:
    """What is in the person's list of a question that climbed to them and that another agent closed."""
    sent = room.mailbox("ann").escalate("May I?", reason="permission", ladder=["coo", "human"])
    climb(room, clock)
    if how == "resolve":
        room.mailbox("coo").resolve(only(room.escalations()).id)
    else:
        room.mailbox("coo").reply(sent.id, "yes")
    room.sweep()
    listed = room.mailbox("human").waiting()
    return [(one.what, one.sender, one.text) for one in listed if one.sender == "ann"]


@pytest.mark.parametrize(("how", "status"), [("resolve", "resolved"), ("answer", "answered")])
def test_a_question_that_another_closed_stays_in_the_persons_list_as_news(
    room: Room, clock: FakeClock, how: str, status: str
) -> None:
    news = ("news", "ann", f"{status} by coo; nothing more is asked")
    assert closed_by_another(room, clock, how) == [news]
    for letter in person(room).check(sender="ann"):
        letter.ack()
    assert [one.sender for one in room.mailbox("human").waiting()] == ["postmaster"]


def test_the_list_finds_a_question_that_others_acknowledge_for_the_person(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(escalation, "is_person", lambda *_: False)
    assert closed_by_another(room, clock, "resolve") == []


def test_the_test_of_two_questions_finds_one_that_is_answered_by_its_thread(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(escalation, "_leads_to", lambda *_: True)
    assert two_questions(room)[1] == []


def test_a_late_answer_from_below_still_counts(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    sent = ann.escalate("x", reason="blocked")
    climb(room, clock)
    room.mailbox("coo").reply(sent.id, "sorry, here it is")
    assert only(room.escalations(open_only=False)).closed_by == "coo"


def test_agents_above_a_late_answer_are_notified_and_done_with_it(room: Room, clock: FakeClock) -> None:
    sent = room.mailbox("ann").escalate("x", reason="blocked", ladder=["lead", "coo", "human"])
    climb(room, clock)
    climb(room, clock)
    coo, human = room.mailbox("coo"), person(room)
    human.check()  # read, and left lying
    room.mailbox("lead").reply(sent.id, "sorry, here it is")
    assert room.sweep().climbed == 0
    for box, backlog in ((coo, 1), (human, 2)):  # the person's question waits until the person is done with it
        (news,) = box.check()
        assert (news.kind, news.sender, news.thread) == ("escalation_update", "postmaster", sent.thread)
        one = only(room.escalations(open_only=False))
        assert news.text == f"{one.id} was answered by lead. It no longer waits for you."
        assert news.data == {"escalation_id": one.id, "status": "answered", "closed_by": "lead"}
        assert box.stats().backlog == backlog
        assert box.escalations() == []
    assert room.sweep().climbed == 0
    assert human.check() == []  # told once


def test_recipients_of_the_answer_are_not_notified_again(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").escalate("x", reason="blocked")
    climb(room, clock)
    copy = room.mailbox("coo").check()[-1]
    room.mailbox("coo").reply(only(room.escalations()).letters[-1], "to all of you")
    room.sweep()
    assert copy.thread
    assert texts(room.mailbox("human").check(sender="coo")) == ["to all of you"]
    assert room.mailbox("human").check(sender="postmaster") == []


def test_what_an_agent_above_has_claimed_is_left_to_them(room: Room, clock: FakeClock) -> None:
    sent = room.mailbox("ann").escalate("x", reason="blocked")
    climb(room, clock)
    work = person(room).claim(kinds="escalation")
    assert work
    room.mailbox("coo").reply(sent.id, "late")
    room.sweep()
    work.ack()


def test_the_agents_asked_are_notified_that_the_asker_resolved_it(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").escalate("x", reason="blocked")
    climb(room, clock)
    room.mailbox("ann").resolve(only(room.escalations()).id)
    for name in ("coo", "human"):
        assert "resolved by ann" in room.mailbox(name).check(sender="postmaster")[0].text
        assert room.mailbox(name).stats().backlog == (1 if name == "coo" else 2)  # the person's question stays


def test_what_is_no_answer_does_not_close_it(room: Room, clock: FakeClock) -> None:
    ann, coo = room.mailbox("ann"), room.mailbox("coo")
    before = coo.send("ann", "an old thread")
    sent = ann.escalate("x", reason="blocked", in_reply_to=before.id)
    ann.reply(sent.id, "and one more thing")  # by the asker
    coo.forward(sent.id, "zoe", "what do you think?")  # not to the asker
    coo.read(sent.id).ack()  # silence
    coo.send("ann", "about something else")  # another thread
    assert only(ann.escalations()).waits_for == "coo"
    assert climb(room, clock) == 1


# -- climbing


def test_an_unanswered_question_climbs_after_its_time_and_its_asker_is_notified(
    factory: RoomFactory, clock: FakeClock
) -> None:
    room = factory.room(escalation_after=60)
    ann = room.mailbox("ann")
    sent = ann.escalate("x", reason="question", data={"n": 1}, key="k")
    clock.advance(59)
    assert room.sweep().climbed == 0
    clock.advance(1)
    assert room.sweep().climbed == 1
    assert room.sweep().climbed == 0
    one = only(ann.escalations())
    assert (one.rung, one.waits_for, one.since, len(one.letters)) == (1, "human", clock.wall, 2)
    (letter,) = room.mailbox("human").check()
    assert (letter.priority, letter.message.hops, letter.message.trace) == (Priority.HIGH, 3, ("ann",))
    assert addresses(letter.message) == ["human", "coo"]
    assert letter.data["escalation_id"] == one.id
    (result,) = ann.check()
    assert (result.kind, result.sender, result.thread) == ("escalation_update", "postmaster", sent.thread)
    assert result.data == {"escalation_id": one.id, "rung": 2, "waits_for": "human"}
    assert "It is with human now." in result.text


def test_at_the_top_it_stays_and_that_is_reported_once(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    ann.escalate("x", reason="blocked")
    assert [climb(room, clock) for _ in range(4)] == [1, 0, 0, 0]
    result = texts(ann.check())
    assert len(result) == 2
    assert result[1].endswith("Nobody stands above.")
    one = only(ann.escalations())
    assert (one.waits_for, one.due_at) == ("human", None)
    assert len(room.mailbox("human").check()) == 1


def test_a_ladder_may_be_longer_than_a_letter_has_hops(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room()
    ladder = [f"r{n}" for n in range(7)]
    ann = room.mailbox("ann")
    sent = ann.escalate("x", reason="blocked", ladder=ladder)
    assert [climb(room, clock) for _ in range(7)] == [1] * 6 + [0]
    room.mailbox("r6").check()[0].reply("at last")
    assert "at last" in texts(ann.check())
    assert all("at last" in texts(room.mailbox(name).check()) for name in ladder[:-1])
    assert len(ann.thread(sent.thread)) == 1 + 6 + 7 + 1  # the question, climbs, notices, the answer


def test_a_rung_that_takes_no_mail_from_the_asker_is_passed_over(
    factory: RoomFactory, room: Room, clock: FakeClock
) -> None:
    ladder = ["lead", "coo", "human"]
    room.mailbox("ann").escalate("x", reason="blocked", ladder=ladder)
    room.mailbox("coo").block("ann")
    room.mailbox("lead").block("ann")
    assert climb(room, clock) == 1
    assert only(room.escalations()).waits_for == "human"
    assert room.mailbox("coo").check() == []
    assert addresses(room.mailbox("human").check()[0].message) == ["human"]


def test_a_rung_that_is_spelt_otherwise_here_is_reached(room: Room, clock: FakeClock) -> None:
    room.mailbox("Boss").register()
    room.mailbox("ann").escalate("x", reason="blocked", ladder=["lead", "boss"])
    assert climb(room, clock) == 1
    assert room.mailbox("Boss").check()


def test_without_a_time_nothing_climbs(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(escalation_after=0)
    room.mailbox("ann").escalate("x", reason="blocked")
    clock.advance(1e6)
    assert room.sweep().climbed == 0
    assert only(room.escalations()).due_at is None


def test_many_janitors_at_once_let_it_climb_once(factory: RoomFactory, clock: FakeClock) -> None:
    for n in range(5):
        factory.room().mailbox(f"a{n}").escalate("x", reason="blocked")
    clock.advance(4 * HOUR)
    start = threading.Barrier(4)
    climbed: list[int] = []

    def sweep() -> None:
        room = factory.room()
        start.wait(10)
        climbed.append(room.sweep().climbed)

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(climbed) == 5
    assert len(factory.room().mailbox("human").check()) == 5
    assert [len(factory.room().mailbox(f"a{n}").check()) for n in range(5)] == [1] * 5


def test_only_the_post_room_writes_updates_and_they_never_bounce(room: Room, clock: FakeClock) -> None:
    with pytest.raises(Invalid, match="only Postroom itself"):
        room.mailbox("ann").send("bob", "x", kind="escalation_update")
    room.mailbox("ann").escalate("x", reason="blocked")
    climb(room, clock)
    room.mailbox("ann").check()[0].reject("do not tell me")
    assert "postmaster" not in room.mailboxes() or not room.mailbox("postmaster").check()


# -- closing


def test_asker_and_asked_may_resolve_it(room: Room, clock: FakeClock) -> None:
    for by in ("ann", "coo"):
        room.mailbox("ann").escalate("x", reason="blocked")
        one = only(room.escalations())
        closed = room.mailbox(by).resolve(one.id)
        assert (closed.status, closed.closed_by, closed.closed_at) == ("resolved", by, clock.wall)
        assert room.escalations() == []
    assert climb(room, clock) == 0


def test_others_learn_nothing_of_it(room: Room) -> None:
    room.mailbox("ann").escalate("x", reason="blocked")
    one = only(room.escalations())
    errors = []
    for id in (one.id, "ESC-" + "0" * 16):
        with pytest.raises(Missing) as refused:
            person(room).resolve(id)  # it has not come so far yet
        errors.append(str(refused.value).replace(id, "ID"))
    assert errors[0] == errors[1]
    with pytest.raises(UnknownMessage):
        room.mailbox("human").read(one.letters[0])


def test_resolving_what_is_answered_keeps_the_answer(room: Room) -> None:
    sent = room.mailbox("ann").escalate("x", reason="blocked")
    one = only(room.escalations())
    room.mailbox("coo").reply(sent.id, "y")
    assert room.mailbox("ann").resolve(one.id).status == "answered"
    with pytest.raises(Missing):
        room.mailbox("ann").resolve(one.id)


def test_an_unsent_question_is_over(room: Room, clock: FakeClock) -> None:
    sent = room.mailbox("ann").escalate("x", reason="blocked")
    room.mailbox("ann").unsend(sent.id)
    assert room.mailbox("ann").escalations() == []
    assert climb(room, clock) == 0
    assert room.mailbox("human").check() == []
    assert only(room.escalations(open_only=False)).status == "resolved"


def test_closed_ones_are_kept_as_long_as_settled_mail(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=HOUR)
    room.mailbox("ann").escalate("x", reason="blocked")
    room.mailbox("ann").resolve(only(room.escalations()).id)
    room.sweep()
    assert only(room.escalations(open_only=False)).status == "resolved"
    clock.advance(HOUR + 1)
    factory.room(retain_for=0).sweep()
    assert len(room.escalations(open_only=False)) == 1
    room.sweep()
    assert room.escalations(open_only=False) == []


def test_escalations_go_with_an_export_and_climb_there(
    factory: RoomFactory, room: Room, clock: FakeClock, tmp_path: Path
) -> None:
    room.mailbox("ann").escalate("x", reason="blocked")
    room.mailbox("bob").escalate("y", reason="blocked")
    room.mailbox("bob").resolve(room.mailbox("bob").escalations()[0].id)
    lines = list(room.export())
    (tmp_path / "other").mkdir()
    other = RoomFactory(factory.kind, tmp_path / "other", clock)
    copy = other.room()
    for old, new in (
        (b'"rung":0', b'"rung":9'),
        (b'"asker":"ann"', b'"asker":"../x"'),
        (b'"id":"ESC-', b'"id":"X-'),
    ):
        with pytest.raises(Invalid):
            copy.load([line.replace(old, new) for line in lines])
    copy.load(lines)
    assert copy.escalations(open_only=False) == room.escalations(open_only=False)
    assert climb(copy, clock) == 1
    other.store.close()


# -- the human


@pytest.mark.parametrize("name", ["human", "user", "ceo", "User", "CEO"])
def test_user_ceo_and_human_are_one_mailbox(room: Room, name: str) -> None:
    sent = room.mailbox("ann").send([name, "human"], "x", cc="ceo")
    assert addresses(sent.message) == ["human"]
    assert room.mailbox(name).name == "human"
    assert texts(room.mailbox(name).check()) == ["x"]
    room.mailbox(name).send("ann", "y")
    assert texts(room.mailbox("ann").check(sender=name)) == ["y"]
    assert room.wait([name], 0, thread="none") is None
    assert set(room.mailboxes()) - {"coo"} == {"ann", "human"}


def test_the_human_on_a_ladder_is_one_however_called(room: Room) -> None:
    sent = room.mailbox("coo").escalate("x", reason="decision", ladder=["coo", "ceo"])
    assert addresses(sent.message) == ["human"]
    assert [one.waits_for for one in room.mailbox("user").escalations()] == ["human"]


def test_mail_of_a_room_with_several_humans_comes_together_on_import(factory: RoomFactory, room: Room) -> None:
    room.mailbox("human").send("bob", "from me")
    room.mailbox("bob").send("human", "to you")
    lines = [line.replace(b'"human"', b'"user"') for line in room.export()]
    copy = RoomFactory(factory.kind, factory.folder / "files", factory.clock)
    copy.room().load(lines)
    assert texts(copy.room().mailbox("user").check()) == ["to you"]
    assert texts(copy.room().mailbox("bob").check(sender="human")) == ["from me"]
    copy.store.close()
