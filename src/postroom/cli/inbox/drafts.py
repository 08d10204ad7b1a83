"""What was written and not sent, in files: it is there again after a crash, a closed window or a kill.

One folder for each mailbox of each room, below the user's state; one file for each letter that is answered.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...model.hashing import blake2b
from ...whereabouts import drafts_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .desk import Draft

ENDING = ".md"


class Drafts:
    """The drafts of one mailbox."""

    def __init__(self, room: str, mailbox: str) -> None:
        """`room`: where it lies."""
        whose = f"{Path(room).resolve()} {mailbox}".encode("utf-8", "surrogateescape")
        name = blake2b(whose, digest_size=8).hexdigest()
        self.folder = Path(drafts_folder()) / name
        self._kept: dict[Draft, str] = {}  # as the files have it

    def load(self) -> dict[Draft, str]:
        """All that is there."""
        self._kept = {}
        for file in sorted(self.folder.glob(f"*{ENDING}")) if self.folder.is_dir() else ():
            letter, _, verb = file.name.removesuffix(ENDING).rpartition(" ")
            draft = letter, verb.replace("_", " ")
            with suppress(OSError):  # one that cannot be read must not keep anybody from their mail
                self._kept[draft] = self.read(draft)
        self._kept = {draft: text for draft, text in self._kept.items() if text.strip()}
        return dict(self._kept)

    def read(self, draft: Draft) -> str:
        """What its file says; one line end at the very end belongs to an editor. Bytes that are no text stay."""
        with self.place(draft).open(encoding="utf-8", errors="surrogateescape") as file:
            return file.read().removesuffix("\n")

    def keep(self, drafts: Mapping[Draft, str]) -> None:
        """Let the files say this."""
        for draft in self._kept.keys() - drafts.keys():
            self.place(draft).unlink(missing_ok=True)
        for draft, text in drafts.items():
            if self._kept.get(draft) != text:
                self.write(draft, text)
        self._kept = dict(drafts)

    def place(self, draft: Draft) -> Path:
        """Where a draft is. Ids of letters are safe as names of files."""
        letter, verb = draft
        return self.folder / f"{letter} {verb.replace(' ', '_')}{ENDING}"

    def write(self, draft: Draft, text: str) -> Path:
        """All of it, or what was there before; for its owner alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.place(draft)
        fresh = place.with_suffix(".new")
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(opened, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        self._kept[draft] = text
        return fresh.replace(place)
