"""Options that several commands share, where no verb declares them."""

from __future__ import annotations

from .command import Option

ID = Option("ID", help="the letter's id, or how it begins", required=True, complete="letters")

TEXT = Option("TEXT", help="the text, in place of --body", name="body")
BODY = (
    Option("--body", help="the text; - reads it from standard input", metavar="TEXT"),
    Option("--edit", help="write the text in $VISUAL or $EDITOR", kind="flag"),
)
PARTS = (
    Option("--file", help="enclose this file, read now; it must lie below the setting file_root", many=True,
           metavar="PATH", complete="files"),
    Option("--reference", help="point to something elsewhere", many=True, metavar="URI"),
    Option("--part", help="a part as JSON, such as an event or a type of your own", kind="json", many=True),
)  # fmt: skip
FIELDS = (
    Option("-s", "--subject", help="one line", metavar="TEXT"),
    Option("--cc", help="a copy to this agent", kind="address", many=True, metavar="NAME", complete="agents"),
    Option("--bcc", help="a copy nobody else sees", kind="address", many=True, metavar="NAME", complete="agents"),
    Option(
        "-p",
        "--priority",
        help="how urgent; by default that of the template or of the letter that is answered or forwarded, else normal",
        kind="word",
        choices=("low", "normal", "high", "urgent"),
    ),
    Option(
        "-k",
        "--kind",
        help="any word, such as request. Default: message; for a broadcast notification, for a handoff handoff; a"
        " forwarded letter keeps its kind",
        metavar="WORD",
    ),
    Option("--at", help="deliver later: a span such as 10m, or a time", kind="when", metavar="WHEN"),
    Option("--expires", help="expires after this: a span such as 2h, or a time", kind="when", metavar="WHEN"),
    Option("--tag", help="a label", many=True, metavar="LABEL"),
    Option("--data", help="any JSON, as a part of its own", kind="json"),
    *PARTS,
    Option("--attachment", help="the name of something that is stored elsewhere", many=True, metavar="NAME"),
    Option("--scope", help="a team", metavar="NAME", complete="scopes"),
    Option("--thread-tag", help="a label for a thread without a common root", metavar="LABEL"),
    Option("--conversation", help="the conversation it belongs to", metavar="ID"),
    Option(
        "--task",
        help="a note about a task: id, state, deadline, reason. Only with --kind; to move a task, use the commands"
        " under tasks",
        kind="json",
    ),
    Option("--callback", help="an object that replies repeat", kind="json"),
    Option("--context", help="an object, such as a handoff's", kind="json"),
    Option("--metadata", help="an object of your own", kind="json"),
    Option("--extra", help="an object of unknown fields of a source format", kind="json"),
    Option("--key", help="a key that makes sending safe to repeat: the same key is sent once", metavar="TEXT"),
    Option("--letter-id", help="the id of the letter, where it has one already", metavar="ID"),
)
WHOLE = Option("--everyone", "--all", help="of the whole room, not of one agent", kind="flag")
LIMIT = Option("-n", "--limit", help="at most so many", kind="count", metavar="N")
FILTERS = (
    Option("--kind", help="only this kind", many=True, metavar="WORD"),
    Option("--min-priority", help="this or above", kind="word", choices=("low", "normal", "high", "urgent")),
    Option("--from", help="only from this agent", metavar="NAME", complete="agents"),
    Option("--thread", help="only this thread", metavar="ID", complete="letters"),
    Option("--thread-tag", help="only this thread tag", metavar="LABEL"),
    Option("--tag", help="only this tag", metavar="LABEL"),
    Option("--scope", help="only this scope", metavar="NAME", complete="scopes"),
)
SINCE = Option(
    "--since", help="written at or after this: a time, or a span back such as 2h", kind="past", metavar="WHEN"
)
TOKEN = Option(
    "--token",
    help="the token that claim printed; by default POSTROOM_TOKEN. Not needed for a letter that nobody has claimed",
    metavar="TOKEN",
)
