"""The commands for the chipset's state folder: its witness."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..chipset import STATE, Chipset, Witness
from ..chipset.patience import chosen
from ..errors import Invalid
from ..model.codec import to_plain
from .answers import Answer, sayable
from .convert import seconds
from .escape import one_line
from .exits import NoInput
from .table.chipset import ANSWER_OF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..chipset import Patience, Round
    from .answers import Screen
    from .context import Context

FASTEST, SLOWEST = 0.1, 600.0  # seconds between two looks
_LAYOUT = "?layout=chipset"
_TOLD = {
    "nudged": "Nudged {}.",
    "escalated": "Told the mayor of {}, who does not answer.",
    "human": "Told a human of {}, which was started too often.",
    "damaged": "Cannot be read: {}",
    "failed": "Not looked after this time: {}",
}


def run_witness(context: Context) -> Iterator[Answer]:
    """Looks until it is stopped; answers at first, and whenever something happened."""
    pause, patience = _pause(context), _patience(context)
    context.default_me("witness")
    with _chipset(context) as chipset:
        names = context.given("mayor", "human")
        witness = Witness(chipset, name=context.me, patience=patience, **names)
        seen = witness.look()
        yield _answer(context, chipset, seen)
        while not context.get("once"):
            time.sleep(pause)
            last, seen = seen, witness.look()
            if seen.has_news_after(last):
                yield _answer(context, chipset, seen)


def _chipset(context: Context) -> Chipset:
    """The state folder, and where its letters go."""
    context.check_named_room()
    store = context.settings.store
    folder = store.removeprefix("files:").removesuffix(_LAYOUT) if store.endswith(_LAYOUT) else STATE
    state = os.path.expanduser(context.get("state", folder))  # noqa: PTH111 - text as it was typed
    if "state" in context.values and not os.path.isdir(state):  # noqa: PTH112
        raise NoInput(f"there is no folder {sayable(state)}", field="--state")
    elsewhere = "room" in context.values and ("state" in context.values or not store.endswith(_LAYOUT))
    durable = context.settings.durability == "power"
    return Chipset(state, room=context.room if elsewhere else None, durable=durable)


def _pause(context: Context) -> float:
    pause: float = context.get("every", 5.0)
    if not FASTEST <= pause <= SLOWEST or not math.isfinite(pause):
        hint = f"between {FASTEST:g} and {SLOWEST:g} seconds"
        raise Invalid(f"{pause:g} seconds is out of range", field="--every", hint=hint)
    return pause


def _patience(context: Context) -> Patience:
    answers = {name: seconds(span, ANSWER_OF) for name, span in context.get("answer_of", ())}
    try:
        return chosen(**context.given("stall_after", "nudge_every", "answer_within"), answers=answers)
    except Invalid as wrong:
        option = "--answer-of" if wrong.field == "answers" else f"--{(wrong.field or '').replace('_', '-')}"
        raise Invalid(wrong.message, field=option, hint=wrong.hint) from None


def _answer(context: Context, chipset: Chipset, seen: Round) -> Answer:
    at = to_plain(chipset.clock.now().wall)
    told = {name: [sayable(one) for one in found] for name, found in asdict(seen).items()}
    return Answer(context.name, {"at": at, **told}, _view)


def _view(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [f"{len(data['watched'])} at work, {len(data['stalled'])} stalled."]
    lines += [words.format(one_line(one)) for name, words in _TOLD.items() for one in data[name]]
    return "\n".join(lines) + "\n"
