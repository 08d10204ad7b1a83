"""The mail of a session, wherever that is: as all hooks see it, and what a session wants to know besides."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import PostroomError, Unreadable
from ..hosts.sessions import BEAT
from ..hosts.wording import MOST_POINTERS, PERSON, orders
from ..model.content import content_of
from ..model.escalation import ESCALATION
from ..model.message import Priority, origin_word
from ..model.names import HUMAN, fold
from ..model.parts import Part
from ..model.task import TASK, TASK_UPDATE, TaskState
from ..whereabouts import variable
from ..wire.inbox_entries import entry_of
from ..wire.plain import plain_agent
from .chipset_quick import may_have_nudge, may_have_work, state_of
from .hook_quick import exchange, folder_of, socket_of
from .hook_sources import MOST, FileSource, RoomSource, SocketSource
from .places import whole_address, whole_path
from .waiting import steps_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..hosts.sessions import Session
    from ..model.message import Message
    from .context import Context
    from .hook_sources import Entry

L = TypeVar("L")
MOST_SEEN = 100  # letters among which those are looked for that were shown before
_WITH_STEPS = [TASK, TASK_UPDATE, ESCALATION]
_PRESSING = frozenset({"high", "urgent"})


def place_of_mail(context: Context) -> tuple[str, str, str]:
    """Where the mail of a session is that begins now: a room's address, a socket, a folder of inbox files."""
    if folder := folder_of(context.values):
        return "", "", whole_path(folder)
    socket, is_room_named = socket_of(context.values), bool(variable("POSTROOM_STORE"))
    room = whole_address(context.settings.store) if is_room_named or not socket else ""
    return room, whole_path(socket) if socket and _answers(socket, is_room_named=is_room_named) else "", ""


def _answers(socket: str, *, is_room_named: bool) -> bool:
    """Is a daemon there? One that is away matters only where no room is named, too."""
    try:
        exchange(socket, b'{"action":"ping"}\n', 1)
    except OSError as away:
        if not is_room_named:
            raise PostroomError(f"no post room answers at {socket}: {away.strerror or away}") from away
        return False
    return True


def source_of(context: Context, session: Session, *, is_new: bool = False) -> HostRoom | HostSocket | HostFile:
    """The mail of a session. A new one's room is opened as it was named, and made where there is none."""
    context.values["as"] = session.agent
    if session.socket and (is_new or _answers(session.socket, is_room_named=bool(session.room))):
        return HostSocket(session.socket, session.agent)
    if session.folder:
        return HostFile(session.folder, session.agent)
    if not is_new:
        context.values["room"] = session.room
    return HostRoom(context)


def program_of(context: Context, session: Session, name: str) -> str:
    """What runs the agent of this name; empty where nobody of that name is there, or it does not say."""
    try:
        if session.socket:
            (said,) = SocketSource(session.socket, name).ask({"action": "agent", "name": name})
            found = said["agent"]
        elif session.room:
            found = plain_agent(context.room.agent(name))
        else:
            return ""
    except PostroomError:
        return ""
    is_there = not found["presence"]["left"] and found["presence"]["warmth"] not in {"expired", "gone"}
    return str(found["card"]["program"]) if is_there else ""


class HostRoom(RoomSource):
    """The room itself."""

    def register(self, name: str, program: str) -> None:
        super().register(name, program)
        self.context.mailbox.heartbeat(poll_interval=BEAT)

    def begin_rings(self, way: str, left: int) -> None:
        """From now on the session is rung for. What it was told of in a number counts as rung for, unless more has
        come since.
        """
        box = self.context.mailbox
        if not box.begin_rings(way) and left > 0:
            box.try_ring(way, may_ring=lambda: box.counts()["total"] == left)

    def waiting(self) -> tuple[list[Entry], int]:
        box, (_, total) = self.context.mailbox, super().waiting()
        if total > MOST:
            steps = box.check(MOST, peek=True, kinds=_WITH_STEPS)
            self.letters = _steps_first(self.letters, steps, lambda one: one.id, lambda one: one.priority)
        return [self._entry(letter.message) for letter in self.letters], total

    def seen(self) -> tuple[list[Entry], int]:
        box = self.context.mailbox
        stats = box.stats()
        found = box.check(_enough(stats.total_unread), unread_only=False, peek=True) if stats.seen else []
        letters = [letter.message for letter in found if letter.delivery.read_at]
        return [self._entry(letter) for letter in letters], stats.seen

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:
        """Of a chipset's state folder; other rooms have no hooks and nudges."""
        agent, state = self.context.me, state_of(whole_address(self.context.settings.store))
        has_work = bool(state) and may_have_work(state, agent, since, only_new=only_new)
        has_nudge = bool(state) and may_have_nudge(state, agent, since, only_new=only_new)
        if not has_work and not has_nudge:
            return ""
        from ..chipset import Chipset, Status  # noqa: PLC0415 - most rooms are no chipset's

        chipset, item = Chipset(state, room=self.context.room), None
        if has_work:
            with suppress(Unreadable):  # the witness tells of it
                hook = chipset.hooks.get(agent)
                item = hook.work_item if hook.status is Status.PENDING else None
        nudge = chipset.nudges.unhandled(agent) if has_nudge else None
        return orders(
            agent,
            None if item is None else item.to_dict(),
            None if nudge is None else nudge.to_dict(),
            nonce,
        )

    def asks(self) -> bool:
        if any(letter.priority >= Priority.HIGH for letter in self.letters):
            return True
        ids = {letter.id for letter in self.letters if letter.kind in _WITH_STEPS}
        return bool(ids) and any(step["letter"] in ids for step in steps_for(self.context.mailbox))

    def leave(self) -> None:
        self.context.mailbox.leave()

    def _entry(self, letter: Message) -> Entry:
        """In the words of the inbox design, with what it is and whether its sender is proven."""
        is_persons = letter.proven and fold(letter.sender) == fold(self.context.room.settings.human)
        more = {"from": letter.origin, "kind": letter.kind, PERSON: is_persons}
        return entry_of(letter, self.context.mailbox.name) | more


