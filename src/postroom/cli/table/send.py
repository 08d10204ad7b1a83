"""Rows of the command table for sending letters; the functions are in `postroom.cli.send`."""

from __future__ import annotations

from .shape import BODY, FIELDS, ID, RECEIPT_JSON, Command, Option

_TEXT = (
    "The text comes from --body, else from standard input when that is not a terminal, else from $VISUAL or $EDITOR."
    " An empty text from the editor sends nothing. When the command returns, the letter is on stable storage; an"
    " error that is temporary shows the key with which to send the same letter again."
)
_SENT = ((75, "not now: the same command with the --key from the error sends nothing twice"),)

COMMANDS = {
    "send": Command(
        "send",
        "send a letter to one agent or many",
        Option("TO", help="an agent's name; NAME@SYSTEM, or JSON with agent, system, scope; broadcast:SCOPE; or any:CAPABILITY,"
        " the least busy agent with that capability", kind="address", many=True,
               complete="agents"),
        *BODY,
        *FIELDS,
        Option("--in-reply-to", help="the letter this one answers or follows", metavar="ID", complete="letters"),
        Option("--template", help="the text, kind, priority and tags of this template", metavar="NAME",
               complete="templates"),
        Option("--fill", help="what stands in a place of the template", kind="pair", metavar="PLACE=TEXT", many=True),
        Option("--drafts", help="send many letters in one commit: a file of JSON lines, each with to, body and fields;"
               " - is standard input", metavar="PATH", complete="files"),
        about=_TEXT,
        examples=(
            ('postroom send researcher --as coder --body "Which sort is stable?"', "a plain letter"),
            ('postroom send coder tester --as planner -s Release -p urgent --body "Friday." --at 10m', "to two, later"),
            ("echo 'Please look at sort.py' | postroom send reviewer --as coder --key look-1", "the text from a pipe"),
            ("postroom send coder --as planner --body 'Sort it.' --data '{\"rows\": 10}' --json", "with data, for a program"),
            ('postroom send any:python --as planner --body "Sort it."', "to the least busy agent that knows Python; the receipt names it"),
            ("postroom send coder --as planner --template review --fill file=sort.py", "from a template"),
        ),
        json=(*RECEIPT_JSON, ("receipts", "with --drafts, instead: one such object for each letter")),
        exits=_SENT,
    ),
    "reply": Command(
        "reply",
        "answer a letter",
        ID,
        *BODY,
        Option("--to-all", "--all", help="to everyone the letter went to, not to its sender alone", kind="flag"),
        Option("--done", help="you are done with the letter: acknowledge it in the same commit, unless somebody has claimed it",
               kind="flag"),
        *FIELDS,
        about="Keeps thread, scope, priority and conversation, and puts Re: before the subject once. " + _TEXT,
        examples=(('postroom reply m-1 --as researcher --body "Merge sort."', "answer a letter"),
                  ('postroom reply m-1 --as researcher --done --body "Merge sort."', "and be done with it")),
        json=RECEIPT_JSON,
        exits=_SENT,
        looks=True,
    ),
    "forward": Command(
        "forward",
        "pass a letter on",
        ID,
        Option("TO", help="an agent's name", kind="address", many=True, required=True, complete="agents"),
        *BODY,
        *FIELDS,
        about="A letter is relayed a limited number of times, and never back along its way. Without --body, nothing is"
        " added to it.",
        examples=(("postroom forward m-1 reviewer --as researcher --body 'Yours, I think.'", "with a word of your own"),),
        json=RECEIPT_JSON,
        exits=((77, "it would go in a circle, or was passed on too often"), *_SENT),
        looks=True,
    ),
    "broadcast": Command(
        "broadcast",
        "send one letter to everyone in a scope",
        Option("SCOPE", help="a team; agents join one when they register", required=True, complete="scopes"),
        *BODY,
        Option("--exclude", help="leave this agent out", many=True, metavar="NAME", complete="agents"),
        *(option for option in FIELDS if option.name != "scope"),
        about=_TEXT,
        examples=(('postroom broadcast sorting --as planner --body "The release is on Friday."', "tell the team"),),
        json=RECEIPT_JSON,
        exits=((67, "nobody else is in this scope"), *_SENT),
    ),
    "handoff": Command(
        "handoff",
        "hand work over, with all its context",
        Option("TO", help="an agent's name", kind="address", many=True, required=True, complete="agents"),
        Option("--done", help="what you have done so far, as a text", metavar="TEXT"),
        Option("--state", help="where it stands", metavar="TEXT"),
        Option("--next", help="a next step", many=True, metavar="TEXT"),
        Option("--blocker", help="what stands in the way", many=True, metavar="TEXT"),
        Option("--modified", help="a file that was changed", many=True, metavar="PATH", complete="files"),
        Option("--created", help="a file that was made", many=True, metavar="PATH", complete="files"),
        Option("--dependency", help="what it depends on", many=True, metavar="TEXT"),
        Option("--escalation", help="the id of a related escalation", many=True, metavar="ID"),
        Option("--state-file", help="a file that holds the state", metavar="PATH", complete="files"),
        Option("--job", help="the id of the job", metavar="ID"),
        Option("--notes", help="anything else", metavar="TEXT"),
        Option("--from-file", help="the whole handoff as a JSON object; - is standard input", metavar="PATH",
               complete="files"),
        *(option for option in FIELDS if option.name not in {"context", "file", "reference", "part", "data"}),
        about="The recipient gets a letter of kind handoff: a text to read, and the same as an object in its context."
        " Say at least --done, or give a file.",
        examples=(
            ("postroom handoff reviewer --as coder --done 'Merge sort written.' --next 'Review sort.py' --created sort.py",
             "by options"),
            ("echo '{\"work_completed\": \"All tests pass.\"}' | postroom handoff reviewer --as coder --from-file -",
             "from a program"),
        ),
        json=RECEIPT_JSON,
        exits=_SENT,
    ),
}  # fmt: skip


