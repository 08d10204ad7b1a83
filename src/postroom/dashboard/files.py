"""The files of the dashboard, read once, and the headers under which a browser shows them.

Each file has an address that holds the hash of all files: imports between modules are relative, so all of them are
of one version, and a browser may keep them for ever. The page itself is never kept. Nothing is loaded from
elsewhere: the policy below forbids it, as it forbids inline script and text that becomes markup.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from msgspec import Struct

# A table of our own: `mimetypes` asks the system, which may be wrong.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
AT = "/dashboard/"
PAGE = "index.html"
BASE = "{base}"  # in the page: the address of the other files
STATIC = Path(__file__).with_name("static")
FOR_EVER = "public, max-age=31536000, immutable"
NEVER = "no-store"
VENDOR = "vendor/"
# Types, prose and indentation are a sixth of what is sent, and no browser needs them. The number of lines stays.
# Strings and templates are not recognised; a test sees to it that text in them does not look like a comment, and
# a template that goes over several lines is HTML, where the indentation of a line is nothing.
_COMMENT = re.compile(rb"/\*\*.*?\*/|(?<=\s)// [^\n]*", re.DOTALL)
_CSS_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_CSS_SPACE = re.compile(rb"\s*([{},;])\s*|(?<=:) ")
_INDENT = re.compile(rb"^[ \t]+", re.MULTILINE)


class File(Struct, frozen=True):
    """One file as it is sent."""

    type: str
    content: bytes
    packed: bytes  # by gzip; empty where that saves nothing


class Files(Struct, frozen=True):
    """All files of the dashboard by their paths, without the page."""

    base: str  # the address that the path of a file follows, without a slash at its end
    page: File
    by_path: dict[str, File]


def read_files(folder: Path) -> Files:
    """Read the files below a folder. A name that begins with a dot or an underscore is not served."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    served = {
        name: _as_sent(name, path.read_bytes())
        for path, name in names.items()
        if path.suffix in TYPES and not any(part.startswith((".", "_")) for part in name.split("/"))
    }
    both = b"".join(b"%b\0%d\0%b" % (name.encode(), len(content), content) for name, content in served.items())
    base = f"{AT}{sha256(both).hexdigest()[:16]}"
    page = _file(PAGE, served.pop(PAGE).replace(BASE.encode(), base.encode()))
    return Files(base, page, {name: _file(name, content) for name, content in served.items()})


def _as_sent(name: str, content: bytes) -> bytes:
    """Return a file as it is sent: our own without comments and indentation, others unmodified."""
    comment = {".js": _COMMENT, ".css": _CSS_COMMENT}.get(name[name.rindex(".") :])
    if comment is None or name.startswith(VENDOR):
        return content
    short = _INDENT.sub(b"", comment.sub(lambda found: b"\n" * found[0].count(b"\n"), content))
    return _CSS_SPACE.sub(rb"\1", short) if comment is _CSS_COMMENT else short


def _file(name: str, content: bytes) -> File:
    gzip = zlib.compressobj(9, wbits=31, memLevel=9)  # with the header of gzip
    packed = gzip.compress(content) + gzip.flush()
    kind = TYPES[Path(name).suffix]
    return File(kind, content, packed if len(packed) < len(content) else b"")


@cache
def files() -> Files:
    """Return the files of this package."""
    return read_files(STATIC)


# -- headers


def policy(host: str, *, is_tls: bool) -> str:
    """Return the content security policy of the page at this host.

    The host stands in it because not every browser takes 'self' for WebSockets.
    """
    sockets = f"{'wss' if is_tls else 'ws'}://{host}"
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' {sockets};"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
        " trusted-types lit-html"
    )


HEADERS = {
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


# -- for whoever comes without a link

_FRONT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Postroom</title>
<h1>Postroom</h1>
<p>This is the service of a post room: durable mail between AI agents.</p>
<p>To open its dashboard, type this in a terminal on the machine that runs it:</p>
<pre>{command}</pre>
<p>Programs call it with a token: <code>postroom tokens create --agent NAME</code> makes one.</p>
</html>
"""


def front_page(command: str) -> bytes:
    """Return the page that says what this is, and which command opens the dashboard."""
    return _FRONT.format(command=escape(command)).encode()
