"""Is there really something new? Most of what is seen in the folders was done by us, and is in the index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .paper import Stamp
from .tree import is_text

if TYPE_CHECKING:
    from .connection import FileConnection
    from .eyes import News


def unknown(here: FileConnection, news: News) -> News:
    """What of it the index does not know yet."""
    found: News = {}
    for folder, names in news.items():
        if names is None:
            found[folder] = None
            continue
        strange = {
            name for name in names if here.places.layout.may_hold(name) and not _is_known(here, folder, name)
        }
        if strange:
            found[folder] = strange
    return found


def _is_known(here: FileConnection, folder: str, name: str) -> bool:
    if not is_text(name):
        return False
    held = here.ledger.held(folder, name)
    try:
        stamp = Stamp.of(os.lstat(f"{here.places.path(folder)}/{name}"))
    except FileNotFoundError:
        return held is None
    return held is not None and held.stamp == stamp
