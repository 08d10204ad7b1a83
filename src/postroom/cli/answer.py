"""The answer of a command, and the screen on which it is shown.

With --json an answer is one document, whose fields the command names; else a view lays it out for
people. This module imports neither the library nor `output`, so that help and the version cost little.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..environment import Uninterrupted, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from typing import TextIO

    from ..model.message import Message
    from .parse import Call


MOST = 200  # entries of a list that are shown to people, unless --limit asks for more
SCHEMA = 1  # version of every JSON document; grows when a field changes its meaning or goes
NARROWEST = 40


class Screen:
    """The terminal, file or pipe on which an answer is shown."""

    def __init__(
        self,
        *,
        json: bool,
        tables: bool,
        colour: bool,
        width: int,
        now: datetime | None = None,
        caller: str = "",
        room: str = "",
        short: Callable[[str], str] = str,
        most: int | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.json = json
        self.tables = tables  # a terminal; else Markdown, for a file, a pipe or a prompt
        self.colour = colour
        self.width = width
        self._now = now
        self.caller = caller  # the agent, where the next command must name it again
        self.room = room  # the room, where the next command must name it again
        self.short = short  # shortens an id for a table
        self.most = most  # entries of a list that are shown; None for all
        self.values = values or {}  # of the options, for views that show what was asked for
        self.human = "human"  # name of the person's mailbox; the settings may change it
        self.note: Callable[[str], object] = str  # shows a person a note beside the answer
        self.people: Callable[[], Collection[str]] = frozenset  # returns the folded names of people in the room
        # Returns which of these letters were taken back.
        self.taken_back: Callable[[Collection[str]], Collection[str]] = lambda _ids: ()

    def begun(self, value: Any) -> Any:
        """Return a value; of a list, as many entries as are shown."""
        return value[: self.most] if isinstance(value, (list, tuple)) else value

    @cached_property
    def now(self) -> datetime:
        """The time when it was first asked for, or the one that was passed in."""
        if self._now is not None:
            return self._now
        from ..clock import SystemClock  # noqa: PLC0415 - help needs no clock

        return SystemClock().now().wall


class Answer:
    """One answer of a command: `data` for programs, and a `view` that renders it for people."""

    def __init__(
        self,
        command: str,
        data: Mapping[str, Any],
        view: Callable[[Screen, Mapping[str, Any]], str],
        *,
        letters: tuple[Message, ...] = (),
        code: int = 0,
    ) -> None:
        self.command = command
        self.data = data
        self.view = view
        self.letters = letters  # the messages, for views that fence them
        self.code = code

    def text(self, screen: Screen) -> str:
        kept = {name: screen.begun(value) for name, value in self.data.items()}
        if screen.json:
            with Uninterrupted():
                from ..core.presentation import escape_json  # noqa: PLC0415 - help needs no msgspec
                from ..model.codec import encode  # noqa: PLC0415 - help needs no msgspec

            return escape_json(encode({"schema": SCHEMA, "command": self.command, **kept})).decode() + "\n"
        more = sum(len(self.data[name]) - len(found) for name, found in kept.items() if isinstance(found, list))
        rest = f"… and {more:,} more: --limit N shows so many, --json all\n" if more else ""
        return self.view(screen, kept | {"accepted": screen.begun(self.letters)}) + rest


def screen_of(call: Call) -> Screen:
    """Return the screen for the answer to a call: what standard output is, and what the options ask for."""
    terminal = sys.stdout.isatty()
    wish = call.values.get("color", "auto")
    plain = variable("NO_COLOR") or variable("TERM") == "dumb"
    named = call.values.get("as", "")
    limit = call.values.get("limit")
    return Screen(
        json=bool(call.values.get("json")),
        tables=terminal or wish == "always",
        colour=wish == "always" or (wish == "auto" and terminal and not plain),
        width=columns(sys.stdout) if terminal else 100,
        caller=named if named != variable("POSTROOM_AGENT") else "",
        room=call.values.get("room", ""),
        most=limit if isinstance(limit, int) else None if call.values.get("json") else MOST,
        values=call.values,
    )


def columns(stream: TextIO) -> int:
    """Return the width of a terminal. The variable COLUMNS takes precedence over what the terminal reports."""
    wish = variable("COLUMNS")
    if wish.isascii() and wish.isdecimal() and len(wish) < 5:
        return max(int(wish), NARROWEST)
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, NARROWEST)
    except OSError:
        return 80


def printable(value: Any) -> Any:
    """Return a value that can be printed: in a text, bytes that are not UTF-8 and lone surrogates are written out."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
