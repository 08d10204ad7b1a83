"""How `postroom serve` starts with HTTP: addresses, certificates, taken ports, extras that are missing."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

import postroom
from postroom.app.options import options
from postroom.environment import how_to_install
from tests.cli.shell import Shell
from tests.server.http.running import Client, Daemon, daemon, in_thread, make_token, open_server, port_of

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('uvicorn', 'uvloop', 'websockets')))\n"


def test_it_says_where_it_listens_and_prefers_nobody(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        assert f"http://127.0.0.1:{running.port}" == running.where["http"]
        assert running.where["mcp"] in {None, f"{running.where['http']}/mcp"}
        assert running.where["sockets"] == [str(tmp_path / "postroom.sock")]
        system = running.where["system"]
    with postroom.open(tmp_path / "room.db") as room:
        assert room.system == system


def test_http_may_be_off(tmp_path: Path) -> None:
    with daemon(tmp_path, "--http", "off") as running:
        assert (None, None) == (running.where["http"], running.where["mcp"])


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        code, result = Daemon(tmp_path, "--http", f"127.0.0.1:{port}").ended()
    assert code != 0
    assert f"port {port}" in result and "such as --http 127.0.0.1:" in result and "Traceback" not in result


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room:
        make_token(room)
    certificate, key = make_certificate(tmp_path)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    code, result = Daemon(tmp_path, "--http", "192.0.2.1:0", *tls).ended()
    assert code != 0 and "cannot listen at 192.0.2.1" in result and "Traceback" not in result


def test_outside_needs_tls_and_then_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0:0", "[::]:0", "192.0.2.1:1"):
        with pytest.raises(postroom.Invalid, match="TLS"):
            options(str(tmp_path / "room.db"), {}, http=host)
    certificate, key = make_certificate(tmp_path)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    code, result = Daemon(tmp_path, "--http", "0.0.0.0:0", *tls).ended()
    assert code != 0 and "no token exists" in result and "tokens create" in result


def test_a_certificate_that_is_none_is_reported(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense", encoding="utf-8")

    async def start(path: Path) -> None:
        async with open_server(tmp_path, certificate=str(path), key=str(path)):
            pytest.fail("it started")

    for path in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(postroom.Invalid, match="certificate"):
            asyncio.run(start(path))


def test_from_outside_by_tls_and_a_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with postroom.open(tmp_path / "room.db") as room:
        token = make_token(room, "ann")
    words = (
        "--http",
        "0.0.0.0:0",
        "--tls-cert",
        str(certificate),
        "--tls-key",
        str(key),
        "--http-name",
        "mail.test",
        "--http-name",
        "tunnel.test:5650",
    )
    with daemon(tmp_path, *words) as running:
        assert running.where["http"].startswith("https://0.0.0.0:")
        trusting = ssl.create_default_context(cafile=certificate)
        called = {
            f"mail.test:{running.port}": 200,
            f"other.test:{running.port}": 403,
            "mail.test:5650": 403,
            "tunnel.test:5650": 200,
            f"tunnel.test:{running.port}": 403,
        }
        for name, expected in called.items():
            line = http.client.HTTPSConnection("127.0.0.1", running.port, context=trusting, timeout=10)
            line.request("GET", "/healthz", headers={"host": name, "authorization": f"Bearer {token}"})
            assert expected == line.getresponse().status
            line.close()


@pytest.mark.parametrize("is_requested", [True, False])
def test_without_the_extra_the_socket_is_served_alone(tmp_path: Path, is_requested: bool) -> None:
    """Unless somebody insists."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    missing = Daemon(tmp_path, *(("--http", "127.0.0.1:0") if is_requested else ()), before=tmp_path)
    try:
        if is_requested:
            code, result = missing.ended()
            assert code != 0 and how_to_install("serve") in result.replace("\\", "") and "Traceback" not in result
        else:
            assert missing.where["http"] is None and missing.where["sockets"]
            _, code, log = missing.stop()
            assert code == 0 and how_to_install("serve") in log
    finally:
        missing.kill()


