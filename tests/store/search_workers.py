"""What the processes of `test_search_processes` do, and a store with a bug that its audits must find."""

from __future__ import annotations

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

from postroom.model.search import SearchQuery, read_query
from postroom.store.protocol import Letter
from postroom.store.sqlite import search
from postroom.store.sqlite.store import SqliteStore
from tests.letters import NOW, letter, post
from tests.store.workers import Ledger, enter, promises

ROUNDS = 120


def send_and_search(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Send a letter, write it down; then look for some that were written down. Fill the index all the time."""
    search.LONG, search.FEW, search.SLICE = 20, 5, 16
    ledger, store = Ledger(folder, name), enter(folder, line, kind)
    missing = Ledger(folder, f"{name}-missing")
    for number in range(ROUNDS):
        word = f"{name}x{number}"
        store.commit([post(letter(word, subject=f"common {word}", sender=name))])
        ledger.write(word)
        results = [line for line in promises(folder) if not line.startswith("missing")]
        for wanted in (results[-1], results[len(results) // 2], word):
            if [x.message.id for x in store.search(read_query(wanted, NOW), "bob", 5)] != [wanted]:
                missing.write(f"missing {wanted}")
        if number % 40 == 13:
            Path(f"{folder}/room.db.search").unlink(missing_ok=True)


def fill_for_ever(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Make the index again and again, until killed. One line per slice."""
    search.FEW, search.SLICE = 0, 5
    ledger, store = Ledger(folder, f"{name}-{os.getpid()}"), enter(folder, line, kind)
    while True:
        if not store.connection().index.fill():
            store.connection().index.discard()
        ledger.write("filled")


class Boastful(SqliteStore):
    """Takes the index for complete when it is not."""

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        held = self.connection().index
        held.fill()
        held.upto = lambda **_: search.NEWEST  # type: ignore[method-assign]
        return super().search(query, reader, limit)
