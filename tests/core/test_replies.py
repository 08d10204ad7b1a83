"""Replies, relays, handoffs (M7 to M9): the thread is kept, hops and trace are enforced on every path."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import postroom
from postroom import Handoff, HopsSpent, IdTaken, Invalid, LoopDetected, Message, Room, TooFast, TooLarge
from postroom.model.thread import conversation_of
from tests.rooms import FakeClock, RoomFactory, addresses, spoken, texts


def last(room: Room, name: str) -> postroom.Letter:
    return room.mailbox(name).check(unread_only=False)[-1]


def test_a_reply_keeps_the_thread_and_all_that_belongs_to_it(room: Room) -> None:
    root = room.mailbox("ann").send(
        "bob", "q", subject="Sorting", priority="high", scope="research", conversation_id="c-1",
        thread_tag="sort", callback={"session": "s"},
    ).message  # fmt: skip
    answer = last(room, "bob").reply("a").message
    assert (answer.thread_id, answer.in_reply_to) == (root.id, root.id)
    assert (answer.subject, answer.priority, answer.scope) == ("Re: Sorting", root.priority, "research")
    assert (answer.conversation_id, answer.thread_tag, answer.callback) == ("c-1", "sort", {"session": "s"})
    assert addresses(answer) == ["ann"]
    again = last(room, "ann").reply("b").message
    assert (again.thread_id, again.in_reply_to, again.subject) == (root.id, answer.id, "Re: Sorting")
    assert (again.hops, again.trace) == (3, ("ann",))


def test_a_reply_may_say_otherwise(room: Room) -> None:
    room.mailbox("ann").send("bob", "q", subject="RE: x", thread_tag="one", conversation_id="c-1")
    answer = last(room, "bob").reply(
        "a", subject="New", priority="low", scope="other", thread_tag="two", conversation_id="c-2", kind="response"
    )
    message = answer.message
    assert (message.subject, message.scope, message.thread_tag) == ("New", "other", "two")
    assert (message.conversation_id, message.kind, message.priority.name) == ("c-2", "response", "LOW")


def test_a_letter_that_names_what_it_answers_keeps_the_same_as_a_reply(room: Room) -> None:
    """`inReplyTo` of any wire comes here."""
    root = room.mailbox("ann").send("bob", "q", subject="Sorting", priority="high", scope="swarm:research").message
    answer = room.mailbox("bob").send(["ann", "carol"], "a", in_reply_to=root.id).message
    assert (answer.subject, answer.priority, answer.scope) == ("Re: Sorting", root.priority, "swarm:research")
    assert conversation_of(answer) == conversation_of(root) == "conv-general:swarm:research"
    message = room.mailbox("bob").send(
        "ann", "b", in_reply_to=root.id, subject="", priority="low", scope="default"
    )
    assert (message.message.subject, message.message.priority.name, message.message.scope) == (
        "",
        "LOW",
        "default",
    )


def test_a_letter_to_an_agent_who_does_not_know_what_it_refers_to_keeps_the_scope_alone(room: Room) -> None:
    root = room.mailbox("ann").send("bob", "q", subject="Sorting", priority="high", scope="research").message
    passed = room.mailbox("bob").send("carol", "can you?", in_reply_to=root.id).message
    assert (passed.subject, passed.priority.name, passed.scope) == ("", "NORMAL", "research")


@pytest.mark.parametrize("deleted", [False, True])
def test_a_reply_with_a_key_is_sent_once_though_it_inherits(room: Room, *, deleted: bool) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    root = ann.send("bob", "q", subject="Sorting", priority="high", scope="research")
    first = bob.send("ann", "a", in_reply_to=root.id, key="k")
    if deleted:
        for box, id in ((ann, first.id), (bob, root.id)):
            box.read(id).reject("done with it")
            assert box.purge(id) == 1
    again = bob.send("ann", "a", in_reply_to=root.id, key="k")
    assert (again.id, again.repeated) == (first.id, True)
    with pytest.raises(IdTaken):
        bob.send("ann", "a", in_reply_to=root.id, key="k", subject="Other")


def test_a_store_that_forgot_what_was_inherited_would_refuse_the_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug."""
    monkeypatch.setattr("postroom.core.messages.INHERITED", ())
    with postroom.open("memory:") as room, pytest.raises(IdTaken):
        test_a_reply_with_a_key_is_sent_once_though_it_inherits(room, deleted=False)


@pytest.mark.parametrize(("subject", "answer"), [("", ""), ("re: x", "re: x"), ("x", "Re: x"), ("y" * 1000, None)])
def test_re_is_written_once(room: Room, subject: str, answer: str | None) -> None:
    room.mailbox("ann").send("bob", "q", subject=subject)
    assert last(room, "bob").reply("a").message.subject == (answer if answer is not None else "Re: " + "y" * 996)


