"""The rows of the commands about threads and conversations. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import LIMIT, Command, Option

EVERYONE = Option("--everyone", help="the whole room's, not only what you sent or received", kind="flag")
SCOPE = Option("--scope", help="only this scope", metavar="NAME", complete="scopes")
LETTERS = (("letters", "a list of [letters](#letters), without delivery, the oldest first"),)

COMMANDS = {
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
