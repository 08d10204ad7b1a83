"""A network that loses, cuts, stands still or is slow, between two systems; and then it heals."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom import draft
from postroom.federation.dialler import ANSWER
from postroom.formats.map import ROUTE
from tests.conftest import LONG, takes_long
from tests.daemons import until
from tests.federation.audit import Mail
from tests.federation.badwire import BadWire
from tests.federation.systems import System, join, systems
from tests.map.people import Person, visitor

A_LOT = (50, 50) if LONG else (10, 13)  # cuts, and letters of each of eight pairs before each
PATIENCE = 900.0 if LONG else 120.0  # seconds


class Ground:
    """Two systems and what is between them; `b` calls `a`. Letters go both ways, unless one has a bug."""

    def __init__(self, folder: Path, calls: str = "", called: str = "") -> None:
        self.a, self.b = System(folder, "a", "ann", "amy"), System(folder, "b", "bob", "ben")
        self.wire = BadWire(self.a.port)
        self._faults = {"a": called, "b": calls}
        self.out = Mail(self.b, self.a, ("bob", "ben"), ("ann", "amy"))
        self.back = Mail(self.a, self.b, ("ann", "amy"), ("bob", "ben"))

    @contextmanager
    def served(self) -> Iterator[Ground]:
        with systems(self.a, self.b), self.wire:
            join(self.b, self.a)
            self.b.trusts("a", url=self.wire.url)
            self.a.serve(faults=self._faults["a"])
            self.b.serve(faults=self._faults["b"])
            self.b.is_linked("a")
            self.a.is_linked("b")
            yield self

    def heal(self) -> None:
        """What was lost is lost: TCP has noticed, and both are told."""
        self.wire.cut()
        self.wire.loses, self.wire.holds, self.wire.speed = frozenset(), False, 0

    def problems(self) -> set[str]:
        return self.out.problems(PATIENCE) | self.back.problems(PATIENCE)


# -- what can happen


def nothing_passes(ground: Ground) -> None:
    ground.wire.loses = frozenset({"to", "from"})
    ground.out.send(10)
    ground.back.send(10)
    time.sleep(1)
    assert [] == ground.out.came() == ground.back.came()
    ground.heal()


def receipts_are_lost(ground: Ground) -> None:
    ground.wire.loses = frozenset({"from"})
    ground.out.send(10)
    until(ground.out.came)
    assert 40 == ground.out.waiting()
    ground.heal()


def receipts_of_the_called_one_are_lost(ground: Ground) -> None:
    ground.wire.loses = frozenset({"to"})
    ground.back.send(10)
    until(ground.back.came)
    assert 40 == ground.back.waiting()
    ground.heal()


def reset_in_the_middle_of_a_frame(ground: Ground) -> None:
    for count in (700, 3000, 9000):
        before = ground.wire.cuts
        ground.wire.cut_after(count)
        ground.out.send(5)
        ground.back.send(5)
        until(lambda: ground.wire.cuts > before)  # noqa: B023 - called at once
        ground.b.is_linked("a")


def it_stands_still(ground: Ground) -> None:
    ground.wire.holds = True
    ground.out.send(10)
    ground.back.send(10)
    time.sleep(25 if LONG else 1.5)  # in the long form both have noticed by then
    if LONG:
        assert ground.b.states() == {"a": "disconnected"}
    ground.wire.holds = False


def it_is_slow(ground: Ground) -> None:
    ground.wire.speed = 20_000
    ground.out.send(5)
    ground.back.send(5)
    until(lambda: len(ground.out.came()) >= 20 and len(ground.back.came()) >= 20)


TROUBLES: tuple[Callable[[Ground], None], ...] = (
    nothing_passes,
    receipts_are_lost,
    receipts_of_the_called_one_are_lost,
    reset_in_the_middle_of_a_frame,
    it_stands_still,
    it_is_slow,
)


def after(folder: Path, trouble: Callable[[Ground], None], **faults: str) -> set[str]:
    with Ground(folder, **faults).served() as ground:
        trouble(ground)
        return ground.problems()


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_each_letter_is_there_once_and_in_order(tmp_path: Path, trouble: Callable[[Ground], None]) -> None:
    assert set() == after(tmp_path, trouble)


@pytest.mark.parametrize(
    ("bug", "trouble", "shows"),
    [
        ("trusting", nothing_passes, "lost"),
        pytest.param("early", nothing_passes, "lost", marks=takes_long),
        pytest.param("trusting", reset_in_the_middle_of_a_frame, "lost", marks=takes_long),
        ("backwards", it_is_slow, "out of order"),
    ],
)
def test_a_bug_of_who_sends_is_found(
    tmp_path: Path, bug: str, trouble: Callable[[Ground], None], shows: str
) -> None:
    assert shows in after(tmp_path, trouble, calls=bug)


@pytest.mark.parametrize("way", ["called", "calls"])
def test_a_bug_of_who_gets_it_is_found(tmp_path: Path, way: str) -> None:
    trouble = receipts_are_lost if way == "called" else receipts_of_the_called_one_are_lost
    assert "twice" in after(tmp_path, trouble, **{way: "nameless"})


# -- a link that comes and goes


def flapping(folder: Path, slices: int, times: int, **faults: str) -> set[str]:
    """So many letters of each pair, each way, and that several times; each time the line is cut at some byte."""
    chance = random.Random(7)
    with Ground(folder, **faults).served() as ground:
        for _ in range(slices):
            before = ground.wire.cuts
            ground.wire.cut_after(chance.randrange(1, 1000 * times))
            ground.out.send(times)
            ground.back.send(times)
            until(lambda: ground.wire.cuts > before, PATIENCE)  # noqa: B023 - called at once
            if not faults:  # nobody waits for an answer on a line that is gone
                until(lambda: ground.out.waiting() + ground.back.waiting() < 8 * times, ANSWER * 0.8)
        return ground.problems()


def test_a_flapping_link_loses_nothing_doubles_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    assert set() == flapping(tmp_path, *A_LOT)


@pytest.mark.parametrize(
    ("faults", "shows"),
    [
        ({"calls": "trusting"}, "lost"),
        pytest.param({"called": "nameless"}, "twice", marks=takes_long),
        pytest.param({"calls": "backwards"}, "out of order", marks=takes_long),
    ],
)
def test_a_bug_is_found_by_a_flapping_link(tmp_path: Path, faults: dict[str, str], shows: str) -> None:
    assert shows in flapping(tmp_path, 3, 10, **faults)


def test_one_that_stopped_reading_and_is_gone_holds_up_nothing(tmp_path: Path) -> None:
    """What could not be said to it any more is said to the next connection, and not when patience ends."""
    with systems(System(tmp_path, "here", "ann")) as (here,):
        token = here.trusts("near")
        here.room.mailbox("ann").send_many([draft("eve@near", "x" * 600_000) for _ in range(16)])
        here.serve()
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(("127.0.0.1", here.port))
        with visitor(here.port, sock=narrow, max_queue=1, close_timeout=0.1) as deaf:
            _met(deaf, token)
            time.sleep(1)
            narrow.shutdown(socket.SHUT_RDWR)
        with visitor(here.port) as awake:
            _met(awake, token)
            while awake.hear(ANSWER / 3).get("method") != ROUTE:
                pass


def _met(person: Person, token: str) -> None:
    person.join(token, "gateway", name="near")
    person.say("map/federation/connect", systemId="near", postroom={"version": "0"})
