"""Runs the public MCP conformance suite against our server, for both revisions. Ends with 0 when every scored
scenario passes. The server is the one that ships; the fixtures that the suite asks for stand beside the mail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from npm import NoNpm, packages

HOME = Path(__file__).parent.parent
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
PATIENCE = 300  # seconds for one revision


def main() -> int:
    try:
        folder = packages(SUITE, "node@22")
    except NoNpm as missing:
        print(f"the conformance suite cannot run: {missing}")
        return 69
    path = os.pathsep.join([str(HOME / "src"), str(HOME)])
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.serve"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().strip() if server.stdout else ""
        return max([run(folder, url, revision) for revision in REVISIONS])
    finally:
        server.terminate()
        server.wait()


def run(folder: Path, url: str, revision: str) -> int:
    """Ask the suite; print its summary."""
    modules, begun = folder / "node_modules", time.monotonic()
    program = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [str(modules / ".bin" / "node"), str(program), "server", "--url", url, "--requirements", revision,
             "-o", results],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    scored, _, unscored = summary.partition("\nNot scored")
    beside = set(re.findall(r"^  [✓✗] (\S+)", unscored, re.MULTILINE))
    rows = re.findall(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", scored, re.MULTILINE)
    counted = [row for row in rows if row[1] not in beside]
    passed, failed = (sum(int(row[column]) for row in counted) for column in (2, 3))
    whole = sum(row[0] == "✓" for row in counted)
    seconds = time.monotonic() - begun
    checks = f"{passed} checks passed, {failed} failed"
    print(f"{revision}: {whole} of {len(counted)} scored scenarios; {checks}; {seconds:.0f} s")
    for row in rows:
        if row[0] == "✗":
            print(f"  {row[1]}: {row[3]} failed{' (not scored)' if row[1] in beside else ''}")
    if done.returncode or not counted:
        print(done.stderr[-2000:])
    return done.returncode or (0 if counted else 1)


if __name__ == "__main__":
    raise SystemExit(main())
