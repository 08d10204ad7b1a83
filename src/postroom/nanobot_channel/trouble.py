"""One letter's trouble is not that of the others: what goes wrong is handed back, to be told and counted.

A letter may hold anything, and a channel that ends is not started again; so whatever goes wrong is meant here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ..errors import PostroomError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

T = TypeVar("T")


async def attempt(doing: Coroutine[Any, Any, T]) -> T | Exception:
    """What came of it, or what went wrong. Being cancelled is neither."""
    ended = (await asyncio.gather(doing, return_exceptions=True))[0]
    if isinstance(ended, BaseException) and not isinstance(ended, Exception):
        raise ended
    return ended


def told(broken: Exception) -> str:
    """Our own errors speak for themselves; of others the name says more than the words."""
    return str(broken) if isinstance(broken, (PostroomError, OSError)) else repr(broken)
