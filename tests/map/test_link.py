"""The link where things go wrong: cuts, repetitions, refusals, junk. Nothing is lost; what comes is told once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from postroom import Room
from postroom.federation.dialler import pause
from postroom.formats.map import map_letter
from postroom.map import link
from tests.map.host import Host, Refused, Silent, hosted, linked, run, until


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LOOK", 0.3)
    monkeypatch.setattr(link, "SOON", 0.1)
    monkeypatch.setattr("postroom.federation.dialler.FIRST", 0.02)


def inbox(room: Room, name: str) -> list[str]:
    return [letter.text for letter in room.mailbox(name).check(peek=True, unread_only=False)]


def open_mail(room: Room, name: str) -> int:
    """Letters that are not acknowledged, also those in somebody's hands."""
    tally = room.mailbox(name).stats()
    return tally.total_unread + tally.seen + tally.claimed + tally.queued


def test_what_comes_again_is_reported_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            for _ in range(3):
                await host.message("ann", "one", id="m-1")
            await host.message("ann", "two", id="m-2")
            await host.cut()
            await until(lambda: len(host.lines) == 2)
            await host.shows("ann")
            await host.message("ann", "one", id="m-1")
            await host.message("ann", "resent", id="m-9", meta={"messageId": "theirs"})
            await host.message("ann", "resent", id="m-10", meta={"messageId": "theirs"})
            await host.message("ann", "three", id="m-3")
            await until(lambda: "three" in inbox(room, "ann"))
            assert ["one", "two", "resent", "three"] == inbox(room, "ann")

    run(story())


def test_what_was_said_to_one_without_meta_comes_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            await host.message("ann", "one", id="m-1")
            second = {"id": "m-2", "from": "id-bob", "to": [{"agent": "guest-ann"}], "payload": "two"}
            await host.say("map/message", message=second | {"meta": {"k": 1}})
            await until(lambda: len(inbox(room, "ann")) == 2)
            one, two = (map_letter(letter.message) for letter in room.mailbox("ann").check(peek=True))
            assert ({"agent": "ann"}, False) == (one["to"], "meta" in one)
            assert ([{"agent": "ann"}], {"k": 1}) == (two["to"], two["meta"])

    run(story())


