"""What a command gives back, and the one place where it becomes text: JSON, or what people read.

`data` is what programs rely on; its fields are those of the command table. `view` says the same to people.
"""

from __future__ import annotations

from functools import cached_property

from .. import service
from .light import Uninterrupted, load_msgspec

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Any

    from ..model.message import Message

SCHEMA = 1  # of every JSON document; grows when a field changes its meaning or goes


class Screen:
    """Where the answer is shown."""

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
    ) -> None:
        self.json = json
        self.tables = tables  # a terminal; else Markdown, for a file, a pipe or a prompt
        self.colour = colour
        self.width = width
        self._now = now
        self.caller = caller  # who calls, when the next command must say it again
        self.room = room  # likewise, the room
        self.short = short  # an id as a table shows it
        self.human = "human"  # what the person's mailbox is called; the settings may say otherwise

    @cached_property
    def now(self) -> datetime:
        """The time at the first look at it, or what was handed in."""
        if self._now is not None:
            return self._now
        from ..clock import SystemClock  # noqa: PLC0415 - help needs no clock

        return SystemClock().now().wall


class Answer:
    """One answer. Commands that keep answering give several."""

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
        self.letters = letters  # as they were accepted, for views that fence them
        self.code = code

    def text(self, screen: Screen) -> str:
        if screen.json:
            with Uninterrupted():
                load_msgspec()
                from ..model.codec import encode  # noqa: PLC0415 - people need no JSON

            said = encode({"schema": SCHEMA, "command": self.command, **self.data})
            return service.present.harmless_json(said).decode() + "\n"
        return self.view(screen, {**self.data, "accepted": self.letters})


def sayable(text: str) -> str:
    """A path may hold bytes that are no text; they are written out."""
    return text.encode("utf-8", "backslashreplace").decode()
