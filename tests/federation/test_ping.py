"""`postroom peers ping` and `peers list`, as people type them, and the numbers of links."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from postroom.core import tokens
from postroom.core.verb import perform
from postroom.server.tls import fingerprint_of_pem
from tests.daemons import PATIENCE, until
from tests.federation.systems import System, join, systems
from tests.federation.test_certificates import Secure


def typed(system: System, *words: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "postroom", *words, "--room", str(system.folder / "room.db"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_the_commands_tell_how_links_are(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(b, a)
        code, result = typed(b, "peers", "ping", "a")
        assert 75 == code and "postroom serve" in str(result)
        a.serve()
        b.serve()
        b.is_linked("a")
        code, result = typed(b, "peers", "ping", "a")
        assert (0, True) == (code, result["answers"]) and result["seconds"] > 0
        b.trusts("c")
        code, result = typed(b, "peers", "ping")
        assert (75, {"a": True, "c": False}) == (code, {one["system"]: one["answers"] for one in result["peers"]})
        b.room.mailbox("bob").send("ann@a", "x")
        until(lambda: ["x"] == a.texts("ann"))
        _, listed = typed(b, "peers", "list")
        assert ("connected", 1) == (listed["peers"][0]["link"]["state"], listed["peers"][0]["link"]["sent"])
        numbers = metrics(b)
        assert 'postroom_links{system="a",state="connected"} 1' in numbers
        assert 'postroom_federation_sent_total{system="a"} 1' in numbers
        a.stop()
        until(lambda: b.states()["a"] != "connected")
        code, result = typed(b, "peers", "ping", "a")
        assert (75, False, "disconnected") == (code, result["answers"], result["state"]) and result["hint"]
        assert 67 == typed(b, "peers", "ping", "zoo")[0]


def metrics(system: System) -> str:
    token = perform(system.room.core, system.room.principal, tokens.CreateToken()).text
    request = Request(f"http://127.0.0.1:{system.port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=PATIENCE) as reply:  # noqa: S310 - our own
        text: str = reply.read().decode()
        return text


def why_not(caller: System, other: str) -> tuple[str, str]:
    assert caller.daemon is not None
    result = caller.daemon.ask(action="ping_peer", system=other)
    assert result["answers"] is False
    return result["problem"], result["hint"]


def test_a_token_that_is_not_good_any_more_is_made_again_over_there(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a"), System(tmp_path, "b")) as (a, b):
        join(b, a)
        b.trusts("a", token="prp_" + "0" * 64)
        a.serve()
        b.serve()
        problem, hint = why_not(b, "a")
        assert "this token is not valid" in problem
        assert "peers trust b --rotate" in hint and "peers add a --token-file -" in hint


def test_a_wrong_name_of_either_system_has_one_remedy(tmp_path: Path) -> None:
    with systems(*(System(tmp_path, name) for name in "abd")) as (a, b, d):
        b.trusts("x", url=a.url, token=a.trusts("b"))
        d.trusts("a", url=a.url, token=a.trusts("c"))
        for system in (a, b, d):
            system.serve()
        problem, hint = why_not(b, "x")
        assert "it is called 'a' and not 'x'" in problem, problem
        assert f"peers add ITS-NAME --url {a.url}" in hint
        problem, hint = why_not(d, "a")
        assert "this connection is 'c''s and not 'd''s" in problem and "over there postroom peers add d " in hint


def test_where_certificates_are_the_proof_nobody_is_sent_for_a_token(tmp_path: Path) -> None:
    a, b = Secure(tmp_path, "a"), System(tmp_path, "b")
    with systems(a, b):
        a.trusts("b", auth="mtls")
        b.trusts("a", url=a.url, auth="mtls", pin=fingerprint_of_pem(a.pem))
        a.serve()
        b.serve()
        problem, hint = why_not(b, "a")
        assert "does not know us" in problem and "token" not in hint
        assert "--tls-cert" in hint and "peers trust b --certificate" in hint


def test_a_certificate_that_was_never_pinned_has_not_changed(tmp_path: Path) -> None:
    a, b = Secure(tmp_path, "a"), System(tmp_path, "b")
    with systems(a, b):
        b.trusts("a", url=a.url, token=a.trusts("b"))
        a.serve()
        b.serve()
        _, hint = why_not(b, "a")
        assert "no certificate of it is pinned" in hint and "changed" not in hint and "peers trust a" in hint


def test_a_host_that_is_not_known_there_is_reported_with_the_option_that_makes_it_known(tmp_path: Path) -> None:
    a, b = Secure(tmp_path, "a"), System(tmp_path, "b")
    with systems(a, b):
        pin = fingerprint_of_pem(a.pem)
        b.trusts("a", url=f"wss://127.0.0.2:{a.port}", token=a.trusts("b"), pin=pin)
        a.serve("--http", f"0.0.0.0:{a.port}")
        b.serve()
        problem, hint = why_not(b, "a")
        assert "HTTP 403" in problem and "--http-name 127.0.0.2" in hint


def test_a_line_that_was_cut_is_not_reported_as_one_that_never_was(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a"), System(tmp_path, "b")) as (a, b):
        join(b, a)
        a.serve()
        problem, hint = why_not(a, "b")
        assert "has not called us" in problem and "peers ping a" in hint
        b.serve()
        a.is_linked("b")
        b.stop()
        until(lambda: a.states()["b"] != "connected")
        assert "cut" in why_not(a, "b")[0]
