"""The commands about other systems: tokens shown once, certificates pinned, and nothing told that is secret (I6)."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postroom import NotAllowed
from postroom.core import peers
from postroom.model.codec import token_hash
from postroom.server.tls import (
    accept_certificates,
    certificate_at,
    client_context,
    fingerprint,
    fingerprint_of_pem,
    is_pinned,
)
from tests.cli.shell import Shell
from tests.cli.terminal import Terminal


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *words.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tls")
    return [make_certificate(folder, name) for name in ("first", "second")]


@contextmanager
def listening(certificate: str, key: str, *pinned: str) -> Iterator[tuple[str, list[bytes | None]]]:
    """Somebody who shows a certificate; and whose were shown to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if pinned:
        accept_certificates(context, pinned)
    callers: list[bytes | None] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                with plain:
                    plain.settimeout(10)
                    try:
                        with context.wrap_socket(plain, server_side=True) as secure:
                            callers.append(secure.getpeercert(binary_form=True))
                            secure.recv(1)
                    except OSError:
                        callers.append(b"refused")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"wss://127.0.0.1:{server.getsockname()[1]}/map", callers
        finally:
            server.shutdown(socket.SHUT_RDWR)
    thread.join(20)


def pin_of(certificate: str) -> str:
    return fingerprint_of_pem(Path(certificate).read_text(encoding="utf-8"))


def test_a_peer_that_calls_us_is_given_a_token_that_is_shown_once(shell: Shell) -> None:
    made = shell.run("peers", "add", "berlin")
    token = made.out.strip()
    assert token.startswith("prp_") and "--token-file -" in made.err
    assert shell.json("peers", "add", "berlin", "--exposure", "all")["token"] is None
    with shell.room() as room:
        assert "all" == peers.proven_peer(room.core, "berlin", token).exposure
    for words in (["list"], ["show", "berlin"], ["trust", "berlin"]):
        for done in (shell.run("peers", *words), shell.run("peers", *words, "--json")):
            assert done.code == 0 and "prp_" not in done.out and token_hash(token) not in done.out


def test_our_token_is_read_from_a_file_or_standard_input_and_shown_nowhere(shell: Shell) -> None:
    where = ("--url", "wss://berlin.example:4650")
    request = shell.run("peers", "add", "berlin", *where, "--json")
    assert (65, "token") == (request.code, request.error["field"]) and "--token-file" in request.error["hint"]
    added = shell.json("peers", "add", "berlin", *where, "--token-file", "-", stdin="prp_secret-1\n")
    assert added["peer"]["shows_token"] and "prp_secret" not in str(added)
    (shell.home / "t").write_text("prp_secret-2\n", encoding="utf-8")
    shell.json("peers", "add", "berlin", "--token-file", "t")
    with shell.room() as room:
        assert "prp_secret-2" == peers.known_peer(room.core, "berlin").token
    empty = shell.run("peers", "add", "berlin", "--token-file", "-", "--json", stdin="\n")
    assert (65, "--token-file") == (empty.code, empty.error["field"])
    assert 64 == shell.run("peers", "add", "berlin", "--token", "prp_secret-3").code


def test_a_token_goes_alone_into_a_file_and_is_its_first_line_whatever_stands_below(shell: Shell) -> None:
    for words in (["add", "berlin"], ["trust", "berlin", "--rotate"]):
        done = shell.run("peers", *words)
        assert [done.out.strip()] == done.out.split() and "berlin shows this when it calls" in done.err
    text = "\n  prp_secret-1 \n\nberlin shows this when it calls.\n"
    shell.json("peers", "add", "rome", "--url", "wss://rome.example", "--token-file", "-", stdin=text)
    with shell.room() as room:
        assert "prp_secret-1" == peers.known_peer(room.core, "rome").token


def test_at_a_terminal_a_token_is_asked_for_and_typed_unseen(shell: Shell) -> None:
    words = ("peers", "add", "rome", "--url", "wss://rome.example", "--token-file", "-")
    terminal = Terminal(shell, *words, "--room", "room.db")
    terminal.read_until("The token that 'rome' showed for us: ")
    terminal.type("prp_secret-1\n")
    code, shown = terminal.finish()
    assert 0 == code and "rome is a peer now" in shown and "secret" not in shown
    with shell.room() as room:
        assert "prp_secret-1" == peers.known_peer(room.core, "rome").token


