"""The surfaces that tell the script of `test_surfaces`: the library, and every other that must tell the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import postroom
from postroom import Escalation, Letter, Message, PostroomError, Receipt, Task, Work
from postroom.formats.plain import plain
from tests.cli.shell import Shell
from tests.postgres.server import address_in, programs

RecipientAlerts = dict[str, Any]


class Surface(Protocol):
    """The verbs of the script. Each answers with plain values."""

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> RecipientAlerts: ...
    def reply(self, me: str, id: str, body: str) -> RecipientAlerts: ...
    def forward(self, me: str, id: str, to: str) -> RecipientAlerts: ...
    def broadcast(self, me: str, scope: str, body: str) -> RecipientAlerts: ...
    def handoff(self, me: str, to: str, done: str) -> RecipientAlerts: ...
    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[RecipientAlerts]: ...
    def read(self, me: str, id: str) -> RecipientAlerts: ...
    def counts(self, me: str) -> dict[str, int]: ...
    def wait(self, me: str) -> RecipientAlerts | None: ...
    def claim(self, me: str, count: int) -> list[RecipientAlerts]: ...
    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str: ...
    def ack_all(self, me: str, ids: list[str], token: str | None) -> list[str]: ...
    def fail(self, me: str, id: str, token: str, reason: str) -> str: ...
    def release(self, me: str, id: str, token: str) -> str: ...
    def reject(self, me: str, id: str, reason: str) -> str: ...
    def dead(self, me: str) -> list[RecipientAlerts]: ...
    def revive(self, me: str, id: str) -> str: ...
    def thread(self, me: str, id: str) -> list[RecipientAlerts]: ...
    def register(self, me: str, scope: str, capability: str) -> RecipientAlerts: ...
    def agents(self) -> list[str]: ...
    def stats(self, me: str) -> RecipientAlerts: ...
    def room_stats(self) -> RecipientAlerts: ...
    def trace(self, me: str, id: str) -> RecipientAlerts: ...
    def is_healthy(self) -> bool: ...
    def search(self, me: str, query: str) -> list[RecipientAlerts]: ...
    def sent(self, me: str) -> list[RecipientAlerts]: ...
    def give_task(self, me: str, to: str, body: str, **fields: Any) -> RecipientAlerts: ...
    def step(self, me: str, verb: str, id: str, text: str | None = None) -> RecipientAlerts: ...
    def tasks(self, me: str, role: str) -> list[RecipientAlerts]: ...
    def escalate(self, me: str, reason: str, body: str, ladder: list[str]) -> RecipientAlerts: ...
    def escalations(self, me: str, *, open_only: bool = True) -> list[RecipientAlerts]: ...
    def resolve(self, me: str, id: str) -> RecipientAlerts: ...
    def waiting(self, me: str) -> list[RecipientAlerts]: ...
    def board(self, me: str) -> RecipientAlerts: ...
    def save_template(self, name: str, subject: str, body: str) -> RecipientAlerts: ...
    def send_template(self, me: str, to: str, name: str, values: dict[str, str]) -> RecipientAlerts: ...
    def unsend(self, me: str, id: str) -> RecipientAlerts: ...
    def block(self, me: str, name: str) -> list[str]: ...


def without(result: RecipientAlerts, *names: str) -> RecipientAlerts:
    return {name: value for name, value in result.items() if name not in names}


def waited(entry: dict[str, Any]) -> RecipientAlerts:
    """Of an entry of what waits, all but ids, times and the command, which names the room."""
    return without(entry, "id", "letter", "since", "thread", "answer", "due_at")


def boarded(view: dict[str, Any]) -> RecipientAlerts:
    waits = [without(one, "id", "since", "thread") for one in view["waits"]]
    return without(view, "at", "schema", "command") | {"waits": waits}


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
TASK = ("id", "giver", "receiver", "subject", "thread", "reason", "is_final", "session")
ESCALATION = ("asker", "reason", "subject", "status", "waits_for", "closed_by", "rung")


TALLY = ("mailbox", "total_unread", "seen", "claimed", "queued", "dead", "backlog")


class Library:
    def __init__(self, folder: Path) -> None:
        self.room = postroom.open(folder / "library.db")

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).send(to, body, **fields))

    def reply(self, me: str, id: str, body: str) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).reply(id, body))

    def forward(self, me: str, id: str, to: str) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).forward(id, [to]))

    def broadcast(self, me: str, scope: str, body: str) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).broadcast(scope, body))

    def handoff(self, me: str, to: str, done: str) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).handoff([to], postroom.Handoff(work_completed=done)))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[RecipientAlerts]:
        return [
            self._letter(letter) for letter in self.room.mailbox(me).check(peek=peek, unread_only=not everything)
        ]

    def read(self, me: str, id: str) -> RecipientAlerts:
        return self._letter(self.room.mailbox(me).read(id))

    def counts(self, me: str) -> dict[str, int]:
        return self.room.mailbox(me).counts()

    def wait(self, me: str) -> RecipientAlerts | None:
        found = self.room.mailbox(me).wait(1)
        return None if found is None else self._letter(found)

    def claim(self, me: str, count: int) -> list[RecipientAlerts]:
        return [self._letter(work) | {"token": self._token(work)} for work in self.room.mailbox(me).claim(count)]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        box = self.room.mailbox(me)
        letter = box.read(id) if token is None else box.held(id, token)
        if reply is not None:
            letter.ack_and_reply(reply)
        else:
            letter.ack()
        return str(letter.state)

    def ack_all(self, me: str, ids: list[str], token: str | None) -> list[str]:
        box = self.room.mailbox(me)
        letters = [box.read(id) if token is None else box.held(id, token) for id in ids]
        box.ack(letters)
        return [str(letter.state) for letter in letters]

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

    def dead(self, me: str) -> list[RecipientAlerts]:
        return [self._letter(letter) for letter in self.room.mailbox(me).dead()]

    def revive(self, me: str, id: str) -> str:
        return str(self.room.mailbox(me).revive(id)[0].state)

    def thread(self, me: str, id: str) -> list[RecipientAlerts]:
        return [self._message(message) for message in self.room.mailbox(me).thread(id)]

    def register(self, me: str, scope: str, capability: str) -> RecipientAlerts:
        agent = self.room.mailbox(me).register(scopes=[scope], capabilities=[capability])
        return {"id": agent.card.id, "scopes": list(agent.card.scopes), "status": str(agent.presence.status)}

    def agents(self) -> list[str]:
        return [agent.card.id for agent in self.room.agents()]

    def stats(self, me: str) -> RecipientAlerts:
        tally = self.room.mailbox(me).stats()
        unread = {priority.name.lower(): count for priority, count in tally.unread.items()}
        return {name: getattr(tally, name) for name in TALLY} | {"unread": unread}

    def room_stats(self) -> RecipientAlerts:
        stats = self.room.stats()
        states = {str(state): count for state, count in stats.states.items()}
        return {"letters": stats.letters, "deliveries": stats.deliveries, "states": states, "agents": stats.agents}

    def trace(self, me: str, id: str) -> RecipientAlerts:
        life = self.room.mailbox(me).trace(id)
        about = (life.replies, life.relays, life.bounces)
        return {
            "letter": self._message(life.message),
            "stops": [[stop.mailbox, str(stop.state), stop.attempts, stop.reason] for stop in life.stops],
            "about": [[self._message(message) for message in messages] for messages in about],
        }

    def is_healthy(self) -> bool:
        return self.room.doctor().is_healthy

    def search(self, me: str, query: str) -> list[RecipientAlerts]:
        return [self._message(message) for message in self.room.mailbox(me).search(query)]

    def sent(self, me: str) -> list[RecipientAlerts]:
        return [self._message(message) for message in self.room.mailbox(me).sent()]

    def give_task(self, me: str, to: str, body: str, **fields: Any) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).give_task(to, body, **fields))

    def step(self, me: str, verb: str, id: str, text: str | None = None) -> RecipientAlerts:
        task = self.room.mailbox(me).task(id)
        getattr(task, verb)(*([] if text is None else [text]))
        return self._task(task)

    def tasks(self, me: str, role: str) -> list[RecipientAlerts]:
        return [self._task(task) for task in self.room.mailbox(me).tasks(role)]

    def escalate(self, me: str, reason: str, body: str, ladder: list[str]) -> RecipientAlerts:
        sent = self.room.mailbox(me).escalate(body, reason=reason, ladder=ladder)
        return self._receipt(sent)

    def escalations(self, me: str, *, open_only: bool = True) -> list[RecipientAlerts]:
        return [self._escalation(one) for one in self.room.mailbox(me).escalations(open_only=open_only)]

    def resolve(self, me: str, id: str) -> RecipientAlerts:
        return self._escalation(self.room.mailbox(me).resolve(id))

    def waiting(self, me: str) -> list[RecipientAlerts]:
        return [waited(plain(one)) for one in self.room.mailbox(me).waiting()]

    def board(self, me: str) -> RecipientAlerts:
        return boarded(plain(self.room.mailbox(me).board()))

    def save_template(self, name: str, subject: str, body: str) -> RecipientAlerts:
        saved = self.room.save_template(name, subject=subject, body=body)
        return {"name": saved.name, "body": saved.body, "places": list(saved.places)}

    def send_template(self, me: str, to: str, name: str, values: dict[str, str]) -> RecipientAlerts:
        return self._receipt(self.room.mailbox(me).send_template(to, name, values))

    def unsend(self, me: str, id: str) -> RecipientAlerts:
        return self._message(self.room.mailbox(me).unsend(id))

    def block(self, me: str, name: str) -> list[str]:
        return self.room.mailbox(me).block(name)

    def _task(self, task: Task) -> RecipientAlerts:
        result = {name: getattr(task, name) for name in TASK}
        return result | {"state": str(task.state)}

    def _escalation(self, one: Escalation) -> RecipientAlerts:
        result = {name: getattr(one, name) for name in ESCALATION}
        return result | {"escalation": one.id, "priority": one.priority.name.lower(), "rungs": list(one.rungs)}

    def _receipt(self, receipt: Receipt) -> RecipientAlerts:
        result = {"repeated": receipt.repeated, "unknown": list(receipt.unknown), "routed": list(receipt.routed)}
        return self._message(receipt.message) | result

    def _letter(self, letter: Letter) -> RecipientAlerts:
        held = letter.delivery
        return self._message(letter.message) | {
            "state": str(held.state), "attempts": held.attempts, "read": held.read_at is not None,
            "reason": held.reason,
        }  # fmt: skip

    def _message(self, message: Message) -> RecipientAlerts:
        result = {name: getattr(message, name) for name in LETTER}
        result |= {"tags": list(message.tags), "attachments": list(message.attachments)}
        to = [[recipient.address, recipient.kind] for recipient in message.recipients]
        return result | {"priority": message.priority.name.lower(), "recipients": to}

    def _token(self, work: Work) -> str:
        assert work.delivery.lease
        return work.delivery.lease.token


# -- those that answer in plain JSON


class PlainAnswers:
    """What they answer, as the library's surface tells it."""

    def _task(self, result: RecipientAlerts) -> RecipientAlerts:
        return {name: result[name] for name in (*TASK, "state")}

    def _escalation(self, result: RecipientAlerts) -> RecipientAlerts:
        kept = {name: result[name] for name in (*ESCALATION, "priority", "rungs")}
        return kept | {"escalation": result["id"]}

    def _receipt(self, result: RecipientAlerts) -> RecipientAlerts:
        return self._message(result["letter"]) | {name: result[name] for name in ("repeated", "unknown", "routed")}

    def _letter(self, result: RecipientAlerts) -> RecipientAlerts:
        held = result["delivery"]
        return self._message(result) | {
            "state": held["state"], "attempts": held["attempts"], "read": held["read_at"] is not None,
            "reason": held["reason"],
        }  # fmt: skip

    def _message(self, result: RecipientAlerts) -> RecipientAlerts:
        to = [[recipient["address"], recipient["kind"]] for recipient in result["recipients"]]
        return {name: result[name] for name in LETTER} | {"priority": result["priority"], "recipients": to}

    def _state(self, result: RecipientAlerts) -> str:
        state: str = result["letters"][0]["state"]
        return state


