"""Webhooks: their targets and which of these may be called, their stored form, and the signatures of their calls.

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


# Which addresses may be called
#
# Public addresses; those of this machine and of private networks only with `--allow-private`; cloud metadata
# services, link-local and reserved addresses never. The table follows IANA's registries of special addresses;
# Python's `is_private` differs from version to version. An IPv6 address with an IPv4 address inside is judged by
# the inner one.

PUBLIC, LOOPBACK, PRIVATE = "public", "loopback", "private"
CLOUD = "a cloud's own"  # a metadata service, which gives secrets to any caller
LOCALHOST = "localhost"
HTTPS, OWN = 443, 1024  # the port of HTTPS; the first port that is not reserved for another service
ALLOW = "--allow-private"

# The first network that contains an address gives its kind.
_KINDS = [
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("100.100.100.200/32", CLOUD),
        ("168.63.129.16/32", CLOUD),
        ("fd00:ec2::254/128", CLOUD),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", PRIVATE),
        ("100.64.0.0/10", PRIVATE),  # carrier-grade NAT, and tunnels
        ("127.0.0.0/8", LOOPBACK),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", PRIVATE),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", PRIVATE),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("0.0.0.0/0", PUBLIC),
        ("::/128", "unspecified"),
        ("::1/128", LOOPBACK),
        ("fc00::/7", PRIVATE),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # among others Teredo, which hides an IPv4 address
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "reserved"),  # 6to4 hides an IPv4 address too
        ("3fff::/20", "reserved"),
        ("2000::/3", PUBLIC),
        ("::/0", "reserved"),
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def kind_of(address: str) -> str:
    """Return the kind of an IP address, in one word."""
    if "%" in address:
        return "link-local"  # bound to one interface of this machine
    found = ipaddress.ip_address(address)
    reached = (_inside(found) if isinstance(found, ipaddress.IPv6Address) else None) or found
    return next(kind for network, kind in _KINDS if reached in network)


def may_be_called(kind: str, *, allow_private: bool) -> bool:
    return kind == PUBLIC or (allow_private and kind in {LOOPBACK, PRIVATE})


def why_not(host: str, address: str, *, allow_private: bool) -> str | None:
    """Return why an address of a host may not be called; None if it may."""
    kind = kind_of(address)
    if may_be_called(kind, allow_private=allow_private):
        return None
    why = f"{host} is {kind}" if host == address else f"{host} is at {address}, which is {kind}"
    return f"{why} ({ALLOW} lets it be called)" if may_be_called(kind, allow_private=True) else why


def check_target(target: WebhookTarget, *, allow_private: bool) -> None:
    """Refuse a target that may not be stored. Each call checks the addresses of its name again."""
    is_local = target.host == LOCALHOST or (target.is_address and kind_of(target.host) == LOOPBACK)
    if target.scheme == "http" and not (is_local and allow_private):
        raise Invalid(
            f"{target.host} would be called without TLS",
            field="url",
            hint=f"https://; http:// is for this machine alone, with {ALLOW}",
        )
    if target.port != HTTPS and target.port < OWN and not (target.scheme == "http" and target.port == 80):
        raise Invalid(
            f"port {target.port} is for another service", field="url", hint=f"{HTTPS}, or {OWN} and above"
        )
    if is_local and not allow_private:
        raise Invalid(f"{target.host} is this machine", field="url", hint=f"{ALLOW} allows such addresses")
    if target.is_address and (why := why_not(target.host, target.host, allow_private=allow_private)):
        raise Invalid(why, field="url", hint="use an address that can be reached from the internet")


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address, if it has one."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


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
