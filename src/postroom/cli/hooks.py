"""Where hooks find mail: in a room, behind a daemon's socket, or in an inbox.jsonl file."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ..app.inbox_files import InboxFolder
from ..clock import SystemClock
from ..core.alerts import LOOK_EVERY, NOT_NOW
from ..environment import AUTH_TOKEN, sessions_folder, variable
from ..errors import Busy, Invalid, Missing, PostroomError, StoreFailing, Unreadable
from ..formats.inbox import entry_of
from ..formats.plain import plain_agent
from ..hosts import claude, codex, gemini, sessions
from ..hosts.events import END, PROMPT, START, STOP
from ..hosts.input import text_of
from ..hosts.naming import Unkept, plain, settle, unkept
from ..hosts.quick import (
    DIALECTS,
    agent_of,
    exchange,
    folder_of,
    host_of,
    is_going_on,
    is_typed,
    may_have_nudge,
    may_have_work,
    name_said,
    socket_of,
    state_of,
)
from ..hosts.recipes import MARGIN, WAIT
from ..hosts.sessions import BEAT, BUSY, IDLE, OVER, Session, all_sessions, find, is_plain, sweep
from ..hosts.text import (
    LONGEST,
    MOST_POINTERS,
    PERSON,
    SHORT,
    HookText,
    host_output,
    orders,
    ring,
    ring_in_public,
    shown,
    tell,
)
from ..hosts.waiter import alone, arrived, end_waiter, end_with_host, queue
from ..hosts.waiter import wait as wait_and_ring
from ..model.alert import Rung
from ..model.codec import convert, encode
from ..model.message import Part, Priority, content_of, origin_word
from ..model.names import HUMAN, check_agent, fold
from ..model.task import ESCALATION, TASK, TASK_UPDATE, TaskState
from ..model.values import check_object
from ..server.verbs import SOON
from .context import note, whole_address, whole_path
from .escalation import steps_for
from .output import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..app.inbox_files import Taken
    from ..letter import Letter
    from ..mailbox import Mailbox
    from ..model.message import Message
    from .context import Context
    from .output import Screen


MOST = 20  # letters looked at for one prompt
HOST = "claude"  # whose hooks agent-inbox's are
Entry = dict[str, Any]
DEEPEST = 64  # levels of an entry
_WORDS = frozenset({"importance", "timestamp"})  # of an entry: nothing if they are no text


class RoomSource:
    """The room itself."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.letters: list[Letter] = []

    def register(self, name: str, program: str) -> None:
        from ..server.inbox_actions import upsert  # noqa: PLC0415 - only when a session starts

        upsert(self.context.room, self.context.me, {"display_name": name or None, "program": program})

    def waiting(self) -> tuple[list[Entry], int]:
        box = self.context.mailbox
        self.letters = box.check(MOST, peek=True)
        total = len(self.letters) if len(self.letters) < MOST else box.counts()["total"]
        return [entry_of(letter.message, box.name) for letter in self.letters], max(total, len(self.letters))

    def mark(self, count: int) -> None:
        self.show(count, HOST, "prompt")

    def show(self, count: int, host: str, where: str) -> None:
        """The first so many were put before a model."""
        if count:
            self.context.mailbox.mark_shown([letter.id for letter in self.letters[:count]], host, where)


class SocketSource:
    """A daemon, in agent-inbox's words."""

    patience = 0.0  # seconds for an answer, where that is more than a session waits

    def __init__(self, path: str, agent: str) -> None:
        self._path = path
        self.agent = agent
        self.letters: list[dict[str, Any]] = []

    def register(self, name: str, program: str) -> None:
        args = {"action": "register_agent", "agentId": self.agent, "program": program}
        self.ask(args | ({"name": name} if name else {}))

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check_inbox", "agentId": self.agent, "unreadOnly": True, "limit": MOST}
        found, counted = self.ask(check, {"action": "counts", "agentId": self.agent})
        self.letters = found["messages"]
        return [_entry(record) for record in self.letters], max(counted.get("total", 0), len(self.letters))

    def mark(self, count: int) -> None:
        ids = [letter["id"] for letter in self.letters[:count]]
        args = [{"action": "read", "agentId": self.agent, "messageId": id} for id in ids]
        if args:
            self.ask(*args)

    def ask(self, *args: Mapping[str, Any]) -> list[Any]:
        """What it answers to each; what it refuses is raised."""
        shown = [{"action": "authenticate", "token": token}] if (token := variable(AUTH_TOKEN)) else []
        request = [*shown, *args]
        lines = b"".join(encode(one) + b"\n" for one in request)
        received = exchange(self._path, lines, len(request), self.patience)
        replies = [msgspec.json.decode(line) for line in received.splitlines()]
        for reply in replies:
            if not reply.get("ok"):
                raise (Busy if reply.get("retryable") else PostroomError)(_in_a_hook(str(reply.get("error"))))
        return replies[len(shown) :]