def test_one_letter_to_several_of_ours_reaches_each(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            for name in ("ann", "carl"):
                room.mailbox(name).register()
                await host.shows(name)
            for number in range(2):
                await host.message("ann", "x", id=f"a-{number}", meta={"messageId": "one"})
                await host.message("carl", "x", id=f"c-{number}", meta={"messageId": "one"})
            await host.message("carl", "y", id="y")
            await until(lambda: "y" in inbox(room, "carl"))
            assert (["x"], ["x", "y"]) == (inbox(room, "ann"), inbox(room, "carl"))

    run(story())


def test_what_was_missed_is_asked_for_and_reported_once(tmp_path: Path) -> None:
    def missed(number: int, to: str = "ann") -> dict[str, Any]:
        whom = {"agent": f"guest-{to}"}
        return {
            "id": f"m-{number}",
            "from": "id-bob",
            "to": whom,
            "payload": str(number),
            "timestamp": 1000 + number,
        }

    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            await host.message("ann", "0", id="m-0", timestamp=1000)
            await until(lambda: inbox(room, "ann"))
            host.answers["mail/recent"] = lambda _: {"messages": [missed(0), missed(1), missed(2, "stranger"), 7]}
            host.answers["map/replay"] = lambda message: {
                "events": [
                    {
                        "eventId": f"e{n}",
                        "timestamp": 1,
                        "event": {"type": "message.sent", "data": {"message": missed(n)}},
                    }
                    for n in ((1, 3) if "fromTimestamp" in message else (4,))
                ],
                "hasMore": "fromTimestamp" in message,
            }
            await host.cut()
            await until(lambda: len(inbox(room, "ann")) == 4)
            assert ["0", "1", "3", "4"] == inbox(room, "ann")
            first, second = host.of("map/replay")[-2:]
            assert (1000, "e3") == (first["fromTimestamp"], second["afterEventId"])

    run(story())


def test_a_cut_in_the_middle_of_a_send_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            host.answers["map/send"] = None
            ids = [room.mailbox("ann").send("hive/bob", str(number)).id for number in range(3)]
            await until(lambda: host.of("map/send"))
            del host.answers["map/send"]
            await until(lambda: {"0", "1", "2"} <= set(host.texts()) and not open_mail(room, "hive/bob"))
            again = [params["meta"]["messageId"] for params in host.of("map/send")]
            assert set(ids) == set(again)  # under the same ids: who got one twice can tell

    run(story())


def test_a_letter_that_cuts_the_line_each_time_is_given_up_and_its_sender_notified(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            host.answers["map/send"] = None
            room.mailbox("ann").send("hive/bob", "poison")
            await until(lambda: inbox(room, "ann"))
            assert room.settings.max_attempts == len(host.of("map/send"))
            (dead,) = room.mailbox("hive/bob").dead()
            assert "the line was cut" in str(dead.delivery.reason)

    run(story())


def test_a_refused_letter_is_tried_again_and_one_for_nobody_waits(tmp_path: Path) -> None:
    refusals = [Refused(4001, "too fast"), Refused(2001, "no such agent")]

    def send(params: dict[str, Any]) -> Any:
        if refusals:
            raise refusals.pop(0)
        return {"messageId": "m"}

    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            host.answers["map/send"] = send
            room.mailbox("ann").send("hive/bob", "x")
            room.mailbox("ann").send("hive/nobody", "y")
            await until(lambda: len(host.of("map/send")) == 3 and not open_mail(room, "hive/bob"))
            assert ["y"] == inbox(room, "hive/nobody")
            host.agents.append({"id": "id-nobody", "name": "nobody"})
            await until(lambda: "y" in host.texts())

    run(story())


@pytest.mark.parametrize("knows_one", [True, False])
def test_a_letter_that_was_taken_for_who_had_just_left_waits_and_follows_it(
    tmp_path: Path, knows_one: bool
) -> None:
    """The SDK's server takes messages for anybody, and gives who comes back another id."""

    def listed_alone(_: dict[str, Any]) -> Any:
        raise Refused(-32601, "no such method")

    async def story() -> None:
        async with hosted(Host("bob", "carl")) as host, linked(host, tmp_path) as room:
            if not knows_one:
                host.answers["map/agents/get"] = listed_alone
            await until(lambda: host.of("mail/recent"))
            host.agents[:] = []
            ids = [room.mailbox("ann").send("hive/bob", str(number)).id for number in range(2)]
            room.mailbox("ann").send("hive/carl", "x")
            await until(lambda: {"0", "x"} <= set(host.texts()))
            looks = len(host.of("map/agents/list"))
            await until(lambda: len(host.of("map/agents/list")) > looks + 1)
            assert (2, 1) == (open_mail(room, "hive/bob"), open_mail(room, "hive/carl"))
            assert ["0", "x"] == host.texts()  # nothing more is said to who is not there
            assert 0 == room.mailbox("hive/bob").read(ids[0]).delivery.attempts
            host.agents[:] = [{"id": "id-new", "name": "bob", "state": "idle"}]
            await until(lambda: not open_mail(room, "hive/bob"))
            again = [message for message in host.of("map/send") if message["to"] == {"agent": "id-new"}]
            assert ids == [message["meta"]["messageId"] for message in again]
            assert 1 == open_mail(room, "hive/carl")

    run(story())


def test_who_is_back_before_the_server_knows_that_it_left_has_its_name_and_mail_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            host.agents.append({"id": "id-new", "name": "bob", "state": "idle"})
            await until(lambda: "hive/id-new" in {agent.card.id for agent in room.agents()})
            room.mailbox("ann").send("hive/id-new", "1")
            await until(lambda: "1" in host.texts())
            del host.agents[0]
            room.mailbox("ann").send("hive/bob", "2")
            await until(lambda: not open_mail(room, "hive/bob"))
            room.mailbox("ann").send("hive/id-new", "3")  # such as an answer to what it wrote under that name
            await until(lambda: not open_mail(room, "hive/id-new"))
            meant = {message["payload"]["text"]: message["to"]["agent"] for message in host.of("map/send")}
            assert {"1": "id-new", "2": "id-new", "3": "id-new"} == meant

    run(story())


def test_only_who_is_shown_is_reached_from_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path, expose="ann, carl", scope="night") as room:
            for name in ("ann", "secret"):
                room.mailbox(name).register()
            await host.shows("ann")
            await host.message("secret", "1", id="1")
            await host.message("berlin", "2", id="2", meta={"targetAgent": "secret"})
            await host.message("berlin", "3", id="3", meta={"targetAgent": "ann"})
            await host.say("map/message", message={"id": "4", "from": "id-bob", "to": "night", "payload": "4"})
            await until(lambda: len(inbox(room, "ann")) == 2)
            assert (["3", "4"], ["1", "2"], []) == (
                inbox(room, "ann"),
                inbox(room, "berlin"),
                inbox(room, "secret"),
            )
            assert {"berlin", "ann"} == {p["name"] for p in host.of("map/agents/register")}
            assert all(["night"] == p["scopes"] for p in host.of("map/agents/register"))
            room.mailbox("carl").register()
            await host.shows("carl")
            room.mailbox("ann").leave(dormant=True)
            await until(lambda: {"agentId": "guest-ann"} in host.of("map/agents/unregister"))

    run(story())


def test_who_only_writes_is_shown_from_then_on_and_can_be_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host:
            async with linked(host, tmp_path, scope="night") as room:
                await until(lambda: host.of("mail/recent"))
                room.mailbox("zoe").send("hive/bob", "?")
                await host.shows("zoe")
                await until(lambda: not open_mail(room, "hive/bob"))
                assert "guest-zoe" == host.of("map/send")[0]["from"]
                assert ["night"] == host.of("map/agents/register")[-1]["scopes"]
                await host.message("zoe", "!", id="1")
                await until(lambda: inbox(room, "zoe"))
            async with linked(host, tmp_path):  # on another day
                await until(lambda: len(host.lines) == 2)
                await host.shows("zoe")

    run(story())


def test_who_writes_and_is_not_to_be_shown_is_named_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path, expose="ann") as room:
            for number in range(2):
                room.mailbox("zoe").send("hive/bob", str(number))
            room.mailbox("ann").send("hive/bob", "2")
            await until(lambda: not open_mail(room, "hive/bob"))
            assert {"berlin", "ann"} == {message["name"] for message in host.of("map/agents/register")}
            assert [None, None, "guest-ann"] == [message.get("from") for message in host.of("map/send")]

    with caplog.at_level(logging.WARNING, "postroom"):
        run(story())
    results = [record.getMessage() for record in caplog.records]
    assert ["zoe writes to the MAP server and is not shown there: answers go to berlin"] == results


