"""The loop guard: how often a letter may be relayed, and never to an agent it already went through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import HopsSpent, LoopDetected
from ..model.message import same_name
from ..model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.message import Message


def relay(letter: Message, relayer: str, targets: Iterable[str], most: int) -> tuple[int, tuple[str, ...]]:
    """Hops and trace of `letter` when `relayer` passes it on to `targets`, or a refusal. A stranger may have
    written it: whatever it says, there are at most as many hops as here, and its writer is in its trace.
    """
    hops = min(letter.hops, most)
    if hops <= 1:
        chain = " → ".join(letter.trace)
        raise HopsSpent(f"the letter was relayed as often as it may be ({chain})", field="hops")
    trace = letter.trace
    for agent in (letter.sender, relayer):
        trace = trace if agent in trace else (*trace, agent)
    for target in targets:
        if any(same_name(target, agent) for agent in trace):
            chain = " → ".join(trace)
            raise LoopDetected(f"the letter already went through {target!r} ({chain})", field="to")
    return hops - 1, trace


def without_letter(letter: Message, targets: Iterable[str]) -> list[str]:
    """Those of `targets` who do not have the letter yet. To answer the others is no relay."""
    holders = {fold(letter.sender), *(fold(recipient.address) for recipient in letter.recipients)}
    return [target for target in targets if fold(target) not in holders]
