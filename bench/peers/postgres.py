"""PostgreSQL as a queue, with FOR UPDATE SKIP LOCKED: a lease in the row, or a transaction held while working."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psycopg

from .debian import libraries, program
from .peer import POWER, Missing, Send, Take
from .server import SECRET, Server, free_port, give, run

PACKAGE = "postgresql"
TABLE = """
CREATE TABLE mail (id bigserial PRIMARY KEY, body bytea NOT NULL, state int NOT NULL DEFAULT 0, since timestamptz);
CREATE INDEX waiting ON mail (id) WHERE state = 0;
"""
NEXT = "SELECT {} FROM mail WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
HOLD = NEXT.format("id, body")
LEASE = f"UPDATE mail SET state = 1, since = now() WHERE id = ({NEXT.format('id')}) RETURNING id, body"
DONE = "UPDATE mail SET state = 2 WHERE id = %s"


class Postgres:
    survives = POWER
    is_server = True

    def __init__(self, name: str, *, leases: bool) -> None:
        self.name = name
        self.syncs = "1 / 2" if leases else "1 / 1"
        self._leases = leases
        claims = "claim and ack are a commit each" if leases else "one commit: the open transaction is the claim"
        self.how = f"fsync, synchronous_commit and full_page_writes on; {claims}"

    def version(self) -> str:
        process = subprocess.run(
            [program("postgres", PACKAGE), "--version"],
            capture_output=True,
            text=True,
            check=True,
            env=libraries(),
        )
        return process.stdout.split()[2]

    def start(self, folder: Path) -> str:
        port, data = free_port(), give(folder) / "data"
        password = folder / "password"
        password.write_text(SECRET, encoding="utf-8")
        initdb = [program("initdb", PACKAGE), "-D", str(data), "-U", "postgres", "-E", "UTF8", "--no-locale"]
        run([*initdb, "--auth=scram-sha-256", f"--pwfile={password}"], folder)
        options = ["fsync=on", "synchronous_commit=on", "full_page_writes=on", "unix_socket_directories="]
        command = [program("postgres", PACKAGE), "-D", str(data), "-h", "127.0.0.1", "-p", str(port)]
        self._server = Server([*command, *(f"-c{option}" for option in options)], folder, signal.SIGINT)
        self._server.wait_for(port)
        address = f"host=127.0.0.1 port={port} user=postgres password={SECRET} dbname=postgres"
        with _connect(address) as database:
            database.execute(TABLE)
        return address

    def sender(self, address: str) -> Send:
        database = _connect(address)
        return lambda body: database.execute("INSERT INTO mail (body) VALUES (%b)", (body,), prepare=True)

    def receiver(self, address: str) -> Take:
        return _lease(_connect(address)) if self._leases else _hold(_connect(address))

    def stop(self) -> None:
        self._server.stop()


def _lease(database: psycopg.Connection) -> Take:
    def take() -> bytes | None:
        found = database.execute(LEASE, prepare=True).fetchone()
        if found is None:
            return None
        database.execute(DONE, found[:1], prepare=True)
        return bytes(found[1])

    return take


def _hold(database: psycopg.Connection) -> Take:
    """The row is locked, handed to the worker, and marked as done by the commit that ends it."""

    def take() -> bytes | None:
        with database.transaction():
            found = database.execute(HOLD, prepare=True).fetchone()
            if found is None:
                return None
            database.execute(DONE, found[:1], prepare=True)
        return bytes(found[1])

    return take


def _connect(address: str) -> psycopg.Connection:
    """Just after its start the server may still say that it is starting."""
    end = time.monotonic() + 30
    while True:
        try:
            return psycopg.connect(address, autocommit=True)
        except psycopg.OperationalError as error:
            if time.monotonic() > end:
                raise Missing(str(error)) from error
            time.sleep(0.1)


PEERS = [
    Postgres("PostgreSQL, lease in the row", leases=True),
    Postgres("PostgreSQL, transaction held open", leases=False),
]
