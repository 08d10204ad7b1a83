"""`/map`: MAP in text frames. Behind the messages that are handed over goes a ping: its pong is their receipt, for
a program answers it after it has read the frames before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..map_server.talk import Talk as MapTalk
from .frames import Talk, until_end
from .protocol import SIGNS

if TYPE_CHECKING:
    from ..map_server.reception import Reception
    from ..service.authorize import Principal
    from ..wire.session import Asked
    from .frames import Speaker
    from .house import House
    from .protocol import Signs
    from .replies import Receive, Scope, Send


class MapFrames(Talk):
    """One connection."""

    def __init__(
        self, house: House, reception: Reception, principal: Principal | None, scope: Scope, send: Send
    ) -> None:
        self._reception = reception
        self._signs: Signs = scope["state"][SIGNS]
        self._signed = 0  # up to here a sign was sent
        super().__init__(house, principal, scope, send)
        self._signs.answered = self._talk.received_up_to

    def _open_caller(self, principal: Principal | None) -> Speaker:
        self._talk = MapTalk(self._reception, self, principal)
        return self._talk

    def _understood(self, text: str) -> Asked | dict[str, Any] | None:
        return self._talk.read(text)

    def end(self, code: int, *, at_once: bool) -> None:
        self.code = code
        if at_once:
            self._outbox.drop()
        else:
            self._outbox.close()

    def _said_so_far(self) -> int:
        return self._talk.said

    def _wrote(self, said: int) -> None:
        if said > self._signed:
            self._signed = said
            self._signs.send(said)


async def serve_map(
    house: House, reception: Reception, principal: Principal | None, scope: Scope, receive: Receive, send: Send
) -> None:
    """Until either side ends it."""
    await receive()  # that it wants to connect
    await send({"type": "websocket.accept"})
    await until_end(MapFrames(house, reception, principal, scope, send), receive, send)
