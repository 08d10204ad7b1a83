"""One browser for all tests, and one post room that runs for each file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser import House, browsers, house
from tests.server.http.running import daemon
from tests.server.http.visiting import token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with browsers() as one:
        yield one


@pytest.fixture(scope="module")
def full(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A post room in which something waits, is under way, was lost."""
    with (
        daemon(tmp_path_factory.mktemp("full"), "--http", "127.0.0.1:0", "--set", "durability=process") as one,
        house(one, browser, "--operator") as open_house,
    ):
        fill(open_house)
        yield open_house


@pytest.fixture(scope="module")
def empty(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A post room in which nothing is."""
    with daemon(tmp_path_factory.mktemp("empty"), "--http", "127.0.0.1:0", "--set", "durability=process") as one:
        # On a thread of its own: the one of the tests has an event loop, that of Playwright.
        with ThreadPoolExecutor(1) as thread:
            token = thread.submit(token_of, one).result()
        yield House(one, browser, token)


def fill(one: House) -> None:
    with one.room() as room:
        for name in ("atlas-coder", "atlas-planner", "birch-tester"):
            room.mailbox(name).register(description=f"works as {name}", capabilities=["work"], program="test")
        coder, planner = room.mailbox("atlas-coder"), room.mailbox("atlas-planner")
        coder.escalate("May I drop the old index?", subject="Drop the index?", reason="needs_approval")
        planner.send("human", "Plan **A** or plan B?", subject="Which plan?", kind="request", priority="urgent")
        planner.send("human", "The draft is ready.", subject="Draft one")
        planner.give_task("human", "Choose a title, please.", subject="Choose a title", deadline=7200)
        given = planner.give_task("atlas-coder", "Make it fast.", subject="Make it fast", deadline=3600)
        coder.task(given.id).accept()
        for number in range(60):
            coder.send("birch-tester", f"Line {number}\nand more of it.", subject=f"Letter {number}")
        tester = room.mailbox("birch-tester")
        for _ in range(3):
            work = tester.claim()
            assert work is not None
            work.fail("the parser gave up", retry=False)
