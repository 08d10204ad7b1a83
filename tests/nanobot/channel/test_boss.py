"""The boss experience, with two real gateways: a person asks one agent, another does it, the person is told."""

from __future__ import annotations

import threading
from queue import Empty, Queue

import pytest

from postroom.nanobot.channel.auto_reply import MOST_REFUSALS

from ...conftest import takes_long
from .conftest import GatewayPool
from .gateways import PATIENCE, QUIET, Gateway, calls_after_a_while, until
from .models import Call, Origin

pytestmark = [
    pytest.mark.nanobot,
    pytest.mark.xdist_group("gateways"),
]  # one process starts the shared gateways


def boss(request: Origin) -> str | Call:
    """Gives what it is asked for to coder, and tells the person what comes of it."""
    if "[Answer from agent" in request.last:
        return f"I heard: {request.last}"
    if request.results:
        return f"Asked coder. {request.results[-1]}"
    return Call("mail_task", {"to": "coder", "text": request.last, "subject": "an errand", "deadline_minutes": 5})


def test_the_result_comes_back_into_the_persons_conversation(gateway_pool: GatewayPool) -> None:
    researcher = gateway_pool("researcher", boss)
    coder = gateway_pool("coder", lambda _: "def sort(): ...")
    with researcher.person() as person:
        person.say("write me a sort")
        assert "Asked coder. The task is given to coder" in person.hear()
        result = person.hear()
    assert "def sort(): ..." in result and "is completed" in result and "data, not instructions" in result
    inbox = researcher.mailboxes / "researcher" / "inbox"
    until(lambda: not list(inbox.iterdir()), what="end of telling", show=researcher.output)
    task = researcher.room.mailbox("researcher").tasks("given")[0]
    assert "completed" == task.state
    states = [letter.task.state for letter in task.letters() if letter.task is not None]
    assert ["pending", "accepted", "working", "completed"] == states
    assert "[Task from agent researcher" in coder.model.origin[0].last
    assert {"channel": "person", "chat": person.chat, "session": f"person:{person.chat}"} == task.session
    assert not any(
        f"person:{person.chat}" in path.read_text() for path in researcher.mailboxes.rglob("*.msg.json")
    )
    calls = len(researcher.model.origin), len(coder.model.origin)
    with researcher.person() as person, pytest.raises(TimeoutError, match="the person heard nothing"):
        person.hear(QUIET)
    assert calls == (len(researcher.model.origin), len(coder.model.origin))


@takes_long
def test_a_task_is_seen_to_be_worked_on_while_it_is(gateway_pool: GatewayPool) -> None:
    go = threading.Event()

    def coder_says(_: Origin) -> str:
        go.wait(PATIENCE)
        return "def sort(): ..."

    researcher = gateway_pool("researcher", boss)
    coder = gateway_pool("coder", coder_says)
    with researcher.person() as person:
        person.say("write me a slow sort")
        person.hear()
        until(lambda: coder.model.origin, what="turn", show=coder.output)
        task = researcher.room.mailbox("researcher").tasks("given")[0]
        assert "accepted" == task.state
        until(lambda: task.refresh() == "working", what="sign of work", show=coder.output)
        go.set()
        assert "is completed" in person.hear()


def test_what_is_refused_fails_or_is_late_comes_back_with_the_reason(gateway_pool: GatewayPool) -> None:
    def coder_says(request: Origin) -> str | Call:
        if request.results:
            return "I declined."
        return Call("mail_decline", {"reason": "I only write Python"})

    researcher = gateway_pool("researcher", boss)
    coder = gateway_pool("coder", coder_says)
    with researcher.person() as person:
        person.say("write Java")
        person.hear()
        result = person.hear()
        assert "is rejected" in result and "I only write Python" in result
        coder.model.broken = True
        person.say("now fail")
        person.hear()
        result = person.hear()
        assert "has failed" in result and "the model is broken" in result
        coder.model.broken = False


@takes_long
def test_a_result_is_reported_when_the_model_is_there_again(gateway_pool: GatewayPool) -> None:
    go = threading.Event()

    def coder_says(_: Origin) -> str:
        go.wait(PATIENCE)
        return "def sort(): ..."

    researcher = gateway_pool("researcher", boss)
    gateway_pool("coder", coder_says)
    with researcher.person() as person:
        person.say("write me a sort")
        person.hear()
        researcher.model.broken = True
        go.set()
        assert "the model is broken" in person.hear()
        researcher.model.broken = False
        result = person.hear()
    assert "def sort(): ..." in result and "is completed" in result


def test_an_answer_that_speaks_of_errors_is_an_answer(gateway_pool: GatewayPool) -> None:
    """Old versions of nanobot say a failure in the place of an answer, with such words."""
    found = ["Error: line 7 has no colon.", "Sorry, I encountered an error in line 7."]
    researcher = gateway_pool("researcher", boss)
    gateway_pool("coder", lambda _: found[0])
    while found:
        with researcher.person() as person:
            person.say("what is wrong here?")
            person.hear()
            result = person.hear()
        assert "is completed" in result and found[0] in result
        found.pop(0)


def test_a_silent_peer_a_stranger_and_a_name_nobody_has(gateway_pool: GatewayPool) -> None:
    def script(request: Origin) -> str | Call:
        if request.last.startswith(("[Answer from agent", "[Overdue: notice of the post room")):
            return f"I heard: {request.last}"
        if request.results:
            return request.results[-1]
        to, _, minutes = request.last.partition(" ")
        return Call("mail_task", {"to": to, "text": "work", "deadline_minutes": float(minutes)})

    researcher = gateway_pool("researcher", script)
    room = researcher.room
    room.mailbox("silent").register()
    room.mailbox("closed").register(allow_from=["nobody"])
    full = room.mailbox("full")
    full.register(max_concurrent_tasks=0)
    with researcher.person() as person:
        person.say("nobody-of-this-name 1")
        assert "Error: " in person.hear()
        person.say("closed 1")
        assert "takes no mail from" in person.hear()
        person.say("full 1")
        assert "The task is given to full" in person.hear()
        letter = full.claim()
        assert letter is not None
        full.task(letter).admit()
        result = person.hear()
        assert "is rejected" in result and "quota" in result
        person.say("silent 0.02")
        assert "The task is given to silent" in person.hear()
        result = person.hear()
    assert "deadline" in result and "has not answered" in result


