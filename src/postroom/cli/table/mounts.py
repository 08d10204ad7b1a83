"""The rows of the commands that mount mail folders. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .peers import PEER
from .shape import Command, Option

COMMANDS = {
    "mount": Command(
        "mount",
        "make the agents of another mail folder reachable, as a system",
        Option("PLACE", help="the room: files:FOLDER?layout=nanobot (chipset, swarm), or a room in one file", required=True,
               complete="files"),
        Option("--as", help="what the folder is called: its agents are then AGENT@NAME", required=True, metavar="NAME"),
        Option("--exposure", help="who of ours it sees and reaches: everybody (all, the default), whom it knows by name (gateway),"
               " nobody (none)", kind="word", choices=("all", "gateway", "none"), default="all"),
        about="Mail goes both ways while postroom serve runs: to researcher@NAME from here, and to ann@SYSTEM from there, where SYSTEM"
        " is what this room is called. Programs there that know nothing of Postroom put their letters into a folder with that name;"
        " they are taken from it at once. Nothing is copied twice, and nothing is lost when either side is away."
        " See [folders as systems](federation.md#folders-as-systems).",
        examples=(("postroom mount 'files:mail?layout=nanobot' --as nanobot", "its researcher is researcher@nanobot"),),
        json=(("peer", PEER), ("system", "what this room is called there"), ("socket", "of the daemon that serves this room; null: nobody does yet")),
        exits=((67, "there is no such folder; none is made"), (78, "the address is wrong, or its layout is another")),
    ),
    "unmount": Command(
        "unmount",
        "a mounted mail folder is no system any more",
        Option("NAME", help="what it was mounted as", required=True, complete="peers"),
        about="The folder stays as it is, with its mail; who is not ours any more is taken from its registry. Mail that waits for it"
        " goes out if it is mounted again in time; else it is dead after outbox_max_age, with a bounce.",
        examples=(("postroom unmount chips", "gone"),),
        json=(("removed", "what it was called"), ("told", "whether the folder was there to be told")),
        exits=((67, "nothing is mounted under this name"),),
        looks=True,
    ),
}  # fmt: skip
