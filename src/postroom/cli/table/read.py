"""Rows of the command table for reading mail; the functions are in `postroom.cli.read`."""

from __future__ import annotations

from .shape import FILTERS, ID, LIMIT, NOTHING, SINCE, Command, Option

PEEK = Option("--peek", help="mark nothing as read", kind="flag")

COMMANDS = {
    "check": Command(
        "check",
        "show the unread mail",
        Option("--all", help="also mail that was read and is still in the inbox", kind="flag"),
        PEEK,
        LIMIT,
        *FILTERS,
        SINCE,
        about="Unread first, by priority, then age; 20 letters unless --limit says otherwise. Letters that are shown"
        " are marked as read, and stay in the inbox until they are acknowledged. An empty inbox is no error. On"
        " a terminal the answer is a table; otherwise each letter is printed whole, its content inside a fence"
        " that it cannot break.",
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
        about="Marks it as read. --save makes the folder if need be. A file gets the last part of the name that its"
        " sender gave it, without hidden or misleading characters. Nothing is written outside the folder, and no"
        " file is overwritten: a second report.txt becomes report-2.txt.",
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
        Option("--cursor", help="the next letter after this cursor, which an earlier wait or changes printed, read or not", metavar="CURSOR"),
        Option("--follow", help="print one letter after the other, until none comes for the timeout; for ever without one",
               kind="flag"),
        PEEK,
        *FILTERS,
        about="Wakes within milliseconds. It marks the letter as read and does not claim it: for work that must not be"
        " lost, use claim. --follow begins after --cursor, or else with the unread mail; with --json it prints"
        " one document per line, each with the cursor after it.",
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
        about="What others wrote stands inside a fence that they cannot close. Marks nothing as read.",
        examples=(("postroom digest --as coder --budget 2000", "for a prompt"),),
        json=(("mailbox", "whose inbox"), ("text", "the digest")),
        looks=True,
    ),
    "sent": Command(
        "sent",
        "list the letters you sent, the newest first",
        LIMIT,
        about="20 letters unless --limit says otherwise. trace shows what became of one; search from:NAME with words"
        " finds older ones.",
        examples=(("postroom sent --as coder", "the last twenty"), ("postroom sent --as coder -n 1 --json", "the last one")),
        json=(("mailbox", "whose"), ("letters", "a list of [letters](#letters), without delivery")),
        looks=True,
    ),
}  # fmt: skip


# -- search

SEARCH_COMMANDS = {
    "search": Command(
        "search",
        "find letters by what they say",
        Option("QUERY", help="words, and what else is wanted; several words must all be there", many=True, required=True),
        LIMIT,
        Option("--ranked", help="the best first, among the newest; else the newest first", kind="flag"),
        Option("--everyone", help="the whole room's letters, not only what you sent or received", kind="flag"),
        about='A query is made of words, "phrases", beginnings such as sort*, from:NAME, to:NAME, tag:LABEL,'
        " kind:WORD, thread:ID, before:WHEN and after:WHEN (a day, a time, or an age such as 7d); a - before one"
        " of them means without. Any other word before a colon, as in subject:x, is a word like the rest. Case"
        " and accents do not count. Your shell takes quotes away, so put a query with a phrase or a - into"
        " single quotes, and -- before one that begins with -. Shows 20 letters unless --limit says otherwise,"
        " and sees everything that was sent before it. On a terminal the answer is a table with the words"
        " marked; otherwise each letter is printed whole, its content inside a fence that it cannot break.",
        examples=(
            ("postroom search stable --as coder", "letters with a word"),
            ("postroom search '\"which sort\" from:coder -draft' --as researcher", "a phrase, by somebody, without a word"),
            ("postroom search --everyone -- -draft", "all letters without a word"),
            ("postroom search sort kind:request after:7d --everyone --ranked --json", "the operator's view, for a program"),
        ),
        json=(("letters", "a list of [letters](#letters), without delivery"),),
        looks=True,
    ),
}  # fmt: skip


# -- threads and conversations

EVERYONE = Option("--everyone", help="the whole room's, not only what you sent or received", kind="flag")
SCOPE = Option("--scope", help="only this scope", metavar="NAME", complete="scopes")
LETTERS = (("letters", "a list of [letters](#letters), without delivery, the oldest first"),)

THREAD_COMMANDS = {
    "thread": Command(
        "thread",
        "show the letters of a thread",
        Option("ID", help="the thread's root letter; with --chain, any letter", required=True, complete="letters"),
        Option("--chain", help="from the root down to this letter alone", kind="flag"),
        EVERYONE,
        about="The letters you sent or received, the oldest first.",
        examples=(("postroom thread m-1 --as researcher", "a whole thread"),
                  ("postroom thread m-3 --as coder --chain", "how it came to this letter")),
        json=LETTERS,
        looks=True,
    ),
    "threads": Command(
        "threads",
        "list threads with replies, the most recently active first",
        LIMIT,
        EVERYONE,
        examples=(("postroom threads --as coder", "where something happened"),),
        json=(("threads", "each with id, subject, participants, count, started_at, last_at"),),
        looks=True,
    ),
    "tagged": Command(
        "tagged",
        "show the letters with a thread tag",
        Option("TAG", help="the thread tag", required=True),
        SCOPE,
        examples=(("postroom tagged release --as coder", "all about one label"),),
        json=LETTERS,
        looks=True,
    ),
    "conversations": Command(
        "conversations",
        "list conversations, the most recently active first",
        SCOPE,
        LIMIT,
        EVERYONE,
        examples=(("postroom conversations --as coder", "what is talked about"),),
        json=(("conversations", "each with id, scope, subject, participants, threads, turns, started_at, last_at"),),
        looks=True,
    ),
    "conversation": Command(
        "conversation",
        "show one conversation's participants and counts",
        Option("ID", help="the conversation's id", required=True),
        examples=(("postroom conversation conv-general:default --as coder", "the catch-all of a scope"),),
        json=(("conversation", "as in conversations"),),
        looks=True,
    ),
    "turns": Command(
        "turns",
        "replay a conversation",
        Option("ID", help="the conversation's id", required=True),
        EVERYONE,
        examples=(("postroom turns conv-general:default --as coder", "who said something, in order"),),
        json=(
            ("turns", "each with id, conversation_id, participant, message_id, thread_id, in_reply_to, created_at"),
        ),
        looks=True,
    ),
}  # fmt: skip

COMMANDS |= SEARCH_COMMANDS | THREAD_COMMANDS
