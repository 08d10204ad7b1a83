"""Programs from Debian: those of this machine, or else unpacked into the cache, never installed.

An installed server would make users, start at once and stay. An unpacked one is a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .peer import Missing
from .place import CACHE

ROOT = CACHE / "debian"
_FOLDERS = ("usr/bin", "usr/sbin", "usr/lib/postgresql/*/bin")


def program(name: str, package: str) -> str:
    """Where the program is; fetched if need be."""
    found = _find(name)
    if found is None:
        fetch(package)
        found = _find(name)
    if found is None:
        raise Missing(f"Debian's {package} has no {name}")
    return found


def _find(name: str) -> str | None:
    for root in (Path("/"), ROOT):
        for folder in _FOLDERS:
            found = sorted(path for path in root.glob(f"{folder}/{name}") if path.exists())
            if found:
                return str(found[-1])
    return shutil.which(name)


def fetch(package: str) -> None:
    """Download the package and what it needs beyond what this machine has, and unpack it all."""
    if shutil.which("apt-get") is None:
        raise Missing(f"there is no apt-get to fetch {package} with")
    print(f"fetching {package} from Debian into {ROOT}", flush=True)
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    fetching = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", package]
    fetching += ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1"]
    if not _try(fetching):
        _try(["apt-get", "update", "-qq"])
        if not _try(fetching):
            raise Missing(f"apt-get cannot fetch {package}")
    for archive in archives.glob("*.deb"):
        _try(["dpkg-deb", "-x", str(archive), str(ROOT)])
        archive.unlink()


def _try(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=300).returncode == 0


def libraries() -> dict[str, str]:
    """The environment of a program that was unpacked: its libraries lie beside it."""
    folders = [str(path) for path in sorted(ROOT.glob("usr/lib/*-linux-*"))]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "REDIS"))}
    return clean | {"LD_LIBRARY_PATH": ":".join(folders), "LC_ALL": "C.UTF-8"}
