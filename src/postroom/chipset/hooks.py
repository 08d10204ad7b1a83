"""Hooks: `hooks/<agent>.json`, one work item for each agent; the transition table, and the starts of each item.

    empty → pending      only the mayor (or a dispatcher)
    pending → active     only the owner
    active → completed   only the owner
    completed → empty    the mayor, after checking the work
    active → empty       the mayor, to reassign
    pending → empty      the mayor, to reassign

No transition is skipped, and there are never two items on one hook. A transition is made under the folder's
lock: the hook is read, compared with what the caller saw, checked against the table and written. So of two
mayors that set one hook at the same time, exactly one succeeds.
"""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..errors import IllegalMove, Invalid, NotAllowed, StaleRevision, Unreadable
from ..model.codec import blake2b
from ..model.names import check_agent, fold
from ..model.values import check_label, check_line
from ..store.files.layouts.base import text_of, time_or_none
from .folder import ENDING, OWN, after, folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..clock import Clock
    from .folder import Fields, StateFolder


class Status(StrEnum):
    """The status of a hook."""

    EMPTY = "empty"
    PENDING = "pending"  # it has a work item; its owner has not started
    ACTIVE = "active"  # its owner is at work
    COMPLETED = "completed"  # its owner is done; the mayor has to check


AT_WORK = frozenset({Status.PENDING, Status.ACTIVE})  # there is something to do


class HookMove(NamedTuple):
    """One row of the transition table."""

    before: Status
    after: Status
    roles: frozenset[str]
    words: str


OWNER, MAYOR, DISPATCHER = "owner", "mayor", "dispatcher"
_MAYORS, _OWNER = frozenset({MAYOR}), frozenset({OWNER})
MOVES = (
    HookMove(Status.EMPTY, Status.PENDING, frozenset({MAYOR, DISPATCHER}), "only the mayor (or a dispatcher)"),
    HookMove(Status.PENDING, Status.ACTIVE, _OWNER, "only the owner"),
    HookMove(Status.ACTIVE, Status.COMPLETED, _OWNER, "only the owner"),
    HookMove(Status.COMPLETED, Status.EMPTY, _MAYORS, "the mayor, after checking the work"),
    HookMove(Status.ACTIVE, Status.EMPTY, _MAYORS, "the mayor, to reassign"),
    HookMove(Status.PENDING, Status.EMPTY, _MAYORS, "the mayor, to reassign"),
)
TABLE = {(move.before, move.after): move for move in MOVES}


class Roles:
    """The roles of agents. `mayor-a1b2c` is a mayor by its name; other agents can be assigned a role."""

    def __init__(self, assigned: Mapping[str, str] | None = None) -> None:
        self._assigned = {fold(name): role for name, role in (assigned or {}).items()}

    def of(self, name: str, owner: str) -> set[str]:
        """Return the roles of an agent for the hook of `owner`."""
        role = self._assigned.get(fold(name)) or fold(name).partition("-")[0]
        return {role, OWNER} if fold(name) == fold(owner) else {role}


def check_move(before: Status, after: Status, *, by: str, owner: str, roles: Roles) -> None:
    """Raise IllegalMove or NotAllowed, unless the table allows this transition to this agent."""
    move = TABLE.get((before, after))
    if move is None:
        legal = ", ".join(f"{one.before} → {one.after} ({one.words})" for one in MOVES if one.before is before)
        raise IllegalMove(f"the hook of {owner!r} is {before}: {before} → {after} is not allowed", hint=legal)
    if not move.roles & roles.of(by, owner):
        raise NotAllowed(f"{before} → {after} on the hook of {owner!r}: {move.words}, not {by!r}", field="by")


# The starts of each work item in progress, in `.postroom/`. A start is an agent and the time of the assignment,
# so the mayor that made it and a witness that sees it note the same start, and it counts once.

_ITEMS = (OWN, "witness", "items")


class Item(Struct, frozen=True, kw_only=True):
    """The starts of one work item."""

    bead: str
    starts: tuple[str, ...] = ()  # each as `time agent`
    human_told: int = -1  # the restarts at the time of the last notice to a human

    @property
    def restarts(self) -> int:
        return max(0, len(self.starts) - 1)

    def seconds_since_start(self, now: datetime) -> float:
        """Return the seconds since the last assignment.

        A start in the future is from a wrong clock, and ignored.
        """
        times = [time for start in self.starts if (time := time_or_none(start.partition(" ")[0])) is not None]
        return min(((now - time).total_seconds() for time in times if time <= now), default=math.inf)