def test_adding_a_peer_again_shows_what_is_new(shell: Shell) -> None:
    assert shell.json("peers", "add", "hub")["changed"] is None
    again = shell.run("peers", "add", "hub", "--relays-to", "yes", "--relays-for", "rome", "--scope", "dev=hub")
    text = "hub was a peer already. New is:\n  scopes: dev with hub\n  relays-for: rome\n  relays-to: yes\n"
    assert text == again.out
    assert ["exposure"] == shell.json("peers", "add", "hub", "--exposure", "all")["changed"]
    assert "hub is a peer, as before.\n" == shell.run("peers", "add", "hub", "--exposure", "all").out
    url = ("--url", "wss://hub.example", "--token-file", "-")
    text = shell.run("peers", "add", "hub", *url, stdin="prp_secret-1").out
    assert "token: another one" in text and "secret" not in text
    text = shell.run("peers", "add", "hub", "--auth", "mtls").out
    assert "  auth: mtls\n  token: none\n" in text
    text = shell.run("peers", "add", "hub", "--relays-for", "oslo", "--scope", "ops=hub").out
    assert "  scopes: ops with hub (it was: dev with hub)\n  relays-for: oslo (it was: rome)\n" in text
    assert {"relays_for": ["oslo"]} == shell.json("peers", "add", "hub", "--relays-for", "")["former"]


def test_no_secret_leaves_the_room(shell: Shell) -> None:
    token = shell.json("peers", "add", "rome")["token"]
    shell.json("peers", "add", "berlin", "--url", "wss://b", "--token-file", "-", stdin="prp_secret-1")
    secrets = (token, token_hash(token), "prp_secret-1")
    shell.post("ann", "bob", "x")
    for words in ("export -", "room", "room --settings", "changes", "doctor", "stats", "trace x", "peers list"):
        for json in ((), ("--json",)):
            done = shell.run(*words.split(), *json)
            assert not [secret for secret in secrets if secret in done.out + done.err], words
    shell.json("copy", "room.db", "other.db")
    assert (
        [] == shell.json("peers", "list", "--room", "other.db")["peers"]
    )  # whom one room trusts is no peer of the next


def test_a_peer_is_changed_and_removed(shell: Shell) -> None:
    shell.json("peers", "add", "hub", "--relays-for", "rome", "--relays-for", "tokyo", "--relays-to", "yes")
    message = ("--scope", "dev=hub/dev", "--scope", "dev=rome", "--scope", "*=tokyo")
    peer = shell.json("peers", "add", "hub", *message, "--exposure", "tagged", "--tag", "public")["peer"]
    assert {"dev": ["hub/dev", "rome"], "*": ["tokyo"]} == peer["scopes"]
    assert (["rome", "tokyo"], True, ["public"]) == (peer["relays_for"], peer["relays_to"], peer["tags"])
    assert not shell.json("peers", "add", "hub", "--relays-to", "no")["peer"]["relays_to"]
    shown = shell.run("peers", "show", "HUB").out
    assert "dev with hub/dev, rome; * with tokyo" in shown and "agents with one of public" in shown
    assert "hub" == shell.json("peers", "remove", "hub")["removed"]
    assert 67 == shell.run("peers", "remove", "hub").code == shell.run("peers", "show", "hub").code
    assert "No peers" in shell.run("peers", "list").out


def test_what_a_peer_may_is_taken_back(shell: Shell) -> None:
    message = ("--scope", "dev=rome", "--exposure", "tagged", "--tag", "public", "--relays-for", "rome")
    shell.json("peers", "add", "hub", *message)
    assert [] == shell.json("peers", "add", "hub", "--relays-for", "")["peer"]["relays_for"]
    assert {} == shell.json("peers", "add", "hub", "--scope", "")["peer"]["scopes"]
    assert (
        65 == shell.run("peers", "add", "hub", "--tag", "").code
    )  # else it would see nobody, and be called tagged
    peer = shell.json("peers", "add", "hub", "--exposure", "gateway")["peer"]
    assert ("gateway", []) == (peer["exposure"], peer["tags"])
    assert 65 == shell.run("peers", "add", "hub", "--exposure", "all", "--tag", "public").code


