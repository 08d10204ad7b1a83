"""The gateway of an agent: whether one is running, and which conversations it reaches.

A gateway reaches the conversations of the channels that it runs. A terminal (`nanobot agent`) and a request to
nanobot's own API end with their answer. What comes later for them is kept, and `mail_tasks` shows it.

An agent has one gateway. It holds a lock beside the room as long as it runs; a second one is refused. The system
releases the lock however a gateway ends, in another container too, and with it the letters that it held are free.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ...constants import safe_form
from ...core import work as core_work
from ...core.deliveries import find_letters
from ...core.verb import perform
from ...errors import NotAllowed
from ...model.codec import blake2b
from ...model.delivery import State
from ...model.names import fold
from ...model.query import Query
from ...own_file import LockFile, lock_holder
from ...store.address import folder_of, place_of
from ...store.files.tree import OWN_FOLDER
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...mailbox import Mailbox


NEVER = frozenset({"cli", "api", "system"})  # nanobot's names for sources that are no channels
WITHOUT_SECTION = frozenset({OWN_CHANNEL, "websocket"})  # the browser's channel is on by default


def is_reached(channel: str, sections: Mapping[str, Any]) -> bool:
    """Return whether a gateway with these sections under `channels` sends to this channel."""
    name = channel.partition(".")[0]  # one of several bots is `telegram.second`
    if name in NEVER:
        return False
    if name not in sections:
        return name in WITHOUT_SECTION
    section = sections[name]
    enabled = section.get("enabled") if isinstance(section, dict) else getattr(section, "enabled", None)
    return enabled is not False


# -- the only gateway of an agent


_HOLDER = "gateway of "
PAUSES = (0.05, 0.05, 0.1)  # seconds between attempts at the lock: a doctor that looks holds it for a moment


def holder(agent: str) -> str:
    """Return the text by which this process signs its claims."""
    return f"{_HOLDER}{agent} (process {os.getpid()})"


class GatewayLock:
    """The lock that the one gateway of an agent holds."""

    def __init__(self, address: str, agent: str) -> None:
        place, folder = place_of(address), folder_of(address)
        one = fold(agent)  # names that differ in case only are one agent's
        name = f"gateway-{safe_form(one)}-{blake2b(one.encode(), digest_size=4).hexdigest()}"
        # A room in memory belongs to one process: it has no other gateway.
        path = place and (f"{place}.{name}" if folder is None else f"{folder}/{OWN_FOLDER}/{name}")
        self._lock = None if path is None else LockFile(path)
        self.is_ours = False

    def take(self) -> bool:
        """Take the lock, unless another gateway holds it."""
        for pause in PAUSES:
            self.is_ours = self._lock is None or self._lock.take() is None
            if self.is_ours:
                break
            time.sleep(pause)
        return self.is_ours

    def release(self) -> None:
        if self._lock is not None:
            self._lock.leave()
        self.is_ours = False

    def is_held(self) -> bool:
        """Return whether a gateway holds the lock. This creates nothing."""
        return self._lock is not None and lock_holder(self._lock.path) is not None


def arrive(lock: GatewayLock, mailbox: Mailbox) -> int:
    """Take the place of the only gateway, and release the letters that a dead one held; return how many."""
    if not lock.take():
        raise NotAllowed(
            f"a gateway of {mailbox.name} is running already",
            field="agentId",
            hint="end that one, or choose another agentId for this one",
        )
    return free_claims(mailbox)


def free_claims(mailbox: Mailbox) -> int:
    """Release the letters that gateways of this agent hold; return how many. Only the one gateway may do that."""
    core = mailbox.core
    claimed = find_letters(core, Query(mailbox=mailbox.name, states=(State.CLAIMED,)))
    held = [one for one in claimed if one.delivery.lease and one.delivery.lease.holder.startswith(_HOLDER)]
    if held:
        ids = [found.message.id for found in held]
        perform(core, mailbox.principal, core_work.Release(agent_id=mailbox.name, ids=ids, held=held))
    return len(held)
