"""The commands about questions that wait for somebody: escalate one, see what is open, see what waits for you."""

from __future__ import annotations

import sys
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from .. import service
from ..model.codec import to_plain
from ..model.escalation import ESCALATION
from ..model.message import same_name
from ..model.names import HUMAN
from ..policy.ladder import rungs_above
from ..whereabouts import variable
from ..wire.plain import plain_escalation, plain_receipt
from . import asking_views as views
from .answers import Answer
from .sending import content_of, fields_of
from .tables import again
from .waiting import questions_first, waiting_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.message import Message
    from .context import Context
    from .waiting import Entry


def run_escalate(context: Context) -> Answer:
    body, fields = content_of(context), fields_of(context)
    asked = context.given("reason", "ladder")
    receipt = context.act(lambda box: box.escalate(body, **asked, **fields))
    id = _id_in(receipt.message)
    data = plain_receipt(receipt) | {"escalation_id": id, "next": _next(context, id)}
    return Answer(context.name, data, partial(views.escalated, _passed_over(context, receipt.message)))


def _next(context: Context, id: str) -> dict[str, Any] | None:
    """Who is asked when nobody answers, and when."""
    one = next((one for one in context.mailbox.escalations() if one.id == id), None)
    if one is None or one.due_at is None:
        return None
    office = context.room._office  # noqa: SLF001 - the rule of the house, which no verb tells
    place = service.climbing.next_rung(office, one)
    return None if place is None else {"name": one.rungs[place], "at": to_plain(one.due_at)}


def _passed_over(context: Context, letter: Message) -> list[str]:
    """Who stands below the one that was asked, and was not asked."""
    office = context.room._office  # noqa: SLF001 - likewise
    rungs = rungs_above(service.escalating.check_ladder(office, context.get("ladder")), context.mailbox.name)
    asked = letter.recipients[0].address
    return list(takewhile(lambda name: not same_name(name, asked), rungs)) if asked in rungs else []


def _id_in(letter: Message) -> str:
    """Its letter tells the escalation's id."""
    told = [part["data"] for part in letter.parts if part.type == "data" and part.get("schema") == ESCALATION]
    return str(told[-1]["escalation_id"])


def run_escalations(context: Context) -> Answer:
    whose = context.room if context.get("everyone") else context.mailbox
    found = whose.escalations(open_only=not context.get("all"))
    return Answer(context.name, {"escalations": [plain_escalation(one) for one in found]}, views.escalations)


def run_resolve(context: Context) -> Answer:
    return Answer(
        context.name,
        {"escalation": plain_escalation(context.mailbox.resolve(context.get("id")))},
        views.escalation,
    )


def run_waiting(context: Context) -> Answer:
    context.default_me(HUMAN)  # who asks, when nobody is named
    return _waiting(context, waiting_for(context.mailbox))


def run_inbox(context: Context) -> Answer | Iterator[Answer]:
    context.default_me(HUMAN)
    if _has_a_person(context):
        from .inbox.sitting import sit  # noqa: PLC0415 - for terminals alone

        return sit(context)
    return _waiting(context, questions_first(waiting_for(context.mailbox, opened=True)))


def _has_a_person(context: Context) -> bool:
    """Is there somebody to look and to type, at a terminal that can be drawn on?"""
    ends = (sys.stdin, sys.stdout)
    can_draw = variable("TERM") not in {"", "dumb"} and not context.screen.json
    return can_draw and all(end is not None and end.isatty() for end in ends)


def _waiting(context: Context, found: list[Entry]) -> Answer:
    shown = found[: context.get("limit", 20)]
    for entry in shown:
        entry["answer"] += again(context.screen, entry["answer"])
    data = {"mailbox": context.mailbox.name, "waiting": shown, "more": len(found) - len(shown)}
    return Answer(context.name, data, views.waiting)
