"""The rows of the commands that look at mail. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import FILTERS, ID, LIMIT, NOTHING, SINCE, Command, Option

PEEK = Option("--peek", help="stamp nothing as read", kind="flag")

COMMANDS = {
    "check": Command(
        "check",
        "show the unread mail",
        Option("--all", help="also mail that was read and is still in the inbox", kind="flag"),
        PEEK,
        LIMIT,
        *FILTERS,
        SINCE,
        about="Unread first, by priority, then age; 20 letters unless --limit says otherwise. What is shown is stamped"
        " as read, and stays in the inbox until it is acknowledged. An empty inbox is no error. On a terminal the"
        " answer is a table; else each letter stands whole, its content inside a fence that it cannot break.",
        examples=(
            ("postroom check --as coder", "what is new"),
            ("postroom check --as coder --all --min-priority high", "urgent and high, read or not"),
            ("postroom check --as coder --peek --json", "for a program, stamping nothing"),
        ),
        json=(("mailbox", "whose inbox"), ("letters", "a list of [letters](#letters)")),
        looks=True,
    ),
    "read": Command(
        "read",
        "show one letter whole",
        ID,
        Option("--markdown", help="for a prompt, its content inside a fence, also on a terminal", kind="flag"),
        Option("--save", help="put the files it encloses into this folder", metavar="DIR", complete="files"),
        about="Stamps it as read. --save makes the folder if need be. A file gets the last piece of the name that its"
        " sender gave it, without what is hidden or misleads; nothing is written outside the folder, and nothing that"
        " is there is overwritten: a second report.txt becomes report-2.txt.",
        examples=(
            ("postroom read m-1 --as researcher", "one letter"),
            ("postroom read m-1 --as researcher --save files", "and the files in it"),
        ),
        json=(
            ("letter", "the [letter](#letters)"),
            ("saved", "each file's path as its sender said it, file (where it is now) and bytes; null without --save"),
        ),
        looks=True,
    ),
    "wait": Command(
        "wait",
        "wait for the next letter",
        Option("-t", "--timeout", help="how long, such as 30s or 5m; 30 seconds by default", kind="seconds", metavar="SPAN"),
        Option("--at-mailbox", help="wait at this mailbox too", many=True, metavar="NAME", complete="agents"),
        Option("--cursor", help="the next letter that came after this cursor (an earlier wait or changes gave it), read or not", metavar="CURSOR"),
        Option("--follow", help="go on for ever, one letter after the other, or until none came for the timeout",
               kind="flag"),
        PEEK,
        *FILTERS,
        about="Wakes within milliseconds. It stamps the letter as read and does not take it: for work that must not be"
        " lost, use claim. --follow begins after --cursor, else with what is unread now; with --json it prints one"
        " document per line, each with the cursor after it.",
        examples=(
            ("postroom wait --as researcher --timeout 30s", "the next letter"),
            ("postroom wait --as coder --thread m-2 --timeout 1s", "the answer to one letter"),
        ),
        json=(("letter", "the [letter](#letters), or null"), ("cursor", "where to go on: --cursor")),
        exits=(NOTHING,),
    ),
    "counts": Command(
        "counts",
        "count the unread mail by priority",
        examples=(("postroom counts --as coder", "how much is there"),),
        json=(("mailbox", "whose inbox"), ("urgent, high, normal, low, total", "how many")),
        looks=True,
    ),
    "digest": Command(
        "digest",
        "the unread mail as text for a prompt",
        Option("--budget", help="at most so many characters; 4000 by default", kind="count", metavar="N"),
        Option("--most", help="at most so many letters; 5 by default", kind="count", metavar="N"),
        Option("--longest", help="characters of each letter; 500 by default", kind="count", metavar="N"),
        about="What peers wrote stands inside a fence that they cannot close. Stamps nothing.",
        examples=(("postroom digest --as coder --budget 2000", "for a prompt"),),
        json=(("mailbox", "whose inbox"), ("text", "the digest")),
        looks=True,
    ),
    "sent": Command(
        "sent",
        "list what you sent, the newest first",
        LIMIT,
        about="20 letters unless --limit says otherwise. trace tells what became of one; search from:NAME with words finds"
        " older ones.",
        examples=(("postroom sent --as coder", "the last twenty"), ("postroom sent --as coder -n 1 --json", "the last one")),
        json=(("mailbox", "whose"), ("letters", "a list of [letters](#letters), without delivery")),
        looks=True,
    ),
}  # fmt: skip
