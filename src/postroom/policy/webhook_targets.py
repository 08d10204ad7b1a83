"""The addresses that a webhook may call.

Public addresses are allowed; those of this machine and of private networks only with `--allow-private`; cloud
metadata services, link-local and reserved addresses never.

The table follows IANA's registries of special addresses; Python's `is_private` differs from version to version.
An IPv6 address with an IPv4 address inside is judged by the inner one.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ..errors import Invalid

if TYPE_CHECKING:
    from ..model.webhook import WebhookTarget


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
