"""The parts of a row of the command table. They are plain classes, as dataclasses are slow to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Option:
    """An option (`--subject`) or a place (`ID`).

    `kind` is the type of its value: text, flag, count, seconds, when (a later time), past (an earlier time), json,
    address (a word, or a JSON object), word (one of `choices`), setting (NAME=VALUE of a setting), pair (any
    NAME=VALUE), rule (a pair, or an empty text). `complete` is what shells offer: agents, letters, scopes, peers,
    webhooks, dead, sent, tasks, templates, escalations, files, commands.
    """

    __slots__ = ("choices", "complete", "default", "help", "kind", "many", "metavar", "name", "names", "required")

    def __init__(
        self,
        *names: str,
        help: str,
        kind: str = "text",
        metavar: str = "",
        many: bool = False,
        required: bool = False,
        default: Any = None,
        choices: tuple[str, ...] = (),
        complete: str = "",
    ) -> None:
        self.names = names
        long = next((name for name in names if name.startswith("--")), names[0])
        self.name = long.lstrip("-").replace("-", "_").lower()  # the name of its value in a call
        self.help = help
        self.kind = kind
        self.metavar = metavar or (names[0] if self.is_place else "|".join(choices) or self._usual_metavar())
        self.many = many
        self.required = required
        self.default = default
        self.choices = choices
        self.complete = complete

    def _usual_metavar(self) -> str:
        return "JSON" if self.kind == "json" else self.name.upper()

    @property
    def is_place(self) -> bool:
        return not self.names[0].startswith("-")


class Command:
    """One command: its name, its options and its help."""

    __slots__ = ("about", "examples", "exits", "function", "json", "looks", "name", "options", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        *options: Option,
        about: str = "",
        examples: tuple[tuple[str, str], ...] = (),
        json: tuple[tuple[str, str], ...] = (),
        exits: tuple[tuple[int, str], ...] = (),
        function: str = "",
        looks: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.options = options
        self.about = about
        self.examples = examples  # (command line, what it does); every one of them is run by a test
        self.json = json  # (field, what it holds), besides schema and command
        self.exits = exits  # exit codes with a special meaning
        self.looks = looks  # only reads, or needs what exists already: it makes no room
        self.function = function or name.strip("_").replace(" ", "_")


EVERYWHERE = (
    Option(
        "--as",
        help="your agent name; by default POSTROOM_AGENT, or the agent of the host session that runs the command",
        metavar="NAME",
        complete="agents",
    ),
    Option(
        "--room",
        "--store",
        help="which room: a path with a / or that ends in .db, or an address; by default POSTROOM_STORE, else"
        " .postroom in the working folder or above it, else your own room",
        metavar="ADDRESS",
        complete="files",
    ),
    Option(
        "--set",
        help="a setting for this call, as in the reference",
        kind="setting",
        metavar="NAME=VALUE",
        many=True,
    ),
    Option(
        "--json",
        help="answer with JSON: one document, or one per line where a command answers repeatedly",
        kind="flag",
    ),
    Option("--color", help="colours and tables", kind="word", choices=("auto", "always", "never"), default="auto"),
    Option("-h", "--help", help="this text", kind="flag"),
)

ID = Option("ID", help="the letter's id, or how it begins", required=True, complete="letters")

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
RECEIPT_JSON = (
    ("id", "the letter's id"),
    ("thread", "the thread's root letter; its answers carry the same"),
    ("repeated", "true when this key had been sent before; then nothing was sent"),
    ("unknown", "recipients that have never been seen here: a new mailbox, or a typing error"),
    ("routed", "who was chosen for any: addresses"),
    ("letter", "the letter as it was accepted; see [letters](#letters)"),
)

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
NOTHING = (1, "nothing came")
