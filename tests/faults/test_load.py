"""Many letters, many agents, letters of every size. Quick is what takes few steps, not seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from postroom import Room
from postroom.errors import PostroomError, TooLarge
from postroom.model.codec import encode
from postroom.model.query import Query
from postroom.model.record import BEAT
from postroom.settings import Settings
from postroom.store.protocol import Store
from tests.conftest import LONG
from tests.faults.kinds import Kind
from tests.faults.planting import Opener
from tests.letters import letter, post

FEW, BATCH = (1_000, 2_000) if LONG else (300, 500)
AGENTS, BEATS = 200 if LONG else 60, 2
Steps: TypeAlias = Callable[[Store, Callable[[], object]], int]
SLOWER = 3  # times the steps in a room a hundred times as large


@contextmanager
def opened(open_store: Opener, folder: Path) -> Iterator[Room]:
    folder.mkdir(exist_ok=True)
    store = open_store(folder)
    try:
        yield Room(store, Settings())
    finally:
        store.close()


# -- one inbox with many letters


def fill(store: Store, count: int) -> None:
    for first in range(0, count, BATCH):
        store.commit([post(letter(f"m{n}", sender="ann")) for n in range(first, min(count, first + BATCH))])


def costs(room: Room, steps: Steps | None) -> dict[str, int]:
    """What the verbs of a worker cost here; nothing where that cannot be told."""
    store, bob = room.core.store, room.mailbox("bob")
    if steps is None:
        return {}
    verbs: dict[str, Callable[[], object]] = {
        "check": lambda: bob.check(10, peek=True),
        "claim": bob.claim,
        "wait": lambda: bob.wait(0, peek=True),
        "send": lambda: room.mailbox("ann").send("bob", "one more"),
    }
    for verb in verbs.values():
        verb()  # once, for statements that are prepared and names that are learnt
    return {name: steps(store, verb) for name, verb in verbs.items()}


def audit_of_many(open_store: Opener, folder: Path, steps: Steps | None, many: int) -> list[str]:
    """Letters that are not there, and verbs that cost more because there are so many."""
    with opened(open_store, folder / "few") as room:
        fill(room.core.store, FEW)
        before = costs(room, steps)
    with opened(open_store, folder / "many") as room:
        fill(room.core.store, many)
        there = sum(room.core.store.count(Query(mailbox="bob")).values())
        wrong = [] if there == many else [f"{many - there} letters are lost"]
        wrong += [f"counts are {counts}" for counts in [room.mailbox("bob").counts()] if counts["total"] != there]
        after = costs(room, steps)
    grown = {verb: (before[verb], after[verb]) for verb in before if after[verb] > SLOWER * before[verb] + 10}
    return wrong + [f"{verb} takes {now} steps, not {once}" for verb, (once, now) in grown.items()]


@pytest.mark.costly
def test_many_letters_are_all_there_and_the_next_costs_no_more(kind: Kind, tmp_path: Path) -> None:
    many = 100_000 if LONG else kind.letters
    assert audit_of_many(kind.open, tmp_path, kind.steps, many) == []


@pytest.mark.costly
def test_the_audit_finds_a_store_that_loses_letters(kind: Kind, tmp_path: Path) -> None:
    wrong = audit_of_many(kind.with_bug("lossy"), tmp_path, steps=None, many=2 * BATCH)

    assert ["2 letters are lost"] == wrong


@pytest.mark.costly
def test_the_audit_finds_a_store_that_looks_at_all_letters(kind: Kind, tmp_path: Path) -> None:
    if kind.steps is None:
        pytest.skip(f"what it costs cannot be told of {kind.name}")
    wrong = audit_of_many(kind.with_bug("unindexed"), tmp_path, kind.steps, many=max(5 * FEW, kind.letters // 5))

    assert any("claim takes" in complaint for complaint in wrong)


# -- many agents at once


def audit_of_agents(open_store: Opener, folder: Path) -> list[str]:
    """Let many agents register and beat at once; who failed, and who is not as it said."""
    failed: list[str] = []
    with opened(open_store, folder) as room:
        line = threading.Barrier(AGENTS)

        def live(name: str) -> None:
            line.wait(60)
            try:
                room.mailbox(name).register(capabilities=[f"of-{name}"])
                for _ in range(BEATS):
                    room.mailbox(name).heartbeat()
            except PostroomError as error:
                failed.append(f"{name}: {error}")

        names = [f"agent{number}" for number in range(AGENTS)]
        threads = [threading.Thread(target=live, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        agents = {agent.card.id: agent for agent in room.agents()}
        beats = {record.key: record.revision for record in room.core.store.records(BEAT)}
    wrong = [f"{name} is not listed" for name in names if name not in agents]
    wrong += [f"{name} lost its card" for name in agents if agents[name].card.capabilities != (f"of-{name}",)]
    return failed + wrong + [f"{name}: {beats.get(name)} beats" for name in names if beats.get(name) != 1 + BEATS]


@pytest.mark.costly
def test_many_agents_register_and_beat_at_once(kind: Kind, tmp_path: Path) -> None:
    assert audit_of_agents(kind.open, tmp_path) == []


@pytest.mark.costly
def test_the_audit_finds_a_store_that_loses_beats(kind: Kind, tmp_path: Path) -> None:
    assert any("beat" in complaint for complaint in audit_of_agents(kind.with_bug("deaf"), tmp_path))


# -- letters of every size


def audit_of_sizes(open_store: Opener, folder: Path, limit: int) -> list[str]:
    """Send letters up to one byte over the limit; those that came otherwise than they should."""
    wrong = []
    with opened(open_store, folder) as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        ann.send("bob", "x")
        (first,) = bob.check(peek=True)
        bare = len(encode(first.message)) - 1
        first.ack()
        for length in (0, 1, 1000, limit - bare - 1, limit - bare, limit - bare + 1):
            text = "x" * length
            try:
                ann.send("bob", text)
            except TooLarge:
                came: list[str] = []
            else:
                came = [work.text for work in bob.claim(2)]
            if came != ([text] if bare + length <= limit else []):
                wrong.append(f"{length} characters came as {[len(each) for each in came]}")
        room.mailbox("bob").check(None)
    return wrong


LIMIT = Settings().max_message_bytes


@pytest.mark.costly
def test_letters_of_every_size_up_to_the_limit_come_and_larger_ones_are_refused(
    kind: Kind, tmp_path: Path
) -> None:
    assert audit_of_sizes(kind.open, tmp_path, LIMIT) == []


@pytest.mark.costly
def test_the_audit_finds_a_limit_that_is_off_by_one_and_a_store_that_drops_large_letters(
    kind: Kind, tmp_path: Path
) -> None:
    assert len(audit_of_sizes(kind.open, tmp_path / "off", LIMIT - 1)) == 1
    assert len(audit_of_sizes(kind.with_bug("short"), tmp_path / "short", LIMIT)) == 2
