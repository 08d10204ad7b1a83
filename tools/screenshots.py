"""Draw docs/plots/dashboard-*.png: the dashboard in a real browser, on a room in which agents write just now.

The room is made here, served by `postroom serve` and opened by the link of `postroom dashboard`. Where there is no
browser, nothing is drawn.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import postroom
from postroom.core.key_file import KeyFile
from postroom.room import Room

ROOM = "room/room.db"  # in a folder of its own: the key of a person lies outside
PLOTS = Path(__file__).parent.parent / "docs" / "plots"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SIZE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780}
TEAMS = {
    "atlas": ("planner", "coder", "reviewer", "tester"),
    "birch": ("planner", "coder", "docs"),
    "cedar": ("planner", "coder", "tester", "ops"),
    "delta": ("research", "writer", "reviewer"),
    "ember": ("planner", "coder", "release"),
}
SUBJECTS = (
    "Review the index change", "The build is green again", "Plan for the release", "A flaky test in the store",
    "Where does the cache live?", "Numbers of last night", "Order of the merges", "The parser is twice as fast",
    "Notes for the changelog", "A question about leases",
)  # fmt: skip
QUESTION = """May I drop the old index? Nothing has read it since **March**.

| table | rows | last read |
|---|--:|---|
| `letters_old` | 1,204,993 | 2 March |
| `index_v1` | 88,120 | 11 February |

1. take a backup
2. `DROP INDEX letters_old_by_at`
3. run the doctor

```sql
DROP INDEX letters_old_by_at;
```
"""


def tell(room: Room) -> None:
    """Write what waits for the person, tasks, and mail that could not be delivered."""
    for team, roles in TEAMS.items():
        for role in roles:
            words = f"{role} of team {team}"
            room.mailbox(f"{team}-{role}").register(
                description=words, capabilities=[role], scopes=["default", team]
            )
    box = room.mailbox
    for _ in range(120):
        write(room)
    box("delta-writer").send("human", "The first draft is in the repository.", subject="Draft one is ready")
    box("cedar-ops").send(
        "human",
        "The certificate of the hub runs out in nine days.",
        subject="Renew it?",
        kind="request",
        priority="urgent",
    )
    box("birch-planner").send(
        "human", "Plan **A** takes two weeks, plan **B** three days.", subject="Plan A or plan B?", kind="request"
    )
    box("delta-research").give_task(
        "human", "Choose one of the three.", subject="Choose a title", deadline=5 * 3600
    )
    asked = box("human").give_task("atlas-coder", "For the next version.", subject="Write the changelog")
    asked_of = box("atlas-coder").task(asked.id)
    asked_of.accept()
    asked_of.start()
    asked_of.ask("For users or for developers?")
    for giver, taker, subject in (
        ("atlas-planner", "atlas-coder", "Make the search faster"),
        ("birch-planner", "birch-docs", "Describe the new settings"),
        ("cedar-planner", "cedar-tester", "Try the release on macOS"),
    ):
        given = box(giver).give_task(taker, "As we said.", subject=subject, deadline=random.randint(1, 9) * 3600)
        if taker != "birch-docs":
            box(taker).task(given.id).accept()
    for _ in range(3):
        work = box("birch-docs").claim()
        if work is not None:
            work.fail("the parser gave up: unexpected token", retry=False)
    box("atlas-coder").escalate(QUESTION, subject="Drop the old index?", reason="approval")


def write(room: Room) -> None:
    """Send one letter, mostly within a team."""
    team = random.choice([*TEAMS])
    other = team if random.random() < 0.75 else random.choice([*TEAMS])
    sender, receiver = f"{team}-{random.choice(TEAMS[team])}", f"{other}-{random.choice(TEAMS[other])}"
    if sender != receiver:
        room.mailbox(sender).send(receiver, "As we said.", subject=random.choice(SUBJECTS))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The room in this folder, served; yields the link to its dashboard."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    around = kept | {"HOME": str(folder), "POSTROOM_HUMAN_KEY": str(folder / "key")}
    program = [sys.executable, "-m", "postroom"]
    room = ["--room", str(folder / ROOM)]
    serve = subprocess.Popen(
        [*program, "serve", *room, "--http", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, env=around
    )
    try:
        json.loads(serve.stdout.readline() if serve.stdout else b"")
        lends = subprocess.Popen(
            [*program, "dashboard", *room, "--print", "--operator"], stdout=subprocess.PIPE, env=around
        )
        try:
            yield (lends.stdout.readline() if lends.stdout else b"").decode().strip()
        finally:
            lends.kill()
            lends.communicate()
    finally:
        serve.kill()
        serve.communicate()


@contextmanager
def traffic(path: Path) -> Iterator[None]:
    """Letters between the agents, until the end of the block."""
    ended = threading.Event()

    def go_on() -> None:
        with postroom.open(str(path)) as room:
            while not ended.wait(0.04):
                write(room)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


def draw(browser: Any, link: str) -> None:
    """Take the pictures: what waits, the flow in the dark, tasks, and a telephone."""
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    page.goto(link)
    page.click(".row:has-text('Drop the old index?')")
    page.wait_for_selector(".reader table")
    page.evaluate("() => document.activeElement.blur()")  # no ring around the letter
    page.mouse.move(640, 2)
    page.screenshot(path=PLOTS / "dashboard-waiting.png")
    page.click("nav a[href='#/tasks']")
    page.wait_for_selector(".task")
    page.mouse.move(640, 2)
    page.screenshot(path=PLOTS / "dashboard-tasks.png")
    page.emulate_media(color_scheme="dark")
    page.click("nav a[href='#/flow']")
    page.wait_for_selector(".graph canvas")
    page.mouse.move(640, 2)
    time.sleep(6)  # until there are lines between all teams
    page.screenshot(path=PLOTS / "dashboard-flow.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.click("nav a[href='#/waiting']")
    page.wait_for_selector(".list [role=option]")
    page.mouse.move(200, 2)
    page.screenshot(path=PLOTS / "dashboard-phone.png")


def main() -> None:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None or find_spec("playwright") is None:
        print("the dashboard is not drawn anew, for there is no browser: make browser")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - installed by `make browser` alone

    random.seed(26)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as tools:
        folder = Path(name)
        (folder / ROOM).parent.mkdir()
        with postroom.open(str(folder / ROOM)) as room:
            # The person has a key, and the room knows it by what they do.
            tell(room.acting_as(replace(room.principal, signer=KeyFile(str(folder / "key"), at_terminal=True))))
        browser = tools.chromium.launch(executable_path=path, args=options)
        with served(folder) as link, traffic(folder / ROOM):
            draw(browser, link)
        browser.close()


if __name__ == "__main__":
    main()
