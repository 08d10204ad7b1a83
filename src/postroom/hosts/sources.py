"""Where hooks find mail: in a room, behind a daemon's socket, or in an inbox.jsonl file.

`RoomSource` carries out verbs in a room that this process opens, and `SocketSource` has a daemon carry them out.
`FileSource` reads an agent's inbox.jsonl. All of them yield letters as `ShownLetter`.

A source prints nothing. Its caller prints first and calls `show` afterwards: a letter is shown twice rather than
never.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import asdict

from ..core import agents, alerts, inbox, stats, waiting_list
from ..core.alerts import LOOK_EVERY, NOT_NOW, SOON
from ..core.people import ListPeople
from ..core.presentation import notice_of, notice_of_sender, task_state
from ..core.verb import declared_by, perform
from ..environment import AUTH_TOKEN, variable
from ..errors import Busy, PostroomError, Unreadable
from ..formats.inbox import read_line
from ..formats.plain import read_result
from ..model.agent import Warmth
from ..model.codec import encode
from ..model.message import Priority, content_of, origin_of, origin_word
from ..model.names import PEOPLE, check_agent, fold
from ..model.task import ESCALATION, TASK, TASK_UPDATE
from ..policy.limits import people_of
from ..server.inbox_actions import RegisterAgent
from .inbox_files import InboxFolder
from .quick import exchange, may_have_nudge, may_have_work, state_of
from .sessions import BEAT
from .text import MOST_POINTERS, ShownLetter, orders

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.people import People
    from ..formats.inbox import InboxLine
    from ..model.alert import Rung
    from ..model.query import Found
    from ..settings import Settings
    from .sessions import Session


MOST = 20  # letters read for one prompt
MOST_SEEN = 100  # letters among which to look for those that were shown before
WAITER_PATIENCE = LOOK_EVERY + 20.0  # seconds for an answer to a waiter, for which the daemon waits
_STEP_KINDS = (TASK, TASK_UPDATE, ESCALATION)


class Access(Protocol):
    """The services that a command offers to its hook. The room is opened when `core` is first used."""

    @property
    def me(self) -> str: ...
    @property
    def core(self) -> Core: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def settings(self) -> Settings: ...

    @property
    def room_address(self) -> str:
        """The room's address, written so that it means the same in every working folder."""

    def choose(self, agent: str, room: str = "") -> None:
        """Use the mailbox of this agent, in the room at this address where one is passed."""

    def warn(self, text: str) -> None:
        """Print a line on standard error."""


class MailSource:
    """The mail of one agent. What a source does not have, such as agents, alerts or a chipset, stays as here."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._letters: list[ShownLetter] = []

    def register(self, name: str, program: str) -> None:
        """Register the agent."""

    def stay(self) -> None:
        """Record that the agent's session is there."""

    def leave(self) -> None:
        """Record that it has left."""

    def waiting(self) -> tuple[list[ShownLetter], int]:
        """Return some unread letters, the most urgent first, and the number of all."""
        return self._letters, len(self._letters)

    def seen(self) -> tuple[list[ShownLetter], int]:
        """Return some letters that were read and not acknowledged, and the number of all."""
        return [], 0

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002 - of a chipset
        """Return the text about the agent's hook and nudge slot in a chipset; empty if there is nothing.

        With `only_new`, only what came after `since`.
        """
        return ""

    def asks(self) -> bool:
        """Return whether an unread letter needs action now: it is urgent or of high priority, or it is a task, a
        question about one, or an escalation whose next step is this agent's.
        """
        return any(letter.priority >= Priority.HIGH for letter in self._letters)

    def show(self, count: int, host: str, event: str) -> None:
        """Record that the first `count` of the letters that `waiting` returned were put before a model."""

    def begin_alerts(self, channel: str, left: int) -> None:
        """Alert the session from now on.

        The `left` letters of which it was shown only the number count as alerted, unless more have come since.
        """


# -- mail that is read by verbs


