"""A caller over a transport: who it is, what it may do, and its subscriptions.

It stands between the transports, which read and write, and the executor, which carries out calls. Every call is
checked again when it is carried out: a token may have been revoked since it was shown, or made for an agent as
which a caller without a token acts. Bytes are not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from ..core import tokens
from ..core.authorize import RULES, SOCKET, authorize
from ..core.proof import prove_request
from ..core.verb import authorised, checked_mailbox, from_params, set_parameters
from ..errors import Invalid, NotAllowed, PostroomError, StoreFailing, TooLarge
from ..model.codec import encode
from ..store.sqlite.connection import NO_FILES, NO_FILES_HINT
from .executor import INTERNAL
from .protocol import Call, find_verb, is_alone
from .requests import Schedule, SessionVerb, in_json
from .visits import CODE_SECONDS, PREFIX, Actor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.authorize import Principal
    from ..core.verb import Verb
    from .broker import Broker
    from .executor import Executor
    from .protocol import Batch, Request
    from .requests import LockVisits, OpenVisit
    from .visits import Push


log = logging.getLogger("postroom")
MAX_BATCH_BYTES = 16 * 1024 * 1024  # of replies to one batch; one reply more at most
_BATCH_TOO_LARGE = TooLarge(
    "the replies to this batch are too large; this call was not carried out", hint="send this call alone"
)


class Caller:
    """One caller, for as long as its connection or request lasts.

    `push` sends a notification and returns whether it was taken; `resume` is called when there is room again.
    Without `push` the caller cannot subscribe. `expel` is called when its token is revoked; a caller of
    one request needs none, since each call checks the token.
    """

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        *,
        push: Push | None = None,
        expel: Callable[[], None] | None = None,
        principal: Principal = SOCKET,
    ) -> None:
        self.executor = executor
        self.broker = broker
        self._push = push
        self._expel = expel
        self.principal = principal
        self._waits: set[asyncio.Future[Any]] = set()  # calls that wait for mail
        self._has_new_subscription = False  # whose confirmation was not sent yet
        self._has_left = False
        self.actor: Actor | None = None  # made when this connection first lends its authority to a visit
        self._watch_token()

    # -- calls

    def carry_out(self, request: Request) -> asyncio.Future[Any]:
        """Carry out a request and return its future reply, which is None for notifications."""
        if isinstance(request, list):
            return asyncio.ensure_future(self._carry_out_batch(request))
        return self._begin(request) if isinstance(request, Call) else replied(request or None)

    async def _carry_out_batch(self, batch: Batch) -> Any:
        """Carry out the calls of a batch one after the other until the replies are too large.
        Return the replies.
        """
        replies, size = list[Any](), 0
        for call in batch:
            if not isinstance(call, Call):
                replies.append(call)
            elif size < MAX_BATCH_BYTES:
                reply = await _settled(self._begin(call))
                size += memoryview(reply).nbytes if isinstance(reply, Raw) else 0
                replies.append(reply)
            else:
                replies.append(_reply(call, _BATCH_TOO_LARGE, None))
        return [reply for reply in replies if reply] or None

    def _begin(self, call: Call) -> asyncio.Future[Any]:
        request, kind = call.request, call.schedule
        if isinstance(request, SessionVerb):  # at once: no other call of this caller is under way
            return asyncio.ensure_future(self._serve_session(call, request))
        if kind is Schedule.WAIT and self._has_left:  # do not hand out a letter that nobody receives
            return replied(None)
        run = partial(self._run_checked, request)
        if kind in (Schedule.MANY, Schedule.SLOW, Schedule.LARGE):
            run = partial(_encode_answer, call, run)
        done = self.executor.carry_out(request, run, self, partial(self._finish, call), kind)
        if kind is Schedule.WAIT:
            self._waits.add(done)
            done.add_done_callback(self._waits.discard)
        return done

    async def _serve_session(self, call: Call, request: SessionVerb) -> Any:
        """Carry out a call about the connection, and return its reply."""
        try:
            if RULES[request.declaration().action] != "anyone":
                await self.executor.submit(partial(self._check_may, request))
            result = request.serve(self)
            return _reply(call, None, await result if asyncio.iscoroutine(result) else result)
        except PostroomError as refused:
            return _reply(call, refused, None)

    def _check_may(self, request: Verb) -> None:
        """Raise NotAllowed unless the caller may make a request about its connection; on a thread."""
        core = self.executor.core
        authorised(core, tokens.effective_principal(core, self.principal), request)

    def _run_checked(self, request: Verb) -> Any:
        """Carry out a request if the caller may still make it; on a thread."""
        core, token = self.executor.core, self.principal.token
        if token is not None and tokens.live_token(core, token) is None:
            raise NotAllowed("this token is not valid any more", field="token")
        principal = tokens.effective_principal(core, self.principal, request.acting())
        look = authorised(core, principal, request)
        return self.executor.shared_looks.result(request, look) if request.declaration().shared else look()

    def _finish(self, call: Call, error: BaseException | None, result: Any) -> Any:
        """Return the reply to a call that is over, and record that its agent is active."""
        if error is None:
            self._note_success(call.request)
        return _reply(call, error, result)

    def _note_success(self, request: Verb) -> None:
        declaration = request.declaration()
        if declaration.action in {"register", "heartbeat"}:  # the agent itself sets its status
            self.executor.forget_activity()
        elif request.whose is not None and not self.principal.visit:  # who is looked at does nothing
            self.executor.note_activity(self.principal.agent or request.acting())
        if declaration.name == "emit":  # only now: a job may run twice, or fail
            agent = self.principal.agent or request.acting()
            event = {"scope": self.executor.core.default_scope} | set_parameters(request)
            self.broker.publish(event, agent or tokens.OPERATOR)

    async def call(self, name: str, params: Mapping[str, Any]) -> Any:
        """Carry out a verb by its name."""
        return await self.make(from_params(find_verb(name), params))

    async def make(self, request: Verb) -> Any:
        """Carry out a request and return its result as JSON."""
        result = await self.executor.carry_out(request, partial(self._run_checked, request), self)
        self._note_success(request)
        return result

    # -- the session

    async def authenticate(self, token: str) -> dict[str, Any]:
        if self._push is None:
            text = "a token is shown in the header of the request, and nowhere else"
            raise Invalid(text, field="method", hint="Authorization: Bearer pr_...")
        if token.startswith(PREFIX):
            self.become(self.executor.visits.find(token).principal)
            return {"agent_id": None, "scopes": ["look"], **self.executor.visits.shown(self.principal)}
        principal: Principal = await self.executor.read(tokens.authenticate, self.executor.core, token)
        self.become(principal)
        scopes = [tokens.OPERATOR] if principal.operator else sorted(principal.scopes or ())
        return {"agent_id": principal.agent, "scopes": scopes}

    def become(self, principal: Principal) -> None:
        """Act as another principal from now on: the caller has authenticated again."""
        self.principal = principal
        self.broker.update_rights(self)
        self._watch_token()

    async def subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        push, principal = self.pusher("use the socket, a WebSocket or SSE"), await self.current_principal()
        authorize(principal, "wait", principal.agent)  # which events it may see is decided for each
        self._has_new_subscription = True
        result = await self.broker.subscribe(self, push, params)
        if self._has_left:
            self.broker.forget(self)
        return result

    async def current_principal(self) -> Principal:
        """Return what the caller may do now."""
        core = self.executor.core
        found: Principal = await self.executor.read(tokens.effective_principal, core, self.principal)
        return found

    def pusher(self, hint: str) -> Push:
        """Return what sends the caller a notification."""
        if self._push is None:
            raise Invalid("nothing can be sent to this caller later", hint=hint)
        return self._push

    # -- visits of the dashboard

    async def open_visit(self, request: OpenVisit) -> dict[str, Any]:
        """Return a link that opens a visit; with `lends`, this connection carries out what is done in it."""
        visits, core = self.executor.visits, self.executor.core
        is_proven = await self._check_host(request)
        person = checked_mailbox(core, request.agent_id)
        if request.lends and self.actor is None:
            self.actor = Actor(self.pusher("use the socket"))
        actor = self.actor if request.lends else None
        code, _ = visits.open(person, is_proven=is_proven, operator=request.operator, actor=actor)
        return {"code": code, "link": visits.link(code), "seconds": CODE_SECONDS}

    async def lock_visits(self, request: LockVisits) -> dict[str, Any]:
        await self._check_host(request)
        return {"ended": self.executor.visits.lock()}

    async def _check_host(self, request: Verb) -> bool:
        """Raise NotAllowed unless the caller may open visits; return whether a person proved to want it."""
        name, core = request.declaration().name, self.executor.core
        if request.proof is not None:
            proven = partial(prove_request, core, self.principal, name, request.proof)
            return (await self.executor.submit(proven)).proven is not None
        try:
            authorize(await self.current_principal(), "room")
        except NotAllowed:
            hint = "postroom dashboard, at your own terminal; or an operator's token"
            raise NotAllowed(
                "only a person with a key, or an operator, opens the dashboard here", hint=hint
            ) from None
        return False

    @property
    def subscriptions(self) -> int:
        return self.broker.count(self)

    def has(self, subscription: str) -> bool:
        return self.broker.has(self, subscription)

    def unsubscribe(self, id: str) -> dict[str, Any]:
        return self.broker.unsubscribe(self, id)

    def resume(self) -> None:
        """Go on sending events: the transport has room again."""
        self.broker.resume(self)

    def replies_sent(self) -> None:
        """Start new subscriptions: their confirmation was sent, and events may follow it."""
        if self._has_new_subscription:
            self._has_new_subscription = False
            self.broker.resume(self)

    def close(self) -> None:
        """End the subscriptions and waits of a caller that is gone; its other calls are still carried out."""
        self.executor.visits.leave(self)
        self.broker.flow.forget(self)
        if self.actor is not None:
            self.executor.visits.remove_actor(self.actor)
        self.broker.forget(self)
        self.give_up()

    def give_up(self) -> None:
        """Cancel all waits for mail, now and later: the caller reads no answers any more."""
        self._has_left = True
        for wait in list(self._waits):
            wait.cancel()

    def _watch_token(self) -> None:
        if self._expel is not None and self.principal.token is not None:
            self.broker.watch_token(self, self.principal, self._expel)
        if self._expel is not None and self._push is not None and self.principal.visit:
            self.executor.visits.join(self.principal, self, self._expel, self._push)


class PrincipalCalls:
    """Calls of verbs for principals that were authenticated before; each call checks that they still may."""

    def __init__(self, executor: Executor, broker: Broker) -> None:
        self._executor = executor
        self._broker = broker

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any]) -> Any:
        return await Caller(self._executor, self._broker, principal=principal).call(name, params)


def replied(reply: Any) -> asyncio.Future[Any]:
    """Return the future of a reply that is known already."""
    done = asyncio.get_running_loop().create_future()
    done.set_result(reply)
    return done


async def _settled(reply: asyncio.Future[Any]) -> Any:
    """Wait for a reply; None if its call was given up."""
    try:
        await asyncio.wait([reply])
    except asyncio.CancelledError:
        reply.cancel()
        raise
    return None if reply.cancelled() else reply.result()


def _encode_answer(call: Call, run: Callable[[], Any]) -> Raw:
    """Carry out a call with a large answer and encode it on the same thread: the loop's thread serves others."""
    return Raw(encode(call.answer(in_json(call.request, run()))))


