"""Which error ends the program with which code: those of sysexits, which scripts and mail programs know.

The errors of the command line itself stand here too; each is one of the house's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..environment import variable
from ..errors import (
    BadStore,
    Busy,
    Conflict,
    Damaged,
    Invalid,
    Missing,
    PostroomError,
    Refused,
    SchemaTooNew,
    StaleRevision,
    StoreFailing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


OK = 0
NOTHING = 1  # nothing came, nothing was sent
NOT_NOW = 75  # what was asked for did not get through; another time it may
INTERRUPTED = 130  # as a shell reports Ctrl-C
PIPE_CLOSED = 141  # as a shell reports a reader that left
IO = 74


class Usage(Invalid):
    """The command line cannot be understood."""

    code = 1901


class NoInput(Invalid):
    """There is no such file or room to read."""

    code = 1902


class CannotCreate(Invalid):
    """The file or folder cannot be made."""

    code = 1903


class Misconfigured(Invalid):
    """A setting is wrong."""

    code = 1904


class Abandoned(Refused):
    """The text was left empty, so nothing was sent."""

    code = 2901


# The nearest of an error's ancestors decides.
EXITS: dict[type[PostroomError], int] = {
    Usage: 64,
    Invalid: 65,
    NoInput: 66,
    Missing: 67,
    Conflict: 69,
    PostroomError: 70,
    Damaged: 70,
    CannotCreate: 73,
    StoreFailing: IO,
    Busy: 75,
    StaleRevision: 75,
    Refused: 77,
    BadStore: 78,
    Misconfigured: 78,
    SchemaTooNew: 78,
    Abandoned: NOTHING,
}

MEANINGS: tuple[tuple[int, str], ...] = (
    (OK, "done; an empty inbox is no error"),
    (NOTHING, "nothing came in time (wait, claim, work), the text was left empty, or the doctor has warnings"),
    (64, "the command line cannot be understood"),
    (65, "a value breaks a rule; the error names the field"),
    (66, "there is no such file to read, or no such room"),
    (67, "no such agent or letter, or not yours"),
    (69, "someone else was first: the lease is lost, the key or name is taken, the cursor is too old"),
    (70, "the room is damaged, or Postroom itself is at fault"),
    (73, "a file or folder cannot be made"),
    (IO, "the disk is full or failing"),
    (75, "not now; the same again later helps"),
    (77, "the rules of the house say no"),
    (78, "the room's address, its version or a setting is wrong"),
    (INTERRUPTED, "interrupted by Ctrl-C; nothing is half done"),
    (PIPE_CLOSED, "whoever read the output left"),
)


def exit_code(error: PostroomError) -> int:
    return next(EXITS[kind] for kind in type(error).__mro__ if kind in EXITS)


# An error as people and programs read it, and the code to end with.

LONGEST = 1000  # characters of what an error says; whatever it quotes


def complain(error: PostroomError, words: Sequence[str]) -> int:
    """Say what is wrong, on standard error."""
    error.message = _shortened(error.message)
    error.field, error.hint = error.field and _shortened(error.field), error.hint and _shortened(error.hint)
    if "--json" in words:
        from ..core.presentation import harmless_json  # noqa: PLC0415
        from ..model.codec import encode  # noqa: PLC0415 - not for a word to people

        text = harmless_json(encode({"schema": 1, "error": as_plain(error)})).decode()
    else:
        text = _for_people(error)
    sys.stderr.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stderr.buffer.flush()
    return exit_code(error)


def as_plain(error: PostroomError) -> dict[str, Any]:
    """The fields that programs may rely on."""
    known = {
        "code": error.code,
        "name": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "hint": error.hint,
        "temporary": error.temporary,
        "key": error.key,
        "retry_after": error.retry_after,
        "exit": exit_code(error),
    }
    return {name: _sayable(value) for name, value in known.items()}


def _for_people(error: PostroomError) -> str:
    from ..core.presentation import visible  # noqa: PLC0415 - only for mistakes

    bold, plain = ("\033[1;31m", "\033[0m") if _is_colourful() else ("", "")
    where = f"{error.field}: " if error.field else ""
    lines = [f"postroom: {visible(where + error.message)}"]
    if error.hint:
        lines.append(f"  {visible(error.hint)}")
    if error.key:
        lines.append(f"  to send the same letter again: --key {visible(error.key)}")
    text = "\n".join(folded for line in lines for folded in _folded(line.replace("\n", " ")))
    return f"{bold}postroom:{plain}{text.removeprefix('postroom:')}"


def _shortened(text: str) -> str:
    """What comes before a long quotation and behind it is what matters."""
    return text if len(text) <= LONGEST else f"{text[:120]}…{text[-120:]}"


def _folded(line: str) -> list[str]:
    """To the terminal's width. What has no blanks stays whole: it may be a path, or something to type."""
    if not sys.stderr.isatty():
        return [line]
    from textwrap import wrap  # noqa: PLC0415 - only for mistakes

    from .output import columns  # noqa: PLC0415

    return wrap(line, columns(sys.stderr), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _is_colourful() -> bool:
    return sys.stderr.isatty() and not variable("NO_COLOR") and variable("TERM") != "dumb"


def _sayable(value: Any) -> Any:
    """Half characters cannot be written as JSON."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
