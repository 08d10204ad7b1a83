"""Who may do what, over every wire: made from the table of methods, so that none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import postroom
from postroom import NotAllowed, PostroomError, Room
from postroom.callers import Caller
from postroom.desk import Desk
from postroom.hub import Hub
from postroom.service import tokens
from postroom.service.authorize import NEEDS, RULES, SCOPES, Principal
from postroom.wire.methods import ACTIONS, MAIL, VERBS, let_in
from postroom.wire.rpc import Call
from postroom.wire.session import Asked, Step
from postroom.wire.table import Method, Param

METHODS: dict[str, Method] = {f"action {name}": row for name, row in ACTIONS.items()} | {
    **{f"mail/{name}": row for name, row in VERBS.items()},
    **MAIL,
}
# Whose the mailbox is that a method without a parameter for it is about.
CALLERS_OWN = {name for name, row in METHODS.items() if row.whose is None and name != "action notify"}
INSIDE = {"action notify": {"event": {"type": "agent.spawn", "agent": {"agentId": "alice"}}}}


def some_value(param: Param) -> Any:
    """Something of the right kind."""
    special = {"to": "bob", "step": "accept", "since": None, "query": "word", "role": "any", "importance": "high"}
    if param.name in special:
        return special[param.name]
    values = {"text": "m-1", "texts": ["m-1"], "count": 1, "seconds": 1, "flag": True, "object": {}, "list": []}
    return values.get(param.kind)


def said_for(name: str, method: Method, letter: str) -> dict[str, Any]:
    said = {param.name: some_value(param) for param in method.params if param.required}
    if method.whose is not None:
        said[method.whose] = "alice"
    for param in method.params:
        if param.name in {"message_id", "message_ids", "conversation_id", "thread", "id"} and param.name in said:
            said[param.name] = [letter] if param.kind == "texts" else letter
    return {name: value for name, value in said.items() if value is not None} | INSIDE.get(name, {})


@pytest.fixture
def room() -> Iterator[Room]:
    with postroom.open("memory:") as room:
        yield room


def outcome(room: Room, principal: Principal, name: str, method: Method) -> str:
    letter = room.mailbox("bob").send("alice", "hello").id
    said = said_for(name, method, letter)
    seen = room.acting_as(principal)
    try:
        let_in(seen, method, said)
        method.run(seen, said)
    except NotAllowed:
        return "refused"
    except (PostroomError, KeyError):  # it got past the door
        return "heard"
    return "heard"


def principal(room: Room, agent: str | None, *scopes: str) -> Principal:
    text, _ = tokens.create(room._office, room.principal, agent, list(scopes) or None)
    return tokens.holder(room._office, text)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_lets_in_whom_its_rule_says(room: Room, name: str) -> None:
    method = METHODS[name]
    rule = RULES[method.action]
    expected = {
        "own": ("heard", "heard" if name in CALLERS_OWN else "refused"),
        "anyone": ("heard", "heard"),
        "operator": ("refused", "refused"),
    }[rule]

    assert expected[0] == outcome(room, principal(room, "alice"), name, method), "its own agent"
    assert expected[1] == outcome(room, principal(room, "bob"), name, method), "another agent"
    assert "heard" == outcome(room, principal(room, None), name, method), "an operator"


@pytest.mark.parametrize("name", METHODS)
def test_a_token_is_good_only_for_what_it_says(room: Room, name: str) -> None:
    method = METHODS[name]
    if RULES[method.action] != "own":
        assert method.action not in NEEDS
        return
    for scope in SCOPES:
        told = outcome(room, principal(room, "alice", scope), name, method)
        assert ("heard" if scope in NEEDS[method.action] else "refused") == told, scope


def test_a_token_that_was_revoked_is_worth_nothing(room: Room) -> None:
    text, token = tokens.create(room._office, room.principal, "alice")
    assert "alice" == tokens.holder(room._office, text).agent
    tokens.revoke(room._office, room.principal, token.id)
    for wrong in (text, "", "pr_", f"pr_{token.id}_x", text[:-1], text + "x", None, 7, "ž" * 40):
        with pytest.raises(NotAllowed, match="not valid"):
            tokens.holder(room._office, wrong)


def test_whoever_showed_a_token_that_is_revoked_since_may_do_nothing(room: Room) -> None:
    async def refused() -> list[str]:
        desk = Desk(room)
        hub = Hub(desk)
        text, token = tokens.create(room._office, room.principal, None)
        caller = Caller(desk, hub, principal=tokens.holder(room._office, text))
        letter = room.mailbox("bob").send("alice", "hello").id
        tokens.revoke(room._office, room.principal, token.id)
        found = []
        for name, method in METHODS.items():
            step = Step(Call(name, {}, 1), method, said_for(name, method, letter))
            reply = await caller.carry_out(Asked([step]))
            if (
                reply.get("error", {}).get("data", {}).get("name", "NotAllowed") == "NotAllowed"
                and "error" in reply
            ):
                found.append(name)
        hub.close()
        await desk.close()
        return found

    assert list(METHODS) == asyncio.run(refused())
