"""Packages from npm, for tests with programs that are not ours. Kept in the user's cache.

python tools/npm.py [--scripts] NAME@VERSION ...      install them, if they are not there; without npm, say so
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


class NoNpm(Exception):
    """What is needed from npm cannot be had here."""


def place_of(*names: str) -> Path:
    """The folder in which these are installed, if they are: then there is a file `.ready` in it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroom"
    return cache / "-".join(name.replace("/", "-").lstrip("@") for name in sorted(names))


def packages(*names: str, scripts: bool = True) -> Path:
    """The folder in which these are installed, each as `name@version`. Without `scripts`, what a package would
    build for itself is left out.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NoNpm("npm is not installed")
    folder = place_of(*names)
    if not (folder / ".ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
        options = [] if scripts else ["--ignore-scripts"]
        done = subprocess.run(
            [npm, "install", *options, "--no-audit", "--no-fund", "--loglevel", "error", *names],
            cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise NoNpm(f"npm cannot install {', '.join(names)}: {done.stderr.strip()[-300:]}")
        (folder / ".ready").touch()
    return folder


if __name__ == "__main__":
    wanted = [word for word in sys.argv[1:] if word != "--scripts"]
    try:
        packages(*wanted, scripts="--scripts" in sys.argv)
    except NoNpm as missing:
        print(f"{missing}: the tests that need {', '.join(wanted)} are skipped")
