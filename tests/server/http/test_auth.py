"""Who is let in: Host, Origin and token, on every method, path and upgrade."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.server.http import HEAD_BYTES
from tests.server.http.running import Client, Daemon, daemon, status, until_end

PATHS = [
    ("POST", "/"), ("OPTIONS", "/"), ("GET", "/"), ("GET", "/subscribe"), ("GET", "/metrics"), ("GET", "/healthz"),
    ("GET", "/mcp"), ("POST", "/mcp"), ("DELETE", "/mcp"),
]  # fmt: skip
UPGRADE = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13",
           "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", "127.1:{}"]
)
def test_another_host_is_refused_everywhere(operator: Client, method: str, path: str, host: str) -> None:
    message = operator.ask(method, path, host=host.format(operator.port))
    assert 403 == message.status
    assert not [name for name in message.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{}", "http://127.0.0.1", "file://"]
)
def test_another_origin_is_refused_everywhere(operator: Client, method: str, path: str, origin: str) -> None:
    assert 403 == operator.ask(method, path, origin=origin.format(operator.port)).status


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_our_own_names_are_fine(operator: Client, name: str) -> None:
    ours = f"{name}:{operator.port}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "mail/agents"}
    assert 200 == operator.post(call, host=ours, origin=f"http://{ours}").status


def test_two_hosts_or_none_are_refused(operator: Client) -> None:
    for more in (("host: evil.example",), ()):
        with operator.raw() as stream:
            head = operator.head("GET /healthz HTTP/1.1", *more)
            stream.sendall(head if more else head.replace(b"host:", b"x-host:"))
            assert 400 == status(stream)
    with operator.raw() as stream:
        stream.sendall(operator.head("GET /healthz HTTP/1.0").replace(b"host:", b"x-host:"))
        assert 403 == status(stream)


@pytest.mark.parametrize(("method", "path"), [pair for pair in PATHS if pair != ("GET", "/healthz")])
def test_nobody_is_let_in_without_a_token(anonymous: Client, method: str, path: str) -> None:
    message = anonymous.ask(method, path)
    assert (401, 'Bearer realm="postroom"') == (message.status, message.headers["www-authenticate"])
    assert method == "HEAD" or 1000 == message.json["error"]["code"]


@pytest.mark.parametrize(
    "shown",
    ["Bearer", "Bearer nonsense", "Bearer pr_0_0", "Basic YTpi", "pr_0_0", "Bearer " + "x" * 4000, "Bearer \xff"],
)
@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_a_token_that_is_none_lets_nobody_in(anonymous: Client, shown: str, path: str) -> None:
    message = anonymous.ask("GET", path, authorization=shown)
    assert 401 == message.status and message.json["error"]["code"] in {1000, 1006}
    assert 1006 == message.json["error"]["code"] or not shown.lower().startswith("bearer ")


def test_a_token_in_the_address_lets_nobody_in(anonymous: Client, operator: Client) -> None:
    for name in ("token", "access_token"):
        assert 401 == anonymous.ask("GET", f"/metrics?{name}={operator.token}").status


def test_two_tokens_let_nobody_in(operator: Client) -> None:
    with operator.raw() as stream:
        stream.sendall(operator.head("GET /metrics HTTP/1.1", f"authorization: Bearer {operator.token}"))
        assert 401 == status(stream)


def test_a_revoked_token_lets_nobody_in_from_then_on(running: Daemon, agent: Callable[..., Client]) -> None:
    client = agent("gus")
    assert "total" in client.call("mail/counts")
    running.revoke(client.token)
    assert 401 == client.ask("POST", "/").status


def test_a_token_is_good_for_its_agent_and_its_scopes_alone(agent: Callable[..., Client]) -> None:
    client = agent("hal", "read")
    for method, message in (("mail/check", {"agent_id": "ann"}), ("mail/send", {"to": "ann", "body": "x"})):
        answer = client.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": message})
        assert 1003 == answer.json["error"]["code"], answer.body


@pytest.mark.parametrize(
    "more", [("host: evil.example",), ("origin: http://evil.example",), ("authorization: x",)]
)
def test_an_upgrade_is_looked_at_as_closely(operator: Client, more: tuple[str]) -> None:
    name = more[0].partition(":")[0]
    head = operator.head("GET /ws HTTP/1.1", *UPGRADE)
    lines = [line for line in head.decode().split("\r\n") if not line.startswith(f"{name}:")]
    with operator.raw() as stream:
        stream.sendall("\r\n".join([lines[0], *more, *lines[1:]]).encode())
        assert (401 if name == "authorization" else 403) == status(stream)


def test_frames_are_served_at_one_path(operator: Client) -> None:
    with operator.raw() as stream:
        stream.sendall(operator.head("GET /other HTTP/1.1", *UPGRADE))
        assert 404 == status(stream)


@pytest.mark.parametrize("many", [17_000, 70_000, 200_000])
@pytest.mark.parametrize("where", ["target", "query", "header", "headers"])
def test_a_long_head_is_refused_however_it_comes(operator: Client, where: str, many: int) -> None:
    path = {"target": "/" + "a" * many, "query": "/healthz?" + "a" * many}.get(where, "/healthz")
    more = {"header": ["x: " + "a" * many], "headers": ["x: " + "a" * 60] * (many // 60)}.get(where, [])
    head = operator.head(f"GET {path} HTTP/1.1", *more)
    for pieces in ([head], [head[:9000], head[9000:]]):
        with operator.raw() as stream, suppress(ConnectionError):
            for piece in pieces:
                stream.sendall(piece)
            found = until_end(stream)
            if many < 4 * HEAD_BYTES:
                assert b" 431 " in found.splitlines()[0] and b"16 KiB" in found
            else:  # uvicorn refuses it, unless it came in one piece
                assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


def test_a_head_that_is_just_short_enough_is_fine(operator: Client) -> None:
    assert 200 == operator.ask("GET", "/healthz", x="a" * 16_000).status


@pytest.mark.parametrize(
    ("path", "more"), [("/ws", ["x: " + "a" * 15_000]), ("/ws", ["x: a"] * 300), ("/ws?" + "a" * 15_000, [])]
)
def test_an_upgrade_with_a_long_head_is_answered_and_ended(operator: Client, path: str, more: list[str]) -> None:
    with operator.raw() as stream:
        stream.sendall(operator.head(f"GET {path} HTTP/1.1", *UPGRADE, *more))
        assert until_end(stream).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 "))


def test_a_refused_upgrade_is_no_error_in_the_log(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        client = Client(running.port)
        with client.raw() as stream:
            stream.sendall(client.head("GET /ws HTTP/1.1", *UPGRADE))
            assert 401 == status(stream)
            assert until_end(stream) is not None
        *_, log = running.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"info"} == {line["level"] for line in lines}
    assert [str(tmp_path / "postroom.sock")] == lines[0]["sockets"]