def _in_a_hook(text: str) -> str:
    """With what whoever set up a hook can do."""
    return re.sub(r"show it: the action `authenticate`[^)]*", f"set {AUTH_TOKEN}", text)


_OURS = {
    "id": "messageId",
    "sender_id": "from",
    "subject": "subject",
    "content": "content",
    "thread_tag": "threadTag",
    "importance": "importance",
    "created_at": "timestamp",
}


def _entry(record: Mapping[str, Any]) -> Entry:
    return {ours: record[theirs] for theirs, ours in _OURS.items() if theirs in record}


class FileSource:
    """An agent's inbox.jsonl, and nobody to ask. It cannot register; what was shown is gone from the file."""

    def __init__(self, folder: str, agent: str) -> None:
        self._folder = InboxFolder(folder)
        self.agent = agent
        self._is_peeking = False
        self._taken: Taken | None = None
        self._lines: list[bytes] = []
        self.entries: list[Entry] = []

    def register(self, name: str, program: str) -> None:  # noqa: ARG002 - nobody hears it
        self._is_peeking = True

    def waiting(self) -> tuple[list[Entry], int]:
        if self._is_peeking:
            content = self._folder.peek(self.agent)
        else:
            self._taken = self._folder.take(self.agent)
            content = self._taken.content if self._taken else b""
        read = [(line, entry) for line in content.splitlines() if (entry := _parsed(line)) is not None]
        self._lines = [line for line, _ in read]
        self.entries = [entry for _, entry in read[:MOST]]
        return self.entries, len(read)

    def mark(self, count: int) -> None:
        """What was not shown goes back first."""
        rest: Sequence[bytes] = [line + b"\n" for line in self._lines[count:]]
        if rest:
            self._folder.append(self.agent, rest)
        if self._taken:
            self._taken.done()


def _parsed(line: bytes) -> Entry | None:
    """None for what is no entry; agent-inbox passes it by, too. Whoever may write the file may write anything, and
    one line must not keep the others from being shown.
    """
    try:
        entry = check_object(msgspec.json.decode(line), "entry", DEEPEST)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid, RecursionError):
        return None
    return {name: value for name, value in entry.items() if name not in _WORDS or isinstance(value, str)}


# The hooks of a host such as Claude Code: register when a session starts, show new mail with each prompt.
#
# Mail comes from a daemon, where a socket is named; else from a room; or from an inbox.jsonl file, where only the
# folder of those is named. What a prompt showed is marked as read after it was printed: better twice than never.
# Where nobody can see what is printed, nothing is marked.

PROGRAM = "claude-code"


class Source(Protocol):
    """Where an agent's mail comes from."""

    def register(self, name: str, program: str) -> None: ...
    def waiting(self) -> tuple[list[Entry], int]:
        """Some unread letters, and how many there are."""
        ...

    def mark(self, count: int) -> None:
        """The first so many of them were shown."""
        ...


def run_hook_session_start(context: Context) -> Iterator[Answer]:
    try:
        source = _source(context)
        source.register(variable("INBOX_AGENT_NAME"), PROGRAM)
        yield _answer(context, source, SHORT)[0]
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        tell_error(error)


def run_hook_prompt(context: Context) -> Iterator[Answer]:
    if is_unheard():
        return
    try:
        source = _source(context)
        answer, count = _answer(context, source, LONGEST)
        yield answer
        source.mark(count)
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        tell_error(error)


def is_unheard() -> bool:
    """Does what we print go nowhere? An output that was closed is the null device by now."""
    return os.fstat(1).st_rdev == os.stat(os.devnull).st_rdev


def _answer(context: Context, source: Source, longest: int) -> tuple[Answer, int]:
    entries, total = source.waiting()
    text, count = shown(entries, total, context.screen.now, os.urandom(8).hex(), longest) if entries else ("", 0)
    return Answer(
        context.name, {"mailbox": context.me, "count": count, "total": total, "text": text}, _text
    ), count


def _text(_screen: Screen, data: Mapping[str, Any]) -> str:
    return str(data["text"])


def tell_error(error: Exception) -> None:
    """Whatever goes wrong with the mail, the session goes on."""
    result = str(error) or type(error).__name__
    line = result if result.isprintable() else ascii(result)[1:-1]
    sys.stderr.write(f"postroom: no mail could be shown: {line[:500]}\n")
    sys.stderr.flush()


