"""What a person does with what waits: by one table, by one verb, once, and only while it still waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom import Conflict, Invalid, NotAllowed, Room
from postroom.core import actions
from postroom.core.actions import OFFERED, RESULTS, Act, ListActions
from postroom.core.verb import perform
from tests.people import person, signing


def act(room: Room, action: str, letter: str = "", **more: Any) -> actions.Acted:
    return perform(room.core, signing(room).principal, Act(agent_id="human", action=action, letter=letter, **more))


def texts(room: Room, mailbox: str) -> list[str]:
    return [letter.text for letter in room.mailbox(mailbox).check()]


@pytest.mark.parametrize(
    ("action", "words", "answer"),
    [
        ("approve", "", "approved"),
        ("approve", "go", "approved: go"),
        ("decline", "no", "declined: no"),
        ("reply", "Hm.", "Hm."),
    ],
)
def test_an_escalation_is_answered_and_settled(room: Room, action: str, words: str, answer: str) -> None:
    coder = room.mailbox("coder")
    asked = coder.escalate("May I?", reason="approval", ladder=["human"])
    done = act(room, action, asked.id, words=words)
    assert (done.letter, done.action, done.repeated) == (asked.id, action, False)
    (letter,) = coder.check(kinds="message")
    assert (letter.text, letter.thread, letter.message.proof is not None) == (answer, asked.thread, True)
    assert room.mailbox("human").waiting(opened=True) == []


def test_a_task_goes_through_its_states_by_the_actions_that_are_offered(room: Room) -> None:
    task = room.mailbox("coder").give_task("human", "Sign it.")
    assert "Accepted" in act(room, "accept", task.id, state="pending").done
    with pytest.raises(Conflict, match="by now"):
        act(room, "accept", task.id, state="pending")
    with pytest.raises(Invalid, match="accept is nothing that can be done"):
        act(room, "accept", task.id)
    act(room, "complete", task.id, words="Signed.", state="accepted")
    assert "completed" == room.mailbox("coder").task(task.id).state
    with pytest.raises(Conflict, match=actions.GONE):
        act(room, "complete", task.id)


def test_a_question_a_letter_and_news_are_settled(room: Room) -> None:
    given = person(room).give_task("coder", "Do it.")
    task = room.mailbox("coder").task(given.id)
    task.accept()
    task.start()
    task.ask("Which one?")
    (question,) = [one for one in room.mailbox("human").waiting(opened=True) if one.what == "question"]
    act(room, "answer", question.letter, words="The first.")
    assert "working" == room.mailbox("coder").task(given.id).state
    letter = room.mailbox("ann").send("human", "Look.")
    act(room, "done", letter.id)
    assert letter.id not in [one.letter for one in room.mailbox("human").waiting(opened=True)]
    act(room, "compose", words="ann Well seen.")
    assert ["Well seen."] == texts(room, "ann")
    sent = person(room).send("ann", "Too early.")
    assert "ann" in act(room, "take back", sent.id).done
    assert [] == texts(room, "ann")


@pytest.mark.parametrize("prepare", ["escalation", "task", "letter", "done", "compose"])
def test_what_is_said_again_with_its_key_is_done_once(room: Room, prepare: str) -> None:
    coder = room.mailbox("coder")
    sent: dict[str, Callable[[], tuple[str, str, str]]] = {
        "escalation": lambda: ("approve", coder.escalate("May I?", reason="approval", ladder=["human"]).id, "yes"),
        "task": lambda: ("accept", coder.give_task("human", "Sign it.").id, ""),
        "letter": lambda: ("reply", coder.send("human", "How?").id, "So."),
        "done": lambda: ("done", coder.send("human", "Look.").id, ""),
        "compose": lambda: ("compose", "", "coder Hello"),
    }
    action, letter, words = sent[prepare]()
    first, again = (act(room, action, letter, words=words, key="draft-1") for _ in range(2))
    assert (False, True) == (first.repeated, again.repeated)
    assert len(texts(room, "coder")) == (0 if prepare == "done" else 1)
    if prepare in {"escalation", "letter"}:
        with pytest.raises(Conflict):
            act(room, action, letter, words=words, key="draft-2")


def test_a_key_that_does_not_count_is_found_out(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: what was done before is not looked for."""
    monkeypatch.setattr(Act, "_was_done", lambda *_asked: False)
    with pytest.raises((AssertionError, Conflict)):
        test_what_is_said_again_with_its_key_is_done_once(room, "letter")


