"""Whose session started us: for commands that are typed in a host's shell, and for the MCP server a host starts.

It weighs little where no host has a session: then there is no folder of sessions.
"""

from __future__ import annotations

from ..whereabouts import first_variable
from .processes import ancestors
from .sessions import OVER, all_sessions

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from .sessions import Session

# Where hosts tell what they start in which session that is. Only among those of one process: it may be inherited.
_TOLD = ("CODEX_THREAD_ID", "CLAUDE_CODE_SESSION_ID", "GEMINI_SESSION_ID")


def session_around_us() -> Session | None:
    """The session of the nearest host that started us; None where there is none, or several of different agents
    are meant.
    """
    running = [one for one in all_sessions() if one.turn != OVER]
    if not running:
        return None
    for process in ancestors():
        if found := [one for one in running if (one.pid, one.began) == (process.pid, process.began)]:
            return _one_of(found)
    return None


def _one_of(found: list[Session]) -> Session | None:
    """A server of Codex runs many sessions in one process."""
    told = first_variable(*_TOLD)
    named = next((one for one in found if one.id == told), None)
    return named or (found[0] if len({(one.agent, one.room) for one in found}) == 1 else None)