class Items:
    """The items in progress of a state folder. Call under its lock."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def get(self, bead: str) -> Item:
        """Return the record of an item. Where it cannot be read, the count starts again."""
        return self._folder.read_as(Item, *_ITEMS, _file(bead)) or Item(bead=bead)

    def note(self, hook: Hook) -> Item:
        """Record the start of the item on a hook."""
        item, at = self.get(hook.item.bead_id), hook.item.assigned_at
        start = f"{'' if at is None else text_of(at)} {hook.agent_id}"
        return item if start in item.starts else self._write(replace(item, starts=(*item.starts, start)))

    def human_knows(self, item: Item) -> Item:
        """Record that a human was notified at the present number of restarts."""
        return self._write(replace(item, human_told=item.restarts))

    def close(self, bead: str) -> None:
        """Delete the record of a finished item."""
        self._folder.remove(*_ITEMS, _file(bead))

    def _write(self, item: Item) -> Item:
        self._folder.write(item, *_ITEMS, _file(item.bead))
        return item


def _file(bead: str) -> str:
    """Return the name of an item's file: a hash, because a bead may have any name."""
    return blake2b(bead.encode(), digest_size=16).hexdigest() + ENDING


# Hooks

HOOKS = "hooks"
LONGEST_BEAD, LONGEST_TITLE = 200, 1000
_FIELDS = frozenset({"agent_id", "status", "work_item", "last_activity"})
_ITEM_FIELDS = frozenset({"bead_id", "title", "assigned_at"})


class WorkItem(Struct, frozen=True, kw_only=True):
    """The work item on a hook."""

    bead_id: str
    title: str = ""
    assigned_at: datetime | None = None
    extra: dict[str, Any] = {}  # fields of other programs; they are kept

    def to_dict(self) -> Fields:
        assigned = None if self.assigned_at is None else text_of(self.assigned_at)
        return self.extra | {"bead_id": self.bead_id, "title": self.title, "assigned_at": assigned}


class Hook(Struct, frozen=True, kw_only=True):
    """The hook of one agent, as it was read."""

    agent_id: str
    status: Status = Status.EMPTY
    work_item: WorkItem | None = None
    last_activity: datetime | None = None
    extra: dict[str, Any] = {}

    @property
    def item(self) -> WorkItem:
        """The work item; raises IllegalMove if there is none."""
        if self.work_item is None:
            raise IllegalMove(str(self), field="agent")
        return self.work_item

    def to_dict(self) -> Fields:
        """Return the fields of the file."""
        return self.extra | {
            "agent_id": self.agent_id,
            "status": str(self.status),
            "work_item": None if self.work_item is None else self.work_item.to_dict(),
            "last_activity": None if self.last_activity is None else text_of(self.last_activity),
        }

    def __str__(self) -> str:
        item = self.work_item
        on_it = "" if item is None else f" with {item.bead_id!r}" + (f" ({item.title})" if item.title else "")
        return f"the hook of {self.agent_id!r} is {self.status}{on_it}"