def test_names_are_spelt_as_they_are_known_here(tmp_path: Path) -> None:
    async def story() -> None:
        host = Host("bob")
        async with hosted(host):
            async with linked(host, tmp_path) as room:
                await until(lambda: host.of("mail/recent"))
                room.mailbox("Berlin").register()  # as the link itself is called, but for its case
            host.agents[0] |= {"name": "BOB", "id": "id-2"}
            async with linked(host, tmp_path) as room:
                room.mailbox("ann").register()
                await host.shows("ann")
                room.mailbox("ann").send("hive/bob", "x")
                await until(host.texts)
                await host.message("ann", "y", id="1", **{"from": "id-2"})
                await host.message("nobody", "z", id="2", **{"from": "id-2"})
                await until(lambda: inbox(room, "ann") and inbox(room, "Berlin"))
                assert "hive/bob" == room.mailbox("ann").check()[0].sender

    run(story())


def test_what_is_emitted_in_the_scope_of_the_link_is_reported_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path, scope="night"):
            await until(lambda: host.of("mail/recent"))
            await until(lambda: [host.publish({"type": "lamp.lit", "n": 1}, "night")] and host.of("map/send"))
            host.publish({"type": "secret"}, "day")
            host.publish("bare", "night")
            await until(lambda: any(p["payload"]["event"] == "bare" for p in host.of("map/send")))
            result = host.of("map/send")
            assert ({"scope": "night"}, "lamp.lit", "ann") == (
                result[0]["to"], result[0]["payload"]["type"], result[0]["payload"]["source"]
            )  # fmt: skip
            assert all(params["payload"]["event"] != {"type": "secret"} for params in result)

    run(story())


