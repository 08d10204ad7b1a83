"""The Gastown chipset's four channels, over one state folder: mail, nudges, hooks, handoff notes, and a witness.

    stamps     times, in files and in their names
    folder     the state folder: files read and written whole, one lock
    mail       `mail/<agent>/<time>-<from>.json`, by the design's names for the verbs
    nudges     `nudge/<agent>/latest.json`: one slot, the latest wins
    moves      the table of a hook: which move, and who may make it
    hooks      `hooks/<agent>.json`: one work item for each agent
    notes      `handoff/<agent>/<time>.json`: what a session leaves behind
    patience   how long is waited for what
    items      how often a work item was started again
    watches    what a witness remembers of a stalled agent
    reports    the letters that the mayor and the witness send
    mayor      hands out work, accepts it, gives it to another
    witness    looks after those who work: nudge, wait, tell
    chipset    all of it, put together
    verbs      the design's functions for mail

It refuses to know how letters are kept: mail goes through a room like any other (`files:…?layout=chipset`), and
only reading it by file looks at the files. Hooks, nudges and notes are files of the design alone. Below stands
`room`; above, the command line.
"""

from __future__ import annotations

from .chipset import STATE, Chipset, archive_old_mail, check_mail, mark_read, send_mail, unread
from .folder import Patience
from .hooks import Hook, Status, WorkItem
from .mail import Mail
from .mayor import Mayor
from .notes import Note, Nudge
from .witness import Round, Witness

__all__ = [
    "STATE",
    "Chipset",
    "Hook",
    "Mail",
    "Mayor",
    "Note",
    "Nudge",
    "Patience",
    "Round",
    "Status",
    "Witness",
    "WorkItem",
    "archive_old_mail",
    "check_mail",
    "mark_read",
    "send_mail",
    "unread",
]
