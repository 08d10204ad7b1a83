"""A post room with the old fault: every file part that has no bytes is opened, whoever named its path."""

from __future__ import annotations

from typing import Any

from postroom.cli.main import entry
from postroom.core import compose
from postroom.model.message import Part


def enclosed(source: Any, part: Part, root: str, largest: int, field: str) -> Part:
    return part if part.get("bytes") is not None else compose.read_file_part(part, root, largest, field)


if __name__ == "__main__":
    compose.with_content = enclosed
    entry()
