"""Webhooks: their target addresses, their stored form, and the signatures of their calls.

One strict grammar parses a URL for the check and for the call, so that a URL cannot show one host to the check and
another to the call. Characters that could end a line, a header or the host part early are not in the grammar.

The signatures follow the Standard Webhooks convention: signed is `id.timestamp.body`, so a recorded call cannot be
replayed under another time. The secret is `whsec_` and base64; a signature is `v1,` and base64.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

from ..errors import Invalid
from .message import Priority
from .values import check_line, passes

if TYPE_CHECKING:
    from collections.abc import Iterable


LONGEST = 2000
HINT = "such as https://hooks.example.com/postroom"
_PORTS = {"https": 443, "http": 80}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = rf"\[(?P<six>[0-9A-Fa-f:.]{{2,45}})\]|(?P<name>{_LABEL}(?:\.{_LABEL})*)"
_REST = r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*"
_URL = re.compile(
    rf"(?P<scheme>(?i:https?))://(?:{_HOST})(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/{_REST})?(?P<query>\?[?{_REST[1:]})?"
)


class WebhookTarget(Struct, frozen=True, kw_only=True):
    """The parsed URL of a webhook."""

    scheme: Literal["https", "http"]
    host: str  # a name in lower case, or an address without brackets
    port: int
    path: str  # with the query

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address, not a name to look up."""
        return is_address(self.host)

    @property
    def header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_target(url: Any, field: str = "url") -> WebhookTarget:
    """Return the parsed URL, or raise Invalid with the reason."""
    text = check_line(url, field, LONGEST)
    found = _URL.fullmatch(text)
    if found is None:
        complaint, hint = _complaint(text)
        raise Invalid(complaint, field=field, hint=hint)
    scheme: Literal["https", "http"] = "https" if found["scheme"].lower() == "https" else "http"
    host = (found["six"] or found["name"]).lower()
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    if len(host) > 253 or not 1 <= port <= 65535 or _is_odd(host, is_six=bool(found["six"])):
        raise Invalid(f"{text!a} has no host, or no port, that can be called", field=field, hint=HINT)
    return WebhookTarget(scheme=scheme, host=host, port=port, path=(found["path"] or "/") + (found["query"] or ""))


def is_address(host: str) -> bool:
    return passes(ValueError, ipaddress.ip_address, host)


def _is_odd(host: str, *, is_six: bool) -> bool:
    """Return whether a host looks like an IP address but is not a normal one.

    The system's resolver would take `127.1` and `0x7f000001` for 127.0.0.1, past the check of private addresses.
    """
    last = host.rpartition(".")[2]
    looks_like_address = is_six or last.isdecimal() or last.startswith("0x")
    return looks_like_address and not is_address(host)


def _complaint(text: str) -> tuple[str, str]:
    host = text.partition("://")[2].partition("/")[0]
    if "@" in host:
        return "holds a name or a password", "leave them out; who calls is proven by the signature"
    if "#" in text:
        return "holds a fragment, which is never sent", "leave out what stands after #"
    if "%" in host:
        return "names an interface of this machine", HINT
    if not text.isascii():
        return f"{text!a} is not plain ASCII", "a host in its xn-- form, a path with % signs"
    if not text.lower().startswith(("https://", "http://")):
        return f"{text!a} is not the address of a web server", HINT
    return f"{text!a} is not an address that can be called", HINT


# The webhook

WAY = "webhook:"  # followed by its id: the name of its alert channel


# Fields that must never be shown, exported or logged.
class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A URL that is called when mail waits in a mailbox."""

    SECRETS: ClassVar = frozenset({"secret", "former_secret"})  # shown nowhere

    id: str
    url: str
    mailbox: str
    secret: str  # whsec_…; stored in the clear, because signing needs it
    former_secret: str = ""  # the secret before, which signs too until:
    former_until: datetime | None = None
    min_priority: Priority = Priority.NORMAL  # mail below it makes no call
    allow_private: bool = False  # it may be on this machine or in a private network
    created_at: datetime
    off_at: datetime | None = None  # switched off since then
    note: str = ""  # why it is switched off

    @property
    def way(self) -> str:
        return f"{WAY}{self.id}"

    @property
    def is_on(self) -> bool:
        return self.off_at is None

    def secrets(self, now: datetime) -> list[str]:
        """Return the secrets that sign at this time, the newest first."""
        is_former = self.former_until is not None and now < self.former_until
        return [self.secret, self.former_secret] if is_former else [self.secret]

    def __repr__(self) -> str:
        return f"Webhook(id={self.id!r})"  # a log must never hold a secret


class OpenCall(Struct, frozen=True):
    """An unanswered or failed call, to be repeated under the same id for these letters."""

    id: str
    letters: tuple[str, ...]


# Signatures

PREFIX = "whsec_"
VERSION = "v1"


def secret_of(key: bytes) -> str:
    """Return the text form of a secret."""
    return PREFIX + base64.b64encode(key).decode()


def sign(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return one signature of a call."""
    import hmac  # noqa: PLC0415 - it loads OpenSSL, which no send needs

    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return f"{VERSION},{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def signed_headers(secrets: Iterable[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove a call. During a change of secrets they hold a signature by each."""
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, id, timestamp, body) for secret in secrets),
    }
