"""Webhooks: signed HTTP calls that notify a receiver of waiting mail.

`core.webhooks` decides when a webhook is called and what is tried again, and `policy.alerts` after which delays;
this module makes the calls. A call names the sender, subject and id of letters, never their content.

    Outcome          the meaning of an HTTP answer: delivered, gone, or try later
    WebhookClient    one call: resolve the host, check its addresses, sign, send, read the answer
    WebhookWorker    one webhook: wait for mail, call, record the outcome
    WebhookService   all webhooks of a running server, as they are added and removed
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .. import __version__
from ..core import webhooks
from ..core.authorize import NOTIFIER
from ..core.verb import perform
from ..errors import Missing, PostroomError
from ..formats.alerts import webhook_call
from ..model.webhook import read_target, signed_headers, why_not
from ..watcher import room_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from http.client import HTTPResponse

    from ..core.webhooks import DueCall
    from ..model.webhook import Webhook, WebhookTarget
    from ..server.executor import Executor


# -- answers
#
# Only the status line and one header of an answer count. No text of the receiver is stored or shown: a problem is
# described in our own words, with the status.

LONGEST_PAUSE = 3600.0  # seconds that a receiver may ask us to wait
_WAITING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a call."""

    status: int | None = None  # None: there was no answer
    problem: str = ""  # empty: the call was delivered
    pause: float | None = None  # seconds that the receiver asked us to wait

    @property
    def is_rung(self) -> bool:
        return not self.problem

    @property
    def is_gone(self) -> bool:
        """True if the receiver wants no more calls."""
        return self.status == HTTPStatus.GONE

    @property
    def is_final(self) -> bool:
        """True if the outcome also holds for the other calls that are due now."""
        return self.is_gone or self.pause is not None


def outcome_of(status: int, retry_after: str, now: datetime) -> Outcome:
    if 200 <= status < 300:
        return Outcome(status=status)
    phrase = {one.value: one.phrase for one in HTTPStatus}.get(status, "")
    problem = f"it answered {status} {phrase}".rstrip()
    if status < 400:
        problem = f"it answered {status}, which leads elsewhere; redirects are not followed"
    return Outcome(status=status, problem=problem, pause=_pause(retry_after, now) if status in _WAITING else None)


