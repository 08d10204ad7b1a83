"""Serve: letters are handled at the same time, kept while that takes, settled by the outcome, and never lost.

Three promises are guarded by tests whose planted bug (`bug=`) must break them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Invalid, LeaseLost, Room, State, StoreFailing, Work, aio, draft
from postroom.service import Service
from tests.rooms import texts

PATIENCE = 60.0  # seconds; a bound, not a pace
PROGRAM = """
import asyncio, signal, sys, time
import postroom
from postroom.service import Service

address, seconds, concurrency, lease, timeout, bug = sys.argv[1:]
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own

async def ack_first(self, work, handle=Service._handle):
    await work.ack()
    await handle(self, work)

if bug == "ack before the handler":
    Service._handle = ack_first

def handle(work):
    print("begin", work.text, flush=True)
    time.sleep(float(seconds))
    print("end", work.text, flush=True)
    return work.text + " is done"

box = postroom.open(address).mailbox("bob")
print("ready", flush=True)
box.serve(handle, concurrency=int(concurrency), lease=float(lease), timeout=float(timeout) or None)
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/room.db"


@pytest.fixture
def file_room(address: str) -> Iterator[Room]:
    with postroom.open(address) as room:
        yield room


@contextlib.contextmanager
def serving(
    address: str,
    *,
    seconds: float = 0.2,
    concurrency: int = 1,
    lease: float = 30,
    timeout: float = 0,
    bug: str = "",
) -> Iterator[subprocess.Popen[str]]:
    options = [str(one) for one in (seconds, concurrency, lease, timeout)]
    command = [sys.executable, "-c", PROGRAM, address, *options, bug]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout
    while (said := process.stdout.readline()) and line not in said:
        pass
    assert said, f"it ended before {line!r}"


def fill(room: Room, count: int = 1) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(count)])


def answers(room: Room) -> list[str]:
    return sorted(texts(room.mailbox("ann").check(None)))


# -- with real processes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_letters_in_hand_finish_and_loses_none(
    file_room: Room, address: str, number: signal.Signals
) -> None:
    fill(file_room, 6)
    with serving(address, concurrency=2, seconds=0.5) as first:
        until(first, "begin")
        first.send_signal(number)
        said = first.communicate(timeout=PATIENCE)[0]
        assert first.returncode == 0
    done = answers(file_room)
    assert 1 <= len(done) <= 2
    assert said.count("end") == len(done)
    assert len(file_room.mailbox("bob").check(unread_only=False, peek=True)) == 6 - len(done)
    with serving(address, seconds=0, concurrency=6, timeout=0.5) as second:
        assert second.communicate(timeout=PATIENCE)[0].count("begin") == 6 - len(done)
    assert sorted(done + answers(file_room)) == [f"{n} is done" for n in range(6)]
    history = [letter.delivery.attempts for letter in file_room.mailbox("bob").check(unread_only=False)]
    assert history == []


THREADED = """
import sys, threading
import postroom

box = postroom.open(sys.argv[1]).mailbox("bob")
threading.Thread(target=box.serve, args=(lambda work: "done",)).start()
print(box.room.mailbox("ann").ask("bob", "x", timeout=60).text, flush=True)
"""


