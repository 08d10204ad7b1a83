"""Where somebody is of whom only the name is known (`name@*`): peers are asked, or it is left to a system above.

Of several that have it the first that says yes is meant. Whoever cannot be asked, or does not answer, has not said
no: while there is such a one, nobody knows that somebody is nowhere.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ..lines.line import LineLost, MapRefusal
from ..model.message import same_name
from ..model.names import fold
from ..wire.federation_problems import read_refusal
from ..wire.map_names import FIND

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..policy.trust import Strategy
    from .link import Link


class Answer(NamedTuple):
    link: Link | None  # that leads to it
    is_sure: bool  # did all say no, where there is none?
    name: str = ""  # as it is spelt there


async def find(links: Sequence[Link], agent: str, strategy: Strategy, without: Collection[str] = ()) -> Answer:
    """`without`: systems, by folded name, that refused what is to be sent there."""
    able = [link for link in links if fold(link.system) not in without]
    if strategy.kind == "hierarchical":
        return upstream(able, strategy)
    asked = [asyncio.ensure_future(_has(link, agent)) for link in able if link.end is not None]
    is_sure = len(asked) == len(able)
    try:
        async with asyncio.timeout(strategy.patience):
            for answer in asyncio.as_completed(asked):
                found = await answer
                if found.link is not None:
                    return found
                is_sure = is_sure and found.is_sure
    except TimeoutError:
        is_sure = False
    finally:
        for one in asked:
            one.cancel()
    return Answer(None, is_sure)


def upstream(links: Sequence[Link], strategy: Strategy) -> Answer:
    """The first system above us that is connected. One that is not may know more than we do."""
    named = {fold(link.system): link for link in links}
    above = [named[fold(name)] for name in strategy.upstream if fold(name) in named]
    return Answer(next((link for link in above if link.end is not None), None), not above)


async def _has(link: Link, agent: str) -> Answer:
    end = link.end
    try:
        if end is None:
            return Answer(None, is_sure=False)
        told = await end.line.ask(FIND, agent=agent)
    except LineLost:
        return Answer(None, is_sure=False)
    except MapRefusal as refused:  # one that cannot be asked so has nobody who is found so
        return Answer(None, not read_refusal(refused.error).waits)
    spelt = told.get("agentId")
    name = spelt if isinstance(spelt, str) and same_name(spelt, agent) else agent
    return Answer(link if told.get("has") is True else None, is_sure=True, name=name)
