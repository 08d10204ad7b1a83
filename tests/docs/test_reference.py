"""The reference names everything there is, and nothing that is not; links lead somewhere; drawings are true."""

from __future__ import annotations

import asyncio
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import aio, errors, keywords
from postroom.core.inbox import Filtered
from postroom.environment import PREFIX
from postroom.model import task as model_task
from postroom.model.delivery import MOVES, State
from postroom.settings import Settings
from tests.docs.pages import BENCH_WRITES, HOME, PAGES, anchors, blocks, name_of, prose, rows, section

REFERENCE = (HOME / "docs" / "reference.md").read_text(encoding="utf-8")
CLASSES: dict[str, type] = {
    "Room": postroom.Room,
    "Mailbox": postroom.Mailbox,
    "Letter": postroom.Letter,
    "Work": postroom.Work,
    "Batch": postroom.Batch,
    "Task": postroom.Task,
}
TWINS = {
    "AsyncRoom": aio.AsyncRoom,
    "AsyncMailbox": aio.AsyncMailbox,
    "AsyncLetter": aio.AsyncLetter,
    "AsyncWork": aio.AsyncWork,
    "AsyncBatch": aio.AsyncBatch,
    "AsyncTask": aio.AsyncTask,
}
INHERITED: dict[str, set[str]] = {"Work": {"Letter"}} | {
    f"Async{name}": {name, "Letter"} if name == "Work" else {name} for name in CLASSES
}


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
    return set().union(*(named(section(REFERENCE, name)) for name in {title, *INHERITED.get(title, ())}))


def signature_of(function: Any) -> str:
    """As a reader writes it: no types, no self."""
    bare = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    return str(inspect.Signature([p for p in bare if p.name != "self"]))


# -- names


def test_every_public_name_is_in_the_reference() -> None:
    assert set(postroom.__all__) - named(REFERENCE) == set()


@pytest.mark.parametrize("title", CLASSES)
def test_every_attribute_of_a_class_is_in_its_section(title: str) -> None:
    assert public(things()[title]) - documented(title) == set()


@pytest.mark.parametrize("title", TWINS)
def test_every_attribute_of_an_async_twin_is_in_its_section(title: str) -> None:
    assert public(twins()[title]) - documented(title) == set()


def test_the_types_of_the_async_face_are_current() -> None:
    made = runpy.run_path(str(HOME / "tools" / "aio_stub.py"))
    assert made["stub"]() == made["STUB"].read_text(encoding="utf-8"), "make docs writes it"


def test_the_async_door_is_in_the_reference() -> None:
    own = {name for name in aio.__all__ if name.startswith("Async")}
    assert own == set(TWINS)
    assert "`postroom.aio.open(store=None, **settings)`" in REFERENCE


def told_calls() -> Iterator[tuple[str, str, str]]:
    """Every call in a table: where it stands, its name, its signature."""
    for title in CLASSES:
        for cells in rows(section(REFERENCE, title)):
            yield title, *_split(cells[0])
    for title in ("Opening a room", "Parts"):
        for cells in rows(section(REFERENCE, title)):
            if "(" in cells[0]:
                yield "postroom", *_split(cells[0].replace("postroom.", ""))


def _split(code: str) -> tuple[str, str]:
    name, bracket, rest = code.strip("`").partition("(")
    return name, bracket + rest


@pytest.mark.parametrize(("owner", "name", "text"), list(told_calls()))
def test_what_the_reference_tells_of_a_call_is_true(owner: str, name: str, text: str) -> None:
    if text:
        assert text == signature_of(getattr(CLASSES.get(owner, postroom), name))
    else:
        assert name in public(things()[owner])


def test_every_field_and_filter_is_in_its_table() -> None:
    fields = {name for cells in rows(section(REFERENCE, "What a letter may carry")) for name in named(cells[0])}
    filters = {name for cells in rows(section(REFERENCE, "Filters")) for name in named(cells[0])}
    assert set(keywords.Fields.__annotations__) == fields
    assert {*Filtered.__struct_fields__, "since"} - {"agent_id"} == filters
    assert set(keywords.Wanted.__annotations__) == filters - {"since"}  # which is a cursor in `wait`


VALUES: list[type] = [
    postroom.Agent,
    postroom.AgentFlow,
    postroom.BackupReport,
    postroom.Card,
    postroom.Change,
    postroom.Conversation,
    postroom.Delivery,
    postroom.Escalation,
    postroom.Diagnosis,
    postroom.Finding,
    postroom.Flow,
    postroom.Handoff,
    postroom.Imported,
    postroom.Message,
    postroom.Presence,
    postroom.Recipient,
    postroom.Standing,
    postroom.Stats,
    postroom.Stop,
    postroom.Sweep,
    postroom.Tally,
    postroom.Template,
    postroom.Thread,
    postroom.Trace,
    postroom.Turn,
]


@pytest.mark.parametrize("value", VALUES)
def test_every_field_of_a_value_is_in_its_row(value: type) -> None:
    result = next(cells[1] for cells in rows(section(REFERENCE, "Values")) if cells[0] == f"`{value.__name__}`")
    assert set(inspect.signature(value).parameters) - named(result) == set()


# -- settings, errors, states


def shown(default: str | float) -> str:
    """A default as the table writes it."""
    if isinstance(default, bool):
        return f"`{default}`".lower()
    if isinstance(default, str):
        return f'`"{default}"`'
    return f"`{int(default)}`" if default == int(default) else f"`{default}`"


def test_the_settings_are_those_in_the_table() -> None:
    results = [tuple(cells[:3]) for cells in rows(section(REFERENCE, "Settings"))]
    true = [
        (f"`{name}`", shown(default), f"`{PREFIX}{name.upper()}`")
        for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    ]
    assert sorted(true) == sorted(results)


def test_the_errors_are_those_in_the_table() -> None:
    results = [tuple(cells[:4]) for cells in rows(section(REFERENCE, "Errors"))]
    classes = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, errors.PostroomError)]
    true = [(f"`{e.__name__}`", str(e.code), e.fault, "yes" if e.temporary else "no") for e in classes]
    assert sorted(true) == sorted(results)


def test_the_states_are_those_in_the_table() -> None:
    assert [f"`{state}`" for state in State] == [cells[0] for cells in rows(section(REFERENCE, "Delivery states"))]
    assert {f"`{state}`" for state in model_task.TaskState} == {
        cells[0] for cells in rows(section(REFERENCE, "Task states"))
    }


# -- drawings


def test_the_drawings_are_there_and_true() -> None:
    drawn = runpy.run_path(str(HOME / "tools" / "draw.py"))["drawn"]
    assert drawn(REFERENCE) == REFERENCE
    for (before, action), after in MOVES.items():
        assert f"{before} --> {after}: {action}\n" in section(REFERENCE, "Delivery states")
    for begin, targets in model_task.MOVES.items():
        for end in targets:
            assert f"{begin} --> {end}\n" in section(REFERENCE, "Task states")


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
    paths = re.findall(r"`((?:src|tests|tools|bench|docs)/[\w/.-]+)`", prose(page))
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_names_its_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {
        "python",
        "sh",
        "console",
        "text",
        "mermaid",
        "sql",
        "toml",
        "json",
        "js",
    }
