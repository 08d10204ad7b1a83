"""Commits of one thread that are made safe together: one sync for all of them, then the answers and the bells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .committing import make_safe, turn_back

if TYPE_CHECKING:
    from types import TracebackType

    from ..bells import DoorBells
    from .committing import Committed
    from .connection import Connection


class Gathering:
    """What one thread commits inside it. At its end all is made safe, whatever happened."""

    def __init__(self, bells: DoorBells, local: Any) -> None:
        self._bells = bells
        self._local = local  # the thread's own: where a commit finds this
        self._kept: list[tuple[Connection, Committed, list[int]]] = []

    def __enter__(self) -> None:
        self._local.gathering = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.gathering = None
        self._make_safe()

    def add(self, here: Connection, done: Committed, bells: list[int]) -> None:
        self._kept.append((here, done, bells))

    def _make_safe(self) -> None:
        """One sync covers all that stands before it in the same log; a connection that was dropped has its own."""
        try:
            last = {here: done for here, done, _ in self._kept if done.must_sync}
            for here, done in last.items():
                make_safe(here, replace(done, carried=()))
        except BaseException:
            for here, done, _ in self._kept:
                turn_back(here, done.carried)
            raise
        else:
            for here, done, bells in self._kept:
                make_safe(here, replace(done, must_sync=False))
                self._bells.ring(bells)
        finally:
            for _, _, bells in self._kept:
                self._bells.let_go(bells)
