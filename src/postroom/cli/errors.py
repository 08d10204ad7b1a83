"""Errors on the command line: their exit codes, and how they are printed.

Exit codes are those of sysexits, which scripts and mail programs know. The errors of the command line itself stand
here too; each derives from a class of `postroom.errors`.
"""

from __future__ import annotations

import sys
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from typing import TYPE_CHECKING

from ..environment import Uninterrupted, variable
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
NOT_NOW = 75  # the request did not get through; a later one may
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


def cannot_write(what: str, broken: OSError, field: str) -> CannotCreate | StoreFailing:
    """Return the error for a file that cannot be written, because of its name or because of the disk."""
    is_disk = broken.errno in {ENOSPC, EDQUOT, EFBIG, EIO}
    return (StoreFailing if is_disk else CannotCreate)(f"{what} cannot be written: {broken.strerror}", field=field)


# The nearest ancestor of an error that is listed here decides.
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
    (77, "a rule of the room forbids it"),
    (78, "the room's address, its version or a setting is wrong"),
    (INTERRUPTED, "interrupted by Ctrl-C; nothing is half done"),
    (PIPE_CLOSED, "the reader of the output closed it"),
)


def exit_code(error: PostroomError) -> int:
    return next(EXITS[kind] for kind in type(error).__mro__ if kind in EXITS)


LONGEST = 1000  # characters of a message that are printed: it may quote a long value


def complain(error: PostroomError, words: Sequence[str]) -> int:
    """Print an error on standard error and return the exit code."""
    error.message = _shortened(error.message)
    error.field, error.hint = error.field and _shortened(error.field), error.hint and _shortened(error.hint)
    if "--json" in words:
        with Uninterrupted():
            from ..core.presentation import escape_json  # noqa: PLC0415 - only for JSON
            from ..model.codec import encode  # noqa: PLC0415 - only for JSON

        text = escape_json(encode({"schema": 1, "error": as_plain(error)})).decode()
    else:
        text = _for_people(error)
    sys.stderr.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stderr.buffer.flush()
    return exit_code(error)


def as_plain(error: PostroomError) -> dict[str, Any]:
    """Return the fields of an error that programs may rely on."""
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
    from .answer import printable  # noqa: PLC0415 - only for mistakes

    return {name: printable(value) for name, value in known.items()}


def _for_people(error: PostroomError) -> str:
    with Uninterrupted():
        from ..core.presentation import show_hidden  # noqa: PLC0415 - only for mistakes

    is_colourful = sys.stderr.isatty() and not variable("NO_COLOR") and variable("TERM") != "dumb"
    bold, plain = ("\033[1;31m", "\033[0m") if is_colourful else ("", "")
    where = f"{error.field}: " if error.field else ""
    lines = [f"postroom: {show_hidden(where + error.message)}"]
    if error.hint:
        lines.append(f"  {show_hidden(error.hint)}")
    if error.key:
        lines.append(f"  to send the same letter again: --key {show_hidden(error.key)}")
    text = "\n".join(folded for line in lines for folded in _folded(line.replace("\n", " ")))
    return f"{bold}postroom:{plain}{text.removeprefix('postroom:')}"


def _shortened(text: str) -> str:
    """Cut the middle out of a long message: what stands before and after a quoted value matters."""
    return text if len(text) <= LONGEST else f"{text[:120]}…{text[-120:]}"


def _folded(line: str) -> list[str]:
    """Fold a line to the terminal's width. A long word stays whole: it may be a path, or something to type."""
    if not sys.stderr.isatty():
        return [line]
    from textwrap import wrap  # noqa: PLC0415 - only for mistakes

    from .answer import columns  # noqa: PLC0415

    return wrap(line, columns(sys.stderr), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
