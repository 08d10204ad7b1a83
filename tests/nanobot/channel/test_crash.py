"""Gateways that die, and two that are one agent: no letter is lost, none is handled twice at the same time."""

from __future__ import annotations

import shutil
import threading
import time

import pytest

import postroom
from postroom.core.inbox import received

from .conftest import Open
from .gateways import PATIENCE, QUIET, until
from .models import Call, Origin

pytestmark = pytest.mark.nanobot


def state_of(room: postroom.Room, letter: str) -> str:
    return str(received(room.core, "coder", letter).delivery.state)


def test_what_a_killed_gateway_worked_on_is_handed_out_again_and_answered_once(gateway: Open) -> None:
    hang = threading.Event()

    def script(request: Origin) -> str:
        if "first" in request.last and not hang.is_set():
            hang.wait(PATIENCE)
        return "done"

    coder = gateway("coder", script)
    room = coder.room
    anna = room.mailbox("anna")
    task = anna.give_task("coder", "first task")
    mail = anna.send("coder", "first mail")
    until(lambda: len(coder.model.origin) == 2, what="two turns", show=coder.output)
    coder.kill()
    hang.set()
    assert "claimed" == state_of(room, mail.id)
    coder.start()
    answer = anna.wait(PATIENCE, thread=mail.id)
    assert answer is not None and "done" == answer.text, coder.output()
    until(lambda: anna.task(task.id).state == "completed", what="result", show=coder.output)
    until(lambda: not list((coder.mailboxes / "coder" / "inbox").iterdir()), what="end", show=coder.output)
    time.sleep(QUIET)
    replies = [letter for letter in anna.thread(mail.id) if letter.sender == "coder"]
    results = [
        letter for letter in anna.task(task.id).letters() if letter.task and letter.task.state == "completed"
    ]
    assert (1, 1) == (len(replies), len(results))


def delegating(request: Origin) -> str | Call:
    """Gives what a person asks for to a helper; tells what comes of it; is done with all else."""
    if "[Answer from agent" in request.last:
        return f"I heard: {request.last}"
    if request.last.startswith("errand"):
        return "Given." if request.results else Call("mail_task", {"to": "helper", "text": request.last})
    return "done"


def help_once(helper: postroom.Mailbox) -> None:
    letter = helper.claim(timeout=PATIENCE)
    assert letter is not None
    task = helper.task(letter)
    task.accept()
    task.complete(f"result of {letter.text}")


def test_a_second_gateway_of_one_agent_is_refused_and_the_first_goes_on(gateway: Open) -> None:
    first = gateway("coder", lambda _: "done", home="first")
    second = gateway("coder", lambda _: "done by another", home="second", start=False)
    second.launch()
    until(lambda: "is running already" in second.output(), what="refusal", show=second.output)
    anna = first.room.mailbox("anna")
    for number in range(3):
        anna.send("coder", f"mail {number}")
        answer = anna.claim(timeout=PATIENCE)
        assert answer is not None and "done" == answer.text, first.output()
        answer.ack()
    second.stop()
    assert "idle" == first.room.agent("coder").presence.status
    first.stop()
    assert "offline" == first.room.agent("coder").presence.status
    assert [] == second.model.origin


def test_what_a_killed_gateway_held_goes_to_its_successor(gateway: Open) -> None:
    """It starts in another folder."""
    hang = threading.Event()

    def script(request: Origin) -> str:
        if not hang.is_set():
            hang.wait(PATIENCE)
        return "done"

    killed = gateway("coder", script, home="killed")
    anna = killed.room.mailbox("anna")
    anna.register()
    mail, task = anna.send("coder", "a question"), anna.give_task("coder", "work")
    until(lambda: len(killed.model.origin) == 2, what="two turns", show=killed.output)
    killed.kill()
    hang.set()
    assert "claimed" == state_of(killed.room, mail.id)
    other = gateway("coder", lambda _: "done by another", home="other")
    answer = anna.wait(PATIENCE, kinds="message")
    assert answer is not None and "done by another" == answer.text, other.output()
    until(lambda: anna.task(task.id).state == "completed", what="result", show=other.output)
    assert 2 == len(other.model.origin)
    assert "idle" == other.room.agent("coder").presence.status


def test_a_turn_that_breaks_in_nanobot_itself_is_a_failure_of_its_own_letter(gateway: Open) -> None:
    """Its sessions cannot be written: it says that it is sorry, and one version not even to whom."""
    coder = gateway("coder", lambda _: "done")
    for folder in (coder.home / "workspace" / "sessions", coder.home / "sessions"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("no folder", encoding="utf-8")
    anna = coder.room.mailbox("anna")
    sent = [anna.send("coder", f"mail {number}").id for number in range(2)]
    task = anna.give_task("coder", "work")
    until(lambda: anna.task(task.id).state == "failed", what="failure", show=coder.output)
    core = coder.room.core
    until(
        lambda: all(received(core, "coder", id).delivery.attempts for id in sent),
        what="two failed tries",
        show=coder.output,
    )
    assert anna.check(kinds="message", peek=True) == []


def test_an_orderly_stop_in_the_middle_of_a_turn_gives_the_letter_back(gateway: Open) -> None:
    hang = threading.Event()
    coder = gateway("coder", lambda _: str(hang.wait(PATIENCE)))
    mail = coder.room.mailbox("anna").send("coder", "hello")
    until(lambda: coder.model.origin, what="turn", show=coder.output)
    coder.stop()
    hang.set()
    delivery = received(coder.room.core, "coder", mail.id).delivery
    assert ("unread", 0) == (delivery.state, delivery.attempts)  # nobody's failure: it is handed out at once
    assert "offline" == coder.room.agent("coder").presence.status


def test_a_task_that_is_taken_back_is_stopped_and_says_nothing(gateway: Open) -> None:
    hang = threading.Event()

    def script(request: Origin) -> str:
        if "slow" in request.last:
            hang.wait(PATIENCE)
        return "done"

    coder = gateway("coder", script)
    anna = coder.room.mailbox("anna")
    task = anna.give_task("coder", "slow work")
    until(lambda: coder.model.origin, what="turn", show=coder.output)
    anna.task(task.id).cancel("not needed any more")
    until(lambda: not coder.room.agent("coder").presence.current_tasks, what="end of work", show=coder.output)
    until(lambda: not list((coder.mailboxes / "coder" / "inbox").iterdir()), what="end", show=coder.output)
    hang.set()
    anna.send("coder", "still there?")
    answer = anna.wait(PATIENCE, kinds="message")
    assert answer is not None and "done" == answer.text, coder.output()
    assert "canceled" == anna.task(task.id).state
