"""Who is let in. Asked on every request and on every upgrade, before a byte of a body is read.

A page in a browser can send requests to this machine, by a name of its own that points here or from a site of its
own. So the Host must be one of ours, exactly, and an Origin, where there is one, too. And nobody is trusted for
calling from this machine: only a token tells who calls. It travels in a header and nowhere else; but MAP's
clients, which can set none, show it in their first word at `/map`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .. import service
from ..errors import NotAllowed
from ..wire.problems import BAD_TOKEN, TOKEN_NEEDED
from .replies import CHALLENGE, CLOSE, refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..room import Room
    from ..service.authorize import Principal
    from .replies import Headers, Reply, Scope

HEAD_BYTES = 16 * 1024  # of a request, at most
LONG_HEAD = refused(
    431, f"the head of a request may have {HEAD_BYTES // 1024} KiB: its target and its headers", CLOSE
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_USUAL = {"http": 80, "https": 443}
_BEARER = b"bearer"
_HAS_PORT = re.compile(r":[0-9]+\Z")  # not the address [::1]


class Gate:
    """Knows the names that this house answers to."""

    def __init__(self, room: Room, scheme: str, names: Iterable[str], port: int) -> None:
        self._office = room._office
        every = [name.lower() for name in names]
        known = {name if _HAS_PORT.search(name) else f"{name}:{port}" for name in every}
        usual = f":{_USUAL[scheme]}"
        known |= {host.removesuffix(usual) for host in known if host.endswith(usual)}
        self.hosts = frozenset(known)
        self.origins = frozenset(f"{scheme}://{host}" for host in known)

    def wrong(self, scope: Scope) -> Reply | None:
        """Is this request short enough, meant for us, and sent by a page of ours or by none?"""
        headers: Headers = scope["headers"]
        if _head_bytes(scope) > HEAD_BYTES:  # whoever reads heads looks at those alone that come in many pieces
            return LONG_HEAD
        hosts, origins = every(headers, b"host"), every(headers, b"origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return refused(403, "the Host header names another machine; postroom serve --http-name adds a name")
        if len(origins) > 1 or any(origin.lower() not in self.origins for origin in origins):
            return refused(403, "pages of other sites are not served")
        return None

    def caller(self, headers: Headers) -> Principal | Reply:
        """Who shows a token; or the answer to whoever shows none, or not a good one."""
        shown = _token(headers)
        if shown is None:
            return refused(
                401,
                "a token is needed: the header Authorization: Bearer pr_...; postroom token create makes one",
                CHALLENGE,
                code=TOKEN_NEEDED,
            )
        try:
            return service.tokens.holder(self._office, shown)
        except NotAllowed as unknown:
            return refused(401, str(unknown), CHALLENGE, code=BAD_TOKEN)

    @staticmethod
    def shows_something(headers: Headers) -> bool:
        return bool(every(headers, b"authorization"))


def every(headers: Headers, name: bytes) -> list[str]:
    """All values of a header. Bytes that are no ASCII fit no name of ours."""
    return [value.decode("ascii", "replace").strip() for key, value in headers if key == name]


def _head_bytes(scope: Scope) -> int:
    """With a colon, a space and the end of the line for each header."""
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _token(headers: Headers) -> str | None:
    given = every(headers, b"authorization")
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if scheme.lower().encode() == _BEARER else None
