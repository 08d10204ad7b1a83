"""Where a webhook may call. Everybody's addresses are open; those of this machine and of private networks only
where somebody said so; those where clouds tell secrets to whoever asks, link-local or not, and what is not for
use, never.

The table follows IANA's registries of special addresses. It stands here because Python's own answers differ from
version to version. An address that carries another one inside is judged by that one.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ..errors import Invalid

if TYPE_CHECKING:
    from ..model.target import Target

PUBLIC, LOOPBACK, PRIVATE = "public", "loopback", "private"
CLOUD = "a cloud's own"  # where a cloud tells secrets, and no network of its users
LOCALHOST = "localhost"
HTTPS, OWN = 443, 1024  # the port of HTTPS; and from which on ports are no other service's by custom
ALLOW = "--allow-private"

# The first that holds an address says what it is.
_KINDS = [
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("100.100.100.200/32", CLOUD),
        ("168.63.129.16/32", CLOUD),
        ("fd00:ec2::254/128", CLOUD),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", PRIVATE),
        ("100.64.0.0/10", PRIVATE),  # behind a carrier's translation, and in tunnels
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
        ("2001::/23", "reserved"),  # Teredo, among others: there is an IPv4 address inside that nobody sees
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "reserved"),  # 6to4, likewise
        ("3fff::/20", "reserved"),
        ("2000::/3", PUBLIC),
        ("::/0", "reserved"),
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def kind_of(address: str) -> str:
    """What sort of address it is, in a word."""
    if "%" in address:
        return "link-local"  # bound to one interface of this machine, whatever else it is
    found = ipaddress.ip_address(address)
    reached = (_inside(found) if isinstance(found, ipaddress.IPv6Address) else None) or found
    return next(kind for network, kind in _KINDS if reached in network)


def may_be_called(kind: str, *, allow_private: bool) -> bool:
    return kind == PUBLIC or (allow_private and kind in {LOOPBACK, PRIVATE})


def why_not(host: str, address: str, *, allow_private: bool) -> str | None:
    """Why nothing is said to this address of a host; None: it may be called."""
    kind = kind_of(address)
    if may_be_called(kind, allow_private=allow_private):
        return None
    told = f"{host} is {kind}" if host == address else f"{host} is at {address}, which is {kind}"
    return f"{told} ({ALLOW} lets it be called)" if may_be_called(kind, allow_private=True) else told


def check_target(target: Target, *, allow_private: bool) -> None:
    """May this address be kept? What its name leads to is looked at again before each call."""
    is_here = target.host == LOCALHOST or (target.is_address and kind_of(target.host) == LOOPBACK)
    if target.scheme == "http" and not (is_here and allow_private):
        hint = f"https://; http:// is for this machine alone, with {ALLOW}"
        raise Invalid(f"{target.host} would be called without TLS", field="url", hint=hint)
    if target.port != HTTPS and target.port < OWN and not (target.scheme == "http" and target.port == 80):
        told = f"port {target.port} is for another service"
        raise Invalid(told, field="url", hint=f"{HTTPS}, or {OWN} and above")
    if is_here and not allow_private:
        raise Invalid(f"{target.host} is this machine", field="url", hint=f"{ALLOW} lets it be called")
    if target.is_address and (why := why_not(target.host, target.host, allow_private=allow_private)):
        raise Invalid(why, field="url", hint="name one that is reached from everywhere")


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that is really reached, where that is told."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped
