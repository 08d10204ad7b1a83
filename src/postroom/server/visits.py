"""Visits: who may look at the room through the dashboard, and whose process lends a visit the right to act.

    postroom dashboard                    the daemon                                the browser
    open_visit (over the socket)  ──────▶ a code: once, for a minute
                                          /dashboard/#code=…  ────────────────────▶ takes it out of the address
                                          a token, kept in memory alone  ◀───────── POST /dashboard/visit
    visit/asked  ◀─────────────────────── visit/act  ◀───────────────────────────── approve
    performs it with the person's key
    visit/answer  ──────────────────────▶ the result  ────────────────────────────▶ "Approved"

A visit looks at everything and writes nothing. It acts only while the process that opened it is there, which
performs the verb itself, as `postroom reply` would; so this one never holds a private key. Codes and tokens are
kept as hashes, in memory: they end with the daemon, and another program that takes its port gets nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from base64 import urlsafe_b64encode
from collections.abc import Callable
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.authorize import Principal
from ..errors import Busy, NotAllowed
from ..formats.errors import refused
from ..model.codec import token_hash
from .protocol import notification

if TYPE_CHECKING:
    from datetime import datetime

PREFIX = "pv_"  # begins the token of a visit
CODE_SECONDS = 60.0  # in which a code is good
IDLE_SECONDS = 12 * 3600.0  # without any use, after which a visit ends
ACT_SECONDS = 30.0  # for the answer of the process that acts
MAX_CODES = 100  # that are remembered, used ones too
MAX_VISITS = 100
MAX_ACTS = 100  # under way of one visit
AGAIN = "postroom dashboard opens another"
LOCK = "if it was not you: postroom dashboard --lock ends all visits"


Push: TypeAlias = Callable[[dict[str, Any]], bool]  # sends a notification; was it taken?


class Actor:
    """The connection of the process that acts for a visit, and the calls that it has not answered."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def perform(self, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        """Have the process carry out a verb; return its result, or raise its error."""
        number, busy = next(self._numbers), Busy("the process that acts for this page is busy", hint="try again")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        call = notification("visit/asked", {"call": number, "verb": verb, "params": params})
        if len(self._calls) >= MAX_ACTS or not self._push(call):
            raise busy
        self._calls[number] = answer
        try:
            async with asyncio.timeout(ACT_SECONDS):
                return await answer
        except TimeoutError:
            raise busy from None
        finally:
            del self._calls[number]

    def answer(self, number: int, result: dict[str, Any] | None, error: dict[str, Any] | None) -> None:
        future = self._calls.get(number)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(refused(str(error.get("message", "")), error.get("data") or {}))
        else:
            future.set_result(result or {})

    def close(self) -> None:
        gone = Busy("the process that acted for this page has ended", hint=f"{AGAIN}, and say it again there")
        for future in self._calls.values():
            if not future.done():
                future.set_exception(gone)


class Visit(Struct, eq=False, kw_only=True):
    """One person who looks, in any number of tabs."""

    person: str  # the mailbox as which it acts
    operator: bool  # whether its actor also does an operator's work
    principal: Principal  # its `visit` is the hash of the token
    actor: Actor | None = None
    used_at: float = 0.0  # by the loop's time
    # What ends a connection of this visit, and what sends it a notification, by its caller.
    tabs: dict[object, tuple[Callable[[], None], Push]] = field(default_factory=dict)

    @property
    def is_proven(self) -> bool:
        """Whether the person's key opened it."""
        return not self.principal.heeds_seals


class Code(Struct):
    """A code that opens a visit once."""

    visit: Visit
    until: float  # by the loop's time
    is_used: bool = False


