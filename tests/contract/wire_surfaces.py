"""The verbs of the script, over a wire: by name, with plain values. Each wire only says how one is asked."""

from __future__ import annotations

import json
from abc import abstractmethod
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import postroom
from postroom import PostroomError
from postroom.core import tokens
from postroom.core.verb import perform
from tests.contract.surfaces import TALLY, PlainAnswers, RecipientAlerts, boarded, waited, without
from tests.daemons import PATIENCE, Daemon


class OverWire(PlainAnswers):
    @abstractmethod
    def ask(self, verb: str, **message: Any) -> Any:
        """What is answered; what is refused is raised."""

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> RecipientAlerts:
        return self._receipt(self.ask("send", agent_id=me, to=to, body=body, **fields))

    def reply(self, me: str, id: str, body: str) -> RecipientAlerts:
        return self._receipt(self.ask("reply", agent_id=me, message_id=id, body=body))

    def forward(self, me: str, id: str, to: str) -> RecipientAlerts:
        return self._receipt(self.ask("forward", agent_id=me, message_id=id, to=[to]))

    def broadcast(self, me: str, scope: str, body: str) -> RecipientAlerts:
        return self._receipt(self.ask("broadcast", agent_id=me, scope=scope, body=body))

    def handoff(self, me: str, to: str, done: str) -> RecipientAlerts:
        return self._receipt(self.ask("handoff", agent_id=me, to=[to], handoff={"work_completed": done}))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[RecipientAlerts]:
        result = self.ask("check", agent_id=me, peek=peek, unread_only=not everything)
        return [self._letter(letter) for letter in result["letters"]]

    def read(self, me: str, id: str) -> RecipientAlerts:
        return self._letter(self.ask("read", agent_id=me, message_id=id)["letter"])

    def counts(self, me: str) -> dict[str, int]:
        return without(self.ask("counts", agent_id=me), "mailbox")

    def wait(self, me: str) -> RecipientAlerts | None:
        found = self.ask("wait", agent_id=me, timeout=1)["letter"]
        return None if found is None else self._letter(found)

    def claim(self, me: str, count: int) -> list[RecipientAlerts]:
        claimed = self.ask("claim", agent_id=me, count=count)["letters"]
        return [self._letter(letter) | {"token": letter["token"]} for letter in claimed]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        return self._state(self.ask("ack", agent_id=me, message_ids=[id], token=token, reply=reply))

    def ack_all(self, me: str, ids: list[str], token: str | None) -> list[str]:
        result = self.ask("ack", agent_id=me, message_ids=ids, token=token)
        return [letter["state"] for letter in result["letters"]]

    def fail(self, me: str, id: str, token: str, reason: str) -> str:
        return self._state(self.ask("fail", agent_id=me, message_ids=[id], token=token, reason=reason))

    def release(self, me: str, id: str, token: str) -> str:
        return self._state(self.ask("release", agent_id=me, message_ids=[id], token=token))

    def reject(self, me: str, id: str, reason: str) -> str:
        return self._state(self.ask("reject", agent_id=me, message_ids=[id], reason=reason))

    def dead(self, me: str) -> list[RecipientAlerts]:
        return [self._letter(letter) for letter in self.ask("dead", agent_id=me)["letters"]]

    def revive(self, me: str, id: str) -> str:
        return self._state(self.ask("revive", agent_id=me, message_ids=[id]))

    def thread(self, me: str, id: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self.ask("thread", agent_id=me, thread=id)["letters"]]

    def register(self, me: str, scope: str, capability: str) -> RecipientAlerts:
        agent = self.ask("register", agent_id=me, scopes=[scope], capabilities=[capability])["agent"]
        card, presence = agent["card"], agent["presence"]
        return {"id": card["id"], "scopes": card["scopes"], "status": presence["status"]}

    def agents(self) -> list[str]:
        return [agent["card"]["id"] for agent in self.ask("agents")["agents"]]

    def stats(self, me: str) -> RecipientAlerts:
        result = self.ask("stats", agent_id=me)
        return {name: result[name] for name in (*TALLY, "unread")}

    def room_stats(self) -> RecipientAlerts:
        result = self.ask("room_stats")
        return {name: result[name] for name in ("letters", "deliveries", "states", "agents")}

    def trace(self, me: str, id: str) -> RecipientAlerts:
        result = self.ask("trace", agent_id=me, message_id=id)
        stops = [[stop[name] for name in ("mailbox", "state", "attempts", "reason")] for stop in result["stops"]]
        about = [[self._message(letter) for letter in result[kind]] for kind in ("replies", "relays", "bounces")]
        return {"letter": self._message(result["letter"]), "stops": stops, "about": about}

    def is_healthy(self) -> bool:
        healthy: bool = self.ask("doctor")["healthy"]
        return healthy

    def search(self, me: str, query: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self.ask("search", agent_id=me, query=query)["letters"]]

    def sent(self, me: str) -> list[RecipientAlerts]:
        return [self._message(letter) for letter in self.ask("sent", agent_id=me)["letters"]]

    def give_task(self, me: str, to: str, body: str, **fields: Any) -> RecipientAlerts:
        return self._receipt(self.ask("give_task", agent_id=me, to=to, body=body, **fields))

    def step(self, me: str, verb: str, id: str, text: str | None = None) -> RecipientAlerts:
        word = {"reason" if verb in {"reject", "fail", "cancel"} else "body": text}
        return self._task(self.ask("task_step", agent_id=me, message_id=id, step=verb, **word)["task"])

    def tasks(self, me: str, role: str) -> list[RecipientAlerts]:
        return [self._task(task) for task in self.ask("tasks", agent_id=me, role=role)["tasks"]]

    def escalate(self, me: str, reason: str, body: str, ladder: list[str]) -> RecipientAlerts:
        return self._receipt(self.ask("escalate", agent_id=me, reason=reason, body=body, ladder=ladder))

    def escalations(self, me: str, *, open_only: bool = True) -> list[RecipientAlerts]:
        found = self.ask("escalations", agent_id=me, open_only=open_only)["escalations"]
        return [self._escalation(one) for one in found]

    def resolve(self, me: str, id: str) -> RecipientAlerts:
        return self._escalation(self.ask("resolve", agent_id=me, escalation_id=id)["escalation"])

    def waiting(self, me: str) -> list[RecipientAlerts]:
        return [waited(one) for one in self.ask("waiting", agent_id=me)["waiting"]]

    def board(self, me: str) -> RecipientAlerts:
        return boarded(self.ask("board", agent_id=me))

    def save_template(self, name: str, subject: str, body: str) -> RecipientAlerts:
        saved = self.ask("save_template", name=name, subject=subject, body=body)["template"]
        return {field: saved[field] for field in ("name", "body", "places")}

    def send_template(self, me: str, to: str, name: str, values: dict[str, str]) -> RecipientAlerts:
        return self._receipt(self.ask("send_template", agent_id=me, to=to, name=name, values=values))

    def unsend(self, me: str, id: str) -> RecipientAlerts:
        return self._message(self.ask("unsend", agent_id=me, message_id=id)["letter"])

    def block(self, me: str, name: str) -> list[str]:
        blocked: list[str] = self.ask("block", agent_id=me, name=name)["blocked"]
        return blocked


class Socket(OverWire):
    """The Unix socket of a real daemon."""

    def __init__(self, folder: Path) -> None:
        self._daemon = Daemon(folder)

    def ask(self, verb: str, **message: Any) -> Any:
        return self._daemon.client.ask(verb, message)

    def close(self) -> None:
        self._daemon.stop()


class Http(OverWire):
    """JSON-RPC by POST, as an operator."""

    def __init__(self, folder: Path) -> None:
        self._daemon = Daemon(folder, "--http", "127.0.0.1:0")
        with postroom.open(self._daemon.room) as room:
            self._token = perform(room.core, room.principal, tokens.CreateToken()).text
        self._address = urlsplit(self._daemon.where["http"])
        self._line = HTTPConnection(self._address.netloc, timeout=PATIENCE)

    def ask(self, verb: str, **message: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": f"mail/{verb}", "params": message})
        result = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._line.request("POST", "/", body, result)
        reply = json.loads(self._line.getresponse().read())
        if "error" not in reply:
            return reply["result"]
        about = reply["error"]["data"]
        refused: PostroomError = getattr(postroom, about["name"])(
            reply["error"]["message"], field=about.get("field")
        )
        raise refused

    def close(self) -> None:
        self._line.close()
        self._daemon.stop()
