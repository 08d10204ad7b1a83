"""The witness, which finds stalled agents, nudges them, waits for an answer, and notifies the mayor or a human.

It never changes a hook: that belongs to its owner and the mayor. It keeps its memory in files, one for each
stalled agent in `.postroom/`, checks each agent under the folder's lock, and sends letters with idempotency
keys. So it may be killed at any moment, restarted, and run twice, and still asks once and notifies once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..errors import PostroomError
from ..model.names import check_agent, fold
from ..store.files.layouts.base import line_in, text_of
from .folder import ENDING, OWN
from .hooks import AT_WORK, HOOKS, Status
from .mail import REASSIGN, SPENT, facts
from .notes import HEALTH_CHECK, RESPONSE, STALL_WARNING

if TYPE_CHECKING:
    from .chipset import Chipset
    from .folder import Patience, StateFolder
    from .hooks import Hook, Item


_WATCHES = (OWN, "witness", "agents")


class StallWatch(Struct, frozen=True, kw_only=True):
    """The memory of one stall of one assignment. It is void once the agent is active or has another item."""

    agent: str
    about: str  # identifies the stall: see `about`
    seen_at: datetime  # the time at which a witness first saw the hook like this
    asked_at: datetime | None = None  # the first nudge since the last answer
    nudged_at: datetime | None = None  # the last nudge
    by: str = ""  # the witness that nudged, whose slot gets the answer
    escalated: bool = False


class StallWatches:
    """All watches of a state folder. Call under its lock."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def get(self, hook: Hook) -> StallWatch | None:
        """Return the watch of this stall; None if there is none.

        An unreadable file is ignored: the keys of letters keep them from being sent twice.
        """
        watch = self._folder.read_as(StallWatch, *_WATCHES, self._file(hook.agent_id))
        return watch if watch is not None and watch.about == about(hook) else None

    def keep(self, watch: StallWatch) -> StallWatch:
        self._folder.write(watch, *_WATCHES, self._file(watch.agent))
        return watch

    def forget(self, agent: str) -> None:
        self._folder.remove(*_WATCHES, self._file(agent))

    def _file(self, agent: str) -> str:
        return self._folder.spelling(agent, *_WATCHES, ending=ENDING)


def about(hook: Hook) -> str:
    """Return a text that identifies a stall: the item, the time of its assignment, and the last activity."""
    item = hook.work_item
    times = (None if item is None else item.assigned_at, hook.last_activity)
    return " ".join(["" if item is None else item.bead_id, *("-" if t is None else text_of(t) for t in times)])


# The witness

_log = logging.getLogger("postroom")


class Round(Struct, frozen=True, kw_only=True):
    """The result of one check of all hooks; agents by name."""

    watched: tuple[str, ...] = ()  # agents with work
    stalled: tuple[str, ...] = ()  # agents with work and without activity for too long
    nudged: tuple[str, ...] = ()
    escalated: tuple[str, ...] = ()  # agents about which the mayor was notified
    human: tuple[str, ...] = ()  # items about which a human was notified
    damaged: tuple[str, ...] = ()  # hooks that cannot be read, and why
    failed: tuple[str, ...] = ()  # agents that could not be checked this time, and why

    def has_news_after(self, last: Round) -> bool:
        """Return whether anything was done, or an error is new since the last check."""
        wrong = (self.damaged, self.failed) != (last.damaged, last.failed)
        return bool(self.nudged or self.escalated or self.human) or wrong


