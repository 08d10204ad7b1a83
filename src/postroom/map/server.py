"""What connections do wrong, in the log: each kind of thing once an hour, however many do it, and how often.

A kind is a word of ours: a number, a field, a reason. What a caller said may stand in the line, as an example, and
never makes it another kind: else whoever says many different things fills the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..core import peers
from ..core.authorize import OWNER
from ..core.presentation import one_line
from ..errors import NameTaken, QuotaFull
from ..server.table import snake
from .agents import BEAT_EVERY, away
from .subscriptions import Telling, Watching
from .table import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from ..core.authorize import Principal
    from ..federation.exchange import Exchange
    from ..room import Room
    from ..server.broker import Broker
    from ..server.executor import Executor, JobFuture
    from ..server.http import Receive, Scope, Send
    from ..server.http_app import HttpApp
    from ..server.unix_socket import Connection
    from .connection import Crew, Talk
    from .lines import MapLines


log = logging.getLogger("postroom")
AGAIN = 3600.0  # seconds after which the same is worth a line once more
LONGEST = 200  # characters of an example
_REFUSED = "a MAP connection does what is refused"
_FIELDS = frozenset(param.name for row in ROWS for param in row.params)


class Complaints:
    """`now`: seconds by any clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: set[Hashable] = set()
        self._again = 0.0

    def of_frames(self, why: str) -> None:
        self._tell(why, f"{_REFUSED}: {why}")

    def of_refusal(self, error: Mapping[str, Any]) -> None:
        """The error of a reply."""
        details = error.get("data", {}).get("details", {})
        field = snake(str(details.get("field", "")))
        kind = (error["code"], field if field in _FIELDS else "")
        self._tell(kind, f"{_REFUSED}: {str(error['message'])[:LONGEST]}")

    def of_system(self, name: str, why: str, known: str | None) -> None:
        """A system that calls itself so is refused. `known`: what the peer of that name is called, if any is."""
        self._tell((why, known), f"a system that calls itself {name!a} is refused: {why}")

    def of_end(self, why: str, agent: str | None = None) -> None:
        """A connection is ended. `agent`: whose it is, if it has proven that."""
        whose = f" of {agent}" if agent is not None else ""
        self._tell((why, agent), f"a MAP connection{whose} is ended: {why}")

    def _tell(self, kind: Hashable, line: str) -> None:
        now = self._now()
        if now >= self._again:
            self._told.clear()
            self._again = now + AGAIN
        if kind not in self._told:
            self._told.add(kind)
            log.info("%s", one_line(line))


# All connections of a running post room: which agent is on which, and who may come back as whom.

MOST_WAITING = 100  # connections that have not said who they are
MOST_SUBSCRIPTIONS = 200  # of one principal, on all its connections
MOST_REMEMBERED = 10_000  # who may come back
REMEMBERED = 3600.0  # seconds


class Left(NamedTuple):
    """A connection that ended, or will: what comes back with its token."""

    principal: str
    agents: tuple[str, ...]
    until: float