# -- unsend, block

BLOCKED_JSON = (("blocked", "all names whose mail is refused now"),)

ERRAND_COMMANDS = {
    "unsend": Command(
        "unsend",
        "take back letters that you sent",
        Option("ID", help="the letter's id, or how it begins", many=True, required=True, complete="sent"),
        about="A letter is taken back from all its recipients or none, as long as nobody has claimed or settled it. A"
        " recipient who had not read it never sees it. Several letters are taken back one after the other, until"
        " the first that cannot be. Taking one back twice is no error.",
        examples=(("postroom unsend m-2 --as coder", "a slip of the pen"),),
        json=(("letters", "a list of [letters](#letters), without delivery, to be corrected and sent again"),),
        exits=((67, "you sent no such letter"), (77, "too late; the error says who has it")),
        looks=True,
    ),
    "block": Command(
        "block",
        "refuse mail from an agent; without a name, list who is refused",
        Option("NAME", help="whose mail; it may be nobody yet", complete="agents"),
        about="Its sends to you fail with exit 77. You need not be registered.",
        examples=(("postroom block spammer --as coder", "no more of it"), ("postroom block --as coder", "who is refused")),
        json=BLOCKED_JSON,
    ),
    "unblock": Command(
        "unblock",
        "accept mail from an agent again",
        Option("NAME", help="whose mail", required=True, complete="agents"),
        examples=(("postroom unblock spammer --as coder", "all is forgiven"),),
        json=BLOCKED_JSON,
        looks=True,
    ),
}  # fmt: skip


# -- templates

NAME = Option("NAME", help="the template's name", required=True, complete="templates")
TEMPLATE = "name, subject, body, kind, priority, tags, and places, the names of what is to be filled in"

TEMPLATE_COMMANDS = {
    "templates": Command(
        "templates",
        "list the letters that were written beforehand",
        about="Templates belong to the room. postroom send --template NAME --fill PLACE=TEXT sends one. Needs no --as.",
        examples=(("postroom templates", "all of them"),),
        json=(("templates", f"each with {TEMPLATE}"),),
        looks=True,
    ),
    "templates show": Command(
        "templates show",
        "show one template",
        NAME,
        examples=(("postroom templates show review", "one of them"),),
        json=(("template", "as in templates"),),
        exits=((67, "there is no such template"),),
        looks=True,
    ),
    "templates save": Command(
        "templates save",
        "keep a recurring letter",
        NAME,
        *BODY,
        Option("-s", "--subject", help="one line", metavar="TEXT"),
        Option("-k", "--kind", help="an open word, such as request or notification", metavar="WORD"),
        Option("-p", "--priority", help="how urgent", kind="word", choices=("low", "normal", "high", "urgent")),
        Option("--tag", help="a label", many=True, metavar="LABEL"),
        about="Text, subject and tags may hold places such as {file}; a brace itself is written {{ or }}. Replaces a"
        " template of the same name. The text comes from --body, else from standard input when that is not a terminal,"
        " else from $VISUAL or $EDITOR.",
        examples=(("postroom templates save review -s 'Review {file}' --body 'Please look at {file}.' -k request", "a new one"),),
        json=(("template", "as in templates"),),
    ),
    "templates delete": Command(
        "templates delete",
        "delete a template",
        NAME,
        examples=(("postroom templates delete review", "gone; letters made from it stay"),),
        json=(("deleted", "its name"),),
        exits=((67, "there is no such template"),),
        looks=True,
    ),
}  # fmt: skip

COMMANDS |= ERRAND_COMMANDS | TEMPLATE_COMMANDS
