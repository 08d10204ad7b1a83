"""The commands that work on mail under a lease: claim and settle letters, run a program for each, and dead
letters.

A letter may be claimed in one process and settled in another: the token of the lease is the proof. `postroom work`
runs a program for each letter: its exit code 0 settles the letter, 75 gives it back, any other fails it, and
Ctrl-C gives it back, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core.inbox import Filtered
from ..environment import environment, variable
from ..errors import LeaseLost, UnknownAgent, UnknownMessage
from ..formats.plain import after_move, plain_letter
from ..model.codec import encode
from ..model.delivery import State
from . import views
from .command import Option, command
from .context import note
from .errors import NOTHING, Usage
from .read import FOR_EVER
from .text import STDIN, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..letter import Work
    from .answer import Answer
    from .context import Context


# -- postroom work

BEAT = 20.0  # seconds between two heartbeats
AGAIN = 75  # exit code of a program that wants the same letter again, without counting a try
MOST_OF_ENVIRONMENT = 100_000  # bytes of a variable that every system accepts


@command(
    "work",
    Option("COMMAND", help="the program and its arguments, after --", many=True, required=True, complete="files"),
    Option("--loop", help="go on with the next letter; by default it ends after one", kind="flag"),
    Option(
        "-t", "--timeout", help="how long to wait for mail; for ever by default", kind="seconds", metavar="SPAN"
    ),
    Option(
        "--reply",
        help="reply with what the program prints (UTF-8 text), in the same commit as the ack",
        kind="flag",
    ),
    verb="work.Claim",
    without=("count", "holder", "since"),
    about="Claims a letter and starts the program, with the letter's text on standard input, the letter as JSON in"
    " POSTROOM_LETTER, and POSTROOM_ID, POSTROOM_TOKEN, POSTROOM_AGENT, POSTROOM_STORE set, so that the"
    " program may call postroom itself. Exit code 0 settles the letter, 75 gives it back without counting a"
    " try, and any other fails this try. The lease is renewed while it runs. Ctrl-C gives the letter back."
    " With --reply, a program that prints nothing settles the letter without an answer, and output that is"
    " not UTF-8 fails the try. Without --reply its output is passed through; with --json it goes to standard"
    " error, so that standard output is JSON alone.",
    examples=(("postroom work --as researcher --timeout 1s --reply -- wc -w", "answer with the number of words"),),
    json="letter exit receipts",
)
def run_work(context: Context) -> Iterator[Answer]:
    """Work on one letter, or with --loop on one after the other."""
    lease = context.get("lease", context.settings.lease)
    timeout = context.get("timeout", FOR_EVER)
    context.try_out(lambda box: box.claim(lease=lease, **_wanted(context)))
    claimed = _next(context, lease, timeout)
    if claimed is None:
        yield context.shown({"letter": None, "exit": None, "receipts": []}, views.worked, code=NOTHING)
    while claimed is not None:
        yield _work_on(context, claimed, lease)
        if not context.get("loop"):
            return
        claimed = _next(context, lease, timeout)


def _next(context: Context, lease: float, timeout: float) -> Work | None:
    """Claim the next letter. While it waits, heartbeats show that the agent is there."""
    end = time.monotonic() + timeout
    while True:
        _beat(context)
        left = max(0.0, end - time.monotonic())
        claimed: Work | None = context.mailbox.claim(lease=lease, timeout=min(left, BEAT), **_wanted(context))
        if claimed is not None or left <= BEAT:
            return claimed


def _wanted(context: Context) -> dict[str, Any]:
    """Return the options that choose letters."""
    return {name: value for name, value in context.values.items() if name in Filtered.__struct_fields__}


def _beat(context: Context) -> None:
    with suppress(UnknownAgent):  # the agent is not registered
        context.mailbox.heartbeat(active=True)


def _work_on(context: Context, claimed: Work, lease: float) -> Answer:
    try:
        code, printed = _run(context, claimed, lease)
        sent = _settle_run(context, claimed, code, printed)
    except BaseException as error:  # Ctrl-C, or the program cannot be started: no failed try of the letter
        if not claimed.is_settled and not isinstance(error, LeaseLost):
            claimed.release()
        raise
    data = {"letter": after_move(claimed), "exit": code, "receipts": sent}
    return context.shown(data, views.worked)


def _run(context: Context, claimed: Work, lease: float) -> tuple[int, bytes]:
    """Run the program and renew the lease meanwhile. Return its exit code and, with --reply, its output.

    Where standard output is JSON, the program's output goes to standard error.
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
                text = None  # it was passed to the program already
                claimed.renew(lease)
                _beat(context)
            else:
                return process.returncode, printed or b""
    except BaseException:
        process.kill()
        process.wait()
        raise


def _settle_run(context: Context, claimed: Work, code: int, printed: bytes) -> list[Any]:
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
    """Reply with what the program printed. Empty output settles the letter without a reply; bytes fail it."""
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


# -- claiming and settling

HOLDERS_ALONE = "give the --token that claim showed, or wait until its lease ends"


