"""Environments with the real nanobot, for tests of our channel. Kept in the user's cache, one for each version.

    python tools/nanobot.py 0.3.5      make it, if it is not there

A test gets an environment of its own on top: nanobot itself is linked into it, because `postroom-nanobot` is
installed into nanobot's own folder, and Postroom is installed beside it by pip.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VERSIONS = ("0.2.2", "0.3.0", "0.3.5")
NEEDED = ("apsw>=3.51.3.0", "msgspec>=0.20", "hatchling>=1.27", "editables>=0.5")  # of Postroom, and to build it
PATIENCE = 900.0  # seconds; nanobot has some eighty dependencies
ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "packages" / "postroom-nanobot"


class NoNanobot(Exception):
    """nanobot cannot be had here."""


def place_of(version: str) -> Path:
    """The folder of a version, if it is installed: then there is a file `.ready` in it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroom"
    return cache / f"nanobot-{version}-py{sys.version_info.major}.{sys.version_info.minor}"


def base(version: str) -> Path:
    """The folder with nanobot and all that it needs. Made once; whoever comes meanwhile waits."""
    folder = place_of(version)
    if (folder / ".ready").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".ready").exists():
            print(f"installing nanobot-ai {version}, a minute or two", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            pip("install", "--target", str(folder), f"nanobot-ai=={version}", *NEEDED)
            (folder / ".ready").touch()
    return folder


def environment(version: str, folder: Path) -> Path:
    """A new environment with nanobot, in `folder`; gives its interpreter. Postroom is not in it yet."""
    found = base(version)
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in ("nanobot", f"nanobot_ai-{version}.dist-info"):
        shutil.copytree(found / name, packages / name, copy_function=_link)
    (packages / "nanobot_base.pth").write_text(f"{found}\n", encoding="utf-8")
    return folder / "bin" / "python"


def wheels(folder: Path) -> list[Path]:
    """Postroom and `postroom-nanobot` as wheels, made of what lies here now."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for project in (ROOT, PLUGIN):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise NoNanobot(f"the wheel of {project.name} cannot be built: {done.stderr.strip()[-500:]}")
    return sorted(folder.glob("*.whl"))


def install(python: Path, *what: str) -> None:
    """Install into an environment by pip, with nothing from elsewhere."""
    pip(
        "--python",
        str(python),
        "install",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        *what,
    )


def pip(*arguments: str) -> None:
    """By our own pip, or, where the system split it off, by the outer one."""
    for interpreter in (sys.executable, shutil.which("python3") or sys.executable, "/usr/bin/python3"):
        request = [interpreter, "-m", "pip", "--version"]
        if subprocess.run(request, capture_output=True, check=False, timeout=PATIENCE).returncode == 0:
            break
    else:
        raise NoNanobot("there is no pip")
    command = [interpreter, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise NoNanobot(f"pip {' '.join(arguments[:3])}: {done.stderr.strip()[-500:]}")


def _link(source: str, target: str) -> None:
    """A second name for the file, or a copy where the cache is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or VERSIONS:
        print(base(wanted))
