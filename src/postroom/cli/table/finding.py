"""The row of the command that finds letters. Its function stands in the file of the same name above."""

from __future__ import annotations

from .shape import LIMIT, Command, Option

COMMANDS = {
    "search": Command(
        "search",
        "find letters by what they say",
        Option("QUERY", help="words, and what else is wanted; several words must all be there", many=True, required=True),
        LIMIT,
        Option("--ranked", help="the best first, among the newest; else the newest first", kind="flag"),
        Option("--everyone", help="the whole room's letters, not only what you sent or received", kind="flag"),
        about='A query is made of words, "phrases", beginnings such as sort*, from:NAME, to:NAME, tag:LABEL, kind:WORD,'
        " thread:ID, before:WHEN and after:WHEN (a day, a time, or an age such as 7d); a - before one of them means"
        " without. Any other word before a colon, as in subject:x, is a word like the rest. Case and accents do not count."
        " Your shell takes quotes away, so put a query with a phrase or a - into single quotes, and -- before one that"
        " begins with -. Shows 20 letters unless --limit says otherwise, and sees everything that was sent before"
        " it. On a terminal the answer is a table with the words marked; else each letter stands whole, its content"
        " inside a fence that it cannot break.",
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
