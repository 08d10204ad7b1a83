"""The commands that work on mail under a lease. Claim here, ack in another process: the token is the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import LeaseLost
from ..whereabouts import variable
from ..wire.plain import plain_move, plain_receipt, plain_work
from . import views
from .answers import Answer
from .exits import NOTHING, Usage
from .reading import filters_of
from .text import STDIN, read_stdin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..letter import Letter
    from ..mailbox import Mailbox
    from ..service.sending import Receipt
    from .context import Context

HOLDERS_ALONE = "give the --token that claim showed, or wait until its lease ends"


def run_claim(context: Context) -> Answer:
    lease, count = context.get("lease", context.settings.lease), context.get("count", 1)
    said = context.given("holder") | filters_of(context)
    context.try_out(lambda box: box.claim(count, lease=lease, **said))
    claimed = context.mailbox.claim(count, lease=lease, timeout=context.get("timeout", 0), **said)
    data = {"letters": [plain_work(work, lease) for work in claimed]}
    letters = tuple(work.message for work in claimed)
    return Answer(context.name, data, views.work, letters=letters, code=0 if claimed else NOTHING)


def run_ack(context: Context) -> Answer:
    archive = not context.get("keep")
    if "reply" in context.values or "drafts" in context.values:
        return _ack_and_send(context, archive=archive)
    return _settle(context, lambda box, letters: box.ack(letters, archive=archive), bare=True)


def run_fail(context: Context) -> Answer:
    reason, retry = context.get("reason"), not context.get("no_retry")
    return _settle(context, lambda box, letters: box.fail(letters, reason, retry=retry))


def run_reject(context: Context) -> Answer:
    reason = context.get("reason")
    return _settle(context, lambda box, letters: box.reject(letters, reason), bare=True)


def run_release(context: Context) -> Answer:
    return _settle(context, lambda box, letters: box.release(letters))


def run_renew(context: Context) -> Answer:
    return _settle(context, lambda box, letters: box.renew(letters, context.get("lease")))


def run_work(context: Context) -> Iterator[Answer]:
    from .worker import work  # noqa: PLC0415 - it starts programs

    return work(context)


def _settle(context: Context, step: Callable[[Mailbox, Sequence[Letter]], None], *, bare: bool = False) -> Answer:
    """All letters that are named, in one commit: all or none. Those of one claim share a token; what nobody
    holds needs none (`bare`).
    """
    ids, token, box = list(dict.fromkeys(context.get("id"))), _token(context), context.mailbox
    if not token and not bare:
        raise Usage("is missing", field="--token", hint=HOLDERS_ALONE)
    letters = [box.held(id, token) if token else box.read(id) for id in ids]
    try:
        step(box, letters)
    except LeaseLost as held:
        held.hint = held.hint if token else HOLDERS_ALONE
        raise
    return _moved(context, letters, ())


def _ack_and_send(context: Context, *, archive: bool) -> Answer:
    """Done, and letters sent, in one commit."""
    ids, token = context.get("id"), _token(context)
    if len(ids) != 1:
        raise Usage("is sent with the ack of one letter", field="--reply")
    if {"reply", "drafts"} <= context.values.keys():
        raise Usage("is either a reply or drafts", field="--reply")
    if not token:
        raise Usage("is missing", field="--token", hint="an ack with an answer needs a letter that was claimed")
    if "drafts" in context.values:
        from .sending import drafts_of  # noqa: PLC0415 - rare

        drafts = drafts_of(context)
        held = context.mailbox.held(ids[0], token)
        return _moved(context, [held], held.ack_and_send(drafts, archive=archive))
    text = read_stdin(context, "reply") if context.get("reply") == STDIN else context.get("reply")
    held = context.mailbox.held(ids[0], token)
    receipt = held.ack_and_reply(text, to_all=bool(context.get("to_all")), archive=archive)
    return _moved(context, [held], [receipt])


def _token(context: Context) -> str:
    token: str = context.get("token") or variable("POSTROOM_TOKEN")
    return token


def _moved(context: Context, letters: Sequence[Letter], sent: Any) -> Answer:
    receipts: list[Receipt] = list(sent)
    data = {"letters": [plain_move(letter) for letter in letters]}
    told = data | ({"receipts": [plain_receipt(receipt) for receipt in receipts]} if context.name == "ack" else {})
    return Answer(context.name, told, views.moved)
