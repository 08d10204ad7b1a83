"""Run the measures, print the report."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import (
    broadcast,
    claim,
    command,
    contention,
    daemon,
    dashboard,
    federation,
    files,
    growth,
    hooks,
    maps,
    mcp_http,
    memory,
    postgres,
    report,
    scaling,
    search,
    send,
    start,
    waiting,
)
from .measure import FULL, QUICK, Curve, Effort, Line

SCRATCH = Path(__file__).parent / "scratch"  # on the disk of the working tree, never in memory
MEASURES: dict[str, Callable[[Effort, Path], Iterator[Line | Curve]]] = {
    "send": send.measure,
    "claim": claim.measure,
    "contention": contention.measure,
    "scaling": scaling.measure,
    "growth": growth.measure,
    "search": search.measure,
    "broadcast": broadcast.measure,
    "files": files.measure,
    "daemon": daemon.measure,
    "dashboard": dashboard.measure,
    "map": maps.measure,
    "federation": federation.measure,
    "mcp": mcp_http.measure,
    "waiting": waiting.measure,
    "start": start.measure,
    "memory": memory.measure,
    "postgres": postgres.measure,
    "command": command.measure,
    "hooks": hooks.measure,
}


def main() -> None:
    arguments = parse()
    chosen = arguments.only or list(MEASURES)
    before = report.committed()
    where = report.machine()
    report.print_heading(where)
    lines, curves = [], []
    for name in chosen:
        for found in run(name, QUICK if arguments.quick else FULL):
            if isinstance(found, Curve):
                curves.append(found)
            else:
                report.print_line(found, before)
                lines.append(found)
    if arguments.quick or arguments.only:
        return
    measured = report.report_of(where, lines, curves)
    report.save(measured)
    if arguments.write:
        report.write_page(measured)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast is the post room?")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes no results")
    parser.add_argument("--only", action="append", choices=MEASURES, help="this theme; writes no results")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and its plots too")
    return parser.parse_args()


def run(name: str, effort: Effort) -> Iterator[Line | Curve]:
    """One theme, in a folder of its own."""
    SCRATCH.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH))
    try:
        yield from MEASURES[name](effort, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