class VerbSource(MailSource, ABC):
    """The mail of an agent, by verbs. `state` is the state folder of its room, if that is a chipset's."""

    def __init__(self, agent: str, state: str = "") -> None:
        super().__init__(agent)
        self._state = state

    @abstractmethod
    def call(self, verb: Any, **params: Any) -> Any:
        """Return the result of a verb."""

    @abstractmethod
    def wait_for_alert(self, way: str, timeout: float, *, may_alert: Callable[[], bool]) -> Rung | None:
        """Return the next alert as soon as it is due; None when the time is up. `may_alert` is called before."""

    def register(self, name: str, program: str) -> None:
        self._call(RegisterAgent, program=program, **({"name": name} if name else {}))

    def stay(self) -> None:
        self._call(agents.RecordHeartbeat, poll_interval=BEAT)

    def waiting(self) -> tuple[list[ShownLetter], int]:
        """Return letters, those that may need a step first among equals: mere news must not cut them off."""
        self._letters = self._check(limit=MOST)
        total = len(self._letters)
        # Counted only where the list is full: an empty check must stay cheap.
        if total == MOST:
            total = max(self._call(inbox.Counts).total, total)
        if total > MOST:
            steps = self._check(limit=MOST, kinds=list(_STEP_KINDS))
            first = {letter.id for letter in steps}
            every = {letter.id: letter for letter in (*self._letters, *steps)}.values()
            self._letters = sorted(every, key=lambda one: (-one.priority, one.id not in first))[:MOST]
        return self._letters, total

    def seen(self) -> tuple[list[ShownLetter], int]:
        """Return letters that were read. Unread ones come first, and letters may be long: some will do."""
        counted = self._call(stats.MailboxStats)
        if not counted.seen:
            return [], 0
        enough = min(counted.total_unread + MOST_POINTERS, MOST_SEEN)
        found = self._check(limit=enough, unread_only=False)
        return [letter for letter in found if letter.was_read], counted.seen

    def orders(self, since: float, nonce: str, *, only_new: bool) -> str:
        has_work = bool(self._state) and may_have_work(self._state, self._agent, since, only_new=only_new)
        has_nudge = bool(self._state) and may_have_nudge(self._state, self._agent, since, only_new=only_new)
        if not has_work and not has_nudge:
            return ""
        from ..chipset import Chipset, Status  # noqa: PLC0415 - most rooms are not a chipset's

        chipset, item = Chipset(self._state), None
        if has_work:
            with suppress(Unreadable):  # the witness reports it
                hook = chipset.hooks.get(self._agent)
                item = hook.work_item if hook.status is Status.PENDING else None
        nudge = chipset.nudges.unhandled(self._agent) if has_nudge else None
        return orders(
            self._agent,
            None if item is None else item.to_dict(),
            None if nudge is None else nudge.to_dict(),
            nonce,
            PEOPLE if nudge is None else self.people(),
        )

    def asks(self) -> bool:
        if super().asks():
            return True
        ids = {letter.id for letter in self._letters if letter.kind in _STEP_KINDS}
        steps = self._call(waiting_list.Waiting, mail=False, limit=None).waiting if ids else []
        return any(step.letter in ids for step in steps)

    def show(self, count: int, host: str, event: str) -> None:
        if ids := [letter.id for letter in self._letters[:count]]:
            self._call(alerts.Shown, ids=ids, host=host, where=event)

    def begin_alerts(self, channel: str, left: int) -> None:
        self._call(alerts.NextAlert, way=channel, unread=left)

    def alert_failed(self, way: str, ids: Sequence[str], why: str) -> None:
        self._call(alerts.AlertFailed, way=way, ids=list(ids), why=why)

    def leave(self) -> None:
        self._call(agents.Goodbye)

    def people(self) -> Collection[str]:
        """Return the folded names of people in the room."""
        found: People = self.call(ListPeople)
        return {*map(fold, found.mailboxes), *(fold(key.person) for key in found.people)}

    def _call(self, verb: Any, **params: Any) -> Any:
        return self.call(verb, agent_id=self._agent, **params)

    def _check(self, **params: Any) -> list[ShownLetter]:
        found = self._call(inbox.Check, peek=True, **params).letters
        people = self.people() if found else PEOPLE
        return [_shown(letter, people) for letter in found]


class RoomSource(VerbSource):
    """The mail of an agent in a room that this process opens."""

    def __init__(self, agent: str, access: Access) -> None:
        super().__init__(agent, state_of(access.room_address))
        self._core, self._principal = access.core, access.principal

    def call(self, verb: Any, **params: Any) -> Any:
        return perform(self._core, self._principal, verb(**params))

    def wait_for_alert(self, way: str, timeout: float, *, may_alert: Callable[[], bool]) -> Rung | None:
        waits = {"way": way, "timeout": timeout, "may_alert": may_alert}
        rung: Rung | None = self._call(alerts.WaitForAlert, **waits).rung
        return rung


class SocketSource(VerbSource):
    """The mail of an agent behind a daemon's socket.

    `patience` is the time for an answer, if it is not the usual one. For a waiter the daemon waits and decides; a
    daemon that is away comes back, and until then there is nothing to alert for.
    """

    def __init__(self, agent: str, path: str, patience: float = 0.0) -> None:
        super().__init__(agent)
        self._path = path
        self._patience = patience

    def call(self, verb: Any, **params: Any) -> Any:
        """Send a request to the daemon and return the result in its answer; raise what it refuses."""
        token = variable(AUTH_TOKEN)
        login = [{"action": "authenticate", "token": token}] if token else []
        every = [*login, {"action": declared_by[verb].name, **params}]
        lines = b"".join(encode(request) + b"\n" for request in every)
        received = exchange(self._path, lines, len(every), self._patience)
        replies = [msgspec.json.decode(line) for line in received.splitlines()]
        for reply in replies:
            if not reply.get("ok"):
                # A hint about a token becomes one that the person who set up the hook can follow.
                usual = re.sub(
                    r"show it: the action `authenticate`[^)]*", f"set {AUTH_TOKEN}", str(reply.get("error"))
                )
                raise (Busy if reply.get("retryable") else PostroomError)(usual)
        try:
            return read_result(declared_by[verb], replies[-1])
        except (msgspec.ValidationError, KeyError) as broken:
            raise PostroomError(
                f"the post room at {self._path} answers as another version does: {broken}", hint="restart it"
            ) from broken

    def wait_for_alert(self, way: str, timeout: float, *, may_alert: Callable[[], bool]) -> Rung | None:
        end, nap = time.monotonic() + timeout, 0.0
        while (left := end - time.monotonic()) > 0:
            try:
                reply = self._call(alerts.NextAlert, way=way, peek=True, timeout=min(nap, left))
                nap = LOOK_EVERY if reply.look_again is None else min(reply.look_again, LOOK_EVERY)
                # Another waiter may be quicker, and take it.
                if nap == 0.0 and may_alert() and (alert := self._call(alerts.NextAlert, way=way, timeout=0).rung):
                    return alert  # type: ignore[no-any-return] # `_call` returns what any verb does
            except OSError:  # the daemon is away: wait for it, unless the session has ended (Over)
                may_alert()
                nap = LOOK_EVERY
                time.sleep(min(nap, left))
            if nap <= SOON:
                time.sleep(nap or NOT_NOW)
        return None


