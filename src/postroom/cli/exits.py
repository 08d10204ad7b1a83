"""Which error ends the program with which code: those of sysexits, which scripts and mail programs know.

The errors of the command line itself stand here too; each is one of the house's.
"""

from __future__ import annotations

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
