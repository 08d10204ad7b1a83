"""Compare, print, write: inside the environment of the peers' clients."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from itertools import chain
from pathlib import Path

from .. import report
from . import page
from .compare import compare
from .names import MODULES, OURS

SCRATCH = Path(__file__).parents[1] / "scratch"  # on the disk of the working tree, never in memory


def main() -> None:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped, folders removed
    measure(arguments.only or list(MODULES), quick=arguments.quick)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Postroom and its peers.")
    parser.add_argument("--quick", action="store_true", help="two short rounds; writes no results")
    parser.add_argument("--only", action="append", choices=MODULES, help="this peer; writes no results")
    return parser.parse_args()


def measure(modules: list[str], *, quick: bool) -> None:
    where = report.machine()
    print(report.describe(where))
    names = list(chain.from_iterable(MODULES[module] for module in MODULES if module in {*OURS, *modules}))
    rounds, seconds = (2, 0.3) if quick else (7, 0.7)
    SCRATCH.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=SCRATCH))
    try:
        rows = compare(names, folder, rounds, seconds)
    finally:
        shutil.rmtree(folder)
    print(page.tables(rows))
    if not quick and len(modules) == len(MODULES):
        measured = page.comparison(where, rows, rounds, seconds)
        page.save(measured)
        page.write(measured)


if __name__ == "__main__":
    main()
