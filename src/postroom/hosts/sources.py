"""Where hooks find mail: in a room, behind a daemon's socket, or in an inbox.jsonl file.

RoomSource, SocketSource and FileSource serve the two hooks that speak as agent-inbox does. HostRoom, HostSocket
and HostFile extend them for the sessions of a host, which are also shown tasks, the orders of a chipset and
letters that were read and not done. SocketAlerts is a mailbox behind a socket, as far as a waiter needs one.

A source prints nothing. Its caller prints first and calls `mark` or `show` afterwards: a letter is shown twice
rather than never.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ..core.alerts import LOOK_EVERY, NOT_NOW, SOON
from ..environment import AUTH_TOKEN, variable
from ..errors import Busy, PostroomError, Unreadable
from ..formats.inbox import entry_of, entry_of_plain, entry_of_record, read_line
from ..formats.plain import plain
from ..model.alert import Rung
from ..model.codec import convert, encode
from ..model.message import Priority, origin_word
from ..model.names import HUMAN, fold
from ..model.task import ESCALATION, TASK, TASK_UPDATE, TaskState
from .inbox_files import InboxFolder
from .quick import exchange, may_have_nudge, may_have_work, state_of
from .sessions import BEAT
from .text import MOST_POINTERS, PERSON, orders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..letter import Letter
    from ..mailbox import Mailbox
    from ..model.message import Message
    from ..room import Room
    from ..settings import Settings
    from .sessions import Session


MOST = 20  # letters read for one prompt
MOST_SEEN = 100  # letters among which to look for those that were shown before
AGENT_INBOX_HOST = "claude"  # the host that runs agent-inbox's hooks
SPARE = 20.0  # seconds in which a daemon answers, besides those for which it waits
Entry = dict[str, Any]  # a letter in the words of the inbox design
L = TypeVar("L")
_STEP_KINDS = [TASK, TASK_UPDATE, ESCALATION]
_PRESSING = frozenset({"high", "urgent"})


class Access(Protocol):
    """The services that a command offers to its hook. Room and mailbox are opened when they are first used."""

    @property
    def me(self) -> str: ...
    @property
    def room(self) -> Room: ...
    @property
    def mailbox(self) -> Mailbox: ...
    @property
    def settings(self) -> Settings: ...

    @property
    def room_address(self) -> str:
        """The room's address, written so that it means the same in every working folder."""
        ...

    def choose(self, agent: str, room: str = "") -> None:
        """Use the mailbox of this agent, in the room at this address where one is passed."""
        ...

    def letters_needing_steps(self) -> Iterable[str]:
        """Return the ids of letters that go on only by a step of this agent."""
        ...

    def warn(self, text: str) -> None:
        """Print a line on standard error."""
        ...


class Source(Protocol):
    """The mail of one agent, for the hooks that speak as agent-inbox does."""

    def register(self, name: str, program: str) -> None: ...
    def waiting(self) -> tuple[list[Entry], int]:
        """Return some unread letters, and how many are unread in all."""
        ...

    def mark(self, count: int) -> None:
        """Mark the first `count` of the letters that `waiting` returned as shown."""
        ...


# -- in agent-inbox's words


