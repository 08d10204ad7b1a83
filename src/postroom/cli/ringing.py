"""The commands that tell somebody of mail: watch, and look after rings that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.codec import to_plain
from . import ring_views, views
from .answers import Answer
from .health import is_operator
from .ring_program import plain_letter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .context import Context


def run_watch(context: Context) -> Iterator[Answer]:
    from .watch import watch  # noqa: PLC0415 - loaded when it is called

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
    return Answer(context.name, {"rings": rings}, ring_views.rings)


def run_rings_retry(context: Context) -> Answer:
    whose = context.room if is_operator(context) else context.mailbox
    retried = whose.retry_rings(way=context.get("way"), ids=context.get("id") or None)
    return Answer(context.name, {"retried": retried}, views.numbers)
