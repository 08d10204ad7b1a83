"""Where somebody is of whom only the name is known (`name@*`): peers are asked, or it is left to a system above.

One letter goes to one system: the first that says yes. While some peer cannot be asked, nobody is said to be
nowhere for a while.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..lines.line import LineLost, MapRefusal
from ..model.names import fold
from ..wire.map_names import FIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..policy.trust import Strategy
    from .link import Link

SETTLED = 30.0  # seconds after which those who cannot be asked are not waited for


async def find(links: Sequence[Link], agent: str, strategy: Strategy) -> Link | None:
    """The link that leads to it; None: nobody who is connected has it."""
    if strategy.kind == "hierarchical":
        return upstream(links, strategy)
    asked = [asyncio.ensure_future(_has(link, agent)) for link in links if link.end is not None]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(strategy.patience):
                for answer in asyncio.as_completed(asked):
                    if (found := await answer) is not None:
                        return found
    finally:
        for one in asked:
            one.cancel()
    return None


def upstream(links: Sequence[Link], strategy: Strategy) -> Link | None:
    """The first system above us that is connected."""
    named = {fold(link.system): link for link in links}
    above = [named[fold(name)] for name in strategy.upstream if fold(name) in named]
    return next((link for link in above if link.end is not None), None)


async def _has(link: Link, agent: str) -> Link | None:
    end = link.end
    with suppress(LineLost, MapRefusal):
        if end is not None and (await end.line.ask(FIND, agent=agent)).get("has") is True:
            return link
    return None
