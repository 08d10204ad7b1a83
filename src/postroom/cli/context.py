"""What a command works with: what was said, who is calling, the room, where the answer goes."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from ..clock import SystemClock
from ..errors import Invalid, PostroomError
from ..mailbox import Mailbox
from ..room import Room
from ..room import open as open_room
from ..settings import Settings, load_settings
from ..whereabouts import variable
from .answers import Screen
from .exits import Misconfigured, Usage
from .light import Uninterrupted
from .parse import Call


class Context:
    """One call of the program. Everything is made when it is first needed: an error in what was said comes before
    any file is touched.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.values = call.values
        self.name = call.name
        self.draft: Path | None = None  # what was written in an editor, until it is sent

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def given(self, *names: str, **renamed: str) -> dict[str, Any]:
        """What was said of these, under the library's names; what was not said is left out."""
        wanted = {name: name for name in names} | renamed
        return {theirs: self.values[ours] for theirs, ours in wanted.items() if ours in self.values}

    @cached_property
    def me(self) -> str:
        name: str = self.get("as") or variable("POSTROOM_AGENT")
        if not name:
            raise Usage("who are you?", field="--as", hint="say --as NAME, or set POSTROOM_AGENT")
        return name

    @cached_property
    def mailbox(self) -> Mailbox:
        return Mailbox(self.room, self.me)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; a wrong one is told before the room is opened."""
        try:
            return load_settings({"store": self.get("room"), **dict(self.get("set", ()))})
        except Invalid as wrong:
            raise Misconfigured(wrong.message, field=wrong.field, hint=wrong.hint) from None

    @cached_property
    def room(self) -> Room:
        settings = self.settings
        with Uninterrupted():
            from ..store.sqlite import store  # noqa: F401, PLC0415 - loaded here, so that opening loads nothing more
        return open_room(settings.store or None, **dict(self.get("set", ())))

    @cached_property
    def screen(self) -> Screen:
        terminal = sys.stdout.isatty()
        wish = self.get("color", "auto")
        plain = variable("NO_COLOR") or variable("TERM") == "dumb"
        return Screen(
            json=bool(self.get("json")),
            tables=terminal or wish == "always",
            colour=wish == "always" or (wish == "auto" and terminal and not plain),
            width=_columns() if terminal else 100,
            now=SystemClock().now().wall,
        )

    def keep_draft(self, error: PostroomError) -> None:
        """It was not sent: say where the text is."""
        if self.draft is not None and self.draft.exists():
            kept = f"your text is kept in {self.draft}"
            error.hint = f"{error.hint}; {kept}" if error.hint else kept

    def drop_draft(self) -> None:
        if self.draft is not None:
            self.draft.unlink(missing_ok=True)
            os.rmdir(self.draft.parent)  # noqa: PTH106 - ours, and empty now


def _columns() -> int:
    """As wide as the terminal is; a person's COLUMNS beats what it says of itself."""
    said = variable("COLUMNS")
    if said.isascii() and said.isdecimal() and len(said) < 5:
        return max(int(said), 40)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, 40)
    except OSError:
        return 80
