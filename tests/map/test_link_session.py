"""A session of the link to a MAP server: its handshake, acknowledgements, and a room that is busy."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import StoreBusy
from postroom.map import link, link_messages
from tests.map.host import Host, Refused, Silent, hosted, linked, run, until
from tests.map.test_link import hasty, inbox

__all__ = ["hasty"]
TOKEN = "a-token"  # noqa: S105 - of nobody


def welcome(**more: Any) -> dict[str, Any]:
    info = {"name": "hive", "version": "1"}
    return {"protocolVersion": 1, "sessionId": "s", "capabilities": {}, "systemInfo": info} | more


def guarded(*methods: str) -> Any:
    """A server that wants to see the token, in one of these ways."""

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        auth = params.get("auth") or {}
        if auth.get("method") in methods and auth.get("credential") == TOKEN:
            return welcome()
        return {"authRequired": {"methods": list(methods), "required": True}}

    return answer


@pytest.mark.parametrize("methods", [("bearer",), ("api-key",), ("x-other", "api-key")])
def test_a_token_is_shown_as_the_server_wants_to_see_it(tmp_path: Path, methods: tuple[str, ...]) -> None:
    async def story() -> None:
        host = Host("bob")
        host.answers["map/connect"] = guarded(*methods)
        async with hosted(host), linked(host, tmp_path, token=TOKEN):
            await until(lambda: host.of("mail/recent"))
            assert methods[-1] == host.of("map/connect")[-1]["auth"]["method"]
            assert 1 == len(host.lines)

    run(story())


@pytest.mark.parametrize(
    ("token", "words"), [("", "POSTROOM_MAP_TOKEN"), ("another", "the token is not taken")], ids=["none", "wrong"]
)
def test_who_is_not_let_in_says_so_once_and_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, token: str, words: str
) -> None:
    async def story() -> None:
        host = Host("bob")
        host.answers["map/connect"] = guarded("bearer")
        async with hosted(host), linked(host, tmp_path, token=token):
            await until(lambda: len(host.lines) >= 4)
        assert [] == host.of("map/agents/register")

    with caplog.at_level(logging.WARNING, "postroom"):
        run(story())
    results = [record.getMessage() for record in caplog.records]
    assert 1 == len(results) and words in results[0] and "another" not in results[0]


def test_a_server_that_says_nothing_is_complained_of_and_the_next_try_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "FIRST_ANSWER", 0.1)

    def silent(_: dict[str, Any]) -> Any:
        raise Silent

    async def story() -> None:
        host = Host("bob")
        host.answers["map/connect"] = silent
        async with hosted(host), linked(host, tmp_path):
            await until(lambda: len(host.lines) >= 3)

    with caplog.at_level(logging.WARNING, "postroom"):
        run(story())
    (result,) = [record.getMessage() for record in caplog.records]
    assert "did not answer map/connect in 0.1 s (is it a MAP server?); the next try is in 0.0 s" in result


def test_what_was_put_down_is_acknowledged_to_a_server_that_waits_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        host = Host("bob")
        host.answers["map/connect"] = lambda _: welcome(
            capabilities={"delivery": {"acks": True}}, resumeToken=f"resume-{len(host.lines)}"
        )
        async with hosted(host), linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            await host.message("ann", "x", id="m-1")
            await until(lambda: host.of("map/message.ack"))
            assert (["x"], [{"messageIds": ["m-1"]}]) == (inbox(room, "ann"), host.of("map/message.ack"))
            await host.cut()
            await until(lambda: len(host.of("map/connect")) == 2)
            assert "resume-1" == host.of("map/connect")[1]["resumeToken"]  # it is the same guest that comes back
            room.mailbox("ann").send("hive/bob", "after the greeting")
            await until(lambda: "after the greeting" in host.texts())
            assert [] == host.of("map/replay") == host.of("mail/recent")  # that server keeps what was missed

    run(story())


def test_mail_for_who_was_given_back_is_theirs_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        host = Host("bob")
        host.answers["map/connect"] = lambda params: welcome(
            resumeToken="r", reclaimedAgents=[{"id": "ann"}, {"id": "other"}, 7] if "resumeToken" in params else []
        )

        def register(params: dict[str, Any]) -> Any:
            return {"agent": {"id": params["agentId"]}}

        host.answers["map/agents/register"] = register
        async with hosted(host), linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            host.agents.clear()
            await host.cut()
            await until(lambda: len(host.of("map/connect")) == 2)
            await host.say(
                "map/message", message={"id": "1", "from": "x", "to": {"agent": "ann"}, "payload": "hi"}
            )
            await host.say(
                "map/message", message={"id": "2", "from": "x", "to": {"agent": "other"}, "payload": "no"}
            )
            await until(lambda: inbox(room, "berlin"))
            assert (["hi"], ["no"], []) == tuple(inbox(room, name) for name in ("ann", "berlin", "other"))
            assert 1 == sum(params["name"] == "ann" for params in host.of("map/agents/register"))

    run(story())


def test_a_busy_room_is_waited_for_and_nothing_is_acknowledged_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    take = link_messages.store_incoming

    def busy(*message: Any) -> bool:
        nonlocal tries
        tries += 1
        if tries < 4:
            assert [] == host.of("map/message.ack")
            raise StoreBusy("another process holds the room")
        return take(*message)

    host = Host("bob")
    host.answers["map/connect"] = lambda _: welcome(capabilities={"delivery": {"acks": True}})
    monkeypatch.setattr(link, "_AGAIN", (0.01, 0.02))
    monkeypatch.setattr(link_messages, "store_incoming", busy)

    async def story() -> None:
        async with hosted(host), linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            await host.message("ann", "x", id="m-1")
            await host.cut()  # what came is put down all the same
            await until(lambda: inbox(room, "ann"))
            assert (["x"], 4) == (inbox(room, "ann"), tries)

    run(story())


def test_more_than_can_be_put_down_cuts_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_INBOUND", 3)

    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            for number in range(50):
                await host.message("ann", str(number), id=f"m-{number}")
            await until(lambda: len(host.lines) == 2)
            assert inbox(room, "ann")[:3] == ["0", "1", "2"]

    run(story())


def test_labels_that_cannot_be_followed_are_carried(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            meta = {"mail": {"conversationId": "conv-general:default"}, "inReplyTo": "never-seen", "k": [1]}
            await host.message("ann", "x", id="m-1", meta=meta)
            await until(lambda: inbox(room, "ann"))
            (letter,) = room.mailbox("ann").check()
            assert (meta, None) == (letter.message.metadata, letter.message.in_reply_to)

    run(story())


def test_an_answer_to_the_link_finds_who_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            host.answers["map/send"] = lambda _: {"messageId": "theirs"}
            sent = room.mailbox("ann").send("hive/bob", "?")
            await until(lambda: host.of("map/send"))
            assert "guest-ann" == host.of("map/send")[0]["from"]
            await host.message("berlin", "!", id="m-1", meta={"inReplyTo": "theirs"})
            await until(lambda: inbox(room, "ann"))
            (letter,) = room.mailbox("ann").check()
            assert (sent.id, sent.thread) == (letter.message.in_reply_to, letter.message.thread)

    run(story())


def test_an_answer_by_the_word_of_who_asked_finds_the_letter(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            for name in ("ann", "carl"):
                room.mailbox(name).register()
                await host.shows(name)
            sent = room.mailbox("ann").send("hive/bob", "?", metadata={"correlationId": "c1"})
            room.mailbox("carl").send("hive/bob", "?", metadata={"correlationId": "c1"})
            await until(lambda: len(host.of("map/send")) == 2)
            assert ["c1", "c1"] == [message["meta"]["correlationId"] for message in host.of("map/send")]
            await host.message("ann", "!", id="m-1", meta={"correlationId": "c1", "isResult": True})
            await host.message("ann", "no", id="m-2", meta={"correlationId": "c2", "isResult": True})
            await until(lambda: len(inbox(room, "ann")) == 2)
            answer, other = room.mailbox("ann").check()
            assert (sent.id, sent.thread) == (answer.message.in_reply_to, answer.message.thread)
            assert {"correlationId": "c1", "isResult": True} == answer.message.metadata
            assert other.message.in_reply_to is None

    run(story())


def test_many_agents_are_listed_page_by_page(tmp_path: Path) -> None:
    def listed(params: dict[str, Any]) -> dict[str, Any]:
        page = int(params.get("cursor", 0))
        more = {"nextCursor": str(page + 1)} if page < 2 else {}
        return {"agents": [{"id": f"id-{page}", "name": f"agent-{page}"}]} | more

    async def story() -> None:
        host = Host()
        host.answers["map/agents/list"] = listed
        async with hosted(host), linked(host, tmp_path) as room:
            await until(lambda: host.of("mail/recent"))
            assert {f"hive/agent-{n}" for n in range(3)} == {agent.card.id for agent in room.agents()}

    run(story())


def test_a_token_that_runs_out_is_shown_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path, token=TOKEN):
            await until(lambda: host.of("mail/recent"))
            await host.say("map/auth/expiring", expiresInMs=1000)
            await until(lambda: host.of("map/auth/refresh"))
            assert [{"method": "bearer", "credential": TOKEN}] == host.of("map/auth/refresh")

    run(story())


def test_a_fault_of_ours_ends_a_visit_and_not_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await host.shows("ann")
            with monkeypatch.context() as broken:
                broken.setattr(link, "decode_message", lambda _: 1 / 0)
                await host.message("ann", "x", id="m-1")
                await until(lambda: len(host.lines) == 2)
            await host.shows("ann")
            await host.message("ann", "y", id="m-2")
            await until(lambda: inbox(room, "ann"))

    run(story())
    assert any("an internal error" in record.getMessage() for record in caplog.records)


def test_an_agent_that_the_server_does_not_take_is_not_reached_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def register(params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] == "ann":
            raise Refused(3000, "ann is there already")
        return {"agent": {"id": f"guest-{params['name']}"}}

    async def story() -> None:
        host = Host("bob")
        host.answers["map/agents/register"] = register
        async with hosted(host), linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            await until(lambda: len(host.of("map/agents/list")) >= 4)
            await host.message("ann", "x", id="m-1")
            await until(lambda: inbox(room, "berlin"))
            assert [] == inbox(room, "ann")
            del host.answers["map/agents/register"]  # who held the name has gone
            await host.shows("ann")

    with caplog.at_level(logging.WARNING, "postroom"):
        run(story())
    assert 1 == sum("ann is not shown" in record.getMessage() for record in caplog.records)
