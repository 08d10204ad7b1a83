"""One connection to a MAP server: calls and their answers, and what the server says of its own accord.

It refuses to know sockets: it is given a way to send a text, and the texts that came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ..model.codec import encode
from ..wire.map_session import request
from ..wire.problems import METHOD_NOT_FOUND
from ..wire.rpc import notification

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_CUT = "the connection was cut"


class MapRefusal(Exception):
    """The server's error, with its number."""

    def __init__(self, error: Any) -> None:
        told = error if isinstance(error, dict) else {}
        data = told.get("data")
        self.code = told.get("code")
        self.is_temporary = isinstance(data, dict) and data.get("retryable") is True
        self.is_unknown_method = self.code == METHOD_NOT_FOUND
        super().__init__(f"{str(told.get('message'))[:300]} ({self.code})")


class LineLost(Exception):
    """The server cannot be reached, or does not answer any more."""


Told = dict[str, Any] | MapRefusal


class Line:
    """Made inside an event loop. `heard` is told of each notification, in order; `patience`: seconds for one
    answer.
    """

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        heard: Callable[[str, Mapping[str, Any]], None],
        patience: float,
    ) -> None:
        self._send = send
        self._heard = heard
        self._patience = patience
        self._number = 0
        self._asked: dict[int, asyncio.Future[Told | LineLost]] = {}
        self.lost = asyncio.Event()

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result; of one that is a list, the `items`. MapRefusal: the server said no. LineLost: it said
        nothing in time.
        """
        (told,) = await self.ask_in_turn((method, params))
        if isinstance(told, MapRefusal):
            raise told
        return told

    async def ask_in_turn(self, *calls: tuple[str, Mapping[str, Any]]) -> list[Told]:
        """Several calls in this order, each said before the one ahead of it is answered. A refusal stands in the
        place of its result.
        """
        if self.lost.is_set():
            raise LineLost(_CUT)
        answers = [self._expected() for _ in calls]
        try:
            async with asyncio.timeout(self._patience):
                for (id, _), (method, params) in zip(answers, calls, strict=True):
                    await self._send(encode(request(id, method, **params)).decode())
                told = [await answer for _, answer in answers]
        except TimeoutError:
            method = next(call[0] for call, (_, answer) in zip(calls, answers, strict=True) if not _is_in(answer))
            raise LineLost(f"no answer to {method} in {self._patience:g} s") from None
        finally:
            for id, _ in answers:
                del self._asked[id]
        return [_unless_lost(one) for one in told]

    def _expected(self) -> tuple[int, asyncio.Future[Told | LineLost]]:
        """The number of a call, and what will be its answer."""
        self._number += 1
        answer: asyncio.Future[Told | LineLost] = asyncio.get_running_loop().create_future()
        self._asked[self._number] = answer
        return self._number, answer

    async def tell(self, method: str, /, **params: Any) -> None:
        """Something that is not answered."""
        await self._send(encode(notification(method, params)).decode())

    async def came(self, text: str | bytes) -> None:
        """A frame. What is no message of the protocol is passed over: the server's log is the place for it."""
        try:
            said = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        method, id = said.get("method"), said.get("id")
        if not isinstance(method, str):
            self._answered(id, said)
        elif id is None:
            params = said.get("params")
            self._heard(method, params if isinstance(params, dict) else {})
        else:
            error = {"code": METHOD_NOT_FOUND, "message": f"{method} is nothing that is asked of a guest"}
            await self._send(encode({"jsonrpc": "2.0", "id": id, "error": error}).decode())

    def _answered(self, id: Any, said: Mapping[str, Any]) -> None:
        answer = self._asked.get(id) if isinstance(id, int) else None
        if answer is None or answer.done():
            return
        if said.get("error") is not None:
            answer.set_result(MapRefusal(said["error"]))
        else:
            answer.set_result(_object(said.get("result")))

    def cut(self) -> None:
        """The connection is gone: nothing more is answered."""
        self.lost.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(LineLost(_CUT))


def _object(result: Any) -> dict[str, Any]:
    if isinstance(result, list):
        return {"items": result}
    return result if isinstance(result, dict) else {}


def _is_in(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and not answer.cancelled()


def _unless_lost(told: Told | LineLost) -> Told:
    if isinstance(told, LineLost):
        raise told
    return told
