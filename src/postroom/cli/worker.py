"""`postroom work`: a program for each letter. Done when it ends well, failed when not, given back on Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import LeaseLost, UnknownAgent
from ..model.codec import encode
from ..whereabouts import environment
from ..wire.plain import plain_letter, plain_move, plain_receipt
from . import views
from .answers import Answer
from .exits import NOTHING, Usage
from .notes import note
from .reading import FOR_EVER, filters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..letter import Work
    from .context import Context

BEAT = 20.0  # seconds between two signs of life
AGAIN = 75  # a program that ends so wants the same letter again, and no try counted
MOST_OF_ENVIRONMENT = 100_000  # bytes of a variable that every system takes


def work(context: Context) -> Iterator[Answer]:
    """One letter, or one after the other."""
    lease = context.get("lease", context.settings.lease)
    timeout = context.get("timeout", FOR_EVER)
    context.try_out(lambda box: box.claim(lease=lease, **filters_of(context)))
    claimed = _next(context, lease, timeout)
    if claimed is None:
        yield Answer(context.name, {"letter": None, "exit": None, "receipts": []}, views.worked, code=NOTHING)
    while claimed is not None:
        yield _work_on(context, claimed, lease)
        if not context.get("loop"):
            return
        claimed = _next(context, lease, timeout)


def _next(context: Context, lease: float, timeout: float) -> Work | None:
    """The next letter. Who waits for work is there: a sign of life now and then says so."""
    end = time.monotonic() + timeout
    while True:
        _beat(context)
        left = max(0.0, end - time.monotonic())
        claimed: Work | None = context.mailbox.claim(lease=lease, timeout=min(left, BEAT), **filters_of(context))
        if claimed is not None or left <= BEAT:
            return claimed


def _beat(context: Context) -> None:
    with suppress(UnknownAgent):  # it never registered: nobody counts on it
        context.mailbox.heartbeat(active=True)


def _work_on(context: Context, claimed: Work, lease: float) -> Answer:
    try:
        code, printed = _run(context, claimed, lease)
        sent = _settle(context, claimed, code, printed)
    except BaseException as error:  # Ctrl-C, or the program cannot be started: nobody's failure
        if not claimed.is_settled and not isinstance(error, LeaseLost):
            claimed.release()
        raise
    data = {"letter": plain_move(claimed), "exit": code, "receipts": [plain_receipt(receipt) for receipt in sent]}
    return Answer(context.name, data, views.worked)


def _run(context: Context, claimed: Work, lease: float) -> tuple[int, bytes]:
    """Run the program; hold the letter while it does. With --reply its output is ours; where standard output is
    JSON, it goes to standard error.
    """
    kept = subprocess.PIPE if context.get("reply") else sys.stderr if context.screen.json else None
    try:
        process = subprocess.Popen(
            context.get("command"), stdin=subprocess.PIPE, stdout=kept, env=_environment(context, claimed)
        )
    except (OSError, ValueError) as broken:
        raise Usage(f"cannot be started: {broken}", field="COMMAND") from None
    text: bytes | None = claimed.text.encode()
    try:
        while True:
            try:
                printed, _ = process.communicate(text, timeout=lease / 2)
            except subprocess.TimeoutExpired:
                text = None  # it is on its way already
                claimed.renew(lease)
                _beat(context)
            else:
                return process.returncode, printed or b""
    except BaseException:
        process.kill()
        process.wait()
        raise


def _settle(context: Context, claimed: Work, code: int, printed: bytes) -> list[Any]:
    program = context.get("command")[0]
    if code == AGAIN:
        claimed.release()
    elif code != 0:
        why = f"signal {-code}" if code < 0 else f"exit {code}"
        claimed.fail(f"{program} ended with {why}")
    elif context.get("reply"):
        return _answer(context, claimed, program, printed)
    else:
        claimed.ack()
    return []


def _answer(context: Context, claimed: Work, program: str, printed: bytes) -> list[Any]:
    """Answer with what was printed. Nothing is no answer; what is no text cannot be one."""
    try:
        text = printed.decode()
    except UnicodeDecodeError:
        claimed.fail(f"what {program} printed is not UTF-8 text")
        return []
    if text.strip():
        return [claimed.ack_and_reply(text.replace("\0", "").removesuffix("\n"))]
    claimed.ack()
    note(context.call, f"{program} printed nothing, so {claimed.id} is done without an answer")
    return []


def _environment(context: Context, claimed: Work) -> dict[str, str]:
    lease = claimed.delivery.lease
    letter = encode(plain_letter(claimed)).decode()
    return {
        **environment(),
        "POSTROOM_AGENT": context.me,
        "POSTROOM_STORE": context.room.settings.store,
        "POSTROOM_ID": claimed.id,
        "POSTROOM_TOKEN": lease.token if lease else "",
        "POSTROOM_LETTER": letter if len(letter.encode()) < MOST_OF_ENVIRONMENT else "",
    }
