"""The commands about alerts: watch, rings, which lists and retries alerts that were given up, and webhooks.

`postroom watch` prints a line, runs a program or shows a desktop note for each alert until it is ended. A program
gets what others wrote on its standard input, never in its arguments, and nothing of a host's session around it: a
child that found the session's socket would speak for it. A webhook is a URL that the server calls when mail waits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..core import webhooks
from ..core.authorize import NOTIFIER
from ..core.presentation import defuse, escape_json
from ..environment import environment, without_host
from ..formats.alerts import TEST, alert_record, letter_record, webhook_call
from ..formats.plain import plain
from ..hosts import desktop
from ..model.codec import encode
from ..model.message import Priority
from . import views
from .command import LIMIT, WHOLE, Option, command
from .context import note, note_unknown
from .errors import NOT_NOW, NOTHING, OK
from .output import cut, listing, one_line, says, secret
from .read import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..hosts.webhooks import Outcome
    from ..mailbox import Mailbox
    from ..model.alert import Rung
    from ..model.webhook import Webhook
    from ..room import Room
    from .answer import Answer, Screen
    from .context import Context


Data = Mapping[str, Any]
LONGEST = 60  # characters of a subject


# -- views


def ring(_screen: Screen, data: Data) -> str:
    """Show an alert on one line, whatever its subject holds."""
    if not data["letters"]:
        return "Nothing came.\n"
    first, *others = data["letters"]
    mark = "[URGENT] " if first["priority"] == "urgent" else ""
    subject = cut(one_line(first["subject"]), LONGEST) or "(no subject)"
    more = f", and {len(others)} more" if others else ""
    failed = f"; failed: {one_line(data['failed'])}" if data["failed"] else ""
    text = f"{mark}{one_line(first['from'])}: {subject} ({first['id']}){more}"
    return defuse(f"{data['mailbox']}, {data['unread']} unread: {text}{failed}") + "\n"


# -- the program that a watch runs

SHELL = "/bin/sh"
GRACE = 2.0  # seconds between SIGTERM and SIGKILL


def run_program(context: Context, command: str, rung: Rung, seconds: float) -> str | None:
    """Run a program for an alert, for so many seconds at most. Return why it failed; None if it did not."""
    process = subprocess.Popen(  # noqa: S603 - the user's own program
        [SHELL, "-c", command],
        stdin=subprocess.PIPE,
        stdout=sys.stderr if context.screen.json else None,
        env=_environment(context),
        start_new_session=True,  # ended with all that it started; Ctrl-C reaches only the watch
    )
    try:
        process.communicate(escape_json(encode(alert_record(rung))) + b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it took longer than {seconds:g} s"
    except BaseException:
        _end(process)
        raise
    code = process.returncode
    return None if code == 0 else f"signal {-code}" if code < 0 else f"exit {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started."""
    for final in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, final)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _environment(context: Context) -> dict[str, str]:
    ours = {"POSTROOM_AGENT": context.mailbox.name, "POSTROOM_STORE": context.room.settings.store}
    return without_host(environment()) | ours


# -- the watch

SLICE = 5.0  # seconds of one wait
LIMIT_SECONDS = 60.0  # for a program, unless --limit names another time
SPARE = 10.0  # seconds to end a program that takes longer, and to record the outcome
ENDED = "the watch ended"


