"""Who calls over a wire, and what each may do: between the rims, which read and write, and the desk, which works.

It refuses to know bytes. Above it stand the rims, below it `desk`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from ..core import tokens
from ..core.authorize import SOCKET, authorize
from ..errors import Invalid, NotAllowed, PostroomError, StoreFailing, TooLarge
from ..model.codec import encode
from .executor import JobFuture
from .protocol import Step, let_in, named, speaker_in
from .table import taken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..core.authorize import Principal
    from ..room import Room
    from .broker import Broker
    from .executor import Executor
    from .protocol import Request
    from .table import Method, Run


log = logging.getLogger("postroom")
MOST_TOLD = 16 * 1024 * 1024  # bytes of replies to one batch, and one reply more
_TOO_MUCH = TooLarge("the replies to this batch are too large; this call was not carried out", hint="ask it alone")

_NO_HANDLES = {errno.EMFILE, errno.ENFILE}
_MORE_HANDLES = "try again later; the limit of open files of the daemon may be too low (ulimit -n)"


class Caller:
    """One caller over time. `push` sends it what it did not ask for just now, or answers False: not taken, and
    `resume` is called when there is room. Without one it cannot subscribe. `expel` is called when a token that it
    has shown is worth nothing any more, or its agent is called otherwise. Who stays for one call needs none: each
    call looks itself.
    """

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        *,
        push: Callable[[dict[str, Any]], bool] | None = None,
        expel: Callable[[], None] | None = None,
        principal: Principal = SOCKET,
    ) -> None:
        self._executor = executor
        self._broker = broker
        self._push = push
        self._expel = expel
        self.room: Room = executor.room.acting_as(principal)
        self._waits: set[JobFuture] = set()  # for mail
        self._is_fresh = False  # has it subscribed, and not been told that yet?
        self._is_gone = False
        self._stay()

    # -- calls

    def carry_out(self, request: Request) -> JobFuture:
        """The reply, when it is there; None when nobody waits for one."""
        if request.is_batch:
            return JobFuture.of(asyncio.ensure_future(self._all(request)))
        step = request.steps[0]
        if isinstance(step, Step):
            return self._begin(step).told_as(partial(_reply, step))
        owed = JobFuture()
        owed.set_result(step or None)
        return owed

    async def _all(self, request: Request) -> Any:
        """The replies of a batch; its calls are carried out one after the other, as long as there is room for
        what they tell.
        """
        replies, size = list[Any](), 0
        for step in request.steps:
            if not isinstance(step, Step):
                replies.append(step)
                continue
            done = self._begin(step) if size < MOST_TOLD else _refused(_TOO_MUCH)
            reply = await done.told_as(partial(_reply, step))
            size += memoryview(reply).nbytes if isinstance(reply, Raw) else 0
            replies.append(reply)
        return [reply for reply in replies if reply] or None

    def _begin(self, step: Step) -> JobFuture:
        method, params = step.method, step.params
        if method.of_session:  # at once, on this thread: nothing of this caller is under way
            return _done(partial(method.run, self, params))
        is_wait = method.empty is not None and method.patience(params) > 0
        if is_wait and self._is_gone:  # a letter is not handed to nobody
            return _never()
        run = partial(self._checked, method)
        if (method.is_slow(params) or method.is_heavy(params)) and not is_wait:
            run = partial(_told_there, step, run)
        done = self._executor.carry_out(self.room, method, params, run, self)
        if method.name == "emit":
            done.add_done_callback(partial(self._publish, method, params))
        if is_wait:
            self._waits.add(done)
            done.add_done_callback(self._waits.discard)
        return done

    def _checked(self, method: Method, room: Room, params: dict[str, Any]) -> Any:
        """Carried out, if the caller still is who it was; one without a token speaks for nobody who has one."""
        token = room._principal.token
        if token is not None and not tokens.is_live(room._core, token):
            raise NotAllowed("this token is not valid any more", field="token")
        room = self._standing(room, method, params)
        let_in(room, method, params)
        answer = method.run(room, params)
        if method.action in {"register", "heartbeat"}:  # it says itself how it is
            self._executor.came_or_went()
        elif method.whose is not None:
            self._executor.alive(params.get(method.whose) or room._principal.agent)
        return answer

    def _publish(self, method: Method, params: dict[str, Any], done: JobFuture) -> None:
        """What was emitted is heard once it is told as done, and only then: a call may be tried twice."""
        if not done.cancelled() and done.exception() is None:
            who = self._standing(self.room, method, params).principal
            event = {"scope": self.room._default_scope} | params
            self._broker.publish(event, who.agent or params.get("agent_id") or tokens.OPERATOR)

    def _standing(self, room: Room, method: Method, params: dict[str, Any]) -> Room:
        """The room as this caller may use it today."""
        principal = room._principal
        if not principal.heeds_seals or not tokens.sealed(room._core):
            return room
        today = tokens.standing(room._core, principal, speaker_in(method, params))
        return room if today is principal else room.acting_as(today)

    async def call(self, name: str, params: Mapping[str, Any]) -> Any:
        """A verb by its name, for who speaks no dialect."""
        method = named(name)
        return await self.call_row(method, taken(method, params))

    async def call_row(self, method: Method, params: dict[str, Any]) -> Any:
        """A row of any table, its parameters checked."""
        run = partial(self._checked, method)
        return await self._executor.carry_out(self.room, method, params, run, self)

    # -- the session

    def authenticate(self, token: str) -> dict[str, Any]:
        if self._push is None:
            text = "a token is shown in the header of the request, and nowhere else"
            raise Invalid(text, field="method", hint="Authorization: Bearer pr_...")
        principal = tokens.holder(self.room._core, token)
        self.become(principal)
        scopes = [tokens.OPERATOR] if principal.operator else sorted(principal.scopes or ())
        return {"agent_id": principal.agent, "scopes": scopes}

    def become(self, principal: Principal) -> None:
        """It has proven who it is, once more."""
        self.room = self.room.acting_as(principal)
        self._broker.know(self)
        self._stay()

    def subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._push is None:
            raise Invalid("nothing can be sent to this caller later", hint="use the socket, a WebSocket or SSE")
        principal = tokens.standing(self.room._core, self.room.principal)
        authorize(principal, "wait", principal.agent)  # what of it, is decided for each event
        self._is_fresh = True
        return self._broker.subscribe(self, self._push, params)

    def links(self) -> dict[str, Any]:
        authorize(tokens.standing(self.room._core, self.room.principal), "peers")
        return {"links": [] if self._executor.links is None else self._executor.links.describe()}

    def ping_peer(self, system: str) -> Awaitable[dict[str, Any]]:
        authorize(tokens.standing(self.room._core, self.room.principal), "peers")
        if self._executor.links is None:
            raise Invalid("there are no links to other systems here", hint='pip install "postroom[serve]"')
        return self._executor.links.ping(system)

    @property
    def subscriptions(self) -> int:
        """How many it has."""
        return self._broker.count(self)

    def has(self, subscription: str) -> bool:
        """Is it this caller's?"""
        return self._broker.has(self, subscription)

    def unsubscribe(self, id: str) -> dict[str, Any]:
        return self._broker.unsubscribe(self, id)

    def resume(self) -> None:
        """There is room for more."""
        self._broker.resume(self)

    def replies_sent(self) -> None:
        """The replies so far were sent: what it subscribed to may follow them."""
        if self._is_fresh:
            self._is_fresh = False
            self._broker.resume(self)

    def close(self) -> None:
        """It is gone. What it said is carried out; but it waits for nothing any more."""
        self._broker.forget(self)
        self.give_up()

    def give_up(self) -> None:
        """Nobody hears the answers any more: it waits for nothing, now or later."""
        self._is_gone = True
        for wait in list(self._waits):
            wait.cancel()

    def _stay(self) -> None:
        if self._expel is not None and self.room.principal.token is not None:
            self._broker.admit(self, self.room.principal, self._expel)


