"""`postroom watch`: a line, a run of a program or a note on the desktop for each ring, until it shall end."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Self

from ..push import desktop
from . import ring_views
from .answers import Answer
from .exits import NOT_NOW, NOTHING, OK, Usage
from .notes import note
from .reading import FOR_EVER
from .ring_program import plain_ring, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.ring import Rung
    from .context import Context

SLICE = 5.0  # seconds of one wait
LIMIT = 60.0  # seconds for a program, where nobody says otherwise
SPARE = 10.0  # seconds to end one that takes longer, and to write down what came of it
ENDED = "the watch ended"


def watch(context: Context) -> Iterator[Answer]:
    way, timeout = _way(context), context.get("timeout", FOR_EVER)
    if context.get("desktop"):
        desktop.program()  # that there is none is told before anything begins
    context.try_out(lambda box: box.begin_rings(way))
    _begin(context, way)
    rang = False
    with Ending() as ending:
        try:
            while rung := _next(context, way, timeout, ending):
                rang = True
                yield from _ring(context, way, rung, ending)
                if context.get("once"):
                    return
                ending.let_go()
        except KeyboardInterrupt:
            return
    if not rang:
        unread = context.mailbox.counts()["total"]
        nothing = {"mailbox": context.mailbox.name, "unread": unread, "letters": [], "failed": None}
        yield Answer(context.name, nothing, ring_views.ring, code=NOTHING)


def _way(context: Context) -> str:
    if context.get("exec") and context.get("desktop"):
        raise Usage("says two things at once", field="--desktop", hint="one watch for each, beside the other")
    usual = next((name for name in ("exec", "desktop") if context.get(name)), "watch")
    return str(context.get("way") or usual)


def _is_run(context: Context) -> bool:
    """Does a program tell of it, rather than a line?"""
    return bool(context.get("exec") or context.get("desktop"))


def _begin(context: Context, way: str) -> None:
    told = context.mailbox.begin_rings(way, backlog=bool(context.get("backlog")))
    if told:
        note(context.call, f"{told} unread already, and counted as told; --backlog rings for what waits, too")


def _next(context: Context, way: str, timeout: float, ending: Ending) -> Rung | None:
    """The next ring; from when it is written down until it is done, nobody interrupts."""
    end, within = time.monotonic() + timeout, context.get("limit", LIMIT) + SPARE
    while True:
        left = max(0.0, end - time.monotonic())
        rung = context.mailbox.wait_to_ring(way, min(left, SLICE), may_ring=ending.hold, within=within)
        if rung is not None or left <= SLICE:
            return rung
        ending.let_go()


def _ring(context: Context, way: str, rung: Rung, ending: Ending) -> Iterator[Answer]:
    """Run the program, or print: what did not get through is tried again, and so is what nobody hears of, because
    this process was killed.
    """
    why: str | None = ENDED
    try:
        why = _run(context, rung, ending)
        if why is None and not _is_run(context):
            why = "it could not be printed"
            yield Answer(context.name, plain_ring(rung) | {"failed": None}, ring_views.ring)
            why = None
    finally:
        if why is None:
            context.mailbox.ring_done(way, rung.ids)
        else:
            context.mailbox.ring_failed(way, rung.ids, why)
    if _is_run(context):
        code = NOT_NOW if why is not None and context.get("once") else OK
        yield Answer(context.name, plain_ring(rung) | {"failed": why}, ring_views.ring, code=code)


def _run(context: Context, rung: Rung, ending: Ending) -> str | None:
    if not _is_run(context):
        return None
    ending.let_go()
    try:
        if context.get("desktop"):
            return desktop.show(desktop.program(), rung)
        return run_program(context, context.get("exec"), rung, context.get("limit", LIMIT))
    finally:
        ending.hold()


class Ending:
    """Ctrl-C and SIGTERM end a watch at once, except while it is held: then as soon as it is let go."""

    def __init__(self) -> None:
        self._asked = self._held = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def hold(self) -> bool:
        """From now on nobody interrupts; False if somebody asked before."""
        self._held = True
        return not self._asked

    def let_go(self) -> None:
        self._held = False
        if self._asked:
            raise KeyboardInterrupt

    def _hear(self, *_: object) -> None:
        self._asked = True
        if not self._held:
            raise KeyboardInterrupt
