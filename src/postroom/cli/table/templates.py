"""The rows of the commands about templates. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import BODY, Command, Option

NAME = Option("NAME", help="the template's name", required=True, complete="templates")
TEMPLATE = "name, subject, body, kind, priority, tags, and places, the names of what is to be filled in"

COMMANDS = {
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
