"""The search for the system of an agent of which only the name is known (`name@*`).

Peers are asked, or a system above us.

The first peer that has an agent of the name gets the letter. A peer that cannot be asked, or does not answer, has
not said no: while there is one, nobody knows that the agent is nowhere.

- Each letter goes to one system alone. One that is reserved for a system stays with it until that has answered,
  for it may have the letter. One that a system refused goes to the next that has an agent of the name.
- While a peer cannot be asked, a letter waits like mail for a system that is down.
- With the strategy `table` a bare name that is unknown here is looked up, too: its letters lie in a local mailbox,
  and go to the first peer that has an agent of the name. While no peer has one, they stay.
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
from ..policy.trust import upstream
from .connection import ConnectionLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from ..model.query import Found
    from ..policy.limits import Limits
    from ..server.executor import Executor
    from .link import Link, PeerConnection


class LookupResult(NamedTuple):
    """The place of an agent, as peers answered."""

    link: Link | None  # to the system that has it
    is_sure: bool  # where there is none: have all peers said no?
    name: str = ""  # as it is spelt there


async def find(links: Sequence[Link], agent: str, limits: Limits, without: Collection[str] = ()) -> LookupResult:
    """Ask peers for an agent. `without`: systems, by folded name, that refused the letter."""
    able = [link for link in links if fold(link.system) not in without]
    if limits.federation_strategy == "hierarchical":
        return hub_above(able, limits)
    queries = [asyncio.ensure_future(_has(link, agent)) for link in able if link.connection is not None]
    is_sure = len(queries) == len(able)
    try:
        async with asyncio.timeout(limits.federation_broadcast_timeout):
            for answer in asyncio.as_completed(queries):
                found = await answer
                if found.link is not None:
                    return found
                is_sure = is_sure and found.is_sure
    # Some peer did not answer. It may have the agent, so letters wait instead of bouncing (G9).
    except TimeoutError:
        is_sure = False
    finally:
        for one in queries:
            one.cancel()
    return LookupResult(None, is_sure)


def hub_above(links: Sequence[Link], limits: Limits) -> LookupResult:
    """Return the first system above us that is connected. One that is not may know more than we do."""
    named = {fold(link.system): link for link in links}
    above = [named[fold(name)] for name in upstream(limits) if fold(name) in named]
    return LookupResult(next((link for link in above if link.connection is not None), None), not above)


async def _has(link: Link, agent: str) -> LookupResult:
    connection = link.connection
    try:
        if connection is None:
            return LookupResult(None, is_sure=False)
        result = await connection.rpc.call(FIND, agent=agent)
    except ConnectionLost:
        return LookupResult(None, is_sure=False)
    except MapRefusal as refused:  # a peer that knows no such method has no agents that are found so
        return LookupResult(None, not read_refusal(refused.error).waits)
    spelt = result.get("agentId")
    name = spelt if isinstance(spelt, str) and same_name(spelt, agent) else agent
    return LookupResult(link if result.get("has") is True else None, is_sure=True, name=name)


# -- letters

MOST = 1000  # letters of one name that are looked at in one go


class AgentLookup:
    """The lookups under way, for all links."""

    def __init__(self, executor: Executor, links: Callable[[], Sequence[Link]]) -> None:
        self._executor = executor
        self.core = executor.core
        self._links = links
        self._under_way: dict[str, asyncio.Future[None]] = {}
        # By unknown name: its newest letter, the connections that were asked, and until when that answer is good.
        self._recent: dict[str, tuple[int, list[PeerConnection | None], float]] = {}

    @property
    def tasks(self) -> list[asyncio.Future[None]]:
        return list(self._under_way.values())

    def look_up(self, mailbox: str) -> None:
        """Begin to look up the recipient of a mailbox `name@*`."""
        if mailbox not in self._under_way:
            self._begin(mailbox, self._look_up(mailbox))

    def _begin(self, name: str, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(steps)
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name, None))

    def look_up_stranger(self, name: str, newest: int) -> None:
        """Begin to look up an unknown name with mail here.

        Peers are asked once for each new letter, again when another peer is connected, and from time to time.
        """
        now, ends = asyncio.get_running_loop().time(), [link.connection for link in self._links()]
        letter, queried, until = self._recent.get(name, (0, [], 0.0))
        if name in self._under_way or (letter == newest and queried == ends and now < until):
            return
        # Only a memory of answers: without it peers are asked once more.
        if len(self._recent) >= MOST:
            self._recent.clear()
        self._recent[name] = (newest, ends, now + self.core.limits.federation_table_ttl)
        self._begin(name, self._send_on(name))

    async def _send_on(self, name: str) -> None:
        answer = await find(self._links(), name, self.core.limits)
        if answer.link is not None:
            step = partial(outbox.redirect_unknown, self.core, name, answer.name, answer.link.system)
            mailbox = await self._executor.run_slow(step)
            if mailbox is not None:
                answer.link.waiting[mailbox] = answer.link.system
                answer.link.has_mail.set()

    async def _look_up(self, mailbox: str) -> None:
        look = partial(outbox.next_letters, self.core, [mailbox], MOST)
        limits = self.core.limits
        free: dict[frozenset[str], list[Found]] = {}
        for found in await self._executor.run_slow(look):
            holder = found.delivery.given_to
            if holder:
                named = (link for link in self._links() if same_name(link.system, holder))
                self._assign(mailbox, limits, next(named, None))
            else:
                refused = frozenset(fold(link.system) for link in self._links() if link.excludes(found))
                free.setdefault(refused, []).append(found)
        for without, letters in free.items():
            answer = await find(self._links(), agent_of(mailbox), limits, without)
            self._assign(mailbox, limits, answer.link)
            if answer.link is None and answer.is_sure:
                await self._executor.run_slow(partial(self._give_up, letters, is_refused=bool(without)))

    def _assign(self, mailbox: str, limits: Limits, link: Link | None) -> None:
        if link is not None:
            link.waiting[mailbox] = ANYWHERE if limits.federation_strategy == "hierarchical" else link.system
            link.has_mail.set()

    def _give_up(self, letters: Sequence[Found], *, is_refused: bool) -> None:
        """Bounce letters: no system has the recipient, or none that has it accepts them."""
        for found in letters:
            why = f"no system that we know has {agent_of(found.delivery.mailbox)!r}"
            outbox.record_refusal(self.core, found, (is_refused and found.delivery.reason) or why)
