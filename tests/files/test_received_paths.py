"""A received path is never followed (L2): a file part without its bytes stays a reference on every way out.

The letter is a file that another program wrote into a nanobot folder. A file with the name it gives lies in the
working folder of the recipient.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Letter, Part, Room, aio, copy_room
from postroom.core import compose
from postroom.core.authorize import OWNER
from postroom.model.message import Handoff
from postroom.store.files.layouts.base import layout_named
from tests.daemons import until
from tests.federation.mounted import mount
from tests.federation.systems import System, systems
from tests.files.test_strangers import drop
from tests.server import gullible
from tests.server.test_who_may import METHODS, carried_out

NANOBOT = layout_named("nanobot")
SECRET = b"what lies in the working folder"
ENCLOSED = base64.b64encode(SECRET)
NAMED: dict[str, Any] = {"type": "file", "path": "secret.txt", "size": 5}
CONTENT = {"parts": [NAMED, {"type": "file", "path": "secret.txt", "bytes": None}]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_bytes(SECRET)
    return tmp_path


@pytest.fixture
def address(folder: Path) -> str:
    """A nanobot folder in which the letter lies."""
    drop(folder / "mail", NANOBOT, content=CONTENT)
    return f"files:{folder / 'mail'}?layout=nanobot"


@contextmanager
def opened(address: str) -> Iterator[Room]:
    with postroom.open(address, durability="process") as room:
        yield room


async def _forward_async(room: Room, letter: Letter) -> None:
    async with aio.open(room.settings.store, durability="process") as same:
        await same.mailbox("bob").forward(letter.id, "carol")


def _by_wire(room: Room, letter: Letter) -> None:
    params = {"agent_id": "bob", "id": letter.id, "to": "carol"}
    assert "done" == carried_out(room, OWNER, METHODS["mail/forward"], params)["told"]


# How bob passes on what he got, so that somebody else has it.
WAYS: dict[str, Callable[[Room, Letter], Any]] = {
    "forward": lambda _room, letter: letter.forward("carol"),
    "forward by wire": _by_wire,
    "forward, async": lambda room, letter: asyncio.run(_forward_async(room, letter)),
    "send": lambda room, letter: room.mailbox("bob").send("carol", letter.parts),
    "send many": lambda room, letter: room.mailbox("bob").send_many([postroom.draft("carol", list(letter.parts))]),
    "reply": lambda _room, letter: letter.reply(letter.parts),
    "done and answered": lambda room, _letter: [
        work.ack_and_reply(work.parts) for work in room.mailbox("bob").claim(1)
    ],
    "task": lambda room, letter: room.mailbox("bob").give_task("carol", letter.parts),
    "escalate": lambda room, letter: room.mailbox("bob").escalate(
        letter.parts, reason="blocked", ladder=["carol"]
    ),
}


def passed_on(room: Room, way: str) -> list[Part]:
    """The file parts of the letter that bob made of it."""
    (letter,) = room.mailbox("bob").check()
    WAYS[way](room, letter)
    (sent,) = room.mailbox("bob").sent()
    assert ENCLOSED not in b"".join(room.export()), "the file is enclosed"
    return [part for part in sent.parts if part.type == "file"]


@pytest.mark.parametrize("way", WAYS)
def test_what_came_without_its_bytes_is_passed_on_without_them(address: str, way: str) -> None:
    with opened(address) as room:
        assert CONTENT["parts"] == [part.to_json() for part in passed_on(room, way)]


@pytest.mark.parametrize("way", WAYS)
def test_with_the_old_fault_the_file_of_that_name_is_enclosed(
    address: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "with_content", gullible.enclosed)
    with opened(address) as room, pytest.raises(AssertionError, match="the file is enclosed"):
        passed_on(room, way)


def test_the_files_of_a_handoff_are_names(address: str) -> None:
    with opened(address) as room:
        done = Handoff(work_completed="x", files_modified=("secret.txt",), state_file="secret.txt")
        room.mailbox("bob").handoff("carol", done, attachments=["secret.txt"])
        assert ENCLOSED not in b"".join(room.export())


def test_rooms_that_are_exported_imported_and_copied_keep_it(address: str, folder: Path) -> None:
    with opened(address) as room:
        lines = [*room.export()]
    assert 1 == copy_room(address, folder / "copied.db", durability="process").letters
    for place in ("imported.db", "copied.db"):
        with opened(f"sqlite:{folder / place}") as room:
            if place == "imported.db":
                room.load(lines)
            assert CONTENT["parts"] == [part.to_json() for part in passed_on(room, "forward")]


def test_a_mounted_folder_brings_it_as_a_reference(folder: Path) -> None:
    """By way of the daemon, which has the file in its own working folder too."""
    with systems(System(folder, "home", "ann")) as (home,):
        (folder / "mail").mkdir()
        mount(home, f"files:{folder / 'mail'}?layout=nanobot")
        home.serve()
        home.is_linked("folder")
        drop(folder / "mail", NANOBOT, sender="researcher", to="ann@home", content=CONTENT)
        (letter,) = until(lambda: home.room.mailbox("ann").check())
        assert CONTENT["parts"] == [part.to_json() for part in letter.parts]
        letter.forward("amy")
        assert ENCLOSED not in b"".join(home.room.export())
