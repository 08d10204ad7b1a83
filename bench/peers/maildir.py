"""A Maildir, with the standard library's mailbox module, as a careful user would sync it.

`mailbox.Maildir` syncs the file of a new message, and not the folder its name is in; so the folder is synced here.
A receiver claims by renaming out of `new`: the rename succeeds for one of them. A claim that a power cut takes
back is harmless, so it is not synced; the removal is.
"""

from __future__ import annotations

import mailbox
import os
import platform
import random
from pathlib import Path

from .peer import POWER, Embedded, Send, Take


class Maildir(Embedded):
    name = "Maildir (standard library)"
    survives = POWER
    how = "fsync of each file and of the folder; claimed by rename, acknowledged by unlink and fsync of the folder"
    syncs = "2 / 1"

    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def sender(self, address: str) -> Send:
        box = mailbox.Maildir(Path(address) / "mail")
        new = os.open(Path(address) / "mail" / "new", os.O_RDONLY)

        def send(body: bytes) -> None:
            box.add(body)
            os.fsync(new)

        return send

    def receiver(self, address: str) -> Take:
        mailbox.Maildir(Path(address) / "mail")
        new, cur = (Path(address) / "mail" / name for name in ("new", "cur"))
        folder = os.open(cur, os.O_RDONLY)
        known: list[str] = []

        def claim() -> Path | None:
            while known or _list(new, known):
                name = known.pop()
                mine = cur / f"{name}:2,"
                try:
                    (new / name).rename(mine)
                except FileNotFoundError:
                    continue  # another was faster
                return mine
            return None

        def take() -> bytes | None:
            mine = claim()
            if mine is None:
                return None
            body = mine.read_bytes()
            mine.unlink()
            os.fsync(folder)
            return body

        return take


def _list(folder: Path, known: list[str]) -> bool:
    """In any order: receivers that go through it in the same order would race for every message."""
    known.extend(os.listdir(folder))  # noqa: PTH208  # names alone
    random.shuffle(known)
    return bool(known)


PEERS = [Maildir()]
