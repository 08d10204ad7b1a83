"""Plays the Python blocks of a page, in order, in one namespace: `python -m tests.docs.play PAGE`.

A block whose first line is `# name.py` is saved under that name instead, for later blocks to start.
What stands behind a `print(...)` as a comment is what it must print; `…` stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

from tests.docs.pages import Block, blocks

_TOLD = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)


def play(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language != "python" or not block.runs:
            continue
        if block.program:
            Path(block.program).write_text(block.code, encoding="utf-8")
        else:
            printed = run(block, page, names)
            check(block, printed, page)


def run(block: Block, page: Path, names: dict[str, Any]) -> str:
    """Run it as it stands, with the page's own line numbers in tracebacks. Returns what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)  # noqa: S102 - the point of it
    return printed.getvalue()


def check(block: Block, printed: str, page: Path) -> None:
    """Every promise behind a print is kept, in order; other lines may stand between."""
    lines = iter(printed.splitlines())
    for result in _TOLD.findall(block.code):
        wanted = ".*".join(map(re.escape, result.split("…")))
        if not any(re.fullmatch(wanted, line) for line in lines):
            raise SystemExit(f"{page}:{block.line}: does not print {result!r}; it prints\n{printed}")


if __name__ == "__main__":
    play(Path(sys.argv[1]))
