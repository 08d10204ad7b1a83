"""Does the file system tell when a file was last read?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def skip_where_no_reading_is_told(path: Path) -> None:
    """By a file that is there."""
    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    path.read_bytes()
    if not path.stat().st_atime_ns:
        pytest.skip("this file system does not tell when a file was read")
