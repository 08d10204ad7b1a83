"""Packages from npm, for tests with programs that are not ours. Kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class NoNpm(Exception):
    """What is needed from npm cannot be had here."""


def packages(*names: str) -> Path:
    """The folder in which these are installed, each as `name@version`."""
    npm = shutil.which("npm")
    if npm is None:
        raise NoNpm("npm is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroom"
    folder = cache / "-".join(name.replace("/", "-").lstrip("@") for name in sorted(names))
    if not (folder / ".ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--loglevel", "error", *names],
            cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise NoNpm(f"npm cannot install {', '.join(names)}: {done.stderr.strip()[-300:]}")
        (folder / ".ready").touch()
    return folder
