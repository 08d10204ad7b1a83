"""All methods by name. Our own verbs are called by their bare name inside the house and on the socket, and as
`mail/<verb>` in JSON-RPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Missing
from . import room_verbs, verbs, work_verbs
from .table import taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..room import Room
    from .table import Method

VERBS: dict[str, Method] = {row.name: row for row in (*verbs.ROWS, *work_verbs.ROWS, *room_verbs.ROWS)}
PREFIX = "mail/"


class NoSuchMethod(Missing):
    """Nobody serves this method."""


def named(name: str) -> Method:
    """A verb of ours."""
    if name not in VERBS:
        raise NoSuchMethod(f"there is no verb {name!a}", field="method")
    return VERBS[name]


def call(room: Room, name: str, said: Mapping[str, Any]) -> Any:
    """Carry out a verb. One that waits only looks."""
    method = named(name)
    return method.run(room, taken(method, said))
