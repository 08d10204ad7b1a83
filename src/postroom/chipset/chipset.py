"""The Chipset class, which holds the channels of one state folder, its mayor, and the design's functions for mail.

chipset = Chipset(".chipset/state")
chipset.mayor().dispatch("polecat-alpha", "gt-abc12", "Auth middleware", "As in the plan.")
chipset.hooks.activate("polecat-alpha")
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self

from ..clock import SystemClock
from ..errors import Busy, IllegalMove, Refused
from ..model.names import check_agent, fold
from ..model.values import check_text
from ..room import open_with
from ..settings import chosen_settings
from .folder import Patience, StateFolder
from .hooks import AT_WORK, Hooks, Items, Roles, Status
from .mail import A_DAY, Mailboxes
from .notes import RESPONSE, Notes, Nudges
from .witness import StallWatches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from types import TracebackType

    from ..clock import Clock
    from ..room import Room
    from .hooks import Hook, Item
    from .mail import Mail
    from .notes import Nudge


STATE = ".chipset/state"


class Chipset:
    """One state folder. Any number of processes may use it, other programs of the design too.

    `room` takes the mail: by default the room over the same folder. `roles` gives the roles of agents whose
    names do not show them (`mayor-a1b2c` is a mayor).
    """

    def __init__(
        self,
        state: str | os.PathLike[str] = STATE,
        *,
        room: Room | None = None,
        roles: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        clock: Clock | None = None,
        durable: bool = True,
    ) -> None:
        self.folder = StateFolder(state, durable=durable)
        self.clock = clock or SystemClock()
        self.patience = patience or Patience()
        self.hooks = Hooks(self.folder, self.clock, Roles(roles))
        self.nudges = Nudges(self.folder, self.clock)
        self.notes = Notes(self.folder, self.clock)
        self.items = Items(self.folder)
        self.watches = StallWatches(self.folder)
        self._durable = durable
        self._room = room

    @cached_property
    def room(self) -> Room:
        """The room, which is opened when first needed: hooks and nudges need none."""
        if self._room is not None:
            return self._room
        options = {} if self._durable else {"durability": "process"}
        return open_with(chosen_settings(f"files:{self.folder.path}?layout=chipset", options), self.clock)

    @cached_property
    def mail(self) -> Mailboxes:
        return Mailboxes(self.room.core, self.room.principal)

    def mayor(self, name: str = "mayor") -> Mayor:
        """Return a mayor, who assigns the work."""
        return Mayor(self, name)

    def report(self, agent: str, body: str = "", *, to: str = "mayor") -> Hook:
        """Complete the hook of an agent, and send the completion report to the mayor.

        A second call after a crash does what the first left undone; the report arrives once.
        """
        check_text(body, "body")  # before anything changes
        with self.folder.lock():
            hook = self.hooks.get(agent)
            if hook.status is not Status.COMPLETED:
                hook = self.hooks.complete(agent)
        # Outside the lock: the key of the report makes a second try after a crash harmless (G3).
        self.mail.complete(hook, to, body)
        return hook

    def answer(self, agent: str, nudge: Nudge, message: str = "") -> Nudge:
        """Answer a nudge, and mark it as handled.

        The agent's hook is touched too, because a slot holds one answer only, and that of another agent may
        replace this one. An answer is not answered: two agents would never end.
        """
        if nudge.type == RESPONSE:
            raise Refused(
                f"the nudge in the slot is an answer of {nudge.sender!r}",
                hint="handle it (postroom chipset handle)",
            )
        with self.folder.lock():
            # The answer first: if the process dies here, the nudge is only answered once more.
            answer = self.nudges.respond(agent, nudge, message)
            if self.hooks.get(agent).status in AT_WORK:
                self.hooks.touch(agent)
            self.nudges.handle(agent, nudge)
        return answer

    def close(self) -> None:
        """Close the room, if it was opened here. Nothing needs to be saved."""
        if self._room is None and "room" in self.__dict__:
            self.room.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Mayor:
    """A mayor of a state folder, who assigns work, accepts it and reassigns it.

    Each of these needs several channels, in an order in which no item can be lost: wherever a crash interrupts it,
    the item is on a hook, and a second call completes it. The transition table holds: an agent that is no mayor is
    refused.
    """

    def __init__(self, chipset: Chipset, name: str = "mayor", *, human: str = "human") -> None:
        self._chipset = chipset
        self._name = check_agent(name, "mayor")
        self._human = check_agent(human, "human")

    def dispatch(self, agent: str, bead_id: str, title: str = "", body: str = "") -> Hook:
        """Put an item on an empty hook, and send the assignment."""
        check_text(body, "body")  # before anything changes
        with self._chipset.folder.lock():
            hook = self._chipset.hooks.set(agent, bead_id, title, by=self._name)
            self._chipset.items.note(hook)
        self._chipset.mail.assign(self._name, hook, body)
        return hook

    def remind(self, agent: str, body: str = "") -> Hook:
        """Send the assignment of a pending item, which a crash may have left unsent. It never arrives twice."""
        hook = self._chipset.hooks.get(agent)
        if hook.status is not Status.PENDING:
            raise IllegalMove(str(hook), field="agent", hint="only a pending item is assigned")
        self._chipset.mail.assign(self._name, hook, body)
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
        self._chipset.mail.assign(self._name, assigned, body)
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
                self._chipset.mail.notify_human(self._name, self._human, hook, item)
                self._chipset.items.human_knows(item)
            raise Refused(f"{item.bead!r} was restarted {item.restarts} times", hint="a human was notified")
        left = patience.pause - item.seconds_since_start(self._chipset.clock.now().wall)
        if left > 0:
            raise Busy(f"{item.bead!r} was started just now", hint=f"again in {left:.0f} s")


# The design's functions for mail, over the state folder in `state`. `Mailboxes` documents each one.


def send_mail(message: Mapping[str, Any], *, state: str | os.PathLike[str] = STATE) -> Mail:
    return _at(state).send_mail(message)


def check_mail(agent: str, *, state: str | os.PathLike[str] = STATE) -> list[Mail]:
    return _at(state).check_mail(agent)


def unread(agent: str, *, state: str | os.PathLike[str] = STATE) -> list[Mail]:
    return _at(state).unread(agent)


def mark_read(agent: str, filename: str, *, state: str | os.PathLike[str] = STATE) -> None:
    _at(state).mark_read(agent, filename)


def archive_old_mail(
    agent: str, older_than: float | timedelta = A_DAY, *, state: str | os.PathLike[str] = STATE
) -> int:
    return _at(state).archive_old_mail(agent, older_than)


def _at(state: str | os.PathLike[str]) -> Mailboxes:
    return _open(os.path.realpath(state)).mail


@cache  # each state folder is opened once in a process
def _open(state: str) -> Chipset:
    return Chipset(state)
