"""The shell sessions of the pages are typed as they stand, and answer as they say; `…` stands for anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.docs.pages import HOME, blocks

PAGES = [HOME / "docs" / f"{name}.md" for name in ("ten-minutes", "files", "hosts", "installing-hosts")]
MARK = "@@ done @@"


def session(page: Path) -> list[tuple[str, str]]:
    """Every line that is typed, and what the page says it answers."""
    typed: list[tuple[str, str]] = []
    for block in blocks(page):
        if block.language == "console":
            for line in block.code.splitlines(keepends=True):
                if line.startswith("$ "):
                    typed.append((line[2:].rstrip("\n"), ""))
                else:
                    typed[-1] = (typed[-1][0], typed[-1][1] + line)
    return typed


def play(shell: Shell, typed: list[tuple[str, str]]) -> list[str]:
    """What each line answers, in one shell."""
    del shell.environment["POSTROOM_STORE"]  # the page makes its own room
    script = "\n".join(f"{line}\necho '{MARK}'" for line, _ in typed)
    return shell.type(f"exec 2>&1\n{script}").out.split(f"{MARK}\n")[:-1]


def is_as_told(text: str, answered: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, text.split("…"))), answered, re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_session_goes_as_the_page_tells(tmp_path: Path, page: Path) -> None:
    typed = session(page)
    answers = play(Shell(tmp_path), typed)
    assert len(typed) == len(answers)
    for (line, result), answered in zip(typed, answers, strict=True):
        assert is_as_told(result, answered), f"$ {line}\n{answered}"


@pytest.mark.parametrize("wrong", ["Sent x to bob.\n", "", "…\nand more\n"])
def test_a_page_that_tells_otherwise_is_found(tmp_path: Path, wrong: str) -> None:
    typed = [("postroom send bob --as ann --body x --letter-id m-1", wrong)]
    assert not is_as_told(wrong, play(Shell(tmp_path), typed)[0])