def _source(context: Context) -> Source:
    agent = context.values["as"] = agent_of(context.values)
    if folder := folder_of(context.values):
        return FileSource(folder, agent)
    if not (socket := socket_of(context.values)):
        return RoomSource(context)
    try:
        exchange(socket, b'{"action":"ping"}\n', 1)
    except OSError as away:
        if variable("POSTROOM_STORE"):  # nobody is there, but the room is named too
            return RoomSource(context)
        raise PostroomError(f"no post room answers at {socket}: {away.strerror or away}") from away
    return SocketSource(socket, agent)


# The mail of a session, wherever that is: as all hooks see it, and what a session wants to know besides.

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
            (args,) = SocketSource(session.socket, name).ask({"action": "agent", "name": name})
            found = args["agent"]
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
        return [_host_entry(letter) for letter in self.letters], total

    def seen(self) -> tuple[list[Entry], int]:
        (stats,) = self.ask({"action": "stats", "agent_id": self.agent})
        if not stats["seen"]:
            return [], 0
        limit = _enough(stats["total_unread"])
        check = {"action": "check", "agent_id": self.agent, "limit": limit, "peek": True, "unread_only": False}
        (found,) = self.ask(check)
        return [_host_entry(letter) for letter in found["letters"] if letter["delivery"]["read_at"]], stats["seen"]

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


