"""What people read of rings: one line for each, a table of those that were given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..core.presentation import harmless, harmless_json
from ..environment import environment, without_host
from ..hosts import desktop
from ..model.codec import encode, to_plain
from . import views
from .context import note
from .errors import NOT_NOW, NOTHING, OK, Usage
from .health import is_operator
from .output import Answer, ago, cut, hint, one_line, table
from .read import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.alert import Rung, RungLetter
    from .context import Context
    from .output import Screen


Data = Mapping[str, Any]
LONGEST = 60  # characters of a subject


def ring(_screen: Screen, data: Data) -> str:
    """One line, whatever a subject holds."""
    if not data["letters"]:
        return "Nothing came.\n"
    first, *others = data["letters"]
    mark = "[URGENT] " if first["priority"] == "urgent" else ""
    subject = cut(one_line(first["subject"]), LONGEST) or "(no subject)"
    more = f", and {len(others)} more" if others else ""
    failed = f"; failed: {one_line(data['failed'])}" if data["failed"] else ""
    text = f"{mark}{one_line(first['from'])}: {subject} ({first['id']}){more}"
    return harmless(f"{data['mailbox']}, {data['unread']} unread: {text}{failed}") + "\n"


def alerts_view(screen: Screen, data: Data) -> str:
    if not data["rings"]:
        return "No rings were given up.\n"
    rows = [
        (
            screen.short(one["letter"]["id"]),
            one["mailbox"],
            one["way"],
            one["letter"]["from"],
            one["letter"]["subject"],
            str(one["tries"]),
            ago(one["at"], screen.now),
            one["why"],
        )
        for one in data["rings"]
    ]
    titles = ("ID", "MAILBOX", "WAY", "FROM", "ABOUT", "TRIES", "WHEN", "WHY")
    shown = table(screen, titles, rows, drop=("TRIES", "FROM", "WHEN", "ABOUT"))
    return shown + hint(screen, "rings retry")


# The program that a watch runs for a ring. What others wrote comes on its standard input, never in its arguments.
#
# Nothing of a session that we may run in goes along: a child that found its socket would speak for it.

SHELL = "/bin/sh"
GRACE = 2.0  # seconds between asking it to end and ending it


def plain_letter(letter: RungLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": letter.sender,
        "subject": letter.subject,
        "priority": letter.priority.name.lower(),
    }


def plain_ring(rung: Rung) -> dict[str, Any]:
    return {
        "mailbox": rung.mailbox,
        "unread": rung.unread,
        "letters": [plain_letter(letter) for letter in rung.letters],
    }


def run_program(context: Context, command: str, rung: Rung, seconds: float) -> str | None:
    """Run it to its end, or to the end of its time. Why it failed; None if it did not."""
    process = subprocess.Popen(  # noqa: S603 - the user's own program
        [SHELL, "-c", command],
        stdin=subprocess.PIPE,
        stdout=sys.stderr if context.screen.json else None,
        env=_environment(context),
        start_new_session=True,  # it ends with all that it started, and Ctrl-C is ours
    )
    try:
        process.communicate(harmless_json(encode(plain_ring(rung))) + b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it took longer than {seconds:g} s"
    except BaseException:
        _end(process)
        raise
    code = process.returncode
    return None if code == 0 else f"signal {-code}" if code < 0 else f"exit {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all that it started."""
    for final in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, final)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _environment(context: Context) -> dict[str, str]:
    ours = {"POSTROOM_AGENT": context.mailbox.name, "POSTROOM_STORE": context.room.settings.store}
    return without_host(environment()) | ours


# `postroom watch`: a line, a run of a program or a note on the desktop for each ring, until it shall end.

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
        yield Answer(context.name, nothing, ring, code=NOTHING)


def _way(context: Context) -> str:
    if context.get("exec") and context.get("desktop"):
        raise Usage("says two things at once", field="--desktop", hint="one watch for each, beside the other")
    usual = next((name for name in ("exec", "desktop") if context.get(name)), "watch")
    return str(context.get("way") or usual)


def _is_run(context: Context) -> bool:
    """Does a program tell of it, rather than a line?"""
    return bool(context.get("exec") or context.get("desktop"))


def _begin(context: Context, way: str) -> None:
    result = context.mailbox.begin_rings(way, backlog=bool(context.get("backlog")))
    if result:
        note(context.call, f"{result} unread already, and counted as told; --backlog rings for what waits, too")


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
            yield Answer(context.name, plain_ring(rung) | {"failed": None}, ring)
            why = None
    finally:
        if why is None:
            context.mailbox.ring_done(way, rung.ids)
        else:
            context.mailbox.ring_failed(way, rung.ids, why)
    if _is_run(context):
        code = NOT_NOW if why is not None and context.get("once") else OK
        yield Answer(context.name, plain_ring(rung) | {"failed": why}, ring, code=code)


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


# The commands that tell somebody of mail: watch, and look after rings that were given up.


def run_watch(context: Context) -> Iterator[Answer]:

    return watch(context)


def run_rings(context: Context) -> Answer:
    whose = context.room if is_operator(context) else context.mailbox
    rings = [
        {
            "mailbox": lost.mailbox,
            "way": lost.way,
            "letter": plain_letter(lost.letter),
            "at": to_plain(lost.at),
            "tries": lost.tries,
            "why": lost.why,
        }
        for lost in whose.dead_rings()
    ]
    return Answer(context.name, {"rings": rings}, alerts_view)


def run_rings_retry(context: Context) -> Answer:
    whose = context.room if is_operator(context) else context.mailbox
    retried = whose.retry_rings(way=context.get("way"), ids=context.get("id") or None)
    return Answer(context.name, {"retried": retried}, views.numbers)
