"""A folder in memory: where thousands of rooms are opened and nothing need survive, a disk would only be slow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextmanager
def quick_folder() -> Iterator[Path]:
    within = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="postroom-", dir=within) as folder:
        yield Path(folder)
