"""Rows of the command table for the health of a room; the functions are in `postroom.cli.health`."""

from __future__ import annotations

from .shape import Command, Option

_WHOLE = Option("--everyone", "--all", help="of the whole room, not of one agent", kind="flag")

COMMANDS = {
    "doctor": Command(
        "doctor",
        "check a room's health, and repair what is safe to repair",
        Option("--repair", help="repair what is safe to repair", kind="flag"),
        Option("--full", help="look at every index too; takes longer", kind="flag"),
        about="Looks at the room's files, their place and their disk, at every letter, at leases, clock and backlog,"
        " writes and reads a record of its own, and says which durability is in force and what that means. Works on a"
        " room that does not open, and makes none where there is none.",
        examples=(
            ("postroom doctor", "how is it"),
            ("postroom doctor --repair", "and mend it"),
            ("postroom doctor --full --json", "all of it, for a program"),
        ),
        json=(
            ("healthy", "no warning and no error is left"),
            ("worst", "of what is left: ok, note, warning or error"),
            ("durability", "power or process; null when the settings cannot be read"),
            ("findings", "each with check, level, what, hint (what to do about it), repaired"),
        ),
        exits=((1, "warnings are left"), (70, "errors are left")),
        looks=True,
    ),
    "stats": Command(
        "stats",
        "show the numbers of the room, or of your own mailbox",
        _WHOLE,
        about="With --as or POSTROOM_AGENT, your own mailbox; without, or with --all, the room.",
        examples=(("postroom stats", "the room"), ("postroom stats --as researcher", "one mailbox")),
        json=(
            (
                "room",
                "letters, deliveries, states (how many deliveries in each; unread is in the inbox, read or not), unread (never"
                " read, by priority: without a read_at), oldest_unread_at,"
                " agents (registered), quarantined, mailboxes (each as below; those with open or dead mail), rates (of each"
                " way and host that told somebody of mail: name, letters, rung, shown, acknowledged, median_to_shown,"
                " median_to_acknowledged; of a sample of the newest); null for a mailbox",
            ),
            (
                "mailbox",
                "mailbox (its name), unread (never read, by priority: without a read_at), total_unread, seen (with one, not settled), claimed, queued, dead, backlog,"
                " oldest_unread_at, oldest_seen_at, oldest_claimed_at; null for the room",
            ),
        ),
        looks=True,
    ),
    "top": Command(
        "top",
        "watch the flow, the backlog and slow agents",
        Option("--every", help="look so often, such as 5s; 1s by default", kind="seconds", metavar="SPAN"),
        Option("--sort", help="what stands first: the largest backlog, the oldest open letter, the slowest", kind="word",
               choices=("backlog", "oldest", "slow"), default="backlog"),
        Option("--once", help="one look, then end", kind="flag"),
        about="On a terminal it stays until q or Ctrl-C; elsewhere it is one look. A first look knows no rates yet."
        " With --json, one document on each line, until it is stopped. Counts, and reads no letters: cheap in a room"
        " with a million of them.",
        examples=(("postroom top --once", "one look"), ("postroom top --once --json --sort slow", "for a program")),
        json=(
            ("at", "when"),
            ("seconds", "since the last look; 0 in the first, which has no rates"),
            ("sent, settled, died", "since the last look"),
            ("sent_per_second, settled_per_second", "likewise"),
            ("backlog", "what somebody still has to do"),
            ("median_to_done", "seconds from delivery to done, of what was settled since the last look; or null"),
            (
                "agents",
                "each with mailbox, unread, backlog, claimed, dead, settled, oldest_unread, oldest_seen, oldest_claimed,"
                " median_to_done; the ages in seconds, or null",
            ),
        ),
        looks=True,
    ),
    "trace": Command(
        "trace",
        "show the life of one letter: where it is, and what happened to it",
        Option("ID", help="the letter's id, or how it begins", required=True, complete="letters"),
        _WHOLE,
        about="With --as or POSTROOM_AGENT, what that agent may see: its own letters whole, of others its own part."
        " Without, or with --all, everything. Alerts are listed too, with their times: stored, rung (a hint),"
        " shown, acknowledged, done.",
        examples=(("postroom trace m-2", "all of it"), ("postroom trace m-2 --as coder", "as its sender sees it")),
        json=(
            ("letter", "the letter; see [letters](#letters)"),
            ("number", "of its acceptance"),
            (
                "stops",
                "one for each recipient: mailbox, kind, state, attempts, delivered_at, read_at, acked_at, dead_at,"
                " due_at, archived_at, expires_at, holder, reason, history, rings (at, way, outcome, why), sights (at, host,"
                " where), task (the state of the one it opened), done_at (of that)",
            ),
            ("replies, relays, bounces", "the letters about it; relays passed it on"),
        ),
        exits=((67, "there is no such letter, or it is not yours"),),
        looks=True,
    ),
}  # fmt: skip
