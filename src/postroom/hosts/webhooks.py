"""Rings that leave the room: a signed call to whoever asked for it, or a note on the desktop.

When somebody is rung, how often and what is tried again is decided in `service.ringing`; this room only carries
it out. It refuses to know how mail is kept, and says nothing of a letter but who wrote it, its subject and its id.
Above it stand the daemon and the command line; below it are the desk and the service. Nothing here is loaded where
nobody asked for it.

    notice     what a ring says, as JSON and as words
    calling    one call: looked up once, checked, signed, sent, its answer read and forgotten
    answers    what an answer means: rung, gone, later
    ringer     one webhook, for ever: wait, ring, tell what came of it
    pusher     all webhooks of a running post room, as they come and go
    desktop    a note on the screen, by the program that the system has for it
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .. import __version__
from ..core import webhooks
from ..core.authorize import OWNER
from ..core.presentation import harmless_json
from ..errors import Missing, PostroomError
from ..model.codec import encode
from ..model.webhook import read_target, signed_headers
from ..policy.trust import why_not
from ..store.notification import ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ..core.webhooks import DueCall
    from ..model.alert import RungLetter
    from ..model.webhook import Target, Webhook
    from ..server.executor import Executor
    from ..store.protocol import Watch


# What the answer to a call means. Only its first line and one header count; the rest is thrown away.
#
# No text of the other side is kept or shown: what went wrong is told in our own words, with its number.

LONGEST_PAUSE = 3600.0  # seconds that the other side may ask us to wait
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")
_WAITING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of a call."""

    status: int | None = None  # None: there was no answer
    problem: str = ""  # empty: it was rung
    pause: float | None = None  # seconds that were asked for before the next try

    @property
    def is_rung(self) -> bool:
        return not self.problem

    @property
    def is_gone(self) -> bool:
        """Does nobody want to be called there any more?"""
        return self.status == HTTPStatus.GONE

    @property
    def is_final(self) -> bool:
        """Is it an answer to whatever else was to be said just now?"""
        return self.is_gone or self.pause is not None


def status_of(line: bytes) -> int | None:
    """The number in the first line of an answer; None: it is no such line."""
    found = _STATUS.fullmatch(line)
    return None if found is None else int(found[1])


def outcome_of(status: int, headers: Mapping[str, str], now: datetime) -> Outcome:
    if 200 <= status < 300:
        return Outcome(status=status)
    pause = _pause(headers.get("retry-after", ""), now) if status in _WAITING else None
    return Outcome(status=status, problem=_told(status), pause=pause)


def _told(status: int) -> str:
    if 300 <= status < 400:
        return f"it answered {status}, which leads elsewhere; redirects are not followed"
    words = {one.value: one.phrase for one in HTTPStatus}
    return f"it answered {status} {words.get(status, '')}".rstrip()


def _pause(text: str, now: datetime) -> float | None:
    """Seconds, or a time, as the other side said it; within bounds. What cannot be read was not said."""
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_PAUSE)


# What a ring says: who wrote, about what, how urgent, and by which id it is found. Never what a letter says.
#
# Sender and subject are words of whoever wrote the letter. In JSON they stand as values, cut to a length; a
# receiver
# treats them as it would any stranger's text.

WAITING = "mail.waiting"  # unread mail, which was not told of before or is urgent
TEST = "mail.test"  # somebody tries a webhook out
MOST_NAMED = 50  # letters that are named; the rest is counted
LONGEST_SUBJECT = 200


def waiting(mailbox: str, at: datetime, unread: int, letters: Sequence[RungLetter]) -> bytes:
    """The body of a call: a pointer to what waits."""
    result = {
        "type": WAITING,
        "timestamp": at,
        "mailbox": mailbox,
        "unread": unread,
        "letters": [_letter(letter) for letter in letters[:MOST_NAMED]],
        "more": max(0, len(letters) - MOST_NAMED),
    }
    return harmless_json(encode(result))


def trial(mailbox: str, at: datetime) -> bytes:
    """The body of a call that only asks whether calls arrive. It is shaped like the others."""
    return encode({"type": TEST, "timestamp": at, "mailbox": mailbox, "unread": 0, "letters": [], "more": 0})