# -- mail in a file


class FileSource(MailSource):
    """The mail in an agent's inbox.jsonl. Shown letters leave the file, so nothing is shown again.

    It holds no agents, sends no alerts and has no chipset. Every program that may write it may write any name into
    it, so all senders are unverified.
    """

    def __init__(self, folder: InboxFolder, agent: str, people: Sequence[str] = ()) -> None:
        super().__init__(agent)
        self._folder = folder
        self._people = {*PEOPLE, *map(fold, people)}
        self._lines: list[bytes] = []
        self._readable: list[bytes] = []

    def waiting(self) -> tuple[list[ShownLetter], int]:
        self._lines = self._folder.read(self._agent)
        read = [(line, entry) for line in self._lines if (entry := read_line(line)) is not None]
        self._readable = [line for line, _ in read]
        self._letters = [shown_entry(entry, self._people) for _, entry in read[:MOST]]
        return self._letters, len(read)

    def show(self, count: int, host: str, event: str) -> None:  # noqa: ARG002 - a file does not keep it
        """Remove the letters that were shown, and all lines that are no letters."""
        # Lines that are no letters go, too: else they would be read at every hook.
        self._folder.remove(self._agent, frozenset(self._lines) - frozenset(self._readable[count:]))


# -- letters


def _shown(found: Found, people: Collection[str]) -> ShownLetter:
    """Return a letter of a room. `people` holds the folded names of people."""
    letter = found.message
    return ShownLetter(
        id=letter.id,
        sender=letter.sender,
        origin=origin_of(letter, people),
        kind=letter.kind,
        importance=letter.priority.name.lower(),
        subject=letter.subject,
        thread_tag=letter.thread_tag or "",
        sent_at=letter.created_at,
        content=content_of(letter.parts),
        notice=notice_of(letter, people),
        task=task_state(letter, people),
        was_read=found.delivery.read_at is not None,
    )


def shown_entry(entry: InboxLine, people: Collection[str] = PEOPLE) -> ShownLetter:
    """Return a letter of a file, in which any program may write any name."""
    origin = f"{entry.sender} ({origin_word(entry.sender, proven=False, people=people)})"
    return ShownLetter(origin=origin, notice=notice_of_sender(entry.sender, people), **asdict(entry))


# -- the source of a session


def daemon_answers(socket: str, *, is_room_named: bool) -> bool:
    """Return whether a daemon listens. One that is away is an error only where no room is named besides."""
    try:
        exchange(socket, b'{"action":"ping"}\n', 1)
    except OSError as away:
        if not is_room_named:
            raise PostroomError(f"no post room answers at {socket}: {away.strerror or away}") from away
        return False
    return True


def room_source(access: Access) -> RoomSource:
    """Return the mail of the agent that is chosen, in a room that this process opens."""
    return RoomSource(check_agent(access.me, "mailbox"), access)  # checked before a room is made for the name


def source_of(access: Access, session: Session, *, is_new: bool = False) -> MailSource:
    """Return the mail of a session. A new session's room is opened as it was named, and made if need be."""
    access.choose(session.agent)
    if session.socket and (is_new or daemon_answers(session.socket, is_room_named=bool(session.room))):
        return SocketSource(session.agent, session.socket)
    if session.folder:
        return FileSource(InboxFolder(session.folder), session.agent, people_of(access.settings))
    if not is_new:
        access.choose(session.agent, session.room)
    return room_source(access)


def program_of(access: Access, session: Session, name: str) -> str:
    """Return the program that runs the agent of this name; empty where there is no such agent or program."""
    if not session.socket and not session.room:
        return ""
    try:
        source = SocketSource(name, session.socket) if session.socket else RoomSource(name, access)
        found = source.call(agents.GetAgent, name=name)
    except PostroomError:
        return ""
    is_there = not found.presence.left and found.presence.warmth not in {Warmth.EXPIRED, Warmth.GONE}
    return str(found.card.program) if is_there else ""
