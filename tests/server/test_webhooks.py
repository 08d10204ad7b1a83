"""A daemon that calls webhooks: added while it runs, through kills and failures, and nobody waits for them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Room
from postroom.core import webhooks
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.model.message import Priority
from postroom.model.webhook import Webhook
from tests.conftest import LONG
from tests.daemons import Daemon, until
from tests.hosts.receiver import Answer, Receiver, make_certificate

pytestmark = pytest.mark.daemon
KILLS = 15 if LONG else 2
SETTINGS = ("ring_gather=0.05", "ring_cooldown=0", "backoff_first=0.2", "ring_tries=2")
QUICK = ("--http", "off", *(word for setting in SETTINGS for word in ("--set", setting)))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:
    with Receiver(certificate) as receiver:
        yield receiver


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        yield room


def serve(folder: Path, certificate: tuple[Path, Path], *settings: str) -> Daemon:
    more = [word for message in settings for word in ("--set", message)]
    return Daemon(folder, *QUICK, *more, SSL_CERT_FILE=str(certificate[0]))


def added(room: Room, receiver: Receiver, **more: Any) -> Webhook:
    return perform(
        room.core, OWNER, webhooks.AddWebhook(url=receiver.url(), mailbox="human", allow_private=True, **more)
    )


def post(room: Room, subject: str, priority: Any = "normal") -> str:
    return room.mailbox("ann").send("human", "not to be told", subject=subject, priority=priority).id


def test_one_that_is_added_while_the_daemon_runs_is_called_with_a_pointer_alone(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    post(room, "before")
    with serve(tmp_path, certificate) as daemon:
        webhook = added(room, receiver, min_priority=Priority.HIGH)
        post(room, "not important enough")
        first, second = post(room, "one", "high"), post(room, "two", "urgent")
        until(lambda: {first, second} <= {one["id"] for call in receiver.calls for one in call.json["letters"]})
        [call] = [call for call in receiver.calls if second in str(call.body)]
        result = call.json
        letters = {letter.pop("id"): letter for letter in result.pop("letters")}
        assert ("mail.waiting", "human", 4, 0) == (
            result["type"],
            result["mailbox"],
            result["unread"],
            result["more"],
        )
        expected = {
            "from": "ann",
            "verified": False,
            "unproven": False,
            "subject": "two",
            "priority": "urgent",
            "thread": second,
        }
        assert expected == letters[second] and letters.keys() <= {first, second}
        assert b"not to be told" not in call.body
        until(lambda: room.trace(second).stops[0].rings[-1].way == webhook.way)
        assert webhook.secret not in daemon.log() and 0 == daemon.stop()


def test_a_call_during_which_the_daemon_was_killed_is_made_again_under_its_id(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    added(room, receiver)
    receiver.holds.clear()
    with serve(tmp_path, certificate) as daemon:
        letter = post(room, "one")
        [first] = receiver.wait_for(1)
        daemon.stop(signal.SIGKILL)
    receiver.holds.set()
    with serve(tmp_path, certificate) as daemon:
        second = receiver.wait_for(2)[1]
        assert first.id == second.id and [letter] == [one["id"] for one in second.json["letters"]]
        assert 0 == daemon.stop()


def test_every_letter_is_reported_however_often_the_daemon_is_killed(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    """And an id never means two things: what is called again is the same call, less what was read."""
    added(room, receiver)
    sent, chance = set(), random.Random(7)
    for _ in range(KILLS):
        with serve(tmp_path, certificate, "ring_tries=1000") as daemon:
            for number in range(3):
                receiver.answers.extend([Answer(500)] * chance.randrange(2))
                sent.add(post(room, str(number), chance.choice(["normal", "urgent"])))
                time.sleep(chance.random() * 0.1)  # the moment of the kill is left to chance
            daemon.stop(signal.SIGKILL)
    with serve(tmp_path, certificate, "ring_tries=1000"):
        until(lambda: sent <= {one["id"] for call in receiver.calls for one in call.json["letters"]})
    meant: dict[str, set[str]] = {}
    for call in receiver.calls:
        letters = {one["id"] for one in call.json["letters"]}
        assert letters <= meant.setdefault(call.id, letters)


def test_what_fails_is_tried_again_given_up_listed_and_tried_again_when_asked(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    webhook = added(room, receiver)
    receiver.answers.extend([Answer(500), Answer(500)])
    with serve(tmp_path, certificate) as daemon:
        letter = post(room, "one")
        receiver.wait_for(2)
        until(lambda: bool(room.dead_alerts()))
        [lost] = room.dead_alerts()
        assert (letter, webhook.way, 2) == (lost.letter.id, lost.way, lost.tries) and "500" in lost.why
        assert "localhost was not called" in daemon.log() and "key=1" not in daemon.log()
        room.retry_alerts(way=webhook.way)
        post(room, "two")  # whoever rings looks at once
        calls = receiver.wait_for(4)
        ids = [call.id for call in calls]
        assert 2 == len(set(ids)) and 3 == ids.count(ids[0])


def test_one_that_says_that_it_is_gone_is_off_until_it_answers_a_test(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    webhook = added(room, receiver)
    receiver.answers.append(Answer(410))
    with serve(tmp_path, certificate) as daemon:
        post(room, "one")
        until(lambda: not perform(room.core, OWNER, webhooks.GetWebhook(id=webhook.id)).is_on)
        assert "410" in perform(room.core, OWNER, webhooks.GetWebhook(id=webhook.id)).note
        until(lambda: f"webhook {webhook.id} is off" in daemon.log())
        post(room, "two")
        perform(room.core, OWNER, webhooks.SwitchWebhook(id=webhook.id))  # as a test does that gets through
        until(
            lambda: (
                {"one", "two"} <= {one["subject"] for call in receiver.calls[1:] for one in call.json["letters"]}
            )
        )
        assert 0 == daemon.stop()


def test_one_that_does_not_answer_keeps_nobody_waiting_not_even_the_end(
    tmp_path: Path, room: Room, receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    added(room, receiver)
    receiver.holds.clear()
    with serve(tmp_path, certificate) as daemon, Receiver(certificate) as quick:
        added(room, quick)
        post(room, "one")
        receiver.wait_for(1)
        quick.wait_for(1)
        began = time.monotonic()
        assert daemon.ask(action="ping")["ok"]
        assert 0 == daemon.stop() and time.monotonic() - began < 5
