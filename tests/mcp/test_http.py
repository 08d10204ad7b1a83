"""Streamable HTTP: a real server on a real port; who calls is known by what the web rim leaves in the scope."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from postroom.core import tokens
from postroom.core.authorize import Principal, agent_principal
from postroom.core.verb import perform
from postroom.mcp import http as mcp_http
from postroom.mcp.http import asgi
from postroom.server.broker import Broker
from postroom.server.callers import PrincipalCalls
from postroom.server.http import PRINCIPAL
from tests.mcp.harness import MODES, Harness, ask, harness, refused, run

PATIENCE = 120.0  # seconds; a bound, not a pace

JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


KNOWN: dict[str, Principal] = {}  # callers with a token of their own


@asynccontextmanager
async def serving(opened: Harness) -> AsyncIterator[str]:
    """A rim that believes a header; what it stands for asks for a token."""
    app = asgi(PrincipalCalls(opened.executor, Broker(opened.executor)), "0")

    async def rim(scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"]).get(b"x-agent", b"").decode()
        principal = KNOWN.get(name) or (agent_principal(name) if name else None)
        known = {PRINCIPAL: principal} if principal else {}
        await app({**scope, **known}, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(rim, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        async with app.running():
            task = asyncio.create_task(server.serve([listening]))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            server.should_exit = True
            await task


@asynccontextmanager
async def calling(url: str, name: str, mode: str = "2026-07-28") -> AsyncIterator[Client]:
    async with (
        httpx.AsyncClient(headers={"x-agent": name}, timeout=PATIENCE) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", MODES)
def test_each_caller_is_its_tokens_agent(mode: str) -> None:
    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            calling(url, "ann", mode) as ann,
            calling(url, "bob", mode) as bob,
        ):
            await ask(ann, "send_message", to="bob", body="hello", **{"from": "forged"})
            (letter,) = (await ask(bob, "check_inbox"))["messages"]
            assert "ann" == letter["from"]
            assert "NotAllowed" == (await refused(ann, "check_inbox", agentId="bob"))["name"]

    run(story())


def test_new_mail_is_reported_over_http() -> None:
    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            calling(url, "bob") as bob,
            bob.listen(resource_subscriptions=["inbox://bob"]) as received,
        ):
            opened.room.mailbox("ann").send("bob", "new")
            assert "inbox://bob" == (await anext(received)).uri  # type: ignore[union-attr]

    run(story())


def test_a_token_that_is_revoked_is_worth_nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with harness() as opened, serving(opened) as url:
            core, owner = opened.room.core, opened.room.principal
            made = perform(core, owner, tokens.CreateToken(agent="bob", scopes=["read"], note=""))
            text, token = made.text, made.token
            monkeypatch.setitem(KNOWN, "bob", tokens.authenticate(core, text))
            async with calling(url, "bob") as bob:
                opened.room.mailbox("ann").send("bob", "hello")
                assert 1 == (await ask(bob, "check_inbox"))["count"]
                assert "NotAllowed" == (await refused(bob, "send_message", to="ann", body="x"))["name"]
                perform(core, owner, tokens.RevokeToken(id=token.id))
                assert "NotAllowed" == (await refused(bob, "check_inbox"))["name"]

    run(story())


def test_a_session_belongs_to_the_caller_that_opened_it() -> None:
    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            httpx.AsyncClient(headers=JSON, timeout=PATIENCE) as http,
        ):
            begun = await http.post(url, json=HELLO, headers={"x-agent": "ann"})
            session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            own = await http.post(url, json=ping, headers={**session, "x-agent": "ann"})
            other = await http.post(url, json=ping, headers={**session, "x-agent": "eve"})
            assert (200, 404) == (own.status_code, other.status_code)

    run(story())


def named(begun: httpx.Response) -> dict[str, str]:
    """What a later request of the same session says."""
    return {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


def test_a_session_counts_once_though_the_request_that_opened_it_goes_on() -> None:
    """A client has its answer a moment before the request is over, and may open the next at once."""
    own = mcp_http.Sessions(2)
    with own.under_way("ann", None) as began:
        assert not own.is_full("ann")
        began("s-1")
        assert not own.is_full("ann")
        with own.under_way("ann", None):
            assert own.is_full("ann")
    assert not own.is_full("ann")


def test_a_caller_with_too_many_sessions_loses_its_own_idlest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_http, "MAX_SESSIONS_EACH", 2)

    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            httpx.AsyncClient(headers=JSON, timeout=PATIENCE) as http,
        ):

            async def status(agent: str, session: dict[str, str]) -> int:
                ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
                return (await http.post(url, json=ping, headers={**session, "x-agent": agent})).status_code

            other = named(await http.post(url, json=HELLO, headers={"x-agent": "eve"}))
            first, second = [named(await http.post(url, json=HELLO, headers={"x-agent": "ann"})) for _ in "12"]
            assert 200 == await status("ann", first)  # so the second is the idlest
            third = named(await http.post(url, json=HELLO, headers={"x-agent": "ann"}))
            assert [200, 404, 200] == [await status("ann", one) for one in (first, second, third)]
            assert 200 == await status("eve", other)
            await http.delete(url, headers={**first, "x-agent": "ann"})
            named(await http.post(url, json=HELLO, headers={"x-agent": "ann"}))
            assert 200 == await status("ann", third)

    run(story())


def test_many_that_come_at_once_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "MAX_SESSIONS_EACH", 3)

    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            httpx.AsyncClient(headers=JSON, timeout=PATIENCE) as http,
        ):
            hello = partial(http.post, url, json=HELLO, headers={"x-agent": "ann"})
            begun = await asyncio.gather(*(hello() for _ in range(12)))
            assert {200, 429} >= {answer.status_code for answer in begun}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            alive = [
                await http.post(url, json=ping, headers={**named(answer), "x-agent": "ann"})
                for answer in begun
                if answer.status_code == 200
            ]
            assert 1 <= [answer.status_code for answer in alive].count(200) <= 3

    run(story())


def test_a_caller_that_uses_all_of_its_sessions_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "MAX_SESSIONS_EACH", 1)

    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            httpx.AsyncClient(headers=JSON | {"x-agent": "ann"}, timeout=PATIENCE) as http,
        ):
            own = named(await http.post(url, json=HELLO))
            async with http.stream("GET", url, headers=own) as stream:
                assert 200 == stream.status_code
                refusal = await http.post(url, json=HELLO)
                assert 429 == refusal.status_code and "DELETE" in refusal.json()["error"]["message"]
            async with calling(url, "ann") as later:  # the revision that has no sessions
                assert [] == (await ask(later, "check_inbox"))["messages"]

    run(story())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-agent": "ann"}, 200),
        ({"x-agent": "ann", "origin": "http://evil.example"}, 403),
        ({"x-agent": "ann", "host": "evil.example"}, 421),
        ({"x-agent": "ann", "content-type": "text/plain"}, 400),
    ],
)
def test_host_origin_and_caller_are_checked(headers: dict[str, str], status: int) -> None:
    async def story() -> None:
        async with harness() as opened, serving(opened) as url, httpx.AsyncClient(timeout=PATIENCE) as http:
            got = await http.post(url, json=HELLO, headers={**JSON, **headers})
            assert status == got.status_code
            if status == 401:
                assert "the caller is not authenticated" == got.json()["error"]["message"]

    run(story())


@pytest.mark.parametrize("tool", ["wait_for_mail", "claim"])
def test_a_letter_is_not_handed_to_a_client_that_hung_up(tool: str) -> None:
    async def story() -> None:
        async with (
            harness() as opened,
            serving(opened) as url,
            httpx.AsyncClient(headers=JSON | {"x-agent": "bob"}, timeout=PATIENCE) as http,
        ):
            session = (await http.post(url, json=HELLO)).headers["mcp-session-id"]
            named = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=named)
            params = {"name": tool, "arguments": {"timeout": 20}}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await http.post(url, json=call, headers=named, timeout=20)
            await asyncio.sleep(0.2)
            opened.room.mailbox("ann").send("bob", "hello")
            await asyncio.sleep(0.2)
            assert 1 == opened.room.mailbox("bob").counts()["total"]
            assert 1 == len(opened.room.mailbox("bob").claim(1))

    run(story())
