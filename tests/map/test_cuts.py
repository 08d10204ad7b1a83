"""Connections that are cut again and again: every message arrives, in order, and again only under its id."""

from __future__ import annotations

import random
import socket
import threading

from tests.conftest import LONG
from tests.map.people import agent, visitor
from tests.map.test_delivery import states
from tests.server.http.running import Daemon

MESSAGES = 2000 if LONG else 200


def test_every_message_arrives_however_often_the_connection_is_cut(running: Daemon, port: int) -> None:
    chance = random.Random(8)
    token = running.token("cut")
    sent: list[str] = []

    def write() -> None:
        with agent(port, running.token(), "writer") as writer:
            sent.extend(writer.send("cut", number)["messageId"] for number in range(MESSAGES))

    writing = threading.Thread(target=write)
    writing.start()
    seen: dict[str, int] = {}  # the number of each message, by its id
    while len(seen) < MESSAGES:
        with visitor(port, close_timeout=0.1) as person:
            person.join(token)
            person.register(name="cut")
            for _ in range(chance.randint(1, 40)):
                message = person.message()
                assert message["payload"] == seen.setdefault(message["id"], message["payload"])
                if len(seen) == MESSAGES:
                    break
            if chance.random() < 0.7:
                person.line.socket.shutdown(socket.SHUT_RDWR)  # without a goodbye
    writing.join()
    assert sorted(sent) == sorted(seen)
    assert [*range(MESSAGES)] == list(seen.values())  # in the order in which they were first seen
    with agent(port, token, "cut") as last:
        last.until(lambda: {"done"} == set(states(running, "cut")))