def _reply(call: Call, error: BaseException | None, result: Any) -> Any:
    """Return the reply to a call that is over; None if it gets none."""
    if call.is_notification:
        return None
    if error is None:
        return result if isinstance(result, Raw) else call.answer(result)
    if isinstance(error, PostroomError):
        return call.refuse(error)
    if isinstance(error, OSError) and error.errno in NO_FILES:  # maybe for a module that is imported late
        return call.refuse(StoreFailing("no more files can be opened", hint=NO_FILES_HINT))
    log.error("%s failed because of a bug", call.name, exc_info=error)
    return call.refuse(PostroomError(INTERNAL))


# -- connections

TURN = 8  # requests of one client that are begun in a row; then others get their turn
MAX_PENDING = 16  # requests of one client that are under way at once
LARGE = 64 * 1024  # bytes; a longer request may be many times as large in memory, so it is carried out alone


class RequestCaller(Protocol):
    """The object that carries out the requests of a connection: a `Caller`, or a MAP connection."""

    def carry_out(self, request: Request) -> asyncio.Future[Any]: ...
    def replies_sent(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Connection:
    """A connection that stays, over the Unix socket or WebSocket: its requests are begun in their order, and their
    replies sent in that order, with notifications between them.

    Requests with small replies are under way a few at once, others alone. A client that does not read is not read
    from either. So what waits in memory for one client stays bounded.
    """

    caller: RequestCaller

    def __init__(self, executor: Executor) -> None:
        self._loop = asyncio.get_running_loop()
        self._long_requests = executor.long_requests
        self._messages: deque[Any] = deque()  # that were not looked at yet; None: one that was too long
        self._next: Request | None = None  # the request that was looked at, but has no room yet
        self._next_alone = self._next_long = False
        self._replies: deque[asyncio.Future[Any]] = deque()  # that are due, in the order of the requests
        self._is_alone = False  # is a request under way that nothing may overtake?
        self._is_resting = False  # has it had its turn, until the next round of the loop?

    # -- of a transport

    def _parse(self, message: Any) -> Request | None:
        """Return the request in a message; None if it asks for nothing."""
        raise NotImplementedError

    def _send(self, replies: list[bytes]) -> None:
        raise NotImplementedError

    @property
    def _is_full(self) -> bool:
        """Whether the client has to read before more is sent."""
        raise NotImplementedError

    def _drained(self) -> None:
        """Go on reading: all messages that came were begun."""
        raise NotImplementedError

    # -- requests

    def begin_requests(self) -> None:
        """Begin the requests of the client that may begin, TURN of them at most before others get their turn."""
        if self._is_resting:
            return
        for _ in range(TURN):
            if self._next is None and not (self._messages and self._look_at_next()):
                break
            if self._next is not None:
                if not self._has_room():
                    break
                request, self._next, self._is_alone = self._next, None, self._next_alone
                reply = self.caller.carry_out(request)
                self._replies.append(reply)
                reply.add_done_callback(self._send_replies)
                if self._next_long:
                    reply.add_done_callback(self._long_requests.leave)
        else:
            self._rest()
            return
        if not self._messages and self._next is None:
            self._drained()

    def _rest(self) -> None:
        """Begin nothing more until others had their turn."""
        if not self._is_resting:
            self._is_resting = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_resting = False
        self.begin_requests()

    def _look_at_next(self) -> bool:
        """Parse the next message. Return False if it is long, and its turn has not come."""
        message = self._messages[0]
        is_long = message is not None and len(message) > LARGE
        if is_long and (self._replies or not self._long_requests.enter(self.begin_requests)):
            return False
        self._messages.popleft()
        self._next, self._next_long = self._parse(message), is_long
        if self._next is not None:
            self._next_alone = is_long or is_alone(self._next)
        elif is_long:
            self._long_requests.leave()
        return True

    def _has_room(self) -> bool:
        """Return whether the next request may be begun. One that is alone overtakes nothing, and nothing overtakes
        it.
        """
        if self._is_full or not self._replies:
            return not self._is_full
        return not (self._is_alone or self._next_alone) and len(self._replies) < MAX_PENDING

    def _send_replies(self, _: object) -> None:
        """Send the replies that are there, up to the first that is not, and begin what waited for them."""
        ready = list[bytes]()
        while self._replies and self._replies[0].done():
            future = self._replies.popleft()
            if not future.cancelled() and (reply := future.result()) is not None:
                ready.append(encode(reply))
        if ready:
            self._send(ready)
        self.caller.replies_sent()
        self.begin_requests()
