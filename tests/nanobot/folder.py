"""What stands in a folder of mailboxes, read without any of our code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def registry(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "_registry.json").read_text(encoding="utf-8"))
    return found
