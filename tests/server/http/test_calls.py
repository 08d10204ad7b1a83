"""JSON-RPC by POST: calls, batches, notifications, and what is wrong with the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter

import pytest

from tests.server.http.running import Client, Daemon, send_many, status

Agent = Callable[..., Client]


def rpc(method: str, id: object = 1, **message: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": message}


@pytest.mark.parametrize("path", ["/", "/rpc", "/any/path?at=all", "/healthz"])
def test_a_call_is_answered_at_any_path(operator: Client, path: str) -> None:
    message = operator.post(rpc("mail/agents"), path)
    assert (200, "application/json") == (message.status, message.headers["content-type"])
    assert {"jsonrpc", "id", "result"} == set(message.json) and message.json["id"] == 1


def test_a_small_answer_is_sent_at_once(operator: Client) -> None:
    """Not when the other side has confirmed what came before it, which takes 40 ms."""

    def seconds() -> float:
        began = perf_counter()
        operator.call("mail/agents")
        return perf_counter() - began

    assert sorted(seconds() for _ in range(31))[15] < 0.035


def test_a_letter_goes_from_one_agent_to_the_other(agent: Agent) -> None:
    ann, bob = (agent(name) for name in ("ann", "bob"))
    sent = ann.call("mail/send", to="bob", body="Grüße ✉")
    (letter,) = bob.call("mail/check")["letters"]
    assert (sent["id"], "ann") == (letter["id"], letter["sender"])


def test_an_error_is_a_reply_like_any_other(operator: Client) -> None:
    message = operator.post(rpc("mail/nonsense", id="x"))
    assert (200, "x", -32601) == (message.status, message.json["id"], message.json["error"]["code"])
    assert "Method not found: mail/nonsense" == message.json["error"]["message"]


def test_the_dialect_of_the_socket_is_not_spoken_here(operator: Client) -> None:
    message = operator.post({"action": "list_agents"})
    assert (200, -32600) == (message.status, message.json["error"]["code"])


def test_a_batch_that_is_too_long_is_one_error(operator: Client) -> None:
    message = operator.post([{"jsonrpc": "2.0", "id": n, "method": "mail/counts"} for n in range(101)])
    assert (None, -32600) == (message.json["id"], message.json["error"]["code"])


@pytest.mark.parametrize("many", [False, True])
def test_a_token_in_a_body_is_refused(operator: Client, running: Daemon, many: bool) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "authenticate", "params": {"token": running.token("zoe")}}
    who = {"jsonrpc": "2.0", "id": 2, "method": "mail/counts", "params": {"agentId": "ann"}}
    message = operator.post([call, who] if many else call).json
    result, *rest = message if many else [message]
    assert -32602 == result["error"]["code"] and "header" in result["error"]["message"]
    assert all("result" in one for one in rest)  # still the operator


def test_a_batch_is_answered_in_order_without_its_notifications(operator: Client) -> None:
    quiet = {"jsonrpc": "2.0", "method": "mail/agents"}
    message = operator.post([rpc("mail/agents", id=1), quiet, 5, rpc("mail/none", id=2)])
    assert [1, None, 2] == [one["id"] for one in message.json]
    assert [-32600, -32601] == [one["error"]["code"] for one in message.json[1:]]


@pytest.mark.parametrize("many", [False, True])
def test_who_waits_for_nothing_gets_nothing(operator: Client, many: bool) -> None:
    quiet = {"jsonrpc": "2.0", "method": "mail/agents"}
    message = operator.post([quiet, quiet] if many else quiet)
    assert (204, b"") == (message.status, message.body)
    assert 200 == operator.post(rpc("mail/agents")).status  # on the same connection


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"nul", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 5000, b'"\\ud800"']
)
def test_a_body_that_cannot_be_read_is_reported(operator: Client, body: bytes) -> None:
    message = operator.post(body)
    assert (400, -32700, None) == (message.status, message.json["error"]["code"], message.json["id"])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_taken(operator: Client, kind: str) -> None:
    assert 415 == operator.post(rpc("mail/agents"), content_type=kind).status


def test_a_charset_beside_the_type_is_fine(operator: Client) -> None:
    assert 200 == operator.post(rpc("mail/agents"), content_type="application/json; charset=utf-8").status


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/rpc"])
def test_other_methods_are_refused_with_the_allowed_one(operator: Client, method: str, path: str) -> None:
    message = operator.ask(method, path)
    assert (405, "POST") == (message.status, message.headers["allow"])
    assert method == "HEAD" or message.json["error"]["code"] == -32600
    assert not [name for name in message.headers if name.startswith("access-control")]


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(operator: Client) -> None:
    with operator.raw() as stream:
        stream.sendall(
            operator.head("POST / HTTP/1.1", "content-type: application/json", "content-length: 99999999")
        )
        assert 413 == status(stream)


def test_who_sends_too_much_hears_so_when_it_has_sent_it(operator: Client) -> None:
    assert 413 == operator.post(b" " * 3_000_000).status
    assert 200 == operator.post(rpc("mail/agents")).status  # on the same connection


def test_a_body_without_end_is_not_read_for_ever(operator: Client) -> None:
    kind = ("content-type: application/json", "transfer-encoding: chunked")
    with operator.raw() as stream:
        stream.sendall(operator.head("POST / HTTP/1.1", *kind))
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with pytest.raises(ConnectionError):
            send_many(stream, piece, 1000)
        assert 413 == status(stream)


def test_a_wait_over_http_answers_as_soon_as_there_is_mail(agent: Agent) -> None:
    dan, eve = (agent(name) for name in ("dan", "eve"))
    body = json.dumps(rpc("mail/wait", timeout=20)).encode()
    values = {"content-type": "application/json", "authorization": f"Bearer {dan.token}"}
    dan.connection.request("POST", "/", body, values)
    sent = eve.call("mail/send", to="dan", body="now")
    answer = json.loads(dan.connection.getresponse().read())
    assert sent["id"] == answer["result"]["letter"]["id"]


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("method", ["mail/wait", "mail/claim"])
def test_who_hangs_up_while_waiting_is_handed_no_letter(agent: Agent, method: str, is_batch: bool) -> None:
    name = f"fay-{method[5:]}-{is_batch}"
    fay, eve = (agent(one) for one in (name, "eva"))
    call = rpc(method, timeout=20)
    body = json.dumps([call] if is_batch else call).encode()
    with fay.raw() as stream:
        length = f"content-length: {len(body)}"
        stream.sendall(fay.head("POST / HTTP/1.1", "content-type: application/json", length) + body)
        fay.call("mail/counts")  # by now the wait has begun
    eve.call("mail/counts")  # and by now it is over
    eve.call("mail/send", to=name, body="still unread")
    assert 1 == fay.call("mail/counts")["total"]


def test_a_conversation_that_is_not_there_has_maps_number(operator: Client) -> None:
    """Everywhere but on agent-inbox's own socket (`daemon/test_inbox_actions.py`)."""
    for method in ("mail/get", "mail/turns/list", "mail/presence"):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"conversationId": "nowhere"}}
        assert 10000 == operator.post(call).json["error"]["code"]
