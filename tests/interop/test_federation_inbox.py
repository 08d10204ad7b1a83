"""The real agent-inbox federates with a post room: its library calls us as it calls every peer.

What its own side gets wrong, whoever is its peer: of a letter to several systems only the first recipient is
routed; what was refused lies in its queue, in memory, and nobody is told; a letter that comes in gets a fresh id.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.model.delivery import State
from postroom.store.protocol import spelling_of
from tests.daemons import until
from tests.federation.systems import System, systems
from tests.interop.map_programs import HERE, Program
from tests.interop.packages import long, require_node_22, require_package, surroundings

pytestmark = [pytest.mark.interop, pytest.mark.daemon]


class Inbox(Program):
    """agent-inbox as the system `inbox`, that has called `here`."""

    def __init__(self, home: Path, here: System) -> None:
        node, folder = require_node_22(), require_package()
        copy = folder / f"inbox_peer.{os.getpid()}.mjs"
        shutil.copyfile(HERE / "inbox_peer.mjs", copy)
        home.mkdir(exist_ok=True)
        super().__init__(copy, "inbox", here.name, here.url, node=node, env=surroundings(home))
        self.is_federated = self.line()["federated"]
        copy.unlink()

    def ask(self, what: str, **value: Any) -> Any:
        self.say(what=what, **value)
        return self.line()["result"]

    def send(self, sender: str, to: str | list[str], payload: Any, **more: Any) -> dict[str, Any]:
        sent: dict[str, Any] = self.ask("send", **{"from": sender}, to=to, payload=payload, **more)
        return sent

    def message(self) -> dict[str, Any]:
        result: dict[str, Any] = self.line()["message"]
        return result


@pytest.fixture
def here(tmp_path: Path) -> Iterator[System]:
    require_node_22()
    require_package()
    with systems(System(tmp_path, "here", "ann", "amy")) as (one,):
        one.trusts("inbox", auth="none")
        yield one.serve()


@pytest.fixture
def call(tmp_path: Path, here: System) -> Iterator[Callable[[], Inbox]]:
    called: list[Inbox] = []

    def calls() -> Inbox:
        called.append(Inbox(tmp_path / "home", here))
        return called[-1]

    yield calls
    for one in called:
        one.__exit__()


@long
def test_its_letters_come_with_their_ids_threads_and_subjects(here: System, call: Callable[[], Inbox]) -> None:
    inbox = call()
    assert inbox.is_federated
    here.is_linked("inbox")
    sent = inbox.send("bob", "ann@here", "Grüße 📬", subject="S", threadTag="t1", importance="high")
    (letter,) = until(lambda: here.room.mailbox("ann").check(peek=True))
    assert ("bob@inbox", "Grüße 📬", "S", "t1") == (
        letter.sender,
        letter.text,
        letter.subject,
        letter.message.thread_tag,
    )
    assert (sent["id"], "high") == (letter.id, letter.message.priority.name.lower())
    assert "inbox" not in {agent.card.id for agent in here.room.agents()}  # a gateway is nobody to write to


def test_letters_go_to_its_agents_and_answers_come_back_in_the_thread(
    here: System, call: Callable[[], Inbox]
) -> None:
    inbox = call()
    ann = here.room.mailbox("ann")
    sent = inbox.send("bob", "ann@here", "ping", threadTag="t1")
    (letter,) = until(ann.check)
    letter.reply("pong", subject="R", priority="urgent")
    got = inbox.message()
    assert ("ann@here", {"type": "text", "text": "pong"}, "urgent", "R") == tuple(
        got[word] for word in ("sender_id", "content", "importance", "subject")
    )
    assert (sent["id"], "t1", ["bob"]) == (
        got["in_reply_to"], got["thread_tag"], [one["agent_id"] for one in got["recipients"]],
    )  # fmt: skip
    inbox.send("bob", got["sender_id"], "ping again", inReplyTo=got["id"])  # to the address it was given
    (again,) = until(ann.check)
    assert ("ping again", "t1") == (again.text, again.message.thread_tag)


@long
def test_mail_for_it_waits_until_it_is_back_and_leaves_by_its_receipt(
    here: System, call: Callable[[], Inbox]
) -> None:
    ann = here.room.mailbox("ann")
    ids = [ann.send("bob@inbox", f"{number}").id for number in range(30)]
    assert State.QUEUED == here.delivery(ids[0], "bob@inbox").state
    inbox = call()
    assert [f"{number}" for number in range(30)] == [inbox.message()["content"]["text"] for _ in ids]
    until(lambda: all(here.left(id, "bob@inbox") for id in ids))
    inbox.ask("disconnect")
    until(lambda: here.states()["inbox"] == "disconnected")
    late = ann.send("bob@inbox", "late").id
    inbox.say(what="federate")
    results = [inbox.line(), inbox.line()]  # that it has, and the letter
    assert {"late"} == {one["message"]["content"]["text"] for one in results if "message" in one}
    until(lambda: here.left(late, "bob@inbox"))


@long
def test_a_kill_in_the_middle_of_its_mail_loses_none(here: System, call: Callable[[], Inbox]) -> None:
    """It may get one twice, under the same messageId: it knows no letter again."""
    ids = [here.room.mailbox("ann").send("bob@inbox", f"{number}").id for number in range(200)]
    with call() as first:
        got = [first.message()["metadata"]["messageId"] for _ in range(5)]
        first.process.kill()
        first.process.wait()
        got += [one["message"]["metadata"]["messageId"] for one in first.rest()]
    second = call()
    while set(got) != set(ids):
        got.append(second.message()["metadata"]["messageId"])
    until(lambda: all(here.left(id, "bob@inbox") for id in ids))


@long
def test_after_a_restart_of_the_post_room_it_calls_again_and_its_queue_comes(
    here: System, call: Callable[[], Inbox]
) -> None:
    inbox = call()
    assert 0 == here.stop()
    waits = here.room.mailbox("ann").send("bob@inbox", "waits").id
    inbox.send("bob", "ann@here", "kept in its memory")
    until(lambda: inbox.ask("queued") == 1)
    here.serve()
    inbox.say(what="federate")
    results = [inbox.line(), inbox.line()]
    assert ["waits"] == [one["message"]["content"]["text"] for one in results if "message" in one]
    until(lambda: here.left(waits, "bob@inbox"))
    until(lambda: ["kept in its memory"] == here.texts("ann"))


@long
def test_what_is_refused_is_sent_to_its_sender_by_a_letter(here: System, call: Callable[[], Inbox]) -> None:
    inbox = call()
    sent = inbox.send("bob", "nobody@here", "anyone?", subject="S")
    bounce = inbox.message()
    assert ("postmaster@here", "Undeliverable: S", sent["id"]) == (
        bounce["sender_id"], bounce["subject"], bounce["in_reply_to"],
    )  # fmt: skip
    assert "nobody" in str(bounce["content"])
    assert 1 == inbox.ask("queued")  # it tries once more when it is federated anew
    assert not spelling_of(here.room.core.store, "nobody")


@long
def test_what_its_wire_drops_on_the_way_there(here: System, call: Callable[[], Inbox]) -> None:
    """As the page says that it does."""
    ann = here.room.mailbox("ann")
    more: Any = {"metadata": {"k": 1}, "conversation_id": "conv-1", "tags": ["x"], "expires": 3600, "key": "once"}
    sent = ann.send("bob@inbox", ["x", {"type": "data", "data": {"n": 1}}], cc=["amy"], scope="dev", **more)
    was_written = datetime.now(UTC)
    inbox = call()
    got = inbox.message()
    assert sent.id != got["id"] and sent.id == got["metadata"]["messageId"]
    assert ["bob"] == [one["agent_id"] for one in got["recipients"]]
    assert datetime.fromisoformat(got["created_at"]) > was_written and got.get("conversation_id") != "conv-1"
    assert ("dev", 1, "conv-1") == (got["scope"], got["metadata"]["k"], got["metadata"]["conversationId"])
    assert {"n": 1} == got["content"]["parts"][1]["data"]
    dropped = {"expires", "expires_at", "ttlMs", "key", "tags"}
    assert not dropped & got.keys() and not dropped & got["metadata"].keys()


@long
def test_what_its_wire_drops_on_the_way_here(here: System, call: Callable[[], Inbox]) -> None:
    """As the page says that it does."""
    inbox = call()
    ann = here.room.mailbox("ann")
    ann.send("bob@inbox", "question", thread_tag="t1")
    got = inbox.message()
    inbox.ask("disconnect")
    more = {"scope": "dev", "metadata": {"k": 2}, "conversationId": "conv-1", "inReplyTo": got["id"]}
    sent = inbox.send("bob", ["ann@here", "amy@here"], "answer", **more)
    time.sleep(0.3)  # it lies in its queue
    inbox.ask("federate")
    (letter,) = until(ann.check)
    assert (got["id"], "t1") == (letter.message.in_reply_to, letter.message.thread_tag)
    assert not here.room.core.store.get([got["id"]])  # an id that nobody knows here
    assert ("default", None) == (letter.message.scope, letter.message.conversation_id)
    assert "k" not in letter.message.metadata
    assert letter.created_at - datetime.fromisoformat(sent["created_at"]) > timedelta(seconds=0.2)
    assert ["ann"] == [one.address for one in letter.recipients] and not here.room.mailbox("amy").check()


@long
def test_a_scope_in_the_address_is_the_letters(here: System, call: Callable[[], Inbox]) -> None:
    call().send("bob", "ann@here/dev", "scoped")
    (letter,) = until(here.room.mailbox("ann").check)
    assert ("scoped", "dev") == (letter.text, letter.message.scope)


@long
def test_a_letter_to_all_of_it_has_no_word_there(here: System, call: Callable[[], Inbox]) -> None:
    call()
    here.is_linked("inbox")
    sent = here.room.mailbox("ann").send("@inbox", "all")
    until(lambda: here.delivery(sent.id, "@inbox").state is State.DEAD)
    (bounce,) = here.room.mailbox("ann").check()
    assert "everybody" in bounce.text


@long
def test_one_that_was_not_added_is_not_let_in(tmp_path: Path, here: System, call: Callable[[], Inbox]) -> None:
    here.trusts("inbox", auth="bearer")
    assert not call().is_federated
    assert here.states()["inbox"] == "disconnected"
