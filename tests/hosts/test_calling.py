"""One call of a webhook, to a real server: signed, to an address that was checked, and bounded in every way."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.hosts import webhooks
from postroom.hosts.webhooks import Outcome, WebhookClient
from postroom.model.webhook import Webhook, secret_of, sign
from tests.hosts.receiver import HOST, Answer, Receiver, make_certificate, raw_server

pytestmark = pytest.mark.daemon
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET, FORMER = secret_of(b"s" * 32), secret_of(b"f" * 32)
PUBLIC, OTHER_PUBLIC = "93.184.216.34", "93.184.216.35"
BODY = b'{"type":"mail.waiting"}'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:
    with Receiver(certificate) as receiver:
        yield receiver


def resolver(*answers: list[str]) -> Callable[..., list[Any]]:
    """The addresses of every name: the first answer, then the next, and on with the last."""
    left = list(answers)

    def look_up(_host: str, port: int, **_: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in found
        ]

    return look_up


class Street(WebhookClient):
    """A telephone whose network is this machine: which address is at which port is told here."""

    def __init__(self, look_up: Callable[..., list[Any]], doors: dict[str, int], trusted: Path) -> None:
        super().__init__(look_up, lambda: ssl.create_default_context(cafile=str(trusted)))
        self.doors = doors
        self.dialled: list[str] = []

    def _dial(self, made: socket.socket, address: tuple[Any, ...]) -> None:
        self.dialled.append(address[0])
        super()._dial(made, ("127.0.0.1", self.doors[address[0]]))


class LooksTwice(Street):
    """A planted bug: what is checked is one answer, what is called is the next."""

    def _prepare(self, target: Any, allow_private: bool) -> Any:
        _, context = super()._prepare(target, allow_private)
        found = self._resolve(target.host, target.port)
        return [(family, address) for family, _, _, _, address in found], context


class Follows(Street):
    """A planted bug: goes where an answer leads."""

    def _post(self, webhook: Webhook, headers: Any, body: bytes, line: webhooks.CallConnection) -> Any:
        answer = super()._post(webhook, headers, body, line)
        location = answer.getheader("location")
        if location is None:
            return answer
        webhooks._read_rest(answer, line)
        return super()._post(hook(location, allow_private=True), headers, body, line)


def hook(url: str, **more: Any) -> Webhook:
    return Webhook(id="abcd", url=url, mailbox="human", secret=SECRET, created_at=NOW, **more)


def call(make: Callable[[], WebhookClient], webhook: Webhook, body: bytes = BODY) -> Outcome:
    """Made inside the loop, as in a daemon."""

    async def one() -> Outcome:
        client = make()
        try:
            return await client.call(webhook, "ring-1", body, lambda: NOW)
        finally:
            client.close()

    return asyncio.run(one())


def near(certificate: tuple[Path, Path], receiver: Receiver) -> Callable[[], WebhookClient]:
    return lambda: Street(resolver(["127.0.0.1"]), {"127.0.0.1": receiver.port}, certificate[0])


# -- what is said


def test_a_call_is_signed_and_says_what_it_is(receiver: Receiver, certificate: tuple[Path, Path]) -> None:
    webhook = hook(receiver.url(HOST), allow_private=True)
    assert Outcome(status=204) == call(near(certificate, receiver), webhook)
    [came] = receiver.calls
    assert ("/ring?key=1", BODY, f"{HOST}:{receiver.port}") == (came.path, came.body, came.headers["host"])
    assert ("ring-1", str(int(NOW.timestamp()))) == (came.id, came.headers["webhook-timestamp"])
    assert sign(SECRET, "ring-1", int(NOW.timestamp()), BODY) == came.headers["webhook-signature"]
    assert "application/json" == came.headers["content-type"] and came.headers["user-agent"].startswith(
        "postroom/"
    )


def test_while_the_secret_changes_there_are_two_signatures(
    receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    until = NOW + timedelta(hours=1)
    webhook = hook(receiver.url(HOST), allow_private=True, former_secret=FORMER, former_until=until)
    call(near(certificate, receiver), webhook)
    expected = [sign(one, "ring-1", int(NOW.timestamp()), BODY) for one in (SECRET, FORMER)]
    assert expected == receiver.calls[0].headers["webhook-signature"].split()


def test_no_proxy_of_the_environment_is_asked(
    receiver: Receiver, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert call(near(certificate, receiver), hook(receiver.url(HOST), allow_private=True)).is_rung


# -- to whom


def check_that_a_name_which_changes_leads_nowhere_else(
    client: type[Street], receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    """The first answer is everybody's, the next is this machine: what listens here must not be called."""
    with Receiver(certificate) as inner:
        doors = {PUBLIC: receiver.port, "127.0.0.1": inner.port}
        look_up = resolver([PUBLIC], ["127.0.0.1"])
        call(lambda: client(look_up, doors, certificate[0]), hook(receiver.url(HOST)))
        assert [] == inner.calls, "this machine is called"
        assert 1 == len(receiver.calls)


