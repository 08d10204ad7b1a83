"""What the methods of MAP share: the registry, the way to declare one, and whose agent a request is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ..core.validation import check_count
from ..core.verb import verb
from ..server.requests import ForeignVerb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.verb import V, Verb


MAP: dict[str, type[Verb]] = {}
JsonObject = dict[str, Any]
MOST = 1000  # rows in one answer

# Help that several parameters share.
KEPT_AS_GIVEN = "stored and shown"
IGNORED = "accepted and ignored"
METADATA = "anything; shown as it was given"
REASON = "why; ignored"
FILTER = "only what matches all of it"
LIMIT = f"how many at most; {MOST} at most"


def map_method(name: str, result: str, **declared: Any) -> Callable[[V], V]:
    """Declare a method of MAP."""
    return verb(name, result, registry=MAP, strict=False, **declared)


class AgentVerb(ForeignVerb, kw_only=True):
    """A request about an agent of the connection."""

    whose: ClassVar[str | None] = "agent_id"

    agent_id: Annotated[str | None, "the agent; without it, the one that this connection registered"] = None


class PagedVerb(ForeignVerb, kw_only=True):
    """A request that is answered in pages. The rows are in the order of their ids, because the cursor is an id:
    what comes meanwhile shifts no page.
    """

    limit: Annotated[int | None, LIMIT] = None
    cursor: Annotated[str | None, "continue after this one: the last answer's nextCursor"] = None

    def page(self, ids: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return the ids of one page, and `nextCursor` if more follow."""
        limit = MOST if self.limit is None else min(check_count(self.limit, "limit"), MOST)
        after = self.cursor or ""
        found = sorted(id for id in ids if id > after)
        return found[:limit], {"nextCursor": found[limit - 1]} if len(found) > limit else {}
