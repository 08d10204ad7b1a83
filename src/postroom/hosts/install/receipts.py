"""What was put where: kept from `install` to `uninstall`, so that files get back what they were, to the byte.

A receipt holds places and lengths of what we put in, and nothing of what others wrote. It counts only for a file
that is still as we left it. Where it is lost, what is ours is known by what it says.
"""

from __future__ import annotations

import hashlib
import os

import msgspec

from .edits import Edit

_WHAT = "What `postroom install` put into these files, for `postroom uninstall`."


class Entry(msgspec.Struct, frozen=True):
    """One file."""

    digest: str  # of the file as we left it
    cuts: tuple[tuple[int, int], ...]  # what takes out of it what we put in
    made: bool  # was there no file before?

    def undoing(self, text: str) -> list[Edit] | None:
        """What undoes us; None when the file is another by now."""
        return [Edit(start, end) for start, end in self.cuts] if digest(text) == self.digest else None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=False):
    """All that was done for one host in one place."""

    files: dict[str, Entry] = {}
    folders: tuple[str, ...] = ()  # that we made, the outermost first
    place: str = ""  # the folder of the host's configuration
    what: str = _WHAT


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def path_of(folder: str, host: str, place: str) -> str:
    """Where the receipt of this host and place is kept."""
    return os.path.join(folder, f"{host}-{digest(place)[:16]}.json")


def places(folder: str, host: str) -> list[str]:
    """Where something was put for this host, as far as receipts are left that say so."""
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.startswith(f"{host}-")]
    except OSError:
        return []
    return [place for name in names if (place := load(os.path.join(folder, name)).place)]


def load(path: str) -> Receipt:
    """An empty one where there is none, or none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Receipt)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Receipt()


def dump(receipt: Receipt) -> str:
    return msgspec.json.format(msgspec.json.encode(receipt), indent=1).decode() + "\n"