# -- the command line


class CommandLine(PlainAnswers):
    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder, durable=False)

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> RecipientAlerts:
        tags = [word for tag in fields.pop("tags", ()) for word in ("--tag", tag)]
        options = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", value)]
        return self._receipt(self._ask(me, "send", *(to or ()), "--body", body, *tags, *options))

    def reply(self, me: str, id: str, body: str) -> RecipientAlerts:
        return self._receipt(self._ask(me, "reply", id, "--body", body))

    def forward(self, me: str, id: str, to: str) -> RecipientAlerts:
        return self._receipt(self._ask(me, "forward", id, to))

    def broadcast(self, me: str, scope: str, body: str) -> RecipientAlerts:
        return self._receipt(self._ask(me, "broadcast", scope, "--body", body))

    def handoff(self, me: str, to: str, done: str) -> RecipientAlerts:
        return self._receipt(self._ask(me, "handoff", to, "--done", done))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[RecipientAlerts]:
        options = [*(["--peek"] if peek else []), *(["--all"] if everything else [])]
        return [self._letter(letter) for letter in self._ask(me, "check", *options)["letters"]]

    def read(self, me: str, id: str) -> RecipientAlerts:
        return self._letter(self._ask(me, "read", id)["letter"])

    def counts(self, me: str) -> dict[str, int]:
        return without(self._ask(me, "counts"), "schema", "command", "mailbox")

    def wait(self, me: str) -> RecipientAlerts | None:
        found = self._ask(me, "wait", "--timeout", "1")["letter"]
        return None if found is None else self._letter(found)

    def claim(self, me: str, count: int) -> list[RecipientAlerts]:
        claimed = self._ask(me, "claim", "--count", str(count))["letters"]
        return [self._letter(letter) | {"token": letter["token"]} for letter in claimed]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        options = [*(["--token", token] if token else []), *(["--reply", reply] if reply else [])]
        return self._state(self._ask(me, "ack", id, *options))

    def ack_all(self, me: str, ids: list[str], token: str | None) -> list[str]:
        result = self._ask(me, "ack", *ids, *(["--token", token] if token else []))
        return [letter["state"] for letter in result["letters"]]

    def fail(self, me: str, id: str, token: str, reason: str) -> str:
        return self._state(self._ask(me, "fail", id, "--token", token, "--reason", reason))

    def release(self, me: str, id: str, token: str) -> str:
        return self._state(self._ask(me, "release", id, "--token", token))

    def reject(self, me: str, id: str, reason: str) -> str:
        return self._state(self._ask(me, "reject", id, "--reason", reason))

    def dead(self, me: str) -> list[RecipientAlerts]:
        return [self._letter(letter) for letter in self._ask(me, "dead")["letters"]]

    def revive(self, me: str, id: str) -> str:
        return self._state(self._ask(me, "dead", "revive", id))

    def thread(self, me: str, id: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self._ask(me, "thread", id)["letters"]]

    def register(self, me: str, scope: str, capability: str) -> RecipientAlerts:
        agent = self._ask(me, "register", "--scope", scope, "--capability", capability)["agent"]
        return {
            "id": agent["card"]["id"],
            "scopes": agent["card"]["scopes"],
            "status": agent["presence"]["status"],
        }

    def agents(self) -> list[str]:
        return [agent["card"]["id"] for agent in self._ask("nobody", "agents")["agents"]]

    def stats(self, me: str) -> RecipientAlerts:
        result = self._ask(me, "stats")["mailbox"]
        return {name: result[name] for name in (*TALLY, "unread")}

    def room_stats(self) -> RecipientAlerts:
        result = self._ask("nobody", "stats", "--all")["room"]
        return {name: result[name] for name in ("letters", "deliveries", "states", "agents")}

    def trace(self, me: str, id: str) -> RecipientAlerts:
        result = self._ask(me, "trace", id)
        stops = [[stop[name] for name in ("mailbox", "state", "attempts", "reason")] for stop in result["stops"]]
        about = [[self._message(letter) for letter in result[kind]] for kind in ("replies", "relays", "bounces")]
        return {"letter": self._message(result["letter"]), "stops": stops, "about": about}

    def is_healthy(self) -> bool:
        healthy: bool = self._ask("nobody", "doctor")["healthy"]
        return healthy

    def search(self, me: str, query: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self._ask(me, "search", query)["letters"]]

    def sent(self, me: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self._ask(me, "sent")["letters"]]

    def give_task(self, me: str, to: str, body: str, **fields: Any) -> RecipientAlerts:
        session = fields.pop("session", None)
        options = [word for name, value in fields.items() for word in (f"--{name}", value)]
        options += ["--session", json.dumps(session)] if session else []
        return self._receipt(self._ask(me, "tasks", "give", to, "--body", body, *options))

    def step(self, me: str, verb: str, id: str, text: str | None = None) -> RecipientAlerts:
        option = "--reason" if verb == "reject" else "--body"
        return self._task(self._ask(me, "tasks", verb, id, *([] if text is None else [option, text]))["task"])

    def tasks(self, me: str, role: str) -> list[RecipientAlerts]:
        return [self._task(task) for task in self._ask(me, "tasks", "--role", role)["tasks"]]

    def escalate(self, me: str, reason: str, body: str, ladder: list[str]) -> RecipientAlerts:
        rungs = [word for name in ladder for word in ("--ladder", name)]
        return self._receipt(self._ask(me, "escalate", "--reason", reason, "--body", body, *rungs))

    def escalations(self, me: str, *, open_only: bool = True) -> list[RecipientAlerts]:
        found = self._ask(me, "escalations", *([] if open_only else ["--all"]))["escalations"]
        return [self._escalation(one) for one in found]

    def resolve(self, me: str, id: str) -> RecipientAlerts:
        return self._escalation(self._ask(me, "resolve", id)["escalation"])

    def waiting(self, me: str) -> list[RecipientAlerts]:
        return [waited(one) for one in self._ask(me, "waiting")["waiting"]]

    def board(self, me: str) -> RecipientAlerts:
        return boarded(self._ask(me, "board"))

    def save_template(self, name: str, subject: str, body: str) -> RecipientAlerts:
        saved = self._ask("nobody", "templates", "save", name, "--subject", subject, "--body", body)["template"]
        return {field: saved[field] for field in ("name", "body", "places")}

    def send_template(self, me: str, to: str, name: str, values: dict[str, str]) -> RecipientAlerts:
        fills = [word for place, text in values.items() for word in ("--fill", f"{place}={text}")]
        return self._receipt(self._ask(me, "send", to, "--template", name, *fills))

    def unsend(self, me: str, id: str) -> RecipientAlerts:
        return self._message(self._ask(me, "unsend", id)["letters"][0])

    def block(self, me: str, name: str) -> list[str]:
        blocked: list[str] = self._ask(me, "block", name)["blocked"]
        return blocked

    def _ask(self, me: str, *words: str) -> Any:
        done = self.shell.run(*words, "--as", me, "--json")
        if done.code in {0, 1}:
            return done.json
        error = done.error
        refused: PostroomError = getattr(postroom, error["name"])(error["message"], field=error["field"])
        raise refused


def on_server(folder: Path) -> Library:
    """The library over a room on a PostgreSQL server."""
    library = Library(folder)
    library.room.close()
    library.room = postroom.open(address_in(folder), durability="process")  # the server does not sync
    return library


SURFACES: dict[str, Callable[[Path], Surface]] = {"library": Library, "command line": CommandLine}
SURFACES |= {"library on PostgreSQL": on_server} if programs() else {}
