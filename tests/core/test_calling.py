"""Calls of webhooks: one for what came together, under one id until somebody answers, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from postroom import Room
from postroom.core import webhooks
from postroom.core.authorize import NOTIFIER, OWNER, agent_principal
from postroom.core.verb import perform
from postroom.core.webhooks import DueCall
from postroom.errors import NotAllowed
from postroom.model.alert import MOST_KEPT, Audit
from postroom.model.message import Priority
from postroom.model.record import ALERT_LOG, CALLS
from postroom.model.webhook import Webhook
from tests.people import person
from tests.rooms import FakeClock, RoomFactory

URL = "https://hooks.example.com/postroom"
PLAIN: dict[str, Any] = {
    "ring_gather": 0,
    "ring_cooldown": 0,
    "backoff_first": 10,
    "ring_tries": 3,
    "ring_again": 300,
}
Resume = Callable[[Room, Webhook], object]


@pytest.fixture
def room(factory: RoomFactory) -> Room:
    return factory.room(**PLAIN)


def added(room: Room, least: Priority = Priority.NORMAL) -> Webhook:
    return perform(room.core, OWNER, webhooks.AddWebhook(url=URL, mailbox="human", min_priority=least))


def post(room: Room, subject: str, priority: Any = "normal") -> str:
    return room.mailbox("ann").send("human", "x", subject=subject, priority=priority).id


def calls(room: Room, webhook: Webhook) -> list[DueCall]:
    return list(webhooks.due(room.core, NOTIFIER, webhook).calls)


def subjects(found: list[DueCall]) -> list[list[str]]:
    return [[letter.subject for letter in call.letters] for call in found]


def fail(room: Room, webhook: Webhook, call: DueCall, delay: float = 0, chance: float = 1) -> int:
    return webhooks.failed(room.core, NOTIFIER, webhook, call, "it answered 500", delay=delay, chance=chance)


def answer(room: Room, webhook: Webhook, call: DueCall) -> None:
    done = webhooks.CallAnswered(agent_id=webhook.mailbox, webhook=webhook, call=call.id)
    perform(room.core, NOTIFIER, done)


def resume(room: Room, webhook: Webhook) -> None:
    webhooks.resume(room.core, NOTIFIER, webhook)


def test_what_came_together_is_one_call_and_what_waited_before_is_none(room: Room) -> None:
    post(room, "before")
    webhook = added(room)
    assert [] == calls(room, webhook)
    post(room, "first")
    post(room, "urgent", "urgent")
    post(room, "low", "low")
    [call] = calls(room, webhook)
    assert [["urgent", "first"]] == subjects([call]) and 4 == call.unread
    answer(room, webhook, call)
    assert [] == calls(room, webhook) and [] == room.core.store.records(CALLS)


def test_only_mail_that_is_important_enough_is_reported(room: Room) -> None:
    webhook = added(room, Priority.HIGH)
    post(room, "normal")
    assert [] == calls(room, webhook)
    post(room, "high", "high")
    assert [["high"]] == subjects(calls(room, webhook))


def test_a_call_that_failed_is_made_again_under_its_id_and_new_mail_under_another(
    room: Room, clock: FakeClock
) -> None:
    webhook = added(room)
    post(room, "first")
    [call] = calls(room, webhook)
    assert 0 == fail(room, webhook, call)
    post(room, "second")
    [new] = calls(room, webhook)
    assert [["second"]] == subjects([new]) and new.id != call.id
    fail(room, webhook, new)
    clock.advance(10)
    assert [(call.id, ["first"]), (new.id, ["second"])] == [
        (again.id, [letter.subject for letter in again.letters]) for again in calls(room, webhook)
    ]


def test_the_pause_before_the_next_try_is_half_chance_and_never_less_than_asked_for(
    room: Room, clock: FakeClock
) -> None:
    webhook = added(room)
    post(room, "first")
    [call] = calls(room, webhook)
    fail(room, webhook, call, chance=0)
    clock.advance(5)
    [call] = calls(room, webhook)
    fail(room, webhook, call, delay=100)
    clock.advance(99)
    assert [] == calls(room, webhook)
    clock.advance(1)
    assert [call.id] == [again.id for again in calls(room, webhook)]


def test_what_was_read_meanwhile_is_not_called_for_again(room: Room, clock: FakeClock) -> None:
    webhook = added(room)
    post(room, "first")
    post(room, "second")
    [call] = calls(room, webhook)
    fail(room, webhook, call)
    person(room).read(call.letters[0].id)
    clock.advance(10)
    [again] = calls(room, webhook)
    assert (call.id, [["second"]]) == (again.id, subjects([again]))
    fail(room, webhook, again)
    person(room).check()
    clock.advance(20)
    assert [] == calls(room, webhook)


def test_calls_for_what_is_settled_are_forgotten(room: Room) -> None:
    webhook = added(room)
    post(room, "first")
    fail(room, webhook, calls(room, webhook)[0])
    for letter in person(room).check():
        letter.ack()
    post(room, "second")
    calls(room, webhook)
    post(room, "third")
    [last] = calls(room, webhook)
    [record] = room.core.store.records(CALLS)
    assert [last.id] == [call["id"] for call in record.value]


def check_that_a_call_outlives_who_made_it(factory: RoomFactory, clock: FakeClock, resume: Resume) -> None:
    """The daemon dies in the middle of a call: the next one makes it again, and it is known as the same."""
    if not factory.kind.lasts:
        return
    room = factory.room(**PLAIN)
    webhook = added(room)
    post(room, "first")
    [call] = calls(room, webhook)
    factory.reopen()
    room = factory.room(**PLAIN)
    post(room, "second")
    resume(room, webhook)
    assert [["second"]] == subjects(calls(room, webhook))
    clock.advance(10)
    assert [(call.id, ["first"])] == [
        (again.id, [letter.subject for letter in again.letters]) for again in calls(room, webhook)
    ], "it is not made again"


def test_a_call_that_was_under_way_is_made_again_under_its_id(factory: RoomFactory, clock: FakeClock) -> None:
    check_that_a_call_outlives_who_made_it(factory, clock, resume)


def test_a_successor_that_forgets_what_was_under_way_is_found_out(factory: RoomFactory, clock: FakeClock) -> None:
    if factory.kind.lasts:
        with pytest.raises(AssertionError, match="it is not made again"):
            check_that_a_call_outlives_who_made_it(factory, clock, lambda *_: None)


def test_who_begins_with_nothing_under_way_repeats_nothing(room: Room, clock: FakeClock) -> None:
    webhook = added(room)
    post(room, "first")
    [call] = calls(room, webhook)
    answer(room, webhook, call)
    resume(room, webhook)
    resume(room, webhook)
    clock.advance(100)
    assert [] == calls(room, webhook)


def test_after_several_tries_it_is_given_up_and_listed_and_can_be_tried_again(
    room: Room, clock: FakeClock
) -> None:
    webhook = added(room)
    post(room, "first")
    [call] = calls(room, webhook)
    for pause in (10, 20):
        assert 0 == fail(room, webhook, call)
        clock.advance(pause)
        assert [call.id] == [again.id for again in calls(room, webhook)]
    assert 1 == fail(room, webhook, call)
    clock.advance(3600)
    assert [] == calls(room, webhook)
    [lost] = room.dead_alerts()
    assert (webhook.way, 3, "it answered 500") == (lost.way, lost.tries, lost.why)
    assert 1 == room.retry_alerts(way=webhook.way)
    assert [call.id] == [again.id for again in calls(room, webhook)]


def test_urgent_mail_that_nobody_acknowledged_is_another_call(room: Room, clock: FakeClock) -> None:
    webhook = added(room)
    post(room, "urgent", "urgent")
    [call] = calls(room, webhook)
    answer(room, webhook, call)
    clock.advance(300)
    [again] = calls(room, webhook)
    assert [["urgent"]] == subjects([again]) and again.id != call.id


def test_two_webhooks_of_one_mailbox_are_both_called(room: Room) -> None:
    first, second = added(room), added(room)
    post(room, "first")
    ids = [call.id for webhook in (first, second) for call in calls(room, webhook)]
    assert 2 == len(set(ids))


def test_one_that_was_removed_is_forgotten_and_not_called(room: Room) -> None:
    webhook = added(room)
    post(room, "first")
    calls(room, webhook)
    perform(room.core, OWNER, webhooks.RemoveWebhook(id=webhook.id))
    post(room, "second")
    assert [] == calls(room, webhook)
    assert [] == [*room.core.store.records(CALLS), *room.core.store.records(ALERT_LOG)]


def test_no_other_agent_can_settle_a_webhook_call(room: Room) -> None:
    webhook, stranger = added(room), agent_principal("mallory")
    post(room, "first")
    [call] = calls(room, webhook)
    for wrong in (
        lambda: webhooks.due(room.core, stranger, webhook),
        lambda: perform(
            room.core,
            stranger,
            webhooks.CallAnswered(agent_id=webhook.mailbox, webhook=webhook, call=call.id),
        ),
        lambda: webhooks.failed(room.core, stranger, webhook, call, "x", delay=0, chance=1),
        lambda: webhooks.resume(room.core, stranger, webhook),
    ):
        with pytest.raises(NotAllowed):
            wrong()


def tried_again_after_all_failed(room: Room, clock: FakeClock, count: int) -> int:
    """How many of so many webhooks of one mailbox make their call once more, after each of them failed."""
    kept = [added(room) for _ in range(count)]
    post(room, "may I?")
    made = [(webhook, calls(room, webhook)[0]) for webhook in kept]
    for webhook, call in made:
        fail(room, webhook, call)
    clock.advance(10)
    return sum(bool(calls(room, webhook)) for webhook in kept)


MANY = MOST_KEPT + 5


def test_a_failure_counts_however_many_others_rang_for_the_same_letter(room: Room, clock: FakeClock) -> None:
    assert MANY == tried_again_after_all_failed(room, clock, MANY)


def test_an_audit_that_forgets_who_rang_is_found_out(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = lambda audit, ring: replace(audit, rings=(*audit.rings, ring)[-MOST_KEPT:])  # noqa: E731
    monkeypatch.setattr(Audit, "with_ring", newest)
    assert tried_again_after_all_failed(room, clock, MANY) < MANY


def tries_left_after_being_put_off(room: Room, clock: FakeClock, *, was_tried: bool) -> bool:
    """Is a call still made that was put off as often as others are tried?"""
    webhook = added(room)
    post(room, "first")
    for _ in range(PLAIN["ring_tries"]):
        for call in calls(room, webhook):
            webhooks.failed(room.core, NOTIFIER, webhook, call, "wait", delay=0, chance=1, was_tried=was_tried)
        clock.advance(100)
    return bool(calls(room, webhook))


def test_a_call_that_was_never_made_loses_no_try(room: Room, clock: FakeClock) -> None:
    assert tries_left_after_being_put_off(room, clock, was_tried=False)
    assert [] == room.mailbox("human").dead_alerts()


def test_to_count_it_as_a_try_would_be_found_out(room: Room, clock: FakeClock) -> None:
    assert not tries_left_after_being_put_off(room, clock, was_tried=True)
