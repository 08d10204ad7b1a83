"""Run by a Python that has nanobot: the channel as a program in nanobot's process uses it, by the design's names.

Says what it saw as JSON. The gateway is left out, and nothing else: the bus is nanobot's own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from nanobot.bus.events import OutboundMessage
from nanobot.bus.queue import MessageBus
from nanobot.channels.mailbox import MailboxChannel, MailboxConfig, MailboxManager

from postroom.errors import PostroomError

ROOT = Path(sys.argv[1])
CALLBACK = {"channel": "feishu", "chat_id": "user_123", "session_id": "feishu:user_123"}


def mail(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "content": {"parts": [{"type": "text", "text": text}]}, **fields}


def files(agent: str, folder: str = "inbox") -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((ROOT / agent / folder).glob("*.msg.json"))]


async def until(look: Any) -> Any:
    async with asyncio.timeout(100):
        while not (found := look()):
            await asyncio.sleep(0.01)
        return found


async def main() -> dict[str, Any]:
    saw: dict[str, Any] = {"defaults": MailboxConfig().model_dump(by_alias=True)}
    config = MailboxConfig.model_validate(
        {"enabled": True, "agentId": "coder", "description": "codes", "allowFrom": ["researcher"]}
        | {"pollInterval": 0.1, "mailboxesRoot": str(ROOT)}
    )
    bus, manager = MessageBus(), MailboxManager(ROOT)
    channel = MailboxChannel(config, bus)
    saw["called"] = [channel.name, channel.display_name]
    await channel.stop()
    running = asyncio.create_task(channel.start())
    await until(lambda: channel.is_running and manager.get_agent("coder"))
    saw["card"] = {name: manager.get_agent("coder")[name] for name in ("description", "status")}
    for agent in ("researcher", "stranger"):
        manager.register(agent, {"agent_id": agent})

    # mail that comes
    manager.send("researcher", "coder", mail("hello", callback=CALLBACK, metadata={"_user_shell": True}))
    inbound = await asyncio.wait_for(bus.consume_inbound(), 20)
    saw["inbound"] = [inbound.channel, inbound.sender_id, inbound.chat_id, "hello" in inbound.content]
    saw["metadata"] = {name: value for name, value in inbound.metadata.items() if name != "mailbox"}
    saw["while it runs"] = [len(files("coder")), len(files("coder", "processed"))]
    metadata = dict(inbound.metadata)
    await channel.send(OutboundMessage(channel="mailbox", chat_id="researcher", content="hi", metadata=metadata))
    await until(lambda: files("coder", "processed"))
    saw["when it is over"] = [len(files("coder")), len(files("coder", "processed"))]
    saw["answer"] = {name: files("researcher")[0][name] for name in ("type", "callback", "trace")}
    (ROOT / "coder" / "inbox" / "1_stranger.msg.json").write_text(json.dumps(mail("no", **{"from": "stranger"})))
    saw["stranger"] = (await until(lambda: files("stranger")))[0]["content"]["parts"][0]["text"]

    # mail that goes
    async def sent(**metadata: Any) -> dict[str, Any]:
        before = len(files("researcher"))
        await channel.send(
            OutboundMessage(channel="mailbox", chat_id="researcher", content="x", metadata=metadata)
        )
        return files("researcher")[before]

    plain = await sent()
    saw["plain"] = {name: plain[name] for name in ("from", "to", "type", "ttl", "trace")}
    saw["lowered"] = [(await sent(mailbox_ttl=ttl))["ttl"] for ttl in (1, 2, 9)]
    task = await sent(mailbox_type="task", mailbox_task={"id": "task_7"}, mailbox_callback=CALLBACK)
    saw["task"] = [task["type"], task["task"]["id"], "callback" in task]
    before = len(files("researcher"))
    await channel.send_message("researcher", mail("by the design", ttl=2))
    saw["send_message"] = [files("researcher")[before][name] for name in ("from", "ttl", "trace")]
    saw["refused"] = []
    for wrong in (mail("round", trace=["researcher", "coder"]), mail("spent", ttl=0)):
        try:
            await channel.send_message("researcher", wrong)
        except PostroomError as refused:
            saw["refused"].append(type(refused).__name__)

    # what comes of it: the conversation that the callback named is told, by our own record
    update = {"type": "task_update", "reply_to": task["id"], "task": {"id": "task_7", "state": "accepted"}}
    manager.send("researcher", "coder", mail("yes", **update))
    update["task"] = {"id": "task_7", "state": "completed"}
    manager.send("researcher", "coder", mail("work done", **update))
    result = await asyncio.wait_for(bus.consume_inbound(), 20)
    saw["told"] = [result.channel, result.chat_id, result.session_key_override, "work done" in result.content]
    await channel.stop()
    await channel.stop()
    await asyncio.wait([running])
    saw["status"] = manager.get_agent("coder")["status"]
    return saw


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
