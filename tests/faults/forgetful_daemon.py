"""`postroom serve` with a planted bug: nothing is noted of how far the room's log reached.

python -m tests.faults.forgetful_daemon serve …

Then a log that was emptied looks like a new one.
"""

from __future__ import annotations

from postroom.cli.main import entry
from postroom.store.sqlite.lock import WriterLock


def forget(_lock: WriterLock, _number: int, _place: int, _salts: bytes) -> None:
    """In place of `WriterLock.note`."""


if __name__ == "__main__":
    WriterLock.note = forget  # type: ignore[method-assign,assignment]
    entry()
