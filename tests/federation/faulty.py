"""`postroom serve` with faults: it is killed at a step of the exchange, or has a bug that a test must find.

    python -m tests.federation.faulty kill:sent:5,nameless serve …

`kill:sent:5` kills it, as `kill -9` does, when it comes to this step for the fifth time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from postroom.app import app
from postroom.cli.main import entry
from postroom.clock import SystemClock
from postroom.core import arrivals, outbox, peers, retention
from postroom.federation import courier, lookup, peer_calls
from postroom.federation.connection import RpcConnection
from postroom.federation.courier import Courier, QueuedLetter
from postroom.federation.lookup import LookupResult
from postroom.federation.peer_calls import MOST_TOGETHER, PeerHandler
from postroom.formats import federation
from postroom.formats.map import ROUTE
from postroom.model.query import Moment
from postroom.policy import trust

SOON, LATER = 0.05, 0.5  # seconds

Act = Callable[[], object]


class Kill:
    """At the n-th time."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def put(place: Any, name: str, value: Any) -> None:
    assert hasattr(place, name), f"there is no {name} any more"
    setattr(place, name, value)


def before(place: Any, name: str, act: Act) -> None:
    real = getattr(place, name)

    def stand_in(*value: Any, **message: Any) -> Any:
        act()
        return real(*value, **message)

    put(place, name, stand_in)


def after(place: Any, name: str, act: Act) -> None:
    real = getattr(place, name)

    def stand_in(*value: Any, **message: Any) -> Any:
        result = real(*value, **message)
        act()
        return result

    put(place, name, stand_in)


# -- steps of who sends


def receipt(params: dict[str, Any]) -> dict[str, Any]:
    """That all is well with what was routed."""
    return {"routed": True, "letters": [{"routed": True} for _ in params.get("envelopes", ())]}


def at_looked(kill: Act) -> None:
    """It has looked up what waits, and said nothing."""
    after(courier, "next_envelopes", kill)


def at_sent(kill: Act) -> None:
    """The letter is on its way."""
    real = RpcConnection.__init__

    def made(self: RpcConnection, send: Any, *value: Any) -> None:
        async def sent(params: dict[str, Any]) -> None:
            await send(params)
            if params.get("method") == ROUTE:
                kill()

        real(self, sent, *value)

    put(RpcConnection, "__init__", made)


def at_confirmed(kill: Act) -> None:
    """The receipt came, and is not written down."""
    before(Courier, "_settle", kill)


def at_noting(kill: Act) -> None:
    """The receipt is being written down."""
    after(outbox, "record_departure", kill)


def at_noted(kill: Act) -> None:
    """It is written down."""
    real = Courier._record_kept

    async def record(self: Courier, deliveries: Any) -> None:
        await real(self, deliveries)
        kill()

    put(Courier, "_record_kept", record)


# -- steps of who gets it


def at_came(kill: Act) -> None:
    """The letter is there, and not looked at."""
    before(PeerHandler, "_route", kill)


def at_written(kill: Act) -> None:
    """It is written, and not safe."""
    after(arrivals, "accept", kill)


def at_kept(kill: Act) -> None:
    """It is safe, and nobody was told."""
    real = PeerHandler.call

    async def call(self: PeerHandler, name: str, params: dict[str, Any]) -> dict[str, Any]:
        result = await real(self, name, params)
        if name == ROUTE:
            kill()
        return result

    put(PeerHandler, "call", call)


def at_answered(kill: Act) -> None:
    """The receipt was given, maybe a moment ago."""
    at_kept(lambda: asyncio.get_running_loop().call_later(SOON, kill))


SENDING = {
    "looked": at_looked,
    "sent": at_sent,
    "confirmed": at_confirmed,
    "noting": at_noting,
    "noted": at_noted,
}
TAKING = {"came": at_came, "written": at_written, "kept": at_kept, "answered": at_answered}
STEPS = SENDING | TAKING


# -- bugs of who sends


def early() -> None:
    """Takes a letter for one that has left before there is a receipt."""
    real = Courier._send_batch

    async def carry(self: Courier, send_round: Any, letters: Any) -> None:
        for envelope, _ in letters:
            await self._record_kept([found.delivery for found in envelope.found])
        await real(self, send_round, letters)

    put(Courier, "_send_batch", carry)


