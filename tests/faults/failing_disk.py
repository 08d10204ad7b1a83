"""A process whose disk fails in the middle of one call, again and again: at each place, and for a while.

    LD_PRELOAD=failing_disk.so python -m tests.faults.failing_disk KIND BUG STRIDE VERB ...

It prints its complaints, one a line, and at last how often it tried. Whatever the disk does, a call is carried out
or refused as StoreFailing, with the key if it is a send; and called again once the disk is well, it is done once.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any

from msgspec import Struct

from postroom import Room
from postroom.errors import StoreFailing
from postroom.letter import Work
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.protocol import Store
from tests.faults.kinds import SOUND, opener
from tests.faults.planting import Opener
from tests.faults.quick import quick_folder
from tests.faults.storm_worker import room_over

WRITE, SYNC, NAME, FOLDER, ALL, SPACE = 1, 2, 4, 8, 63, 1 | 8 | 32
LONG = 1_000_000  # calls: for good
TROUBLES = [  # which calls fail, with which error, how many of them, and with which error from then on
    *[(WRITE, ENOSPC, 1, 0), (WRITE, ENOSPC, 2, 0), (SPACE, ENOSPC, LONG, 0), (SPACE, EDQUOT, LONG, 0)],
    *[(ALL, EIO, 2, 0), (ALL, EIO, 5, 0), (ALL, EIO, LONG, 0), (SYNC, EIO, LONG, 0), (NAME, EIO, 2, 0)],
    *[(ALL, EIO, 1, EROFS), (ALL, EROFS, LONG, 0)],
]
MOST = 80  # calls that one verb makes
NEW = "the new letter"


class Trouble(Struct, frozen=True):
    calls: int
    error: int
    count: int
    then: int
    nth: int


class Trial:
    """One verb in a room of its own, and the same again once the disk is well."""

    def __init__(self, store: Store, verb: str) -> None:
        self.room: Room = room_over(store)
        for name in ("bob", "cleo"):
            self.room.mailbox(name).register()
        self.room.mailbox("ann").send(["bob", "cleo"], "old", key="old")
        work = self.room.mailbox("bob").claim(lease=60)
        assert work is not None
        self.work: Work = work
        self.verb = verb
        self.key: str | None = None

    def call(self) -> object:
        ann, bob = self.room.mailbox("ann"), self.room.mailbox("bob")
        again: Any = {} if self.key is None else {"key": self.key}
        verbs: dict[str, Callable[[], object]] = {
            "send": lambda: ann.send("bob", NEW, **again),
            "send to two": lambda: ann.send(["bob", "cleo"], NEW, **again),
            "ack": self.work.ack,
            "ack and reply": lambda: self.work.ack_and_reply(NEW),
            "bury": lambda: self.work.fail("never", retry=False),
            "claim": lambda: self.room.mailbox("cleo").claim(lease=60),
            "check": self.room.mailbox("cleo").check,
            "wait": lambda: self.room.mailbox("dora").wait(0.001),
            "register": lambda: bob.register(description="x"),
        }
        return verbs[self.verb]()

    def complaints(self, trouble: Trouble) -> list[str]:
        try:
            fail_from(trouble)
            self.call()
        except StoreFailing as failing:
            self.key = failing.key
            if self.verb.startswith("send") and self.key is None:
                return [f"without a key: {failing}"]
        except Exception as error:
            return [f"not as failing: {error!r}"]
        else:
            return []
        finally:
            end()
        try:
            self.call()
        except Exception as error:
            return [f"not again: {error!r}"]
        return []


def wrong_in(store: Store, verb: str, work: Work) -> list[str]:
    """What is not there, not all there, or there twice."""
    found = store.find(Query())
    texts = Counter(each.delivery.mailbox for each in found if each.message.text == NEW)
    wanted = {"send": {"bob": 1}, "send to two": {"bob": 1, "cleo": 1}, "ack and reply": {"ann": 1}}.get(verb, {})
    states = {
        each.delivery.state for each in found if (each.message.id, each.delivery.mailbox) == (work.id, "bob")
    }
    settled = {"ack": State.DONE, "ack and reply": State.DONE, "bury": State.DEAD}.get(verb, State.CLAIMED)
    wrong = [] if wanted == dict(texts) else [f"delivered to {dict(texts)}"]
    return wrong if states == {settled} else [*wrong, f"is {states}"]


def complaints(open_store: Opener, folder: Path, verb: str, trouble: Trouble) -> list[str]:
    store = open_store(folder)
    try:
        trial = Trial(store, verb)
        found = trial.complaints(trouble)
        if found:
            return found
        other = open_store(folder)
        try:
            return [*wrong_in(store, verb, trial.work), *wrong_in(other, verb, trial.work)]
        finally:
            other.close()
    finally:
        store.close()


def fail_from(trouble: Trouble) -> None:
    _disk.fail_from(trouble.calls, trouble.nth, trouble.count, trouble.error, trouble.then)


def end() -> None:
    _disk.fail_from(0, 0, 0, 0, 0)


def main(kind: str, bug: str, stride: str, *verbs: str) -> None:
    tried = 0
    for verb in verbs:
        for number, (calls, error, count, then) in enumerate(TROUBLES):
            for nth in range(1 + number % int(stride), MOST, int(stride)):
                trouble = Trouble(calls, error, count, then, nth)
                with quick_folder() as folder:
                    found = complaints(opener(kind, bug), folder, verb, trouble)
                    reached = _disk.calls_seen()
                tried += 1
                for each in found:
                    print(f"{verb}, {trouble}: {each}")
                if found and bug != SOUND:  # a planted bug is found: that is all there is to know
                    print(tried)
                    return
                if reached < nth:  # the whole of it makes fewer calls
                    break
    print(tried)


_disk = ctypes.CDLL(None)
if __name__ == "__main__":
    main(*sys.argv[1:])
