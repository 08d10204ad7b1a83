"""A Python environment of its own for the peers' clients, made once for each list of requirements."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from .place import CACHE

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
SOURCE = Path(__file__).parents[2] / "src"
_OUTER = sys.executable if importlib.util.find_spec("pip") else sys._base_executable  # type: ignore[attr-defined]


def interpreter() -> Path:
    """The environment's python; the environment is made if need be."""
    home = CACHE / f"python-{_key()}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"making an environment for the peers' clients in {home}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        pip = [_OUTER, "-m", "pip", "--python", str(python), "install", "-qq"]
        subprocess.run([*pip, "--disable-pip-version-check", "-r", str(REQUIREMENTS)], check=True)
        _add_postroom(home)
        (home / "ready").touch()
    return python


def _add_postroom(home: Path) -> None:
    """Postroom and what it needs are the ones that run this: no second copy, no other version."""
    packages = next(home.glob("lib/python*/site-packages"))
    own = (str(SOURCE), sysconfig.get_path("platlib"))
    (packages / "postroom-here.pth").write_text("\n".join(own) + "\n", encoding="utf-8")


def _key() -> str:
    source = REQUIREMENTS.read_bytes() + f"{sys.version}{sys.prefix}{SOURCE}".encode()
    return hashlib.sha256(source).hexdigest()[:12]
