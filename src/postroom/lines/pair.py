"""Two lines of which each is the other's far end, with nothing in between: two post rooms in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..model.codec import encode
from .line import Line, LineLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


class Side(Protocol):
    """Who is at one end."""

    def heard(self, method: str, params: Mapping[str, Any]) -> None: ...
    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]: ...


def paired(first: Side, second: Side, patience: float) -> tuple[Line, Line]:
    """The line of the first and that of the second. Who cuts one has cut both."""
    lines: list[Line] = []

    def to(number: int) -> Callable[[dict[str, Any]], Awaitable[None]]:
        async def send(said: dict[str, Any]) -> None:
            if any(line.lost.is_set() for line in lines):
                raise LineLost("the connection was cut")
            await lines[number].came(encode(said))

        return send

    lines += [Line(to(1), first.heard, patience, first.answer), Line(to(0), second.heard, patience, second.answer)]
    return lines[0], lines[1]
