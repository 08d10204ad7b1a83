"""Rooms to test in, with a clock that moves when told to, over every kind of store (tests/contract/stores.py)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from postroom import Letter, Message, Room
from postroom.core.authorize import OWNER, Principal
from postroom.model.query import Moment
from postroom.settings import Settings
from tests.conftest import LONG
from tests.contract.stores import CORE, STORES, Kind
from tests.letters import BOOT, NOW, run_plans_twice


class FakeClock:
    """Wall and uptime, each moved by hand."""

    def __init__(self) -> None:
        self.moment = Moment(wall=NOW, steady=1000.0, boot=BOOT)

    def now(self) -> Moment:
        return self.moment

    @property
    def wall(self) -> datetime:
        return self.moment.wall

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        self.jump(seconds)
        self.tick(seconds)

    def jump(self, seconds: float) -> None:
        """The wall clock is set, to and fro."""
        self.moment = replace(self.moment, wall=self.moment.wall + timedelta(seconds=seconds))

    def tick(self, seconds: float) -> None:
        """Only the uptime grows."""
        self.moment = replace(self.moment, steady=self.moment.steady + seconds)

    def reboot(self) -> None:
        self.moment = replace(self.moment, steady=1.0, boot=f"{self.moment.boot}+")


class RoomFactory:
    """One store, and as many rooms over it as a test asks for."""

    def __init__(self, kind: Kind, folder: Path, clock: FakeClock) -> None:
        self.kind = kind
        self.folder = folder
        self.clock = clock
        self.store = run_plans_twice(kind.open(folder, clock.moment.boot))

    def room(self, principal: Principal = OWNER, **settings: Any) -> Room:
        files = self.folder / "files"
        files.mkdir(exist_ok=True)
        return Room(self.store, Settings(file_root=str(files), **settings), clock=self.clock, principal=principal)

    def reopen(self) -> None:
        """Another process opens the room, where a room outlives its process."""
        if self.kind.lasts:
            self.store.close()
            self.store = run_plans_twice(self.kind.open(self.folder, self.clock.moment.boot))


@pytest.fixture(params=STORES if LONG else CORE, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def factory(kind: Kind, tmp_path: Path, clock: FakeClock) -> Iterator[RoomFactory]:
    opened = RoomFactory(kind, tmp_path, clock)
    yield opened
    opened.store.close()


@pytest.fixture
def room(factory: RoomFactory) -> Room:
    return factory.room()


def texts(letters: list[Letter]) -> list[str]:
    return [letter.text for letter in letters]


def spoken(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def addresses(message: Message) -> list[str]:
    return [recipient.address for recipient in message.recipients]
