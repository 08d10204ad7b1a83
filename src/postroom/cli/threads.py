"""The commands about threads and conversations. Each shows what the caller may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.codec import to_plain
from ..wire.plain import plain_message
from . import views
from .answers import Answer
from .exits import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from .context import Context


def run_thread(context: Context) -> Answer:
    id, everyone = context.get("id"), context.get("everyone")
    if context.get("chain"):
        if everyone:
            raise Usage("shows your own view", field="--chain")
        return _letters(context, context.mailbox.reply_chain(id))
    return _letters(context, context.room.thread(id) if everyone else context.mailbox.thread(id))


def run_tagged(context: Context) -> Answer:
    return _letters(context, context.mailbox.tagged(context.get("tag"), context.get("scope")))


def run_threads(context: Context) -> Answer:
    found = (context.room if context.get("everyone") else context.mailbox).threads(context.get("limit", 50))
    return Answer(context.name, {"threads": to_plain(found)}, views.threads)


def run_conversations(context: Context) -> Answer:
    whose = context.room if context.get("everyone") else context.mailbox
    found = whose.conversations(scope=context.get("scope"), limit=context.get("limit", 50))
    return Answer(context.name, {"conversations": to_plain(found)}, views.conversations)


def run_conversation(context: Context) -> Answer:
    found = context.mailbox.conversation(context.get("id"))
    return Answer(context.name, {"conversation": to_plain(found)}, views.conversation)


def run_turns(context: Context) -> Answer:
    found = (context.room if context.get("everyone") else context.mailbox).turns(context.get("id"))
    return Answer(context.name, {"turns": to_plain(found)}, views.turns)


def _letters(context: Context, found: Sequence[Message]) -> Answer:
    data = {"letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, views.thread, letters=tuple(found))
