"""Where the comparison keeps what it fetched: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".cache"
    return home / "postroom-peers"


CACHE = _cache()
