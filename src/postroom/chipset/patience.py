"""How long is waited for what, and which values a user may choose. Knows numbers alone.

`Patience(...)` takes any values; `chosen` is for what users set, and keeps them within the design's ranges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid
from ..model.names import check_agent, fold

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES = {  # seconds
    "stall_after": (60.0, 1800.0),
    "nudge_every": (30.0, 600.0),
    "answer_within": (1.0, 600.0),
}


class Patience(Struct, frozen=True, kw_only=True):
    stall_after: float = 300.0  # seconds without activity until an agent counts as stalled
    nudge_every: float = 120.0  # seconds between two nudges
    answer_within: float = 60.0  # seconds for an answer
    answers: dict[str, float] = {}  # the same, for agents that need longer or shorter
    most_restarts: int = 3  # of one item; then a human is told
    pause: float = 60.0  # seconds between two starts of one item

    def for_answer(self, agent: str) -> float:
        return self.answers.get(fold(agent), self.answer_within)


def chosen(
    *,
    stall_after: float = 300.0,
    nudge_every: float = 120.0,
    answer_within: float = 60.0,
    answers: Mapping[str, float] | None = None,
) -> Patience:
    """What a user chose, or Invalid."""
    return Patience(
        stall_after=_within(stall_after, "stall_after"),
        nudge_every=_within(nudge_every, "nudge_every"),
        answer_within=_within(answer_within, "answer_within"),
        answers={
            fold(check_agent(agent, "answers")): _within(span, "answer_within", agent)
            for agent, span in (answers or {}).items()
        },
    )


def _within(seconds: float, name: str, agent: str = "") -> float:
    least, most = RANGES[name]
    if not math.isfinite(seconds) or not least <= seconds <= most:
        whose = f" for {agent}" if agent else ""
        raise Invalid(f"{seconds:g} seconds{whose} is out of range", field=name, hint=f"{least:g} to {most:g}")
    return float(seconds)