class HostSocket(SocketSource):
    """A daemon, in our own words: they say more of a letter than agent-inbox's."""

    def register(self, name: str, program: str) -> None:
        super().register(name, program)
        self.ask({"action": "heartbeat", "agent_id": self.agent, "poll_interval": BEAT})

    def begin_rings(self, way: str, left: int) -> None:
        """As in a room."""
        self.ask({"action": "ring", "agent_id": self.agent, "way": way, "unread": left})

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check", "agent_id": self.agent, "limit": MOST, "peek": True}
        found, counted = self.ask(check, {"action": "counts", "agent_id": self.agent})
        self.letters, total = found["letters"], max(counted["total"], len(found["letters"]))
        if total > MOST:
            (more,) = self.ask(check | {"kinds": _WITH_STEPS})
            self.letters = _steps_first(self.letters, more["letters"], lambda one: str(one["id"]), _priority)
        return [_entry(letter) for letter in self.letters], total

    def seen(self) -> tuple[list[Entry], int]:
        (stats,) = self.ask({"action": "stats", "agent_id": self.agent})
        if not stats["seen"]:
            return [], 0
        limit = _enough(stats["total_unread"])
        check = {"action": "check", "agent_id": self.agent, "limit": limit, "peek": True, "unread_only": False}
        (found,) = self.ask(check)
        return [_entry(letter) for letter in found["letters"] if letter["delivery"]["read_at"]], stats["seen"]

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002 - a daemon tells of mail
        return ""

    def asks(self) -> bool:
        """By what each letter says: whose step a task waits for is not asked."""
        return any(letter["priority"] in _PRESSING or _opens(letter) for letter in self.letters)

    def show(self, count: int, host: str, where: str) -> None:
        if ids := [letter["id"] for letter in self.letters[:count]]:
            self.ask({"action": "shown", "agent_id": self.agent, "message_ids": ids, "host": host, "where": where})

    def leave(self) -> None:
        self.ask({"action": "goodbye", "agent_id": self.agent})


class HostFile(FileSource):
    """An agent's inbox.jsonl. What was shown is gone from it, so nothing is shown again."""

    def register(self, name: str, program: str) -> None:
        """Nobody hears it; and what is shown from the first on is taken."""

    def begin_rings(self, way: str, left: int) -> None:
        """Nobody rings."""

    def waiting(self) -> tuple[list[Entry], int]:
        """Whoever may write the file may write any name into it."""
        entries, total = super().waiting()
        return [entry | {"from": f"{entry.get('from')} (unverified)", PERSON: False} for entry in entries], total

    def seen(self) -> tuple[list[Entry], int]:
        return [], 0

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002 - no state folder
        return ""

    def asks(self) -> bool:
        return any(entry.get("importance") in _PRESSING for entry in self.entries)

    def show(self, count: int, host: str, where: str) -> None:  # noqa: ARG002 - nobody keeps it
        self.mark(count)

    def leave(self) -> None:
        """Nobody hears it."""


def _steps_first(
    letters: Sequence[L], steps: Sequence[L], id: Callable[[L], str], priority: Callable[[L], Priority]
) -> list[L]:
    """Where more waits than is looked at, what may ask for a step is not left behind what only tells."""
    first = {id(one) for one in steps}
    every = {id(one): one for one in (*letters, *steps)}.values()
    return sorted(every, key=lambda one: (-priority(one), id(one) not in first))[:MOST]


def _priority(letter: Mapping[str, Any]) -> Priority:
    return Priority[letter["priority"].upper()]


def _enough(unread: int) -> int:
    """How many letters to look at, so that some of those are among them that were shown before: the unread come
    first. Not more than that: letters may be long.
    """
    return min(unread + MOST_POINTERS, MOST_SEEN)


def _opens(letter: Mapping[str, Any]) -> bool:
    """Does it ask for a step: a new task, a question about one, an escalation?"""
    note = letter["task"] or {}
    is_question = letter["kind"] == TASK_UPDATE and note.get("state") == TaskState.INPUT_REQUIRED
    return is_question or letter["kind"] in {TASK, ESCALATION}


def _entry(letter: Mapping[str, Any]) -> Entry:
    """A letter of ours in the words of the inbox design. A daemon does not say what it calls the person: by the
    usual name nobody else is.
    """
    said = {
        "messageId": letter["id"],
        "kind": letter["kind"],
        "from": f"{letter['sender']} ({origin_word(letter['sender'], proven=letter['proven'])})",
        "subject": letter["subject"],
        "content": content_of([Part(**part) for part in letter["parts"]]),
        "threadTag": letter["thread_tag"],
        "importance": letter["priority"],
        "timestamp": letter["created_at"],
        PERSON: letter["proven"] and letter["sender"] == HUMAN,
    }
    return {name: value for name, value in said.items() if value is not None}
