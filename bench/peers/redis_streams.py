"""Redis Streams: one stream, one group of consumers; the log of commands is synced before each answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import redis

from .debian import libraries, program
from .peer import POWER, Send, Take
from .server import SECRET, Server, free_port, give

STREAM, GROUP = "mail", "workers"


class RedisStreams:
    name = "Redis Streams"
    survives = POWER
    is_server = True
    how = "appendonly, appendfsync always: XADD, XREADGROUP and XACK are each synced before the answer"
    syncs = "1 / 2"

    def version(self) -> str:
        process = subprocess.run(
            [program("redis-server", "redis-server"), "--version"],
            capture_output=True, text=True, check=True, env=libraries(),
        )  # fmt: skip
        return process.stdout.split("v=")[1].split()[0]

    def start(self, folder: Path) -> str:
        port = free_port()
        settings = give(folder) / "redis.conf"
        settings.write_text(
            f"bind 127.0.0.1\nport {port}\nrequirepass {SECRET}\ndir {folder}\n"
            "appendonly yes\nappendfsync always\nno-appendfsync-on-rewrite no\nsave ''\n",
            encoding="utf-8",
        )
        self._server = Server([program("redis-server", "redis-server"), str(settings)], folder)
        self._server.wait_for(port)
        address = f"redis://:{SECRET}@127.0.0.1:{port}"
        redis.Redis.from_url(address).xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        return address

    def sender(self, address: str) -> Send:
        server = redis.Redis.from_url(address)
        return lambda body: server.xadd(STREAM, {"body": body})

    def receiver(self, address: str) -> Take:
        server = redis.Redis.from_url(address, protocol=2)
        name = str(os.getpid())

        def take() -> bytes | None:
            found = server.xreadgroup(GROUP, name, {STREAM: ">"}, count=1)
            if not found:
                return None
            [(_, [(id, fields)])] = found
            server.xack(STREAM, GROUP, id)
            body: bytes = fields[b"body"]
            return body

        return take

    def stop(self) -> None:
        self._server.stop()


PEERS = [RedisStreams()]
