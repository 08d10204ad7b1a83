"""The live view: one look after the other, on a screen of its own, or as JSON lines."""

from __future__ import annotations

import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..errors import Invalid
from ..model.codec import to_plain
from . import care_views as views
from .answers import Answer, sayable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from ..model.stats import AgentFlow, Flow
    from .context import Context

FASTEST, SLOWEST = 0.1, 3600.0  # seconds between two looks

_ORDER: dict[str, Callable[[AgentFlow], float]] = {
    "backlog": lambda agent: agent.backlog,
    "oldest": lambda agent: max(agent.oldest_unread or 0.0, agent.oldest_seen or 0.0, agent.oldest_claimed or 0.0),
    "slow": lambda agent: max(agent.median_to_done or 0.0, agent.oldest_claimed or 0.0),
}


def watch(context: Context) -> Iterator[Answer]:
    """Look, and look again."""
    pause = _pause(context)
    room = context.room
    live = not context.get("once") and not context.screen.json and sys.stdout.isatty()
    look = room.flow()
    if live:
        from .live import LiveScreen  # noqa: PLC0415 - for terminals alone

        with LiveScreen() as screen:
            while True:
                screen.draw(partial(_frame, context, look, pause))
                if not screen.sleep(pause):
                    return
                look = room.flow(look)
    yield _answer(context, look)
    while context.screen.json and not context.get("once"):
        time.sleep(pause)
        look = room.flow(look)
        yield _answer(context, look)


def _pause(context: Context) -> float:
    pause: float = context.get("every", 1.0)
    if not FASTEST <= pause <= SLOWEST or not math.isfinite(pause):
        hint = f"between {FASTEST:g} and {SLOWEST:g} seconds"
        raise Invalid(f"{pause:g} seconds is out of range", field="--every", hint=hint)
    return pause


def _answer(context: Context, look: Flow) -> Answer:
    return Answer(context.name, _plain(look, context.get("sort", "backlog")), views.flow)


def _plain(look: Flow, order: str) -> dict[str, Any]:
    agents = sorted(look.agents, key=lambda agent: (-_ORDER[order](agent), agent.mailbox))
    told = ("seconds", "sent", "settled", "died", "backlog", "median_to_done")
    return {
        "at": to_plain(look.at),
        **{name: getattr(look, name) for name in told},
        "sent_per_second": look.sent_per_second,
        "settled_per_second": look.settled_per_second,
        "agents": [to_plain(asdict(agent)) for agent in agents],
    }


def _frame(context: Context, look: Flow, pause: float, size: os.terminal_size) -> list[str]:
    """The lines of one picture; no more than fit."""
    screen = context.screen
    screen.width, screen.now = size.columns, look.at
    title = views.title(screen, sayable(context.room.settings.store), pause)
    return [title, *views.flow(screen, _plain(look, context.get("sort", "backlog"))).splitlines()][: size.lines]
