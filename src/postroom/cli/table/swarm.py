"""The row of the command for agent-swarm. Its function stands in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

COMMANDS = {
    "swarm install": Command(
        "swarm install",
        "let programs written for agent-swarm's mailbox use Postroom",
        Option("FOLDER", help="where they import it from; shared by default", complete="files"),
        Option("--force", help="replace a file that Postroom did not write", kind="flag"),
        about="Writes agent_mailbox.py, which hands on all names of postroom.swarm. Their mail stays where it is, in"
        " workspace/mailboxes, and in its format. A file that Postroom did not write is left as it is. Needs no --as and no"
        " room.",
        examples=(("postroom swarm install", "writes shared/agent_mailbox.py"),),
        json=(
            ("path", "the file"),
            ("outcome", "written, replaced, or unchanged when it was there already"),
        ),
        exits=((73, "it cannot be written, or there is a file that is not ours"),),
        looks=True,
    ),
}
