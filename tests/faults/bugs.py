"""SQLite stores with one planted bug each, that an audit must find every time.

Where a bug shows only at an unlucky moment, the store brings that moment about itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import replace

from postroom.errors import StoreFailing
from postroom.model.parts import text
from postroom.model.query import Found, Query
from postroom.store.base import Move, Plan, Post, Posted, Write
from postroom.store.sqlite import parcels, wal
from postroom.store.sqlite.connection import Connection
from postroom.store.sqlite.ground import sync_file
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.tray import NoTray, Tray
from postroom.store.sqlite.writing import Writing


class Early(SqliteStore):
    """Reports success too early: the last two commits that only send are always still to come."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self._later: list[Sequence[Write]] = []

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes):
            return super().commit(writes)
        posts = [write for write in writes if isinstance(write, Post)]
        if len(posts) != len(writes):
            return super().commit(writes)
        if len(self._later) == 2:
            super().commit(self._later.pop(0))
        self._later.append(writes)
        return tuple(Posted(message_id=post.message.id, number=1) for post in posts)


class Doubling(SqliteStore):
    """Sends again under another id and without its key, as if no answer had come."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        posted = super().commit(writes)
        if not callable(writes):
            super().commit([_again(write) for write in writes if isinstance(write, Post)])
        return posted


def _again(post: Post) -> Post:
    message = replace(post.message, id=f"{post.message.id}.2", key=None)
    return replace(post, message=message, encoded=b"")


class Swapping(SqliteStore):
    """Every second letter overtakes the one before."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self._first: Sequence[Write] = ()

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes) or not all(isinstance(write, Post) for write in writes):
            return super().commit(writes)
        if not self._first:
            self._first = writes
            return tuple(
                Posted(message_id=write.message.id, number=1) for write in writes if isinstance(write, Post)
            )
        posted = super().commit(writes)
        super().commit(self._first)
        self._first = ()
        return posted


class Garbling(SqliteStore):
    """Keeps the first half of what a letter says."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes):
            return super().commit(writes)
        return super().commit([_halved(write) if isinstance(write, Post) else write for write in writes])


def _halved(post: Post) -> Post:
    said = post.message.text
    return replace(post, message=replace(post.message, parts=(text(said[: len(said) // 2]),)), encoded=b"")


class Unfenced(SqliteStore):
    """Believes for ever what it saw first of an inbox, and writes without asking for the revision."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self._seen: dict[str | None, list[Found]] = {}

    def find(self, query: Query) -> list[Found]:
        if query.order != "priority":
            return super().find(query)
        if not self._seen.get(query.mailbox):
            self._seen[query.mailbox] = super().find(query)
        return self._seen[query.mailbox]

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        return super().commit(lambda: [self._at_any_revision(write) for write in planned])

    def _at_any_revision(self, write: Write) -> Write:
        if not isinstance(write, Move):
            return write
        before = write.before
        (now,) = super().find(Query(mailbox=before.mailbox, message_ids=(before.message_id,)))
        after = replace(write.after, revision=now.delivery.revision + 1)
        return Move(now.delivery, after, write.action)


class Loose(SqliteStore):
    """No transaction: every statement is committed on its own."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        here = self._here()
        with here.lock:
            here.mend()
            planned = writes() if callable(writes) else writes
            posted = self._apply(here, planned)
            here.log.tend(here.lock)
        here.log.sync(here.lock)
        return posted

    def _apply(self, here: Connection, planned: Sequence[Write]) -> tuple[Posted, ...]:
        writing = Writing(here.database, here.names)
        posted = writing.apply(planned)
        writing.remember()
        return posted


class Torn(Loose):
    """The same, and the kill comes in the middle: after the first delivery of a broadcast, and between an ack and
    its reply.
    """

    def _apply(self, here: Connection, planned: Sequence[Write]) -> tuple[Posted, ...]:
        here.database.exec_trace = _killed_in_the_middle() if _is_several(planned) else None
        return super()._apply(here, planned)


def _is_several(writes: Sequence[Write]) -> bool:
    posts = [write for write in writes if isinstance(write, Post)]
    return any(len(post.deliveries) + len(post.copies) > 1 for post in posts) or 0 < len(posts) < len(writes)


def _killed_in_the_middle() -> Callable[[apsw.Cursor, str, Any], bool]:
    """Seen by every statement before it runs."""
    last = ""

    def look(_cursor: apsw.Cursor, sql: str, _values: Any) -> bool:
        nonlocal last
        if last.startswith(("INSERT INTO deliveries", "UPDATE deliveries")):
            os.kill(os.getpid(), signal.SIGKILL)
        last = sql
        return True

    return look


class Swallowing(SqliteStore):
    """A sync that fails is nobody's business."""

    def _here(self) -> Connection:
        here = super()._here()
        here.log.__class__ = _SwallowingLog
        return here


