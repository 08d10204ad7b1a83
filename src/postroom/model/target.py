"""Where a webhook is called: an address, read by one strict grammar. What was checked is what is called.

There is one reader for both, so nothing can be hidden from the check that the call then sees. Whatever could end a
line, a header or the host's part of the address early is not in the grammar at all.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from msgspec import Struct

from ..errors import Invalid
from .values import check_line

LONGEST = 2000
HINT = "such as https://hooks.example.com/postroom"
_PORTS = {"https": 443, "http": 80}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = rf"\[(?P<six>[0-9A-Fa-f:.]{{2,45}})\]|(?P<name>{_LABEL}(?:\.{_LABEL})*)"
_REST = r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*"
_URL = re.compile(
    rf"(?P<scheme>(?i:https?))://(?:{_HOST})(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/{_REST})?(?P<query>\?[?{_REST[1:]})?"
)


class Target(Struct, frozen=True, kw_only=True):
    """An address in its parts."""

    scheme: Literal["https", "http"]
    host: str  # a name in lower case, or an address without brackets
    port: int
    path: str  # and the query behind it

    @property
    def is_address(self) -> bool:
        """Is the host no name that must be looked up?"""
        return is_address(self.host)

    @property
    def header(self) -> str:
        """As it stands in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_target(url: Any, field: str = "url") -> Target:
    """The address in its parts, or an error that says what is wrong with it."""
    text = check_line(url, field, LONGEST)
    found = _URL.fullmatch(text)
    if found is None:
        told, hint = _complaint(text)
        raise Invalid(told, field=field, hint=hint)
    scheme: Literal["https", "http"] = "https" if found["scheme"].lower() == "https" else "http"
    host = (found["six"] or found["name"]).lower()
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    if len(host) > 253 or not 1 <= port <= 65535 or _is_odd(host, is_six=bool(found["six"])):
        raise Invalid(f"{text!a} has no host, or no port, that can be called", field=field, hint=HINT)
    return Target(scheme=scheme, host=host, port=port, path=(found["path"] or "/") + (found["query"] or ""))


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_odd(host: str, *, is_six: bool) -> bool:
    """Does it look like an address, and is none as people write them? `127.1` and `0x7f000001` would be one."""
    last = host.rpartition(".")[2]
    looks = is_six or last.isdecimal() or last.startswith("0x")
    return looks and not is_address(host)


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
        return f"{text!a} is no address of a web server", HINT
    return f"{text!a} is no address that can be called", HINT
