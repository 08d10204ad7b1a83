"""The manifest of requirements is true: every id is there, every test it names exists, every test is named."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
MANIFEST: dict[str, dict[str, Any]] = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
HOUSE = "house"  # tests of our own rules, which no requirement asks for
LETTERS = {"L": 8, "M": 18, "D": 7, "N": 6, "C": 5, "S": 5, "I": 10, "B": 13, "G": 12}
IDS = [f"{letter}{number}" for letter, last in LETTERS.items() for number in range(1, last + 1)]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    targets = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return names | classes | targets


def named_tests() -> list[tuple[str, str]]:
    return [(id, test) for id, entry in MANIFEST.items() for test in entry.get("tests", [])]


def test_every_requirement_is_in_the_manifest_and_nothing_else_is() -> None:
    assert [*IDS, HOUSE] == list(MANIFEST)


@pytest.mark.parametrize("id", IDS)
def test_a_requirement_is_proven_or_says_what_it_waits_for(id: str) -> None:
    entry = MANIFEST[id]
    assert {"tests", "later"} & set(entry), "neither tests nor a word why not"
    assert set(entry) <= {"tests", "later"}
    assert entry.get("tests") != []
    assert entry.get("later") != ""


@pytest.mark.parametrize(("id", "test"), named_tests())
def test_every_test_the_manifest_names_exists(id: str, test: str) -> None:
    file, _, name = test.partition("::")
    path = TESTS / file
    assert path.is_file(), f"{id} names {test}"
    assert not name or name in names_in(path), f"{id} names {test}"


def test_every_test_file_is_named_in_the_manifest() -> None:
    named = {test.partition("::")[0] for _, test in named_tests()}
    files = {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")}
    assert set() == files - named
