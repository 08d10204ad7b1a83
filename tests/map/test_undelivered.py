"""Messages that the SDK's server left undelivered: the link asks for them, and they reach their recipients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.map.host import Host, Refused, hosted, linked, run, until
from tests.map.test_link import hasty, inbox, open_mail

__all__ = ["hasty"]


class Keeper(Host):
    """It drops `meta`, and tells of what nobody got, as the SDK's server does; in small pages."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names, version="2024-12")
        self.events: list[dict[str, Any]] = []
        self.visits = 0
        self.answers["map/connect"] = self._connect
        self.answers["map/agents/register"] = self._register
        self.answers["map/subscribe"] = lambda message: {"subscriptionId": message["filter"]["eventTypes"][0]}
        self.answers["map/replay"] = self._replay

    def _connect(self, _: dict[str, Any]) -> Any:
        self.visits += 1
        info = {"name": "hive", "version": "1"}
        session = f"session-{self.visits}"
        return {"protocolVersion": "2024-12", "sessionId": session, "capabilities": {}, "systemInfo": info}

    def _register(self, params: dict[str, Any]) -> Any:
        return {"agent": {"id": f"{params['name']}-{self.visits}", "state": "idle"}}

    def _replay(self, params: dict[str, Any]) -> Any:
        if "subscriptionId" not in params:
            raise Refused(-32603, "Subscription not found: undefined")
        found = [
            event
            for event in self.events
            if event["type"] == params["subscriptionId"]
            and params.get("since", "") < event["id"] <= params.get("until", "~")
        ]
        return found[: params["limit"]]

    def put_aside(self, to: str, text: str) -> None:
        """Somebody said that to an id that nobody has."""
        now = f"01J{len(self.events):07}"
        message = {"id": f"{now}{'7' * 16}", "from": "id-bob", "to": to, "payload": text, "timestamp": 7}
        for kind, data in (
            ("message.sent", {"message": message}),
            ("message.queued", {"messageId": message["id"], "agentId": to}),
        ):
            self.events.append({"id": f"{now}{len(self.events) + 1:016}", "type": kind, "data": data})


def test_what_was_for_our_connection_or_for_an_old_id_arrives_once(tmp_path: Path) -> None:
    async def story() -> None:
        host = Keeper("bob")
        for number in range(300):
            host.put_aside(f"stranger-{number}", "not ours")
        async with hosted(host):
            async with linked(host, tmp_path) as room:
                room.mailbox("zoe").register()
                sent = room.mailbox("ann").send("hive/bob", "?")
                await until(lambda: not open_mail(room, "hive/bob"))
                host.put_aside("session-1", "an answer")
                await until(lambda: inbox(room, "ann"))
                await host.cut()
                await until(lambda: host.visits == 2)
                host.put_aside("zoe-1", "by her old id")
                await until(lambda: inbox(room, "zoe"))
                (letter,) = room.mailbox("ann").check(peek=True)
                assert ("hive/bob", sent.id) == (letter.sender, letter.message.in_reply_to)
            async with linked(host, tmp_path) as room:  # on another day
                host.put_aside("session-1", "a late one")
                await until(lambda: "a late one" in inbox(room, "ann"))
                assert ["an answer", "a late one"] == inbox(room, "ann")
                assert (["by her old id"], []) == (inbox(room, "zoe"), inbox(room, "berlin"))

    run(story())


def test_an_answer_that_could_be_for_two_lies_with_the_link(tmp_path: Path) -> None:
    async def story() -> None:
        host = Keeper("bob")
        async with hosted(host), linked(host, tmp_path) as room:
            for name in ("ann", "carl"):
                room.mailbox(name).send("hive/bob", "?")
            await until(lambda: not open_mail(room, "hive/bob"))
            host.put_aside("session-1", "for whom?")
            await until(lambda: inbox(room, "berlin"))
            assert ([], []) == (inbox(room, "ann"), inbox(room, "carl"))

    run(story())


def test_a_server_that_does_not_tell_is_not_asked_again(tmp_path: Path) -> None:
    def no(_: dict[str, Any]) -> Any:
        raise Refused(-32603, "no")

    async def story() -> None:
        host = Keeper("bob")
        host.answers["map/replay"] = no
        async with hosted(host), linked(host, tmp_path) as room:
            room.mailbox("ann").send("hive/bob", "1")
            await until(lambda: not open_mail(room, "hive/bob"))
            room.mailbox("ann").send("hive/bob", "2")
            await until(lambda: not open_mail(room, "hive/bob"))
            looks = len(host.of("map/agents/list"))
            await until(lambda: len(host.of("map/agents/list")) > looks + 4)
            assert 1 == sum("subscriptionId" in message for message in host.of("map/replay"))

    run(story())
