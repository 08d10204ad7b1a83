"""Signatures of the Standard Webhooks convention: proof of who called, when, and with what.

Signed is `id.timestamp.body`, so neither can be changed without the secret: a call that somebody kept cannot be
played again later under another time. The secret is base64 behind `whsec_`; a signature is `v1,` and base64.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "whsec_"
VERSION = "v1"


def secret_of(key: bytes) -> str:
    """A secret as it is told and kept."""
    return PREFIX + base64.b64encode(key).decode()


def sign(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """One signature."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return f"{VERSION},{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def signed_headers(secrets: Iterable[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What a receiver needs to check a call. While a secret is being changed, there is a signature by each."""
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, id, timestamp, body) for secret in secrets),
    }
