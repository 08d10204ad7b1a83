"""Signatures as the Standard Webhooks convention has them: over id, time and body, all three."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

import pytest

from postroom.model.webhook import secret_of, sign, signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the convention's own example
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
Sign = Callable[[str, str, int, bytes], str]


def test_the_signature_is_that_of_the_convention() -> None:
    """The example that the convention's own libraries are tested with."""
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == sign(SECRET, ID, AT, BODY)


def check_that_everything_is_signed(sign: Sign) -> None:
    """A recorded call cannot be replayed under another id or time, nor with another body."""
    others = [
        (SECRET, "msg_2", AT, BODY),
        (SECRET, ID, AT + 600, BODY),
        (SECRET, ID, AT, b"{}"),
        (secret_of(b"x" * 32), ID, AT, BODY),
    ]
    assert sign(SECRET, ID, AT, BODY) not in [sign(*other) for other in others], "it can be played again"


def test_id_time_and_body_are_signed() -> None:
    check_that_everything_is_signed(sign)


def test_a_signature_without_the_time_is_found_out() -> None:
    def timeless(secret: str, id: str, _: int, body: bytes) -> str:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        return "v1," + base64.b64encode(hmac.digest(key, id.encode() + b"." + body, "sha256")).decode()

    with pytest.raises(AssertionError, match="it can be played again"):
        check_that_everything_is_signed(timeless)


def test_while_a_secret_is_changed_both_sign() -> None:
    fresh = secret_of(bytes(range(32)))
    headers = signed_headers([fresh, SECRET], ID, AT, BODY)
    assert {"webhook-id": ID, "webhook-timestamp": str(AT)}.items() <= headers.items()
    assert [sign(fresh, ID, AT, BODY), sign(SECRET, ID, AT, BODY)] == headers["webhook-signature"].split(" ")


def test_a_secret_is_base64_behind_a_word_that_says_what_it_is() -> None:
    assert "whsec_" + base64.b64encode(b"k" * 32).decode() == secret_of(b"k" * 32)
