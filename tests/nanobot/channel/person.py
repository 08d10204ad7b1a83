"""A channel of nanobot for tests: a person who talks over a Unix socket, in lines of JSON.

This file is put into nanobot's own folder, as `nanobot/channels/person/runtime.py`. It knows nothing of Postroom.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nanobot.bus.events import InboundMessage
from nanobot.channels.base import BaseChannel


class PersonChannel(BaseChannel):  # type: ignore[misc]
    """Says what the person types, shows what the person is told."""

    name = "person"
    display_name = "Person"

    async def start(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self._running = True
        server = await asyncio.start_unix_server(self.serve, self.config["socket"])
        async with server:
            await server.serve_forever()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while line := await reader.readline():
            message = json.loads(line)
            await self.bus.publish_inbound(
                InboundMessage(
                    channel="person", sender_id="anna", chat_id=message["chat"], content=message["text"]
                )
            )

    async def stop(self) -> None:
        self._running = False

    async def send(self, msg: Any) -> None:
        progress = getattr(msg, "event", None) is not None or msg.metadata.get("_progress")
        if self.writer is not None and not progress:
            self.writer.write(json.dumps({"chat": msg.chat_id, "text": msg.content}).encode() + b"\n")
            await self.writer.drain()