def test_a_name_is_looked_up_once_and_its_checked_address_is_called(
    receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    check_that_a_name_which_changes_leads_nowhere_else(Street, receiver, certificate)


def test_a_sender_that_looks_up_twice_is_found_out(receiver: Receiver, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(AssertionError, match="this machine is called"):
        check_that_a_name_which_changes_leads_nowhere_else(LooksTwice, receiver, certificate)


@pytest.mark.parametrize("found", [
    ["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"],
    ["2002:7f00:1::1"], ["fe80::1%lo"], ["0.0.0.0"], ["::"], ["224.0.0.1"],  # noqa: S104
])  # fmt: skip
def test_every_address_of_a_name_must_be_everybodys(found: list[str], certificate: tuple[Path, Path]) -> None:
    made: list[Street] = []

    def make() -> Street:
        made.append(Street(resolver(found), {}, certificate[0]))
        return made[0]

    outcome = call(make, hook("https://hooks.example/"))
    assert not outcome.is_rung and found[-1] in outcome.problem and [] == made[0].dialled


def test_what_is_private_is_called_where_that_was_allowed_and_metadata_never(
    certificate: tuple[Path, Path], receiver: Receiver
) -> None:
    doors = {"10.0.0.1": receiver.port, "169.254.169.254": receiver.port}
    for address, is_rung in (("10.0.0.1", True), ("169.254.169.254", False)):
        look_up = resolver([address])
        outcome = call(
            lambda look_up=look_up: Street(look_up, doors, certificate[0]),  # type: ignore[misc]
            hook("https://hooks.example/", allow_private=True),
        )
        assert is_rung == outcome.is_rung
    assert 1 == len(receiver.calls)


def test_the_next_address_is_called_when_one_does_not_answer(
    receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    doors = {PUBLIC: closed, OTHER_PUBLIC: receiver.port}
    assert call(
        lambda: Street(resolver([PUBLIC, OTHER_PUBLIC]), doors, certificate[0]), hook(receiver.url(HOST))
    ).is_rung


def test_a_host_must_prove_by_its_certificate_who_it_is(
    receiver: Receiver, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other = make_certificate(tmp_path, "other.example")
    doors = {PUBLIC: receiver.port}
    for url, trusted in ((receiver.url("other.example"), certificate[0]), (receiver.url(HOST), other[0])):
        outcome = call(
            lambda trusted=trusted: Street(resolver([PUBLIC]), doors, trusted),  # type: ignore[misc]
            hook(url),
        )
        assert not outcome.is_rung and "certificate" in outcome.problem
    assert [] == receiver.calls


def test_a_name_that_nobody_knows_is_reported() -> None:
    def nobody(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert (
        "Name or service not known" in call(lambda: WebhookClient(nobody), hook("https://nobody.example/")).problem
    )
    assert (
        "no address" in call(lambda: WebhookClient(lambda *_, **__: []), hook("https://nobody.example/")).problem
    )


def test_without_tls_only_this_machine_is_called() -> None:
    with Receiver() as plain:
        assert call(WebhookClient, hook(plain.url("127.0.0.1"), allow_private=True)).is_rung
        assert not call(WebhookClient, hook(plain.url("127.0.0.1"))).is_rung
        assert 1 == len(plain.calls)


# -- what is answered


def check_that_no_redirect_is_followed(
    client: type[Street], receiver: Receiver, certificate: tuple[Path, Path]
) -> None:
    with Receiver() as elsewhere:
        receiver.answers.append(Answer(307, {"Location": elsewhere.url("127.0.0.1")}))
        doors = {PUBLIC: receiver.port, "127.0.0.1": elsewhere.port}
        look_up = resolver([PUBLIC], ["127.0.0.1"])
        outcome = call(lambda: client(look_up, doors, certificate[0]), hook(receiver.url(HOST)))
        assert [] == elsewhere.calls, "it is followed"
        assert 307 == outcome.status and "redirect" in outcome.problem


def test_no_redirect_is_followed(receiver: Receiver, certificate: tuple[Path, Path]) -> None:
    check_that_no_redirect_is_followed(Street, receiver, certificate)


def test_a_sender_that_follows_is_found_out(receiver: Receiver, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(AssertionError, match="it is followed"):
        check_that_no_redirect_is_followed(Follows, receiver, certificate)


@pytest.mark.parametrize(("answer", "result"), [
    (Answer(200, body=b"x" * 300_000), Outcome(status=200)),
    (Answer(299), Outcome(status=299)),
    (Answer(404), Outcome(status=404, problem="it answered 404 Not Found")),
    (Answer(599), Outcome(status=599, problem="it answered 599")),
    (Answer(410), Outcome(status=410, problem="it answered 410 Gone")),
    (Answer(500, {"Retry-After": "9"}), Outcome(status=500, problem="it answered 500 Internal Server Error")),
    (Answer(429, {"Retry-After": "7"}), Outcome(status=429, problem="it answered 429 Too Many Requests", pause=7)),
    (Answer(503, {"Retry-After": "99999999999"}),
     Outcome(status=503, problem="it answered 503 Service Unavailable", pause=3600)),
    (Answer(503, {"Retry-After": "Wed, 02 Jan 2030 03:04:15 GMT"}),
     Outcome(status=503, problem="it answered 503 Service Unavailable", pause=10)),
    (Answer(503, {"Retry-After": "soon"}), Outcome(status=503, problem="it answered 503 Service Unavailable")),
])  # fmt: skip
def test_an_answer_means_what_the_convention_says(answer: Answer, result: Outcome) -> None:
    with Receiver() as plain:
        plain.answers.append(answer)
        assert result == call(WebhookClient, hook(plain.url("127.0.0.1"), allow_private=True))


def _drip(line: socket.socket) -> None:
    line.recv(4096)
    while True:
        line.sendall(b"H")
        time.sleep(0.01)  # the pace of who answers, not of the test


def _endless(line: socket.socket) -> None:
    line.recv(4096)
    line.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        line.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")


def _endless_line(line: socket.socket) -> None:
    line.recv(4096)
    while True:
        line.sendall(b"x" * 4096)


def _only_soon(line: socket.socket) -> None:
    line.recv(4096)
    while True:
        line.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")


def _silent(line: socket.socket) -> None:
    line.recv(4096)


def _no_http(line: socket.socket) -> None:
    line.recv(4096)
    line.sendall(b"220 smtp.example ESMTP\r\n\r\n")


@pytest.mark.parametrize("answer", [_drip, _endless, _endless_line, _only_soon, _silent, _no_http])
def test_who_answers_badly_is_given_up_on(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "WHOLE", 0.5)
    with raw_server(answer) as port:
        began = time.monotonic()
        outcome = call(WebhookClient, hook(f"http://127.0.0.1:{port}/", allow_private=True))
        assert not outcome.is_rung and outcome.status is None and time.monotonic() - began < 5


def test_an_answer_that_first_says_that_it_comes_and_then_never_ends_counts() -> None:
    def answer(line: socket.socket) -> None:
        line.recv(4096)
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 202 Accepted\nServer: odd\n\n")
        line.recv(4096)  # until the other side hangs up

    with raw_server(answer) as port:
        assert Outcome(status=202) == call(WebhookClient, hook(f"http://127.0.0.1:{port}/", allow_private=True))


# -- the loop goes on


def test_a_name_that_is_slow_to_look_up_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "WHOLE", 0.3)

    def slow(*_: Any, **__: Any) -> list[Any]:
        time.sleep(1)  # as a resolver does that waits for somebody far away
        return []

    async def both() -> tuple[Outcome, float]:
        client = WebhookClient(slow)
        calls = asyncio.ensure_future(client.call(hook("https://slow.example/"), "1", BODY, lambda: NOW))
        longest = 0.0
        while not calls.done():
            began = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - began)
        client.close()
        return calls.result(), longest

    outcome, longest = asyncio.run(both())
    assert "0.3 seconds" in outcome.problem and longest < 0.25


def test_so_many_are_called_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST_CALLS", 3)

    async def many(url: str) -> list[Outcome]:
        client = WebhookClient()
        webhook = hook(url, allow_private=True)
        found = await asyncio.gather(*(client.call(webhook, str(n), BODY, lambda: NOW) for n in range(12)))
        client.close()
        return list(found)

    with Receiver() as plain:
        outcomes = asyncio.run(many(plain.url("127.0.0.1")))
        assert all(outcome.is_rung for outcome in outcomes) and 12 == len(plain.calls) and plain.most <= 3
