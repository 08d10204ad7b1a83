"""The inbox without a terminal: keys go in, wishes and pictures come out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom.cli.escalation import presses
from postroom.cli.inbox import session
from postroom.cli.inbox import state as inbox_state
from postroom.cli.inbox.screen import Key
from postroom.cli.inbox.session import Drafts
from postroom.cli.inbox.state import (
    Do,
    Edit,
    Effect,
    Extent,
    InboxState,
    Leave,
    Open,
    Refresh,
    arrived,
    line_of,
    pressed,
)
from postroom.clock import SystemClock
from postroom.core import actions, waiting_list
from postroom.core.actions import GONE
from postroom.errors import Conflict, IllegalMove, Invalid
from postroom.formats.plain import plain
from tests.people import person

NOW = SystemClock().now().wall


def entry(letter: str, what: str = "letter", **more: Any) -> dict[str, Any]:
    known = {
        "id": letter,
        "letter": letter,
        "thread": letter,
        "since": NOW,
        "from": "bob",
        "text": "x",
        "priority": "normal",
        "due_at": None,
    }
    stands = {
        "state": "pending" if what == "task" else None,
        "read": False if what in {"letter", "news"} else None,
    }
    return {"what": what, **known, "subject": "", "answer": "", **stands, **more}


def inbox_with(*entries: dict[str, Any]) -> InboxState:
    return arrived(InboxState(me="human"), entries)


def press(inbox: InboxState, *keys: str, lines: int = 0) -> tuple[InboxState, list[Effect]]:
    """Names of keys; what has blanks in it, or no name, is typed letter by letter."""
    wishes: list[Effect] = []
    for message in keys:
        named = message in {
            "enter",
            "esc",
            "up",
            "down",
            "left",
            "ctrl-e",
            "ctrl-u",
            "pgdn",
            "backspace",
            "newline",
        }
        for key in [Key(message, "\n" if message == "newline" else "")] if named else [Key(c, c) for c in message]:
            inbox, wish = pressed(inbox, key, Extent(10, lines))
            wishes += [] if wish is None else [wish]
    return inbox, wishes


# -- the list


def test_mail_that_comes_moves_nobodys_hand() -> None:
    inbox, _ = press(inbox_with(entry("m-1"), entry("m-2")), "j")
    later = arrived(inbox, [entry("e-1", "escalation"), entry("m-1"), entry("m-2"), entry("m-3")])
    assert (later.chosen, later.place) == ("m-2", 2)
    assert arrived(later, [entry("m-1"), entry("m-3")]).chosen == "m-3"  # its neighbour, when it is gone
    assert arrived(later, []).current is None


def test_one_moves_through_the_list_and_not_out_of_it() -> None:
    inbox = inbox_with(*(entry(f"m-{n}") for n in range(30)))
    places = [
        press(inbox, *pressed)[0].place for pressed in (["k"], ["j"], ["down", "down", "up"], ["G"], ["G", "g"])
    ]
    assert places == [0, 1, 1, 29, 0]
    assert [press(inbox, *pressed)[0].place for pressed in (["pgdn"], [" ", " "], ["pgdn"] * 5)] == [10, 20, 29]
    assert press(InboxState(me="human"), "j", "enter", "x", "r", "e")[1] == []


def test_q_leaves_the_list_and_goes_back_from_a_letter() -> None:
    inbox = inbox_with(entry("m-1"))
    assert press(inbox, "q")[1] == [Leave()]
    assert press(inbox, "enter", "q")[1] == [Open(inbox.entries[0])]
    assert press(inbox, "?", "q")[1] == []


def test_a_letter_is_scrolled_as_far_as_it_goes() -> None:
    inbox, wishes = press(inbox_with(entry("m-1"), entry("m-2")), "enter", lines=25)
    assert (wishes, inbox.opened) == ([Open(inbox.entries[0])], inbox.entries[0])
    assert [press(inbox, *pressed, lines=25)[0].scroll for pressed in (["k"], ["j"], [" "], ["G"], [" ", " ", "g"])] == [
        0, 1, 10, 15, 0,
    ]  # fmt: skip
    following, wishes = press(inbox, "j", "n", lines=25)
    assert (wishes, following.scroll, following.chosen) == ([Open(inbox.entries[1])], 0, "m-2")
    assert press(following, "n")[1] == [Open(inbox.entries[1])]
    assert press(following, "p")[1] == [Open(inbox.entries[0])]


# -- deeds

WHATS = [
    ("a", "escalation", actions.APPROVE), ("d", "escalation", actions.DECLINE), ("r", "escalation", actions.REPLY),
    ("r", "question", actions.ANSWER), ("a", "task", actions.ACCEPT), ("d", "task", actions.REJECT),
    ("r", "task", actions.WRITE), ("r", "letter", actions.REPLY),
]  # fmt: skip


@pytest.mark.parametrize(("key", "what", "verb"), WHATS, ids=[f"{verb.name} {what}" for _, what, verb in WHATS])
def test_a_key_some_words_and_enter_are_a_deed(key: str, what: str, verb: actions.Action) -> None:
    one = entry("m-1", what)
    request, wishes = press(inbox_with(one), key)
    assert (wishes, request.writing) == ([], inbox_state.Writing(one, verb))
    assert press(request, "be it so ", "enter")[1] == [Do(one, verb, "be it so")]
    nothing, wishes = press(request, "enter")
    assert wishes == ([Do(one, verb)] if verb.optional else [])
    assert bool(nothing.notice) is not verb.optional


def test_what_a_task_allows_depends_on_where_it_stands() -> None:
    stands = {
        state: inbox_state.offered(entry("t", "task", state=state))
        for state in ("accepted", "working", "completed")
    }
    assert stands == {
        "accepted": (actions.COMPLETE, actions.REJECT, actions.WRITE),
        "working": (actions.COMPLETE, actions.FAIL, actions.WRITE),
        "completed": (),
    }
    assert press(inbox_with(entry("t", "task")), "c")[0].writing is None


def test_a_new_letter_needs_a_name_and_words(tmp_path: Any) -> None:
    inbox, wishes = press(inbox_with(entry("m-1")), "w", "bob How far are you?", "enter")
    (wish,) = wishes
    assert isinstance(wish, Do) and (wish.verb, wish.words) == (actions.COMPOSE, "bob How far are you?")
    assert inbox.drafts == {("new-letter", "compose"): "bob How far are you?"}, "kept until it is sent"
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        assert session.do(person(room), wish).startswith("Sent to bob. No agent named bob has been seen here")
        with pytest.raises(Invalid, match="no words"):
            session.do(person(room), replace(wish, words="bob"))
        assert "Sent to ann." in session.do(person(room), replace(wish, words="ann\n\nA name on its own line."))
        (letter,) = room.mailbox("bob").check()
        assert letter.text == "How far are you?" and letter.message.proof


def test_a_refused_new_letter_is_kept_and_does_not_wait_for_anybody() -> None:
    inbox, _ = press(inbox_with(), "w", "bob")
    inbox, _ = press(inbox_state.refused(inbox, "there is a name, and no words"), "esc")
    assert inbox.notice == "Kept: the same key shows it again."


def test_nothing_is_taken_back_that_was_not_chosen_among_what_was_sent() -> None:
    waits = [entry(f"m-{n}") for n in range(3)]
    listed, _ = press(inbox_with(*waits), "j", "j", "s")
    assert press(listed, "u")[1] == [], "before what was sent is read"
    sent = [entry(f"s-{n}", "sent", state="sent") for n in range(3)]
    (wish,) = press(arrived(listed, sent), "u")[1]
    assert isinstance(wish, Do) and wish.entry["letter"] == "s-0", "the newest, which is shown as chosen"


def test_an_answer_is_shown_and_taken_back_while_nobody_worked_on_it(tmp_path: Any) -> None:
    listed, wishes = press(InboxState(me="human"), "s")
    assert listed.shows_sent and isinstance(wishes[0], Refresh) and not press(listed, "s")[0].shows_sent
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        human, bob = person(room), room.mailbox("bob")
        bob.escalate("May I?", reason="approval", ladder=["human"])
        (waits,) = map(plain, human.waiting())
        session.do(human, Do(waits, actions.APPROVE))
        assert bob.escalations() == []
        (answer,) = session.sent(human)
        assert (answer["what"], answer["from"], answer["text"]) == ("sent", "bob", "approved")
        _, (wish,) = press(arrived(listed, [answer]), "u")
        assert isinstance(wish, Do)
        assert "Taken back from bob." == session.do(human, wish)
        assert bob.check() == []
        (again,) = map(plain, human.waiting())
        assert again["id"] == waits["id"], "the question waits again"
        session.do(human, Do(again, actions.DECLINE, "Not now."))
        assert [letter.text for letter in bob.check()] == ["declined: Not now."]
        bob.claim()
        newest = session.sent(human)[0]
        forged = room.mailbox("human").send("bob", "approved", key="forged").id
        assert [(one["letter"] == forged, one["unproven"]) for one in session.sent(human)][:2] == [
            (True, True),
            (False, False),
        ]
        with pytest.raises(IllegalMove, match="too late"):
            session.do(human, Do(newest, actions.UNSEND))


def test_what_is_urgent_comes_first(tmp_path: Any) -> None:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        bob = room.mailbox("bob")
        bob.escalate("May I?", reason="approval", ladder=["human"])
        bob.send("human", "Fire!", priority="urgent")
        assert ["letter", "escalation"] == [one.what for one in room.mailbox("human").waiting()]


def test_who_waits_for_an_answer_comes_before_tasks_and_a_step_is_not_taken_back(tmp_path: Any) -> None:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        bob = room.mailbox("bob")
        task = bob.give_task("human", "Sign it.", id="t-1")
        bob.send("human", "Just so.")
        bob.send("human", "Which one?", kind="request")
        listed = list(map(plain, room.mailbox("human").waiting()))
        assert [one["text"] for one in listed] == ["Which one?", "Sign it.", "Just so."]
        assert [presses(one, NOW) for one in listed] == [["waits"], [], []]
        (waits,) = [one for one in listed if one["what"] == "task"]
        session.do(person(room), Do(waits, actions.ACCEPT))
        (step,) = session.sent(person(room))
        assert (step["state"], inbox_state.offered(step)) == ("accepted", ()) and task.id == waits["id"]


def test_every_deed_has_its_key_in_the_help() -> None:
    assert {verb.key for some in actions.OFFERED.values() for verb in some} | {"e"} == set(actions.KEYS)
    for some in actions.OFFERED.values():
        assert len({verb.key for verb in some}) == len(some)


def test_done_with_what_was_never_opened_is_asked_once_more() -> None:
    unread, read = entry("m-1"), entry("m-2", read=True)
    assert press(inbox_with(read), "x")[1] == [Do(read, actions.DONE)]
    once, wishes = press(inbox_with(unread, read), "x")
    assert (wishes, "x again" in once.notice) == ([], True)
    assert press(once, "x")[1] == [Do(unread, actions.DONE)]
    assert press(once, "j", "k", "x")[1] == []  # something else came between
    assert press(once, "enter", "x")[1] == [Open(unread), Do(unread, actions.DONE)]
    assert press(inbox_with(entry("e-1", "escalation")), "x", "x")[1] == []


def test_an_answer_that_was_not_sent_is_not_thrown_away_by_one_key() -> None:
    read = entry("m-1", read=True)
    inbox, _ = press(inbox_with(read), "r", "half an answer", "esc")
    once, wishes = press(inbox, "x")
    assert (wishes, "not sent" in once.notice) == ([], True)
    _, wishes = press(once, "x")
    assert wishes == [Do(read, actions.DONE)]
    assert inbox_state.done(once, Do(read, actions.DONE), "Done with it.").drafts == {}
    assert press(press(inbox, "r", "ctrl-u", "esc")[0], "x")[1] == [
        Do(read, actions.DONE)
    ]  # nothing is left of it


def test_the_editor_is_opened_with_what_is_written() -> None:
    one = entry("m-1")
    inbox, wishes = press(inbox_with(one), "e")
    assert wishes == [Edit(inbox_state.Writing(one, actions.REPLY))]
    _, wishes = press(inbox_with(one), "r", "so", "ctrl-e")
    assert wishes == [Edit(inbox_state.Writing(one, actions.REPLY, line_of("so")))]
    assert press(inbox_with(entry("t", "task", state="working")), "e")[1] == [
        Edit(inbox_state.Writing(entry("t", "task", state="working"), actions.COMPLETE))
    ]
    assert press(inbox_with(entry("n", "news")), "e")[1] == []
    assert inbox_state.written(inbox, "two\nlines").writing == inbox_state.Writing(
        one, actions.REPLY, line_of("two\nlines")
    )


def test_what_is_written_is_about_its_entry_as_it_stands_now() -> None:
    writing, _ = press(inbox_with(entry("t", "task")), "r", "so")
    accepted, working = (entry("t", "task", state=state) for state in ("accepted", "completed"))
    assert press(arrived(writing, [accepted]), "enter")[1] == [Do(accepted, actions.WRITE, "so")]
    assert press(arrived(writing, [working]), "enter")[1] == [Do(entry("t", "task"), actions.WRITE, "so")]


# -- nothing that was typed is lost


def kept(inbox: InboxState) -> str:
    """What is there when the same key is pressed again."""
    back, _ = press(inbox, "r")
    return back.writing.line.text if back.writing else ""


def test_esc_keeps_what_was_written() -> None:
    inbox, _ = press(inbox_with(entry("m-1"), entry("m-2")), "r", "half a", "esc", "j", "r", "other", "esc", "k")
    assert (kept(inbox), kept(press(inbox, "j")[0])) == ("half a", "other")
    assert press(inbox, "r", "ctrl-u", "esc")[0].drafts == {("m-2", "reply"): "other"}
    assert kept(arrived(inbox, [entry("m-1")])) == "half a"


def test_what_answers_nothing_any_more_is_kept_and_that_is_said() -> None:
    writing, _ = press(inbox_with(entry("m-1")), "r", "half a")
    assert "same key" in press(writing, "esc")[0].notice
    gone, _ = press(arrived(writing, []), "esc")
    assert ("among your drafts" in gone.notice, gone.drafts) == (True, {("m-1", "reply"): "half a"})


def lose(inbox: InboxState, why: str, retry: str = "") -> InboxState:
    """A planted bug."""
    return replace(inbox, writing=None, drafts={}, notice=why + retry)


@pytest.mark.parametrize(("refuse", "is_kept"), [(inbox_state.refused, True), (lose, False)])
def test_a_refusal_keeps_the_draft_and_tells_why(refuse: Any, is_kept: bool) -> None:
    written, wishes = press(inbox_with(entry("m-1")), "r", "my answer", "enter")
    assert wishes == [Do(entry("m-1"), actions.REPLY, "my answer")]
    refused = refuse(written, "the room is busy", "k-1")
    assert (refused.notice.startswith("the room is busy"), kept(replace(refused, writing=None)) == "my answer") == (
        True, is_kept,
    )  # fmt: skip
    assert (refused.writing is not None and refused.writing.line.text == "my answer") is is_kept


def test_the_same_words_again_are_sent_under_the_same_key_and_others_are_not() -> None:
    written, _ = press(inbox_with(entry("m-1")), "r", "yes", "enter")
    refused = inbox_state.refused(written, "the disk is failing", "k-1")
    assert press(refused, "enter")[1] == [Do(entry("m-1"), actions.REPLY, "yes", "k-1")]
    assert press(refused, "!", "enter")[1] == [Do(entry("m-1"), actions.REPLY, "yes!")]


def test_what_was_sent_is_no_draft_any_more() -> None:
    written, (deed,) = (
        press(inbox_with(entry("m-1"), entry("m-2")), "enter", "r", "yes", "enter")[0],
        [Do(entry("m-1"), actions.REPLY, "yes")],
    )
    done = inbox_state.done(written, deed, "Answered bob.")
    assert (done.drafts, done.writing, done.opened, done.notice) == ({}, None, None, "Answered bob.")


def test_a_pasted_line_end_is_written_and_sends_nothing() -> None:
    inbox, wishes = press(inbox_with(entry("m-1")), "r", "one", "newline", "two")
    assert (wishes, inbox.drafts) == ([], {("m-1", "reply"): "one\ntwo"})
    pasted, wish = pressed(inbox, Key("paste", "x\ny"), Extent(10))
    assert (wish, pasted.drafts) == (None, {("m-1", "reply"): "one\ntwox\ny"})
    assert pressed(inbox_with(entry("m-1")), Key("paste", "xxq"), Extent(10))[1] is None


def test_drafts_are_files_for_their_owner_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    drafts, message = (
        Drafts("room.db", "human"),
        {("m-1", "reply"): "half a\nline é", ("t-1", "give up"): "\udcff"},
    )
    assert drafts.load() == {}
    drafts.keep(message)
    assert [oct(path.stat().st_mode & 0o777) for path in (drafts.folder, *drafts.folder.iterdir())] == [
        "0o700", "0o600", "0o600",
    ]  # fmt: skip
    assert Drafts("room.db", "human").load() == message
    assert Drafts("room.db", "other").load() == Drafts("other.db", "human").load() == {}
    drafts.keep({})
    assert list(drafts.folder.iterdir()) == []


def test_no_number_of_questions_hides_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_list, "MOST", 2)
    with postroom.open("memory:") as room:
        for _ in range(5):
            room.mailbox("ann").escalate("May I?", reason="approval")
        room.mailbox("bob").send("human", "Hello")
        assert ["escalation"] * 5 + ["letter"] == [one.what for one in room.mailbox("human").waiting()]


@pytest.mark.parametrize("looks", [1, 2])
def test_the_quicker_of_two_processes_decides(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """Another answers after so many looks at whether it waits: before the letter is opened, and after it."""
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        human, honest, left = person(room), actions.Act._waiting, [looks]
        sent = room.mailbox("ann").send("human", "May I?")
        (waits,) = map(plain, human.waiting())

        def and_just_then(*asked: Any) -> Any:
            found = honest(*asked)
            left[0] -= 1
            if not left[0]:
                human.read(sent.id).ack_and_reply("No.")
            return found

        monkeypatch.setattr(actions.Act, "_waiting", and_just_then)
        with pytest.raises(Conflict, match=GONE):
            session.do(human, Do(waits, actions.REPLY, "Yes."))
        assert [letter.text for letter in room.mailbox("ann").check()] == ["No."]