class Visits:
    """The visits of a daemon. It is used on the thread of the event loop alone."""

    def __init__(self, started_at: datetime) -> None:
        self.url = ""  # where a browser reaches us; empty while HTTP is not served
        self._started_at = started_at
        self._codes: dict[str, Code] = {}  # by hash
        self._visits: dict[str, Visit] = {}  # by the hash of the token
        self._numbers = itertools.count(1)

    # -- opening

    def open(
        self, person: str, *, is_proven: bool, operator: bool = False, actor: Actor | None = None
    ) -> tuple[str, Visit]:
        """Return a code for a new visit. A visit that no person proved to want ends where agents have tokens."""
        if not self.url:
            raise NotAllowed("this post room serves no HTTP", hint="start it without --http off")
        principal = Principal(f"visit-{next(self._numbers)}", heeds_seals=not is_proven)
        visit = Visit(person=person, operator=operator, principal=principal, actor=actor)
        while len(self._codes) >= MAX_CODES:
            del self._codes[min(self._codes, key=lambda one: self._codes[one].visit.is_proven)]
        code = _secret()
        self._codes[token_hash(code)] = Code(visit, _now() + CODE_SECONDS)
        return code, visit

    def link(self, code: str) -> str:
        """Return the address that opens a visit; a browser sends nothing of what follows the #."""
        return f"{self.url}/dashboard/#code={code}"

    def enter(self, text: object) -> tuple[str, Visit]:
        """Return the token of the visit that a code opens."""
        code = self._codes.get(token_hash(text)) if isinstance(text, str) and text.isascii() else None
        if code is not None and code.is_used:
            raise NotAllowed("this link was opened before", field="code", hint=f"{AGAIN}; {LOCK}")
        if code is None or code.until < _now():
            raise NotAllowed("this link is unknown, or older than a minute", field="code", hint=AGAIN)
        if len(self._visits) >= MAX_VISITS:
            # Any process of this user opens unproven visits: those end no page that somebody looks at.
            least, last = min(
                ((one.is_proven, bool(one.tabs), one.used_at), key) for key, one in self._visits.items()
            )
            if not code.visit.is_proven and any(least[:2]):
                raise Busy("too many visits are open", hint=LOCK.partition(": ")[2])
            self._end(last)
        code.is_used = True
        token, visit = f"{PREFIX}{_secret()}", code.visit
        visit.principal = replace(visit.principal, visit=token_hash(token))
        visit.used_at = _now()
        self._visits[visit.principal.visit] = visit
        return token, visit

    # -- using

    def find(self, token: object) -> Visit:
        """Return the visit of a token, which is in use now."""
        return self._use(token_hash(token) if isinstance(token, str) and token.isascii() else "")

    def of(self, principal: Principal) -> Visit:
        """Return the visit of a caller, which is in use now."""
        return self._use(principal.visit)

    def _use(self, key: str) -> Visit:
        visit, now = self._visits.get(key), _now()
        if visit is None or now - visit.used_at > IDLE_SECONDS:
            self._end(key)
            raise NotAllowed("this visit is over", field="token", hint=AGAIN)
        visit.used_at = now
        return visit

    def describe(self, visit: Visit) -> dict[str, Any]:
        return {
            "person": visit.person,
            "acts": visit.actor is not None,
            "operator": visit.operator and visit.actor is not None,
            "proven": visit.is_proven,
            "started_at": self._started_at,
        }

    def shown(self, principal: Principal) -> dict[str, Any]:
        """Return the visit of a caller, as it is told of it."""
        return {"visit": self.describe(self.of(principal))}

    async def act(self, visit: Visit, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        """Have the process that opened a visit carry out a verb."""
        if visit.actor is None:
            raise NotAllowed("this page may only look now", field="visit", hint=f"to act: {AGAIN}")
        return await visit.actor.perform(verb, params)

    # -- tabs, and the end

    def join(self, principal: Principal, caller: object, expel: Callable[[], None], push: Push) -> None:
        """Register a connection; it is closed when the visit ends."""
        self.of(principal).tabs[caller] = (expel, push)

    def leave(self, caller: object) -> None:
        """Forget the connection of a tab, or of a process that acted."""
        for visit in self._visits.values():
            visit.tabs.pop(caller, None)

    def remove_actor(self, actor: Actor) -> None:
        """Note that a process that acted is gone: its visits only look from now on."""
        actor.close()
        for visit in (*self._visits.values(), *(code.visit for code in self._codes.values())):
            if visit.actor is actor:
                visit.actor = None
                for _, push in list(visit.tabs.values()):
                    push(notification("visit/changed", {"acts": False}))

    @property
    def count(self) -> int:
        return len(self._visits)

    def lock(self) -> int:
        """End all visits, and all codes; return how many visits there were."""
        ended = self.count
        self._codes.clear()
        for key in list(self._visits):
            self._end(key)
        return ended

    def _end(self, key: str) -> None:
        visit = self._visits.pop(key, None)
        for expel, _ in list(visit.tabs.values()) if visit else ():
            expel()


def _secret() -> str:
    return urlsafe_b64encode(token_bytes(32)).decode().rstrip("=")


def _now() -> float:
    return asyncio.get_running_loop().time()
