"""A program that holds a room to what was promised before a crash.

    python -m tests.faults.checker ROOM_FOLDER LEDGER [KIND]

It exits with 0 if nothing acknowledged is lost or damaged, and says what is wrong otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from postroom.errors import PostroomError
from postroom.model.codec import digest
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.model.report import Level
from postroom.store.protocol import Store
from tests.faults.kinds import KINDS, Kind
from tests.faults.writer import MAILBOXES
from tests.letters import letter, post

AFTER = "the boot after the crash"


def check(kind: Kind, folder: Path, promises: Iterable[str], boot: str = AFTER) -> list[str]:
    """What is wrong with the room: promises broken, letters halved, and what its doctor finds.

    The machine was started again in between, or `boot` is the same as before: then only the disk was away.
    """
    lines = list(promises)
    try:
        store = kind.open(folder, boot)
    except PostroomError as refused:
        return [f"does not open: {refused}"]
    try:
        return [*broken(store, lines), *ill(store), *stuck(store)]
    except PostroomError as refused:
        return [f"cannot be read: {refused}"]
    finally:
        store.close()


def broken(store: Store, promises: Iterable[str]) -> list[str]:
    """Promises that are not kept, and letters that did not reach all."""
    there: dict[str, dict[str, State]] = {}
    sums: dict[str, str] = {}
    for found in store.find(Query(order="age")):
        there.setdefault(found.message.id, {})[found.delivery.mailbox] = found.delivery.state
        sums[found.message.id] = digest(found.message)
    wrong = [f"half {id}" for id, states in there.items() if set(states) != set(MAILBOXES)]
    for what, id, more in map(str.split, promises):
        if id not in there:
            wrong.append(f"lost {id}")
        elif what == "sent" and sums[id] != more:
            wrong.append(f"changed {id}")
        elif what == "acked" and there[id].get(more) is not State.DONE:
            wrong.append(f"handed out again {id}")
    return wrong


def ill(store: Store) -> list[str]:
    """What the doctor finds; he is asked to change nothing."""
    findings = store.examine(repair=False, full=True, progress=lambda _done, _total: None)
    return [f"doctor: {finding.what}" for finding in findings if finding.level is Level.ERROR]


def stuck(store: Store) -> list[str]:
    """Does the room take another letter?"""
    try:
        store.commit([post(letter("after-the-crash", MAILBOXES))])
    except PostroomError as refused:
        return [f"takes no more mail: {refused}"]
    return []


def main() -> None:
    folder, ledger = map(Path, sys.argv[1:3])
    (kind,) = [kind for kind in KINDS if kind.name == (sys.argv[3:] or [KINDS[0].name])[0]]
    wrong = check(kind, folder, ledger.read_text().split("\n")[:-1])
    for line in wrong[:20]:
        print(line)
    print(f"{len(wrong)} complaints")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