def _host_entry(letter: Mapping[str, Any]) -> Entry:
    """A letter of ours in the words of the inbox design. A daemon does not say what it calls the person: by the
    usual name nobody else is.
    """
    args = {
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
    return {name: value for name, value in args.items() if value is not None}


# A mailbox behind a daemon's socket, as far as a waiter needs one: the daemon waits and decides, and we ring.
#
# A daemon that is away comes back: until then there is nothing to ring for.

SPARE = 20.0  # seconds in which a daemon answers besides those for which it waits


class Bell(SocketSource):
    """What a waiter asks for."""

    patience = LOOK_EVERY + SPARE

    def wait_to_ring(self, way: str, timeout: float, *, may_ring: Callable[[], bool]) -> Rung | None:
        """The next ring, as soon as it is time for one; None when the time is up. `may_ring` is asked before."""
        end, nap = time.monotonic() + timeout, 0.0
        while (left := end - time.monotonic()) > 0:
            try:
                if (nap := self._look(way, min(nap, left))) == 0.0 and may_ring() and (rung := self._ring(way)):
                    return rung
            except OSError:
                may_ring()  # is anybody there to wait for?
                nap = LOOK_EVERY
                time.sleep(min(nap, left))
            if nap <= SOON:
                time.sleep(nap or NOT_NOW)
        return None

    def ring_failed(self, way: str, ids: Sequence[str], why: str) -> None:
        with suppress(OSError):  # the mail waits in any case
            about = {"way": way, "message_ids": list(ids), "why": why}
            self.ask({"action": "ring_failed", "agent_id": self.agent, **about})

    def heartbeat(self, *, poll_interval: float) -> None:
        with suppress(OSError, PostroomError):  # it is away, or nobody registered us
            self.ask({"action": "heartbeat", "agent_id": self.agent, "poll_interval": poll_interval})

    def _look(self, way: str, seconds: float) -> float:
        """In how many seconds it is time to ring, as far as anybody knows. The daemon waits so long at most."""
        request = {"action": "ring", "agent_id": self.agent, "way": way, "peek": True, "timeout": seconds}
        (args,) = self.ask(request)
        return LOOK_EVERY if args["look_again"] is None else min(args["look_again"], LOOK_EVERY)

    def _ring(self, way: str) -> Rung | None:
        """None: somebody was quicker."""
        (args,) = self.ask({"action": "ring", "agent_id": self.agent, "way": way, "timeout": 0})
        return None if args["rung"] is None else _rung(args["rung"])


def _rung(args: dict[str, Any]) -> Rung:
    letters = [one | {"priority": Priority[one["priority"].upper()]} for one in args["letters"]]
    return convert(args | {"letters": letters}, Rung)


# The waiter of a host's session: it waits for mail, and wakes the session as its host lets itself be woken.

WOKEN = 2  # Claude Code wakes a session when its waiter ends so, with what it says on standard error


def wait(context: Context) -> Iterator[Answer]:
    """One answer, if the session is woken by the end of this process; silent otherwise."""
    dialect = DIALECTS[host_of(context.name)]
    if dialect.ENTRY and variable(dialect.ENTRY) != dialect.INTERACTIVE:
        return
    session = arrived(host_of(context.name), text_of(context.call.host_input, "session_id"))
    if session is None:
        return
    with alone(session) as is_alone:
        if not is_alone:
            return
        mailbox = _bell(context, session)
        end_with_host(session)
        rung = _wait(mailbox, session, context.get("timeout", float(WAIT - MARGIN)))
        if rung is not None:
            text = ring(rung)
            sys.stderr.write(text)
            sys.stderr.flush()
            about = {"mailbox": rung.mailbox, "event": "", "count": 0, "total": rung.unread}
            about |= {"text": text, "output": None}
            yield Answer(context.name, about, _nothing, code=WOKEN)


def _bell(context: Context, session: Session) -> Mailbox | Bell:
    """Where the session's rings come from: the room, if it is known where that is."""
    if session.folder:
        raise Invalid("nobody rings for inbox files", field="POSTROOM_STORE", hint="name a room there")
    context.values |= {"as": session.agent} | ({"room": session.room} if session.room else {})
    bell = context.mailbox if session.room else Bell(session.socket, session.agent)
    gc.freeze()  # what was loaded stays
    return bell


def _wait(mailbox: Mailbox | Bell, session: Session, seconds: float) -> Rung | None:
    """The ring by which this process is to end, where its host is woken so."""
    last: list[Rung] = []

    def end_with(rung: Rung) -> bool:
        last.append(rung)
        return True

    def put_in_queue(rung: Rung) -> bool:
        if why := queue(session, ring_in_public(rung)):
            with suppress(Busy):  # a ring is a hint, and the mail waits
                mailbox.ring_failed(session.host, rung.ids, why)
        return False

    bell = end_with if session.host == "claude" else put_in_queue
    wait_and_ring(mailbox, session, seconds, bell, _now)
    return last[0] if last else None


def _now() -> float:
    return SystemClock().now().wall.timestamp()


def _nothing(_screen: Screen, _data: Mapping[str, Any]) -> str:
    return ""


# The hooks of agent hosts: one command for each host, which acts by the event that the host names.
#
# Whatever goes wrong with the mail, the session goes on: one line on standard error, and the exit code is 0. What
# was shown is marked after it was printed; where nobody can see what is printed, nothing is shown.

_HOSTS = frozenset({claude.PROGRAM, codex.PROGRAM, gemini.PROGRAM})
CLEAR, COMPACT = "clear", "compact"  # how a session starts anew, and why one ends


def run_hook_host(context: Context) -> Iterator[Answer]:
    context.session = None  # the host says whose it is; another of its sessions, or one above it, has another room
    try:
        if "wait" in context.values:
            yield from wait(context)
        else:
            yield from Visit(context).answers()
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        tell_error(error)


class Visit:
    """One call of a host."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heard = context.call.host_input
        self._host, self._dialect = host_of(context.name), DIALECTS[host_of(context.name)]
        self._event = text_of(self._heard, "hook_event_name")
        self._moment = self._dialect.EVENTS[self._event]
        self._began_by = text_of(self._heard, "source") if self._moment == START else ""
        self._was_idle = True
        self._was_held = False
        self._id = text_of(self._heard, "session_id")
        if not is_plain(self._id):
            raise Invalid(f"{self._id[:80]!a} is no session's id", field="session_id")

    def answers(self) -> Iterator[Answer]:
        """What is said to the host; what that showed is marked afterwards."""
        session = find(self._host, self._id)
        if self._moment == END:
            self._end(session)
            return
        name = name_said(self._context.values, self._dialect.AGENT)
        is_new = self._moment == START or session is None or not is_going_on(session, name)
        session = self._begin(session, name) if is_new or session is None else session
        source = source_of(self._context, session, is_new=is_new)
        is_noted_anew = is_new and not isinstance(session, Unkept)
        if is_noted_anew or self._moment == START:
            source.register(variable("INBOX_AGENT_NAME"), self._dialect.PROGRAM)
        with session.in_turn():
            self._catch_up(session)
            result = self._told(source, session) if not is_unheard() else HookText()
            yield Answer(self._context.name, self._data(session, result), self._view)
            if result.holds:
                self._mark(
                    session, result
                )  # it counts even if the room is busy, and our time up before it is free
            source.show(result.shown, self._host, self._event)
            if is_noted_anew and self._dialect.WAKES:
                source.begin_rings(self._host, result.total - result.shown)
            if not result.holds:
                self._mark(session, result)

    # -- a session begins and ends

    def _begin(self, before: Session | None, name: str) -> Session:
        """Busy at first: nobody is woken for what it is about to be told."""
        self._was_idle = before is None or before.turn == IDLE
        host = sessions.host()
        room, socket, folder = place_of_mail(self._context)
        session = Session(
            host=self._host,
            id=self._id,
            agent=check_agent(name, "--as") if name else "",
            pid=host.pid if host else 0,
            began=host.began if host else "",
            turn=BUSY,
            holds=before.holds if before and self._began_by == COMPACT else 0,
            room=room,
            socket=socket,
            folder=folder,
        )
        project = (variable(self._dialect.PROJECT) if self._dialect.PROJECT else "") or self._folder()
        if before is not None and _is_elsewhere(before):
            end_waiter(before)  # it would wake the other process
        human = self._context.settings.human if room else HUMAN
        alone, cleared = self._dialect.ALONE, self._began_by == CLEAR
        others = () if name else self._others(session, plain(project, human))
        try:
            settle(session, project, alone=alone, cleared=cleared, human=human, others=others)
        except OSError as refused:
            return self._unkept(session, name or (before.agent if before else ""), refused)
        sweep(self._context.screen.now.timestamp())
        return session

    def _unkept(self, session: Session, agent: str, refused: OSError) -> Session:
        """Its mail is shown, if somebody says whose that is."""
        what = f"the session cannot be noted down in {sessions_folder()}: {refused.strerror}"
        if not agent:
            raise StoreFailing(what, hint="with --as its mail is shown all the same")
        note(self._context.call, f"{what}; its mail is shown, but no turn is held up and nobody wakes it")
        return unkept(session, check_agent(agent, "--as"))

    def _others(self, session: Session, name: str) -> tuple[str, ...]:
        """Is that of the folder the name of an agent that another program runs? Its mail is not for a session that
        nobody called so.
        """
        program = program_of(self._context, session, name)
        return (fold(name),) if program and program not in _HOSTS else ()

    def _folder(self) -> str:
        """Where the host works; as it says, where that is gone."""
        try:
            return os.getcwd()  # noqa: PTH109 - as text
        except FileNotFoundError:
            return text_of(self._heard, "cwd")

    def _end(self, session: Session | None) -> None:
        """Its agent has left, unless it goes on in another session."""
        if session is None or session.turn == OVER or _is_elsewhere(session):
            return
        session.mark(OVER)
        end_waiter(session)
        others = [one for one in all_sessions() if not one.is_same(session) and one.is_live]
        if text_of(self._heard, "reason") == CLEAR or any(
            fold(one.agent) == fold(session.agent) for one in others
        ):
            return
        with suppress(Missing):  # it never came as far as to register
            source_of(self._context, session).leave()

    # -- what it is told

    def _catch_up(self, session: Session) -> None:
        """A host that was given our hooks twice calls both at once: did the other one hold up this turn?"""
        found = find(self._host, self._id)
        if found is not None:
            self._was_held, session.holds = found.holds > session.holds, found.holds
            session.heard_at = found.heard_at

    def _told(self, source: Any, session: Session) -> HookText:
        budget, now, nonce = self._dialect.BUDGET, self._context.screen.now, os.urandom(8).hex()
        return tell(self._moment, source, session, budget, began_by=self._began_by, now=now, nonce=nonce)

    def _data(self, session: Session, result: HookText) -> dict[str, Any]:
        about = {"mailbox": session.agent, "event": self._event}
        output = host_output(self._dialect, self._event, result)
        return {**about, "count": result.shown, "total": result.total, "text": result.text, "output": output}

    @staticmethod
    def _view(_screen: Screen, data: Mapping[str, Any]) -> str:
        return "" if data["output"] is None else encode(data["output"]).decode() + "\n"

    def _mark(self, session: Session, result: HookText) -> None:
        holds = session.holds + 1 if result.holds else None
        is_typed_now = self._moment == PROMPT and is_typed(self._dialect.UNTYPED, self._heard)
        session.mark(IDLE if self._is_idle(result) else BUSY, 0 if is_typed_now else holds)

    def _is_idle(self, result: HookText) -> bool:
        """Is nothing under way now? A context may be compacted in the middle of a turn, and between two."""
        if self._moment == START:
            return self._was_idle or self._began_by != COMPACT
        return self._moment == STOP and not (result.holds or self._was_held)


def _is_elsewhere(session: Session) -> bool:
    """Does it go on in another process than that of this host? One session may be resumed beside itself."""
    host = sessions.host()
    return host is not None and (host.pid, host.began) != (session.pid, session.began) and session.is_live