@pytest.mark.parametrize("name", ["http://x/", "", "a b", "x:", "x:0", "x:65536", ":80", "ü"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(postroom.Invalid, match="is not a host name"):
        options(str(tmp_path / "room.db"), {}, names=[name])


def test_an_address_in_version_six(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")

    def ask(port: int) -> int:
        client = Client(port, host="::1")
        answer = client.ask("GET", "/healthz")
        client.close()
        return answer.status

    async def scenario() -> None:
        async with open_server(tmp_path, host="::1") as (server, *_):
            assert server.url.startswith("http://[::1]:")
            assert 200 == await in_thread(ask, port_of(server))

    asyncio.run(scenario())


def test_what_it_says_to_type_next_works(tmp_path: Path) -> None:
    shell = Shell(tmp_path, durable=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    running = shell.start("serve", "--http", "127.0.0.1:0", "--room", "./other.db")
    try:
        assert running.stdout is not None
        text = ""
        while "INBOX_SOCKET_PATH" not in text:
            text += (line := running.stdout.readline().decode())
            assert line, text
        send, check, token, curl, received = text.partition("type:\n")[2].partition("\n\n")[0].splitlines()
        assert all(f"--room {tmp_path}/other.db" in line for line in (send, check, token, received))
        shell.home = elsewhere  # another terminal is in another folder
        assert shell.type(send).code == 0
        assert "Hello" in shell.type(check).out
        made = shell.type(token).out.split()[0]
        if shutil.which("curl"):
            assert '"thread"' in shell.type(curl.replace("THE-TOKEN", made)).out
            assert "Hello by HTTP" in shell.type(received).out
        config = json.loads(text.partition("of its own:\n")[2].splitlines()[0])
        assert Path(config["mcpServers"]["postroom"]["command"]).is_absolute()
    finally:
        running.terminate()
        running.communicate(timeout=20)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    if not certificate.exists():
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext"
        more = ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *words.split(), *more], check=True, capture_output=True)
    return certificate, key


def banner(shell: Shell, *words: str, **variables: str) -> str:
    running = shell.start("serve", *words, **variables)
    try:
        assert running.stdout is not None
        text = ""
        while "INBOX_SOCKET_PATH" not in text:
            text += (line := running.stdout.readline().decode())
            assert line, text
        return text
    finally:
        running.terminate()
        running.communicate(timeout=20)


def test_who_listens_everywhere_is_called_by_a_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    shell = Shell(tmp_path, durable=False)
    assert shell.run("token", "create", "--agent", "carl").code == 0
    message = banner(shell, "--http", "0.0.0.0:0", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert "https://THIS-HOST:" in message and "--cacert /" in message and "curl https://0.0.0.0" not in message


def test_without_the_extras_it_says_how_to_get_them(tmp_path: Path) -> None:
    without = "import sys; sys.modules['uvicorn'] = None\nimport importlib.util as u\nfind = u.find_spec\n"
    without += "gone = ('mcp_types', 'uvicorn')\n"
    without += "u.find_spec = lambda name, package=None: None if name in gone else find(name, package)\n"
    (tmp_path / "sitecustomize.py").write_text(without, encoding="utf-8")
    shell = Shell(tmp_path, durable=False)
    path = f"{tmp_path}:{shell.environment['PYTHONPATH']}"
    message = banner(shell, PYTHONPATH=path)
    assert f"HTTP: off; it needs the extra: {how_to_install('serve')}" in message
    assert how_to_install("mcp") in message and "mcpServers" not in message
    assert "HTTP" not in banner(shell, "--http", "off", PYTHONPATH=path)


def test_the_users_own_room_needs_no_name_and_a_program_off_the_path_its_whole(tmp_path: Path) -> None:
    shell = Shell(tmp_path, durable=False)
    del shell.environment["POSTROOM_STORE"]
    typed = (
        banner(shell, "--http", "off", "--socket", str(tmp_path / "s"), PATH="/nowhere")
        .partition("type:\n")[2]
        .partition("\n\n")[0]
    )
    for line in typed.splitlines():
        assert "--room" not in line and line.strip().startswith("/")


def test_a_level_that_is_none_is_refused_with_those_there_are(tmp_path: Path) -> None:
    refused = Shell(tmp_path).run("serve", "--log-level", "loud", "--json")
    assert (64, "debug, info, warning, error") == (refused.code, refused.error["hint"])


def test_a_port_alone_is_refused_with_its_option(tmp_path: Path) -> None:
    assert "--http" in Shell(tmp_path).run("serve", "--port", "4651", "--json").error["hint"]