def _pause(text: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header, at most LONGEST_PAUSE; None if it cannot be read."""
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_PAUSE)


# -- one call
#
# The host is resolved once, every resolved address is checked, and one of these very addresses is connected to: a
# name that resolves to another address a moment later (DNS rebinding) gains nothing. No redirect is followed and
# no proxy is used. A call blocks, so it runs on a thread. The event loop breaks it off when its time is over: the
# timeout of a socket alone would let a receiver go on for ever, one byte at a time.

WHOLE = 10.0  # seconds for a call, from resolving to the answer
CONNECT = 5.0  # seconds of them for one address, and as many for its TLS
CLOSE_PATIENCE = 0.5  # seconds for the rest of an answer
MOST_CALLS = 16  # calls at once
LONGEST_BODY = 64 * 1024  # bytes of a body that are read and discarded

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class CallFailed(Exception):
    """A call that got no answer, with the reason in our own words."""


class CallConnection:
    """The connection of one call. A thread uses it; the event loop may break it off."""

    def __init__(self) -> None:
        self.answer: HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._is_broken = False

    def hold(self, made: socket.socket) -> None:
        """Take the socket, unless the call was broken off while it was made."""
        self._socket = made
        if self._is_broken:
            raise TimeoutError

    def break_off(self) -> None:
        self._is_broken = True
        if self._socket is not None:
            with suppress(OSError):  # it was closed meanwhile
                self._socket.shutdown(socket.SHUT_RDWR)  # not closed: the thread may be using its number

    def close(self) -> None:
        for used in (self.answer, self._socket):
            if used is not None:
                used.close()


class WebhookClient:
    """The HTTP client of all webhooks. Create it inside an event loop."""

    def __init__(
        self,
        resolve: Callable[..., list[Any]] = socket.getaddrinfo,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._resolve = resolve
        self._trust = trust
        self._slots = asyncio.Semaphore(MOST_CALLS)
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="postroom-push")

    def close(self) -> None:
        """Stop the threads without waiting for names that are still being resolved."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, webhook: Webhook, id: str, body: bytes, now: Callable[[], datetime]) -> Outcome:
        """Send a body, signed at the time of sending. Return the outcome; problems are never raised."""
        async with self._slots:
            at, line = now(), CallConnection()
            headers = signed_headers(webhook.secrets(at), id, int(at.timestamp()), body)
            try:
                answer = await self._in_time(WHOLE, line, self._post, webhook, headers, body)
            except TimeoutError:
                return Outcome(problem=f"there was no answer within {WHOLE:g} seconds")
            except CallFailed as failed:
                return Outcome(problem=str(failed))
            with suppress(TimeoutError):
                await self._in_time(CLOSE_PATIENCE, line, _read_rest, answer)
            return outcome_of(answer.status, answer.getheader("retry-after", ""), now())

    async def _in_time(self, seconds: float, line: CallConnection, step: Callable[..., Any], *args: Any) -> Any:
        """Carry out a step of a call on a thread. Where it fails, or is broken off, its connection is closed."""
        at_work = self._threads.submit(step, *args, line)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(at_work)
        except BaseException:
            line.break_off()
            at_work.add_done_callback(lambda _: line.close())
            raise

    def _post(
        self, webhook: Webhook, headers: Mapping[str, str], body: bytes, line: CallConnection
    ) -> HTTPResponse:
        target = read_target(webhook.url)
        connection = HTTPConnection(target.host)
        connection.sock = self._connect(target, line, allow_private=webhook.allow_private)
        try:
            send(connection, target, headers, body)
            line.answer = answer = connection.getresponse()
        except (OSError, HTTPException) as error:
            raise CallFailed(f"{target.host} broke off: {_error_text(error)}") from None
        if answer.status < 200:
            raise CallFailed(f"{target.host} broke off: its answer never came")
        return answer

    def _connect(self, target: WebhookTarget, line: CallConnection, *, allow_private: bool) -> socket.socket:
        """Connect to the first address that answers; all of them were checked before."""
        addresses, context = self._prepare(target, allow_private)
        why = CallFailed(f"{target.host} has no address")
        for family, address in addresses:
            made = socket.socket(family, socket.SOCK_STREAM)
            try:
                made.settimeout(CONNECT)
                self._dial(made, address)
                if context is not None:  # the certificate must be valid for the host
                    made = context.wrap_socket(made, server_hostname=target.host, do_handshake_on_connect=False)
                line.hold(made)
                if isinstance(made, ssl.SSLSocket):
                    made.do_handshake()
                made.settimeout(WHOLE)
            except OSError as failed:
                made.close()
                why = CallFailed(f"{target.host} cannot be reached: {_error_text(failed)}")
            else:
                return made
        raise why

    def _dial(self, made: socket.socket, address: tuple[Any, ...]) -> None:
        made.connect(address)

    def _prepare(self, target: WebhookTarget, allow_private: bool) -> tuple[list[Address], ssl.SSLContext | None]:
        """Return the addresses of a host, all checked, and the TLS context."""
        try:
            found = self._resolve(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as unknown:
            raise CallFailed(f"{target.host} has no address: {_error_text(unknown)}") from None
        addresses = [(family, address) for family, _, _, _, address in found]
        for _, address in addresses:
            if reason := why_not(target.host, address[0], allow_private=allow_private):
                raise CallFailed(reason)
        return addresses, self._trust() if target.scheme == "https" else None


def send(connection: HTTPConnection, target: WebhookTarget, headers: Mapping[str, str], body: bytes) -> None:
    """Send the HTTP request."""
    ours = {"Host": target.header, "User-Agent": f"postroom/{__version__}", "Content-Type": "application/json"}
    connection.request("POST", target.path, body, {**ours, **headers, "Connection": "close"})


def _read_rest(answer: HTTPResponse, line: CallConnection) -> None:
    """Read and discard the rest of the answer, so that the receiver is not cut off while it writes."""
    with closing(line), suppress(OSError, HTTPException):
        answer.read(LONGEST_BODY)


def _error_text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT:g} seconds"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {error.verify_message}"
    number = None if isinstance(error, ssl.SSLError) else getattr(error, "errno", None)
    if number is not None and number > 0:
        return os.strerror(number)  # asyncio's own message contains the address
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# -- one webhook
#
# Queries of the room run in the executor's threads; calls run in the event loop, one after the other per webhook.

log = logging.getLogger("postroom")
AGAIN = 5.0  # seconds to wait after the room could not be queried
RUNG, FAILED, DEAD = "rung", "failed", "dead"


class WebhookWorker:
    """The loop of one webhook. Create it inside an event loop. `webhook` may be replaced by its newer state."""

    def __init__(self, executor: Executor, webhook: Webhook, client: WebhookClient) -> None:
        self.webhook = webhook
        self._executor = executor
        self.core = executor.core
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._is_resumed = False
        self._quiet_until = 0.0  # loop time until which the receiver asked us to wait

    async def run(self) -> None:
        """Run until the webhook is switched off. Errors are logged, and the loop goes on."""
        with self._executor.listen([self.webhook.mailbox]) as mail_event:
            while self.webhook.is_on:
                await asyncio.sleep(self._quiet_until - self._loop.time())
                mail_event.clear()
                try:
                    nap = await self._look()
                except PostroomError as wrong:
                    log.warning("webhook %s could not look for mail: %s", self.webhook.id, wrong)
                    nap = self._restart()
                except Exception:  # the outer boundary of one webhook: the others must go on
                    log.exception("webhook %s failed by an error of ours", self.webhook.id)
                    nap = self._restart()
                await _sleep(mail_event, nap)

    def _restart(self) -> float:
        """Resume before the next call: it is unknown now which of the due calls were made."""
        self._is_resumed = False
        return AGAIN

    async def _look(self) -> float:
        """Make the calls that are due, interrupted ones first; return how long to sleep."""
        if not self._is_resumed:
            await self._run(webhooks.resume)
            self._is_resumed = True
        due: webhooks.DueCalls = await self._run(webhooks.due)
        outcome: Outcome | None = None
        for call in due.calls:
            if outcome is not None and outcome.is_final:
                # The answer to another call holds for this one, too.
                why, delay = f"not called, for {outcome.problem} to another call", outcome.pause or 0.0
                await self._run(webhooks.failed, call, why, delay=delay, chance=random.random(), was_tried=False)
            else:
                outcome = await self._call(call)
        return due.nap

    async def _call(self, call: DueCall) -> Outcome:
        body = webhook_call(self.webhook.mailbox, self.core.now().wall, call.unread, call.letters)
        outcome = await self._client.call(self.webhook, call.id, body, lambda: self.core.now().wall)
        if outcome.is_rung:
            done = webhooks.CallAnswered(agent_id=self.webhook.mailbox, webhook=self.webhook, call=call.id)
            await self._executor.run_slow(partial(perform, self.core, NOTIFIER, done))
            self._executor.counters.rang(self.webhook.id, RUNG)
            return outcome
        await self._fail(call, outcome)
        if outcome.is_gone:
            await self._switch_off(outcome)
        return outcome

    async def _fail(self, call: DueCall, outcome: Outcome) -> None:
        delay = outcome.pause or 0.0
        self._quiet_until = self._loop.time() + delay
        dead = await self._run(webhooks.failed, call, outcome.problem, delay=delay, chance=random.random())
        self._executor.counters.rang(self.webhook.id, DEAD if dead else FAILED)
        next_step = "given up; postroom rings shows it" if dead else "tried again later"
        host = read_target(self.webhook.url).host  # the path may be a secret
        log.warning("webhook %s at %s was not called: %s; %s", self.webhook.id, host, outcome.problem, next_step)

    async def _switch_off(self, outcome: Outcome) -> None:
        id = self.webhook.id
        with suppress(Missing):  # it was removed meanwhile
            off = webhooks.SwitchWebhook(id=id, off=outcome.problem)
            self.webhook = await self._executor.run_slow(partial(perform, self.core, NOTIFIER, off))
            log.warning(
                "webhook %s is off: %s; if that is over: postroom webhooks test %s", id, outcome.problem, id
            )

    async def _run(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._executor.run_slow(partial(verb, self.core, NOTIFIER, self.webhook, *args, **kwargs))


async def _sleep(notified: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await notified.wait()


# -- all webhooks

PACE = 1.0  # least seconds between two checks for new webhooks: every commit notifies us
LOOK = 60.0  # most seconds between two checks, without a notification


class WebhookService:
    """One worker for each webhook that is on. Create it inside an event loop."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._client: WebhookClient | None = None
        self._workers: dict[str, tuple[WebhookWorker, asyncio.Future[None]]] = {}

    async def run(self) -> None:
        """Start and stop workers as webhooks come and go, until cancelled."""
        try:
            while True:
                changed = asyncio.Event()
                with room_watch(self._executor.core, changed.set):
                    if await self._look():
                        await _sleep(changed, LOOK)
                await asyncio.sleep(PACE)  # nothing listens now, so a busy room costs nothing
        finally:
            await self._stop()

    async def _look(self) -> bool:
        """Update the workers; return whether the room could be queried."""
        try:
            found = await self._executor.run_slow(partial(webhooks.all_webhooks, self._executor.core))
        except Exception as wrong:  # the outer boundary of the service: it tries again
            log.warning("webhooks could not be read: %s", wrong, exc_info=not isinstance(wrong, PostroomError))
            return False
        self._sync({webhook.id: webhook for webhook in found if webhook.is_on})
        return True

    def _sync(self, wanted: dict[str, Webhook]) -> None:
        """Make the workers match these webhooks. A worker that ended is started again if its webhook is on."""
        for id, (worker, task) in list(self._workers.items()):
            if id in wanted and not task.done() and worker.webhook.mailbox == wanted[id].mailbox:
                worker.webhook = wanted[id]
            else:
                task.cancel()
                del self._workers[id]
        for id in wanted.keys() - self._workers.keys():
            self._begin(wanted[id])

    def _begin(self, webhook: Webhook) -> None:
        self._client = self._client or WebhookClient()
        worker = WebhookWorker(self._executor, webhook, self._client)
        self._workers[webhook.id] = worker, asyncio.ensure_future(worker.run())

    async def _stop(self) -> None:
        tasks = [task for _, task in self._workers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._client is not None:
            self._client.close()
