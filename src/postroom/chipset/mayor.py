"""The mayor's errands, each of which needs several channels: hand out work, accept it, give it to another.

The order of the steps is what keeps an item from being lost: wherever it is cut off, the item lies on a hook, and
the same errand once more completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Busy, IllegalMove, Refused
from ..model.names import check_agent, fold
from ..model.values import check_text
from . import witness
from .hooks import AT_WORK, Status

if TYPE_CHECKING:
    from .chipset import Chipset
    from .hooks import Hook, Item


class Mayor:
    """Hands out the work of a state folder. The moves are still the table's: whoever is no mayor is refused."""

    def __init__(self, chipset: Chipset, name: str = "mayor", *, human: str = "human") -> None:
        self._chipset = chipset
        self._name = check_agent(name, "mayor")
        self._human = check_agent(human, "human")

    def dispatch(self, agent: str, bead_id: str, title: str = "", body: str = "") -> Hook:
        """Put an item on an empty hook, and send the assignment."""
        check_text(body, "body")  # before anything is moved
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.set(agent, bead_id, title, by=self._name)
            self._chipset.items.note(hook)
        witness.assign(self._chipset.room, self._name, hook, body)
        return hook

    def remind(self, agent: str, body: str = "") -> Hook:
        """Send the assignment of an item nobody took up yet: what a crash left undone. It never comes twice."""
        hook = self._chipset.hooks.get(agent)
        if hook.status is not Status.PENDING:
            raise IllegalMove(str(hook), field="agent", hint="only a pending item is assigned")
        witness.assign(self._chipset.room, self._name, hook, body)
        return hook

    def accept(self, agent: str) -> Hook:
        """The work was checked: its hook is empty again."""
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.get(agent)
            if hook.status is not Status.COMPLETED:
                raise IllegalMove(str(hook), field="agent", hint="only completed work is accepted")
            cleared = self._chipset.hooks.clear(agent, by=self._name, expect=hook)
            self._chipset.items.close(hook.item.bead_id)
        return cleared

    def reassign(self, agent: str, to: str, body: str = "", *, expect: Hook | None = None) -> Hook:
        """Give the item of a stalled agent to another, or to the same once more; that is a restart.

        Refused when it was restarted as often as it may be: then a human is told. Busy within the pause. With
        `expect`, only if the hook is still as it was read.
        """
        check_text(body, "body")
        check_agent(to, "to")
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.expected(agent, expect)
            if hook.status not in AT_WORK:
                raise IllegalMove(str(hook), field="agent", hint="only unfinished work is reassigned")
            value = self._hand_over(hook, self._chipset.items.note(hook), to)
            self._chipset.items.note(value)
        witness.assign(self._chipset.room, self._name, value, body)
        return value

    def _hand_over(self, hook: Hook, item: Item, to: str) -> Hook:
        """The new hook is set before the old one is cleared: whatever happens, the item lies on one."""
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
        hooks.clear(hook.agent_id, by=self._name)  # also where it was cut off here the last time
        return target

    def _check_restart(self, hook: Hook, item: Item) -> None:
        patience = self._chipset.patience
        if item.restarts >= patience.most_restarts:
            if item.human_told < item.restarts:
                witness.tell_human(self._chipset.room, self._name, self._human, hook, item)
                self._chipset.items.human_knows(item)
            raise Refused(f"{item.bead!r} was restarted {item.restarts} times", hint="a human is told")
        left = patience.pause - item.seconds_since_start(self._chipset.clock.now().wall)
        if left > 0:
            raise Busy(f"{item.bead!r} was started just now", hint=f"again in {left:.0f} s")
