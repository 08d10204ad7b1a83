"""Bugs that any store could have, one each, that an audit must find every time.

Where a bug shows only at an unlucky moment, the store brings that moment about itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from postroom.errors import StoreFailing
from postroom.model.message import text
from postroom.model.query import Found, Query
from postroom.model.report import Progress
from postroom.store.protocol import Move, Plan, Post, Posted, Write
from tests.faults import clock_bugs, load_bugs
from tests.faults.planting import Opener, Wrapped


def only_sends(writes: Sequence[Write] | Plan) -> Sequence[Post]:
    """The letters of a commit that does nothing but send them."""
    posts = [] if callable(writes) else [write for write in writes if isinstance(write, Post)]
    return posts if not callable(writes) and len(posts) == len(writes) else ()


def as_if_sent(posts: Sequence[Post]) -> tuple[Posted, ...]:
    return tuple(Posted(message_id=post.message.id, number=1) for post in posts)


# -- what is sent


class Early(Wrapped):
    """Reports success too early: the last two commits that only send are always still to come."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        super().__init__(open_store, folder, boot)
        self._later: list[Sequence[Post]] = []

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        posts = only_sends(writes)
        if not posts:
            return self.inner.commit(writes)
        if len(self._later) == 2:
            self.inner.commit(self._later.pop(0))
        self._later.append(posts)
        return as_if_sent(posts)


class Doubling(Wrapped):
    """Sends again under another id and without its key, as if no answer had come."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        posted = self.inner.commit(writes)
        self.inner.commit([_again(post) for post in only_sends(writes)])
        return posted


def _again(post: Post) -> Post:
    message = replace(post.message, id=f"{post.message.id}.2", key=None)
    return replace(post, message=message, encoded=b"")


class Swapping(Wrapped):
    """Every second letter overtakes the one before."""

    _first: Sequence[Post] = ()

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        posts = only_sends(writes)
        if posts and not self._first:
            self._first = posts
            return as_if_sent(posts)
        posted = self.inner.commit(writes)
        if posts:
            self.inner.commit(self._first)
            self._first = ()
        return posted


class Garbling(Wrapped):
    """Keeps the first half of what a letter says."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if callable(writes):
            return self.inner.commit(writes)
        return self.inner.commit([_halved(write) if isinstance(write, Post) else write for write in writes])


def _halved(post: Post) -> Post:
    message = post.message.text
    return replace(post, message=replace(post.message, parts=(text(message[: len(message) // 2]),)), encoded=b"")


# -- what is one commit


class Unfenced(Wrapped):
    """Believes for ever what it saw first of an inbox, and writes without asking for the revision."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        super().__init__(open_store, folder, boot)
        self._seen: dict[str | None, list[Found]] = {}

    def find(self, query: Query) -> list[Found]:
        if query.order != "priority":
            return self.inner.find(query)
        if not self._seen.get(query.mailbox):
            self._seen[query.mailbox] = self.inner.find(query)
        return self._seen[query.mailbox]

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        return self.inner.commit(lambda: [self._at_any_revision(write) for write in planned])

    def _at_any_revision(self, write: Write) -> Write:
        if not isinstance(write, Move):
            return write
        before = write.before
        (now,) = self.inner.find(Query(mailbox=before.mailbox, message_ids=(before.message_id,)))
        after = replace(write.after, revision=now.delivery.revision + 1)
        return Move(now.delivery, after, write.action)


class Torn(Wrapped):
    """Commits a piece of what belongs together, and is killed: after the first delivery of a broadcast, between an
    ack and its reply.
    """

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        is_torn = False

        def plan() -> Sequence[Write]:
            nonlocal is_torn
            planned = list(writes() if callable(writes) else writes)
            piece = _first_piece(planned)
            is_torn = piece != planned
            return piece

        posted = self.inner.commit(plan)
        if is_torn:
            os.kill(os.getpid(), signal.SIGKILL)
        return posted


def _first_piece(writes: Sequence[Write]) -> list[Write]:
    others: list[Write] = [write for write in writes if not isinstance(write, Post)]
    return others or [
        replace(write, deliveries=write.deliveries[:1], copies=()) for write in writes if isinstance(write, Post)
    ]


class Clinging(Wrapped):
    """After its letter was sent it stays in the room, asleep."""

    _has_sent = False

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if self._has_sent:
            return self.inner.commit(_fall_asleep)
        self._has_sent = True
        return self.inner.commit(writes)


def _fall_asleep() -> Sequence[Write]:
    os.kill(os.getpid(), signal.SIGSTOP)
    return ()


# -- what the disk says


class Pretending(Wrapped):
    """What the disk does not take is thrown away, and nobody is told."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        try:
            return self.inner.commit(planned)
        except StoreFailing:
            return as_if_sent([write for write in planned if isinstance(write, Post)])


class Misnaming(Wrapped):
    """A copy that cannot be given its name was made all the same: its name is given to nothing."""

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        with suppress(StoreFailing):
            return self.inner.backup(path, overwrite=overwrite, progress=progress)
        path.touch()
        return 0


class Raw(Wrapped):
    """Lets out the errors of the system as they are."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        with _unwrapped():
            super().__init__(open_store, folder, boot)

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        with _unwrapped():
            return self.inner.commit(writes)


@contextmanager
def _unwrapped() -> Iterator[None]:
    try:
        yield
    except StoreFailing as failed:
        raise (failed.__cause__ or failed.__context__ or failed) from None


class Unkeyed(Wrapped):
    """Looks for the letter before it is written, and fails there, where nobody knows its key."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        try:
            return self.inner.commit(writes)
        except StoreFailing as failed:
            raise _Unkeyed(failed.message) from None


class _Unkeyed(StoreFailing):
    @property
    def key(self) -> None:
        return None


class Sulking(Wrapped):
    """Once something failed, it refuses for ever."""

    _failed: StoreFailing | None = None

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        try:
            super().__init__(open_store, folder, boot)
        except StoreFailing as failed:
            Sulking._failed = failed
            raise

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if Sulking._failed is not None:
            raise Sulking._failed
        return self.inner.commit(writes)


BUGS: dict[str, type[Wrapped]] = {
    "early": Early,
    "doubling": Doubling,
    "swapping": Swapping,
    "garbling": Garbling,
    "unfenced": Unfenced,
    "torn": Torn,
    "clinging": Clinging,
    "pretending": Pretending,
    "misnaming": Misnaming,
    "raw": Raw,
    "unkeyed": Unkeyed,
    "sulking": Sulking,
    **clock_bugs.BUGS,
    **load_bugs.BUGS,
}
