"""Rows of the command table for copies of a whole room; the functions are in `postroom.cli.copies`."""

from __future__ import annotations

from .shape import Command, Option

_FORCE = Option("--force", help="replace a file that is there", kind="flag")
_NO_ROOM = (66, "there is no room to copy")
_FULL = (74, "the disk is full; nothing is left of the copy")

COMMANDS = {
    "copy": Command(
        "copy",
        "copy mail from one room into another",
        Option("SRC", help="the room to copy, by path or address", required=True, complete="files"),
        Option("DST", help="the room to copy to; made if it is not there", required=True, complete="files"),
        about="The rooms may be of any kind, and DST need not be empty. Letters keep their ids and keys: a second"
        " run copies only what is new, and brings states up to date. The later state wins, and what is done stays"
        " done. Names, cards, templates, tasks, escalations and blocks come along. A copy that is cut off leaves"
        " both rooms whole; the same command goes on. Mounts keep rooms in step. An address with a ? needs quotes in a shell. See [rooms in folders](files.md).",
        examples=(("postroom copy room.db 'files:mail?layout=nanobot'", "into folders, as nanobot has them"),),
        json=(
            ("letters", "how many were new in DST"),
            ("states", "deliveries that were brought up to date"),
            ("names, records", "how many were new or later"),
            ("refused", "what could not be copied and stays in SRC: each with what (an id or a name) and why"),
        ),
        exits=(
            (66, "there is no room SRC; none is made"),
            (69, "some letters were refused; all others are copied"),
            (73, "there is no folder for DST"),
            (78, "an address is wrong, or DST is SRC"),
        ),
    ),
    "export": Command(
        "export",
        "write the whole room as JSON lines",
        Option("FILE", help="where to; standard output by default", complete="files"),
        _FORCE,
        about="A file is written beside its place and put there when it is whole; one that is there already is refused"
        " without --force.",
        examples=(("postroom export room.jsonl", "a copy that any store can read"),),
        json=(("file", "where it is"), ("lines", "how many"), ("bytes", "how many")),
        exits=(_NO_ROOM, (73, "the file is there already, or cannot be made"), _FULL),
        looks=True,
    ),
    "import": Command(
        "import",
        "fill an empty room from an export",
        Option("FILE", help="where from; - is standard input", required=True, complete="files"),
        about="A file that does not begin as an export makes no room. If the import is interrupted, or a line is"
        " refused, the lines before it stay: run the same import again, with the whole or corrected file, and it"
        " goes on where it stopped.",
        examples=(("postroom import --room other.db room.jsonl", "into a new room"),),
        json=(("letters", "how many"), ("records", "how many"), ("names", "how many")),
        exits=(
            (65, "it is no export, or not a whole one"),
            (66, "there is no such file"),
            (69, "the room is not empty"),
        ),
    ),
    "backup": Command(
        "backup",
        "copy the room, while others use it",
        Option("FILE", help="where to", required=True, complete="files"),
        _FORCE,
        about="The copy is the whole room at one moment, in one file. Other processes need not wait for it. The file"
        " gets its name when it is on the disk, so there is never a partial backup.",
        examples=(("postroom backup monday.db", "now"), ("postroom backup monday.db --force", "again")),
        json=(
            ("path", "where it is"),
            ("letters", "how many"),
            ("bytes", "how many"),
            ("seconds", "how long it took"),
            ("kept", "null"),
        ),
        exits=(_NO_ROOM, (73, "the file is there already, or cannot be made"), _FULL),
        looks=True,
    ),
    "restore": Command(
        "restore",
        "restore a room from a backup",
        Option("FILE", help="the backup", required=True, complete="files"),
        Option("--force", help="replace a room that holds mail; it is kept beside the new one", kind="flag"),
        about="The backup is checked first. Nobody may have the room open meanwhile: if anybody has, the error names"
        " the process, and nothing happens. --room says which room.",
        examples=(("postroom restore monday.db --room other.db", "into a new room"),),
        json=(
            ("path", "the room's file"),
            ("letters", "how many"),
            ("bytes", "how many"),
            ("seconds", "how long it took"),
            ("kept", "where the room that was there before is kept; null if there was none"),
        ),
        exits=(
            (65, "it is no backup"),
            (66, "there is no such file, or it cannot be read"),
            (69, "the room holds mail: --force"),
            (70, "the backup is damaged"),
            (74, "the disk is full; the room is as it was"),
            (75, "somebody has the room open"),
            (78, "it was made by a newer Postroom"),
        ),
    ),
}
