"""Tasks that are not taken, with two real gateways: whoever asked is told each time, with the reason."""

from __future__ import annotations

import json
import threading

import pytest

from ...conftest import takes_long
from .conftest import GatewayPool
from .gateways import PATIENCE, Person, until
from .models import Call, Origin

pytestmark = [
    pytest.mark.nanobot,
    pytest.mark.xdist_group("gateways"),
]  # one process starts the shared gateways


def asks_narrow(request: Origin) -> str | Call:
    """Gives a task to narrow, as the person says it; tells what comes of it."""
    if request.last.startswith(("[Answer from agent", "[Overdue: notice of the post room")):
        return f"I heard: {request.last}"
    return (
        request.results[-1] if request.results else Call("mail_task", {"to": "narrow"} | json.loads(request.last))
    )


def hear(person: Person, *words: str) -> None:
    """Soon, if not next. What comes while the person is answered may be part of that answer."""
    received: list[str] = []
    while not all(word in (received or [""])[-1] for word in words):
        assert len(received) < 3, received
        received.append(person.hear())


@takes_long
def test_each_reason_for_which_a_task_is_rejected_is_sent_to_the_person(gateway_pool: GatewayPool) -> None:
    done = threading.Event()

    def narrow_says(_: Origin) -> str:
        done.wait(PATIENCE)
        return "it is done"

    researcher = gateway_pool("researcher", asks_narrow)
    researcher.room.mailbox("narrow").register()  # as by an earlier start
    with researcher.person() as person:
        person.say(json.dumps({"text": "be quick", "deadline_minutes": 0.02}))
        hear(person, "has not answered")
        narrow = gateway_pool("narrow", narrow_says)  # it comes too late
        hear(person, "is rejected: its deadline was over before narrow could begin.", "\ndeadline\n")
        person.say(json.dumps({"text": "write Java", "needs": ["java"]}))
        hear(person, "is rejected", "lacks java")
        person.say(json.dumps({"text": "write Python", "needs": ["python"]}))
        until(lambda: narrow.model.origin, what="work", show=narrow.output)
        person.say(json.dumps({"text": "and this"}))
        hear(person, "is rejected: narrow has as many tasks in hand as it takes on.", "\nquota\n")
        done.set()
        hear(person, "is completed", "it is done")
    assert 1 == len(narrow.model.origin)


def test_a_refused_caller_gets_an_error(gateway_pool: GatewayPool) -> None:
    writer = gateway_pool("writer", asks_narrow)
    narrow = gateway_pool("narrow", lambda _: "done")
    with writer.person() as person:
        person.say(json.dumps({"text": "and me?"}))
        assert "'narrow' takes no mail from 'writer'" in person.hear()
    stranger = {
        "id": "msg_7_writer",
        "from": "writer",
        "to": "narrow",
        "type": "task",
        "task": {"id": "by-the-back-door", "state": "pending"},
        "content": {"parts": [{"type": "text", "text": "do it all the same"}]},
    }
    inbox = narrow.mailboxes / "narrow" / "inbox"
    (inbox / "7.tmp").write_text(json.dumps(stranger), encoding="utf-8")
    (inbox / "7.tmp").rename(inbox / "7_writer.msg.json")
    task = until(lambda: [one for one in writer.room.mailbox("writer").tasks("given") if one.is_final], what="end")
    assert ("rejected", "unauthorized") == (task[0].state, task[0].reason)
    assert [] == narrow.model.origin