def test_an_answer_to_all_goes_to_everyone_but_oneself(room: Room) -> None:
    room.mailbox("ann").send(["bob", "carol"], "q", cc=["dave", "eve"])
    assert addresses(last(room, "eve").reply("a", to_all=True).message) == ["ann", "bob", "carol", "dave"]
    (question, _) = room.mailbox("bob").check(unread_only=False)
    assert addresses(question.reply("a", to_all=True).message) == ["ann", "carol", "dave", "eve"]


def test_an_answer_to_all_of_a_broadcast_is_a_broadcast(room: Room) -> None:
    for name in ("ann", "bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    room.mailbox("ann").broadcast("team", "q")
    last(room, "bob").reply("a", to_all=True)
    assert texts(room.mailbox("carol").check()) == ["q", "a"]
    assert texts(room.mailbox("ann").check()) == ["a"]


def test_a_reply_to_ones_own_letter_goes_to_those_who_got_it(room: Room) -> None:
    ann = room.mailbox("ann")
    sent = ann.send(["bob"], "q", cc="carol")
    assert addresses(ann.reply(sent.id, "and another thing").message) == ["bob"]
    assert addresses(ann.reply(sent.id, "all", to_all=True).message) == ["bob", "carol"]
    only_cc = ann.send((), "q", cc="carol")
    assert addresses(ann.reply(only_cc.id, "x", to_all=True).message) == ["carol"]
    hidden = ann.send((), "q", bcc="carol")
    with pytest.raises(Invalid) as refused:
        ann.reply(hidden.id, "x")
    assert refused.value.field == "to"


def test_a_reply_is_no_relay_however_long_it_goes_on(room: Room) -> None:
    letter = room.mailbox("ann").send(["bob", "carol"], "0").message
    for number in range(8):
        answerer = ("bob", "ann")[number % 2]
        letter = room.mailbox(answerer).reply(letter.id, str(number)).message
        assert (letter.hops, letter.trace) == (3, (answerer,))


def test_an_answer_to_a_bcc_recipient_of_ones_own_letter_is_no_relay(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "q", bcc="dave")
    further = room.mailbox("ann").send("dave", "and you?", in_reply_to=sent.id).message
    assert (further.hops, further.trace) == (3, ("ann",))


def test_a_reply_that_brings_in_another_is_passed_on_to_them(room: Room) -> None:
    room.mailbox("ann").send("bob", "q")
    answer = last(room, "bob").reply("a", cc="carol").message
    assert addresses(answer) == ["ann", "carol"]
    assert (answer.hops, answer.trace) == (2, ("ann", "bob"))


def relay(room: Room, path: str) -> list[Message]:
    """A letter from the first, passed on along the path."""
    letters = [room.mailbox(path[0]).send(path[1], "root", subject="S", tags=["t"]).message]
    for here, there in pairwise(path[1:]):
        letters.append(room.mailbox(here).forward(letters[-1].id, there, f"from {here}").message)
    return letters


def test_the_longest_chain_of_relays_is_from_a_to_d(room: Room) -> None:
    chain = relay(room, "abcd")
    assert [(m.hops, m.trace) for m in chain] == [
        (3, ("a",)), (2, ("a", "b")), (1, ("a", "b", "c"))
    ]  # fmt: skip
    with pytest.raises(HopsSpent) as refused:
        room.mailbox("d").forward(chain[-1].id, "e")
    assert refused.value.field == "hops"
    assert "a → b → c" in str(refused.value)
    assert room.mailbox("e").check() == []


def test_hops_can_be_set(factory: RoomFactory) -> None:
    chain = relay(factory.room(hops=5), "abcdef")
    assert chain[-1].hops == 1


@pytest.mark.parametrize("target", ["a", "b", "A"])
def test_a_letter_is_never_passed_back_along_its_way(room: Room, target: str) -> None:
    chain = relay(room, "abc")
    with pytest.raises(LoopDetected) as refused:
        room.mailbox("c").forward(chain[-1].id, ["new", target])
    assert refused.value.field == "to"
    assert room.mailbox("new").check() == []


def test_a_letter_is_not_passed_back_by_a_broadcast_either(room: Room) -> None:
    for name in ("a", "b", "x"):
        room.mailbox(name).register(scopes=["team"])
    chain = relay(room, "ab")
    with pytest.raises(LoopDetected):
        room.mailbox("b").forward(chain[-1].id, "broadcast:team")
    room.mailbox("a").register()
    room.mailbox("b").forward(chain[-1].id, "broadcast:team")
    assert len(room.mailbox("x").check()) == 1


def test_a_plain_send_about_a_letter_to_a_third_is_a_relay(room: Room) -> None:
    chain = relay(room, "abcd")
    with pytest.raises(HopsSpent):
        room.mailbox("d").send("e", "x", in_reply_to=chain[-1].id)
    with pytest.raises(LoopDetected):
        room.mailbox("c").send("a", "x", in_reply_to=chain[-2].id)
    sent = room.mailbox("b").send("z", "x", in_reply_to=chain[0].id).message
    assert (sent.hops, sent.trace, sent.thread_id) == (2, ("a", "b"), chain[0].id)


def test_a_forward_carries_the_letter_after_ones_own_words(room: Room) -> None:
    relay(room, "ab")
    sent = last(room, "b").forward("c", postroom.text("see below"), cc="d").message
    assert sent.text == "see below\n\nroot"
    assert (sent.subject, sent.tags, sent.in_reply_to) == ("Fwd: S", ("t",), sent.thread_id)
    assert sent.metadata["forwarded"]["sender"] == "a"
    assert texts([last(room, "d")]) == ["see below\n\nroot"]
    for body in ("words", {"type": "text", "text": "words"}, ["wo", "rds"], None):
        assert last(room, "b").forward("e", body).message.text.endswith("root")


def test_one_may_pass_on_ones_own_letter(room: Room) -> None:
    sent = room.mailbox("a").send("b", "x")
    assert room.mailbox("a").forward(sent.id, "c").message.trace == ("a",)


def flood(room: Room, root: str, count: int) -> None:
    for number in range(count):
        room.mailbox("bob").reply(root, str(number))


def test_a_thread_has_a_pace(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(thread_rate=3)
    root = room.mailbox("ann").send("bob", "q").id
    flood(room, root, 3)
    with pytest.raises(TooFast) as refused:
        flood(room, root, 1)
    assert refused.value.temporary
    room.mailbox("ann").reply(root, "others may speak")
    room.mailbox("bob").send("ann", "elsewhere too")
    clock.advance(59.9)
    with pytest.raises(TooFast):
        flood(room, root, 1)
    clock.advance(0.2)
    flood(room, root, 3)
    with pytest.raises(TooFast):
        flood(room, root, 1)


def test_a_wall_clock_set_back_silences_nobody(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(thread_rate=1)
    root = room.mailbox("ann").send("bob", "q").id
    flood(room, root, 1)
    clock.jump(-86_400)
    flood(room, root, 1)


def test_without_a_rate_there_is_no_pace(factory: RoomFactory) -> None:
    room = factory.room(thread_rate=0)
    flood(room, room.mailbox("ann").send("bob", "q").id, 300)


FULL: dict[str, Any] = {
    "work_completed": "Parsed it.", "files_modified": ("a.py", "b.py"), "files_created": ("b.py", "c.py"),
    "current_state": "Half way.", "state_file": "state.json", "next_steps": ("Test", "Ship"),
    "blockers": ("No disk",), "dependencies": ("lib",), "related_escalations": ("ESC-1",), "job_id": "J-1",
    "notes": "Mind the gap.",
}  # fmt: skip


def test_a_handoff_carries_its_whole_context(room: Room) -> None:
    sent = room.mailbox("ann").handoff("bob", Handoff(**FULL), priority="high", subject="Parser").message
    assert sent.context == {k: list(v) if isinstance(v, tuple) else v for k, v in FULL.items()}
    assert sent.attachments == ("a.py", "b.py", "c.py", "state.json")
    assert (sent.kind, sent.tags, sent.subject) == ("handoff", ("handoff",), "Parser")
    assert sent.text == (
        "# Handoff from ann\n\n## Work completed\n\nParsed it.\n\n## Current state\n\nHalf way."
        "\n\n## State file\n\nstate.json\n\n## Files modified\n\n- a.py\n- b.py"
        "\n\n## Files created\n\n- b.py\n- c.py"
        "\n\n## Next steps\n\n- Test\n- Ship\n\n## Blockers\n\n- No disk\n\n## Dependencies\n\n- lib"
        "\n\n## Related escalations\n\n- ESC-1\n\n## Job\n\nJ-1\n\n## Notes\n\nMind the gap."
    )


def test_a_short_handoff_has_a_short_body(room: Room) -> None:
    sent = room.mailbox("ann").handoff("bob", Handoff(work_completed="All.")).message
    assert sent.text == "# Handoff from ann\n\n## Work completed\n\nAll."
    assert (sent.attachments, sent.subject) == ((), "Handoff")
    with pytest.raises(TooLarge):
        room.mailbox("ann").handoff("bob", Handoff(work_completed="x", files_created=tuple(map(str, range(300)))))


def test_an_answer_to_thousands_takes_no_time(room: Room) -> None:
    names = [f"agent-{n}" for n in range(3_000)]
    sent = room.mailbox("ann").send(names, "q")
    answer = room.mailbox("ann").reply(sent.id, "a")
    assert len(answer.message.recipients) == len(names)
    assert spoken(room.thread(sent.id)) == ["q", "a"]


def test_a_batch_keeps_the_pace_of_its_thread_too(factory: RoomFactory) -> None:
    room = factory.room(thread_rate=5)
    sent = room.mailbox("ann").send("bob", "question")
    bob = room.mailbox("bob")
    answers = [postroom.draft("ann", "x", in_reply_to=sent.id)]
    bob.send_many(answers * 4)
    with pytest.raises(TooFast):
        bob.send_many(answers * 2)
    with pytest.raises(TooFast):
        bob.send_many(answers * 6)
    bob.send_many(answers)
