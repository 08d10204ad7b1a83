"""What to do about a link that is down: one remedy for each cause, in words for people. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from ..model.peer import Peer

_BRING = "shows a token for us; bring it here: postroom peers add"
_RENEWED = f"over there postroom peers trust {{here}} --rotate {_BRING} {{system}} --token-file -"
_SHOW_OURS = (
    "here: postroom serve with --tls-cert and --tls-key; over there: postroom peers trust {here} --certificate"
    " FILE, with that certificate"
)
_CUT = "the line was cut; it is called again by itself, within a minute. postroom peers ping {system} calls it now"
_NOT_UP = "is postroom serve running there, and is {url} its address?"
_SILENT = "nothing answers at {url}: is that machine on, its network up and its port open?"


class Remedy(Struct, frozen=True):
    """What helps where the problem holds this word; `auth`: only where each proves itself so."""

    word: str
    what: str
    auth: str = ""


# The first that fits counts.
REMEDIES = (
    Remedy(
        "has changed",
        "if its operator changed it: postroom peers trust {system}; else somebody stands in between",
    ),
    Remedy(
        "CERTIFICATE_VERIFY_FAILED",
        "no certificate of it is pinned, and nobody whom this machine trusts vouches for it: postroom peers trust"
        " {system} looks at the one that it shows, and insists on it",
    ),
    Remedy(
        "WRONG_VERSION_NUMBER",
        "there is no TLS at {url}; over there: postroom serve with --tls-cert and --tls-key",
    ),
    Remedy(
        "it is called",
        "add it by that name, and remove {system} here: over there postroom peers trust {here} --rotate"
        f" {_BRING} ITS-NAME --url {{url}} --token-file -",
    ),
    Remedy(
        "this connection is",
        "our token was made for another name than ours, {here}: over there postroom peers add {here}"
        f" {_BRING} {{system}} --token-file -",
    ),
    Remedy("does not know us", _SHOW_OURS, auth="mtls"),
    Remedy("valid HTTP response", _SHOW_OURS, auth="mtls"),
    Remedy("alert", _SHOW_OURS, auth="mtls"),
    Remedy("valid HTTP response", "does it speak TLS? Then its url begins with wss://, not with ws://"),
    Remedy("(invalid_credentials)", "our token is not good there, or not any more: " + _RENEWED),
    Remedy("(5002)", "it does not trust us: " + _RENEWED),
    Remedy("(1006)", "it does not trust us: " + _RENEWED),
    Remedy(
        "HTTP 403",
        "it does not know the name by which {url} calls it (the Host header); over there: postroom serve"
        " --http-name {host}, or {host}:PORT for a port that is forwarded to another number",
    ),
    Remedy("HTTP", "is {url} a post room, with --map on?"),
    Remedy("close frame", _CUT),
    Remedy("closed the connection", _CUT),
    Remedy("received 1", _CUT),
    Remedy("refused", _NOT_UP),
    Remedy("Connect call failed", _NOT_UP),
    Remedy("Name or service", "is {url} its address? No machine of that name is known"),
    Remedy("timed out", _SILENT),
    Remedy("no answer", _SILENT),
    Remedy("unreachable", _SILENT),
    Remedy("No route", _SILENT),
    Remedy("", "postroom peers show {system}; and the log of postroom serve, on both sides"),
)


def remedy(peer: Peer, here: str, problem: str) -> str:
    """`here`: what we are called."""
    if peer.is_dialled:
        what = next(one.what for one in REMEDIES if one.word in problem and one.auth in {"", peer.auth})
    elif peer.place:
        what = "is the folder there, and is it ours to use? postroom peers show {system}"
    elif "no answer" in problem:
        what = "is that machine on, and its network up? It calls again by itself"
    else:
        what = "over there: postroom peers ping {here}, which calls us; does it know our address, and its token?"
    host = urlsplit(peer.url).hostname
    return what.format(system=peer.system, url=peer.url, host=host, here=here)