class MapServer:
    """Made inside an event loop; used on its thread alone. Where it is open, who shows no token is let in, as on
    the socket.
    """

    def __init__(self, executor: Executor, broker: Broker, *, is_open: bool = False) -> None:
        self.executor = executor
        self.broker = broker
        self.is_open = is_open
        self.telling = Telling(executor, broker)
        self._watching = Watching(executor, broker, self.telling)
        self.exchange: Exchange | None = None  # with other systems; None: with none
        self.version = __version__
        self.talks: set[Talk] = set()
        self._on: dict[str, Crew] = {}  # agents that are connected
        self._left: dict[str, Left] = {}
        self._away: dict[str, float] = {}  # agents whose connection has ended: until when they may come back
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.TimerHandle | None = None
        self.complaints = Complaints(self._loop.time)
        self.is_ending = False  # do we stop? Then agents lose their connections, and have not left
        executor.counters.connections["map"] = lambda: len(self.talks)

    @property
    def system(self) -> str:
        """What the room is called, to be told to who connects."""
        return peers.announced(self.executor.room._core, OWNER, self.executor.room.settings.system)

    def speak_lines(self, connection: Connection, line: bytes | None) -> MapLines | None:
        """Return a MAP speaker for a connection at the Unix socket, if its first line asks for MAP."""
        from .lines import MapLines, first_word  # noqa: PLC0415 - it knows this module

        params = first_word(line)
        return None if params is None else MapLines(connection, self, params)

    async def serve_frames(
        self, house: HttpApp, principal: Principal | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve one WebSocket at `/map` until either side ends it."""
        from .frames import serve_map  # noqa: PLC0415 - it needs the extra `serve`

        await serve_map(house, self, principal, scope, receive, send)

    # -- connections

    @property
    def is_full(self) -> bool:
        """Are there too many who have not said who they are?"""
        return sum(not talk.session.is_in for talk in self.talks) >= MOST_WAITING

    def enter(self, talk: Talk) -> None:
        self.talks.add(talk)

    def go(self, talk: Talk) -> None:
        self.talks.discard(talk)

    def check_subscriptions(self, who: Principal) -> None:
        """Each costs something with every letter; and one may have many connections."""
        if sum(talk.subscriptions_of(who) for talk in self.talks) >= MOST_SUBSCRIPTIONS:
            text = f"{MOST_SUBSCRIPTIONS} subscriptions on all connections of {who.agent or who.name} are enough"
            raise QuotaFull(text, hint="map/unsubscribe from some")

    # -- agents

    def on(self, agent: str) -> Crew | None:
        return self._on.get(agent)

    def reserve(self, agent: str, talk: Crew, *, is_proven: bool) -> None:
        """This connection is about to have the agent. The first wins, unless the second proves to be the same;
        even so the first has it until `take`, for the second may be refused.
        """
        other = self._on.setdefault(agent, talk)
        if other is not talk and not is_proven:
            raise NameTaken(f"{agent!r} is connected already", field="agent_id", hint="choose another name")

    def take(self, agent: str, talk: Crew) -> None:
        """This connection has it from now on, and no other."""
        other = self._on.get(agent)
        self._on[agent] = talk
        self._away.pop(agent, None)
        if other is not None and other is not talk:
            other.lose(agent)
        if self._beat is None:
            self._beat = self._loop.call_later(BEAT_EVERY, self._beat_all)

    def went(self, agent: str, room: Room) -> None:
        """Its connection has ended."""
        now = self._loop.time()
        while self._away and next(iter(self._away.values())) < now:
            del self._away[next(iter(self._away))]
        self._away.pop(agent, None)
        self._away[agent] = now + self.executor.room.settings.away_grace
        if not self.is_ending:
            self.executor.submit(partial(away, room, agent)).add_done_callback(self._tell_away)

    def _tell_away(self, done: JobFuture) -> None:
        _tell_log(done)
        if not done.cancelled() and done.exception() is None:
            self.telling.gone(done.result())

    def check_given_up(self, agent: str) -> None:
        """One that is away for a moment keeps its name before others that prove nothing: it may resume."""
        if self._away.get(agent, 0.0) > self._loop.time():
            raise NameTaken(f"{agent!r} is away for a moment", field="agent_id", hint="show its resumeToken")

    def release(self, agent: str, talk: Crew) -> None:
        if self._on.get(agent) is talk:
            del self._on[agent]

    def _beat_all(self) -> None:
        """Signs of life of all that are connected, made safe together."""
        self._beat = self._loop.call_later(BEAT_EVERY, self._beat_all) if self._on else None
        for agent, talk in self._on.items():
            self.quietly(talk.room_of(agent).mailbox(agent).heartbeat)

    def quietly(self, run: Callable[[], object]) -> None:
        """In its turn; nobody waits for it. What goes wrong is told by the next call that is answered."""
        self.executor.submit(run).add_done_callback(_tell_log)

    # -- coming back

    def remember(self, token: str, principal: Principal, agents: Iterable[str]) -> None:
        """Whoever shows this token, and is the same principal, gets these agents back."""
        now = self._loop.time()
        key = _key(token)
        self._left.pop(key, None)
        self._left[key] = Left(principal.name, tuple(agents), now + REMEMBERED)
        while len(self._left) > MOST_REMEMBERED or next(iter(self._left.values())).until < now:
            del self._left[next(iter(self._left))]

    def recall(self, token: str, principal: Principal) -> tuple[str, ...]:
        """The agents that come back with it. Once: a token that was used is worth nothing more."""
        left = self._left.get(_key(token))
        if left is None or left.until < self._loop.time() or left.principal != principal.name:
            return ()
        del self._left[_key(token)]
        return left.agents

    def close(self) -> None:
        self._watching.close()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None


def _tell_log(done: JobFuture) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.debug("a sign of life was refused: %s", error)


def _key(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
