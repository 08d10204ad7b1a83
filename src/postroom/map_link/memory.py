"""What is remembered of a server between two visits, and after a restart: what it is called here, what we are
called there, and up to when its messages were put down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.hashing import blake2b
from ..model.record import MAP_LINK
from ..service.records import find_record, put_record

if TYPE_CHECKING:
    from ..service.office import Office


class Memory:
    """Of one server, by its address."""

    def __init__(self, office: Office, server: str, name: str) -> None:
        self._office = office
        self._key = blake2b(server.encode(), digest_size=16).hexdigest()
        kept = find_record(office, MAP_LINK, self._key)
        self._kept: dict[str, Any] = kept.value if kept is not None and isinstance(kept.value, dict) else {}
        self.name: str = self._kept.get("name", name)  # ours: the room may take the server's name as its own
        self.system: str = self._kept.get("system", "")
        self.seen: int = self._kept.get("seen", 0)  # milliseconds, by the server's clock
        self.resume = ""  # a token of the last session; worth nothing after a restart

    def called(self, name: str) -> None:
        """What it calls itself. The first name stays: mail waits under it."""
        self.system = self.system or name
        self.keep()

    def saw(self, at: int) -> None:
        self.seen = max(self.seen, at)

    def keep(self) -> None:
        value = {"name": self.name, "system": self.system, "seen": self.seen}
        if value == self._kept:
            return
        held = find_record(self._office, MAP_LINK, self._key)
        self._office.store.commit([put_record(MAP_LINK, self._key, value, held, durable=False)])
        self._kept = value
