"""The commands about webhooks: URLs that the server calls when mail waits."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..core import webhooks
from ..core.verb import perform
from ..formats.plain import plain
from ..model.message import Priority
from .answer import Answer
from .command import Option, command, declare
from .context import note, note_unknown
from .errors import NOT_NOW
from .options import LIMIT
from .output import hint, listing, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.webhooks import OneWebhook
    from ..hosts.webhooks import Outcome
    from ..model.webhook import Webhook
    from ..room import Room
    from .answer import Screen
    from .context import Context


ID = Option("ID", help="as postroom webhooks shows it", required=True, complete="webhooks", field="id")


def added(screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables:  # a file or a pipe: of the secret alone
        return f"{data['secret']}\n"
    webhook = data["webhook"]
    whose = f"The secret of {webhook['id']}, which is called for {one_line(webhook['mailbox'])}."
    next_one = hint(screen, f"webhooks test {webhook['id']}", "does anybody answer?")
    calls = hint(screen, "serve", "calls it when mail waits")
    return f"{data['secret']}\n\n{whose} It is not shown again.\n{next_one}{calls}"


def rotated(screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables:
        return f"{data['secret']}\n"
    text = "It is not shown again. The one before signs beside it for a day."
    return f"{data['secret']}\n\nThe new secret of {data['webhook']['id']}. {text}\n"


def _note(_screen: Screen, webhook: Mapping[str, Any]) -> str:
    words = ["private"] if webhook["allow_private"] else []
    return ", ".join([*words, *([webhook["note"]] if webhook["note"] else [])])


def tried(_screen: Screen, data: Mapping[str, Any]) -> str:
    webhook, seconds = data["webhook"]["id"], data["seconds"]
    if data["rung"]:
        return f"{webhook} answered {data['status']} in {seconds * 1000:.0f} ms.\n"
    return f"{webhook} was not rung: {one_line(data['problem'])}.\n"


# -- commands


@command(
    "webhooks add",
    Option("URL", help="https://, and where; nothing else may stand in it", required=True),
    Option("--for", help="whose mail", required=True, metavar="MAILBOX", complete="agents"),
    Option(
        "--min-priority",
        help="mail of this priority or above; normal by default",
        kind="word",
        choices=("normal", "high", "urgent"),
    ),
    Option(
        "--allow-private",
        help="let it be on this machine (there http:// will do) or in a private network",
        kind="flag",
    ),
    about="The daemon (postroom serve) calls it, by the rules of every ring: once for new mail, letters that come together in"
    " one call, never too often, urgent mail until somebody acknowledges it. A call says who wrote, the subject, the priority and"
    " the id, never what a letter says, and is signed as Standard Webhooks are. What waits already when it is added is not"
    " told of. Into a file or a pipe the secret goes alone. See [webhooks](operations.md#webhooks).",
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
    webhook = context.act_in_room(partial(_add, context))
    known = (*context.room.mailboxes(), context.settings.human)
    note_unknown(context.call, webhook.mailbox, () if webhook.mailbox in known else known)
    _note_beside_secret(
        context, f"{webhook.id} is called for {webhook.mailbox}; this is its secret, which is not shown again"
    )
    return Answer(context.name, {"webhook": plain(webhook), "secret": webhook.secret}, added)


def _add(context: Context, room: Room) -> Webhook:
    request = webhooks.AddWebhook(
        url=context.get("url"),
        mailbox=context.get("for"),
        min_priority=Priority[context.get("min_priority", "normal").upper()],
        allow_private=bool(context.get("allow_private")),
    )
    return perform(room.core, room.principal, request).webhook


def _with_secret(_context: Context, made: OneWebhook) -> dict[str, Any]:
    return {"webhook": plain(made.webhook), "secret": made.webhook.secret}


def _note_beside_secret(context: Context, text: str) -> None:
    """Print a note where the secret alone goes into a file or a pipe."""
    if not context.screen.tables:
        note(context.call, text)


declare(
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
            "NOTE": _note,
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
    ID,
    about="This program calls, without a daemon, and counts as no ring. One that was switched off, because it answered 410, is on"
    " again when this gets through.",
    examples=(('postroom webhooks test "$WEBHOOK_ID"', "does anybody answer?"),),
    json="webhook rung status problem seconds",
    looks=True,
)
def run_webhook_test(context: Context) -> Answer:
    core, caller = context.room.core, context.room.principal
    webhook = perform(core, caller, webhooks.GetWebhook(id=context.get("id"))).webhook
    began = perf_counter()
    outcome = asyncio.run(_tried(context.room, webhook))
    seconds = perf_counter() - began
    if outcome.is_rung and not webhook.is_on:
        webhook = perform(core, caller, webhooks.SwitchOn(id=webhook.id)).webhook
    data = {
        "webhook": plain(webhook),
        "rung": outcome.is_rung,
        "status": outcome.status,
        "problem": outcome.problem or None,
        "seconds": round(seconds, 3),
    }
    return Answer(context.name, data, tried, code=0 if outcome.is_rung else NOT_NOW)


async def _tried(room: Room, webhook: Webhook) -> Outcome:
    from ..hosts import webhooks  # noqa: PLC0415 - only for a test call
    from ..hosts.webhooks import WebhookClient  # noqa: PLC0415

    core, client = room.core, WebhookClient()
    try:
        body = webhooks.trial(webhook.mailbox, core.now().wall)
        return await client.call(webhook, core.ids.token(), body, lambda: core.now().wall)
    finally:
        client.close()


@command(
    "webhooks rotate",
    ID,
    verb="webhooks.RotateWebhook",
    places=("id",),
    shape=_with_secret,
    about="For a day each call is signed with both, so that the receiver can change to the new one in its own time. A secret"
    " that leaked ends at once when it is rotated twice. Into a file or a pipe the secret goes alone.",
    examples=(('postroom webhooks rotate "$WEBHOOK_ID"', "the new one"),),
    json="webhook secret",
    looks=True,
)
def run_webhook_rotate(context: Context) -> Answer:
    answer = context.answer(rotated)
    _note_beside_secret(context, f"the new secret of {answer.data['webhook']['id']}; it is not shown again")
    return answer


declare(
    "webhooks remove",
    ID,
    verb="webhooks.RemoveWebhook",
    places=("id",),
    shape=lambda _, gone: {"removed": gone.webhook.id},
    view=lambda _screen, data: f"{data['removed']} is called no more.\n",
    about="Rings of it that were given up, or wait to be tried again, are forgotten. The mail itself is not touched.",
    examples=(('postroom webhooks remove "$WEBHOOK_ID"', "gone"),),
    json="removed",
    looks=True,
)
