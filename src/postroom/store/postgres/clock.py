"""The server's clock, as a process sees it: the machine's uptime, and its measured distance to the server's time.

Holders of leases live on many machines, so no machine's wall clock and no machine's boot may matter.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ...clock import UPTIME
from ...model.query import Moment

if TYPE_CHECKING:
    from .connection import Database, RoomConnection

EVERY = 60.0  # seconds between two measurements
BOOT = "server"  # leases outlive each machine, and each restart of the server
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


class ServerClock:
    """The time of one PostgreSQL server. Between two measurements only the machine's uptime counts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ahead = 0.0  # of our uptime
        self._measured = float("-inf")

    def measure(self, connection: RoomConnection) -> None:
        """Ask the server; the error is at most half of the time that the answer takes."""
        began = time.clock_gettime(UPTIME)
        row = connection.execute(_NOW).fetchone()
        ended = time.clock_gettime(UPTIME)
        self._ahead = float(row[0] if row else 0) - (began + ended) / 2
        self._measured = ended

    def now(self) -> Moment:
        if time.clock_gettime(UPTIME) > self._measured + EVERY:
            with self._database.connection() as connection:
                self.measure(connection)
        steady = time.clock_gettime(UPTIME) + self._ahead
        return Moment(wall=_EPOCH + timedelta(seconds=steady), steady=steady, boot=BOOT)
