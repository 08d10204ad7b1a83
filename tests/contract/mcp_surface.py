"""The verbs of the script, by the tools of `postroom mcp`, started as a host starts it.

A tool tells a model less than the library tells a program. What it tells is held against the room's own record of
the same letter; then that record is told. What no tool offers is done by the library beside it, in the same room.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import postroom
from postroom import Message, PostroomError, Receipt
from postroom.model.message import content_of
from tests.contract.surfaces import Library, Told

SOURCE = Path(postroom.__file__).parent.parent
REVISION = "2025-11-25"
TOOL_FIELDS = {
    "priority": "importance",
    "subject": "subject",
    "key": "key",
    "in_reply_to": "inReplyTo",
}  # of a send
REGISTERED = {"coder", "tester"}  # by the script; looking into an inbox registers anybody else
WORDS = {
    "messageIds": "id",
    "messageId": "id",
    "agentId": "mailbox",
    "threadTag": "id",
    "inReplyTo": "in_reply_to",
}  # the tools' -> the library's


class Mcp(Library):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._calls, self._sent_ids = 0, set[str]()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "INBOX_"))}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "postroom", "mcp"],
            env=kept | {"PYTHONPATH": str(SOURCE), "POSTROOM_STORE": f"sqlite:{folder / 'library.db'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        client = {"name": "script", "version": "1"}
        self._ask("initialize", protocolVersion=REVISION, capabilities={}, clientInfo=client)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self) -> None:
        self._server.communicate()
        self.room.close()

    # -- verbs with a tool

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> Told:
        if fields.keys() - TOOL_FIELDS.keys():
            return super().send(me, to, body, **fields)
        said = {TOOL_FIELDS[name]: value for name, value in fields.items()} | ({} if to is None else {"to": to})
        return self._sent(me, self.tool("send_message", body=body, **{"from": me}, **said))

    def broadcast(self, me: str, scope: str, body: str) -> Told:
        return self._sent(me, self.tool("send_message", to_scope=scope, body=body, **{"from": me}))

    def handoff(self, me: str, to: str, done: str) -> Told:
        return self._sent(me, self.tool("handoff", to=to, workCompleted=done, **{"from": me}))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[Told]:
        if peek or me not in REGISTERED:
            return super().check(me, peek=peek, everything=everything)
        found = self.tool("check_inbox", agentId=me, unreadOnly=not everything)
        return [self._seen(me, one) for one in found["messages"]]

    def wait(self, me: str) -> Told | None:
        found = self.tool("wait_for_mail", agentId=me, timeout=1)["message"]
        return None if found is None else self._seen(me, found)

    def claim(self, me: str, count: int) -> list[Told]:
        found = self.tool("claim", agentId=me, count=count)["messages"]
        return [self._seen(me, one) | {"token": one["token"]} for one in found]

    def ack(self, me: str, id: str, token: str | None, reply: str | None = None) -> str:
        return self._settle(me, [id], token, reply=reply)[0]

    def ack_all(self, me: str, ids: list[str], token: str | None) -> list[str]:
        return self._settle(me, ids, token)

    def fail(self, me: str, id: str, token: str, reason: str) -> str:
        return self._settle(me, [id], token, outcome="failed", reason=reason)[0]

    def release(self, me: str, id: str, token: str) -> str:
        return self._settle(me, [id], token, outcome="released")[0]

    def reject(self, me: str, id: str, reason: str) -> str:
        return self._settle(me, [id], None, outcome="rejected", reason=reason)[0]

    def thread(self, me: str, id: str) -> list[Told]:
        return [
            self._letter_told(me, one) for one in self.tool("read_thread", agentId=me, threadTag=id)["messages"]
        ]

    def agents(self) -> list[str]:
        return [agent["agentId"] for agent in self.tool("list_agents")["agents"]]

    def search(self, me: str, query: str) -> list[Told]:
        found = self.tool("search_mail", agentId=me, query=query)
        return [self._letter_told(me, one) for one in found["messages"]]

    def give_task(self, me: str, to: str, body: str, **fields: Any) -> Told:
        if "session" in fields:
            return super().give_task(me, to, body, **fields)
        return self._sent(me, self.tool("task", action="give", agentId=me, to=to, body=body, **fields))

    def step(self, me: str, verb: str, id: str, said: str | None = None) -> Told:
        word = "reason" if verb in {"reject", "fail", "cancel"} else "body"
        more = {} if said is None else {word: said}
        return self._moved(me, self.tool("task", action=verb, agentId=me, messageId=id, **more)["task"])

    def tasks(self, me: str, role: str) -> list[Told]:
        side = {"given": "giver", "received": "receiver"}[role]
        return [
            self._moved(me, one)
            for one in self.tool("task", action="list", agentId=me)["tasks"]
            if one[side] == me
        ]

    # -- what a tool told, held against the record

    def _settle(self, me: str, ids: list[str], token: str | None, **more: Any) -> list[str]:
        said = {name: value for name, value in {"token": token, **more}.items() if value is not None}
        settled = self.tool("ack", agentId=me, messageIds=ids, **said)["messages"]
        assert ids == [one["id"] for one in settled]
        return [one["state"] for one in settled]

    def _sent(self, me: str, told: Told) -> Told:
        message = self.room.mailbox(me).trace(told["messageId"]).message
        assert told.get("thread", message.thread) == message.thread
        repeated = message.id in self._sent_ids
        self._sent_ids.add(message.id)
        return self._receipt(Receipt(message=message, repeated=repeated, unknown=tuple(told.get("unknown", ()))))

    def _seen(self, me: str, told: Told) -> Told:
        plain = self._letter_told(me, told)
        stop = next(stop for stop in self.room.mailbox(me).trace(told["id"]).stops if stop.mailbox == me)
        read = stop.read_at is not None
        return plain | {"state": str(stop.state), "attempts": stop.attempts, "read": read, "reason": stop.reason}

    def _letter_told(self, me: str, told: Told) -> Told:
        message = self.room.mailbox(me).trace(told["id"]).message
        assert told == told | _in_tool_words(message)
        return self._message(message)

    def _moved(self, me: str, told: Told) -> Told:
        plain = self._task(self.room.mailbox(me).task(told["id"]))
        kept = {name: value for name, value in plain.items() if name in told}
        assert kept == {name: told[name] for name in kept} and {"id", "state", "giver", "receiver"} <= kept.keys()
        return plain

    # -- the pipe

    def tool(self, name: str, **said: Any) -> Any:
        """What it answered; what it refused is raised, with the library's word for the field."""
        answer = self._ask("tools/call", name=name, arguments=said)
        told = json.loads(answer["content"][0]["text"])
        if not answer.get("isError"):
            assert told == answer["structuredContent"]
            return told
        field = told.get("field")
        refused: PostroomError = getattr(postroom, told["name"])(told["error"], field=WORDS.get(field, field))
        raise refused

    def _ask(self, method: str, **params: Any) -> Any:
        self._calls += 1
        self._write({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params})
        assert self._server.stdout
        while True:
            reply = json.loads(self._server.stdout.readline())
            if reply.get("id") == self._calls:
                return reply["result"]

    def _write(self, told: Told) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(told) + "\n")
        self._server.stdin.flush()


def _in_tool_words(message: Message) -> Told:
    told = {
        "id": message.id,
        "from": message.sender,
        "subject": message.subject,
        "content": content_of(message.parts),
        "importance": message.priority.name.lower(),
        "inReplyTo": message.in_reply_to,
        "thread": message.thread,
        "kind": message.kind,
    }
    return {name: value for name, value in told.items() if value not in (None, "")}