def test_mail_that_waits_for_a_peer_is_reported(shell: Shell) -> None:
    shell.json("peers", "add", "hub", "--relays-for", "rome")
    sent = shell.json("send", "bob@rome", "--body", "hello", "--as", "ann")["id"]
    assert (
        1
        == shell.json("peers", "list")["peers"][0]["waiting"]
        == shell.json("peers", "show", "hub")["peer"]["waiting"]
    )
    shown = shell.run("peers", "show", "hub").out
    assert "nobody serves this room" in shown and "1 letter" in shown
    assert "waits: nobody serves this room" == shell.json("trace", sent)["stops"][0]["reason"]
    gone = shell.run("peers", "remove", "hub").out
    assert "Waiting for rome: 1 letter." in gone and "outbox_max_age" in gone
    assert "no route to the system 'rome'" in shell.json("trace", sent)["stops"][0]["reason"]
    assert {"rome": 1} == shell.json("peers", "list")["stranded"]
    assert "There is no way to rome: 1 letter for it waits." in shell.run("peers", "list").out


def test_a_refused_peer_leaves_no_room_behind(shell: Shell) -> None:
    assert 65 == shell.run("peers", "add", "berlin", "--url", "ws://berlin.example").code
    assert not (shell.home / "room.db").exists()


def test_trust_is_withdrawn_and_given_again(shell: Shell) -> None:
    shell.json("peers", "add", "berlin")
    assert not shell.json("peers", "trust", "berlin", "--withdraw")["peer"]["trusted"]
    assert "not trusted" in shell.run("peers", "list").out
    assert shell.json("peers", "trust", "berlin")["peer"]["trusted"]
    for two in (["--withdraw", "--rotate"], ["--withdraw", "--pin", "x"], ["--pin", "x", "--certificate", "y"]):
        assert 64 == shell.run("peers", "trust", "berlin", *two).code


def test_a_token_is_rotated_and_shown_once(shell: Shell) -> None:
    old = shell.json("peers", "add", "berlin")["token"]
    done = shell.run("peers", "trust", "berlin", "--rotate")
    new = done.out.partition("\n")[0]
    assert new.startswith("prp_") and new != old and "peers add" in done.err
    with shell.room() as room:
        assert "berlin" == peers.proven_peer(room.core, "berlin", old).system
        assert "berlin" == peers.proven_peer(room.core, "berlin", new).system
    assert "good until" not in shell.run("peers", "show", "berlin").out


def test_a_certificate_is_looked_at_shown_and_pinned(shell: Shell, certificates: list[tuple[str, str]]) -> None:
    first, second = certificates
    with listening(*first) as (url, _):
        shell.json("peers", "add", "berlin", "--url", url, "--token-file", "-", stdin="prp_secret-1")
        done = shell.run("peers", "trust", "berlin")
        assert 0 == done.code and pin_of(first[0]) in done.out and as_openssl(first[0]) in done.out
    with listening(*second) as (url, _):
        shell.json("peers", "add", "berlin", "--url", url)
        assert pin_of(first[0]) == shell.json("peers", "show", "berlin")["peer"]["pin"]
        again = shell.json("peers", "trust", "berlin")
    assert (pin_of(second[0]), pin_of(first[0])) == (again["peer"]["pin"], again["former_pin"])
    gone = shell.run("peers", "trust", "berlin", "--json")
    assert (75, "url") == (gone.code, gone.error["field"])


def test_a_changed_certificate_stands_as_an_alert_until_it_is_trusted(
    shell: Shell, certificates: list[tuple[str, str]]
) -> None:
    (first, _), (second, _) = certificates
    shell.json("peers", "add", "berlin", "--auth", "mtls")
    shell.json("peers", "trust", "berlin", "--certificate", first)
    with shell.room() as room, pytest.raises(NotAllowed):
        peers.proven_peer(room.core, "berlin", None, certificate=pin_of(second))
    for words in (["list"], ["show", "berlin"]):
        result = shell.run("peers", *words).out
        assert "ALERT" in result and pin_of(second) in result and "peers trust berlin" in result
    unseen = shell.run("peers", "trust", "berlin", "--json")
    assert (65, "--pin") == (unseen.code, unseen.error["field"])
    shell.json("peers", "trust", "berlin", "--certificate", second)
    assert "ALERT" not in shell.run("peers", "list").out


