"""Agents with a token, on the socket of a real daemon: nobody else speaks for them, reads their mail or poses."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from postroom import Invalid, LookAlike
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.errors import NotAllowed
from postroom.formats.errors import mail_problem, rpc_error
from tests.daemons import Daemon, Line


def sealed(daemon: Daemon, agent: str | None) -> str:
    with postroom.open(daemon.room) as room:
        return perform(room.core, OWNER, tokens.CreateToken(agent=agent)).text


def rpc(line: Line, method: str, **params: Any) -> dict[str, Any]:
    reply: dict[str, Any] = line.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return reply


def test_a_caller_without_a_token_does_nothing_for_who_has_one(daemon: Daemon) -> None:
    with postroom.open(daemon.room) as room:
        room.mailbox("bob").send("coder", "secret", thread_tag="t", conversation_id="c-1")
    daemon.ask(action="register_agent", agentId="coder")
    sealed(daemon, "coder")
    spawn = {"type": "agent.spawn", "agent": {"agentId": "coder", "name": "forged"}}
    with daemon.line() as line:
        replies = [
            line.ask({"action": "check_inbox", "scope": "coder"}),
            line.ask({"action": "read_thread", "threadTag": "t"}),
            line.ask({"action": "notify", "event": spawn}),
            line.ask({"action": "notify", "event": {"type": "agent.done", "agentId": "coder"}}),
            rpc(line, "mail/turn", id="c-1", agentId="coder", content="forged"),
            rpc(line, "mail/create", agentId="coder", initialTurn={"content": "forged"}),
            rpc(line, "mail/leave", id="c-1", participantId="coder"),
            rpc(line, "mail/recent"),
            rpc(line, "mail/turns/list", id="c-1"),
            rpc(line, "mail/get", id="c-1"),
            rpc(line, "map/subscribe"),
        ]
        names = [reply.get("name") or reply["error"]["code"] for reply in replies]
        assert ["NotAllowed"] * 4 == names[:4]
        assert all("error" in reply and "secret" not in str(reply) for reply in replies)
        assert line.ask({"action": "check_inbox", "agentId": "bob"})["ok"]
        assert line.ask({"action": "check_inbox", "scope": "bob"})["ok"]
        line.ask({"action": "authenticate", "token": sealed(daemon, None)})
        assert "secret" in str(rpc(line, "mail/recent"))
    with postroom.open(daemon.room) as room:
        assert "coder" == (room.agent("coder").card.display_name or "coder")
        assert ["secret"] == [letter.text for letter in room.mailbox("coder").check(peek=True)]


def test_beside_one_who_has_a_token_who_names_itself_sees_its_own_threads_and_emits_as_itself(
    daemon: Daemon,
) -> None:
    with postroom.open(daemon.room) as room:
        room.mailbox("bob").send("ann", "ours", thread_tag="t")
        room.mailbox("bob").send("coder", "secret", thread_tag="t")
    with daemon.line() as line, daemon.line() as other:
        assert 2 == line.ask({"action": "read_thread", "threadTag": "t"})["count"]
        assert 1 == line.ask({"action": "read_thread", "threadTag": "t", "agentId": "ann"})["count"]
        rpc(other, "map/subscribe")
        assert line.ask({"action": "emit", "event": {"type": "build.done"}, "agentId": "ann"})["ok"]
        assert "ann" == other.hear()["params"]["event"]["source"]
        assert "Invalid" == line.ask({"action": "emit", "event": {"type": "x"}, "agentId": "../x"})["name"]
        sealed(daemon, "coder")
        refused = line.ask({"action": "read_thread", "threadTag": "t"})
        assert "NotAllowed" == refused["name"] and "present one, or name the agent" in refused["hint"]
        assert "NotAllowed" == line.ask({"action": "read_thread", "threadTag": "t", "agentId": "coder"})["name"]
        hers = line.ask({"action": "read_thread", "threadTag": "t", "agentId": "ann"})
        assert ["ours"] == [one["content"]["text"] for one in hers["messages"]]
        other.ask({"action": "authenticate", "token": sealed(daemon, None)})
        rpc(other, "map/subscribe")
        assert line.ask({"action": "emit", "event": {"type": "build.done"}, "agentId": "ann"})["ok"]
        assert "NotAllowed" == line.ask({"action": "emit", "event": {"type": "x"}, "agentId": "coder"})["name"]
        assert "ann" == other.hear()["params"]["event"]["source"]


def test_an_operators_token_says_what_it_is_good_for(daemon: Daemon) -> None:
    with daemon.line() as line:
        result = line.ask({"action": "authenticate", "token": sealed(daemon, None)})
    assert (None, ["operator"]) == (result["agent_id"], result["scopes"])


def test_a_listener_from_before_the_first_seal_gets_no_more_events(daemon: Daemon) -> None:
    with daemon.line() as line, daemon.line() as operator:
        rpc(line, "map/subscribe")
        text = sealed(daemon, "coder")
        operator.ask({"action": "authenticate", "token": sealed(daemon, None)})
        rpc(operator, "map/subscribe")
        with daemon.line() as own:
            own.ask({"action": "authenticate", "token": text})
            assert own.ask({"action": "send", "to": "coder", "payload": "secret"})["ok"]
        assert "secret" in str(operator.hear())
        assert {"ok"} <= line.ask({"action": "ping"}).keys()  # a reply, and no event before it


@pytest.mark.parametrize(
    "word", ["message.created", "mail.turn.added", "agent.registered", "resync", "MAIL.closed"]
)
def test_no_caller_poses_as_the_post_room(shared: Daemon, word: str) -> None:
    with shared.line() as line:
        rpc(line, "map/subscribe")
        shared.ask(action="emit", event={"type": word, "n": 1})
        received = line.hear()["params"]["event"]

    assert (f"emit.{word}", "operator") == (received["type"], received["source"])
    assert {"type": word, "n": 1} == received["data"]["event"]


def test_what_an_agent_emits_says_who_it_is(daemon: Daemon) -> None:
    text = sealed(daemon, "coder")
    with daemon.line() as line, daemon.line() as own:
        line.ask({"action": "authenticate", "token": sealed(daemon, None)})
        rpc(line, "map/subscribe")
        own.ask({"action": "authenticate", "token": text})
        own.ask({"action": "emit", "event": {"type": "build.done"}})
        received = line.hear()["params"]["event"]

    assert ("build.done", "coder") == (received["type"], received["source"])


def test_no_token_is_made_for_a_name_that_reads_like_another_or_is_reserved(daemon: Daemon) -> None:
    daemon.ask(action="send", **{"from": "ann"}, to="bobby", payload="x")
    for name, wrong in (("Bobby", LookAlike), ("postmaster", Invalid), ("Postmaster", Invalid)):
        with pytest.raises(wrong):
            sealed(daemon, name)
    assert 1 == len(daemon.ask(action="check_inbox", agentId="bobby")["messages"])
    sealed(daemon, "carl")  # whom nobody has heard of: from now on no other name reads like it
    assert "LookAlike" == daemon.ask(action="send", **{"from": "ann"}, to="Carl", payload="x")["name"]


def test_a_seal_is_broken_however_the_name_is_spelt(daemon: Daemon) -> None:
    sealed(daemon, "coder")
    with postroom.open(daemon.room) as room:
        perform(room.core, OWNER, tokens.Unseal(agent="Coder"))
        assert [] == tokens.sealed(room.core)
    assert daemon.ask(action="check_inbox", agentId="coder")["ok"]


def test_a_token_that_is_none_has_one_code_wherever_it_is_shown(daemon: Daemon) -> None:
    """MAP's for wrong credentials, as in HTTP's 401; not to be allowed something is another."""
    with daemon.line() as line:
        bad = {"jsonrpc": "2.0", "id": 1, "method": "authenticate", "params": {"token": "pr_x_y"}}
        assert 1006 == line.ask(bad)["error"]["code"]
        assert "NotAllowed" == line.ask({"action": "authenticate", "token": "pr_x_y"})["name"]
    revoked = NotAllowed("this token is not valid any more", field="token")
    assert 1006 == rpc_error(revoked)["code"] and mail_problem(revoked) is None
    assert 1003 == rpc_error(NotAllowed("may not"))["code"]