def test_the_rules_of_the_room_hold_for_its_agents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with hosted(Host("bob", "eve")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register(allow_from=["hive/bob"])
            await host.shows("ann")
            await host.message("ann", "no", id="1", **{"from": "id-eve"})
            await host.message("ann", "yes", id="2")
            await until(lambda: inbox(room, "ann"))
            assert ["yes"] == inbox(room, "ann")

    with caplog.at_level(logging.WARNING, "postroom"):
        run(story())
    assert any("hive/eve" in record.getMessage() for record in caplog.records)


def test_junk_from_the_server_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            for junk in (
                "",
                "{",
                "[]",
                "7",
                '{"id": 99, "result": {}}',
                '{"method": 7}',
                "[" * 5000,
                '{"id": "x"}',
            ):
                await host.lines[-1].send(junk)
            await host.lines[-1].send('{"jsonrpc": "2.0", "id": "q", "method": "map/inject", "params": {}}')
            for message in (
                {},
                {"to": 7},
                {"payload": None, "to": None},
                {"to": {"agent": []}, "payload": 1},
                "x",
            ):
                await host.say("map/message", message=message)
            junk_rows: list[Any] = [
                {"id": 7},
                "x",
                {"name": "no id"},
                {"id": "i", "name": "../../etc"},
                {"id": "!", "name": "!"},
            ]
            host.agents += junk_rows
            await host.message("ann", "still here", id="1", meta={"priority": "shout", "mail": 7})
            await until(lambda: inbox(room, "ann"))
            assert ["still here"] == inbox(room, "ann") and 1 == len(host.lines)
            await until(lambda: "hive/etc" in {agent.card.id for agent in room.agents()})

    run(story())


def test_an_agent_of_ours_keeps_its_name_and_nobody_there_poses_as_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            await until(lambda: host.of("mail/recent"))
            card = room.agent("hive/bob").card
            room.mailbox("hive/carl").register(description="ours")
            host.agents.append({"id": "id-carl", "name": "carl"})
            room.mailbox("ann").send("hive/carl", "for ours")
            await until(lambda: len(host.of("map/agents/list")) > 3)
            assert ("map link", "ours") == (card.principal, room.agent("hive/carl").card.description)
            assert ["for ours"] == inbox(room, "hive/carl") and [] == host.of("map/send")
            room.mailbox("ann").register()
            await host.shows("ann")
            await host.message("ann", "posing", id="1", **{"from": "carl"})
            await until(lambda: inbox(room, "ann"))
            assert "hive/carl.there" == room.mailbox("ann").check()[0].sender

    run(story())


def test_a_server_that_falls_silent_is_left_and_dialled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.map.link.ANSWER", 0.2)
    is_stuck = True

    def send(params: dict[str, Any]) -> Any:
        if is_stuck:
            raise Silent
        return {"messageId": "m"}

    async def story() -> None:
        nonlocal is_stuck
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            host.answers["map/send"] = send
            room.mailbox("ann").send("hive/bob", "x")
            await until(lambda: len(host.lines) == 2)
            is_stuck = False
            await until(lambda: not open_mail(room, "hive/bob"))
            assert (
                "no answer to map/send"
                in room.mailbox("hive/bob")
                .read(host.of("map/send")[0]["meta"]["messageId"])
                .delivery.history[0]
                .reason
            )

    run(story())


@pytest.mark.parametrize("tries", [1, 2, 5, 50, 10_000])
def test_guests_wait_longer_and_longer_and_not_all_the_same(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.federation.dialler.FIRST", 0.5)
    waits = {pause(tries) for _ in range(50)}
    longest = min(0.5 * 2 ** min(tries - 1, 30), 60)
    assert len(waits) > 40 and longest / 2 <= min(waits) and max(waits) <= longest
