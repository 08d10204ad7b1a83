"""Commits of one thread that are made safe together: one sync for all of them, then the answers and the bells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...errors import StoreFailing
from ..base import Undone, rung_by
from .committing import commit, make_safe, turn_back
from .joining import Joint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ..base import Plan, Write
    from ..bells import DoorBells
    from .committing import Committed
    from .connection import Connection


class Gathering:
    """What one thread commits inside it. At its end all is made safe, whatever happened. `joined`: in as few
    transactions as can be.
    """

    def __init__(
        self, bells: DoorBells, local: Any, grasp: Callable[[set[str]], list[int]], *, joined: bool
    ) -> None:
        self._bells = bells
        self._grasp = grasp
        self._local = local  # the thread's own: where a commit finds this
        self._joined = joined
        self._joint: Joint | None = None
        self._open: list[tuple[Connection, Committed]] = []  # in the transaction that is open
        self._kept: list[tuple[Connection, Committed]] = []
        self._grasped: list[int] = []
        self._failed: BaseException | None = None  # Undone: nothing at all was written

    def __enter__(self) -> None:
        self._local.gathering = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.gathering = None
        try:
            self.end_transaction()
        finally:
            self._make_safe()
        if self._failed is not None:  # in the midst of it
            raise self._failed

    def commit(self, here: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        if self._joint is not None and self._joint.is_full:
            self.end_transaction()
        if self._failed is not None:
            raise self._failed
        if self._joint is None and self._joined:
            self._joint = Joint.begin(here)
        if self._joint is not None:
            done = self._joint.commit(writes, durable=durable)
            self._open.append((here, done))
        else:
            done = commit(here, writes, durable=durable)
            self._kept.append((here, done))
            self._grasped += self._grasp(rung_by(done.writes, done.posted))
        return done

    def end_transaction(self) -> None:
        """What was committed so far is in the room then."""
        joint, self._joint = self._joint, None
        if joint is not None:
            done, self._open = self._open, []
            try:
                joint.end()
            except BaseException as error:
                is_known = isinstance(error, Undone) and not self._kept
                self._failed = error if is_known else StoreFailing("not all of it could be written")
                raise self._failed from error
            # The letters can be seen by now: whoever hangs a bell later finds them by looking.
            self._kept += done
            self._grasped += self._grasp({name for _, one in done for name in rung_by(one.writes, one.posted)})

    def _make_safe(self) -> None:
        """One sync covers all that stands before it in the same log; a connection that was dropped has its own."""
        try:
            last = {here: done for here, done in self._kept if done.must_sync}
            for here, done in last.items():
                make_safe(here, replace(done, carried=()) if done.carried else done)
        except BaseException:
            for here, done in self._kept:
                turn_back(here, done.carried)
            raise
        else:
            for here, done in self._kept:
                if done.carried:
                    make_safe(here, replace(done, must_sync=False))
            self._bells.ring(self._grasped)
        finally:
            self._bells.let_go(self._grasped)
