"""The commands about dead letters: see why, bring back, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UnknownMessage
from ..model.delivery import State
from ..wire.plain import plain_letter, plain_move
from . import views
from .answers import Answer

if TYPE_CHECKING:
    from .context import Context


def run_dead(context: Context) -> Answer:
    found = context.mailbox.dead(context.get("limit"))
    data = {"letters": [plain_letter(letter) for letter in found]}
    return Answer(context.name, data, views.letters, letters=tuple(letter.message for letter in found))


def run_dead_show(context: Context) -> Answer:
    letter = context.mailbox.read(context.get("id"))
    if letter.state is not State.DEAD:
        raise UnknownMessage(f"{letter.id} is {letter.state}, not dead", field="id")
    return Answer(context.name, {"letter": plain_letter(letter)}, views.dead_letter, letters=(letter.message,))


def run_dead_revive(context: Context) -> Answer:
    revived = context.mailbox.revive(*context.get("id"))
    return Answer(context.name, {"letters": [plain_move(letter) for letter in revived]}, views.moved)


def run_dead_purge(context: Context) -> Answer:
    return Answer(context.name, {"purged": context.mailbox.purge(*context.get("id"))}, views.numbers)