def trusting() -> None:
    """Takes a cut for a receipt."""
    real = Courier._call_route

    async def call_route(self: Courier, send_round: Any, call: Any) -> Any:
        result = await real(self, send_round, call)
        return receipt({"envelopes": range(MOST_TOGETHER)}) if result is None else result

    put(Courier, "_call_route", call_route)


def backwards() -> None:
    """Sends what came last first."""
    real: Any = vars(courier)["next_envelopes"]

    def envelopes(*value: Any) -> Any:
        return list(reversed(real(*value)))

    put(courier, "next_envelopes", envelopes)


def deaf() -> None:
    """Takes silence for a no."""
    put(lookup, "LookupResult", lambda link, *_, **_is_sure: LookupResult(link, is_sure=True))


def generous() -> None:
    """Gives a letter to who says yes first, and to the next one when the line is cut."""
    put(QueuedLetter, "is_free", False)


def forgetful() -> None:
    """Takes who is busy now for one that cannot have had a letter before."""

    class Everything(set[tuple[str, str]]):
        def __contains__(self, _: object) -> bool:
            return True

    real = Courier.__init__

    def made(self: Courier, *value: Any) -> None:
        real(self, *value)
        self._new = Everything()

    put(Courier, "__init__", made)


def impatient() -> None:
    """Waits for no answer longer than a moment."""
    real = RpcConnection.__init__

    def made(self: RpcConnection, send: Any, received: Any, _patience: float, *value: Any) -> None:
        real(self, send, received, 0.3, *value)

    put(RpcConnection, "__init__", made)


def tidy() -> None:
    """No bug: the janitor comes at once, and again."""
    put(app, "SWEEP_SECONDS", SOON)


def ahead(hours: float) -> None:
    """No bug: so many hours have passed, by both clocks of the machine."""
    real = SystemClock.now

    def now(self: SystemClock) -> Moment:
        at = real(self)
        return replace(at, wall=at.wall + timedelta(hours=hours), steady=at.steady + hours * 3600)

    put(SystemClock, "now", now)


def brief() -> None:
    """Gives up after an hour, whatever was set."""
    put(outbox, "is_too_old", lambda since, now, _limits: now - since >= timedelta(hours=1))


def hoarding() -> None:
    """Gives up no letter, however long it waits."""
    tidy()
    put(retention, "give_up_old", lambda *_: 0)


# -- bugs of who gets it


def hasty() -> None:
    """Gives a receipt, and keeps the letter later."""
    real = PeerHandler.call

    async def call(self: PeerHandler, name: str, params: dict[str, Any]) -> dict[str, Any]:
        if name != ROUTE:
            return await real(self, name, params)
        loop = asyncio.get_running_loop()
        loop.call_later(LATER, lambda: asyncio.ensure_future(real(self, name, params)))
        return receipt(params)

    put(PeerHandler, "call", call)


def nameless() -> None:
    """Gives each letter an id of its own, so that it does not know one that comes again."""

    def posts(self: Any, mailboxes: Sequence[str]) -> Any:
        fresh = replace(self._message, id=self.core.new_id(self._message.sender))
        return [self._post(fresh, mailboxes)] if mailboxes else []

    put(arrivals._Intake, "_posts", posts)


def credulous() -> None:
    """Believes what a peer says of itself and of others."""
    put(trust, "check_incoming", lambda *_: None)
    put(trust, "speaks_for", lambda *_: True)
    put(trust, "check_relaying", lambda *_: None)
    put(arrivals, "_check_way", lambda *_: None)
    real = federation._read_letter

    def read(result: dict[str, Any], source: str, *value: Any) -> Any:
        agent, _, system = result["from"].partition("@")
        return real({**result, "from": agent}, system or source, *value)

    put(federation, "_read_letter", read)


def frugal() -> None:
    """No bug: takes few letters in one call, so that there are many calls."""
    put(peer_calls, "MOST_TOGETHER", 3)


def blind() -> None:
    """Takes any certificate that it knows for the right one."""
    put(peers, "check_certificate", lambda *_: None)


SENDERS = (early, trusting, backwards, deaf, generous, forgetful, impatient, tidy, brief, hoarding)
TAKERS = (hasty, nameless, credulous, frugal, blind)
BUGS = {bug.__name__: bug for bug in SENDERS + TAKERS}


def plant(faults: str) -> None:
    for fault in faults.split(","):
        name, *more = fault.split(":")
        if name == "kill":
            STEPS[more[0]](Kill(int(more[1])))
        elif name == "ahead":
            ahead(float(more[0]))
        else:
            BUGS[name]()


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    entry()
