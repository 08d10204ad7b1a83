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
from tests.contract.surfaces import Library, RecipientAlerts

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

    def send(self, me: str, to: list[str] | None, body: str, **fields: Any) -> RecipientAlerts:
        if fields.keys() - TOOL_FIELDS.keys():
            return super().send(me, to, body, **fields)
        message = {TOOL_FIELDS[name]: value for name, value in fields.items()} | ({} if to is None else {"to": to})
        return self._sent(me, self.tool("send_message", body=body, **{"from": me}, **message))

    def broadcast(self, me: str, scope: str, body: str) -> RecipientAlerts:
        return self._sent(me, self.tool("send_message", to_scope=scope, body=body, **{"from": me}))

    def handoff(self, me: str, to: str, done: str) -> RecipientAlerts:
        return self._sent(me, self.tool("handoff", to=to, workCompleted=done, **{"from": me}))

    def check(self, me: str, *, peek: bool = False, everything: bool = False) -> list[RecipientAlerts]:
        if peek or me not in REGISTERED:
            return super().check(me, peek=peek, everything=everything)
        found = self.tool("check_inbox", agentId=me, unreadOnly=not everything)
        return [self._seen(me, one) for one in found["messages"]]

    def wait(self, me: str) -> RecipientAlerts | None:
        found = self.tool("wait_for_mail", agentId=me, timeout=1)["message"]
        return None if found is None else self._seen(me, found)

    def claim(self, me: str, count: int) -> list[RecipientAlerts]:
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

    def thread(self, me: str, id: str) -> list[RecipientAlerts]:
        return [
            self._letter_told(me, one) for one in self.tool("read_thread", agentId=me, threadTag=id)["messages"]
        ]

    def agents(self) -> list[str]:
        return [agent["agentId"] for agent in self.tool("list_agents")["agents"]]

    def search(self, me: str, query: str) -> list[RecipientAlerts]:
        found = self.tool("search_mail", agentId=me, query=query)
        return [self._letter_told(me, one) for one in found["messages"]]

    def give_task(self, me: str, to: str, body: str, **fields: Any) -> RecipientAlerts:
        if "session" in fields:
            return super().give_task(me, to, body, **fields)
        return self._sent(me, self.tool("task", action="give", agentId=me, to=to, body=body, **fields))

    def step(self, me: str, verb: str, id: str, text: str | None = None) -> RecipientAlerts:
        word = "reason" if verb in {"reject", "fail", "cancel"} else "body"
        more = {} if text is None else {word: text}
        return self._moved(me, self.tool("task", action=verb, agentId=me, messageId=id, **more)["task"])

    def tasks(self, me: str, role: str) -> list[RecipientAlerts]:
        side = {"given": "giver", "received": "receiver"}[role]
        return [
            self._moved(me, one)
            for one in self.tool("task", action="list", agentId=me)["tasks"]
            if one[side] == me
        ]

    # -- what a tool told, held against the record

    def _settle(self, me: str, ids: list[str], token: str | None, **more: Any) -> list[str]:
        params = {name: value for name, value in {"token": token, **more}.items() if value is not None}
        settled = self.tool("ack", agentId=me, messageIds=ids, **params)["messages"]
        assert ids == [one["id"] for one in settled]
        return [one["state"] for one in settled]

    def _sent(self, me: str, result: RecipientAlerts) -> RecipientAlerts:
        message = self.room.mailbox(me).trace(result["messageId"]).message
        assert result.get("thread", message.thread) == message.thread
        repeated = message.id in self._sent_ids
        self._sent_ids.add(message.id)
        return self._receipt(Receipt(message=message, repeated=repeated, unknown=tuple(result.get("unknown", ()))))

    def _seen(self, me: str, result: RecipientAlerts) -> RecipientAlerts:
        plain = self._letter_told(me, result)
        stop = next(stop for stop in self.room.mailbox(me).trace(result["id"]).stops if stop.mailbox == me)
        read = stop.read_at is not None
        return plain | {"state": str(stop.state), "attempts": stop.attempts, "read": read, "reason": stop.reason}

    def _letter_told(self, me: str, result: RecipientAlerts) -> RecipientAlerts:
        message = self.room.mailbox(me).trace(result["id"]).message
        assert result == result | _in_tool_words(message)
        return self._message(message)

    def _moved(self, me: str, result: RecipientAlerts) -> RecipientAlerts:
        plain = self._task(self.room.mailbox(me).task(result["id"]))
        kept = {name: value for name, value in plain.items() if name in result}
        assert (
            kept == {name: result[name] for name in kept} and {"id", "state", "giver", "receiver"} <= kept.keys()
        )
        return plain

    # -- the pipe

    def tool(self, name: str, **message: Any) -> Any:
        """What it answered; what it refused is raised, with the library's word for the field."""
        answer = self._ask("tools/call", name=name, arguments=message)
        result = json.loads(answer["content"][0]["text"])
        if not answer.get("isError"):
            assert result == answer["structuredContent"]
            return result
        field = result.get("field")
        refused: PostroomError = getattr(postroom, result["name"])(result["error"], field=WORDS.get(field, field))
        raise refused

    def _ask(self, method: str, **params: Any) -> Any:
        self._calls += 1
        self._write({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params})
        assert self._server.stdout
        while True:
            reply = json.loads(self._server.stdout.readline())
            if reply.get("id") == self._calls:
                return reply["result"]

    def _write(self, result: RecipientAlerts) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(result) + "\n")
        self._server.stdin.flush()


def _in_tool_words(message: Message) -> RecipientAlerts:
    result = {
        "id": message.id,
        "from": message.sender,
        "subject": message.subject,
        "content": content_of(message.parts),
        "importance": message.priority.name.lower(),
        "inReplyTo": message.in_reply_to,
        "thread": message.thread,
        "kind": message.kind,
    }
    return {name: value for name, value in result.items() if value not in (None, "")}
