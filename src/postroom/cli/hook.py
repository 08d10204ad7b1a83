"""The hooks of a host such as Claude Code: register when a session starts, show new mail with each prompt.

Mail comes from a daemon, where a socket is named; else from a room; or from an inbox.jsonl file, where only the
folder of those is named. What a prompt showed is marked as read after it was printed: better twice than never.
Where nobody can see what is printed, nothing is marked.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import PostroomError
from ..hosts.wording import LONGEST, SHORT, shown
from ..whereabouts import variable
from .answers import Answer
from .hook_quick import agent_of, exchange, folder_of, socket_of
from .hook_sources import FileSource, RoomSource, SocketSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .answers import Screen
    from .context import Context
    from .hook_sources import Entry

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
