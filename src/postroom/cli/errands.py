"""The commands for special occasions: take a letter back, refuse somebody's mail, give an agent another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..wire.plain import plain_message
from .answers import Answer
from .escape import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen
    from .context import Context


def run_unsend(context: Context) -> Answer:
    back = [context.mailbox.unsend(id) for id in dict.fromkeys(context.get("id"))]
    return Answer(context.name, {"letters": [plain_message(message) for message in back]}, _taken_back)


def run_block(context: Context) -> Answer:
    if "name" not in context.values:
        context.looks = True
        return Answer(context.name, {"blocked": context.mailbox.blocked()}, _blocked)
    return Answer(context.name, {"blocked": context.act(lambda box: box.block(context.get("name")))}, _blocked)


def run_unblock(context: Context) -> Answer:
    return Answer(context.name, {"blocked": context.mailbox.unblock(context.get("name"))}, _blocked)


def run_rename(context: Context) -> Answer:
    old, new = context.get("old"), context.get("new")
    context.room.rename(old, new)
    told = f"{one_line(old)} is called {one_line(new)} now.\n"
    return Answer(context.name, {"old": old, "new": new}, lambda _screen, _data: told)


def _taken_back(_screen: Screen, data: Mapping[str, Any]) -> str:
    return "".join(f"Took back {letter['id']}.\n" for letter in data["letters"])


def _blocked(_screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["blocked"]:
        return "Nobody is blocked.\n"
    return f"Blocked: {', '.join(map(one_line, data['blocked']))}.\n"
