"""The pages of the project, as these tests read them: blocks, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

HOME = Path(__file__).parent.parent.parent
BENCH_WRITES = HOME / "docs" / "performance.md"  # made by the bench, on the machine where it ran
PAGES = (
    *(HOME / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")),
    *(page for page in sorted((HOME / "docs").rglob("*.md")) if page != BENCH_WRITES),
)

_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"# (\w+\.py)\n")
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Block(Struct, frozen=True, kw_only=True):
    """A fenced block of a page."""

    language: str  # the word after the fence
    code: str
    line: int  # where its code begins, counted from 1
    before: str  # the line above the fence

    @property
    def runs(self) -> bool:
        """Whether the tests run it; where they do not, a comment before it says why."""
        return not self.before.startswith("<!-- Not run: ")

    @property
    def program(self) -> str | None:
        """The file this block is to be saved as, when its first line names one."""
        named = _PROGRAM.match(self.code)
        return named[1] if named else None


def name_of(page: Path) -> str:
    return page.relative_to(HOME).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [_block(text, found) for found in _BLOCK.finditer(text)]


def _block(text: str, found: re.Match[str]) -> Block:
    above = [line for line in text[: found.start()].splitlines() if line.strip()]
    return Block(
        language=found[1].strip(),
        code=found[2],
        line=text.count("\n", 0, found.start()) + 2,
        before=above[-1] if above else "",
    )


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def section(text: str, title: str) -> str:
    """What stands under a heading, down to the next one of its level or above."""
    headings = list(_HEADING.finditer(text))
    for at, heading in enumerate(headings):
        if heading[2] == title:
            following = (other for other in headings[at + 1 :] if len(other[1]) <= len(heading[1]))
            end = next((other.start() for other in following), len(text))
            return text[heading.end() : end]
    raise AssertionError(f"there is no heading {title!r}")


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of the tables in a text, headings left out."""
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`"):
            yield cells


def anchors(page: Path) -> set[str]:
    """The anchors a page's headings have, as GitHub makes them."""
    titles = (found[2].lower().replace("`", "") for found in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}
