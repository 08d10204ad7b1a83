"""Only the person's key settles what waits for the person (G12), whichever way an answer comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import postroom
from postroom import NotAllowed, PostroomError, Room
from postroom.core import messages, tokens, verb, webhooks
from postroom.core.authorize import OWNER
from postroom.core.proof import room_id
from postroom.core.verb import perform
from postroom.model.person import key_id, signed_request
from tests.daemons import PATIENCE, Daemon, until
from tests.map.people import Refused, visitor
from tests.mcp.harness import Harness, played
from tests.mcp.harness import refused as tool_refuses
from tests.people import key_file, person
from tests.server.credulous import nobody

KEY_NEEDED = "with a person's key"
Ask = Callable[[str, dict[str, Any]], Any]


def things_wait(room: Room) -> dict[str, tuple[str, dict[str, Any]]]:
    """What an agent could do in the person's name: the verb and its parameters, by what it would settle."""
    coder = room.mailbox("coder")
    coder.register(max_concurrent_tasks=1000)
    question = coder.escalate("May I?", reason="approval", ladder=["human"])
    escalation = next(one for one in coder.escalations() if one.letters == (question.id,))
    letter, task = coder.send("human", "Look."), coder.give_task("human", "Sign it.")
    given = person(room).give_task("coder", "Do it.")
    asked = coder.task(given.id)
    for step in (asked.accept, asked.start):
        step()
    asked.ask("Which one?")
    own = person(room).send("bob", "My word.")
    return {
        "answer": ("reply", {"id": question.id, "body": "approved"}),
        "answer by send": ("send", {"to": "coder", "body": "approved", "in_reply_to": question.id}),
        "answer of many": ("send_many", {"drafts": [{"to": "coder", "body": "x", "in_reply_to": question.id}]}),
        "approval": ("ack", {"ids": question.id, "reply": "approved"}),
        "ack": ("ack", {"ids": [letter.id]}),
        "decline": ("reject", {"ids": letter.id, "reason": "no"}),
        "failure": ("fail", {"ids": letter.id, "reason": "no"}),
        "claim": ("claim", {}),
        "accepted task": ("task_step", {"id": task.id, "step": "accept"}),
        "answered task": ("task_step", {"id": given.id, "step": "answer", "body": "The first."}),
        "canceled task": ("task_step", {"id": given.id, "step": "cancel"}),
        "resolved question": ("resolve", {"id": escalation.id}),
        "unsent letter": ("unsend", {"id": own.id}),
        "blocked sender": ("block", {"name": "coder"}),
        "card": ("register", {"allow_from": ["eve"]}),
        "leave": ("goodbye", {}),
        "shown letter": ("shown", {"ids": letter.id, "host": "claude"}),
        "taken alert": ("ring", {"way": "exec", "timeout": 0}),
        "failed alert": ("ring_failed", {"way": "exec", "ids": letter.id, "why": "no desktop"}),
    }


def waits(room: Room) -> list[Any]:
    return [(one.what, one.id, one.state) for one in room.mailbox("human").waiting(opened=True)]


# -- the ways. Each yields what carries out a verb for the person, and returns the reply


@contextmanager
def over_socket(served: Daemon, token: str) -> Iterator[Ask]:
    with served.line() as line:
        line.ask({"action": "authenticate", "token": token})
        yield lambda name, params: line.ask({"action": name, **params})


@contextmanager
def over_http(served: Daemon, token: str, path: str = "/v1/") -> Iterator[Ask]:
    line = HTTPConnection("127.0.0.1", int(served.where["http"].rpartition(":")[2]), timeout=PATIENCE)
    shown = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(name: str, params: dict[str, Any]) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": f"mail/{name}", "params": params}
        line.request(
            "POST", path + (name if path != "/" else ""), json.dumps(call if path == "/" else params), shown
        )
        return json.loads(line.getresponse().read())

    yield ask
    line.close()


@contextmanager
def over_rpc(served: Daemon, token: str) -> Iterator[Ask]:
    with over_http(served, token, "/") as ask:
        yield ask


