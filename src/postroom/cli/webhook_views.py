"""How webhooks are shown to people: a list, a secret once, what came of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .escape import one_line
from .tables import hint, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen

_PAINT = {"on": "green", "off": "red"}


def added(screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables:  # a file or a pipe: of the secret alone
        return f"{data['secret']}\n"
    webhook = data["webhook"]
    whose = f"The secret of {webhook['id']}, which is called for {one_line(webhook['mailbox'])}."
    next_one = hint(screen, f"webhook test {webhook['id']}", "does anybody answer?")
    calls = hint(screen, "serve", "calls it when mail waits")
    return f"{data['secret']}\n\n{whose} It is not shown again.\n{next_one}{calls}"


def rotated(screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables:
        return f"{data['secret']}\n"
    told = "It is not shown again. The one before signs beside it for a day."
    return f"{data['secret']}\n\nThe new secret of {data['webhook']['id']}. {told}\n"


def listed(screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["webhooks"]:
        return "No webhooks: nothing is called.\n" + hint(screen, "webhook add URL --for NAME")
    rows = [
        (w["id"], w["mailbox"], "off" if w["off_at"] else "on", w["min_priority"], _note(w), w["url"])
        for w in data["webhooks"]
    ]
    return table(screen, ("ID", "FOR", "STATE", "AT LEAST", "NOTE", "URL"), rows, _PAINT)


def _note(webhook: Mapping[str, Any]) -> str:
    words = ["private"] if webhook["allow_private"] else []
    return ", ".join([*words, *([webhook["note"]] if webhook["note"] else [])])


def tried(_screen: Screen, data: Mapping[str, Any]) -> str:
    webhook, seconds = data["webhook"]["id"], data["seconds"]
    if data["rung"]:
        return f"{webhook} answered {data['status']} in {seconds * 1000:.0f} ms.\n"
    return f"{webhook} was not rung: {one_line(data['problem'])}.\n"


def removed(_screen: Screen, data: Mapping[str, Any]) -> str:
    return f"{data['removed']} is called no more.\n"