@pytest.mark.parametrize("action", ["approve", "reply", "accept", "answer", "compose"])
def test_other_words_with_the_same_key_are_refused_and_the_first_ones_named(room: Room, action: str) -> None:
    coder = room.mailbox("coder")
    letter, before = "", ""
    if action == "accept":
        letter = coder.give_task("human", "Sign it.").id
    elif action == "answer":
        task = coder.task(person(room).give_task("coder", "Do it.").id)
        task.accept()
        task.start()
        task.ask("Which one?")
        (letter,) = [one.letter for one in room.mailbox("human").waiting(opened=True) if one.what == "question"]
    elif action == "compose":
        before = "coder "
    else:
        letter = coder.escalate("May I?", reason="approval", ladder=["human"]).id
    act(room, action, letter, words=f"{before}delete it", key="draft-1")
    with pytest.raises(Conflict) as refused:
        act(room, action, letter, words=f"{before}delete nothing", key="draft-1")
    assert action == "compose" or "Your earlier words were sent" in str(refused.value)
    assert act(room, action, letter, words=f"{before}delete it", key="draft-1").repeated
    assert not [text for text in texts(room, "coder") if "nothing" in text]


def test_a_key_means_one_letter_and_one_action(room: Room) -> None:
    asked = [room.mailbox("coder").escalate("May I?", reason="approval", ladder=["human"]).id for _ in range(2)]
    act(room, "reply", asked[0], words="yes", key="draft-1")
    for action, letter in (("reply", asked[1]), ("approve", asked[0])):
        with pytest.raises(Conflict, match="Your earlier words were sent: 'yes'"):
            act(room, action, letter, words="yes", key="draft-1")


def test_a_key_whose_words_are_not_compared_is_found_out(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: whatever was sent with the key counts."""
    monkeypatch.setattr(Act, "_is_answer", lambda *_asked: True)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_other_words_with_the_same_key_are_refused_and_the_first_ones_named(room, "approve")


def test_an_unproven_letter_that_used_the_key_first_answers_nothing(room: Room) -> None:
    asked = room.mailbox("coder").escalate("May I?", reason="approval", ladder=["human"]).id
    room.mailbox("human").send("coder", "yes", key="draft-1")  # without the person's key
    with pytest.raises(Conflict, match="unproven"):
        act(room, "reply", asked, words="yes", key="draft-1")
    assert [asked] == [one.letter for one in room.mailbox("human").waiting(opened=True)]
    assert not act(room, "reply", asked, words="yes", key="draft-2").repeated


def test_only_the_person_does_it(room: Room) -> None:
    asked = room.mailbox("coder").escalate("May I?", reason="approval", ladder=["human"])
    with pytest.raises(NotAllowed, match="with a person's key"):
        perform(room.core, room.principal, Act(agent_id="human", action="approve", letter=asked.id))
    assert [asked.id] == [one.letter for one in room.mailbox("human").waiting(opened=True)]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"action": "delete"}, "action"),
        ({"action": "done", "letter": "x", "words": "why"}, "words"),
        ({"action": "decline", "letter": "x"}, "words"),
        ({"action": "compose", "words": "ann"}, "words"),
        ({"action": "done", "letter": "no id"}, "letter"),
        ({"action": "done", "letter": "x", "key": ""}, "key"),
    ],
)
def test_what_cannot_be_done_names_the_field(room: Room, params: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as wrong:
        perform(room.core, signing(room).principal, Act(agent_id="human", **params))
    assert field == wrong.value.field


def test_the_table_says_of_each_action_what_it_did(room: Room) -> None:
    shown = perform(room.core, room.principal, ListActions())
    offered = {action for some in shown.offered.values() for action in some}
    assert offered == set(RESULTS) and shown.offered.keys() == OFFERED.keys()
    assert {action.key for action in offered} | {"e"} == shown.keys.keys()
