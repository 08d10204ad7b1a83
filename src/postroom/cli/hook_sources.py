"""Where hooks find mail: in a room, behind a daemon's socket, or in an inbox.jsonl file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..daemon.inbox_files import InboxFolder
from ..errors import Busy, Invalid, PostroomError
from ..model.codec import encode
from ..model.values import check_object
from ..whereabouts import AUTH_TOKEN, variable
from ..wire.inbox_entries import entry_of
from .hook_quick import exchange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..daemon.inbox_files import Taken
    from ..letter import Letter
    from .context import Context

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
        from ..wire.inbox import upsert  # noqa: PLC0415 - only when a session starts

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
        said = {"action": "register_agent", "agentId": self.agent, "program": program}
        self.ask(said | ({"name": name} if name else {}))

    def waiting(self) -> tuple[list[Entry], int]:
        check = {"action": "check_inbox", "agentId": self.agent, "unreadOnly": True, "limit": MOST}
        found, counted = self.ask(check, {"action": "counts", "agentId": self.agent})
        self.letters = found["messages"]
        return [_entry(record) for record in self.letters], max(counted.get("total", 0), len(self.letters))

    def mark(self, count: int) -> None:
        ids = [letter["id"] for letter in self.letters[:count]]
        said = [{"action": "read", "agentId": self.agent, "messageId": id} for id in ids]
        if said:
            self.ask(*said)

    def ask(self, *said: Mapping[str, Any]) -> list[Any]:
        """What it answers to each; what it refuses is raised."""
        shown = [{"action": "authenticate", "token": token}] if (token := variable(AUTH_TOKEN)) else []
        asked = [*shown, *said]
        lines = b"".join(encode(one) + b"\n" for one in asked)
        heard = exchange(self._path, lines, len(asked), self.patience)
        replies = [msgspec.json.decode(line) for line in heard.splitlines()]
        for reply in replies:
            if not reply.get("ok"):
                raise (Busy if reply.get("retryable") else PostroomError)(_in_a_hook(str(reply.get("error"))))
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
