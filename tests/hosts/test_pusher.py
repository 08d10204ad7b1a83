"""The webhooks of a running post room, as they come and go; and a room that cannot be asked for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Room
from postroom.core import webhooks
from postroom.core.authorize import NOTIFIER, OWNER
from postroom.core.verb import perform
from postroom.errors import StoreBusy
from postroom.hosts import webhooks as hosts_webhooks
from postroom.hosts.webhooks import WebhookService
from postroom.model.report import Stop
from postroom.model.webhook import Webhook
from postroom.server.executor import Counters, Executor
from postroom.server.metrics import server_lines
from tests.daemons import until
from tests.hosts.receiver import Answer, Receiver

pytestmark = pytest.mark.daemon
QUICK: dict[str, Any] = {"ring_gather": 0, "ring_cooldown": 0, "backoff_first": 0.1, "durability": "process"}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(hosts_webhooks, "PACE", 0.02)
    monkeypatch.setattr(hosts_webhooks, "AGAIN", 0.05)
    with postroom.open(tmp_path / "room.db", **QUICK) as room:
        yield room


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def added(room: Room, receiver: Receiver, mailbox: str = "human") -> Webhook:
    return perform(
        room.core, OWNER, webhooks.AddWebhook(url=receiver.url("127.0.0.1"), mailbox=mailbox, allow_private=True)
    )


def post(room: Room, to: str = "human", priority: Any = "normal") -> None:
    room.mailbox("ann").send(to, "x", priority=priority)


def push(room: Room, act: Callable[[Executor], object]) -> None:
    """While it runs, `act` is done on a thread of its own."""

    async def both() -> None:
        executor = Executor(room.core)
        pushing = asyncio.ensure_future(WebhookService(executor).run())
        try:
            await asyncio.to_thread(act, executor)
        finally:
            pushing.cancel()
            await asyncio.wait([pushing])
            await executor.close()
        assert pushing.cancelled()

    asyncio.run(both())


def test_webhooks_come_and_go_while_it_runs(room: Room, receiver: Receiver) -> None:
    def act(executor: Executor) -> None:
        webhook = added(room, receiver)
        post(room)
        until(lambda: {(webhook.id, "rung"): 1} == executor.counters.rings)
        perform(room.core, OWNER, webhooks.RemoveWebhook(id=webhook.id))
        post(room)
        added(room, receiver, "coder")
        post(room, "coder")
        receiver.wait_for(2)

    push(room, act)
    assert ["human", "coder"] == [call.json["mailbox"] for call in receiver.calls]


def test_a_new_secret_counts_at_once(room: Room, receiver: Receiver) -> None:
    def act(_: Executor) -> None:
        webhook = added(room, receiver, "coder")
        room.mailbox("coder").register()
        post(room, "coder")
        receiver.wait_for(1)
        perform(room.core, OWNER, webhooks.RotateWebhook(id=webhook.id))

        def is_signed_twice() -> bool:
            post(room, "coder", "urgent")
            return 2 == len(receiver.calls[-1].headers["webhook-signature"].split())

        until(is_signed_twice)

    push(room, act)


def test_who_asks_us_to_wait_is_not_called_before(room: Room, receiver: Receiver) -> None:
    receiver.answers.append(Answer(503, {"Retry-After": "1"}))
    times: list[float] = []

    def act(_: Executor) -> None:
        added(room, receiver)
        post(room)
        receiver.wait_for(1)
        times.append(time.monotonic())
        post(room, priority="urgent")
        receiver.wait_for(2)
        times.append(time.monotonic())
        receiver.wait_for(3)

    push(room, act)
    assert times[1] - times[0] > 0.8
    assert receiver.calls[0].id in {call.id for call in receiver.calls[1:]}


def test_a_room_that_cannot_be_asked_for_a_moment_loses_no_call(
    room: Room, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it was rung cannot be written down: it is called again, under the same id."""
    honest, failures = (
        webhooks.CallAnswered.run,
        [StoreBusy("another process writes"), RuntimeError("a bug of ours")],
    )

    def run(*message: Any) -> None:
        if failures:
            raise failures.pop(0)
        honest(*message)

    monkeypatch.setattr(webhooks.CallAnswered, "run", run)

    def act(_: Executor) -> None:
        added(room, receiver)
        post(room)
        receiver.wait_for(3)

    push(room, act)
    assert 1 == len({call.id for call in receiver.calls})


def test_webhooks_that_cannot_be_looked_at_for_a_moment_are_called_then(
    room: Room, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, failures = webhooks.all_webhooks, [StoreBusy("another process writes"), RuntimeError("a bug of ours")]

    def all_webhooks(core: Any) -> list[Webhook]:
        if failures:
            raise failures.pop(0)
        return honest(core)

    monkeypatch.setattr(webhooks, "all_webhooks", all_webhooks)
    added(room, receiver)
    post(room)
    push(room, lambda _: receiver.wait_for(1))
    assert [] == failures


def test_calls_are_counted_for_prometheus() -> None:
    counters = Counters()
    assert "webhook" not in "".join(server_lines(counters))
    counters.rang("abcd", "rung")
    counters.rang("abcd", "rung")
    assert 'postroom_webhook_calls_total{webhook="abcd",outcome="rung"} 2' in list(server_lines(counters))


def test_what_is_put_off_is_called_later_under_its_id(room: Room, receiver: Receiver) -> None:
    """Two calls are due at once, and the first is asked to wait: the other is not made then, and loses no try."""
    core, webhook, made = room.core, added(room, receiver), []
    for _ in range(2):
        post(room)
        (call,) = [one for one in webhooks.due(core, NOTIFIER, webhook).calls if one.id not in made]
        webhooks.failed(core, NOTIFIER, webhook, call, "it answered 500", delay=0.5, chance=0)
        made.append(call.id)
    time.sleep(0.5)  # now both are due, however quickly the first of them is found
    receiver.answers.append(Answer(429, {"Retry-After": "1"}))
    push(room, lambda _: receiver.wait_for(3))
    assert set(made) == {call.id for call in receiver.calls[1:]} and receiver.calls[0].id in made
    whys = [ring.why for stop in _stops(room) for ring in stop.rings]
    assert 1 == sum(why.startswith("not called, for it answered 429") for why in whys)


def _stops(room: Room) -> list[Stop]:
    letters = room.mailbox("human").check(peek=True)
    return [stop for letter in letters for stop in room.trace(letter.id).stops]


def test_after_a_410_nothing_else_is_said(room: Room, receiver: Receiver) -> None:
    receiver.answers.extend([Answer(500), Answer(500), Answer(410)])
    webhook = added(room, receiver)

    def act(_: Executor) -> None:
        post(room)
        receiver.wait_for(1)
        post(room, priority="urgent")
        until(lambda: not perform(room.core, OWNER, webhooks.GetWebhook(id=webhook.id)).is_on)

    push(room, act)
    assert 3 == len(receiver.calls)
