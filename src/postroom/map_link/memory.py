"""What is remembered of a server between two visits, and after a restart: what it is called here, what we are
called there, up to when its messages were put down, what it calls the last letters that it took from us, and who
of ours wrote them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.codec import encode
from ..model.hashing import blake2b
from ..model.record import MAP_LINK
from ..service.records import find_record, put_record

if TYPE_CHECKING:
    from ..service.office import Office


MOST_ADDRESSES = 1000  # ids that ours had there
MOST_WRITERS = 200  # the last of ours that wrote there, and are shown there for an answer
MOST_SENT = 1000  # letters that can be answered by the server's ids; older ones by ours
LONGEST_ID = 200


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
        self._ours: dict[str, str] = dict(self._kept.get("sent", {}))  # by the server's id
        self.writers: dict[str, None] = dict.fromkeys(self._kept.get("writers", ()))  # in order
        self.addresses: dict[str, str] = dict(self._kept.get("addresses", {}))  # names of ours, by their ids there
        self.heard: str = self._kept.get("heard", "")  # the last of its events that was looked at
        self.resume = ""  # a token of the last session; worth nothing after a restart

    def called(self, name: str) -> None:
        """What it calls itself. The first name stays: mail waits under it."""
        self.system = self.system or name
        self.keep()

    def saw(self, at: int) -> None:
        self.seen = max(self.seen, at)

    def sent(self, theirs: Any, ours: str) -> None:
        """The server gave a letter of ours an id of its own. Who answers it names that one."""
        if isinstance(theirs, str) and 0 < len(theirs) <= LONGEST_ID:
            self._ours[theirs] = ours
        while len(self._ours) > MOST_SENT:
            del self._ours[next(iter(self._ours))]

    def wrote(self, name: str) -> None:
        """One of ours, to somebody there."""
        self.writers.pop(name, None)
        self.writers[name] = None
        while len(self.writers) > MOST_WRITERS:
            del self.writers[next(iter(self.writers))]

    def is_called(self, id: str, name: str) -> None:
        """One of ours, there and for now. Somebody may still write to that id when it has another."""
        if id != name and len(id) <= LONGEST_ID:
            self.addresses[id] = name
        while len(self.addresses) > MOST_ADDRESSES:
            del self.addresses[next(iter(self.addresses))]

    def asked(self, sender: str, mailbox: str, correlation: str, ours: str) -> None:
        """A sender of ours knows the answer to a letter by a word of its own."""
        self.sent(_word(sender, mailbox, correlation), ours)

    def asked_by(self, sender: str, mailbox: str, correlation: str) -> str | None:
        """The letter that is answered by this word, from that mailbox."""
        return self._ours.get(_word(sender, mailbox, correlation))

    def ours(self, id: str) -> str:
        """A letter's own id, by whichever id it is called."""
        return self._ours.get(id, id)

    def keep(self) -> None:
        value = {
            "name": self.name,
            "system": self.system,
            "seen": self.seen,
            "sent": dict(self._ours),
            "writers": list(self.writers),
            "addresses": dict(self.addresses),
            "heard": self.heard,
        }
        if value == self._kept:
            return
        held = find_record(self._office, MAP_LINK, self._key)
        self._office.store.commit([put_record(MAP_LINK, self._key, value, held, durable=False)])
        self._kept = value


def _word(sender: str, mailbox: str, correlation: str) -> str:
    """Others may use the same word."""
    return blake2b(encode([sender, mailbox, correlation]), digest_size=16).hexdigest()