def test_a_file_without_a_certificate_is_refused_and_a_key_beside_one_is_not_kept(
    shell: Shell, certificates: list[tuple[str, str]]
) -> None:
    certificate, key = (Path(name).read_text(encoding="utf-8") for name in certificates[0])
    shell.json("peers", "add", "berlin", "--auth", "mtls")
    refused = shell.run("peers", "trust", "berlin", "--certificate", "-", "--json", stdin=key)
    assert (65, "--certificate") == (refused.code, refused.error["field"])
    both = shell.json("peers", "trust", "berlin", "--certificate", "-", stdin=key + certificate)
    assert certificate.strip() == both["peer"]["certificate"].strip()


def as_openssl(certificate: str) -> str:
    words = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", certificate]
    written = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    return written.partition("=")[2]


def test_a_fingerprint_may_be_pinned_as_openssl_writes_it(
    shell: Shell, certificates: list[tuple[str, str]]
) -> None:
    written = f"sha256 Fingerprint={as_openssl(certificates[0][0])}"
    shell.json("peers", "add", "berlin", "--url", "wss://b", "--token-file", "-", stdin="prp_secret-1")
    assert pin_of(certificates[0][0]) == shell.json("peers", "trust", "berlin", "--pin", written)["peer"]["pin"]
    assert 65 == shell.run("peers", "trust", "berlin", "--pin", "sha256:12").code


def test_a_shell_completes_the_names_of_peers(shell: Shell) -> None:
    shell.json("peers", "add", "berlin")
    assert "berlin\n" == shell.run("__complete", "--", "peers", "trust", "be").out


# -- how a link uses certificates


def test_only_pinned_certificates_get_through_and_each_is_distinguished(
    certificates: list[tuple[str, str]], tmp_path: Path
) -> None:
    ours, theirs = certificates
    stranger = make_certificate(tmp_path, "stranger")
    pem = Path(theirs[0]).read_text(encoding="utf-8")
    with listening(*ours, pem) as (url, callers):
        for shown in (theirs, None, stranger):
            call(url, pin_of(ours[0]), shown)
    known, nobody, refused = callers
    assert known is not None and fingerprint(known) == pin_of(theirs[0])
    assert (None, b"refused") == (nobody, refused)


def call(url: str, pin: str, shown: tuple[str, str] | None) -> None:
    port = urlsplit(url).port or 0
    context = client_context(pin, *(shown or ()))
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                assert is_pinned(pin, secure.getpeercert(binary_form=True))
                secure.sendall(b"x")
                secure.recv(1)
        except OSError:  # refused
            return


def test_without_a_pin_the_machines_authorities_decide(certificates: list[tuple[str, str]]) -> None:
    with listening(*certificates[0]) as (url, _):
        port = urlsplit(url).port or 0
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            client_context("").wrap_socket(plain, server_hostname="127.0.0.1")
        other = certificate_at(url)
    assert fingerprint_of_pem(other) == pin_of(certificates[0][0])
    assert not is_pinned(pin_of(certificates[1][0]), ssl.PEM_cert_to_DER_cert(other)) and not is_pinned("x", None)


def test_an_address_may_be_an_object_wherever_a_recipient_is_named(shell: Shell) -> None:
    shell.json("peers", "add", "berlin")
    far = '{"agent": "bob", "system": "berlin"}'
    sent = shell.json("send", far, "--cc", '{"agent": "carl"}', "--as", "ann", "--body", "x")
    assert [one["address"] for one in sent["letter"]["recipients"]] == ["bob@berlin", "carl"]
    value = shell.json("tasks", "give", '{"agent": "bob"}', "--as", "ann", "--body", "x")
    assert "bob" in str(value)
    for wrong in ('{"agent": "bob", "planet": "mars"}', '{"agent"', "{}"):
        refused = shell.run("send", wrong, "--as", "ann", "--body", "x", "--json")
        assert refused.code in {64, 65}, refused
