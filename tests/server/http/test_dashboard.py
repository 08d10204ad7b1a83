"""The dashboard over HTTP: who gets its page, who opens a visit, and what a visit may do."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import postroom
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.dashboard import files
from postroom.server import dashboard, streams, visits
from postroom.server.dashboard import is_of_others, users_of
from tests.daemons import PATIENCE
from tests.server.http.running import Client, Daemon, daemon
from tests.server.http.visiting import code_of, enter, lending, opened, ours, tab, token_of

pytestmark = pytest.mark.daemon
PAGE = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
PATHS = [
    ("GET", "/dashboard/"),
    ("GET", "/dashboard/0/main.js"),
    ("POST", "/dashboard/visit"),
    ("GET", "/"),
    ("POST", "/"),
]


# -- the page and its files


def test_a_browser_at_the_bare_address_reads_what_this_is(anonymous: Client) -> None:
    for path in ("/", "/nowhere"):
        said = anonymous.ask("GET", path, accept=PAGE)
        assert (200, "text/html; charset=utf-8", "no-store") == (
            said.status, said.headers["content-type"], said.headers["cache-control"]
        )  # fmt: skip
        assert b"postroom dashboard" in said.body
        assert "default-src 'none'" in said.headers["content-security-policy"]
    for accept in ("application/json", "*/*"):
        assert 401 == anonymous.ask("GET", "/", accept=accept).status


def test_the_page_and_its_files_need_no_token_and_tell_the_browser_to_be_strict(anonymous: Client) -> None:
    said = anonymous.ask("GET", "/dashboard/", accept=PAGE)
    policy = said.headers["content-security-policy"]
    for demand in (
        "default-src 'none'",
        "script-src 'self';",
        "require-trusted-types-for 'script'",
        "frame-ancestors 'none'",
    ):
        assert demand in policy
    assert "unsafe" not in policy and f"connect-src 'self' ws://127.0.0.1:{anonymous.port};" in policy
    assert ("nosniff", "DENY", "no-referrer", "same-origin", "no-store") == tuple(
        said.headers[name]
        for name in (
            "x-content-type-options",
            "x-frame-options",
            "referrer-policy",
            "cross-origin-opener-policy",
            "cache-control",
        )
    )
    assert "set-cookie" not in said.headers
    assert (308, "/dashboard/") == (
        (moved := anonymous.ask("GET", "/dashboard")).status,
        moved.headers["location"],
    )
    found = files.files()
    for name in found.by_path:
        said = anonymous.ask("GET", f"{found.base}/{name}", accept_encoding="gzip, br")
        assert (200, files.FOR_EVER) == (said.status, said.headers["cache-control"]), name
    assert 404 == anonymous.ask("GET", "/dashboard/0000000000000000/main.js").status


def test_files_are_known_by_name_and_by_nothing_else(tmp_path: Path) -> None:
    for name in (
        "index.html",
        "main.js",
        "vendor/x/lit.js",
        "vendor/x/LICENSE",
        ".hidden.js",
        "_own/a.js",
        "a.d.ts",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"{base}/main.js"' if name == "index.html" else "x = 1;\n" * 100)
    read = files.read_files(tmp_path)
    assert {"main.js", "vendor/x/lit.js"} == set(read.by_path)
    assert f'"{read.base}/main.js"'.encode() == read.page.content
    assert len(read.by_path["main.js"].packed) < len(read.by_path["main.js"].content)
    (tmp_path / "main.js").write_text("x = 2;")
    assert read.base != files.read_files(tmp_path).base


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"}, {"host": "rebound.example:{}"}, {"origin": "http://evil.example"},
        {"origin": "null"}, {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_others_get_nothing(anonymous: Client, method: str, path: str, headers: dict[str, str]) -> None:
    shown = {name: value.format(anonymous.port) for name, value in headers.items()}
    said = anonymous.ask(method, path, b"{}", content_type="application/json", **shown)
    assert 403 == said.status and b"code" in said.body
    assert not [name for name in said.headers if name.startswith("access-control")]


def test_only_a_look_comes_from_the_person_alone(anonymous: Client) -> None:
    assert 200 == anonymous.ask("GET", "/", accept=PAGE, sec_fetch_site="none").status
    assert 403 == anonymous.post({}, "/dashboard/visit", sec_fetch_site="none").status


# -- codes


def test_a_code_opens_one_visit_and_only_for_our_own_page(running: Daemon) -> None:
    code = code_of(running)
    with pytest.raises(KeyError):
        enter(running, code, origin="http://evil.example").json["token"]
    said = enter(running, code)
    assert 200 == said.status and said.json["token"].startswith(visits.PREFIX)
    assert ("human", False) == (said.json["visit"]["person"], said.json["visit"]["acts"])
    again = enter(running, code)
    assert (403, "code") == (again.status, again.json["field"])
    assert "opened before" in again.json["error"] and "--lock" in again.json["hint"]
    for wrong in ("", "x", "é", code[:-1], code + "="):
        assert 403 == enter(running, wrong).status


def test_the_body_with_a_code_is_small(running: Daemon, anonymous: Client) -> None:
    assert 413 == anonymous.post({"code": "x" * 5000}, "/dashboard/visit", origin=ours(running)).status
    assert 415 == anonymous.ask("POST", "/dashboard/visit", b"code=x", origin=ours(running)).status


def test_another_user_of_the_machine_opens_no_visit(
    running: Daemon, anonymous: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        "   0: 0100007F:122A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1",
        "   1: 0100007F:D431 0100007F:122A 01 00000000:00000000 00:00000000 00000000  4321        0 2",
        "   2: 0100007F:122A 0100007F:D431 01 00000000:00000000 00:00000000 00000000     7        0 3",
    )
    assert {4321} == users_of(rows, 0xD431, 0x122A) and set() == users_of(rows, 1, 0x122A)
    with socket.create_connection(("127.0.0.1", running.port)) as ours_alone:
        here, there = ours_alone.getsockname(), ours_alone.getpeername()
        assert not is_of_others(here, there)
        if Path("/proc/net/tcp").exists():
            monkeypatch.setattr(os, "geteuid", lambda: 4321)
            monkeypatch.setattr(dashboard, "users_of", lambda *_row: {1234})
            assert is_of_others(here, there)


def test_a_code_needs_an_origin(running: Daemon, anonymous: Client) -> None:
    assert 403 == anonymous.post({"code": code_of(running)}, "/dashboard/visit").status


def test_a_visit_is_kept_in_no_file(running: Daemon) -> None:
    code = code_of(running)
    token = enter(running, code).json["token"]
    secrets = [code.encode(), token.encode(), token.removeprefix(visits.PREFIX).encode()]
    kept = [path for path in running.folder.rglob("*") if path.is_file()]
    assert running.room in kept
    assert not [path for path in kept for secret in secrets if secret in path.read_bytes()]
    with postroom.open(running.room) as room:
        assert not tokens.sealed(room.core)


# -- what a visit may do


def looked(served: Daemon, token: str, params: dict[str, Any]) -> int:
    """The status of one look, by POST."""
    client = Client(served.port, token)
    try:
        return client.post(params, "/v1/waiting").status
    finally:
        client.close()


def test_a_visit_looks_at_everything_and_writes_nothing(running: Daemon) -> None:
    with postroom.open(running.room) as room:
        id = room.mailbox("coder").send("reviewer", "A word.").id
    with tab(running, token_of(running)) as page:
        assert id in json.dumps(page.call("mail/trace", id=id))
        assert page.call("mail/waiting")["mailbox"] == ""
        assert any(one["card"]["id"] == "reviewer" for one in page.call("mail/agents")["agents"])
        assert "links" in page.call("links")
        for method, params in (
            ("mail/send", {"agent_id": "coder", "to": "reviewer", "body": "Forged."}),
            ("mail/check", {"agent_id": "reviewer"}),
            ("mail/ack", {"agent_id": "reviewer", "ids": [id]}),
            ("mail/act", {"agent_id": "human", "action": "done", "letter": id}),
            ("open_visit", {}),
            ("lock_visits", {}),
            ("map/subscribe", {}),
        ):
            assert "NotAllowed" == page.refusal(method, **params)["data"]["name"], method
        refused = page.refusal("visit/act", verb="act", params={})
        assert "visit" == refused["data"]["field"] and "postroom dashboard" in refused["data"]["hint"]
    client = Client(running.port, token_of(running))
    assert 200 == client.post({}, "/v1/waiting").status
    assert 403 == client.post({"agent_id": "coder", "to": "x", "body": "y"}, "/v1/send").status
    for path in ("/metrics", "/subscribe", "/mcp", "/openapi.json"):
        assert 405 == client.ask("GET", path).status, path
    client.close()


def test_a_page_says_who_it_is_before_anything_else(running: Daemon) -> None:
    for first in (
        '{"jsonrpc":"2.0","id":1,"method":"mail/agents"}',
        "x",
        "[]",
        '{"jsonrpc":"2.0","method":"authenticate"}',
    ):
        with opened(running) as socket:
            socket.send(first)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(PATIENCE)
            assert closed.value.rcvd is not None and 1008 == closed.value.rcvd.code
    with opened(running) as socket:
        socket.send(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "authenticate", "params": {"token": "pv_none"}})
        )
        assert "token" == json.loads(socket.recv(PATIENCE))["error"]["data"]["field"]
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)
    with opened(running) as socket, pytest.raises(ConnectionClosed):
        socket.recv(streams.FIRST_SECONDS + PATIENCE)
    for headers in ({"origin": "http://evil.example"}, {"origin": None}, {"sec-fetch-site": "same-site"}):
        with pytest.raises(InvalidStatus) as refused, opened(running, **headers):
            pass
        assert refused.value.response.status_code in {401, 403}


def test_a_visit_ends_with_the_daemon(tmp_path: Path) -> None:
    with daemon(tmp_path) as first:
        token = token_of(first)
        assert 200 == looked(first, token, {})
    with daemon(tmp_path) as second:
        assert 401 == looked(second, token, {})


def test_lock_ends_every_visit_and_every_code(running: Daemon) -> None:
    code, token = code_of(running), token_of(running)
    with tab(running, token) as page, tab(running, token_of(running)) as other:
        assert page.call("visit/lock")["ended"] >= 2
        for one in (page, other):
            with pytest.raises(ConnectionClosed) as closed:
                one.socket.recv(20)
            assert closed.value.rcvd is not None and 1008 == closed.value.rcvd.code
    assert 403 == enter(running, code).status
    assert 401 == looked(running, token, {})


def test_a_visit_that_nobody_proved_to_want_sees_nothing_once_agents_have_tokens(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        token = token_of(served)
        with lending(served) as (_, code):
            proven = enter(served, code).json["token"]
            with postroom.open(served.room) as room:
                perform(room.core, OWNER, tokens.CreateToken(agent="coder"))
            assert 403 == looked(served, token, {})
            assert 403 == looked(served, token, {"agent_id": "human"})
            assert 200 == looked(served, proven, {})
            with pytest.raises(postroom.NotAllowed, match="only a person with a key"):
                code_of(served)


# -- acting


@pytest.fixture(scope="module")
def room_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("acting")) as one:
        yield one


def test_what_a_person_does_in_the_page_is_done_with_their_key_and_once(room_served: Daemon) -> None:
    with postroom.open(room_served.room) as room, lending(room_served) as (_, code):
        coder = room.mailbox("coder")
        asked = coder.escalate("May I?", reason="approval", ladder=["human"])
        with tab(room_served, enter(room_served, code).json["token"]) as page:
            assert page.call("visit")["visit"]["acts"]
            (entry,) = [
                one
                for one in page.call("mail/waiting", agent_id="human")["waiting"]
                if one["what"] == "escalation"
            ]
            act = {"letter": entry["letter"], "action": "approve", "words": "go on", "key": "draft-1"}
            done = page.call("visit/act", verb="act", params=act)
            assert ("Approved; coder is notified.", False) == (done["done"], done["repeated"])
            assert page.call("visit/act", verb="act", params=act)["repeated"]
            late = page.refusal("visit/act", verb="act", params={**act, "action": "decline", "key": "draft-2"})
            assert "Conflict" == late["data"]["name"]
        (answer,) = [one for one in coder.check() if one.thread == asked.thread]
        assert "approved: go on" == answer.text and answer.message.proof is not None


def test_a_page_is_lent_the_persons_own_mailbox_and_nothing_more(room_served: Daemon) -> None:
    with postroom.open(room_served.room) as room, lending(room_served) as (_, code):
        sent = room.mailbox("coder").send("reviewer", "Not for the person.")
        with tab(room_served, enter(room_served, code).json["token"]) as page:
            for verb, params in (
                ("act", {"agent_id": "reviewer", "action": "done", "letter": sent.id}),
                ("revive", {"agent_id": "reviewer", "ids": [sent.id]}),
                ("create_token", {}),
                ("add_person", {"person": "human", "key": "x"}),
                ("purge_dead", {"agent_id": "human", "ids": [sent.id]}),
                ("nonsense", {}),
            ):
                assert page.refusal("visit/act", verb=verb, params=params)["data"]["name"] in {
                    "NotAllowed",
                    "Conflict",
                }, verb
            receipt = page.call(
                "visit/act", verb="send", params={"agent_id": "coder", "to": "coder", "body": "By me."}
            )
        letter = room.mailbox("coder").read(receipt["id"])
        assert "human" == letter.sender and letter.message.proof is not None
    assert not [one for one in room_said(room_served, "reviewer") if one != "Not for the person."]


def room_said(served: Daemon, mailbox: str) -> list[str]:
    with postroom.open(served.room) as room:
        return [letter.text for letter in room.mailbox(mailbox).check()]


def test_a_page_only_looks_once_the_process_that_lent_to_it_has_ended(room_served: Daemon) -> None:
    with lending(room_served) as (process, code), tab(room_served, enter(room_served, code).json["token"]) as page:
        process.kill()
        assert {"acts": False} == page.next()["params"]
        refused = page.refusal("visit/act", verb="send", params={"to": "coder", "body": "x"})
        assert "visit" == refused["data"]["field"]
        assert page.call("mail/waiting")["mailbox"] == ""


def test_nobody_signs_for_a_person_inside_an_agents_session(room_served: Daemon) -> None:
    inside = copy(room_served)
    inside.environment = room_served.environment | {"CLAUDECODE": "1"}
    with pytest.raises(AssertionError, match="inside an agent's session"), lending(inside):
        pass