class Door:
    """The desk, for callers that were known when they came in: each call asks whether they still are."""

    def __init__(self, executor: Executor, broker: Broker) -> None:
        self._executor = executor
        self._broker = broker

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any]) -> Any:
        return await Caller(self._executor, self._broker, principal=principal).call(name, params)


def _done(run: Callable[[], Any]) -> JobFuture:
    """Something that is done already, or will be without the desk."""
    done = JobFuture()
    try:
        result = run()
        if asyncio.iscoroutine(result):
            return JobFuture.of(asyncio.ensure_future(result))
        done.set_result(result)
    except PostroomError as refused:
        done.set_exception(refused)
    return done


def _refused(error: PostroomError) -> JobFuture:
    """Something that is not begun."""
    done = JobFuture()
    done.set_exception(error)
    return done


def _told_there(step: Step, run: Run, room: Room, params: dict[str, Any]) -> Raw:
    """What may tell of many things is put into words on the thread that found them: the loop's serves others."""
    return Raw(encode(step.answer(run(room, params))))


def _never() -> JobFuture:
    """Something that nobody waits for."""
    done = JobFuture()
    done.cancel()
    return done


def _reply(step: Step, error: BaseException | None, result: Any) -> Any:
    """What is told of a call that is over."""
    if step.call.is_notification or isinstance(error, asyncio.CancelledError):
        return None
    if error is None:
        return result if isinstance(result, Raw) else step.answer(result)
    if isinstance(error, PostroomError):
        return step.refuse(error)
    if isinstance(error, OSError) and error.errno in _NO_HANDLES:  # maybe for a part of ours that is loaded late
        return step.refuse(StoreFailing("no more files can be opened", hint=_MORE_HANDLES))
    log.error("%s failed by a fault of ours", step.method.name, exc_info=error)
    return step.refuse(PostroomError("a fault of the house; its log says more"))