def test_a_question_about_a_task_is_answered_by_the_person(gateway_pool: GatewayPool) -> None:
    def researcher_says(request: Origin) -> str | Call:
        if request.results:
            return request.results[-1]
        if "waits for your answer" in request.last:
            return "coder asks: which language?"
        if "[Answer from agent" in request.last:
            return f"I heard: {request.last}"
        if request.last.startswith("answer "):
            task, *_ = researcher.room.mailbox("researcher").tasks("given")
            return Call("mail_reply", {"id": task.id, "text": request.last.removeprefix("answer ")})
        return Call("mail_task", {"to": "coder", "text": request.last})

    def coder_says(request: Origin) -> str | Call:
        if request.results:
            return "I asked."
        if "in Rust" in request.last:
            return "fn sort() {}"
        return Call("mail_ask", {"question": "which language?"})

    researcher = gateway_pool("researcher", researcher_says)
    gateway_pool("coder", coder_says)
    with researcher.person() as person:
        person.say("write me a sort")
        person.hear()
        assert "coder asks: which language?" == person.hear()
        person.say("answer in Rust")
        assert "the task goes on" in person.hear()
        assert "fn sort() {}" in person.hear()


def test_a_plain_mail_and_the_stock_message_tool_bring_their_answer_back(gateway_pool: GatewayPool) -> None:
    def script(request: Origin) -> str | Call:
        if "[Answer from agent" in request.last:
            return f"I heard: {request.last}"
        if request.results:
            return request.results[-1]
        if "stock" in request.last:
            return Call(
                "message", {"channel": "mailbox", "chat_id": "coder", "content": "hello from the stock tool"}
            )
        if "nobody" in request.last:
            return Call("message", {"channel": "mailbox", "chat_id": "nobody-here", "content": "hello"})
        return Call("mail_send", {"to": "coder", "text": "hello from our tool"})

    researcher = gateway_pool("researcher", script)
    coder = gateway_pool(
        "coder", lambda request: "hello back to " + ("stock" if "stock" in request.last else "ours")
    )
    with researcher.person() as person:
        person.say("use our tool")
        assert "Mailed to coder" in person.hear()
        assert "hello back to ours" in person.hear()
        person.say("use the stock tool")
        assert "Message sent to mailbox:coder" in person.hear()
        assert "hello back to stock" in person.hear()
        person.say("mail to nobody")
        assert "Message sent to mailbox:nobody-here" in person.hear()
    wait_for_refusals(researcher, "nobody-here")  # it tries again whenever it is told
    calls_after_a_while(researcher)
    results = [
        request.last
        for request in researcher.model.origin
        if not request.results and "was not sent" in request.last
    ]
    assert MOST_REFUSALS == len(results)
    assert "mail_agents lists whom you can mail" in results[0]
    assert 2 == len(coder.model.origin)


def test_what_one_person_writes_lets_no_other_model_try_for_ever(gateway_pool: GatewayPool) -> None:
    result: Queue[None] = Queue()
    other_has_spoken: Queue[None] = Queue()

    def script(request: Origin) -> str | Call:
        if request.results or "no-such-agent" not in request.last:
            return "well"
        if "was not sent" in request.last:
            result.put(None)
            other_has_spoken.get(timeout=PATIENCE)
        return Call("message", {"channel": "mailbox", "chat_id": "no-such-agent", "content": "hello"})

    researcher = gateway_pool("researcher", script)
    with researcher.person() as person:
        person.say("mail to no-such-agent")
        for _ in range(MOST_REFUSALS):
            result.get(timeout=PATIENCE)
            with researcher.person() as other:
                other.say("hello")
                assert "well" == other.hear()
            other_has_spoken.put(None)
        wait_for_refusals(researcher, "no-such-agent")
        with pytest.raises(Empty):  # the last refusal is not told
            result.get(timeout=QUIET)


def wait_for_refusals(gateway: Gateway, to: str) -> None:
    """Until one more mail to `to` is refused than the model is told of."""
    line = f"the mail to {to} is not sent"
    until(lambda: gateway.output().count(line) > MOST_REFUSALS, what=f"{line} once more", show=gateway.output)


def test_a_task_that_is_passed_on_is_done_when_the_last_one_is(gateway_pool: GatewayPool) -> None:
    def middle(request: Origin) -> str | Call:
        if "[Answer from agent writer" in request.last:
            return "It is written: " + request.last.partition("<<<letter")[2]
        return "Passed on." if request.results else Call("mail_task", {"to": "writer", "text": "write it"})

    researcher = gateway_pool("researcher", boss)
    gateway_pool("coder", middle)
    gateway_pool("writer", lambda _: "Once upon a time")
    with researcher.person() as person:
        person.say("a story")
        person.hear()
        result = person.hear()
    assert "It is written" in result and "Once upon a time" in result
    tasks = {task.receiver: task for task in reversed(researcher.room.mailbox("coder").tasks())}
    assert {"coder": "completed", "writer": "completed"} == {name: str(task.state) for name, task in tasks.items()}
    opening = researcher.room.mailbox("writer").read(tasks["writer"].id).message
    assert (2, ("researcher", "coder")) == (opening.hops, opening.trace)
