"""Run the measures, print the report."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import broadcast, claim, command, contention, growth, report, search, send, start, waiting
from .measure import FULL, QUICK, Effort, Line

SCRATCH = Path(__file__).parent / "scratch"  # on the disk of the working tree, never in memory
MEASURES: dict[str, Callable[[Effort, Path], Iterator[Line]]] = {
    "send": send.measure,
    "claim": claim.measure,
    "contention": contention.measure,
    "growth": growth.measure,
    "search": search.measure,
    "broadcast": broadcast.measure,
    "waiting": waiting.measure,
    "start": start.measure,
    "command": command.measure,
}


def main() -> None:
    arguments = parse()
    chosen = arguments.only or list(MEASURES)
    before = report.committed()
    where = report.machine()
    report.print_heading(where)
    lines = []
    for name in chosen:
        for line in run(name, QUICK if arguments.quick else FULL):
            report.print_line(line, before)
            lines.append(line)
    if arguments.quick or arguments.only:
        return
    measured = report.report_of(where, lines)
    report.save(measured)
    if arguments.write:
        report.write_page(measured)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast is the post room?")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes no results")
    parser.add_argument("--only", action="append", choices=MEASURES, help="this theme; writes no results")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md too")
    return parser.parse_args()


def run(name: str, effort: Effort) -> Iterator[Line]:
    """One theme, in a folder of its own."""
    SCRATCH.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH))
    try:
        yield from MEASURES[name](effort, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
