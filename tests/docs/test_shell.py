"""The shell commands of the pages run as they stand and print what the pages say; `…` stands for anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.cli.parse import parse
from tests.cli.shell import Shell
from tests.docs.pages import HOME, PAGES, blocks, name_of

SESSIONS = [HOME / "docs" / f"{name}.md" for name in ("quick-start", "agents")]
MARK = "@@ done @@"


def session(page: Path) -> list[tuple[str, str | None]]:
    """Every `sh` block that is to be run, and the `text` block right behind it, which says what it prints."""
    found: list[tuple[str, str | None]] = []
    follows = False
    for block in blocks(page):
        if block.language == "text" and follows:
            found[-1] = (found[-1][0], block.code)
        elif block.language == "sh" and block.runs:
            found.append((block.code, None))
        follows = block.language == "sh" and block.runs
    return found


def play(shell: Shell, typed: list[tuple[str, str | None]]) -> list[str]:
    """What each block prints, in one shell."""
    del shell.environment["POSTROOM_STORE"]  # the page makes its own room
    script = "\n".join(f"{code}\necho '{MARK}'" for code, _ in typed)
    return shell.type(f"exec 2>&1\n{script}").out.split(f"{MARK}\n")[:-1]


def is_as_shown(text: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, text.split("…"))), printed, re.DOTALL) is not None


@pytest.mark.parametrize("page", SESSIONS, ids=[page.stem for page in SESSIONS])
def test_a_session_prints_what_the_page_shows(tmp_path: Path, page: Path) -> None:
    typed = session(page)
    printed = play(Shell(tmp_path), typed)
    assert typed and len(typed) == len(printed)
    for (code, shown), result in zip(typed, printed, strict=True):
        assert is_as_shown(shown or "", result), f"{code}\n{result}"


@pytest.mark.parametrize("wrong", ["Sent x to bob.\n", "", "…\nand more\n"])
def test_a_page_that_shows_something_else_is_found(tmp_path: Path, wrong: str) -> None:
    typed = [("postroom send bob --as ann --body x --letter-id m-1", wrong)]
    assert not is_as_shown(wrong, play(Shell(tmp_path), [*typed])[0])


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """The words of each call of `postroom` in the shell blocks of a page, with its line."""
    for block in blocks(page):
        if block.language == "sh":
            for at, line in enumerate(block.code.replace("\\\n", "  ").splitlines()):
                reader = shlex.shlex(line, posix=True, punctuation_chars=True)
                reader.whitespace_split = True
                tokens = list(reader)
                for begin, word in enumerate(tokens):
                    if word == "postroom" and not (begin and re.match(r"[\w./-]+$", tokens[begin - 1])):
                        ends = (n for n, end in enumerate(tokens) if n > begin and set(end) <= set("();<>|&"))
                        yield block.line + at, tokens[begin + 1 : next(ends, len(tokens))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_on_a_page_is_understood(page: Path) -> None:
    for line, words in commands(page):
        try:
            parse(words)
        except Exception as refused:
            raise AssertionError(f"{name_of(page)}:{line}: postroom {shlex.join(words)}: {refused}") from refused


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_to_copy_hold_no_prompt(page: Path) -> None:
    prompts = [
        block.line
        for block in blocks(page)
        if block.language == "sh" and re.search(r"^\$ ", block.code, re.MULTILINE)
    ]
    assert prompts == []