class Hooks:
    """All hooks of a state folder.

    `by` names the agent that makes a transition, and is believed: files cannot prove a name. With `expect`, a
    transition is made only if the hook is still as it was read; else it raises StaleRevision.
    """

    def __init__(self, folder: StateFolder, clock: Clock, roles: Roles) -> None:
        self._folder = folder
        self._clock = clock
        self._roles = roles

    # -- looking

    def get(self, agent: str) -> Hook:
        """Return the hook of an agent; empty if it was never written. Raise Unreadable if its file is no hook."""
        name = check_agent(agent, "agent")
        file = self._file(name)
        fields = self._folder.read(HOOKS, file)
        return Hook(agent_id=name) if fields is None else _hook_in(fields, file)

    def all(self) -> tuple[list[Hook], list[Unreadable]]:
        """Return every readable hook, and the errors of the others."""
        hooks: list[Hook] = []
        broken: list[Unreadable] = []
        for file in self._folder.names(HOOKS):
            try:
                fields = self._folder.read(HOOKS, file)
                if fields is not None:
                    hooks.append(_hook_in(fields, file))
            except Unreadable as wrong:
                broken.append(wrong)
        return hooks, broken

    def expected(self, agent: str, expect: Hook | None) -> Hook:
        """Return the hook, if it still equals `expect`, or if `expect` is None."""
        hook = self.get(agent)
        if expect is not None and hook != expect:
            raise StaleRevision(
                f"{hook}; the caller expected {expect.status}",
                field="agent",
                hint="read the hook again, then retry",
            )
        return hook

    # -- moving

    def set(self, agent: str, bead_id: str, title: str = "", *, by: str, expect: Hook | None = None) -> Hook:
        """Put a work item on an empty hook. The error for a busy hook names its item."""
        bead = check_label(bead_id, "bead_id", LONGEST_BEAD)
        line = check_line(title, "title", LONGEST_TITLE)
        with self._folder.lock():
            hook = self.expected(agent, expect)
            if hook.status is not Status.EMPTY:
                raise IllegalMove(str(hook), field="agent", hint="a hook holds one item: clear it first")
            now = self._now(hook)
            item = WorkItem(bead_id=bead, title=line, assigned_at=now)
            return self._move(hook, Status.PENDING, by, work_item=item)

    def activate(self, agent: str, *, by: str | None = None, expect: Hook | None = None) -> Hook:
        """Start work on the item, as the owner of the hook."""
        return self._step(agent, Status.ACTIVE, agent if by is None else by, expect)

    def complete(self, agent: str, *, by: str | None = None, expect: Hook | None = None) -> Hook:
        """Complete the work on the item, as the owner of the hook."""
        return self._step(agent, Status.COMPLETED, agent if by is None else by, expect)

    def clear(self, agent: str, *, by: str, expect: Hook | None = None) -> Hook:
        """Take the item off the hook, as the mayor. The file stays.

        An unreadable file is moved to the quarantine first.
        """
        with self._folder.lock():
            try:
                hook = self.expected(agent, expect)
            except Unreadable:
                return self._start_over(agent, by)
            return self._move(hook, Status.EMPTY, by, work_item=None)

    def restart(self, agent: str, *, by: str, expect: Hook | None = None) -> Hook:
        """Clear the hook and set the same item again, in one write, so that the item cannot be lost in between."""
        # One write: between two, a crash would leave the hook without its item.
        with self._folder.lock():
            hook = self.expected(agent, expect)
            check_move(hook.status, Status.EMPTY, by=by, owner=hook.agent_id, roles=self._roles)
            item = replace(hook.item, assigned_at=self._now(hook))
            return self._move(replace(hook, status=Status.EMPTY), Status.PENDING, by, work_item=item)

    def touch(self, agent: str) -> Hook:
        """Record that the owner is active. Refuse an empty or completed hook."""
        with self._folder.lock():
            hook = self.get(agent)
            if hook.status not in AT_WORK:
                raise IllegalMove(str(hook), field="agent", hint="only a hook with unfinished work can be touched")
            return self._write(replace(hook, last_activity=self._now(hook)))

    # -- below

    def _step(self, agent: str, status: Status, by: str, expect: Hook | None) -> Hook:
        with self._folder.lock():
            hook = self.expected(agent, expect)
            return self._move(hook, status, by, work_item=hook.work_item)

    def _move(self, hook: Hook, status: Status, by: str, *, work_item: WorkItem | None) -> Hook:
        """Check and write a transition. Call under the lock."""
        by = check_agent(by, "by")
        check_move(hook.status, status, by=by, owner=hook.agent_id, roles=self._roles)
        return self._write(replace(hook, status=status, work_item=work_item, last_activity=self._now(hook)))

    def _write(self, hook: Hook) -> Hook:
        self._folder.write(hook.to_dict(), HOOKS, self._file(hook.agent_id))
        return hook

    def _start_over(self, agent: str, by: str) -> Hook:
        empty = Hook(agent_id=check_agent(agent, "agent"))
        check_move(Status.PENDING, Status.EMPTY, by=by, owner=empty.agent_id, roles=self._roles)
        self._folder.set_aside(HOOKS, self._file(empty.agent_id))
        return self._write(replace(empty, last_activity=self._clock.now().wall))

    def _now(self, hook: Hook) -> datetime:
        """Return the time, always later than the last activity, so that every write changes the hook."""
        return after(self._clock.now().wall, hook.last_activity)

    def _file(self, agent: str) -> str:
        return self._folder.spelling(agent, HOOKS, ending=ENDING)


def _hook_in(fields: Fields, file: str) -> Hook:
    """Return the hook in a file, or raise Unreadable."""
    agent, status = fields.get("agent_id"), fields.get("status")
    if not isinstance(agent, str) or not _is_of(agent, file):
        raise Unreadable(f"{HOOKS}/{file}: it says it is of {agent!a}")
    if status not in list(Status):  # a list, because it may be unhashable
        raise Unreadable(f"{HOOKS}/{file}: {status!a} is not a status")
    item = _item_in(fields.get("work_item"), file)
    if (item is None) != (status == Status.EMPTY):
        what = "no work item" if item is None else "a work item"
        raise Unreadable(f"{HOOKS}/{file}: it is {status} with {what}")
    return Hook(
        agent_id=agent,
        status=Status(status),
        work_item=item,
        last_activity=time_or_none(fields.get("last_activity")),
        extra={name: value for name, value in fields.items() if name not in _FIELDS},
    )


def _is_of(agent: str, file: str) -> bool:
    try:
        return fold(folder_of(agent)) == fold(file.removesuffix(ENDING))
    except Invalid:
        return False


def _item_in(value: Any, file: str) -> WorkItem | None:
    if value is None:
        return None
    bead = value.get("bead_id") if isinstance(value, dict) else None
    if not isinstance(bead, str) or not bead:
        raise Unreadable(f"{HOOKS}/{file}: its work item has no bead_id")
    title = value.get("title")
    return WorkItem(
        bead_id=bead,
        title=title if isinstance(title, str) else "",
        assigned_at=time_or_none(value.get("assigned_at")),
        extra={name: what for name, what in value.items() if name not in _ITEM_FIELDS},
    )
