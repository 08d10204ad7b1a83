"""What each command loads beyond a bare interpreter: `make imports`; `python tools/imports.py COMMAND …` for one.

A report to look at, with the parts of the service each command loads; what must not be loaded is checked by
tests/cli/test_weight.py. Every command of the table is
run by its first example, in a room where that example can work.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import postroom
from postroom.cli.command import command_of
from postroom.cli.table import GROUPS

NOTHING = Path(os.devnull)
ROUNDS = 7
HEAVIEST = 4  # modules that are named
_MADE = {"rooms export": "room.jsonl", "rooms backup": "monday.db"}  # what an example makes, and would not replace
_IMPORTED = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \| +(\S+)$", re.MULTILINE)


def loaded_by(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: Path = NOTHING
) -> set[str]:
    """The modules a command loads that a bare interpreter does not."""
    return set(_imports(["-m", "postroom", *words], environment, folder, stdin)) - set(
        _imports(["-c", "pass"], environment, folder)
    )


def _imports(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: Path = NOTHING
) -> dict[str, int]:
    """Module -> microseconds of its own."""
    return _measured([sys.executable, "-X", "importtime", *arguments], environment, folder, stdin)[1]


def _measured(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: Path = NOTHING
) -> tuple[int, dict[str, int]]:
    with stdin.open("rb") as value:
        done = subprocess.run(
            command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False, stdin=value
        )
    return done.returncode, {name: int(own) for own, name in _IMPORTED.findall(done.stderr)}


def parts_of(room: str, modules: Iterable[str]) -> list[str]:
    """Which parts of a room are among these modules."""
    return sorted(module.removeprefix(f"{room}.") for module in modules if module.startswith(f"{room}."))


# -- every command


def report_all(environment: dict[str, str], folder: Path) -> None:
    """One line for each command of the table. Loading is timed by Python itself, once: compare, do not quote."""
    bare = _imports(["-c", "pass"], environment, folder)
    print(f"{'command':15} {'modules':>7} {'ours':>4} {'loading':>10}   heaviest")
    for names in GROUPS.values():
        for name in names:
            line = command_of(name).examples[0][0]
            code, found = 0, dict[str, int]()
            for _ in range(2):  # the first time makes the bytecode
                watched = environment | {"PYTHONPROFILEIMPORTTIME": "1", "TOKEN": _prepare(folder)}
                if name in _MADE:
                    (folder / _MADE[name]).unlink()
                code, found = _measured(["sh", "-c", line], watched, folder)
            extra = {module: own for module, own in found.items() if module not in bare}
            heaviest = sorted(extra, key=lambda module: -extra[module])[:HEAVIEST]
            ours = sum(module.startswith("postroom") for module in extra)
            time_taken = f"{sum(extra.values()) / 1000:7.1f} ms"
            print(f"{name:15} {len(extra):7} {ours:4} {time_taken}   {', '.join(heaviest)}")
            if parts := parts_of("postroom.core", extra):
                print(f"{'':41} service: {', '.join(parts)}")
            if code:
                print(f"{'':15} its example ended with {code}: {line}")


def _prepare(folder: Path) -> str:
    """The room the examples speak of, made anew, and the token of a letter that is held."""
    for left in folder.glob("*.db*"):
        if left.is_file():
            left.unlink()
    with postroom.open(folder / "room.db") as room:
        for name in ("coder", "researcher", "reviewer", "planner", "tester"):
            room.mailbox(name).register(scopes=["sorting"], capabilities=["python"])
        coder, researcher = room.mailbox("coder"), room.mailbox("researcher")
        coder.send("researcher", "Which sort is stable?", id="m-1", thread_tag="release")
        coder.send("researcher", "And fast?", id="m-2")
        researcher.reply("m-2", "Quicksort.", id="m-3")
        room.mailbox("planner").send("coder", "Sort it.", id="m-4", kind="request")
        room.mailbox("planner").send("tester", "Broken.", id="m-6")
        room.mailbox("tester").read("m-6").reject("cannot be read")
        coder.send("researcher", "Held.", id="m-5", priority="urgent")
        held = researcher.claim(lease=600)
        room.backup(folder / "monday.db", overwrite=True)
        (folder / "room.jsonl").write_bytes(b"".join(line + b"\n" for line in room.export()))
        return held.delivery.lease.token if held and held.delivery.lease else ""


# -- one command


def report_one(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    bare = _imports(["-c", "pass"], environment, folder)
    _imports(["-m", "postroom", *words], environment, folder)
    found = _imports(["-m", "postroom", *words], environment, folder)
    extra = {module: own for module, own in found.items() if module not in bare}
    nothing = _time(["-c", "pass"], environment, folder)
    whole = _time(["-m", "postroom", *words], environment, folder)
    print(f"{len(extra)} modules, {whole * 1000:.0f} ms, {whole / nothing:.1f} x python -c pass")
    for room in ("cli", "service", "store", "policy", "model"):
        print(f"  {room}: {', '.join(parts_of(f'postroom.{room}', extra))}")
    for module, own in sorted(extra.items(), key=lambda item: -item[1])[:20]:
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
        own = {
            "HOME": folder,
            "POSTROOM_STORE": f"{folder}/room.db",
            "PYTHONPYCACHEPREFIX": f"{folder}/pycache",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        _prepare(Path(folder))
        if sys.argv[1:]:
            report_one(sys.argv[1:], environment | own, Path(folder))
        else:
            report_all(environment | own, Path(folder))


if __name__ == "__main__":
    main()
