"""Rows of the command table for work under a lease, and dead letters; the functions are in `postroom.cli.work`."""

from __future__ import annotations

from .shape import FILTERS, ID, LIMIT, NOTHING, SINCE, TOKEN, Command, Option

IDS = Option("ID", help="the letter's id, or how it begins; several are settled in one commit, all or none", many=True, required=True,
             complete="letters")  # fmt: skip
LEASE = Option(
    "--lease", help="how long, such as 60s or 1h; the setting lease by default", kind="seconds", metavar="SPAN"
)
LOST = (69, "the lease ran out, or another holds it")
MOVED_JSON = (
    ("letters", "for each id: id, state, attempts, reason and due_at (before that it is not offered again)"),
)

COMMANDS = {
    "claim": Command(
        "claim",
        "take the most urgent letter under a lease",
        Option("-n", "--count", help="up to so many at once", kind="count", metavar="N"),
        LEASE,
        Option("-t", "--timeout", help="wait for mail, such as 30s; not at all by default", kind="seconds", metavar="SPAN"),
        Option("--holder", help="a name for the history", metavar="TEXT"),
        *FILTERS,
        SINCE,
        about="No other process gets it while the lease lasts. The answer shows a token, the proof of the claim: ack,"
        " fail, release and renew need it, in this process or another. A letter that is not settled in time"
        " returns to the inbox.",
        examples=(
            ("postroom claim --as researcher --lease 5m", "one letter"),
            ("postroom claim --as coder --count 10 --kind request --json", "up to ten, for a program"),
        ),
        json=(
            ("letters", "a list of [letters](#letters), each with token and lease_seconds; empty when nothing came"),
        ),
        exits=(NOTHING,),
    ),
    "ack": Command(
        "ack",
        "settle a letter: it is done and leaves the inbox",
        IDS,
        TOKEN,
        Option("--reply", help="answer it in the same commit; - reads the text from standard input", metavar="TEXT"),
        Option("--to-all", help="with --reply: to everyone it went to", kind="flag"),
        Option("--drafts", help="send these letters in the same commit: a file of JSON lines", metavar="PATH",
               complete="files"),
        Option("--keep", help="do not archive it at once", kind="flag"),
        about="Acknowledging twice is no error. A letter that nobody has claimed needs no token. --reply and --drafts"
        " need one claimed letter; the ack and the new letters are then one commit.",
        examples=(
            ("postroom ack m-1 --as researcher", "a letter that was read"),
            ('postroom ack m-5 --as researcher --token "$TOKEN" --reply "Merge sort."', "one that was claimed, with an answer"),
        ),
        json=(*MOVED_JSON, ("receipts", "of the letters sent with it; see send")),
        exits=(LOST,),
        looks=True,
    ),
    "fail": Command(
        "fail",
        "report a failed try: the letter is offered again later",
        IDS,
        TOKEN,
        Option("--reason", help="why", metavar="TEXT", required=True),
        Option("--no-retry", help="to the dead letters at once", kind="flag"),
        about="It is offered again after a pause. When its tries are spent it goes to the dead letters, and its sender"
        " gets a notice.",
        examples=(('postroom fail m-5 --as researcher --token "$TOKEN" --reason "no network"', "try again later"),),
        json=MOVED_JSON,
        exits=(LOST,),
        looks=True,
    ),
    "reject": Command(
        "reject",
        "refuse a letter: to the dead letters, with a notice to its sender",
        IDS,
        TOKEN,
        Option("--reason", help="why", metavar="TEXT", required=True),
        examples=(("postroom reject m-1 --as researcher --reason 'not my field'", "send it back"),),
        json=MOVED_JSON,
        exits=(LOST,),
        looks=True,
    ),
    "release": Command(
        "release",
        "give a letter back, as if it had never been claimed",
        IDS,
        TOKEN,
        examples=(('postroom release m-5 --as researcher --token "$TOKEN"', "somebody else may have it"),),
        json=MOVED_JSON,
        exits=(LOST,),
        looks=True,
    ),
    "renew": Command(
        "renew",
        "extend a lease, counted from now",
        IDS,
        TOKEN,
        LEASE,
        examples=(('postroom renew m-5 --as researcher --token "$TOKEN" --lease 10m', "ten minutes more"),),
        json=MOVED_JSON,
        exits=(LOST,),
        looks=True,
    ),
    "work": Command(
        "work",
        "run a program for each letter",
        Option("COMMAND", help="the program and its arguments, after --", many=True, required=True, complete="files"),
        Option("--loop", help="go on with the next letter; by default it ends after one", kind="flag"),
        Option("-t", "--timeout", help="how long to wait for mail; for ever by default", kind="seconds", metavar="SPAN"),
        LEASE,
        Option("--reply", help="reply with what the program prints (UTF-8 text), in the same commit as the ack", kind="flag"),
        *FILTERS,
        about="Claims a letter and starts the program, with the letter's text on standard input, the letter as JSON in"
        " POSTROOM_LETTER, and POSTROOM_ID, POSTROOM_TOKEN, POSTROOM_AGENT, POSTROOM_STORE set, so that the"
        " program may call postroom itself. Exit code 0 settles the letter, 75 gives it back without counting a"
        " try, and any other fails this try. The lease is renewed while it runs. Ctrl-C gives the letter back."
        " With --reply, a program that prints nothing settles the letter without an answer, and output that is"
        " not UTF-8 fails the try. Without --reply its output is passed through; with --json it goes to standard"
        " error, so that standard output is JSON alone.",
        examples=(
            ("postroom work --as researcher --timeout 1s --reply -- wc -w", "answer with the number of words"),
        ),
        json=(("letter", "id, state, attempts, reason and due_at"), ("exit", "how the program ended"),
              ("receipts", "of the answer; see send")),
        exits=(NOTHING, (69, "the lease was lost meanwhile")),
    ),
}  # fmt: skip


# -- dead letters

DEAD_IDS = Option("ID", help="the id of a dead letter", many=True, required=True, complete="dead")

DEAD_COMMANDS = {
    "dead": Command(
        "dead",
        "list dead letters, the oldest first",
        LIMIT,
        about="Mail that could not be handled: its tries were spent, it was rejected, or it expired. It is kept, with"
        " the reason.",
        examples=(("postroom dead --as tester", "what went wrong"),),
        json=(("letters", "a list of [letters](#letters)"),),
        looks=True,
    ),
    "dead show": Command(
        "dead show",
        "show a dead letter, why it died, and every try",
        ID,
        examples=(("postroom dead show m-6 --as tester", "one of them"),),
        json=(("letter", "the [letter](#letters)"),),
        looks=True,
    ),
    "dead revive": Command(
        "dead revive",
        "bring dead letters back into the inbox",
        DEAD_IDS,
        about="They get all their tries again, and no longer expire. All are revived or none.",
        examples=(("postroom dead revive m-6 --as tester", "another chance"),),
        json=(("letters", "for each id: id, state, attempts, reason and due_at"),),
        looks=True,
    ),
    "dead purge": Command(
        "dead purge",
        "delete dead letters for good",
        DEAD_IDS,
        about="A letter that is still open in another mailbox is kept.",
        examples=(("postroom dead purge m-6 --as tester", "gone"),),
        json=(("purged", "how many went"),),
        looks=True,
    ),
}

COMMANDS |= DEAD_COMMANDS