class RoomSource:
    """The mail in a room that this process opens itself."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.letters: list[Letter] = []

    def register(self, name: str, program: str) -> None:
        from ..core.agents import register_again  # noqa: PLC0415 - only when a session starts

        room, card = self.access.room, {"display_name": name or None, "program": program}
        register_again(room.core, room.principal, self.access.me, card)

    def waiting(self) -> tuple[list[Entry], int]:
        box = self.access.mailbox
        self.letters = box.check(MOST, peek=True)
        total = len(self.letters) if len(self.letters) < MOST else box.counts()["total"]
        return [entry_of(letter.message, box.name) for letter in self.letters], max(total, len(self.letters))

    def mark(self, count: int) -> None:
        self.show(count, AGENT_INBOX_HOST, "prompt")

    def show(self, count: int, host: str, event: str) -> None:
        """Record that the first `count` letters were put before a model."""
        if count:
            self.access.mailbox.mark_shown([letter.id for letter in self.letters[:count]], host, event)


class SocketSource:
    """The mail behind a daemon's socket, in agent-inbox's words."""

    patience = 0.0  # seconds for an answer, where that is more than a session waits

    def __init__(self, path: str, agent: str) -> None:
        self._path = path
        self.agent = agent
        self.letters: list[dict[str, Any]] = []

    def register(self, name: str, program: str) -> None:
        request = {"action": "register_agent", "agentId": self.agent, "program": program}
        self.ask(request | ({"name": name} if name else {}))

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check_inbox", "agentId": self.agent, "unreadOnly": True, "limit": MOST}
        found, counted = self.ask(check, {"action": "counts", "agentId": self.agent})
        self.letters = found["messages"]
        entries = [entry_of_record(record) for record in self.letters]
        return entries, max(counted.get("total", 0), len(self.letters))

    def mark(self, count: int) -> None:
        ids = [letter["id"] for letter in self.letters[:count]]
        requests = [{"action": "read", "agentId": self.agent, "messageId": id} for id in ids]
        if requests:
            self.ask(*requests)

    def ask(self, *requests: Mapping[str, Any]) -> list[Any]:
        """Send requests to the daemon and return its answers; raise what it refuses."""
        token = variable(AUTH_TOKEN)
        login = [{"action": "authenticate", "token": token}] if token else []
        every = [*login, *requests]
        lines = b"".join(encode(request) + b"\n" for request in every)
        received = exchange(self._path, lines, len(every), self.patience)
        replies = [msgspec.json.decode(line) for line in received.splitlines()]
        for reply in replies:
            if not reply.get("ok"):
                raise (Busy if reply.get("retryable") else PostroomError)(_in_a_hook(str(reply.get("error"))))
        return replies[len(login) :]


def _in_a_hook(text: str) -> str:
    """Replace a daemon's hint about a token by one that the person who set up the hook can follow."""
    return re.sub(r"show it: the action `authenticate`[^)]*", f"set {AUTH_TOKEN}", text)


class FileSource:
    """The mail in an agent's inbox.jsonl. It cannot register an agent, and shown letters leave the file."""

    def __init__(self, folder: InboxFolder, agent: str) -> None:
        self._folder = folder
        self.agent = agent
        self._lines: list[bytes] = []
        self._letters: list[bytes] = []
        self.entries: list[Entry] = []

    def register(self, name: str, program: str) -> None:
        """Do nothing: there is nobody to register with."""

    def waiting(self) -> tuple[list[Entry], int]:
        self._lines = self._folder.read(self.agent)
        read = [(line, entry) for line in self._lines if (entry := read_line(line)) is not None]
        self._letters = [line for line, _ in read]
        self.entries = [entry for _, entry in read[:MOST]]
        return self.entries, len(read)

    def mark(self, count: int) -> None:
        """Remove the letters that were shown, and all lines that are no letters."""
        self._folder.remove(self.agent, frozenset(self._lines) - frozenset(self._letters[count:]))


# -- for the sessions of a host


def daemon_answers(socket: str, *, is_room_named: bool) -> bool:
    """Return whether a daemon listens. One that is away is an error only where no room is named besides."""
    try:
        exchange(socket, b'{"action":"ping"}\n', 1)
    except OSError as away:
        if not is_room_named:
            raise PostroomError(f"no post room answers at {socket}: {away.strerror or away}") from away
        return False
    return True


def source_of(access: Access, session: Session, *, is_new: bool = False) -> HostRoom | HostSocket | HostFile:
    """Return the mail of a session. A new session's room is opened as it was named, and made if need be."""
    access.choose(session.agent)
    if session.socket and (is_new or daemon_answers(session.socket, is_room_named=bool(session.room))):
        return HostSocket(session.socket, session.agent)
    if session.folder:
        return HostFile(InboxFolder(session.folder), session.agent)
    if not is_new:
        access.choose(session.agent, session.room)
    return HostRoom(access)


def program_of(access: Access, session: Session, name: str) -> str:
    """Return the program that runs the agent of this name; empty where there is no such agent or program."""
    try:
        if session.socket:
            (reply,) = SocketSource(session.socket, name).ask({"action": "agent", "name": name})
            found = reply["agent"]
        elif session.room:
            found = plain(access.room.agent(name))
        else:
            return ""
    except PostroomError:
        return ""
    is_there = not found["presence"]["left"] and found["presence"]["warmth"] not in {"expired", "gone"}
    return str(found["card"]["program"]) if is_there else ""


