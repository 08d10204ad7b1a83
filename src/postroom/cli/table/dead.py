"""The rows of the commands about dead letters. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import ID, LIMIT, Command, Option

IDS = Option("ID", help="the id of a dead letter", many=True, required=True, complete="dead")

COMMANDS = {
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
        IDS,
        about="With all tries ahead of them; an expiry no longer counts. All or none.",
        examples=(("postroom dead revive m-6 --as tester", "another chance"),),
        json=(("letters", "for each id: id, state, attempts, reason and due_at"),),
        looks=True,
    ),
    "dead purge": Command(
        "dead purge",
        "delete dead letters for good",
        IDS,
        about="One that still lives in another mailbox is kept.",
        examples=(("postroom dead purge m-6 --as tester", "gone"),),
        json=(("purged", "how many went"),),
        looks=True,
    ),
}
