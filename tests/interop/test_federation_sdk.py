"""Gateways of others as peers: MAP's SDK's over WebSocket, and agentic-mesh's in lines, with dotted names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.model.delivery import State
from tests.daemons import until
from tests.federation.systems import System, systems
from tests.interop.map_connections import Failed, Program
from tests.interop.map_programs import HERE, require_sdk
from tests.interop.map_programs import Program as Lines
from tests.interop.packages import require
from tests.interop.test_agentic_mesh import PACKAGE

pytestmark = [pytest.mark.interop, pytest.mark.daemon]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[System]:
    with systems(System(tmp_path, "here", "ann")) as (one,):
        yield one


def message(id: str, to: str = "ann", **meta: Any) -> dict[str, Any]:
    params = {"id": id, "from": "bob", "to": {"agent": to}, "timestamp": 1_750_000_000_000, "payload": id}
    return params | ({"meta": meta} if meta else {})


@pytest.mark.parametrize("routing", [None, {"systemId": "gate", "maxHops": 5, "trackPath": True}])
def test_a_gateway_of_the_sdk_routes_letters(here: System, routing: dict[str, Any] | None) -> None:
    """With `routing` it sends envelopes, without it messages alone."""
    require_sdk()
    token = here.trusts("gate")
    here.serve()
    with Program() as program:
        auth = {"method": "bearer", "credential": token}
        program.do(
            "gateway", name="gate", url=here.url, auth=auth, options={"routing": routing} if routing else {}
        )
        met = program.do("connectToSystem", "gate", "here", here.url)
        assert (True, "here") == (met["connected"], met["systemInfo"]["name"])
        sent = message("m-1", priority="high", correlationId="t1")
        for _ in range(2):
            assert {"routed": True, "messageId": "m-1"} == program.do("routeToSystem", "gate", "here", sent)
        with pytest.raises(Failed) as nobody:
            program.do("routeToSystem", "gate", "here", message("m-2", to="nobody"))
        assert (5003, False) == (nobody.value.code, nobody.value.data["retryable"])
        (letter,) = here.room.mailbox("ann").check()
        assert ("m-1", "bob@gate", "m-1", "HIGH") == (letter.id, letter.sender, letter.text, letter.priority.name)
        assert "t1" == letter.message.thread_tag
        answer = letter.reply("back")  # its gateways take none: the sender is told
        until(lambda: here.delivery(answer.id, "bob@gate").state is State.DEAD)


def test_a_gateway_of_the_sdk_without_the_token_is_no_peer(here: System) -> None:
    require_sdk()
    here.trusts("gate")
    here.serve()
    with Program() as program:
        result = program.do("gateway", name="gate", url=here.url, auth={"method": "bearer", "credential": "wrong"})
        assert result["authRequired"]["required"]
        for proof in ({}, {"auth": {"method": "bearer", "credentials": "wrong"}}):
            with pytest.raises(Failed) as refused:
                program.do("connectToSystem", "gate", "gate", "", proof)
            assert 5002 == refused.value.code


def mesh(here: System, token: str) -> Lines:
    folder = require(PACKAGE)
    shutil.copyfile(HERE / "mesh_gateway.mjs", folder / "mesh_gateway.mjs")
    assert here.daemon is not None
    return Lines(folder / "mesh_gateway.mjs", str(here.daemon.socket), "mesh", "here", token)


def test_a_gateway_of_agentic_mesh_routes_letters_both_ways(here: System) -> None:
    token = here.trusts("mesh")
    ann = here.room.mailbox("ann")
    early = ann.send("bob@mesh", "early", thread_tag="t0")
    here.serve()
    with mesh(here, token) as gateway:
        results = [gateway.line(), gateway.line()]  # what waited may come before it knows that it is connected
        (came,) = [one for one in results if "id" in one]
        assert (True, None) == (came["connected"], came["error"])
        (got,) = [one["message"] for one in results if "message" in one]
        assert ("here:ann", "t0") == (got["from"], got["meta"]["correlationId"])  # so it names senders
        assert early.id == got["meta"]["_meta"]["inboxMessageId"]
        until(lambda: here.left(early.id, "bob@mesh"))
        known = {"inboxMessageId": "i-1", "subject": "S", "threadTag": "t1", "inReplyTo": early.id}
        gateway.say(**message("i-1", priority="urgent", correlationId="t1", _meta=known))
        assert {"routed": True, "error": None} == gateway.line()
        (letter,) = ann.check()
        assert ("bob@mesh", "i-1", "S", "t1") == (
            letter.sender, letter.text, letter.subject, letter.message.thread_tag,
        )  # fmt: skip
        assert (early.id, "URGENT") == (letter.message.in_reply_to, letter.priority.name)
        gateway.say(**message("i-2", to="nobody"))
        assert {"routed": False, "error": 5003} == gateway.line()
        answer = letter.reply("back")
        assert {"type": "text", "text": "back"} == gateway.line()["message"]["payload"]
        until(lambda: here.left(answer.id, "bob@mesh"))


def test_a_gateway_of_agentic_mesh_needs_the_token_on_the_socket_too(here: System) -> None:
    here.trusts("mesh")
    here.serve()
    for token in ("", "wrong"):
        with mesh(here, token) as gateway:
            assert {"id": "bob", "connected": False, "error": 5002} == gateway.line()
