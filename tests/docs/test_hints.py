"""Every command and option that a hint, a help text or a page names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.cli.command import command_of, with_common
from postroom.cli.table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"\bpostroom ((?:[a-z][a-z-]* ?)+)([^;`\n|]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OFTEN = {"--help", "--json", "--version"}
PROGRAMS = (*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").rglob("*.py"))
PAGES = (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.md"))
FIRST = {name.split()[0] for name in COMMANDS}
PROSE = {"itself", "of", "in", "is", "already", "listener"}  # what else stands behind the name of the program


def texts(path: Path) -> Iterator[str]:
    """The texts of a program, or what a page shows as code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from re.findall(r"`[^`\n]+`|^postroom .*", text, re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):  # a command ends where a value of the running program begins
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else ";" for one in node.values)


def wrong(text: str) -> Iterator[str]:
    for words, rest in COMMAND.findall(text):
        parts = words.split()
        name = next((found for n in (3, 2, 1) if (found := " ".join(parts[:n])) in COMMANDS), None)
        if name is None:
            yield from {*parts[:1]} - FIRST - PROSE
        if name in {None, "work"}:  # behind `work --` stands a program
            continue
        known = OFTEN.union(*(option.names for option in with_common(command_of(name).options)))
        yield from (f"{name} {option}" for option in OPTION.findall(words + rest) if option not in known)


def test_what_is_named_exists() -> None:
    found = {path: [problem for text in texts(path) for problem in wrong(text)] for path in (*PROGRAMS, *PAGES)}
    assert {} == {str(path.relative_to(ROOT)): problems for path, problems in found.items() if problems}


def test_what_does_not_exist_is_found() -> None:
    assert ["peers add --frobnicate"] == list(wrong("hint: postroom peers add NAME --frobnicate"))
    assert ["frobnicate"] == list(wrong("hint: postroom frobnicate"))
