"""The row of the command for nanobot. Its function stands in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

COMMANDS = {
    "nanobot doctor": Command(
        "nanobot doctor",
        "does nanobot find the channel mailbox, and why not",
        Option("--config", help="nanobot's config; ~/.nanobot/config.json by default", complete="files"),
        Option("--repair", help="put the channel where nanobot looks for it", kind="flag"),
        about="Looks at which nanobot is installed beside this Postroom, whether the channel and its tools are there,"
        " asks nanobot itself, checks the section channels.mailbox, and says whether a gateway of this agent is up. Provider and"
        " model are nanobot's own matter: `nanobot agent -m hello` tries them. nanobot 0.3 looks for channels in its own folder:"
        " if ours was removed from there, --repair puts it back. Needs no --as and no room.",
        examples=(
            ("postroom nanobot doctor", "how is it"),
            ("postroom nanobot doctor --repair", "and mend it"),
        ),
        json=(
            ("healthy", "no warning and no error is left"),
            ("worst", "of what is left: ok, note, warning or error"),
            ("findings", "each with check, level, what, hint (what to do about it), repaired"),
        ),
        exits=((1, "warnings are left"), (70, "errors are left")),
        looks=True,
    ),
}
