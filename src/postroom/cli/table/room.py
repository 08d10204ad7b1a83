"""Rows of the command table for looking after a room; the functions are in `postroom.cli.room`."""

from __future__ import annotations

from .shape import Command, Option

OLDER = Option("--older-than", help="settled so long ago, such as 30d", kind="seconds", metavar="SPAN")

COMMANDS = {
    "init": Command(
        "init",
        "make a room for the project in this folder",
        Option("FOLDER", help="the project's folder; the working one by default", complete="files"),
        about="Makes .postroom/room.db, which every command and every program below this folder then uses, as git finds"
        " .git. The folder is for you alone and keeps itself out of git. Where it is there already, nothing happens.",
        examples=(("postroom init", "here"),),
        json=(("path", "the room's file"), ("made", "false when it was there already")),
        exits=((73, "it cannot be made"),),
    ),
    "room": Command(
        "room",
        "show which room is in use, and what is in it",
        Option("--settings", help="every setting in force, too", kind="flag"),
        examples=(("postroom room", "where am I"),),
        json=(
            ("store", "its address"),
            ("exists", "false when there is no room there yet"),
            ("mailboxes", "every name that ever wrote, was written to or registered"),
            ("quarantined", "the ids of letters that were found damaged and set aside"),
            ("cursor", "now; changes takes it; null when there is no room yet"),
            ("settings", "the settings in force"),
            (
                "passed_by",
                "what looks like the project's room on the way up and is not used, each with path and why: it is a"
                " link, or belongs to another user",
            ),
        ),
        looks=True,
    ),
    "changes": Command(
        "changes",
        "list what happened after a cursor",
        Option(
            "CURSOR",
            help="a cursor that changes, wait or room printed; without one, only the present cursor is shown",
        ),
        Option("-n", "--limit", help="at most so many; 1000 by default", kind="count", metavar="N"),
        examples=(("postroom changes", "a cursor to begin with"),),
        json=(
            (
                "changes",
                "each with number, what (posted, moved, put, forgot), message_id, mailbox, state, kind, key",
            ),
            ("cursor", "where to go on; null when there is no room yet"),
        ),
        exits=((69, "the cursor is from another epoch of the room: start again"),),
        looks=True,
    ),
    "janitor": Command(
        "janitor",
        "run maintenance once: leases, expiry, archive, retention",
        about="Run it regularly, from cron or a timer. It is safe at any time, from any number of processes.",
        examples=(("postroom janitor", "one round"),),
        json=(
            (
                "lapsed, delivered, expired, buried, archived, purged, forgotten, trimmed, climbed, overdue, indexed",
                "what was done, as counts",
            ),
        ),
        looks=True,
    ),
    "archive": Command(
        "archive",
        "archive mail that was acknowledged",
        OLDER,
        about="By default what the setting archive_after says. It stays readable.",
        examples=(("postroom archive --older-than 1h", "all that was done an hour ago"),),
        json=(("archived", "how many"),),
        looks=True,
    ),
    "purge": Command(
        "purge",
        "delete old mail that is done or dead everywhere",
        OLDER,
        Option("--keep", help="keep the newest so many, whatever their age", kind="count", metavar="N"),
        about="By default what the settings retain_for and retain_count say. Open mail is never deleted; ids and keys"
        " stay remembered.",
        examples=(("postroom purge --older-than 90d", "what was settled three months ago"),),
        json=(("purged", "how many"),),
        looks=True,
    ),
}
