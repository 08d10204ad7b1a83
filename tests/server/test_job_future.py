"""What comes of a call: who waits is called at once, and giving up goes both ways."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from postroom.server.executor import JobFuture


def test_who_waits_is_called_in_the_moment_and_who_comes_later_at_once() -> None:
    outcome, received = JobFuture(), list[Any]()
    outcome.add_done_callback(lambda done: received.append(done.result()))
    assert [] == received
    outcome.set_result(7)
    outcome.add_done_callback(lambda done: received.append(done.result()))

    assert [7, 7] == received


def test_a_bug_of_one_who_waits_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    outcome, received = JobFuture(), list[Any]()
    outcome.add_done_callback(lambda _: 1 / 0)
    outcome.add_done_callback(received.append)
    outcome.set_exception(ValueError("x"))

    assert [outcome] == received
    assert "division by zero" in caplog.text
    with pytest.raises(ValueError, match="x"):
        outcome.result()


def test_whatever_came_of_it_is_reported_in_the_words_of_who_was_asked() -> None:
    def tell(error: BaseException | None, result: Any) -> str:
        return f"{result} {error}"

    done, failed, dropped = (JobFuture().map_result(tell) for _ in range(3))
    done.settle(7)
    failed.settle(ValueError("x"))
    dropped.cancel()
    dropped.settle(8)  # too late: nobody waits

    assert isinstance(failed.exception(), ValueError)
    assert ["7 None", "None x", "None "] == [one.result() for one in (done, failed, dropped)]
    assert ["7 None", "None x"] == [one.result() for one in (done, failed)]


def test_it_can_be_awaited_before_and_after() -> None:
    async def story() -> None:
        outcome = JobFuture()
        waiting = asyncio.ensure_future(outcome.wait())
        await asyncio.sleep(0)
        outcome.set_result(7)
        await waiting
        assert 7 == await outcome

    asyncio.run(story())


def test_giving_up_goes_both_ways() -> None:
    async def story() -> None:
        outcome = JobFuture()
        waiting = asyncio.ensure_future(outcome.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert outcome.cancelled()
        assert not outcome.cancel()

        future = asyncio.get_running_loop().create_future()
        JobFuture.of(future).cancel()
        assert future.cancelled()

        followed = JobFuture.of(another := asyncio.get_running_loop().create_future())
        another.cancel()
        await followed.wait()
        assert followed.cancelled()

    asyncio.run(story())


@pytest.mark.parametrize("fails", [False, True])
def test_that_of_a_future_is_the_same(fails: bool) -> None:
    async def story() -> None:
        future = asyncio.get_running_loop().create_future()
        outcome = JobFuture.of(future)
        if fails:
            future.set_exception(ValueError("x"))
            with pytest.raises(ValueError, match="x"):
                await outcome
        else:
            future.set_result(7)
            assert 7 == await outcome

    asyncio.run(story())
