"""Connections to one room: a bounded pool for each process, made again after a fork."""

from __future__ import annotations

import os
import struct
from _thread import allocate_lock
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import ConnectionPool

from .errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg.errors import Diagnostic
    from psycopg.pq.abc import PGresult

    from .address import PostgresAddress

Row = tuple[Any, ...]
MOST = 8  # connections of one process; the server's own threads are fewer
_ABANDONED: list[object] = []  # pools of a parent process: never touched after a fork
_WARNING = "01000"
_BYTEA = 17  # the number of the type
_HEAD, _SIZE, _LENGTH = (struct.Struct(form) for form in (">iiI", ">ii", ">i"))


class RoomConnection(psycopg.Connection[Row]):
    """A connection that notices when the server gives up waiting for a standby."""

    doubtful = False  # did it say so? Then what it called committed may be lost with this server

    def call(self, statement: bytes, values: Sequence[bytes], bodies: Sequence[bytes]) -> bytes | None:
        """Return the one value of a statement, whose last parameter is a list of bodies.

        Without psycopg's cursor: that takes a fifth less for a small commit, and a third of the processor time.
        Nothing is prepared, so a pooler may stand in between; Ctrl-C cancels it like any other statement.
        """
        formats = [*[Format.TEXT] * len(values), Format.BINARY]
        self.pgconn.send_query_params(statement, [*values, _array(bodies)], param_formats=formats)
        result: PGresult = self.wait(execute(self.pgconn))[-1]
        if result.status not in {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}:
            raise error_from_result(result)
        return result.get_value(0, 0)


def _array(values: Sequence[bytes]) -> bytes:
    """Return a bytea[] in the binary format of the server."""
    if not values:
        return _HEAD.pack(0, 0, _BYTEA)
    return b"".join([_HEAD.pack(1, 0, _BYTEA), _SIZE.pack(len(values), 1), *_elements(values)])


def _elements(values: Sequence[bytes]) -> Iterator[bytes]:
    for value in values:
        yield _LENGTH.pack(len(value))
        yield value


def _notice(connection: RoomConnection, diagnostic: Diagnostic) -> None:
    if diagnostic.sqlstate == _WARNING:
        connection.doubtful = True


def configure(connection: RoomConnection) -> None:
    """Prepare a new connection."""
    # Else each size of a number makes another prepared statement.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.add_notice_handler(lambda diagnostic: _notice(connection, diagnostic))


class Database:
    """Access to one room. SQL names the room's schema `ROOM` or `main`."""

    def __init__(self, address: PostgresAddress, patience: float) -> None:
        self.address = address
        self._patience = patience
        self._sql: dict[str, str] = {}
        self._lock = allocate_lock()
        self._pool: ConnectionPool[RoomConnection] | None = None
        self._pid = 0

    def sql(self, text: str) -> str:
        """Return the statement for this room, as psycopg takes it."""
        return self._sql.get(text) or self._sql.setdefault(text, self._translated(text))

    def _translated(self, text: str) -> str:
        schema = self.address.schema
        return text.replace("?", "%s").replace("main.", f"{schema}.").replace("ROOM", schema)

    def connect(self, **options: Any) -> RoomConnection:
        """Open a connection of its own, outside of the pool."""
        with translated():
            chosen: dict[str, Any] = self.address.options | options
            connection = RoomConnection.connect(self.address.conninfo, **self._session(), **chosen)
        configure(connection)
        return connection

    def _session(self) -> dict[str, Any]:
        # A PgBouncer in transaction mode gives each transaction another session, where nothing is prepared.
        return {"autocommit": True, "prepare_threshold": None if self.address.pooled else 1}

    def _open(self) -> ConnectionPool[RoomConnection]:
        with self._lock:
            if self._pid != os.getpid():
                _ABANDONED.append(self._pool)
                self._pool = ConnectionPool(
                    self.address.conninfo,
                    connection_class=RoomConnection,
                    kwargs=self._session() | self.address.options,
                    min_size=0,
                    max_size=MOST,
                    timeout=self._patience,
                    configure=configure,
                    name=f"postroom-{self.address.schema}",
                    num_workers=1,
                    open=True,
                )
                self._pid = os.getpid()
            assert self._pool is not None  # noqa: S101 - made with the pid
            return self._pool

    @contextmanager
    def connection(self) -> Iterator[RoomConnection]:
        """Lend a connection; one that was cut is not lent again."""
        pool = self._pool
        if pool is None or self._pid != os.getpid():
            pool = self._open()
        with translated():
            connection = pool.getconn()
            try:
                yield connection
            except psycopg.OperationalError:
                if connection.broken:
                    pool.drain()  # the others were probably cut with it
                raise
            finally:
                pool.putconn(connection)

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.close(timeout=5.0)
            self._pool, self._pid = None, 0
