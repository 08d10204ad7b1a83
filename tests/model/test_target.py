"""The address of a webhook is read by one strict grammar: what is checked is what is called."""

from __future__ import annotations

import socket
from http.client import HTTPConnection

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from postroom.errors import Invalid, TooLarge
from postroom.hosts.webhooks import send
from postroom.model.webhook import WebhookTarget, read_target

PIECES = [
    *"https http :// // / @ : # ? % [ ] . .. \\ a.example 127.0.0.1 ::1 443 99999 x=1 %0d%0a 0x7f 1 - _".split(),
    *("\r\n", "\n", "\t", " ", "\0", "\u00e9", "\u202e", "Host: b.example"),
]


def test_an_address_in_its_parts() -> None:
    assert WebhookTarget(scheme="https", host="a.example", port=443, path="/") == read_target("HTTPS://A.example")
    whole = read_target("https://a.example:8443/hooks/1?key=x%20y&z=/?")
    assert ("a.example", 8443, "/hooks/1?key=x%20y&z=/?", "a.example:8443") == (
        whole.host, whole.port, whole.path, whole.header)  # fmt: skip
    six = read_target("https://[2001:DB8::1]:1234/x")
    assert ("2001:db8::1", "[2001:db8::1]:1234", True) == (six.host, six.header, six.is_address)
    assert "/?x" == read_target("https://a.example?x").path


@pytest.mark.parametrize(("url", "text"), [
    ("https://ann:secret@a.example/", "password"),
    ("https://a.example@127.0.0.1/", "password"),
    ("https://a.example/#x", "fragment"),
    ("https://[fe80::1%25eth0]/", "interface"),
    ("https://a%2eexample/", "interface"),
    ("https://bücher.example/", "ASCII"),
    ("ftp://a.example/", "web server"),
    ("file:///etc/passwd", "web server"),
    ("a.example", "web server"),
    ("https://", "can be called"),
    ("https:///x", "can be called"),
    ("https://a.example\\@b.example/", "password"),
    ("https://a.example/x y", "can be called"),
    ("https://a..example/", "can be called"),
    ("https://a.example./", "can be called"),
    ("https://127.1/", "port"),
    ("https://2130706433/", "port"),
    ("https://0x7f000001/", "port"),
    ("https://0177.0.0.1/", "port"),
    ("https://a.example:0/", "port"),
    ("https://a.example:65536/", "port"),
    ("https://[1::2::3]/", "port"),
    ("https://a.example/\r\nX: y", "control"),
    (" https://a.example/", "web server"),
])  # fmt: skip
def test_what_is_wrong_with_an_address_is_reported(url: str, text: str) -> None:
    with pytest.raises(Invalid, match=text) as refused:
        read_target(url)
    assert refused.value.field == "url"


def test_an_address_has_an_end() -> None:
    with pytest.raises(TooLarge):
        read_target("https://a.example/" + "x" * 2000)


@given(some.lists(some.one_of(some.sampled_from(PIECES), some.text(max_size=3)), max_size=12).map("".join))
@example("https://a.example/%0d%0aHost:%20b")
def test_no_address_gets_a_line_or_a_host_of_its_own_into_a_call(rest: str) -> None:
    try:
        target = read_target(f"https://a.example{rest}")
    except Invalid:
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = HTTPConnection(target.host)
        connection.sock = ours
        send(connection, target, {"webhook-id": "x"}, b"{}")
        head = theirs.recv(100_000).split(b"\r\n\r\n")[0].split(b"\r\n")
    assert [b"POST", target.path.encode(), b"HTTP/1.1"] == head[0].split(b" ")
    assert 8 == len(head) and not any(b"\n" in line or b"\r" in line for line in head)
    [host] = [line for line in head if line.lower().startswith(b"host:")]
    assert target.host.startswith("a.example") and host.startswith(b"Host: a.example")
