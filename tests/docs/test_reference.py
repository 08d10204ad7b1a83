"""The reference names everything there is; its descriptions are complete; links lead somewhere."""

from __future__ import annotations

import asyncio
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import postroom
from postroom import aio
from tests.docs.pages import BENCH_WRITES, HOME, PAGES, anchors, blocks, name_of, prose, rows, section

REFERENCE = (HOME / "docs" / "reference.md").read_text(encoding="utf-8")
TOOL = runpy.run_path(str(HOME / "tools" / "reference.py"))
CLASSES: dict[str, type] = TOOL["CLASSES"]
TWINS = [name for name in aio.__all__ if name.startswith("Async")]


def things() -> dict[str, object]:
    """One of each, so that attributes set at birth are seen too."""
    room = postroom.open("memory:")
    box = room.mailbox("a")
    box.send("a", "x")
    letter = box.check()[0]
    batch = box.claim(1)
    task = box.task(box.give_task("a", "x").id)
    return {"Room": room, "Mailbox": box, "Letter": letter, "Work": batch[0], "Batch": batch, "Task": task}


def twins() -> dict[str, object]:
    async def make() -> dict[str, object]:
        async with aio.open("memory:") as room:
            box = room.mailbox("a")
            await box.send("a", "x")
            letter = (await box.check())[0]
            batch = await box.claim(1)
            return {
                "AsyncRoom": room,
                "AsyncMailbox": box,
                "AsyncLetter": letter,
                "AsyncWork": batch[0],
                "AsyncBatch": batch,
                "AsyncTask": await box.task((await box.give_task("a", "x")).id),
            }

    return asyncio.run(make())


def public(thing: object) -> set[str]:
    """Its own public attributes; what every list has does not count."""
    common = set(dir(list)) if isinstance(thing, list) else set()
    return {name for name in dir(thing) if not name.startswith("_")} - common


def named(text: str) -> set[str]:
    """Names in code style: `name`, `name(…)` or `some.name(…)`."""
    return {found for code in re.findall(r"`([^`]+)`", text) for found in re.findall(r"^(?:\w+\.)*(\w+)", code)}


def documented(title: str) -> set[str]:
    inherited = {"Letter"} if title == "Work" else set()
    return set().union(*(named(section(REFERENCE, name)) for name in {title, *inherited}))


# -- what is written from the code


def test_every_written_page_is_current() -> None:
    command = [sys.executable, str(HOME / "tools" / "pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)


def test_every_public_name_is_in_the_reference() -> None:
    assert set(postroom.__all__) - named(REFERENCE) == set()


@pytest.mark.parametrize("title", CLASSES)
def test_every_attribute_of_a_class_is_in_its_section(title: str) -> None:
    assert public(things()[title]) - documented(title) == set()


@pytest.mark.parametrize("title", TWINS)
def test_every_attribute_of_an_async_twin_is_in_the_section_of_its_class(title: str) -> None:
    twin = twins()[title]
    assert public(twin) - documented(title.removeprefix("Async")) - named(section(REFERENCE, "asyncio")) == set()
    assert f"`{title}`" in section(REFERENCE, "asyncio")


@pytest.mark.parametrize("title", ["Fields of a letter", "Filters", "Settings", "Errors"])
def test_every_field_setting_and_error_says_what_it_is(title: str) -> None:
    found = list(rows(section(REFERENCE, title)))
    assert found and [cells[0] for cells in found if not cells[-1]] == []


@pytest.mark.parametrize("title", CLASSES)
def test_every_method_says_what_it_does(title: str) -> None:
    methods = [value for _, value in TOOL["members"](CLASSES[title]) if not isinstance(value, property)]
    assert methods and [method for method in methods if callable(method) and not TOOL["text_of"](method)] == []


# -- links and paths


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists() or there == BENCH_WRITES, f"{name_of(page)} links to {target}"
            assert not anchor or anchor in anchors(there), f"{name_of(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_a_page_names_exists(page: Path) -> None:
    paths = re.findall(r"`((?:src|tests|tools|bench|docs|examples)/[\w/.-]+)`", prose(page))
    assert [path for path in paths if not (HOME / path).exists() and HOME / path != BENCH_WRITES] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [HOME / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page not in PAGES:
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)", prose(page))
        waiting += [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert [name_of(page) for page in PAGES if page not in reached] == []


def test_the_readme_is_short() -> None:
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    assert len(readme.encode()) <= 7000


def test_every_file_of_docs_that_the_code_names_exists() -> None:
    """Hints and help texts name pages, and so do tools."""
    files = [path for folder in ("src", "tools", "bench", "examples") for path in (HOME / folder).rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    found = set(re.findall(r"\bdocs/[\w/-]+\.md", text))
    assert found and {name for name in found if not (HOME / name).exists()} == set()


def test_the_site_has_every_page_and_no_page_links_out_of_it() -> None:
    nav = set(re.findall(r"^ +- ([\w/-]+\.md)$", (HOME / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    docs = HOME / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert pages == nav
    for page in pages:
        links = [link for link in re.findall(r"\]\(([^)\s#]+)", prose(docs / page)) if "://" not in link]
        targets = [((docs / page).parent / link).resolve() for link in links]
        assert [target for target in targets if not target.is_relative_to(docs)] == [], page


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_names_its_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {
        "python",
        "sh",
        "console",
        "text",
        "sql",
        "toml",
        "json",
        "js",
    }


def test_the_hand_written_pages_stay_within_their_size() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (HOME / "docs").glob("*.md")]
    assert sum(len(text.split()) for text in texts if "<!-- Written by" not in text) <= 35_000
