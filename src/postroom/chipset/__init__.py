"""The Gastown chipset under its own names: mail, nudges, hooks, handoff notes and a witness over one state folder.

    folder     the state folder: times, whole files, one lock, time limits
    mail       `mail/<agent>/<time>-<from>.json`, with the design's verbs; the letters of the flow
    hooks      `hooks/<agent>.json`: one work item for each agent, and its transition table
    notes      `handoff/<agent>/<time>.json`: handoff notes; `nudge/<agent>/latest.json`: nudges
    witness    watches agents at work: nudges a stalled one, waits, and escalates
    chipset    the Chipset class; the mayor, who assigns work, accepts it and reassigns it; the design's functions

Mail goes through a room like any other (`files:…?layout=chipset`), and only `check_mail` reads the files of
letters. Hooks, nudges and notes are files of the design, which no room stores.
"""

from __future__ import annotations

from .chipset import STATE, Chipset, Mayor, archive_old_mail, check_mail, mark_read, send_mail, unread
from .folder import Patience
from .hooks import Hook, Status, WorkItem
from .mail import Mail
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
