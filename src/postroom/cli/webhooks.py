"""The commands about webhooks: whom to call when mail waits."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import service
from ..model.codec import to_plain
from ..model.message import Priority
from ..model.webhook import shown
from . import webhook_views as views
from .answers import Answer
from .exits import NOT_NOW
from .notes import note, note_unknown

if TYPE_CHECKING:
    from ..model.webhook import Webhook
    from ..push.answers import Outcome
    from ..room import Room
    from .context import Context


def run_webhook_add(context: Context) -> Answer:
    secret, webhook = context.act_in_room(partial(_add, context))
    known = (*context.room.mailboxes(), context.settings.human)
    note_unknown(context.call, webhook.mailbox, () if webhook.mailbox in known else known)
    _say_beside(
        context, f"{webhook.id} is called for {webhook.mailbox}; this is its secret, which is not shown again"
    )
    return Answer(context.name, {"webhook": _plain(webhook), "secret": secret}, views.added)


def _add(context: Context, room: Room) -> tuple[str, Webhook]:
    return service.webhooks.add(
        room._office,
        room.principal,
        context.get("url"),
        context.get("for"),
        min_priority=Priority[context.get("min_priority", "normal").upper()],
        allow_private=bool(context.get("allow_private")),
    )


def _say_beside(context: Context, text: str) -> None:
    """Where the secret goes into a file or a pipe, alone."""
    if not context.screen.tables:
        note(context.call, text)


def run_webhook_list(context: Context) -> Answer:
    found = service.webhooks.everyone(context.room._office, context.room.principal)
    return Answer(context.name, {"webhooks": [_plain(one) for one in found]}, views.listed)


def run_webhook_test(context: Context) -> Answer:
    office, caller = context.room._office, context.room.principal
    webhook = service.webhooks.webhook(office, caller, context.get("id"))
    began = perf_counter()
    outcome = asyncio.run(_tried(context.room, webhook))
    seconds = perf_counter() - began
    if outcome.is_rung and not webhook.is_on:
        webhook = service.webhooks.switch_on(office, caller, webhook.id)
    data = {
        "webhook": _plain(webhook),
        "rung": outcome.is_rung,
        "status": outcome.status,
        "problem": outcome.problem or None,
        "seconds": round(seconds, 3),
    }
    return Answer(context.name, data, views.tried, code=0 if outcome.is_rung else NOT_NOW)


async def _tried(room: Room, webhook: Webhook) -> Outcome:
    from ..push import notice  # noqa: PLC0415 - only who calls needs what calls
    from ..push.calling import Telephone  # noqa: PLC0415

    office, telephone = room._office, Telephone()
    try:
        body = notice.trial(webhook.mailbox, office.now().wall)
        return await telephone.call(webhook, office.ids.token(), body, lambda: office.now().wall)
    finally:
        telephone.close()


def run_webhook_rotate(context: Context) -> Answer:
    room = context.room
    secret, webhook = service.webhooks.rotate(room._office, room.principal, context.get("id"))
    _say_beside(context, f"the new secret of {webhook.id}; it is not shown again")
    return Answer(context.name, {"webhook": _plain(webhook), "secret": secret}, views.rotated)


def run_webhook_remove(context: Context) -> Answer:
    gone = service.webhooks.remove(context.room._office, context.room.principal, context.get("id"))
    return Answer(context.name, {"removed": gone.id}, views.removed)


def _plain(webhook: Webhook) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(shown(webhook))
    return plain