class _SwallowingLog(wal.Log):
    def sync(self, lock: WriterLock) -> None:  # noqa: ARG002 - nobody is warned
        try:
            sync_file(self._descriptor)
        except OSError:
            return


class Retrying(SqliteStore):
    """A sync that fails is tried again, on the same descriptor, and then believed."""

    def _here(self) -> Connection:
        here = super()._here()
        here.log.__class__ = _RetryingLog
        return here


class _RetryingLog(wal.Log):
    def sync(self, lock: WriterLock) -> None:  # noqa: ARG002 - nobody is warned
        try:
            sync_file(self._descriptor)
        except OSError:
            sync_file(self._descriptor)


class Hasty(SqliteStore):
    """A carrier that answers for a letter before it has written it, and is killed in between."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:  # noqa: ARG002 - it does not come to that
        lock = self._here().lock
        while True:
            with lock:
                end = time.monotonic() + 0.2
                while time.monotonic() < end:
                    self._answer(lock.tray)

    def _answer(self, tray: Tray | NoTray) -> None:
        for slot, packed in tray.take():
            parcel = parcels.unpack(packed)
            posted = [Posted(message_id=letter.post().message.id, number=1) for letter in parcel.letters]
            tray.reply(slot, parcel.answer(posted) if posted else None)
            if posted:
                os.kill(os.getpid(), signal.SIGKILL)


class Clinging(SqliteStore):
    """Stays in the room for a while after its letter was sent."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        posted = super().commit(writes)
        self._here().lock.take()
        return posted


class Careless(SqliteStore):
    """Sets nothing aside for a full disk."""

    def _here(self) -> Connection:
        here = super()._here()
        here.log.__class__ = _CarelessLog
        return here


class _CarelessLog(wal.Log):
    def check_room(self, lock: WriterLock) -> None:
        pass

    def relieve(self, lock: WriterLock) -> None:  # noqa: ARG002 - there is nothing to give up
        raise apsw.FullError


class Pretending(SqliteStore):
    """What the disk does not take is thrown away, and nobody is told."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        try:
            return super().commit(planned)
        except StoreFailing:
            posts = [write for write in planned if isinstance(write, Post)]
            return tuple(Posted(message_id=post.message.id, number=1) for post in posts)


class Raw(SqliteStore):
    """Lets out the errors of the system as they are."""

    def __init__(self, path: Path, **settings: Any) -> None:
        with _unwrapped():
            super().__init__(path, **settings)

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        with _unwrapped():
            return super().commit(writes)


@contextmanager
def _unwrapped() -> Iterator[None]:
    try:
        yield
    except StoreFailing as failed:
        raise (failed.__cause__ or failed.__context__ or failed) from None


class Sulking(SqliteStore):
    """Once something failed, it refuses for ever."""

    _failed: StoreFailing | None = None

    def __init__(self, path: Path, **settings: Any) -> None:
        try:
            super().__init__(path, **settings)
        except StoreFailing as failed:
            Sulking._failed = failed
            raise

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if Sulking._failed is not None:
            raise Sulking._failed
        return super().commit(writes)


SQLITE: dict[str, type[SqliteStore]] = {
    "early": Early,
    "doubling": Doubling,
    "swapping": Swapping,
    "garbling": Garbling,
    "unfenced": Unfenced,
    "loose": Loose,
    "torn": Torn,
    "swallowing": Swallowing,
    "retrying": Retrying,
    "hasty": Hasty,
    "clinging": Clinging,
    "careless": Careless,
    "pretending": Pretending,
    "raw": Raw,
    "sulking": Sulking,
}
