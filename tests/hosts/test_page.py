"""The page about webhooks says what is: its receiver checks real calls, and its example is shaped like them."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from postroom.formats import alerts
from postroom.hosts.webhooks import WebhookClient
from postroom.model.alert import AlertLetter
from postroom.model.message import Priority
from postroom.model.webhook import Webhook, secret_of, signed_headers
from tests.coverage import uncounted
from tests.docs.pages import HOME, blocks

pytestmark = pytest.mark.daemon
PAGE = HOME / "docs" / "operations.md"
SECRET, OTHER = secret_of(b"s" * 32), secret_of(b"o" * 32)
NOW = datetime.now(UTC)
Genuine = Callable[..., bool]


def receiver() -> str:
    [code] = [block.code for block in blocks(PAGE) if block.program == "receiver.py"]
    return code


@pytest.fixture(scope="module")
def is_genuine() -> Genuine:
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(receiver(), names)  # noqa: S102 - the page's own program
    found: Genuine = names["is_genuine"]
    return found


def timeless(secrets: list[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """A planted bug: the time is told, and not signed."""
    keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in secrets]
    made = [base64.b64encode(hmac.digest(key, f"{id}.".encode() + body, "sha256")).decode() for key in keys]
    signature = " ".join(f"v1,{one}" for one in made)
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


def check_that_only_what_was_just_said_so_is_taken(
    is_genuine: Genuine, signed: Callable[..., dict[str, str]] = signed_headers
) -> None:
    at, body = int(NOW.timestamp()), b'{"type":"mail.waiting"}'
    headers = signed([OTHER, SECRET], "ring-1", at, body)
    assert is_genuine(SECRET, headers, body, now=at)
    assert is_genuine(OTHER, headers, body, now=at)
    later = str(at + 900)
    for wrong in (
        {"webhook-id": "ring-2"},
        {"webhook-timestamp": later},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": headers["webhook-signature"].replace("v1,", "v2,")},
    ):
        assert not is_genuine(SECRET, headers | wrong, body, now=at + 900 if later in wrong.values() else at), (
            f"taken: {wrong}"
        )
    assert not is_genuine(SECRET, headers, body, now=at + 900), "taken: what is old"
    assert not is_genuine(SECRET, headers, body + b" ", now=at)
    assert not is_genuine(secret_of(b"x" * 32), headers, body, now=at)


def test_the_pages_receiver_takes_only_what_was_just_said_so(is_genuine: Genuine) -> None:
    check_that_only_what_was_just_said_so_is_taken(is_genuine)


@pytest.mark.parametrize(("line", "bug", "signed"), [
    ('f"{id}.{sent}.".encode() + body', 'f"{id}.".encode() + body', timeless),
    ("abs((now or time.time()) - int(sent)) > TOLERANCE", "False", signed_headers),  # however old it is
    ('if version == "v1"', "", signed_headers),
])  # fmt: skip
def test_a_weaker_check_is_found_out(line: str, bug: str, signed: Callable[..., dict[str, str]]) -> None:
    code = receiver()
    assert line in code
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(code.replace(line, bug), names)  # noqa: S102
    at = int(NOW.timestamp())
    assert names["is_genuine"](SECRET, signed([SECRET], "1", at, b"{}"), b"{}", now=at)  # all seems well
    with pytest.raises(AssertionError, match="taken: "):
        check_that_only_what_was_just_said_so_is_taken(names["is_genuine"], signed)


@pytest.fixture
def running_receiver(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The page's program, as a reader starts it."""
    (tmp_path / "receiver.py").write_text(receiver(), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = uncounted(dict(os.environ)) | {"WEBHOOK_SECRET": SECRET, "PORT": str(port)}
    words = [sys.executable, "receiver.py"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            end = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)
            yield port, process
        finally:
            process.kill()


def test_the_pages_receiver_is_rung_once_for_a_call_that_comes_twice(
    running_receiver: tuple[int, subprocess.Popen[str]],
) -> None:
    port, process = running_receiver
    letter = AlertLetter(id="m-1", sender="coder", subject="May I?", thread="m-1", priority=Priority.URGENT)
    body = alerts.webhook_call("human", NOW, 1, [letter])
    url = f"http://127.0.0.1:{port}/"
    webhook = Webhook(
        id="abcd", url=url, mailbox="human", secret=SECRET, created_at=NOW, allow_private=True
    )  # fmt: skip

    async def call() -> list[int | None]:
        client = WebhookClient()
        stranger = replace(webhook, secret=OTHER)
        found = [
            await client.call(one, id, body, lambda at=at: at)  # type: ignore[misc]
            for one, id, at in (
                (webhook, "1", datetime.now(UTC)),
                (webhook, "1", datetime.now(UTC)),
                (stranger, "2", datetime.now(UTC)),
                (webhook, "3", NOW - timedelta(hours=1)),
                (webhook, "4", datetime.now(UTC)),
            )
        ]
        client.close()
        return [outcome.status for outcome in found]

    assert [204, 204, 401, 401, 204] == asyncio.run(call())
    process.kill()
    assert process.stdout is not None
    assert ["mail.waiting human ['May I?']\n"] * 2 == process.stdout.readlines()


def test_the_pages_example_is_shaped_like_a_call() -> None:
    [example] = [json.loads(block.code) for block in blocks(PAGE) if block.language == "json"]
    letter = AlertLetter(id="m-1", sender="coder", subject="x" * 999, thread="m-1", priority=Priority.LOW)
    real = json.loads(alerts.webhook_call("human", NOW, 60, [letter] * 60))
    assert list(example) == list(real) == list(json.loads(alerts.webhook_call("human", NOW, type=alerts.TEST)))
    assert list(example["letters"][0]) == list(real["letters"][0])
    assert (50, 10, 200) == (len(real["letters"]), real["more"], len(real["letters"][0]["subject"]))


def test_a_subject_can_hide_nothing_in_a_call() -> None:
    letter = AlertLetter(id="m-1", sender="eve", subject="a\u202eb", thread="m-1", priority=Priority.LOW)
    result = alerts.webhook_call("human", NOW, 1, [letter])
    assert result.isascii() and "a\u202eb" == json.loads(result)["letters"][0]["subject"]
