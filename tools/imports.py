"""What each command loads beyond a bare interpreter, and how long it takes: `python tools/imports.py [COMMAND …]`.

A report to look at; what must not be loaded is checked by tests/cli/test_weight.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

ROUNDS = 7
COMMANDS = {
    "check (empty)": ["check", "--as", "nobody"],
    "check (library)": ["check", "--as", "nobody", "--all"],
    "send": ["send", "someone", "--as", "me", "--body", "x"],
    "claim": ["claim", "--as", "nobody"],
    "agents": ["agents"],
    "threads": ["threads", "--as", "me"],
    "export": ["export"],
    "janitor": ["janitor"],
    "help": ["help"],
}
_IMPORTED = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \| +(\S+)$", re.MULTILINE)


def loaded_by(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> set[str]:
    """The modules a command loads that a bare interpreter does not."""
    return set(_imports(["-m", "postroom", *words], environment, folder)) - set(
        _imports(["-c", "pass"], environment, folder)
    )


def _imports(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> dict[str, int]:
    """Module -> microseconds of its own."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    return {name: int(own) for own, name in _IMPORTED.findall(done.stderr)}


def report(name: str, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    bare = _imports(["-c", "pass"], environment, folder)
    extra = {
        module: own
        for module, own in _imports(["-m", "postroom", *words], environment, folder).items()
        if module not in bare
    }
    nothing = _time(["-c", "pass"], environment, folder)
    whole = _time(["-m", "postroom", *words], environment, folder)
    print(f"\n{name}: {len(extra)} modules, {whole * 1000:.0f} ms, {whole / nothing:.1f} x python -c pass")
    for module, own in sorted(extra.items(), key=lambda item: -item[1])[:12]:
        print(f"  {own / 1000:6.1f} ms  {module}")


def _time(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], env=dict(environment), cwd=folder, capture_output=True, check=False
        )
        taken.append(time.perf_counter() - began)
    return median(taken)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        own = {"HOME": folder, "POSTROOM_STORE": f"{folder}/room.db", "PYTHONPYCACHEPREFIX": f"{folder}/pycache"}
        environment |= own
        wanted = {"asked": sys.argv[1:]} if sys.argv[1:] else COMMANDS
        for words in [COMMANDS["send"], *wanted.values()]:  # makes the room, and the bytecode
            _imports(["-m", "postroom", *words], environment, Path(folder))
        for name, words in wanted.items():
            report(name, words, environment, Path(folder))


if __name__ == "__main__":
    main()