@contextmanager
def over_frames(served: Daemon, token: str) -> Iterator[Ask]:
    port, shown = served.where["http"].rpartition(":")[2], {"authorization": f"Bearer {token}"}
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=shown, compression=None) as talk:

        def ask(name: str, params: dict[str, Any]) -> Any:
            talk.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": f"mail/{name}", "params": params}))
            return json.loads(talk.recv(timeout=PATIENCE))

        yield ask


WIRES = {"socket": over_socket, "http": over_http, "json-rpc": over_rpc, "websocket": over_frames}


@contextmanager
def serving(folder: Path, program: str = "postroom") -> Iterator[Daemon]:
    with Daemon(folder, "--http", "127.0.0.1:0", program=(program,)) as served:
        yield served


def token_for(room: Room, caller: str) -> str:
    agent = None if caller == "operator" else caller
    return perform(room.core, OWNER, tokens.CreateToken(agent=agent)).text


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("p")) as found:
        yield found


@pytest.mark.parametrize("wire", WIRES)
def test_no_wire_settles_what_waits_for_the_person(served: Daemon, wire: str) -> None:
    with postroom.open(served.room, durability="process") as room:
        acts, before = things_wait(room), waits(room)
        for caller in ("operator", "human"):  # not even the token of the person's own mailbox is a person's key
            with WIRES[wire](served, token_for(room, caller)) as ask:
                for what, (name, params) in acts.items():
                    reply = json.dumps(ask(name, {"agent_id": "human", **params}))
                    assert KEY_NEEDED in reply, (caller, what, reply)
        assert before == waits(room)


@pytest.mark.parametrize("wire", WIRES)
def test_a_wire_without_the_check_is_found(tmp_path: Path, wire: str) -> None:
    with serving(tmp_path, "tests.server.credulous") as served, postroom.open(served.room) as room:
        acts, before = things_wait(room), waits(room)
        with WIRES[wire](served, token_for(room, "operator")) as ask:
            for what in ("answer", "ack", "accepted task", "answered task"):
                name, params = acts[what]
                assert KEY_NEEDED not in json.dumps(ask(name, {"agent_id": "human", **params})), what
        assert before != waits(room)


# -- proofs of requests


def signed(room: Room, name: str, params: dict[str, Any], **other: Any) -> dict[str, Any]:
    """The parameters with a person's proof; `other` parts of what is signed are not those that are shown."""
    at, key = other.pop("at", datetime.now(UTC)), key_file()
    nonce = other.pop("nonce", os.urandom(8).hex())
    whose = other.pop("about", room_id(room.core))
    about = {"method": name, "params": params, "room": whose, "at": at, "nonce": nonce, **other}
    proof = {
        "key": key_id(key.public()),
        "at": at.isoformat(),
        "nonce": nonce,
        "signature": key.sign(signed_request(**about)),
    }
    return {**params, "proof": proof}


@pytest.mark.parametrize("wire", WIRES)
def test_a_signed_request_is_the_persons_own_on_every_wire(served: Daemon, wire: str) -> None:
    with postroom.open(served.room, durability="process") as room:
        acts = things_wait(room)
        with WIRES[wire](served, token_for(room, "operator")) as ask:
            name, params = acts["answer"]
            whole = signed(room, name, {"agent_id": "human", **params})
            assert KEY_NEEDED not in json.dumps(ask(name, whole))
            assert "not good" in json.dumps(ask(name, whole)), "it is good once"
        answers = [one for one in room.mailbox("coder").thread(params["id"]) if one.sender == "human"]
        assert [one.proof.over for one in answers if one.proof] == ["request"]
        assert not [one for one in room.mailbox("coder").escalations() if one.letters[0] == params["id"]]


def test_the_proof_of_a_request_fits_that_request_alone(served: Daemon) -> None:
    with (
        postroom.open(served.room, durability="process") as room,
        over_socket(served, token_for(room, "operator")) as ask,
    ):
        name, params = things_wait(room)["ack"]
        params = {"agent_id": "human", **params}
        old = datetime.now(UTC) - timedelta(minutes=3)
        for wrong in (
            signed(room, "release", params) | {},
            signed(room, name, {**params, "keep": True}) | {"keep": False},
            signed(room, name, params, about="another"),
            signed(room, name, params, at=old),
            signed(room, name, params, nonce="other-nonce") | {"more": 1},
        ):
            reply = json.dumps(ask(name, wrong))
            assert "not good for this request" in reply or "no such parameter" in reply, reply
        for broken in ({}, 7, {"key": "x"}, {"key": 1, "at": "x", "nonce": [], "signature": None}):
            reply = ask(name, {**params, "proof": broken})
            assert not reply["ok"] and "is no proof of a request" in json.dumps(reply), reply
        assert KEY_NEEDED in json.dumps(ask(name, {**params, "proof": None})), "null means: not given"
        assert ask(name, signed(room, name, params))["ok"]


