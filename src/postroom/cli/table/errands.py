"""The rows of the commands for special occasions. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

BLOCKED_JSON = (("blocked", "all names whose mail is refused now"),)

COMMANDS = {
    "unsend": Command(
        "unsend",
        "take back letters that you sent",
        Option("ID", help="the letter's id, or how it begins", many=True, required=True, complete="sent"),
        about="Each from all its recipients or none, while nobody has claimed or settled it. Who had not looked at it never"
        " sees it. Several letters are taken back one after the other, and the first that cannot be stops it; to take one"
        " back twice is the same as once.",
        examples=(("postroom unsend m-2 --as coder", "a slip of the pen"),),
        json=(("letters", "a list of [letters](#letters), without delivery, to be mended and sent anew"),),
        exits=((67, "you sent no such letter"), (77, "too late; the error says who has it")),
        looks=True,
    ),
    "block": Command(
        "block",
        "refuse mail from somebody; without a name, who is refused",
        Option("NAME", help="whose mail; it may be nobody yet", complete="agents"),
        about="Its sends to you fail with exit 77. You need not be registered.",
        examples=(("postroom block spammer --as coder", "no more of it"), ("postroom block --as coder", "who is refused")),
        json=BLOCKED_JSON,
    ),
    "unblock": Command(
        "unblock",
        "take mail from somebody again",
        Option("NAME", help="whose mail", required=True, complete="agents"),
        examples=(("postroom unblock spammer --as coder", "all is forgiven"),),
        json=BLOCKED_JSON,
        looks=True,
    ),
    "rename": Command(
        "rename",
        "give an agent another name",
        Option("OLD", help="the name it has", required=True, complete="agents"),
        Option("NEW", help="the name it gets", required=True),
        about="All that is its own follows: mail, card, tasks. Mail to the old name still arrives. For whoever looks after"
        " the room; needs no --as.",
        examples=(("postroom rename tester quality", "a better one"),),
        json=(("old", "the name it had"), ("new", "the name it has")),
        exits=((67, "nobody is called so"), (69, "the new name is taken")),
        looks=True,
    ),
}  # fmt: skip
