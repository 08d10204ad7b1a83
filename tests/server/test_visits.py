"""When visits of the dashboard begin and end, by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from postroom import Busy, NotAllowed
from postroom.server import visits
from postroom.server.visits import CODE_SECONDS, IDLE_SECONDS, Actor, Visits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the loop, which moves when told to."""
    now = [1000.0]
    monkeypatch.setattr(visits, "_now", lambda: now[0])
    return now


@pytest.fixture
def known() -> Visits:
    made = Visits(datetime.now(UTC))
    made.url = "http://127.0.0.1:4650"
    return made


def is_over(act: Callable[[], object]) -> bool:
    try:
        act()
    except NotAllowed:
        return True
    return False


def test_a_code_is_good_for_a_minute(known: Visits, clock: list[float]) -> None:
    early, late = (known.open("human", is_proven=True)[0] for _ in range(2))
    clock[0] += CODE_SECONDS
    known.enter(early)
    clock[0] += 0.1
    with pytest.raises(NotAllowed, match="older than a minute"):
        known.enter(late)


def test_a_visit_ends_when_it_was_not_used_for_long(known: Visits, clock: list[float]) -> None:
    ended: list[str] = []
    token, visit = known.enter(known.open("human", is_proven=True)[0])
    known.join(visit.principal, "tab", lambda: ended.append("tab"), lambda _notice: True)
    for _ in range(3):
        clock[0] += IDLE_SECONDS
        assert visit is known.find(token)
    clock[0] += IDLE_SECONDS + 1
    assert is_over(lambda: known.of(visit.principal)) and is_over(lambda: known.find(token))
    assert ["tab"] == ended


@pytest.mark.parametrize(("setting", "check"), [
    ("CODE_SECONDS", test_a_code_is_good_for_a_minute),
    ("IDLE_SECONDS", test_a_visit_ends_when_it_was_not_used_for_long),
])  # fmt: skip
def test_times_that_never_end_are_missed(
    known: Visits, clock: list[float], monkeypatch: pytest.MonkeyPatch, setting: str, check: Any
) -> None:
    monkeypatch.setattr(visits, setting, float("inf"))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(known, clock)


def test_codes_and_visits_are_few_however_many_are_opened(known: Visits, clock: list[float]) -> None:
    codes = [known.open("human", is_proven=True)[0] for _ in range(visits.MAX_CODES + 1)]
    assert is_over(lambda: known.enter(codes[0]))
    tokens = []
    for _ in range(visits.MAX_VISITS + 1):
        clock[0] += 1
        tokens.append(known.enter(known.open("human", is_proven=True)[0])[0])
    assert is_over(lambda: known.find(tokens[0])) and not is_over(lambda: known.find(tokens[1]))
    assert visits.MAX_VISITS == known.count


def test_unproven_visits_end_no_page_and_no_proven_visit(known: Visits, clock: list[float]) -> None:
    def entered(*, is_proven: bool) -> tuple[str, visits.Visit]:
        clock[0] += 1
        return known.enter(known.open("human", is_proven=is_proven)[0])

    proven, _ = entered(is_proven=True)
    looked_at, shown = entered(is_proven=False)
    known.join(shown.principal, "tab", lambda: None, lambda _notice: True)
    flood = [entered(is_proven=False)[0] for _ in range(visits.MAX_VISITS + 1)]
    assert [False, False, True] == [is_over(partial(known.find, one)) for one in (proven, looked_at, flood[0])]
    for number, visit in enumerate(list(known._visits.values())):
        known.join(visit.principal, number, lambda: None, lambda _notice: True)
    late, _ = known.open("human", is_proven=False)
    for _ in range(2):
        with pytest.raises(Busy, match="too many visits"):
            known.enter(late)
    many = sum(not one.is_proven for one in known._visits.values())
    entered(is_proven=True)
    assert many - 1 == sum(not one.is_proven for one in known._visits.values())
    assert visits.MAX_VISITS == known.count


def test_unproven_codes_take_the_place_of_no_proven_one(known: Visits, clock: list[float]) -> None:
    mine, visit = known.open("human", is_proven=True)
    for _ in range(visits.MAX_CODES + 1):
        known.open("human", is_proven=False)
    assert visit is known.enter(mine)[1]
    assert [True, False] == [
        known.describe(known.open("human", is_proven=one)[1])["proven"] for one in (True, False)
    ]


def test_without_http_there_is_no_link() -> None:
    with pytest.raises(NotAllowed, match="no HTTP"):
        Visits(datetime.now(UTC)).open("human", is_proven=True)


def test_a_process_that_does_not_answer_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "ACT_SECONDS", 0.01)

    async def play() -> None:
        silent, deaf = Actor(lambda _notice: True), Actor(lambda _notice: False)
        for actor in (silent, deaf):
            with pytest.raises(Busy):
                await actor.perform("act", {})
        asked = asyncio.ensure_future(silent.perform("act", {}))
        await asyncio.sleep(0)
        silent.close()
        with pytest.raises(Busy, match="has ended"):
            await asked
        silent.answer(1, {}, None)  # too late: nobody asks any more

    asyncio.run(play())


def test_a_process_that_has_ended_lends_to_no_visit(known: Visits, clock: list[float]) -> None:
    actor, heard = Actor(lambda _notice: True), list[dict[str, Any]]()

    def push(notice: dict[str, Any]) -> bool:
        heard.append(notice)
        return True

    _, visit = known.enter(known.open("human", is_proven=True, actor=actor, operator=True)[0])
    known.join(visit.principal, "tab", lambda: None, push)
    assert {"acts": True, "operator": True}.items() <= known.describe(visit).items()
    known.remove_actor(actor)
    assert {"acts": False, "operator": False}.items() <= known.describe(visit).items()
    assert ["visit/changed"] == [one["method"] for one in heard]
    with pytest.raises(NotAllowed, match="only look"):
        asyncio.run(known.act(visit, "act", {}))
