"""Resources: read without marking, watched in both revisions, never beyond what the caller may see."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest

from mcp import Client, MCPError
from postroom.errors import StoreBusy
from postroom.mcp import resources
from postroom.mcp.handlers import MAX_WATCHES, Caller
from postroom.store.protocol import RenewEpoch
from tests.mcp.harness import MODES, Harness, ask, played

# The older revision is served for as long as hosts speak it.
pytestmark = pytest.mark.filterwarnings("ignore:.*removed as of 2026-07-28")


async def read(client: Client, uri: str) -> Any:
    found: Any = await client.read_resource(uri, cache_mode="bypass")
    (content,) = found.contents
    assert (uri, "application/json") == (str(content.uri), content.mime_type)
    return json.loads(content.text)


async def watch(client: Client, mode: str, *uris: str) -> None:
    """Until the session ends, or for a moment."""
    if mode == "legacy":
        for uri in uris:
            await client.subscribe_resource(uri)
    else:
        async with client.listen(resource_subscriptions=uris):
            pass


@pytest.mark.parametrize("mode", MODES)
def test_inbox_thread_and_message_can_be_read_and_nothing_is_marked(mode: str) -> None:
    async def story(harness: Harness) -> None:
        ann, bob = harness.room.mailbox("ann"), harness.room.mailbox("bob")
        ann.send("bob", "hello", id="m-1")
        bob.reply("m-1", "hi", id="m-2")
        async with harness.client("bob", mode=mode) as client:
            (listed,) = (await client.list_resources()).resources
            assert "inbox://bob" == listed.uri
            inbox = await read(client, "inbox://bob")
            assert ("bob", ["m-1"]) == (inbox["agentId"], [one["id"] for one in inbox["messages"]])
            thread = await read(client, "thread://m-1")
            assert ["m-1", "m-2"] == [one["id"] for one in thread["messages"]]
            message = await read(client, "message://m-1")
            assert ("ann", [{"agentId": "bob", "state": "unread"}]) == (message["from"], message["recipients"])
            assert ["m-2"] == [one["id"] for one in message["replies"]]
        assert 1 == bob.counts()["total"]

    played(story)


@pytest.mark.parametrize("uri", ["message://nothing", "inbox://../x", "other://x", "inbox://", "inbox://bob"])
def test_what_is_absent_and_what_is_forbidden_look_the_same(uri: str) -> None:
    async def story(harness: Harness) -> None:
        harness.room.mailbox("ann").send("bob", "private", id="m-1")
        async with harness.client(token="eve") as eve:  # noqa: S106 - a name
            with pytest.raises(MCPError) as refused:
                await eve.read_resource(uri)
            assert (types.INVALID_PARAMS, uri) == (refused.value.code, refused.value.data["uri"])
            assert "bob" not in refused.value.message

    played(story)


def test_a_stranger_sees_neither_thread_nor_message() -> None:
    async def story(harness: Harness) -> None:
        harness.room.mailbox("ann").send("bob", "private", id="m-1")
        async with harness.client(token="eve") as eve:  # noqa: S106 - a name
            assert [] == (await read(eve, "thread://m-1"))["messages"]
            with pytest.raises(MCPError, match="this does not exist"):
                await eve.read_resource("message://m-1")

    played(story)


def test_new_mail_is_reported_to_listeners() -> None:
    async def story(harness: Harness) -> None:
        ann = harness.room.mailbox("ann")
        ann.send("bob", "before", id="m-1")
        watched = ["inbox://bob", "thread://m-1", "message://m-1"]
        async with harness.client("bob") as bob, bob.listen(resource_subscriptions=watched) as received:
            ann.send("bob", "new")
            assert "inbox://bob" == (await anext(received)).uri  # type: ignore[union-attr]
            ann.send("bob", "answer", in_reply_to="m-1")
            result = {(await anext(received)).uri for _ in range(3)}  # type: ignore[union-attr]
            assert set(watched) == result

    played(story)


def test_watching_goes_on_after_the_room_was_restored() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("bob") as bob, bob.listen(resource_subscriptions=["inbox://bob"]) as received:
            harness.room.core.store.commit([RenewEpoch()])
            harness.room.mailbox("ann").send("bob", "after")
            assert "inbox://bob" == (await anext(received)).uri  # type: ignore[union-attr]

    played(story)


def test_watching_goes_on_after_a_time_of_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(harness: Harness) -> None:
        monkeypatch.setattr(resources, "RETRY_SECONDS", 0.01)
        result = asyncio.Event()
        troubles = [StoreBusy(), StoreBusy()]

        async def call(name: str, params: dict[str, Any]) -> Any:
            if name == "wait" and params["timeout"] and troubles:
                raise troubles.pop()
            return await harness.executor.call(harness.room.principal, name, params)

        async def changed() -> None:
            result.set()

        watch = await resources.watch_resource(Caller(call, usual="bob"), "inbox://bob")
        watching = asyncio.ensure_future(watch(changed))
        harness.room.mailbox("ann").send("bob", "new")
        await result.wait()
        watching.cancel()
        assert not troubles

    played(story)


def test_new_mail_is_reported_to_subscribers_until_they_unsubscribe() -> None:
    async def story(harness: Harness) -> None:
        result: asyncio.Queue[str] = asyncio.Queue()

        async def hear(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                await result.put(str(message.params.uri))

        ann = harness.room.mailbox("ann")
        async with harness.client("bob", mode="legacy", message_handler=hear) as bob:
            await bob.subscribe_resource("inbox://bob")
            await bob.subscribe_resource("inbox://bob")
            ann.send("bob", "1")
            assert "inbox://bob" == await result.get()
            await bob.unsubscribe_resource("inbox://bob")
            await bob.unsubscribe_resource("inbox://never")
            ann.send("bob", "2")
            await ask(bob, "wait_for_mail", timeout=5)
            await asyncio.sleep(0.1)
            assert result.empty()
            with pytest.raises(MCPError, match="no such resource"):
                await bob.subscribe_resource("other://x")

    played(story)


@pytest.mark.parametrize("mode", MODES)
def test_nobody_watches_anothers_inbox(mode: str) -> None:
    async def story(harness: Harness) -> None:
        async with harness.client(token="eve", mode=mode) as eve:  # noqa: S106 - a name
            with pytest.raises(MCPError, match="this does not exist"):
                await watch(eve, mode, "inbox://bob")

    played(story)


def test_a_client_watches_so_many_things_and_no_more() -> None:
    async def story(harness: Harness) -> None:
        many = [f"inbox://a{place}" for place in range(MAX_WATCHES + 1)]
        async with harness.client("bob") as bob:
            with pytest.raises(MCPError, match="at most"):
                await watch(bob, "2026-07-28", *many)
        async with harness.client("bob", mode="legacy") as bob:
            with pytest.raises(MCPError, match="at most"):
                await watch(bob, "legacy", *many)

    played(story)


def test_watching_ends_with_the_session() -> None:
    async def story(harness: Harness) -> None:
        before = len(asyncio.all_tasks())
        for mode in MODES:
            async with harness.client("bob", mode=mode) as bob:
                await watch(bob, mode, "inbox://bob")
        await asyncio.sleep(0.05)
        assert before == len(asyncio.all_tasks())

    played(story)