@command(
    "watch",
    Option("--exec", help="run this with sh for each ring; else one line is printed", metavar="COMMAND"),
    Option(
        "--desktop",
        help="show a note on the desktop for each ring, by notify-send or, on macOS, osascript",
        kind="flag",
        against=("exec",),
    ),
    Option("--backlog", help="ring for mail that waits already, too", kind="flag"),
    Option("--once", help="end after one ring", kind="flag"),
    Option(
        "-t",
        "--timeout",
        help="end when nothing rang for this long; never by default",
        kind="seconds",
        metavar="SPAN",
    ),
    Option("--limit", help="how long the program may take; 60s by default", kind="seconds", metavar="SPAN"),
    Option(
        "--way",
        help="a name of your own, where several processes watch one mailbox independently; by default exec, desktop"
        " or watch",
        metavar="WORD",
    ),
    about="A ring is a hint; it moves no letter. Each unread letter rings once, after it is safe on disk. Letters"
    " that come together share a ring; rings are ring_cooldown apart and at most ring_hourly in an hour,"
    " whatever else rings for this mailbox. Urgent mail rings at once, and again until it is acknowledged;"
    " mail of low priority never rings. Mail that is unread when the first watch begins does not ring. Two"
    " processes that watch a mailbox in the same way do not ring twice. The program gets JSON on standard"
    " input (mailbox, unread, and letters, each with id, from, subject, priority, unproven: the words of others, never"
    " in its arguments), and POSTROOM_AGENT and POSTROOM_STORE, so that it may call postroom itself. If it"
    " ends with anything but 0, or takes too long, the ring is tried again after a pause, and given up after"
    " ring_tries; rings lists those. If the watch itself is killed in the middle of a ring, the next watch"
    " repeats it, once the time limit of the program has passed. The output of the program is passed"
    " through; with --json it goes to standard error. A desktop note shows the sender and the subject."
    " Ctrl-C or SIGTERM ends the watch.",
    examples=(
        ("postroom watch --as coder --backlog --once", "the next ring, as a line"),
        ("postroom watch --as coder --backlog --once --exec 'cat >>rings.jsonl'", "a program of your own"),
    ),
    json="mailbox unread letters failed",
)
def run_watch(context: Context) -> Iterator[Answer]:
    way, timeout = _way(context), context.get("timeout", FOR_EVER)
    if context.get("desktop"):
        desktop.program()  # a missing program is reported before anything begins
    context.try_out(lambda box: box.begin_alerts(way), NOTIFIER)
    context.check_no_agent(context.mailbox.name)
    box = context.room.acting_as(NOTIFIER).mailbox(context.me)  # a service may alert a person without a key
    if unread := box.begin_alerts(way, backlog=bool(context.get("backlog"))):
        note(context.call, f"{unread} unread already, which give no alert; with --backlog they do")
    has_alerted = False
    with Ending() as ending:
        try:
            while rung := _next(context, box, way, timeout, ending):
                has_alerted = True
                yield from _ring(context, box, way, rung, ending)
                if context.get("once"):
                    return
                ending.let_go()
        except KeyboardInterrupt:
            return
    if not has_alerted:
        unread = box.counts()["total"]
        nothing = {"mailbox": box.name, "unread": unread, "letters": [], "failed": None}
        yield context.shown(nothing, ring, code=NOTHING)


def _way(context: Context) -> str:
    usual = next((name for name in ("exec", "desktop") if context.get(name)), "watch")
    return str(context.get("way") or usual)


def _is_run(context: Context) -> bool:
    """Return whether an alert runs a program, rather than printing a line."""
    return bool(context.get("exec") or context.get("desktop"))


def _next(context: Context, box: Mailbox, way: str, timeout: float, ending: Ending) -> Rung | None:
    """Return the next alert. From when it is recorded until it is done, signals are held back."""
    end, within = time.monotonic() + timeout, context.get("limit", LIMIT_SECONDS) + SPARE
    while True:
        left = max(0.0, end - time.monotonic())
        rung = box.wait_for_alert(way, min(left, SLICE), may_alert=ending.hold, within=within)
        if rung is not None or left <= SLICE:
            return rung
        ending.let_go()


def _ring(context: Context, box: Mailbox, way: str, rung: Rung, ending: Ending) -> Iterator[Answer]:
    """Run the program or print the line, and record the outcome.

    A failed alert is tried again later, and so is one whose outcome was never recorded because this process was
    killed.
    """
    why: str | None = ENDED
    try:
        why = _run(context, rung, ending)
        if why is None and not _is_run(context):
            why = "it could not be printed"
            yield context.shown(alert_record(rung) | {"failed": None}, ring)
            why = None
    finally:
        if why is None:
            box.alert_done(way, rung.ids)
        else:
            box.alert_failed(way, rung.ids, why)
    if _is_run(context):
        code = NOT_NOW if why is not None and context.get("once") else OK
        yield context.shown(alert_record(rung) | {"failed": why}, ring, code=code)


