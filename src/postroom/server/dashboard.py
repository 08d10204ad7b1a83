"""The dashboard over HTTP: its page and files, the page for whoever has no link, and the code that opens a visit.

The files need no token: they say nothing about the room. Host, Origin and Sec-Fetch-Site were checked before
(`HttpAuth.check_request`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ..dashboard.files import AT, FOR_EVER, HEADERS, NEVER, TYPES, files, front_page, policy
from ..errors import Busy, NotAllowed
from .http import (
    Reply,
    error_reply,
    header_values,
    json_reply,
    plain_refusal,
    read_body,
    read_json_body,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..dashboard.files import File
    from .http import Headers, Receive, Scope
    from .http_app import HttpApp

VISIT = f"{AT}visit"
OPENING = "postroom dashboard"
LARGEST = 4096  # bytes of the body with a code: nobody knows yet who sends it
_HEADERS = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())
_PACKED = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))


def is_here(path: str) -> bool:
    """Return whether a path belongs to the dashboard."""
    return path.startswith(AT) or path == AT.rstrip("/")


async def serve_dashboard(app: HttpApp, scope: Scope, receive: Receive) -> Reply:
    """Return the page, one of its files, or the token of a visit."""
    path, method = scope["path"], scope["method"]
    if path == VISIT and method == "POST":
        return await _enter(app, scope, receive)
    if method not in {"GET", "HEAD"}:
        return error_reply(405, "the dashboard is read; a visit is opened by POST", (b"allow", b"GET, HEAD, POST"))
    if path == AT.rstrip("/"):
        return Reply(308, headers=((b"location", AT.encode()),))
    found = files()
    if path == AT:
        return _sent(scope, found.page, NEVER)
    file = found.by_path.get(path.removeprefix(f"{found.base}/"))
    return error_reply(404, "there is no such file; load the page again") if file is None else _sent(scope, file)


def serve_front(scope: Scope) -> Reply:
    """Return the page that says what this is and how to open the dashboard."""
    return Reply(200, front_page(OPENING), (*_safe(scope), _kept(NEVER)), TYPES[".html"].encode())


def wants_page(headers: Headers) -> bool:
    """Return whether a client is a browser that shows a page."""
    return any("text/html" in value for value in header_values(headers, b"accept"))


async def _enter(app: HttpApp, scope: Scope, receive: Receive) -> Reply:
    """Return the token of the visit that a code opens. A browser says where its page is from, so it must."""
    if not header_values(scope["headers"], b"origin"):
        return error_reply(403, "a visit is opened by the page of the dashboard alone")
    if is_of_others(scope["client"], scope["server"]):
        return error_reply(403, "this connection belongs to another user of this machine")
    value = read_body(await read_json_body(LARGEST, scope, receive), app.limits)
    visits = app.executor.visits
    try:
        token, visit = visits.enter(value.get("code") if isinstance(value, dict) else None)
    except (NotAllowed, Busy) as wrong:
        return plain_refusal(wrong)
    return json_reply(200, {"token": token, "visit": visits.describe(visit)})


# A browser is started with its link on a command line, which other users of the machine may read.

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _USER = 1, 2, 7  # columns: address:port, address:port, the user of the socket


def is_of_others(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Return whether a connection is surely one of another user of this machine; the system may not tell."""
    users: set[int] = set()
    for table in _TABLES:
        with suppress(OSError), open(table, encoding="ascii") as rows:
            users |= users_of(rows, client[1], server[1])
    return bool(users) and users.isdisjoint({os.geteuid(), 0})


def users_of(rows: Iterable[str], local: int, remote: int) -> set[int]:
    """Return the users of the sockets with these ports, by the lines of a table of sockets."""
    found = (row.split() for row in rows)
    ports = f":{local:04X}", f":{remote:04X}"
    return {
        int(row[_USER])
        for row in found
        if len(row) > _USER and row[_LOCAL].endswith(ports[0]) and row[_REMOTE].endswith(ports[1])
    }


def _sent(scope: Scope, file: File, kept: str = FOR_EVER) -> Reply:
    accepted = " ".join(header_values(scope["headers"], b"accept-encoding"))
    is_packed = bool(file.packed) and "gzip" in accepted
    headers = (*_safe(scope), _kept(kept), *(_PACKED if is_packed else ()))
    return Reply(200, file.packed if is_packed else file.content, headers, file.type.encode())


def _safe(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    host = header_values(scope["headers"], b"host")[0]
    safe = policy(host.lower(), is_tls=scope["scheme"] in {"https", "wss"})
    return ((b"content-security-policy", safe.encode()), *_HEADERS)


def _kept(how: str) -> tuple[bytes, bytes]:
    return b"cache-control", how.encode()