class HostRoom(RoomSource):
    """The mail of a session in a room that this process opens itself."""

    def register(self, name: str, program: str) -> None:
        super().register(name, program)
        self.access.mailbox.heartbeat(poll_interval=BEAT)

    def begin_alerts(self, channel: str, left: int) -> None:
        """Alert the session from now on.

        The `left` letters of which it was shown only the number count as alerted, unless more have come since.
        """
        box = self.access.mailbox
        if not box.begin_alerts(channel) and left > 0:
            box.next_alert(channel, may_alert=lambda: box.counts()["total"] == left)

    def waiting(self) -> tuple[list[Entry], int]:
        box, (_, total) = self.access.mailbox, super().waiting()
        if total > MOST:
            steps = box.check(MOST, peek=True, kinds=_STEP_KINDS)
            self.letters = _steps_first(self.letters, steps, lambda one: one.id, lambda one: one.priority)
        return [self._entry(letter.message) for letter in self.letters], total

    def seen(self) -> tuple[list[Entry], int]:
        box = self.access.mailbox
        stats = box.stats()
        found = box.check(_enough(stats.total_unread), unread_only=False, peek=True) if stats.seen else []
        letters = [letter.message for letter in found if letter.delivery.read_at]
        return [self._entry(letter) for letter in letters], stats.seen

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:
        """Return the orders in a chipset's state folder; other rooms have none."""
        agent, state = self.access.me, state_of(self.access.room_address)
        has_work = bool(state) and may_have_work(state, agent, since, only_new=only_new)
        has_nudge = bool(state) and may_have_nudge(state, agent, since, only_new=only_new)
        if not has_work and not has_nudge:
            return ""
        from ..chipset import Chipset, Status  # noqa: PLC0415 - most rooms are not a chipset's

        chipset, item = Chipset(state, room=self.access.room), None
        if has_work:
            with suppress(Unreadable):  # the witness reports it
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
        ids = {letter.id for letter in self.letters if letter.kind in _STEP_KINDS}
        return bool(ids) and any(id in ids for id in self.access.letters_needing_steps())

    def leave(self) -> None:
        self.access.mailbox.leave()

    def _entry(self, message: Message) -> Entry:
        """Return a message in the words of the inbox design, with its kind and whether its sender is proven."""
        is_persons = message.proven and fold(message.sender) == fold(self.access.room.settings.human)
        more = {"from": message.origin, "kind": message.kind, PERSON: is_persons}
        return entry_of(message, self.access.mailbox.name) | more


class HostSocket(SocketSource):
    """The mail of a session behind a daemon's socket, in Postroom's own protocol.

    That has more fields of a letter than agent-inbox's.
    """

    def register(self, name: str, program: str) -> None:
        super().register(name, program)
        self.ask({"action": "heartbeat", "agent_id": self.agent, "poll_interval": BEAT})

    def begin_alerts(self, channel: str, left: int) -> None:
        """Let the daemon alert the session from now on; see HostRoom."""
        self.ask({"action": "ring", "agent_id": self.agent, "way": channel, "unread": left})

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check", "agent_id": self.agent, "limit": MOST, "peek": True}
        found, counted = self.ask(check, {"action": "counts", "agent_id": self.agent})
        self.letters, total = found["letters"], max(counted["total"], len(found["letters"]))
        if total > MOST:
            (more,) = self.ask(check | {"kinds": _STEP_KINDS})
            self.letters = _steps_first(
                self.letters,
                more["letters"],
                lambda one: str(one["id"]),
                lambda one: Priority[one["priority"].upper()],
            )
        return [host_entry(letter) for letter in self.letters], total

    def seen(self) -> tuple[list[Entry], int]:
        (stats,) = self.ask({"action": "stats", "agent_id": self.agent})
        if not stats["seen"]:
            return [], 0
        limit = _enough(stats["total_unread"])
        check = {"action": "check", "agent_id": self.agent, "limit": limit, "peek": True, "unread_only": False}
        (found,) = self.ask(check)
        return [host_entry(letter) for letter in found["letters"] if letter["delivery"]["read_at"]], stats["seen"]

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002 - a daemon has mail only
        return ""

    def asks(self) -> bool:
        """Decide by each letter alone: the daemon is not asked whose step a task waits for."""
        return any(letter["priority"] in _PRESSING or _opens(letter) for letter in self.letters)

    def show(self, count: int, host: str, event: str) -> None:
        if ids := [letter["id"] for letter in self.letters[:count]]:
            self.ask({"action": "shown", "agent_id": self.agent, "message_ids": ids, "host": host, "where": event})

    def leave(self) -> None:
        self.ask({"action": "goodbye", "agent_id": self.agent})


