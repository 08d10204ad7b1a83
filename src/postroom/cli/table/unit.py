"""Rows of the command table for the systemd unit; the functions are in `postroom.cli.unit`."""

from __future__ import annotations

from .serve import COMMANDS as SERVING
from .shape import Command, Option

DRY = Option("--dry-run", help="only say what would be done", kind="flag")
NOT_OURS = (73, "it cannot be written, or there is a file that is not ours")
PATH = ("path", "of the unit's file")
NEXT = ("next", "lines to type")

COMMANDS = {
    "service install": Command(
        "service install",
        "let systemd start the post room when you log in",
        DRY,
        *SERVING["serve"].options,
        about="Writes a unit for your own systemd, which starts postroom serve with the same options, and again when it"
        " fails. The room is the one that you would use here, by its whole path. A file that Postroom did not write is left"
        " as it is. Nothing is started: the lines that do are told. systemd need not be there.",
        examples=(
            ("postroom service install --dry-run", "what the unit would say"),
            ("postroom service install --http off", "for the room of this project, without HTTP"),
        ),
        json=(
            PATH,
            ("outcome", "written, replaced, unchanged, or shown"),
            ("unit", "its text"),
            ("served", "the room of the unit that was there before, or null"),
            NEXT,
        ),
        exits=(NOT_OURS,),
        looks=True,
    ),
    "service uninstall": Command(
        "service uninstall",
        "take the unit away again",
        DRY,
        about="Only one that Postroom wrote. The room and its mail stay. Stop it first, by systemctl --user disable --now"
        " postroom.service: while systemd says that it is active or enabled this is refused, for without the file systemd cannot"
        " disable it.",
        examples=(("postroom service uninstall", "after it was stopped"),),
        json=(PATH, ("outcome", "removed, missing, or there with --dry-run"), NEXT),
        exits=(NOT_OURS, (77, "it is still active or enabled")),
        looks=True,
    ),
    "service status": Command(
        "service status",
        "show whether there is a unit, and its state in systemd",
        examples=(("postroom service status", "ours? enabled? active?"),),
        json=(
            PATH,
            ("file", "ours, not ours, or missing"),
            ("enabled", "what systemctl is-enabled says; null where nobody can be asked"),
            ("active", "likewise of is-active"),
        ),
        looks=True,
    ),
}
