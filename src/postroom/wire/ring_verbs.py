"""Telling somebody of mail from another process: the rules are the room's, the bell is the caller's.

A caller that may not ring at all times looks first (`peek`), which waits for mail and writes nothing; then it asks in
earnest. Whoever gets a ring rings, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.ring import Rung
from .plain import plain_rung
from .saying import AGENT, IDS, box_of
from .table import LONGEST_WAIT, Method, Param

if TYPE_CHECKING:
    from ..room import Room

SOON = 1.0  # seconds; who waits for letters that come together is told to wait itself
_WAY = Param("way", "text", "by what bell, such as claude; each has a book of its own", required=True)


def _ring(room: Room, said: dict[str, Any]) -> Any:
    """One look; whoever calls waits until there is something."""
    box, is_time = box_of(room, said), False

    def may_ring() -> bool:
        nonlocal is_time
        is_time = True
        return not said.get("peek") and said.get("unread") in {None, box.counts()["total"]}

    found = box.try_ring(said["way"], may_ring=may_ring)
    if isinstance(found, Rung):
        return {"rung": plain_rung(found), "look_again": None}
    return {"rung": None, "look_again": 0.0 if is_time else found.seconds}


def _ring_failed(room: Room, said: dict[str, Any]) -> Any:
    return {"given_up": box_of(room, said).ring_failed(said["way"], said["message_ids"], said["why"])}


def _is_not_soon(answer: Any) -> bool:
    """Is there nothing to ring for, now or in a moment?"""
    seconds = answer["look_again"]
    return answer["rung"] is None and (seconds is None or seconds > SOON)


ROWS = (
    Method(
        name="ring",
        about="is it time to tell the agent of mail? Then that is written down, and whoever asked does it; where nobody"
        " asked before, what is unread already counts as told",
        action="ring",
        whose="agent_id",
        run=_ring,
        params=(
            AGENT,
            _WAY,
            Param("peek", "flag", "ring for nothing; say only when to ask in earnest"),
            Param("unread", "count", "ring only if so many letters are unread"),
            Param("timeout", "seconds", f"how long to wait while there is nothing to ring for; {LONGEST_WAIT:g} at most,"
                  " 0 when nothing is said"),
        ),
        result="rung (null: not now; else mailbox, way, unread and letters), look_again (in how many seconds, 0: now;"
        " null: when new mail comes)",
        empty=_is_not_soon,
        slow=True,
    ),
    Method(
        name="ring_failed",
        about="a ring did not get through: it is tried again later",
        action="ring",
        whose="agent_id",
        run=_ring_failed,
        params=(
            AGENT,
            _WAY,
            IDS,
            Param("why", "text", "what went wrong", required=True),
        ),
        result="given_up (for how many of them nobody tries any more)",
    ),
)  # fmt: skip
