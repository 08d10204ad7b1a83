"""One script, told through every surface: what comes back is the same, field by field.

A surface that is added later implements `Surface` and joins `SURFACES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import postroom
from postroom import Letter, Message, PostroomError, Receipt, Work
from tests.cli.shell import Desk

Told = dict[str, Any]


class Surface(Protocol):
    """The verbs of the script. Each answers with plain values."""

    def send(self, me: str, to: list[str], body: str, **fields: Any) -> Told: ...
    def reply(self, me: str, id: str, body: str) -> Told: ...
    def forward(self, me: str, id: str, to: str) -> Told: ...
    def broadcast(self, me: str, scope: str, body: str) -> Told: ...
    def handoff(self, me: str, to: str, done: str) -> Told: ...
    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[Told]: ...
    def read(self, me: str, id: str) -> Told: ...
    def counts(self, me: str) -> dict[str, int]: ...
    def wait(self, me: str) -> Told | None: ...
    def claim(self, me: str, count: int) -> list[Told]: ...
    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str: ...
    def fail(self, me: str, id: str, token: str, reason: str) -> str: ...
    def release(self, me: str, id: str, token: str) -> str: ...
    def reject(self, me: str, id: str, reason: str) -> str: ...
    def dead(self, me: str) -> list[Told]: ...
    def revive(self, me: str, id: str) -> str: ...
    def thread(self, me: str, id: str) -> list[Told]: ...
    def register(self, me: str, scope: str, capability: str) -> Told: ...
    def agents(self) -> list[str]: ...
    def stats(self, me: str) -> Told: ...
    def room_stats(self) -> Told: ...
    def trace(self, me: str, id: str) -> Told: ...
    def is_healthy(self) -> bool: ...


# -- the script


def transcript(surface: Surface) -> Iterator[Any]:
    """Everything that was answered, in order."""
    yield surface.register("coder", "team", "python")
    yield surface.register("tester", "team", "pytest")
    yield surface.agents()
    first = surface.send(
        "coder", ["tester", "archive"], "Please test.", subject="Tests", priority="high", tags=["a"]
    )
    yield first
    yield surface.send("coder", ["tester"], "again", key="k-1")
    yield surface.send("coder", ["tester"], "again", key="k-1")
    yield surface.counts("tester")
    yield surface.check("tester", peek=True)
    yield surface.check("tester")
    yield surface.check("tester")
    yield surface.check("tester", everything=True)
    yield surface.read("tester", first["id"])
    yield surface.reply("tester", first["id"], "They pass.")
    yield surface.wait("coder")
    yield surface.thread("coder", first["id"])
    yield surface.forward("tester", first["id"], "boss")
    yield surface.broadcast("boss", "team", "Well done.")
    yield surface.handoff("coder", "tester", "All of it.")
    yield surface.counts("tester")
    held = surface.claim("tester", 10)
    yield [without(work, "token") for work in held]
    one, two, *others = held
    yield surface.ack("tester", one["id"], one["token"], "done")
    yield surface.ack("tester", one["id"], one["token"])
    yield surface.fail("tester", two["id"], two["token"], "no luck")
    yield [surface.release("tester", other["id"], other["token"]) for other in others]
    yield surface.claim("nobody", 1)
    yield surface.reject("tester", others[0]["id"], "not mine")
    yield surface.dead("tester")
    yield surface.revive("tester", others[0]["id"])
    yield surface.ack("tester", others[0]["id"], None)
    yield surface.check("tester", everything=True)
    yield surface.check("coder")
    yield surface.stats("tester")
    yield surface.stats("archive")
    yield surface.room_stats()
    yield surface.trace("coder", first["id"])
    yield surface.trace("tester", first["id"])
    yield surface.is_healthy()
    yield from mistakes(surface, first["id"])


def mistakes(surface: Surface, id: str) -> Iterator[Any]:
    """What is refused is refused in the same words."""
    attempts: list[Callable[[], Any]] = [
        lambda: surface.send("coder", ["no one"], "x"),
        lambda: surface.send("coder", ["Tester"], "x"),
        lambda: surface.send("coder", ["tester"], "other", key="k-1"),
        lambda: surface.read("stranger", id),
        lambda: surface.ack("tester", id, "guess"),
        lambda: surface.forward("tester", id, "coder"),
        lambda: surface.broadcast("coder", "nowhere", "x"),
        lambda: surface.revive("tester", "m-0"),
        lambda: surface.check("Coder"),
        lambda: surface.trace("stranger", id),
        lambda: surface.stats("Coder"),
    ]
    for attempt in attempts:
        try:
            yield attempt()
        except PostroomError as refused:
            yield {"refused": type(refused).__name__, "field": refused.field}


def without(told: Told, *names: str) -> Told:
    return {name: value for name, value in told.items() if name not in names}


# -- the library


LETTER = (
    "id",
    "sender",
    "subject",
    "text",
    "kind",
    "thread",
    "tags",
    "scope",
    "in_reply_to",
    "key",
    "attachments",
)


TALLY = ("mailbox", "total_unread", "seen", "claimed", "queued", "dead", "backlog")


class Library:
    def __init__(self, folder: Path) -> None:
        self.room = postroom.open(folder / "library.db")

    def send(self, me: str, to: list[str], body: str, **fields: Any) -> Told:
        return self._receipt(self.room.mailbox(me).send(to, body, **fields))

    def reply(self, me: str, id: str, body: str) -> Told:
        return self._receipt(self.room.mailbox(me).reply(id, body))

    def forward(self, me: str, id: str, to: str) -> Told:
        return self._receipt(self.room.mailbox(me).forward(id, [to]))

    def broadcast(self, me: str, scope: str, body: str) -> Told:
        return self._receipt(self.room.mailbox(me).broadcast(scope, body))

    def handoff(self, me: str, to: str, done: str) -> Told:
        return self._receipt(self.room.mailbox(me).handoff([to], postroom.Handoff(work_completed=done)))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[Told]:
        return [
            self._letter(letter) for letter in self.room.mailbox(me).check(peek=peek, unread_only=not everything)
        ]

    def read(self, me: str, id: str) -> Told:
        return self._letter(self.room.mailbox(me).read(id))

    def counts(self, me: str) -> dict[str, int]:
        return self.room.mailbox(me).counts()

    def wait(self, me: str) -> Told | None:
        found = self.room.mailbox(me).wait(1)
        return None if found is None else self._letter(found)

    def claim(self, me: str, count: int) -> list[Told]:
        return [self._letter(work) | {"token": self._token(work)} for work in self.room.mailbox(me).claim(count)]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        box = self.room.mailbox(me)
        letter = box.read(id) if token is None else box.held(id, token)
        if reply is not None and isinstance(letter, Work):
            letter.ack_and_reply(reply)
        else:
            letter.ack()
        return str(letter.state)

    def fail(self, me: str, id: str, token: str, reason: str) -> str:
        work = self.room.mailbox(me).held(id, token)
        work.fail(reason)
        return str(work.state)

    def release(self, me: str, id: str, token: str) -> str:
        work = self.room.mailbox(me).held(id, token)
        work.release()
        return str(work.state)

    def reject(self, me: str, id: str, reason: str) -> str:
        letter = self.room.mailbox(me).read(id)
        letter.reject(reason)
        return str(letter.state)

    def dead(self, me: str) -> list[Told]:
        return [self._letter(letter) for letter in self.room.mailbox(me).dead()]

    def revive(self, me: str, id: str) -> str:
        return str(self.room.mailbox(me).revive(id)[0].state)

    def thread(self, me: str, id: str) -> list[Told]:
        return [self._message(message) for message in self.room.mailbox(me).thread(id)]

    def register(self, me: str, scope: str, capability: str) -> Told:
        agent = self.room.mailbox(me).register(scopes=[scope], capabilities=[capability])
        return {"id": agent.card.id, "scopes": list(agent.card.scopes), "status": str(agent.presence.status)}

    def agents(self) -> list[str]:
        return [agent.card.id for agent in self.room.agents()]

    def stats(self, me: str) -> Told:
        tally = self.room.mailbox(me).stats()
        unread = {priority.name.lower(): count for priority, count in tally.unread.items()}
        return {name: getattr(tally, name) for name in TALLY} | {"unread": unread}

    def room_stats(self) -> Told:
        stats = self.room.stats()
        states = {str(state): count for state, count in stats.states.items()}
        return {"letters": stats.letters, "deliveries": stats.deliveries, "states": states, "agents": stats.agents}

    def trace(self, me: str, id: str) -> Told:
        life = self.room.mailbox(me).trace(id)
        about = (life.replies, life.relays, life.bounces)
        return {
            "letter": self._message(life.message),
            "stops": [[stop.mailbox, str(stop.state), stop.attempts, stop.reason] for stop in life.stops],
            "about": [[self._message(message) for message in messages] for messages in about],
        }

    def is_healthy(self) -> bool:
        return self.room.doctor().is_healthy

    def _receipt(self, receipt: Receipt) -> Told:
        told = {"repeated": receipt.repeated, "unknown": list(receipt.unknown)}
        return self._message(receipt.message) | told

    def _letter(self, letter: Letter) -> Told:
        held = letter.delivery
        return self._message(letter.message) | {
            "state": str(held.state), "attempts": held.attempts, "read": held.read_at is not None,
            "reason": held.reason,
        }  # fmt: skip

    def _message(self, message: Message) -> Told:
        told = {name: getattr(message, name) for name in LETTER}
        told |= {"tags": list(message.tags), "attachments": list(message.attachments)}
        to = [[recipient.address, recipient.kind] for recipient in message.recipients]
        return told | {"priority": message.priority.name.lower(), "recipients": to}

    def _token(self, work: Work) -> str:
        assert work.delivery.lease
        return work.delivery.lease.token


# -- the command line


class CommandLine:
    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)

    def send(self, me: str, to: list[str], body: str, **fields: Any) -> Told:
        tags = [word for tag in fields.pop("tags", ()) for word in ("--tag", tag)]
        options = [word for name, value in fields.items() for word in (f"--{name}", value)]
        return self._receipt(self._ask(me, "send", *to, "--body", body, *tags, *options))

    def reply(self, me: str, id: str, body: str) -> Told:
        return self._receipt(self._ask(me, "reply", id, "--body", body))

    def forward(self, me: str, id: str, to: str) -> Told:
        return self._receipt(self._ask(me, "forward", id, to))

    def broadcast(self, me: str, scope: str, body: str) -> Told:
        return self._receipt(self._ask(me, "broadcast", scope, "--body", body))

    def handoff(self, me: str, to: str, done: str) -> Told:
        return self._receipt(self._ask(me, "handoff", to, "--done", done))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[Told]:
        options = [*(["--peek"] if peek else []), *(["--all"] if everything else [])]
        return [self._letter(letter) for letter in self._ask(me, "check", *options)["letters"]]

    def read(self, me: str, id: str) -> Told:
        return self._letter(self._ask(me, "read", id)["letter"])

    def counts(self, me: str) -> dict[str, int]:
        return without(self._ask(me, "counts"), "schema", "command", "mailbox")

    def wait(self, me: str) -> Told | None:
        found = self._ask(me, "wait", "--timeout", "1")["letter"]
        return None if found is None else self._letter(found)

    def claim(self, me: str, count: int) -> list[Told]:
        claimed = self._ask(me, "claim", "--count", str(count))["letters"]
        return [self._letter(letter) | {"token": letter["token"]} for letter in claimed]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        options = [*(["--token", token] if token else []), *(["--reply", reply] if reply else [])]
        return self._state(self._ask(me, "ack", id, *options))

    def fail(self, me: str, id: str, token: str, reason: str) -> str:
        return self._state(self._ask(me, "fail", id, "--token", token, "--reason", reason))

    def release(self, me: str, id: str, token: str) -> str:
        return self._state(self._ask(me, "release", id, "--token", token))

    def reject(self, me: str, id: str, reason: str) -> str:
        return self._state(self._ask(me, "reject", id, "--reason", reason))

    def dead(self, me: str) -> list[Told]:
        return [self._letter(letter) for letter in self._ask(me, "dead")["letters"]]

    def revive(self, me: str, id: str) -> str:
        return self._state(self._ask(me, "dead", "revive", id))

    def thread(self, me: str, id: str) -> list[Told]:
        return [self._message(letter) for letter in self._ask(me, "thread", id)["letters"]]

    def register(self, me: str, scope: str, capability: str) -> Told:
        agent = self._ask(me, "register", "--scope", scope, "--capability", capability)["agent"]
        return {
            "id": agent["card"]["id"],
            "scopes": agent["card"]["scopes"],
            "status": agent["presence"]["status"],
        }

    def agents(self) -> list[str]:
        return [agent["card"]["id"] for agent in self._ask("nobody", "agents")["agents"]]

    def stats(self, me: str) -> Told:
        told = self._ask(me, "stats")["mailbox"]
        return {name: told[name] for name in (*TALLY, "unread")}

    def room_stats(self) -> Told:
        told = self._ask("nobody", "stats", "--all")["room"]
        return {name: told[name] for name in ("letters", "deliveries", "states", "agents")}

    def trace(self, me: str, id: str) -> Told:
        told = self._ask(me, "trace", id)
        stops = [[stop[name] for name in ("mailbox", "state", "attempts", "reason")] for stop in told["stops"]]
        about = [[self._message(letter) for letter in told[kind]] for kind in ("replies", "relays", "bounces")]
        return {"letter": self._message(told["letter"]), "stops": stops, "about": about}

    def is_healthy(self) -> bool:
        healthy: bool = self._ask("nobody", "doctor")["healthy"]
        return healthy

    def _ask(self, me: str, *words: str) -> Any:
        done = self.desk.run(*words, "--as", me, "--json")
        if done.code in {0, 1}:
            return done.json
        error = done.error
        refused: PostroomError = getattr(postroom, error["name"])(error["message"], field=error["field"])
        raise refused

    def _receipt(self, told: Told) -> Told:
        return self._message(told["letter"]) | {"repeated": told["repeated"], "unknown": told["unknown"]}

    def _letter(self, told: Told) -> Told:
        held = told["delivery"]
        return self._message(told) | {
            "state": held["state"], "attempts": held["attempts"], "read": held["read_at"] is not None,
            "reason": held["reason"],
        }  # fmt: skip

    def _message(self, told: Told) -> Told:
        to = [[recipient["address"], recipient["kind"]] for recipient in told["recipients"]]
        return {name: told[name] for name in LETTER} | {"priority": told["priority"], "recipients": to}

    def _state(self, told: Told) -> str:
        state: str = told["letters"][0]["state"]
        return state


SURFACES: dict[str, Callable[[Path], Surface]] = {"library": Library, "command line": CommandLine}


def comparable(told: list[Any]) -> list[Any]:
    """Ids and tokens are random; each becomes the place of its first appearance."""
    text = json.dumps(told)
    for number, id in enumerate(dict.fromkeys(_ids(told))):
        text = text.replace(id, f"letter-{number}")
    plain: list[Any] = json.loads(text)
    return [_without_lease_key(entry) for entry in plain]


def _ids(told: Any) -> Iterator[str]:
    if isinstance(told, dict):
        if "id" in told and "sender" in told:
            yield told["id"]
        told = list(told.values())
    if isinstance(told, list):
        for entry in told:
            yield from _ids(entry)


def _without_lease_key(told: Any) -> Any:
    """The key of an answer that came with an ack holds the token."""
    if isinstance(told, dict):
        return {
            name: "ack" if name == "key" and str(value).startswith("ack-") else _without_lease_key(value)
            for name, value in told.items()
        }
    return [_without_lease_key(entry) for entry in told] if isinstance(told, list) else told


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return comparable(list(transcript(Library(tmp_path_factory.mktemp("library")))))


def test_the_script_says_something(expected: list[Any]) -> None:
    refused = [entry["refused"] for entry in expected if isinstance(entry, dict) and "refused" in entry]
    assert refused == [
        "Invalid", "LookAlike", "IdTaken", "UnknownMessage", "LeaseLost", "LoopDetected", "UnknownAgent",
        "UnknownMessage", "LookAlike", "UnknownMessage", "LookAlike",
    ]  # fmt: skip
    assert len(expected) == 48


@pytest.mark.parametrize("name", [name for name in SURFACES if name != "library"])
def test_every_surface_tells_the_same(name: str, expected: list[Any], tmp_path: Path) -> None:
    told = comparable(list(transcript(SURFACES[name](tmp_path))))
    for number, (theirs, ours) in enumerate(zip(told, expected, strict=True)):
        assert ours == theirs, number


def test_a_surface_that_tells_otherwise_is_found(expected: list[Any], tmp_path: Path) -> None:
    class Forgetful(Library):
        def counts(self, me: str) -> dict[str, int]:
            return super().counts(me) | {"total": 0}

    assert comparable(list(transcript(Forgetful(tmp_path)))) != expected
