"""The hooks of a host such as Claude Code: register when a session starts, show new mail with each prompt.

Mail comes from a daemon, where a socket is named; else from a room; or from an inbox.jsonl file, where only the
folder of those is named. What a prompt showed is marked as read after it was printed: better twice than never.
Where nobody can see what is printed, nothing is marked.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..daemon.inbox_files import InboxFolder
from ..errors import Invalid, Missing, PostroomError
from ..model.codec import encode
from ..whereabouts import AUTH_TOKEN, variable
from ..wire.inbox_entries import entry_of
from .answers import Answer
from .hook_quick import agent_of, exchange, folder_of, socket_of
from .hook_views import LONGEST, SHORT, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..daemon.inbox_files import Taken
    from .answers import Screen
    from .context import Context

MOST = 20  # letters looked at for one prompt
PROGRAM = "claude-code"
Entry = dict[str, Any]


class Source(Protocol):
    """Where an agent's mail comes from."""

    def register(self, name: str) -> None: ...
    def waiting(self) -> tuple[list[Entry], int]:
        """Some unread letters, and how many there are."""
        ...

    def mark(self, count: int) -> None:
        """The first so many of them were shown."""
        ...


def run_hook_session_start(context: Context) -> Iterator[Answer]:
    try:
        source = _source(context)
        source.register(variable("INBOX_AGENT_NAME"))
        yield _answer(context, source, SHORT)[0]
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        _tell(error)


def run_hook_prompt(context: Context) -> Iterator[Answer]:
    if _is_unheard():
        return
    try:
        source = _source(context)
        answer, count = _answer(context, source, LONGEST)
        yield answer
        source.mark(count)
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        _tell(error)


def _is_unheard() -> bool:
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


def _tell(error: Exception) -> None:
    """Whatever goes wrong with the mail, the session goes on."""
    told = str(error) or type(error).__name__
    line = told if told.isprintable() else ascii(told)[1:-1]
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


class RoomSource:
    """The room itself."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids: list[str] = []

    def register(self, name: str) -> None:
        from ..wire.inbox import upsert  # noqa: PLC0415 - only when a session starts

        upsert(self._context.room, self._context.me, {"display_name": name or None, "program": PROGRAM})

    def waiting(self) -> tuple[list[Entry], int]:
        box = self._context.mailbox
        found = box.check(MOST, peek=True)
        self._ids = [letter.id for letter in found]
        total = len(found) if len(found) < MOST else box.counts()["total"]
        return [entry_of(letter.message, box.name) for letter in found], max(total, len(found))

    def mark(self, count: int) -> None:
        for id in self._ids[:count]:
            with suppress(Missing):  # it was taken back meanwhile
                self._context.mailbox.read(id)


class SocketSource:
    """A daemon, in agent-inbox's words."""

    def __init__(self, path: str, agent: str) -> None:
        self._path = path
        self._agent = agent
        self._ids: list[str] = []

    def register(self, name: str) -> None:
        said = {"action": "register_agent", "agentId": self._agent, "program": PROGRAM}
        self._ask(said | ({"name": name} if name else {}))

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check_inbox", "agentId": self._agent, "unreadOnly": True, "limit": MOST}
        found, counted = self._ask(check, {"action": "counts", "agentId": self._agent})
        records = found["messages"]
        self._ids = [record["id"] for record in records]
        return [_entry(record) for record in records], max(counted.get("total", 0), len(records))

    def mark(self, count: int) -> None:
        said = [{"action": "read", "agentId": self._agent, "messageId": id} for id in self._ids[:count]]
        if said:
            self._ask(*said)

    def _ask(self, *said: Mapping[str, Any]) -> list[Any]:
        shown = [{"action": "authenticate", "token": token}] if (token := variable(AUTH_TOKEN)) else []
        asked = [*shown, *said]
        heard = exchange(self._path, b"".join(encode(one) + b"\n" for one in asked), len(asked))
        replies = [msgspec.json.decode(line) for line in heard.splitlines()]
        for reply in replies:
            if not reply.get("ok"):
                raise PostroomError(_in_a_hook(str(reply.get("error"))))
        return replies[len(shown) :]


def _in_a_hook(told: str) -> str:
    """With what whoever set up a hook can do."""
    return re.sub(r"show it: the action `authenticate`[^)]*", f"set {AUTH_TOKEN}", told)


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
        self._agent = agent
        self._is_peeking = False
        self._taken: Taken | None = None
        self._lines: list[bytes] = []

    def register(self, name: str) -> None:  # noqa: ARG002 - nobody hears it
        self._is_peeking = True

    def waiting(self) -> tuple[list[Entry], int]:
        if self._is_peeking:
            content = self._folder.peek(self._agent)
        else:
            self._taken = self._folder.take(self._agent)
            content = self._taken.content if self._taken else b""
        read = [(line, entry) for line in content.splitlines() if (entry := _parsed(line)) is not None]
        self._lines = [line for line, _ in read]
        return [entry for _, entry in read[:MOST]], len(read)

    def mark(self, count: int) -> None:
        """What was not shown goes back first."""
        rest: Sequence[bytes] = [line + b"\n" for line in self._lines[count:]]
        if rest:
            self._folder.append(self._agent, rest)
        if self._taken:
            self._taken.done()


def _parsed(line: bytes) -> Entry | None:
    """None for what is no entry; agent-inbox passes it by, too."""
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid):
        return None
    return entry if isinstance(entry, dict) else None
