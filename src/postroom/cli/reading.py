"""The commands that look at mail. Reading stamps, and never takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import UnknownMessage
from ..model.message import same_name
from ..wire.plain import plain_letter, plain_message
from . import saving, views
from .answers import Answer
from .exits import NOTHING
from .tables import again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..letter import Letter
    from .context import Context

_WANTED = {"kinds": "kind", "sender": "from"}
_SAME = ("min_priority", "thread", "thread_tag", "tag", "scope")
FOR_EVER = 1e9  # seconds


def filters_of(context: Context) -> dict[str, Any]:
    """Which letters are wanted, under the library's names."""
    return context.given(*_SAME, **_WANTED) | context.given("since")


def run_check(context: Context) -> Answer:
    found = context.mailbox.check(
        context.get("limit", 20),
        unread_only=not context.get("all"),
        peek=bool(context.get("peek")),
        **filters_of(context),
    )
    if not found:
        context.note_if_unknown()
    data = {"mailbox": context.me, "letters": [plain_letter(letter) for letter in found]}
    view = partial(views.inbox, states=bool(context.get("all")))
    return Answer(context.name, data, view, letters=tuple(letter.message for letter in found))


def run_read(context: Context) -> Answer:
    if context.get("markdown"):
        context.screen.tables = False
    id, box = context.get("id"), context.mailbox
    folder = None if context.get("save") is None else saving.folder_for(context)
    try:
        letter = box.read(id)
    except UnknownMessage as missing:
        if any(message.id == id and same_name(message.sender, box.name) for message in box.thread(id)):
            said = f"{id}{again(context.screen, '')}"
            missing.hint = f"you sent it: postroom thread {said}, or postroom trace {said}"
        raise
    saved = None if folder is None else saving.save(context, letter.message, folder)
    data = {"letter": plain_letter(letter), "saved": saved}
    return Answer(context.name, data, views.read, letters=(letter.message,))


def run_wait(context: Context) -> Answer | Iterator[Answer]:
    names, wanted = _awaited(context)
    context.try_out(lambda box: box.room.wait(names, 0, **wanted))
    if context.get("follow"):
        return _follow(context)
    found = _wait(context, context.get("timeout", 30.0), context.get("cursor"))
    return _waited(context, found)


def _follow(context: Context) -> Iterator[Answer]:
    """Letter after letter: first the unread mail, then by the cursor of the last one, so that what somebody else
    reads meanwhile is seen too.
    """
    cursor: Any = context.get("cursor")
    something = False
    if cursor is None:
        cursor = (
            context.room.cursor()
        )  # before the look: what comes meanwhile may be shown twice, never not at all
        seen = set()
        while (found := _wait(context, 0.0, None)) and found.id not in seen:
            seen.add(found.id)  # whoever only peeks would get the same letter for ever
            something = True
            yield _waited(context, found)
    while found := _wait(context, context.get("timeout", FOR_EVER), cursor):
        cursor = found.cursor
        something = True
        yield _waited(context, found)
    if not something:
        yield _waited(context, None)


def _awaited(context: Context) -> tuple[list[str], dict[str, Any]]:
    """At which mailboxes, for which letters."""
    return [context.me, *context.get("at_mailbox", ())], context.given(*_SAME, **_WANTED)


def _wait(context: Context, timeout: float, since: Any) -> Letter | None:
    names, wanted = _awaited(context)
    return context.room.wait(names, timeout, since=since, peek=bool(context.get("peek")), **wanted)


def _waited(context: Context, found: Letter | None) -> Answer:
    if found is None:
        nothing = {"letter": None, "cursor": str(context.get("cursor") or context.room.cursor())}
        return Answer(context.name, nothing, views.letter, code=NOTHING)
    data = {"letter": plain_letter(found), "cursor": str(found.cursor)}
    return Answer(context.name, data, views.letter, letters=(found.message,))


def run_counts(context: Context) -> Answer:
    counted = context.mailbox.counts()
    if not counted["total"]:
        context.note_if_unknown()
    return Answer(context.name, {"mailbox": context.me, **counted}, views.counts)


def run_sent(context: Context) -> Answer:
    found = context.mailbox.sent(context.get("limit", 20))
    if not found:
        context.note_if_unknown()
    data = {"mailbox": context.me, "letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, views.outbox, letters=tuple(found))


def run_digest(context: Context) -> Answer:
    text = context.mailbox.digest(**context.given("budget", "most", "longest"))
    if not context.mailbox.counts()["total"]:
        context.note_if_unknown()
    return Answer(context.name, {"mailbox": context.me, "text": text}, views.digest)