def _letter(letter: RungLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": letter.sender,
        "verified": letter.proven,
        "subject": letter.subject[:LONGEST_SUBJECT],
        "priority": letter.priority.name.lower(),
        "thread": letter.thread,
    }


# One call of a webhook. The host is looked up once; every address that comes of it is checked; one of these very
# addresses is connected to. So a name that leads elsewhere a moment later leads nowhere.
#
# No redirect is followed and no proxy is asked. Each call has its time as a whole, and as much of an answer is
# read
# as it needs. It all happens in the event loop but for two things that cannot: to look a name up, and to read the
# machine's authorities. They have threads of their own, a bounded number of them.

WHOLE = 10.0  # seconds for a call, from the name to the answer
CONNECT = 5.0  # seconds of them for one address, TLS included
FAREWELL = 0.5  # seconds for the rest of an answer, and for an orderly end
MOST_CALLS = 16  # calls at once
LONGEST_HEAD = 16 * 1024  # bytes of an answer's lines
LONGEST_BODY = 64 * 1024  # bytes that are read to be thrown away
MOST_LINES = 100

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class NotCalled(Exception):
    """Nothing came of a call; why, in our own words."""


class Telephone:
    """Made inside an event loop."""

    def __init__(
        self,
        look_up: Callable[..., list[Any]] = socket.getaddrinfo,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._look_up = look_up
        self._trust = trust
        self._lines = asyncio.Semaphore(MOST_CALLS)
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="postroom-push")

    def close(self) -> None:
        """Names that are still looked up are nobody's affair any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, webhook: Webhook, id: str, body: bytes, now: Callable[[], datetime]) -> Outcome:
        """Say this there, signed in the moment in which it is said. What goes wrong is told, never raised."""
        async with self._lines:
            at = now()
            headers = signed_headers(webhook.secrets(at), id, int(at.timestamp()), body)
            try:
                async with asyncio.timeout(WHOLE):
                    status, result = await self._say(webhook, headers, body)
            except TimeoutError:
                return Outcome(problem=f"there was no answer within {WHOLE:g} seconds")
            except NotCalled as failed:
                return Outcome(problem=str(failed))
            return outcome_of(status, result, now())

    async def _say(self, webhook: Webhook, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        target = read_target(webhook.url)
        reader, writer = await self._connect(target, allow_private=webhook.allow_private)
        try:
            writer.write(request_of(target, headers, body))
            await writer.drain()
            status, result = await _read_head(reader)
            await _hear_out(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError) as broken:
            raise NotCalled(f"{target.host} broke off: {_words(broken)}") from None
        finally:
            await _hang_up(writer)
        return status, result

    async def _connect(
        self, target: Target, *, allow_private: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first that answers, of the addresses that were checked; all of them were."""
        addresses, context = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._prepare, target, allow_private
        )
        why: Exception = NotCalled(f"{target.host} has no address")
        for family, address in addresses:
            try:
                async with asyncio.timeout(CONNECT):
                    return await self._open(family, address, target.host, context)
            except (OSError, TimeoutError) as failed:
                why = NotCalled(f"{target.host} cannot be reached: {_words(failed)}")
        raise why

    async def _open(
        self, family: socket.AddressFamily, address: tuple[Any, ...], host: str, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To this very address; with TLS it must prove to be this host."""
        plain = await self._dial(family, address)
        try:
            name = None if context is None else host
            return await asyncio.open_connection(sock=plain, ssl=context, server_hostname=name, limit=LONGEST_HEAD)
        except BaseException:
            plain.close()
            raise

    async def _dial(self, family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            await asyncio.get_running_loop().sock_connect(plain, address)
        except BaseException:
            plain.close()
            raise
        return plain

    def _prepare(self, target: Target, allow_private: bool) -> tuple[list[Address], ssl.SSLContext | None]:
        """On a thread: the addresses of a host, all of which may be called; and whom to trust there."""
        try:
            found = self._look_up(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as unknown:
            raise NotCalled(f"{target.host} has no address: {_words(unknown)}") from None
        addresses = [(family, address) for family, _, _, _, address in found]
        for _, address in addresses:
            if result := why_not(target.host, address[0], allow_private=allow_private):
                raise NotCalled(result)
        return addresses, self._trust() if target.scheme == "https" else None


def request_of(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """All of it is made of checked pieces: a target, numbers, base64."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.header}",
        f"User-Agent: postroom/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The number of the answer, and its headers. What only says that the answer comes is passed over."""
    left = LONGEST_HEAD
    for _ in range(3):
        lines: list[bytes] = []
        while line := (raw := await reader.readline()).rstrip(b"\r\n"):
            lines.append(line)
            left -= len(raw)
            if left < 0 or len(lines) > MOST_LINES:
                raise ValueError("its answer has no end")
        if not lines:
            raise ValueError("it said nothing")
        status = status_of(lines[0])
        if status is None:
            raise ValueError("its answer is no HTTP")
        if status >= 200:
            return status, _headers(lines[1:])
    raise ValueError("its answer never came")


def _headers(lines: list[bytes]) -> dict[str, str]:
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _hear_out(reader: asyncio.StreamReader) -> None:
    """So that who answers is not cut off in the middle of it. What is said does not matter any more."""
    left = LONGEST_BODY
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(FAREWELL):
            while left > 0 and (piece := await reader.read(left)):
                left -= len(piece)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(FAREWELL):
            await writer.wait_closed()
    writer.transport.abort()


def _words(broken: BaseException) -> str:
    if isinstance(broken, TimeoutError):
        return f"no connection within {CONNECT:g} seconds"
    if isinstance(broken, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {broken.verify_message}"
    number = None if isinstance(broken, ssl.SSLError) else getattr(broken, "errno", None)
    if number is not None and number > 0:
        return os.strerror(number)  # asyncio has words of its own, with the address in them
    return getattr(broken, "strerror", None) or str(broken) or type(broken).__name__


# One webhook, for ever: look, call, say what came of it, sleep until mail comes or it is time to try again.
#
# Nothing waits on the event loop. What the room is asked is asked on the desk's slow threads; calls are made by
# the
# loop itself, one after the other for one webhook.

log = logging.getLogger("postroom")
AGAIN = 5.0  # seconds after the room could not be asked
RUNG, FAILED, DEAD = "rung", "failed", "dead"


class Ringer:
    """Made inside an event loop. `webhook` may be replaced by a newer state of the same."""

    def __init__(self, executor: Executor, webhook: Webhook, telephone: Telephone) -> None:
        self.webhook = webhook
        self._executor = executor
        self._core = executor.room._core
        self._telephone = telephone
        self._loop = asyncio.get_running_loop()
        self._is_begun = False
        self._quiet_until = 0.0  # who was called asked us to wait

    async def run(self) -> None:
        """Until it is switched off. What goes wrong is logged, and tried again."""
        with self._executor.listen([self.webhook.mailbox]) as bell:
            while self.webhook.is_on:
                await asyncio.sleep(self._quiet_until - self._loop.time())
                bell.clear()
                try:
                    nap = await self._look()
                except PostroomError as wrong:
                    log.warning("webhook %s could not look for mail: %s", self.webhook.id, wrong)
                    nap = self._begin_anew()
                except BaseException as fault:
                    if not isinstance(fault, Exception):
                        raise
                    log.exception("webhook %s stopped by a fault of ours", self.webhook.id)
                    nap = self._begin_anew()
                await _sleep(bell, nap)

    def _begin_anew(self) -> float:
        """Of calls that were to be made nobody knows now whether they were."""
        self._is_begun = False
        return AGAIN

    async def _look(self) -> float:
        """Make the calls that are due; how long to sleep then. What was under way before goes first."""
        if not self._is_begun:
            await self._ask(webhooks.resume)
            self._is_begun = True
        due: webhooks.Due = await self._ask(webhooks.due)
        outcome: Outcome | None = None
        for call in due.calls:
            if outcome is not None and outcome.is_final:
                await self._put_off(call, outcome)
            else:
                outcome = await self._make(call)
        return due.nap

    async def _make(self, call: DueCall) -> Outcome:
        body = waiting(self.webhook.mailbox, self._core.now().wall, call.unread, call.letters)
        outcome = await self._telephone.call(self.webhook, call.id, body, lambda: self._core.now().wall)
        if outcome.is_rung:
            await self._ask(webhooks.answered, call.id)
            self._executor.counters.rang(self.webhook.id, RUNG)
            return outcome
        await self._fail(call, outcome)
        if outcome.is_gone:
            await self._switch_off(outcome)
        return outcome

    async def _put_off(self, call: DueCall, outcome: Outcome) -> None:
        """Not made now: what was answered to another call holds for this one, too."""
        why = f"not called, for {outcome.problem} to another call"
        request = outcome.pause or 0.0
        await self._ask(webhooks.failed, call, why, delay=request, chance=random.random(), was_tried=False)

    async def _fail(self, call: DueCall, outcome: Outcome) -> None:
        request = outcome.pause or 0.0
        self._quiet_until = self._loop.time() + request
        dead = await self._ask(webhooks.failed, call, outcome.problem, delay=request, chance=random.random())
        self._executor.counters.rang(self.webhook.id, DEAD if dead else FAILED)
        result = "given up; postroom rings shows it" if dead else "tried again later"
        host = read_target(self.webhook.url).host  # of its path it may be that it is a secret
        log.warning("webhook %s at %s was not rung: %s; %s", self.webhook.id, host, outcome.problem, result)

    async def _switch_off(self, outcome: Outcome) -> None:
        id = self.webhook.id
        with suppress(Missing):  # it was removed meanwhile
            off = partial(webhooks.switch_off, self._core, OWNER, id, outcome.problem)
            self.webhook = await self._executor.run_slow(off)
            log.warning(
                "webhook %s is off: %s; if that is over: postroom webhook test %s", id, outcome.problem, id
            )

    async def _ask(self, question: Callable[..., Any], *value: Any, **more: Any) -> Any:
        return await self._executor.run_slow(partial(question, self._core, OWNER, self.webhook, *value, **more))


async def _sleep(bell: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()


# All webhooks of a running post room, as they come and go: one ringer for each that is on.
#
# A bell says that something was written in the room; then we look whether there is another webhook, once in a
# while
# and no more often. Until there is one, nothing else of this room is loaded.

PACE = 1.0  # seconds between two looks at most: every letter rings, too
LOOK = 60.0  # seconds without a bell


class Pusher:
    """Made inside an event loop."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._store = executor.room._core.store
        self._telephone: Telephone | None = None
        self._ringers: dict[str, tuple[Ringer, asyncio.Future[None]]] = {}

    async def run(self) -> None:
        """For ever."""
        watch = self._store.watch((ROOM,))
        try:
            while True:
                has_looked = await self._look()
                await asyncio.sleep(PACE)
                if has_looked:
                    await _rung(watch)
        finally:
            watch.close()
            await self._stop()

    async def _look(self) -> bool:
        """Whether the room could be asked."""
        try:
            found = await self._executor.run_slow(partial(webhooks.all_webhooks, self._executor.room._core))
        except BaseException as wrong:
            if not isinstance(wrong, Exception):
                raise
            log.warning(
                "webhooks could not be looked at: %s", wrong, exc_info=not isinstance(wrong, PostroomError)
            )
            return False
        self._sync({webhook.id: webhook for webhook in found if webhook.is_on})
        return True

    def _sync(self, wanted: dict[str, Webhook]) -> None:
        """A ringer for each, as it is now. One that ended is begun anew when its webhook is on."""
        for id, (ringer, task) in list(self._ringers.items()):
            if id in wanted and not task.done() and ringer.webhook.mailbox == wanted[id].mailbox:
                ringer.webhook = wanted[id]
            else:
                task.cancel()
                del self._ringers[id]
        for id in wanted.keys() - self._ringers.keys():
            self._begin(wanted[id])

    def _begin(self, webhook: Webhook) -> None:

        self._telephone = self._telephone or Telephone()
        ringer = Ringer(self._executor, webhook, self._telephone)
        self._ringers[webhook.id] = ringer, asyncio.ensure_future(ringer.run())

    async def _stop(self) -> None:
        tasks = [task for _, task in self._ringers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._telephone is not None:
            self._telephone.close()


async def _rung(watch: Watch) -> None:
    """Until something was written. Between two looks nobody listens: a busy room costs nothing then."""
    if watch.fileno() < 0:
        return
    loop, rang = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watch.fileno(), rang.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await rang.wait()
    finally:
        loop.remove_reader(watch.fileno())
        watch.rung()
