"""Files that are no letters, set aside in their mailbox where nobody stumbles over them, with a report.

A stranger that writes slowly is given its time. Letters never change: if the index knows the letter that should
stand there, its file is written anew.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from . import durable, letter_files, tree
from .durable import sync_path
from .layouts.base import line_in

if TYPE_CHECKING:
    from ...errors import PostroomError
    from ...model.query import Moment
    from .connection import FileConnection
    from .ledger import Held, Seen


SLOW_STRANGER = 10.0  # seconds: somebody may still be writing a file that was changed so lately
ASIDE = ".quarantine"
_LONGEST_NAME = 255 - 7  # bytes of a file's name, with a dot and six digits after it
_FOR_GOOD = ("link", "UTF-8")  # what no writing will change
# Files are counted for themselves, below the numbers of letters. With many of them nothing else is written, so
# the next number of a letter stays what it was; it would be given to two.
_NOTE = """
INSERT INTO quarantine SELECT coalesce(max(number), -0x4000000000000000) + 1, ?, ?
FROM quarantine WHERE number < 0"""
_log = logging.getLogger("postroom")


def note_aside(here: FileConnection, shown: str, why: str) -> None:
    """A file was set aside. `shown` is its path below the root."""
    here.database.execute(_NOTE, (shown, why.encode()))


def why_taken(taken: PostroomError, home: str) -> str:
    """Why a letter cannot come in under the name of its mailbox or its sender, and how to mend that."""
    if taken.field != "to":
        return f"its sender: {taken.message} ({taken.hint})"
    return f"its folder {home!a}: {taken.message} ({taken.hint}: put the file into that folder)"


class Quarantine:
    """Inside one look at the folders."""

    def __init__(self, here: FileConnection, now: Moment) -> None:
        self._here, self._now = here, now

    def put(self, seen: Seen, why: str) -> bool:
        """False: not yet, it is to be looked at again."""
        if self._may_be_unfinished(seen, why):
            return False
        is_text = tree.is_text(seen.name)
        home, _ = self._here.places.of(seen.folder)
        stem = seen.name.encode()[:_LONGEST_NAME].decode(errors="ignore") if is_text else "-"
        name = f"{stem}.{os.urandom(3).hex()}"
        path = f"{self._here.places.path(seen.folder)}/{seen.name}"
        shown = path if is_text else ascii(path)[1:-1]
        held = self._here.ledger.held(seen.folder, seen.name) if is_text else None
        try:
            self._move(seen, held, f"{self._here.places.path(home)}/{ASIDE}", name)
        except FileNotFoundError:
            return True
        except OSError as refused:  # nobody else's mail waits for that; the doctor finds the file where it lies
            if path not in self._here.places.complained:
                self._here.places.complained.add(path)
                _log.warning("%s is no letter (%s), and cannot be set aside: %s", shown, line_in(why), refused)
            return True
        why = line_in(why)  # it may name what a stranger wrote
        _log.warning("%s was set aside: %s", shown, why)
        note_aside(self._here, self._here.places.below_root(f"{home}/{ASIDE}/{name}"), why)
        return True

    def _move(self, seen: Seen, held: Held | None, aside: str, name: str) -> None:
        """Out of the way. A letter that the index knows has its file again in the same step."""
        folder = self._here.places.path(seen.folder)
        durable.make_folder(aside)
        content = None if held is None else self._accepted(seen, held)
        if held is None or content is None:
            durable.rename_new(f"{folder}/{seen.name}", f"{aside}/{name}")
            return
        temporary, stamp = durable.write_aside(folder, content, durable=True)
        try:
            if durable.exchange(temporary, f"{folder}/{seen.name}"):
                durable.rename_new(temporary, f"{aside}/{name}")
        finally:
            durable.remove(temporary)
        sync_path(folder)
        self._here.ledger.relocate(held.number, held.mailbox, seen.folder, seen.name, stamp)

    def _may_be_unfinished(self, seen: Seen, why: str) -> bool:
        """Also one that was begun after this look; but what is dated far ahead would stay for ever."""
        age = abs(self._now.wall.timestamp() - seen.stamp.written / 1e9)
        return age < SLOW_STRANGER and not any(word in why for word in _FOR_GOOD)

    def _accepted(self, seen: Seen, held: Held) -> bytes | None:
        """The file of a letter as the index has it; None if there is no such delivery any more."""
        message, place = self._here.letter(held.number)
        for mailbox, owner, delivery in self._here.deliveries(message, held.number):
            if mailbox == held.mailbox:
                layout = self._here.places.layout
                return letter_files.file_of(layout, message, owner, delivery, name=seen.name, order=place)
        return None
