"""When a turn is over, with real gateways: not at the first word of a tool, nor at a word that is none of it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from postroom.mailbox import Mailbox

from .conftest import GatewayPool
from .gateways import PATIENCE, QUIET, until
from .models import Call, Origin

pytestmark = [
    pytest.mark.nanobot,
    pytest.mark.xdist_group("gateways"),
]  # one process starts the shared gateways
TOLD = "[Answer from agent"


def is_over(giver: Mailbox, task: str) -> bool:
    return giver.task(task).is_final


def test_words_of_the_message_tool_are_joined_at_the_end_of_the_turn(gateway_pool: GatewayPool) -> None:
    def coder_says(request: Origin) -> str | Call:
        words = ("I am on it", "the result is 42")
        message = len(request.results)
        return Call("message", {"content": words[message]}) if message < len(words) else "done"

    coder = gateway_pool("coder", coder_says)
    anna = coder.room.mailbox("joining-anna")
    anna.register()
    task = anna.give_task("coder", "compute")
    until(lambda: anna.task(task.id).is_final, what="result", show=coder.output)
    assert "I am on it\n\nthe result is 42" == list(anna.task(task.id).letters())[-1].text
    anna.send("coder", "compute")
    answer = anna.wait(PATIENCE, kinds="message")
    assert answer is not None and "I am on it\n\nthe result is 42" == answer.text


def test_who_declines_after_a_word_declines(gateway_pool: GatewayPool) -> None:
    def coder_says(request: Origin) -> str | Call:
        calls = (Call("message", {"content": "let me see"}), Call("mail_decline", {"reason": "no time"}), "well")
        return calls[min(len(request.results), 2)]

    coder = gateway_pool("coder", coder_says)
    anna = coder.room.mailbox("declined-anna")
    anna.register()
    task = anna.give_task("coder", "compute")
    until(lambda: anna.task(task.id).is_final, what="refusal", show=coder.output)
    assert ("rejected", "no time") == (anna.task(task.id).state, anna.task(task.id).reason)


def test_the_answer_to_a_command_is_not_the_result_of_a_task(gateway_pool: GatewayPool) -> None:
    telling, go = threading.Event(), threading.Event()

    def researcher_says(request: Origin) -> str | Call:
        if TOLD in request.last:
            telling.set()
            go.wait(PATIENCE)
            return "it is 42"
        return "given" if request.results else Call("mail_task", {"to": "coder", "text": "compute"})

    researcher, _ = gateway_pool("researcher", researcher_says), gateway_pool("coder", lambda _: "42")
    inbox = researcher.mailboxes / "researcher" / "inbox"
    with researcher.person() as person:
        person.say("let coder compute")
        assert "given" == person.hear()
        assert telling.wait(PATIENCE)
        person.say("/status")
        assert "nanobot" in person.hear()
        with pytest.raises(TimeoutError, match="the person heard nothing"):
            person.hear(QUIET)
        assert list(inbox.iterdir()), "it counts as told"
        go.set()
    until(lambda: not list(inbox.iterdir()), what="end of telling", show=researcher.output)


def test_a_task_without_an_answer_is_failed_unless_others_go_on_with_it(gateway_pool: GatewayPool) -> None:
    def researcher_says(request: Origin) -> str | Call:
        if "pass it on" not in request.last:
            return "the answer of coder" if TOLD in request.last else ""
        return "" if request.results else Call("mail_task", {"to": "coder", "text": "compute"})

    researcher, _ = gateway_pool("researcher", researcher_says), gateway_pool("coder", lambda _: "42")
    anna = researcher.room.mailbox("answerless-anna")
    anna.register()
    for text, state in (("say nothing", "failed"), ("pass it on", "completed")):
        task = anna.give_task("researcher", text)
        until(partial(is_over, anna, task.id), what="end", show=researcher.output)
        assert state == anna.task(task.id).state, list(anna.task(task.id).letters())[-1].text
