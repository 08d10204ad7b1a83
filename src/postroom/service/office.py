"""What every verb needs: where mail is kept, what the rules say, what time it is."""

from __future__ import annotations

from msgspec import Struct

from ..clock import Clock, Ids
from ..model.query import Moment
from ..policy.limits import Limits
from ..store.base import Store

POSTMASTER = "postmaster"  # signs the notices of the house; nobody else may use the name


class Office(Struct, frozen=True):
    store: Store
    limits: Limits
    clock: Clock
    ids: Ids
    file_root: str = "."  # files enclosed in letters must lie below this folder

    def now(self) -> Moment:
        return self.clock.now()
