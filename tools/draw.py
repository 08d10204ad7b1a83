"""Draws the diagrams in docs/ from the transition tables, so that they cannot disagree with the code.

A page marks the place with `<!-- drawn: NAME -->` … `<!-- end -->`. With --check it only says whether it is so.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from postroom.model import delivery, task

DOCS = Path(__file__).parent.parent / "docs"
PLACE = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def delivery_diagram() -> str:
    arrows = [f"    {before} --> {after}: {action}" for (before, action), after in delivery.MOVES.items()]
    return _mermaid(
        [f"    [*] --> {delivery.State.UNREAD}: send", f"    [*] --> {delivery.State.QUEUED}: send later", *arrows]
    )


def task_diagram() -> str:
    arrows = [f"    {before} --> {after}" for before, targets in task.MOVES.items() for after in targets]
    ends = [f"    {state} --> [*]" for state, targets in task.MOVES.items() if not targets]
    return _mermaid([f"    [*] --> {task.TaskState.PENDING}", *arrows, *ends])


DRAWINGS = {"delivery": delivery_diagram, "task": task_diagram}


def drawn(page: str) -> str:
    """The page with every drawing made anew."""
    return PLACE.sub(lambda place: f"{place[1]}{DRAWINGS[place[2]]()}{place[3]}", page)


def _mermaid(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def main() -> None:
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        if drawn(page) != page:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(drawn(page), encoding="utf-8")
    print("drawn anew:" if stale else "all drawings are true", *stale)
    if stale and "--check" in sys.argv:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