@pytest.mark.parametrize("last", ["", "box.stop()"])
def test_a_program_that_serves_in_a_thread_ends_with_its_main_thread(address: str, last: str) -> None:
    command = [sys.executable, "-c", THREADED + last, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ("done\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("bug", ["", "ack before the handler"])
def test_a_killed_server_gives_its_letter_back(file_room: Room, address: str, bug: str) -> None:
    fill(file_room)
    with serving(address, seconds=PATIENCE, lease=1, bug=bug) as first:
        until(first, "begin")
        first.kill()
        first.wait(PATIENCE)
    with serving(address, seconds=0, timeout=3) as second:
        said = second.communicate(timeout=PATIENCE)[0]
    assert (said.count("begin 0"), answers(file_room)) == ((0, []) if bug else (1, ["0 is done"]))


# -- in this process


@contextlib.contextmanager
def in_thread(serve: Callable[[], None], box: postroom.Mailbox) -> Iterator[None]:
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        while thread.is_alive():
            box.stop()
            thread.join(0.1)


@pytest.mark.parametrize("bug", ["", "no renewal"])
def test_a_handler_that_takes_three_leases_keeps_its_letter(
    file_room: Room, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    fill(file_room)
    bob, begun = file_room.mailbox("bob"), threading.Event()

    async def nothing(_: Service) -> None:
        await asyncio.sleep(PATIENCE)

    if bug:
        monkeypatch.setattr(Service, "_renew", nothing)

    def handle(work: Work) -> str:
        begun.set()
        time.sleep(3)
        return "done"

    with in_thread(lambda: bob.serve(handle, lease=1), bob):
        assert begun.wait(PATIENCE)
        stolen = bob.claim(timeout=2.5)
        if not bug:
            assert file_room.mailbox("ann").wait(PATIENCE, peek=True)
    assert (stolen is not None, answers(file_room)) == ((True, []) if bug else (False, ["done"]))


def test_letters_are_handled_at_the_same_time(room: Room) -> None:
    fill(room, 4)
    meeting = threading.Barrier(4)
    room.mailbox("bob").serve(lambda _: str(meeting.wait(PATIENCE)), concurrency=4, timeout=0.1)
    assert answers(room) == ["0", "1", "2", "3"]


def test_an_error_is_a_failed_try_of_that_letter_alone(room: Room) -> None:
    fill(room, 3)
    bob = room.mailbox("bob")

    def handle(work: Work) -> str | None:
        if work.text == "1":
            raise ValueError("odd")
        return None if work.text == "0" else "even"

    bob.serve(handle, timeout=0.1)
    (failed,) = bob.check(unread_only=False)
    assert (failed.text, failed.delivery.attempts, failed.delivery.reason) == ("1", 1, "ValueError: odd")
    assert answers(room) == ["even"]


def test_what_the_handler_settled_stays_so_and_what_cannot_be_sent_fails(room: Room) -> None:
    fill(room, 2)
    bob = room.mailbox("bob")

    def handle(work: Work) -> object:
        if work.text == "0":
            work.reject("never")
            return "not sent"
        return object()

    bob.serve(handle, timeout=0.1)
    assert [letter.text for letter in bob.dead()] == ["0"]
    (failed,) = bob.check(unread_only=False)
    assert (failed.text, failed.delivery.attempts) == ("1", 1)
    assert "Invalid" in str(failed.delivery.reason)


def test_a_dict_that_is_no_part_is_sent_as_data(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "plain")
    ann.send("bob", "typed")
    ann.send("bob", "part")
    answers = {"plain": {"n": 1}, "typed": {"type": "invoice"}, "part": {"type": "text", "text": "as text"}}
    bob.serve(lambda work: answers[work.text], timeout=0.1)
    plain, typed, text = ann.check()
    assert ({"n": 1}, {"type": "invoice"}, "as text") == (plain.data, typed.data, text.text)


def test_what_postroom_wrote_is_acknowledged_and_not_answered(room: Room) -> None:
    room.mailbox("bob").send("cleo", "x")
    room.mailbox("cleo").check()[0].reject("no")
    seen = []

    def handle(work: Work) -> str:
        seen.append(work.kind)
        return "thanks"

    room.mailbox("bob").serve(handle, timeout=0.1)
    assert seen == ["bounce"]
    assert room.mailbox("bob").check(unread_only=False) == []


def test_a_store_that_fails_for_a_while_loses_and_repeats_nothing(
    file_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file_room, 3)
    store, fails, handled = file_room.core.store, iter([True, False, True, True, False, True, True]), []
    commit = store.commit

    def failing(*args: Any, **options: Any) -> Any:
        if next(fails, False):
            raise StoreFailing("the disk is full")
        return commit(*args, **options)

    monkeypatch.setattr(store, "commit", failing)

    def handle(work: Work) -> str:
        handled.append(work.text)
        return work.text

    file_room.mailbox("bob").serve(handle, timeout=0.5)
    assert next(fails, None) is None
    assert handled == ["0", "1", "2"] == answers(file_room)


def test_a_call_that_is_wrong_is_told_at_once(room: Room) -> None:
    bob = room.mailbox("bob")
    for options in ({"concurrency": 0}, {"lease": -1}, {"grace": "x"}, {"timeout": -1}, {"kinds": 5}, {"no": 1}):
        with pytest.raises(Invalid) as refused:
            bob.serve(print, **options)
        assert refused.value.field in options
    with pytest.raises(Invalid, match="must be a function"):
        bob.serve("print")  # type: ignore[arg-type] # anything may come


def test_another_object_of_the_same_mailbox_stops_it_and_that_of_another_does_not(room: Room) -> None:
    fill(room, 2)
    handled: list[str] = []

    def handle(work: Work) -> None:
        handled.append(work.id)
        room.mailbox("ann" if len(handled) == 1 else "bob").stop()

    room.mailbox("bob").serve(handle)
    assert len(handled) == 2


def test_a_handler_that_outlasts_the_grace_gives_its_letter_back(room: Room) -> None:
    fill(room)
    bob, end, late = room.mailbox("bob"), threading.Event(), []

    def handle(work: Work) -> None:
        bob.stop()
        end.wait(PATIENCE)
        try:
            work.ack()
        except LeaseLost as error:
            late.append(error)
        finally:
            end.clear()

    bob.serve(handle, grace=0.1)
    assert [(letter.state, letter.delivery.attempts) for letter in bob.check()] == [(State.UNREAD, 0)]
    end.set()
    while end.is_set():
        time.sleep(0.01)
    assert len(late) == 1


# -- in an event loop


def test_tasks_serve_together_and_a_cancelled_one_gives_its_letters_back(address: str) -> None:
    async def scene() -> None:
        async with aio.open(address) as room, asyncio.timeout(PATIENCE):
            ann, bob = room.mailbox("ann"), room.mailbox("bob")
            begun = asyncio.Semaphore(0)

            async def hang(work: aio.AsyncWork) -> None:
                begun.release()
                await asyncio.sleep(PATIENCE)

            await ann.send_many([draft("bob", str(n)) for n in range(20)])
            serving = asyncio.create_task(bob.serve(hang, concurrency=20))
            for _ in range(20):
                await begun.acquire()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            back = await bob.check(None, unread_only=False, peek=True)
            assert [(State.UNREAD, 0)] * 20 == [(letter.state, letter.delivery.attempts) for letter in back]

            async def answer(work: aio.AsyncWork) -> str:
                return work.text

            await bob.serve(answer, concurrency=5, timeout=0.1)
            assert 20 == len(await ann.check(None))

    asyncio.run(scene())


def test_an_async_service_that_is_stopped_finishes_what_is_in_hand(address: str) -> None:
    async def scene() -> None:
        async with aio.open(address) as room, asyncio.timeout(PATIENCE):
            ann, bob = room.mailbox("ann"), room.mailbox("bob")

            async def answer(work: aio.AsyncWork) -> str:
                await bob.stop()
                await asyncio.sleep(0.1)
                return "done"

            await ann.send_many([draft("bob", str(n)) for n in range(2)])
            await bob.serve(answer)
            assert ["done"] == [letter.text for letter in await ann.check()]
            assert 1 == (await bob.counts())["total"]

    asyncio.run(scene())


def test_an_idle_service_ends_at_once_when_it_is_stopped(room: Room) -> None:
    bob = room.mailbox("bob")
    began = time.monotonic()
    with in_thread(lambda: bob.serve(print), bob):
        pass
    assert time.monotonic() - began < PATIENCE / 2
