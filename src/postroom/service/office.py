"""What every verb needs: where mail is kept, what the rules say, what time it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..clock import Clock, Ids
from ..policy.limits import Limits
from ..store.base import Store

if TYPE_CHECKING:
    from ..model.query import Moment


class Office(Struct, frozen=True):
    store: Store
    limits: Limits
    clock: Clock
    ids: Ids
    file_root: str = "."  # files that postroom.file and --file enclose must lie below this folder
    system: str = ""  # what the room is called among others, where a setting says it

    def now(self) -> Moment:
        return self.clock.now()

    def new_id(self, sender: str) -> str:
        """For a letter: as the store names them, or ours."""
        return self.store.fresh_id(sender) or self.ids.message()
