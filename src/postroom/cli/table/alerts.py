"""Rows of the command table for watching for mail, and failed alerts; the functions are in `postroom.cli.alerts`."""

from __future__ import annotations

from .shape import NOTHING, Command, Option

_WAY = Option("--way", help="only rings of this way, such as exec", metavar="WORD")

COMMANDS = {
    "watch": Command(
        "watch",
        "alert you to new mail: print a line, run a program or show a desktop note",
        Option("--exec", help="run this with sh for each ring; else one line is printed", metavar="COMMAND"),
        Option("--desktop", help="show a note on the desktop for each ring, by notify-send or, on macOS, osascript", kind="flag"),
        Option("--backlog", help="ring for mail that waits already, too", kind="flag"),
        Option("--once", help="end after one ring", kind="flag"),
        Option("-t", "--timeout", help="end when nothing rang for this long; never by default", kind="seconds", metavar="SPAN"),
        Option("--limit", help="how long the program may take; 60s by default", kind="seconds", metavar="SPAN"),
        Option("--way", help="a name of your own, where several processes watch one mailbox independently; by default exec, desktop"
        " or watch",
               metavar="WORD"),
        about="A ring is a hint; it moves no letter. Each unread letter rings once, after it is safe on disk. Letters"
        " that come together share a ring; rings are ring_cooldown apart and at most ring_hourly in an hour,"
        " whatever else rings for this mailbox. Urgent mail rings at once, and again until it is acknowledged;"
        " mail of low priority never rings. Mail that is unread when the first watch begins does not ring. Two"
        " processes that watch a mailbox in the same way do not ring twice. The program gets JSON on standard"
        " input (mailbox, unread, and letters, each with id, from, subject, priority: the words of others, never"
        " in its arguments), and POSTROOM_AGENT and POSTROOM_STORE, so that it may call postroom itself. If it"
        " ends with anything but 0, or takes too long, the ring is tried again after a pause, and given up after"
        " ring_tries; rings lists those. If the watch itself is killed in the middle of a ring, the next watch"
        " repeats it, once the time limit of the program has passed. The output of the program is passed"
        " through; with --json it goes to standard error. A desktop note shows the sender and the subject."
        " Ctrl-C or SIGTERM ends the watch.",
        examples=(
            ("postroom watch --as coder --backlog --once", "the next ring, as a line"),
            ("postroom watch --as coder --backlog --once --exec 'cat >>rings.jsonl'", "a program of your own"),
        ),
        json=(
            ("mailbox", "where"),
            ("unread", "how many letters are unread there"),
            ("letters", "those it rang for, the most urgent first: id, from, subject, priority; empty when nothing came"),
            ("failed", "why the program, or the note, failed; else null"),
        ),
        exits=(NOTHING, (75, "with --once: the program, or the note, failed")),
    ),
    "rings": Command(
        "rings",
        "list rings that were given up, for letters that are still unread",
        Option("--everyone", "--all", help="of the whole room, not of one agent", kind="flag"),
        about="The letters themselves are safe in their mailbox. With --as or POSTROOM_AGENT, those of that agent;"
        " without, or with --all, those of the room.",
        examples=(("postroom rings", "list the failed alerts of the room"),),
        json=(("rings", "each with mailbox, way, letter (id, from, subject, priority), at, tries, why"),),
        looks=True,
    ),
    "rings retry": Command(
        "rings retry",
        "try rings again that were given up",
        Option("ID", help="only for this letter, by its id", many=True, complete="letters"),
        _WAY,
        Option("--everyone", "--all", help="of the whole room, not of one agent", kind="flag"),
        about="They get all their tries again. A running watch rings within seconds.",
        examples=(("postroom rings retry --as coder", "all of one mailbox"),),
        json=(("retried", "how many"),),
        looks=True,
    ),
}  # fmt: skip
