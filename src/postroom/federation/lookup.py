"""Where somebody is of whom only the name is known (`name@*`): peers are asked, or it is left to a system above.

Of several that have it the first that says yes is meant. Whoever cannot be asked, or does not answer, has not said
no: while there is such a one, nobody knows that somebody is nowhere.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import outbox
from ..formats.federation import read_refusal
from ..formats.map import FIND
from ..model.message import same_name
from ..model.names import ANYWHERE, agent_of, fold
from ..policy.trust import strategy_of
from .connection import LineLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from ..model.query import Found
    from ..policy.trust import Strategy
    from ..server.executor import Executor
    from .link import End, Link


class Answer(NamedTuple):
    link: Link | None  # that leads to it
    is_sure: bool  # did all say no, where there is none?
    name: str = ""  # as it is spelt there


async def find(links: Sequence[Link], agent: str, strategy: Strategy, without: Collection[str] = ()) -> Answer:
    """`without`: systems, by folded name, that refused what is to be sent there."""
    able = [link for link in links if fold(link.system) not in without]
    if strategy.kind == "hierarchical":
        return upstream(able, strategy)
    request = [asyncio.ensure_future(_has(link, agent)) for link in able if link.end is not None]
    is_sure = len(request) == len(able)
    try:
        async with asyncio.timeout(strategy.patience):
            for answer in asyncio.as_completed(request):
                found = await answer
                if found.link is not None:
                    return found
                is_sure = is_sure and found.is_sure
    except TimeoutError:
        is_sure = False
    finally:
        for one in request:
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
        result = await end.line.ask(FIND, agent=agent)
    except LineLost:
        return Answer(None, is_sure=False)
    except MapRefusal as refused:  # one that cannot be asked so has nobody who is found so
        return Answer(None, not read_refusal(refused.error).waits)
    spelt = result.get("agentId")
    name = spelt if isinstance(spelt, str) and same_name(spelt, agent) else agent
    return Answer(link if result.get("has") is True else None, is_sure=True, name=name)


# Letters for somebody of whom only the name is known: by which link each goes, and when it is dead.
#
# Each goes to one system alone. One that was given to a system stays with it until that says what became of it,
# for
# it may have it. One that a system refused goes to the next that has somebody of the name. While somebody cannot
# be
# asked, it waits as mail for a system that is away does.
#
# A bare name of which nobody here has heard is sought too, with the strategy `table`: its letters lie in a
# mailbox
# here, and go to the first peer that has somebody of the name. While no peer has, they stay.

MOST = 1000  # letters of one name that are looked at in one go


class Seeking:
    """Of all links. `ring`: a link has something to carry."""

    def __init__(
        self, executor: Executor, links: Callable[[], Sequence[Link]], ring: Callable[[Link], object]
    ) -> None:
        self._executor = executor
        self._core = executor.room._core
        self._links = links
        self._ring = ring
        self._under_way: dict[str, asyncio.Future[None]] = {}
        # For which letter of a stranger which connections were asked, and until when that will do.
        self._asked: dict[str, tuple[int, list[End | None], float]] = {}

    @property
    def tasks(self) -> list[asyncio.Future[None]]:
        return list(self._under_way.values())

    def seek(self, mailbox: str) -> None:
        """There is mail for somebody of this name."""
        if mailbox not in self._under_way:
            self._begin(mailbox, self._seek(mailbox))

    def _begin(self, name: str, steps: Coroutine[Any, Any, None]) -> None:
        seeking = asyncio.ensure_future(steps)
        self._under_way[name] = seeking
        seeking.add_done_callback(lambda _: self._under_way.pop(name, None))

    def seek_stranger(self, name: str, newest: int) -> None:
        """There is mail here for somebody of whom nobody here has heard. Peers are asked once for each new letter,
        anew when another one is connected, and while it lies here from time to time.
        """
        now, ends = asyncio.get_running_loop().time(), [link.end for link in self._links()]
        letter, request, until = self._asked.get(name, (0, [], 0.0))
        if name in self._under_way or (letter == newest and request == ends and now < until):
            return
        if len(self._asked) >= MOST:
            self._asked.clear()
        self._asked[name] = (newest, ends, now + strategy_of(self._core.limits).believes)
        self._begin(name, self._send_on(name))

    async def _send_on(self, name: str) -> None:
        answer = await find(self._links(), name, strategy_of(self._core.limits))
        if answer.link is not None:
            step = partial(outbox.send_on, self._core, name, answer.name, answer.link.system)
            mailbox = await self._executor.run_slow(step)
            if mailbox is not None:
                answer.link.waiting[mailbox] = answer.link.system
                self._ring(answer.link)

    async def _seek(self, mailbox: str) -> None:
        look = partial(outbox.next_letters, self._core, [mailbox], MOST)
        strategy = strategy_of(self._core.limits)
        free: dict[frozenset[str], list[Found]] = {}
        for found in await self._executor.run_slow(look):
            holder = found.delivery.given_to
            if holder:
                self._hand(mailbox, strategy, self._named(holder))
            else:
                free.setdefault(self._barred_by(found), []).append(found)
        for without, letters in free.items():
            answer = await find(self._links(), agent_of(mailbox), strategy, without)
            self._hand(mailbox, strategy, answer.link)
            if answer.link is None and answer.is_sure:
                await self._executor.run_slow(partial(self._give_up, letters, is_refused=bool(without)))

    def _hand(self, mailbox: str, strategy: Strategy, link: Link | None) -> None:
        if link is not None:
            link.waiting[mailbox] = ANYWHERE if strategy.kind == "hierarchical" else link.system
            self._ring(link)

    def _named(self, system: str) -> Link | None:
        return next((link for link in self._links() if fold(link.system) == fold(system)), None)

    def _barred_by(self, found: Found) -> frozenset[str]:
        """Those who refused it, by folded name."""
        return frozenset(fold(link.system) for link in self._links() if link.bars(found))

    def _give_up(self, letters: Sequence[Found], *, is_refused: bool) -> None:
        """Nobody has it, or nobody who has it takes it: its senders are told."""
        for found in letters:
            why = f"no system that we know has {agent_of(found.delivery.mailbox)!r}"
            outbox.refused(self._core, found, (is_refused and found.delivery.reason) or why)