@command(
    "claim",
    verb="work.Claim",
    view=views.work,
    waits_for="letters",
    about="No other process gets it while the lease lasts. The answer shows a token, the proof of the claim: ack,"
    " fail, release and renew need it, in this process or another. A letter that is not settled in time"
    " returns to the inbox.",
    examples=(
        ("postroom claim --as researcher --lease 5m", "one letter"),
        ("postroom claim --as coder --count 10 --kind request --json", "up to ten, for a program"),
    ),
)
def run_claim(context: Context) -> Answer:
    holder = context.get("holder", f"{context.me} (process {os.getpid()})")
    return context.answer(holder=holder)


@command(
    "ack",
    Option(
        "--reply",
        help="answer it in the same commit; - reads the text from standard input",
        metavar="TEXT",
        against=("drafts",),
    ),
    Option(
        "--drafts",
        help="send these letters in the same commit: a file of JSON lines",
        metavar="PATH",
        complete="files",
    ),
    verb="work.Ack",
    places=("ids",),
    view=views.moved,
    about="Acknowledging twice is no error. A letter that nobody has claimed needs no token. --reply and --drafts"
    " need one claimed letter; the ack and the new letters are then one commit.",
    examples=(
        ("postroom ack m-1 --as researcher", "a letter that was read"),
        (
            'postroom ack m-5 --as researcher --token "$TOKEN" --reply "Merge sort."',
            "one that was claimed, with an answer",
        ),
    ),
    looks=True,
)
@command(
    "fail",
    verb="work.Fail",
    places=("ids",),
    view=views.moved,
    about="It is offered again after a pause. When its tries are spent it goes to the dead letters, and its sender"
    " gets a notice.",
    examples=(('postroom fail m-5 --as researcher --token "$TOKEN" --reason "no network"', "try again later"),),
    json="letters",
    looks=True,
)
@command(
    "reject",
    verb="work.Reject",
    places=("ids",),
    view=views.moved,
    examples=(("postroom reject m-1 --as researcher --reason 'not my field'", "send it back"),),
    json="letters",
    looks=True,
)
@command(
    "release",
    verb="work.Release",
    places=("ids",),
    view=views.moved,
    examples=(('postroom release m-5 --as researcher --token "$TOKEN"', "somebody else may have it"),),
    json="letters",
    looks=True,
)
@command(
    "renew",
    verb="work.Renew",
    places=("ids",),
    view=views.moved,
    examples=(('postroom renew m-5 --as researcher --token "$TOKEN" --lease 10m', "ten minutes more"),),
    json="letters",
    looks=True,
)
def run_settle(context: Context) -> Answer:
    """Settle all named letters in one commit, all or none. The letters of one claim share a token."""
    token = context.get("token") or variable("POSTROOM_TOKEN")
    params: dict[str, Any] = {"token": token or None}
    answers = sorted(context.values.keys() & {"reply", "drafts"})
    if answers and len(context.get("ids")) != 1:
        raise Usage("is sent with the ack of one letter", field=f"--{answers[0]}")
    if not token and (answers or context.name not in {"ack", "reject"}):
        raise Usage("is missing", field="--token", hint=HOLDERS_ALONE)
    if answers == ["drafts"]:
        from ..core.messages import own_drafts  # noqa: PLC0415 - rare
        from .send import drafts_of  # noqa: PLC0415 - rare

        params["drafts"] = own_drafts(context.me, drafts_of(context))
    if context.get("reply") == STDIN:
        params["reply"] = read_source(context, STDIN, "reply")
    try:
        return context.answer(**params)
    except LeaseLost as lost:
        lost.hint = lost.hint if token else HOLDERS_ALONE
        raise


# -- dead letters

_DEAD = Option(
    "ID", name="ids", help="the letter's id, or how it begins", many=True, required=True, complete="dead"
)

command(
    "dead",
    verb="dead.Dead",
    view=views.dead,
    about="Mail that could not be handled: its tries were spent, it was rejected, or it expired. It is kept, with"
    " the reason.",
    examples=(("postroom dead --as tester", "what went wrong"),),
    looks=True,
)


@command(
    "dead show",
    verb="inbox.Read",
    places=("id",),
    view=views.dead_letter,
    examples=(("postroom dead show m-6 --as tester", "one of them"),),
    looks=True,
)
def run_dead_show(context: Context) -> Answer:
    found = context.perform()
    state = found.letter.delivery.state
    if state is not State.DEAD:
        raise UnknownMessage(f"{found.letter.message.id} is {state}, not dead", field="id")
    return context.answer_with(found)


command(
    "dead revive",
    _DEAD,
    verb="dead.Revive",
    view=views.moved,
    about="They get all their tries again, and no longer expire. All are revived or none.",
    examples=(("postroom dead revive m-6 --as tester", "another chance"),),
    looks=True,
)
command(
    "dead purge",
    _DEAD,
    verb="dead.PurgeDead",
    view=views.numbers,
    about="A letter that is still open in another mailbox is kept.",
    examples=(("postroom dead purge m-6 --as tester", "gone"),),
    looks=True,
)