def _run(context: Context, rung: Rung, ending: Ending) -> str | None:
    if not _is_run(context):
        return None
    ending.let_go()
    try:
        if context.get("desktop"):
            return desktop.show(desktop.program(), rung)
        return run_program(context, context.get("exec"), rung, context.get("limit", LIMIT_SECONDS))
    finally:
        ending.hold()


class Ending:
    """Signals that end a watch: at once, or as soon as `let_go` is called while it is held."""

    def __init__(self) -> None:
        self._is_asked = self._is_held = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def hold(self) -> bool:
        """Hold signals back from now on; return False if one came before."""
        self._is_held = True
        return not self._is_asked

    def let_go(self) -> None:
        self._is_held = False
        if self._is_asked:
            raise KeyboardInterrupt

    def _on_signal(self, *_: object) -> None:
        self._is_asked = True
        if not self._is_held:
            raise KeyboardInterrupt


# -- alerts that were given up


alerts_view = listing(
    "rings",
    {
        "ID": lambda screen, alert: screen.short(alert["letter"]["id"]),
        "MAILBOX": "mailbox",
        "WAY": "way",
        "FROM": "letter.from",
        "ABOUT": "letter.subject",
        "TRIES": "tries",
        "WHEN": "at",
        "WHY": "why",
    },
    "No rings were given up.",
    then=("rings retry", ""),
    drop=("TRIES", "FROM", "WHEN", "ABOUT"),
)

command(
    "rings",
    WHOLE,
    verb="alerts.DeadAlerts",
    view=alerts_view,
    shape=lambda _, found: {
        "rings": [plain(lost, times=True) | {"letter": letter_record(lost.letter)} for lost in found]
    },
    of_room=True,
    about="The letters themselves are safe in their mailbox. With --as or POSTROOM_AGENT, those of that agent;"
    " without, or with --all, those of the room.",
    examples=(("postroom rings", "list the failed alerts of the room"),),
    json="rings",
    looks=True,
)
command(
    "rings retry",
    Option("ID", name="ids", help="only for this letter, by its id", many=True, complete="letters"),
    Option("--way", help="only alerts of this way, such as exec", metavar="WORD"),
    WHOLE,
    verb="alerts.RetryAlerts",
    view=views.numbers,
    of_room=True,
    about="They get all their tries again. A running watch rings within seconds.",
    examples=(("postroom rings retry --as coder", "all of one mailbox"),),
    looks=True,
)

# -- webhooks

_ID = Option("ID", name="id", help="as postroom webhooks shows it", required=True, complete="webhooks")


def _with_secret(_context: Context, made: Webhook) -> dict[str, Any]:
    return {"webhook": made, "secret": made.secret}


@command(
    "webhooks add",
    Option("URL", help="https://, and where; nothing else may stand in it", required=True),
    Option("--for", name="mailbox", help="whose mail", required=True, metavar="MAILBOX", complete="agents"),
    Option(
        "--min-priority",
        help="mail of this priority or above; normal by default",
        kind="word",
        choices=("normal", "high", "urgent"),
    ),
    verb="webhooks.AddWebhook",
    shape=_with_secret,
    view=secret(
        "secret",
        "The secret of {webhook.id}, which is called for {webhook.mailbox}. It is not shown again.",
        "$ webhooks test {webhook.id}  # does anybody answer?",
        "$ serve  # calls it when mail waits",
    ),
    about="The daemon (postroom serve) calls it, by the rules of every ring: once for new mail, letters that come together in"
    " one call, never too often, urgent mail until somebody acknowledges it. A call holds the sender, the subject, the priority"
    " and the id of each letter, never its text, and is signed as Standard Webhooks are. Mail that waits when it is added causes"
    " no call. Into a file or a pipe, only the secret is printed. See [webhooks](operations.md#webhooks).",
    examples=(
        ("postroom webhooks add https://hooks.example.com/postroom --for human", "the secret is for the receiver"),
        (
            "postroom webhooks add http://127.0.0.1:8088/ring --for coder --min-priority high --allow-private",
            "a program on this machine",
        ),
    ),
    json="webhook secret",
)
def run_webhook_add(context: Context) -> Answer:
    webhook = context.perform(min_priority=Priority[context.get("min_priority", "normal").upper()])
    known = (*context.room.mailboxes(), context.settings.human)
    note_unknown(context.call, webhook.mailbox, () if webhook.mailbox in known else known)
    return context.answer_with(webhook)


