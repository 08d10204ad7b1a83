"""All MAP connections of a running server: which agent is on which, and which agents a resume token brings back.

What is known here is in memory: a restart ends every connection anyway. `MisuseLog` logs what connections do
wrong. `MapFrames` is one connection over WebSocket, with one message in each text frame; on the Unix socket MAP
goes in lines.

Behind each message to an agent goes `map/ping`. Its answer is the receipt of the message: the programs of the SDK
answer it, if only to say that they know no such method, once they have handled what came before. Of clients that
leave it unanswered, a message is taken as received after MUTE_AFTER seconds. uvicorn disconnects a client that
does not answer the pings of the WebSocket protocol: one that is connected still has answered one behind the
message.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .. import __version__
from ..core import agents as core_agents
from ..core import peers
from ..core.authorize import SOCKET
from ..core.presentation import one_line
from ..core.verb import parameters, perform, snake
from ..errors import NameTaken
from ..federation.connection import is_near
from ..formats.map import CONNECT, MEET, spellings
from ..server.http import CONNECTION, PING
from ..server.streams import WebSocketConnection, run_until_closed
from .agents import BEAT_EVERY, mark_away
from .connection import MapConnection
from .events import AgentEvents
from .session import MAP

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from ..core.authorize import Principal
    from ..federation.exchange import Exchange
    from ..server.broker import Broker
    from ..server.callers import RequestCaller
    from ..server.executor import Executor
    from ..server.http import Receive, Scope, Send
    from ..server.http_app import HttpApp
    from ..server.protocol import Request
    from ..server.unix_socket import LineConnection


log = logging.getLogger("postroom")
AGAIN = 3600.0  # seconds after which the same kind of misuse is logged once more
LONGEST = 200  # characters of an example
_REFUSED = "a MAP connection does what is refused"
_OPENING = frozenset({CONNECT, *spellings(MEET)})  # methods with which a connection in lines begins to speak MAP
_OPENING_BYTES = tuple(word.encode() for word in _OPENING)
_FIELDS = frozenset(name for cls in MAP.values() for name in parameters(cls))


class MisuseLog:
    """A log of the errors that connections make: each kind once an hour, however often it happens.

    A kind consists of our own words only: a number, a field, a reason. What a caller said may stand in the line as
    an example, but never makes another kind: else a caller that says many different things would fill the log.
    `now` returns seconds by any clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged: set[Hashable] = set()
        self._again = 0.0

    def bad_frames(self, why: str) -> None:
        self._log(why, f"{_REFUSED}: {why}")

    def refusal(self, error: Mapping[str, Any]) -> None:
        """Log the error of a reply."""
        details = error.get("data", {}).get("details", {})
        field = snake(str(details.get("field", "")))
        kind = (error["code"], field if field in _FIELDS else "")
        self._log(kind, f"{_REFUSED}: {str(error['message'])[:LONGEST]}")

    def refused_system(self, name: str, why: str, known: str | None) -> None:
        """Log that a system was refused. `known`: the name of the peer that it claims to be, if there is one."""
        self._log((why, known), f"a system that calls itself {name!a} is refused: {why}")

    def ended(self, why: str, agent: str | None = None) -> None:
        """Log that a connection was ended. `agent`: the agent whose token it has shown."""
        whose = f" of {agent}" if agent is not None else ""
        self._log((why, agent), f"a MAP connection{whose} is ended: {why}")

    def _log(self, kind: Hashable, line: str) -> None:
        now = self._now()
        if now >= self._again:
            self._logged.clear()
            self._again = now + AGAIN
        if kind not in self._logged:
            self._logged.add(kind)
            log.info("%s", one_line(line))


# -- over WebSocket

_BAD_FRAMES = {1002: "frames that are none", 1007: "text that is none", 1009: "a frame that is too large"}
MUTE_AFTER = 2 * PING + 1  # seconds after a message, until which a client has answered a ping or is disconnected


