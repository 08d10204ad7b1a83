"""What is said of a scope itself. Who is in it stands on the agents' cards."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class ScopeCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope that somebody made. One that only stands on cards has none."""

    id: str
    created_at: datetime
    created_by: str = ""  # the agent; nobody, where an operator made it
    says: dict[str, Any] = field(default_factory=dict)  # name, description and the like, as they were said
