"""Bugs that any store could have under load and on long days."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from postroom.model.codec import encode
from postroom.model.record import BEAT
from postroom.store.protocol import Plan, Post, Posted, Put, Write
from tests.faults.planting import Opener, Wrapped

LARGE = 400  # writes in one commit


class Lossy(Wrapped):
    """Loses one letter of every large commit."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        return self.inner.commit(writes if callable(writes) or len(writes) < LARGE else writes[1:])


class Deaf(Wrapped):
    """Takes a heartbeat for something that may be lost at once."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        kept = [write for write in planned if not (isinstance(write, Put) and write.record.kind == BEAT)]
        return self.inner.commit(kept)


class Short(Wrapped):
    """Has no room for a letter of more than half a megabyte, and does not say so."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes) or not any(isinstance(w, Post) and len(encode(w.message)) > 2**19 for w in writes):
            return self.inner.commit(writes)
        return tuple(Posted(message_id=w.message.id, number=1) for w in writes if isinstance(w, Post))


class Hoarding(Wrapped):
    """Keeps something of every commit."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        super().__init__(open_store, folder, boot)
        self._kept: list[bytearray] = []

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        self._kept.append(bytearray(os.urandom(64)) * 2048)
        return self.inner.commit(writes)


class Grasping(Wrapped):
    """Opens the room's folder again and again."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        super().__init__(open_store, folder, boot)
        self._held: list[int] = []

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if len(self._held) < 300:
            self._held.append(os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC))
        return self.inner.commit(writes)

    def close(self) -> None:
        self.inner.close()
        while self._held:
            os.close(self._held.pop())


class Tiring(Wrapped):
    """Takes longer with every commit, on a clock of its own: chance plays no part."""

    commits: ClassVar[int] = 0
    spent: ClassVar[float] = 0.0

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        Tiring.commits += 1
        Tiring.spent += Tiring.commits**2 / 100_000
        return self.inner.commit(writes)


BUGS: dict[str, type[Wrapped]] = {
    "lossy": Lossy,
    "deaf": Deaf,
    "short": Short,
    "hoarding": Hoarding,
    "grasping": Grasping,
    "tiring": Tiring,
}