class Witness:
    """A witness of the hooks of a state folder."""

    def __init__(
        self,
        chipset: Chipset,
        *,
        name: str = "witness",
        mayor: str = "mayor",
        human: str = "human",
        patience: Patience | None = None,
    ) -> None:
        self._chipset = chipset
        self._name = check_agent(name, "witness")
        self._mayor = check_agent(mayor, "mayor")
        self._human = check_agent(human, "human")
        self._patience = patience or chipset.patience

    def look(self) -> Round:
        """Check all hooks once. This is safe at any time, from any number of processes."""
        if not self._chipset.folder.exists(HOOKS):
            return Round()
        hooks, broken = self._chipset.hooks.all()
        for wrong in broken:
            _log.warning("a hook cannot be watched: %s", wrong.message)
        done: dict[str, list[str]] = {name: [] for name in Round.__struct_fields__}
        done["damaged"] = [wrong.message for wrong in broken]
        for hook in hooks:
            self._look_at(hook.agent_id, done)
        return Round(**{name: tuple(found) for name, found in done.items()})

    def _look_at(self, agent: str, done: dict[str, list[str]]) -> None:
        """Check one agent. An error must not leave the other agents unwatched."""
        try:
            with self._chipset.folder.lock():
                hook = self._chipset.hooks.get(agent)
                if hook.status in AT_WORK:
                    self._watch(hook, done)
                else:
                    self._chipset.watches.forget(agent)
                    if hook.status is Status.COMPLETED:
                        self._chipset.items.close(hook.item.bead_id)
        except PostroomError as trouble:
            _log.warning("%s could not be looked after: %s", agent, trouble)
            done["failed"].append(f"{agent}: {trouble}")

    # -- one agent, under the lock

    def _watch(self, hook: Hook, done: dict[str, list[str]]) -> None:
        agent, now = hook.agent_id, self._chipset.clock.now().wall
        done["watched"].append(agent)
        item = self._chipset.items.note(hook)
        watch = _unless_ahead(self._chipset.watches.get(hook), now)
        if not self._is_stalled(hook, watch, now):
            return
        done["stalled"].append(agent)
        watch = self._adopted(hook, watch or self._begin(hook, now), now)
        if watch.asked_at is not None and self._has_answered(hook, watch):
            watch = self._chipset.watches.keep(replace(watch, asked_at=None))
        if self._is_silent(watch, now):
            self._escalate(hook, item, watch, done)
            watch = self._chipset.watches.keep(replace(watch, escalated=True))
        if self._may_nudge(watch, now):
            self._nudge(hook, watch, now)
            done["nudged"].append(agent)

    def _is_stalled(self, hook: Hook, watch: StallWatch | None, now: datetime) -> bool:
        """Return whether an agent has stalled. A future or missing time counts from when it was first seen."""
        last = hook.last_activity or hook.item.assigned_at
        if last is None or last > now:
            if watch is None:
                self._begin(hook, now)
                return False
            last = watch.seen_at
        elif watch is None and now - last < timedelta(seconds=self._patience.stall_after):
            self._chipset.watches.forget(hook.agent_id)  # of a stall that is over
        return now - last >= timedelta(seconds=self._patience.stall_after)

    def _begin(self, hook: Hook, now: datetime) -> StallWatch:
        return self._chipset.watches.keep(StallWatch(agent=hook.agent_id, about=about(hook), seen_at=now))

    def _adopted(self, hook: Hook, watch: StallWatch, now: datetime) -> StallWatch:
        """Return the watch with a nudge of ours that it lacks, because we died before we recorded it.

        Such a nudge is not repeated.
        """
        slot = self._chipset.nudges.latest(watch.agent)
        if watch.nudged_at is not None or slot is None or fold(slot.sender) != fold(self._name):
            return watch
        is_recent = timedelta() <= now - slot.timestamp < timedelta(seconds=self._patience.nudge_every)
        is_of_this_stall = hook.last_activity is None or slot.timestamp > hook.last_activity
        if slot.type not in {HEALTH_CHECK, STALL_WARNING} or not is_recent or not is_of_this_stall:
            return watch
        return self._chipset.watches.keep(
            replace(watch, asked_at=slot.timestamp, nudged_at=slot.timestamp, by=slot.sender)
        )

    def _has_answered(self, hook: Hook, watch: StallWatch) -> bool:
        """Return whether the answer is in the slot of the witness that asked.

        Activity would have ended the stall.
        """
        answer = self._chipset.nudges.latest(watch.by)
        return (
            answer is not None
            and watch.asked_at is not None
            and answer.type == RESPONSE
            and fold(answer.sender) == fold(hook.agent_id)
            and answer.timestamp >= watch.asked_at
        )

    def _is_silent(self, watch: StallWatch, now: datetime) -> bool:
        if watch.asked_at is None or watch.escalated:
            return False
        return now - watch.asked_at >= timedelta(seconds=self._patience.for_answer(watch.agent))

    def _escalate(self, hook: Hook, item: Item, watch: StallWatch, done: dict[str, list[str]]) -> None:
        mail = self._chipset.mail
        asked_at = text_of(watch.asked_at or watch.seen_at)
        is_spent = item.restarts >= self._patience.most_restarts
        lines = [*facts(hook, item), f"nudged_at: {asked_at}", "", SPENT if is_spent else REASSIGN]
        subject = f"{hook.agent_id} is silent on {line_in(item.bead)}"
        mail.escalate(watch.by, self._mayor, subject, lines, hook.agent_id, about(hook))
        done["escalated"].append(hook.agent_id)
        if is_spent and item.human_told < item.restarts:
            mail.notify_human(watch.by, self._human, hook, item)
            self._chipset.items.human_knows(item)
            done["human"].append(item.bead)

    def _may_nudge(self, watch: StallWatch, now: datetime) -> bool:
        """Return whether it is time for a nudge.

        A nudge by another agent, maybe an abort, stays for one period.
        """
        every = timedelta(seconds=self._patience.nudge_every)
        if watch.nudged_at is not None:
            return now - watch.nudged_at >= every
        slot = self._chipset.nudges.latest(watch.agent)
        if slot is None or slot.type == RESPONSE or slot.timestamp > now or fold(slot.sender) == fold(self._name):
            return True
        return now - slot.timestamp >= every or now - watch.seen_at >= every

    def _nudge(self, hook: Hook, watch: StallWatch, now: datetime) -> None:
        kind = HEALTH_CHECK if watch.nudged_at is None else STALL_WARNING
        since = text_of(hook.last_activity) if hook.last_activity else "ever"
        message = f"No activity on {line_in(hook.item.bead_id)} since {since}."
        self._chipset.nudges.send(self._name, hook.agent_id, kind, message, requires_response=True)
        self._chipset.watches.keep(replace(watch, asked_at=watch.asked_at or now, nudged_at=now, by=self._name))


def _unless_ahead(watch: StallWatch | None, now: datetime) -> StallWatch | None:
    """Return the watch; None if its times are in the future, because the clock was set back."""
    if watch is None or max(watch.seen_at, watch.nudged_at or watch.seen_at) > now:
        return None
    return watch
