"""Rows of the command table for nanobot and agent-swarm; the functions are in `postroom.cli.edges`."""

from __future__ import annotations

from .shape import Command, Option

COMMANDS = {
    "nanobot doctor": Command(
        "nanobot doctor",
        "check whether nanobot finds the channel mailbox, and why not",
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


# -- agent-swarm

SWARM_COMMANDS = {
    "swarm install": Command(
        "swarm install",
        "let programs written for agent-swarm's mailbox use Postroom",
        Option("FOLDER", help="where they import it from; shared by default", complete="files"),
        Option("--force", help="replace a file that Postroom did not write", kind="flag"),
        about="Writes agent_mailbox.py, which hands on all names of postroom.swarm, and a line in __init__.py beside it, so"
        " that both `from shared.agent_mailbox import send_message` and `from shared import send_message` work. What the"
        " project wrote into __init__.py stays. Mail stays where it is, in workspace/mailboxes, and in its format. An"
        " agent_mailbox.py that Postroom did not write is left as it is. Needs no --as and no room.",
        examples=(("postroom swarm install", "writes shared/agent_mailbox.py"),),
        json=(
            ("path", "the file"),
            ("outcome", "written, replaced, or unchanged when it was there already"),
            ("package", "the package's __init__.py"),
            ("export", "written, extended, unchanged, or skipped where FOLDER cannot be a package"),
        ),
        exits=((73, "it cannot be written, or there is a file that is not ours"),),
        looks=True,
    ),
}

COMMANDS |= SWARM_COMMANDS
