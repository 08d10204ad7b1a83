"""An app of another house below a path, loaded when it is first asked for: it may weigh more than all of ours.

Who calls is known by then. The app finds a room that is bound to the caller in the scope, under `postroom.room`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import PostroomError
from .calls import CLOSING, declared, largest, too_large
from .replies import answer, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from contextlib import AbstractAsyncContextManager

    from ..room import Room
    from .replies import Receive, Scope, Send

ROOM = "postroom.room"


class App(Protocol):
    """An ASGI app that serves while `running()` is entered."""

    def running(self) -> AbstractAsyncContextManager[None]: ...
    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...


class NotHere(PostroomError):
    """What serves this path is not installed."""

    code = 7001


class Mounted:
    """`load` makes the app, on a thread of its own; it may raise `NotHere`."""

    def __init__(self, load: Callable[[], Awaitable[App]]) -> None:
        self._load = load
        self._stop = asyncio.Event()
        self._app: asyncio.Future[App | None] | None = None  # None in it: we close
        self._life: asyncio.Task[None] | None = None

    async def serve(self, room: Room, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self._loaded()
        except NotHere as missing:
            await answer(scope, send, refused(503, str(missing)))
            return
        if app is None or self._stop.is_set():
            await answer(scope, send, CLOSING)
            return
        most = largest(room.settings)
        if declared(scope["headers"]) > most:
            await answer(scope, send, too_large(most))
            return
        await app({**scope, ROOM: room}, _bounded(receive, most), send)

    async def stop(self) -> None:
        """Nobody waits for what is not loaded yet."""
        self._stop.set()
        if self._life is not None:
            if self._app is not None and not self._app.done():
                self._app.set_result(None)
                self._life.cancel()
            await asyncio.wait([self._life])

    async def _loaded(self) -> App | None:
        """Once for all who ask. What failed is tried again: somebody may have installed it. None: we close."""
        if self._stop.is_set():
            return None
        if self._app is None or (self._app.done() and self._app.exception() is not None):
            self._app = asyncio.get_running_loop().create_future()
            self._life = asyncio.ensure_future(self._live(self._app))
        return await asyncio.shield(self._app)

    async def _live(self, told: asyncio.Future[App | None]) -> None:
        """Its whole life in one task: what it enters there it must leave there."""
        try:
            app = await self._load()
            async with app.running():
                told.set_result(app)
                await self._stop.wait()
        except BaseException as failed:
            if told.done() or not isinstance(failed, Exception):
                raise
            told.set_exception(failed)
            told.exception()  # whoever asked hears it; by now nobody may wait


def _bounded(receive: Receive, most: int) -> Receive:
    """Whoever sends more than was declared has hung up, as far as the app can see."""
    left = most

    async def some() -> MutableMapping[str, Any]:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return some
