"""A state folder's four channels, put together. Decides nothing: each channel has a file of its own.

chipset = Chipset(".chipset/state")
chipset.mayor().dispatch("polecat-alpha", "gt-abc12", "Auth middleware", "As in the plan.")
chipset.hooks.activate("polecat-alpha")
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self

from ..clock import SystemClock
from ..errors import Refused
from ..model.values import check_text
from ..room import chosen_settings, open_with
from . import witness
from .folder import Patience, StateFolder
from .hooks import AT_WORK, Hooks, Items, Roles, Status
from .mail import A_DAY, Mailboxes
from .mayor import Mayor
from .notes import RESPONSE, Notes, Nudges
from .witness import Watches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from types import TracebackType

    from ..clock import Clock
    from ..room import Room
    from .hooks import Hook
    from .mail import Mail
    from .notes import Nudge


STATE = ".chipset/state"


class Chipset:
    """One state folder. Any number of processes may use it, and strangers that know the design.

    `room` is where mail goes: by default the room over the same folder. `roles` says who is what, where a name
    does not (`mayor-a1b2c` is a mayor).
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
        self.watches = Watches(self.folder)
        self._durable = durable
        self._room = room

    @cached_property
    def room(self) -> Room:
        """Opened when it is first needed: hooks and nudges need none."""
        return self._room or _open_room(self.folder.path, self.clock, durable=self._durable)

    @cached_property
    def mail(self) -> Mailboxes:
        return Mailboxes(self.folder, self.room, self.clock)

    def mayor(self, name: str = "mayor") -> Mayor:
        """Who hands out the work."""
        return Mayor(self, name)

    def report(self, agent: str, body: str = "", *, to: str = "mayor") -> Hook:
        """The work in hand is done: its hook is completed, and the mayor gets the completion report.

        Said again after a crash, it completes what was left undone, and the report comes once.
        """
        check_text(body, "body")  # before anything is moved
        with self.folder.lock():
            hook = self.hooks.get(agent)
            if hook.status is not Status.COMPLETED:
                hook = self.hooks.complete(agent)
        witness.complete(self.room, hook, to, body)
        return hook

    def answer(self, agent: str, nudge: Nudge, message: str = "") -> Nudge:
        """Answer a nudge, and be done with it. Work in hand is touched too: a slot holds one answer, and another
        agent's may come right after this one. An answer is not answered: two agents would never end.
        """
        if nudge.type == RESPONSE:
            hint = "handle it (postroom chipset handle)"
            raise Refused(f"the nudge in the slot is an answer of {nudge.sender!r}", hint=hint)
        with self.folder.lock():
            value = self.nudges.respond(agent, nudge, message)
            if self.hooks.get(agent).status in AT_WORK:
                self.hooks.touch(agent)
            self.nudges.handle(agent, nudge)
        return value

    def close(self) -> None:
        """Let go of the room, if it was opened here. Nothing needs to be saved."""
        if self._room is None and "room" in self.__dict__:
            self.room.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_room(state: str, clock: Clock, *, durable: bool) -> Room:
    value = {} if durable else {"durability": "process"}
    return open_with(chosen_settings(f"files:{state}?layout=chipset", value), clock)


# The design's own verbs for mail, over the state folder they are given. `Mailboxes` says what each one does.


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


@cache
def _open(state: str) -> Chipset:
    """Opened once in a process."""
    return Chipset(state)
