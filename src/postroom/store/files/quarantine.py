"""Quarantine for files that are no letters: moved to `.quarantine` in their mailbox, and listed in the index.

A program that writes slowly is given WRITE_GRACE seconds. If the index knows the letter that should be in the
file, the file is written again: letters never change.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from . import durable, letter_files, tree
from .durable import sync_path
from .layouts.base import line_in

if TYPE_CHECKING:
    from ...errors import PostroomError
    from .connection import FileConnection
    from .ledger import ChangedFile, IndexedFile


WRITE_GRACE = 10.0  # seconds after a change in which another program may still be writing a file
QUARANTINE = ".quarantine"
_LONGEST_NAME = 255 - 7  # bytes of a file's name, with a dot and six digits after it
_FOR_GOOD = ("link", "UTF-8")  # reasons that further writing cannot remove
# Files have negative numbers of their own. A number from the sequence of letters could be given to a letter too,
# since a file set aside does not advance that sequence.
_NOTE = """
INSERT INTO quarantine SELECT coalesce(max(number), -0x4000000000000000) + 1, ?, ?
FROM quarantine WHERE number < 0"""
_log = logging.getLogger("postroom")


def record_quarantined(conn: FileConnection, shown_path: str, why: str) -> None:
    """Record in the index that a file was set aside; `shown_path` is its path below the root."""
    conn.database.execute(_NOTE, (shown_path, why.encode()))


def why_taken(taken: PostroomError, home: str) -> str:
    """Return why the name of a letter's mailbox or sender is not possible, and how to mend that."""
    if taken.field != "to":
        return f"its sender: {taken.message} ({taken.hint})"
    return f"its folder {home!a}: {taken.message} ({taken.hint}: put the file into that folder)"


class Quarantine:
    """The quarantine, during one reconciliation."""

    def __init__(self, conn: FileConnection) -> None:
        self._conn = conn

    def put(self, file: ChangedFile, why: str) -> bool:
        """Set a file aside; return False if it may still be written and is to be looked at again."""
        if self._may_be_unfinished(file, why):
            return False
        is_text = tree.is_text(file.name)
        home, _ = self._conn.tree.of(file.folder)
        stem = file.name.encode()[:_LONGEST_NAME].decode(errors="ignore") if is_text else "-"
        name = f"{stem}.{os.urandom(3).hex()}"
        path = f"{self._conn.tree.path(file.folder)}/{file.name}"
        shown_path = path if is_text else ascii(path)[1:-1]
        held = self._conn.ledger.file_at(file.folder, file.name) if is_text else None
        try:
            self._move(file, held, f"{self._conn.tree.path(home)}/{QUARANTINE}", name)
        except FileNotFoundError:
            return True
        except OSError as refused:  # other mail must go on; the doctor finds the file where it is
            if path not in self._conn.tree.warned_paths:
                self._conn.tree.warned_paths.add(path)
                _log.warning(
                    "%s is not a letter (%s), and cannot be moved to quarantine: %s",
                    shown_path,
                    line_in(why),
                    refused,
                )
            return True
        why = line_in(why)  # it may quote what another program wrote
        _log.warning("%s was set aside: %s", shown_path, why)
        record_quarantined(self._conn, self._conn.tree.below_root(f"{home}/{QUARANTINE}/{name}"), why)
        return True

    def write_again(self, file: ChangedFile, held: IndexedFile) -> None:
        """Write the file of a letter again that another program moved or deleted."""
        folder, content = self._conn.tree.path(file.folder), self._accepted(file, held)
        if content is None:
            return
        for part in dict.fromkeys((self._conn.tree.path(self._conn.tree.of(file.folder)[0]), folder)):
            durable.make_folder(part)
        stamp = durable.write_new(folder, file.name, content, durable=True)
        sync_path(folder)
        self._conn.ledger.update_file(held.number, held.mailbox, file.folder, file.name, stamp)

    def _move(self, file: ChangedFile, held: IndexedFile | None, aside: str, name: str) -> None:
        """Move a file into the folder `aside`; if the index has its letter, exchange it for a new file."""
        folder = self._conn.tree.path(file.folder)
        durable.make_folder(aside)
        content = None if held is None else self._accepted(file, held)
        if held is None or content is None:
            durable.rename_new(f"{folder}/{file.name}", f"{aside}/{name}")
            return
        temporary, stamp = durable.write_temporary(folder, content, durable=True)
        try:
            if durable.exchange(temporary, f"{folder}/{file.name}"):
                durable.rename_new(temporary, f"{aside}/{name}")
        finally:
            durable.remove(temporary)
        sync_path(folder)
        self._conn.ledger.update_file(held.number, held.mailbox, file.folder, file.name, stamp)

    def _may_be_unfinished(self, file: ChangedFile, why: str) -> bool:
        """Return whether another program may still be writing the file.

        Its time may be slightly later than this look; but a file dated far ahead must not stay for ever.
        """
        age = abs(time.time_ns() - file.stamp.written) / 1e9  # by the clock that gives files their times
        return age < WRITE_GRACE and not any(word in why for word in _FOR_GOOD)

    def _accepted(self, file: ChangedFile, held: IndexedFile) -> bytes | None:
        """Return the content of a file as the index has its letter; None if the delivery is gone."""
        message, place = self._conn.letter(held.number)
        for mailbox, owner, delivery in self._conn.deliveries(message, held.number):
            if mailbox == held.mailbox:
                layout = self._conn.tree.layout
                return letter_files.render_file(layout, message, owner, delivery, name=file.name, order=place)
        return None