class MapFrames(WebSocketConnection):
    """One MAP connection over WebSocket."""

    def __init__(
        self, app: HttpApp, map_server: MapServer, principal: Principal | None, scope: Scope, send: Send
    ) -> None:
        self._map_server = map_server
        self._certificate: str = scope["state"][CONNECTION].certificate
        host = (scope.get("client") or ("",))[0]
        self._is_near = is_near(f"ws://[{host}]" if ":" in host else f"ws://{host}")
        self._written = 0  # the last message that was written
        super().__init__(app, principal, scope, send)

    def _open_caller(self, principal: Principal | None) -> RequestCaller:
        self._conn = MapConnection(
            self._map_server, self.push, self._end, principal, self._certificate, is_near=self._is_near
        )
        return self._conn

    def _parse(self, message: str) -> Request | None:
        return self._conn.read(message.encode())  # bytes are read several times as fast

    def _on_disconnect(self, code: int) -> None:
        if code in _BAD_FRAMES:
            self._map_server.misuse.bad_frames(_BAD_FRAMES[code])

    def _end(self, code: int, reason: str, *, at_once: bool) -> None:
        self.code, self.reason = code, reason
        if at_once:
            self._outbox.drop()
        else:
            self._outbox.close()

    # -- receipts

    def _sent_mark(self) -> int:
        return self._conn.sent_count

    def _on_written(self, number: int) -> None:
        conn = self._conn
        if number > self._written and not (conn.answers_pings or conn.acknowledges):
            self._written = number
            asyncio.get_running_loop().call_later(MUTE_AFTER, self._believe, number)

    def _believe(self, number: int) -> None:
        """Take messages as received by a client that answers no `map/ping`: it is connected still, so it has sent
        the pong to a ping that was written behind them.
        """
        if not (self._outbox.is_closed or self._conn.answers_pings):
            self._conn.received_up_to(number)


# -- connections

MOST_WAITING = 100  # connections that are not admitted yet
MOST_REMEMBERED = 10_000  # resume tokens
REMEMBERED = 3600.0  # seconds for which a resume token is good


class ResumeEntry(NamedTuple):
    """The agents that a resume token brings back."""

    principal: str
    agents: tuple[str, ...]
    until: float