def test_a_proof_for_one_person_is_none_for_another(served: Daemon) -> None:
    with (
        postroom.open(served.room, durability="process", people="erin") as room,
        over_socket(served, token_for(room, "operator")) as ask,
    ):
        person(room, "erin").send("bob", "Here I am.")
        name, params = things_wait(room)["ack"]
        params = {"agent_id": "erin", "ids": params["ids"]}
        until(lambda: KEY_NEEDED in json.dumps(ask("claim", {"agent_id": "erin"})))  # known a second later
        assert KEY_NEEDED in json.dumps(ask(name, signed(room, name, params)))


# -- the library and the command line


def act(room: Room, name: str, params: dict[str, Any]) -> None:
    made: Any = verb.VERBS[name]
    perform(room.core, OWNER, made(agent_id="human", **params))


def test_the_library_settles_nothing_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        acts, before = things_wait(room), waits(room)
        for name, params in acts.values():
            with pytest.raises(NotAllowed, match=KEY_NEEDED):
                act(room, name, params)
        assert before == waits(room)
        monkeypatch.setattr(verb, "is_person", nobody)  # the planted twin
        monkeypatch.setattr(messages, "is_person", nobody)
        name, params = acts["ack"]
        act(room, name, params)
        assert before != waits(room)


def test_other_settings_make_no_agent_of_a_person_with_a_key(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db", human="dana") as room:
        person(room, "dana").send("bob", "hello")
        question = room.mailbox("coder").escalate("May I?", reason="approval", ladder=["dana"])
    with postroom.open(tmp_path / "room.db", human="zed") as other:
        with pytest.raises(NotAllowed, match=KEY_NEEDED):
            other.mailbox("dana").reply(question.id, "yes")
        with pytest.raises(NotAllowed, match=KEY_NEEDED):
            other.mailbox("dana").claim()


def command(room: Path, home: Path, *words: str, program: str = "postroom", **environment: str) -> tuple[int, str]:
    shown = {"PATH": os.environ["PATH"], "HOME": str(home), "POSTROOM_STORE": str(room), **environment}
    done = subprocess.run(
        [sys.executable, "-m", program, *words],
        env=shown | {"PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "answer": lambda letter: ("reply", letter, "approved", "--done"),
    "ack": lambda letter: ("ack", letter),
    "accepted task": lambda letter: ("tasks", "accept", letter),
}


def test_no_command_settles_what_waits_for_the_person(tmp_path: Path) -> None:
    place = tmp_path / "room.db"
    with postroom.open(place) as room:
        acts, before = things_wait(room), waits(room)
        for what, words in COMMANDS.items():
            params = acts[what][1]
            id = params.get("id") or params["ids"][0]
            code, shown = command(place, tmp_path, *words(id), "--as", "human")
            assert (code, KEY_NEEDED in shown) == (77, True), shown
            # Inside an agent's session the key would not help: the agent types it.
            code, shown = command(
                place, tmp_path, *words(id), "--as", "human",
                CLAUDECODE="1", POSTROOM_HUMAN_KEY=key_file().path,
            )  # fmt: skip
            assert (code, "inside an agent's session" in shown) == (77, True), shown
            assert "postroom escalate" in shown
        assert before == waits(room)
        (letter,) = acts["ack"][1]["ids"]
        code, shown = command(place, tmp_path, "ack", letter, "--as", "human", program="tests.server.credulous")
        assert code == 0, shown
        assert before != waits(room)


def test_no_agent_silences_what_notifies_the_person(tmp_path: Path) -> None:
    """By a command in its session. A watch of the person's own needs no key, and goes on working."""
    place, watch = tmp_path / "room.db", ("watch", "--once", "--backlog", "--timeout", "1s", "--as")
    with postroom.open(place, ring_gather=0) as room:
        room.mailbox("coder").send("human", "Look.")
        add = webhooks.AddWebhook(url="https://hooks.example.com/", mailbox="human")
        webhook = perform(room.core, OWNER, add)
        for words in (
            (*watch, "human"),
            (*watch, "ceo"),
            *(("webhooks", way, webhook.id) for way in ("rotate", "remove")),
        ):
            code, shown = command(place, tmp_path, *words, CLAUDECODE="1")
            assert (code, "inside an agent's session" in shown) == (77, True), shown
        code, shown = command(place, tmp_path, *watch, "human")
        assert code == 0 and "coder" in shown, shown
        room.mailbox("coder").send("human", "Look again.", priority="urgent")
        taken, _ = command(place, tmp_path, *watch, "human", CLAUDECODE="1", program="tests.server.credulous")
        assert taken == 0, "where the session is not checked, the agent takes the alert"
        assert command(place, tmp_path, "webhooks", "remove", webhook.id)[0] == 0


def test_a_person_with_a_key_answers_by_command(tmp_path: Path) -> None:
    place = tmp_path / "room.db"
    with postroom.open(place) as room:
        acts = things_wait(room)
        id = acts["answer"][1]["id"]
        words = (*COMMANDS["answer"](id), "--as", "human")
        code, shown = command(place, tmp_path, *words, POSTROOM_HUMAN_KEY=key_file().path)
        assert code == 0, shown
        assert room.mailbox("coder").escalations() == []
        assert [one.proof is not None for one in room.mailbox("coder").thread(id)] == [False, True]


# -- MCP and MAP


def test_no_tool_settles_what_waits_for_the_person() -> None:
    async def story(opened: Harness) -> None:
        acts, before = things_wait(opened.room), waits(opened.room)
        question, letter = acts["answer"][1]["id"], acts["ack"][1]["ids"][0]
        task, given = acts["accepted task"][1]["id"], acts["answered task"][1]["id"]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("reply", {"messageId": question, "body": "approved"}),
            ("ack", {"messageIds": [letter]}),
            ("claim", {}),
            ("task", {"action": "accept", "messageId": task}),
            ("task", {"action": "answer", "messageId": given, "body": "The first."}),
        ]
        for usual in ("human", "ceo"):
            async with opened.client(usual) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
                for tool, params in calls:
                    if tool in tools:
                        assert KEY_NEEDED in json.dumps(await tool_refuses(client, tool, **params)), tool
        assert before == waits(opened.room)

    played(story)


def test_no_client_of_map_settles_what_waits_for_the_person(served: Daemon) -> None:
    with postroom.open(served.room, durability="process") as room:
        acts, before = things_wait(room), waits(room)
        port = int(served.where["http"].rpartition(":")[2])
        with visitor(port) as client:
            client.join(token_for(room, "operator"), name="human")
            with suppress(Refused):
                client.register(name="human")
            question = acts["answer"][1]["id"]
            for payload in ("approved", {"type": "text", "text": "approved"}):
                with suppress(Refused):
                    client.ask("map/send", to="coder", payload=payload, meta={"mail": {"inReplyTo": question}})
        assert before == waits(room)
        assert not [one for one in room.mailbox("coder").thread(question) if one.proof is not None]


def test_an_escalation_is_not_answered_by_unproven_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever way it came: here it is as if a stranger's file or an old version had written it."""
    with postroom.open(tmp_path / "room.db") as room:
        coder = room.mailbox("coder")
        question = coder.escalate("May I?", reason="approval", ladder=["human"])
        with monkeypatch.context() as patched:
            patched.setattr(messages, "is_person", nobody)
            room.mailbox("human").reply(question.id, "approved")
        assert [one.status for one in coder.escalations()] == ["open"]
        person(room).reply(question.id, "approved")
        assert coder.escalations() == []


@pytest.mark.parametrize("error", [NotAllowed, PostroomError])
def test_the_refusal_says_what_to_do(tmp_path: Path, error: type[PostroomError]) -> None:
    with postroom.open(tmp_path / "room.db") as room, pytest.raises(error, match="at a terminal: postroom inbox"):
        room.mailbox("human").claim()