class HostFile(FileSource):
    """The mail of a session in an inbox.jsonl file. Shown letters leave it, so nothing is shown again."""

    def begin_alerts(self, channel: str, left: int) -> None:
        """Do nothing: a file sends no alerts."""

    def waiting(self) -> tuple[list[Entry], int]:
        """Return the entries as unverified: every program that may write the file may write any name into it."""
        entries, total = super().waiting()
        return [entry | {"from": f"{entry.get('from')} (unverified)", PERSON: False} for entry in entries], total

    def seen(self) -> tuple[list[Entry], int]:
        return [], 0

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002 - no state folder
        return ""

    def asks(self) -> bool:
        return any(entry.get("importance") in _PRESSING for entry in self.entries)

    def show(self, count: int, host: str, event: str) -> None:  # noqa: ARG002 - a file does not keep it
        self.mark(count)

    def leave(self) -> None:
        """Do nothing: a file holds no agents."""


def _steps_first(
    letters: Sequence[L], steps: Sequence[L], id: Callable[[L], str], priority: Callable[[L], Priority]
) -> list[L]:
    """Merge the first letters with those that may need a step, so that these are not cut off behind mere news."""
    first = {id(one) for one in steps}
    every = {id(one): one for one in (*letters, *steps)}.values()
    return sorted(every, key=lambda one: (-priority(one), id(one) not in first))[:MOST]


def _enough(unread: int) -> int:
    """Return how many letters to read so that some that were shown before are among them.

    Unread letters come first. The number is bounded because letters may be long.
    """
    return min(unread + MOST_POINTERS, MOST_SEEN)


def _opens(letter: Mapping[str, Any]) -> bool:
    """Return whether a letter asks for a step: a new task, a question about one, an escalation."""
    task = letter["task"] or {}
    is_question = letter["kind"] == TASK_UPDATE and task.get("state") == TaskState.INPUT_REQUIRED
    return is_question or letter["kind"] in {TASK, ESCALATION}


def host_entry(letter: Mapping[str, Any]) -> Entry:
    """Return a letter of Postroom's protocol in the words of the inbox design.

    A daemon does not say what it calls the person, so only the default name counts as the person's.
    """
    return entry_of_plain(letter) | {
        "kind": letter["kind"],
        "from": f"{letter['sender']} ({origin_word(letter['sender'], proven=letter['proven'])})",
        PERSON: letter["proven"] and letter["sender"] == HUMAN,
    }


# -- for the waiter of a session


class SocketAlerts(SocketSource):
    """The alerts of a mailbox behind a daemon's socket: the daemon waits and decides, and the waiter alerts.

    A daemon that is away comes back; until then there is nothing to alert for.
    """

    patience = LOOK_EVERY + SPARE

    def wait_for_alert(self, way: str, timeout: float, *, may_alert: Callable[[], bool]) -> Rung | None:
        """Return the next alert as soon as it is due; None when the time is up. `may_alert` is called before."""
        end, nap = time.monotonic() + timeout, 0.0
        while (left := end - time.monotonic()) > 0:
            try:
                nap = self._next_look(way, min(nap, left))
                if nap == 0.0 and may_alert() and (alert := self._take_alert(way)):
                    return alert
            except OSError:  # the daemon is away: wait for it, unless the session has ended (Over)
                may_alert()
                nap = LOOK_EVERY
                time.sleep(min(nap, left))
            if nap <= SOON:
                time.sleep(nap or NOT_NOW)
        return None

    def alert_failed(self, way: str, ids: Sequence[str], why: str) -> None:
        with suppress(OSError):  # the mail waits in any case
            about = {"way": way, "message_ids": list(ids), "why": why}
            self.ask({"action": "ring_failed", "agent_id": self.agent, **about})

    def heartbeat(self, *, poll_interval: float) -> None:
        with suppress(OSError, PostroomError):  # the daemon is away, or the agent is not registered
            self.ask({"action": "heartbeat", "agent_id": self.agent, "poll_interval": poll_interval})

    def _next_look(self, way: str, seconds: float) -> float:
        """Return in how many seconds an alert may be due. The daemon waits up to `seconds` before it answers."""
        request = {"action": "ring", "agent_id": self.agent, "way": way, "peek": True, "timeout": seconds}
        (reply,) = self.ask(request)
        return LOOK_EVERY if reply["look_again"] is None else min(reply["look_again"], LOOK_EVERY)

    def _take_alert(self, way: str) -> Rung | None:
        """Return the alert that is due; None where another waiter was quicker."""
        (reply,) = self.ask({"action": "ring", "agent_id": self.agent, "way": way, "timeout": 0})
        if reply["rung"] is None:
            return None
        letters = [one | {"priority": Priority[one["priority"].upper()]} for one in reply["rung"]["letters"]]
        return convert(reply["rung"] | {"letters": letters}, Rung)