class MapServer:
    """The MAP side of a running server, made inside an event loop and used on its thread alone.

    Where it `is_open`, a connection without a token is admitted, as on the Unix socket.
    """

    def __init__(self, executor: Executor, broker: Broker, *, is_open: bool = False) -> None:
        self.executor = executor
        self.broker = broker
        self.is_open = is_open
        self.events = AgentEvents(executor, broker)
        self.exchange: Exchange | None = None  # federation; None: it is off
        self.version = __version__
        self.system = ""  # the name of the room; read for each client, see `read_name`
        self.connections: set[MapConnection] = set()
        self._holders: dict[str, MapConnection] = {}  # by agent
        self._resumable: dict[str, ResumeEntry] = {}
        self._away: dict[str, float] = {}  # agents whose connection has ended: until when their names are kept
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.TimerHandle | None = None
        self.misuse = MisuseLog(self._loop.time)
        self.is_ending = False  # is the server stopping? Then agents lose their connections, but are not away
        executor.counters.connections["map"] = lambda: len(self.connections)

    async def read_name(self) -> None:
        """Read the name of the room that clients get."""
        self.system = await self.executor.read(peers.announced, self.executor.core)

    def speak_lines(self, connection: LineConnection, line: bytes | None) -> MapConnection | None:
        """Return the MAP connection of a caller at the Unix socket whose first line opens MAP; else None.

        It then has one JSON message in each line. A program that can open the socket belongs to the user who runs
        the post room, and needs no token; one that shows a token is admitted by that.
        """
        if line is None or not any(word in line for word in _OPENING_BYTES):
            return None
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
        if not isinstance(value, dict) or value.get("method") not in _OPENING:
            return None

        def end(_code: int, _reason: str, *, at_once: bool) -> None:
            if at_once:
                connection.abort()
            else:
                connection.end()

        params = value.get("params")
        shows_token = isinstance(params, dict) and params.get("auth")
        return MapConnection(self, connection.push, end, None if shows_token else SOCKET, is_near=True)

    async def serve_frames(
        self, app: HttpApp, principal: Principal | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve one WebSocket at `/map` until either side ends it."""
        await receive()  # "websocket.connect"
        await send({"type": "websocket.accept"})
        await run_until_closed(MapFrames(app, self, principal, scope, send), receive)

    # -- connections

    @property
    def is_full(self) -> bool:
        """Whether too many connections are not admitted yet."""
        return sum(not conn.session.is_in for conn in self.connections) >= MOST_WAITING

    # -- agents

    def connection_of(self, agent: str) -> MapConnection | None:
        """Return the connection that has this agent, or has reserved it."""
        return self._holders.get(agent)

    def reserve(self, agent: str, conn: MapConnection, *, is_proven: bool) -> None:
        """Reserve an agent for a connection that is about to register it.

        The first connection wins, unless the second proves to be the same agent. Even then the first keeps it
        until `take`, for the registration may fail.
        """
        other = self._holders.setdefault(agent, conn)
        if other is not conn and not is_proven:
            raise NameTaken(f"{agent!r} is connected already", field="agent_id", hint="choose another name")

    def take(self, agent: str, conn: MapConnection) -> None:
        """Give an agent to this connection, and take it from any other."""
        other = self._holders.get(agent)
        self._holders[agent] = conn
        self._away.pop(agent, None)
        if other is not None and other is not conn:
            other.lose(agent)
        if self._beat is None:
            self._beat = self._loop.call_later(BEAT_EVERY, self._beat_all)

    def mark_away(self, agent: str, principal: Principal) -> None:
        """Record that the connection of an agent has ended, and keep its name for a while."""
        now = self._loop.time()
        # The oldest entries come first, so this stops at the first that is still kept.
        while self._away and next(iter(self._away.values())) < now:
            del self._away[next(iter(self._away))]
        self._away.pop(agent, None)
        self._away[agent] = now + self.executor.core.limits.away_grace
        if not self.is_ending:
            away = self.executor.submit(partial(mark_away, self.executor.core, principal, agent))
            away.add_done_callback(_log_error)
            away.add_done_callback(self.events.after_away)

    def check_not_away(self, agent: str) -> None:
        """Refuse the name of an agent that is away for a moment to a connection that proves nothing."""
        if self._away.get(agent, 0.0) > self._loop.time():
            raise NameTaken(
                f"{agent!r} has lost its connection and may come back",
                field="agent_id",
                hint="send its resumeToken",
            )

    def release(self, agent: str, conn: MapConnection) -> None:
        if self._holders.get(agent) is conn:
            del self._holders[agent]

    def _beat_all(self) -> None:
        """Write a heartbeat for each agent that is connected."""
        self._beat = self._loop.call_later(BEAT_EVERY, self._beat_all) if self._holders else None
        for agent, conn in self._holders.items():
            self.beat(agent, conn.principal_of(agent))

    def beat(self, agent: str, principal: Principal) -> None:
        """Write a heartbeat for an agent."""
        beat = partial(perform, self.executor.core, principal, core_agents.RecordHeartbeat(agent_id=agent))
        # Nobody waits for it: a failing store shows in the next call that is answered.
        self.executor.submit(beat).add_done_callback(_log_error)

    # -- resume tokens

    def remember(self, token: str, principal: Principal, agents: Iterable[str]) -> None:
        """Record that this token brings these agents back, for the same principal."""
        now = self._loop.time()
        key = _key(token)
        self._resumable.pop(key, None)
        self._resumable[key] = ResumeEntry(principal.name, tuple(agents), now + REMEMBERED)
        while len(self._resumable) > MOST_REMEMBERED or next(iter(self._resumable.values())).until < now:
            del self._resumable[next(iter(self._resumable))]

    def recall(self, token: str, principal: Principal) -> tuple[str, ...]:
        """Return the agents that a resume token brings back. It can be used once."""
        # Kept by their hash, like all tokens: the table itself gives none away.
        left = self._resumable.get(_key(token))
        # A resume token is good for the principal it was given to, and for no other (G8).
        if left is None or left.until < self._loop.time() or left.principal != principal.name:
            return ()
        del self._resumable[_key(token)]
        return left.agents

    def close(self) -> None:
        self.events.close()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None


def _log_error(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.debug("a heartbeat was refused: %s", error)


def _key(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