command(
    "webhooks",
    LIMIT,
    verb="webhooks.ListWebhooks",
    view=listing(
        "webhooks",
        {
            "ID": "id",
            "FOR": "mailbox",
            "STATE": lambda _, webhook: "off" if webhook["off_at"] else "on",
            "AT LEAST": "min_priority",
            "PRIVATE": lambda _, webhook: "yes" if webhook["allow_private"] else "",
            "NOTE": "note",
            "URL": "url",
        },
        "No webhooks: nothing is called.",
        first="webhooks add URL --for NAME",
        paint={"on": "green", "off": "red"},
    ),
    examples=(("postroom webhooks", "list the webhooks"),),
    looks=True,
)


@command(
    "webhooks test",
    _ID,
    about="This command makes the call itself, without the service, and the call does not count as a ring. A webhook"
    " that was switched off because it answered 410 is switched on again when the call gets through.",
    examples=(('postroom webhooks test "$WEBHOOK_ID"', "does anybody answer?"),),
    view=says(
        "{webhook.id} answered {status} in {seconds:.3f} s.",
        "{webhook.id} was not rung: {problem}.",
    ),
    json="webhook rung status problem seconds",
    looks=True,
)
def run_webhook_test(context: Context) -> Answer:
    webhook = context.perform(webhooks.GetWebhook)
    began = time.perf_counter()
    outcome = asyncio.run(_tried(context.room, webhook))
    seconds = time.perf_counter() - began
    if outcome.is_rung and not webhook.is_on:
        webhook = context.perform(webhooks.SwitchWebhook)
    data = {
        "webhook": webhook,
        "rung": outcome.is_rung,
        "status": outcome.status,
        "problem": outcome.problem or None,
        "seconds": round(seconds, 3),
    }
    return context.shown(data, code=0 if outcome.is_rung else NOT_NOW)


async def _tried(room: Room, webhook: Webhook) -> Outcome:
    from ..hosts.webhooks import WebhookClient  # noqa: PLC0415 - only for a test call

    core, client = room.core, WebhookClient()
    try:
        body = webhook_call(webhook.mailbox, core.now().wall, type=TEST)
        return await client.call(webhook, core.ids.token(), body, lambda: core.now().wall)
    finally:
        client.close()


@command(
    "webhooks rotate",
    _ID,
    verb="webhooks.RotateWebhook",
    shape=_with_secret,
    view=secret(
        "secret",
        "The new secret of {webhook.id}. It is not shown again. The one before signs beside it for a day.",
    ),
    about="For a day each call is signed with both, so that the receiver can change to the new one in its own time. A secret"
    " that leaked ends at once when it is rotated twice. Into a file or a pipe, only the secret is printed.",
    examples=(('postroom webhooks rotate "$WEBHOOK_ID"', "the new one"),),
    json="webhook secret",
    looks=True,
)
@command(
    "webhooks remove",
    _ID,
    verb="webhooks.RemoveWebhook",
    shape=lambda _, gone: {"removed": gone.id},
    view=says("{removed} is called no more."),
    about="Its rings that were given up, or that wait for another try, are deleted. The mail itself is not touched.",
    examples=(('postroom webhooks remove "$WEBHOOK_ID"', "gone"),),
    json="removed",
    looks=True,
)
def run_change_webhook(context: Context) -> Answer:
    """Change a webhook; refuse it where an agent changes that of a person, who would then not be notified."""
    context.check_no_agent(context.perform(webhooks.GetWebhook).mailbox)
    return context.answer()
