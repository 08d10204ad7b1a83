"""The mayor, who assigns work, accepts it, and reassigns it.

Each of these needs several channels, in an order in which no item can be lost: wherever a crash interrupts it,
the item is on a hook, and a second call completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Busy, IllegalMove, Refused
from ..model.names import check_agent, fold
from ..model.values import check_text
from . import witness
from .hooks import AT_WORK, Status

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from .chipset import Chipset
    from .hooks import Hook, Item


class Mayor:
    """A mayor of a state folder. The transition table holds: an agent that is no mayor is refused."""

    def __init__(self, chipset: Chipset, name: str = "mayor", *, human: str = "human") -> None:
        self._chipset = chipset
        self._name = check_agent(name, "mayor")
        self._human = check_agent(human, "human")

    @property
    def _mail(self) -> tuple[Core, Principal, str]:
        return self._chipset.room.core, self._chipset.room.principal, self._name

    def dispatch(self, agent: str, bead_id: str, title: str = "", body: str = "") -> Hook:
        """Put an item on an empty hook, and send the assignment."""
        check_text(body, "body")  # before anything changes
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.set(agent, bead_id, title, by=self._name)
            self._chipset.items.note(hook)
        witness.assign(*self._mail, hook, body)
        return hook

    def remind(self, agent: str, body: str = "") -> Hook:
        """Send the assignment of a pending item, which a crash may have left unsent. It never arrives twice."""
        hook = self._chipset.hooks.get(agent)
        if hook.status is not Status.PENDING:
            raise IllegalMove(str(hook), field="agent", hint="only a pending item is assigned")
        witness.assign(*self._mail, hook, body)
        return hook

    def accept(self, agent: str) -> Hook:
        """Accept completed work, which empties its hook."""
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.get(agent)
            if hook.status is not Status.COMPLETED:
                raise IllegalMove(str(hook), field="agent", hint="only completed work is accepted")
            cleared = self._chipset.hooks.clear(agent, by=self._name, expect=hook)
            self._chipset.items.close(hook.item.bead_id)
        return cleared

    def reassign(self, agent: str, to: str, body: str = "", *, expect: Hook | None = None) -> Hook:
        """Assign the item of a stalled agent to another, or to the same agent again; that is a restart.

        Raise Refused after too many restarts, and notify a human. Raise Busy within the pause. With `expect`, only
        if the hook is still as it was read.
        """
        check_text(body, "body")
        check_agent(to, "to")
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.expected(agent, expect)
            if hook.status not in AT_WORK:
                raise IllegalMove(str(hook), field="agent", hint="only unfinished work can be reassigned")
            assigned = self._hand_over(hook, self._chipset.items.note(hook), to)
            self._chipset.items.note(assigned)
        witness.assign(*self._mail, assigned, body)
        return assigned

    def _hand_over(self, hook: Hook, item: Item, to: str) -> Hook:
        """Set the new hook, then clear the old one, so that the item is always on a hook."""
        hooks = self._chipset.hooks
        target = hooks.get(to)
        if fold(target.agent_id) == fold(hook.agent_id):
            self._check_restart(hook, item)
            return hooks.restart(hook.agent_id, by=self._name)
        if target.status is not Status.PENDING or target.item.bead_id != item.bead:
            self._check_restart(hook, item)
            try:
                target = hooks.set(to, item.bead, hook.item.title, by=self._name)
            except IllegalMove as busy:
                busy.field = "to"
                raise
        hooks.clear(hook.agent_id, by=self._name)  # also if a crash interrupted an earlier call here
        return target

    def _check_restart(self, hook: Hook, item: Item) -> None:
        patience = self._chipset.patience
        if item.restarts >= patience.most_restarts:
            if item.human_told < item.restarts:
                witness.notify_human(*self._mail, self._human, hook, item)
                self._chipset.items.human_knows(item)
            raise Refused(f"{item.bead!r} was restarted {item.restarts} times", hint="a human was notified")
        left = patience.pause - item.seconds_since_start(self._chipset.clock.now().wall)
        if left > 0:
            raise Busy(f"{item.bead!r} was started just now", hint=f"again in {left:.0f} s")
