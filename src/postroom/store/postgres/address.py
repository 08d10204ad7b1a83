"""The address of a room in PostgreSQL: `postgresql://user@host/database?schema=NAME`.

The address is libpq's own, with two options of ours: `schema` (the room; several rooms share a database) and
`pooler` (`transaction` where a PgBouncer in transaction mode stands in between). A password is refused here: an
address stands in command lines, logs and errors.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ...errors import BadStore

SCHEMES = ("postgresql", "postgres")
RULE = "postgresql://user@host/database?schema=NAME"
DEFAULT_SCHEMA = "postroom"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_PASSWORD_HINT = "put it into ~/.pgpass, PGPASSWORD or a service file"  # noqa: S105 - where to put one
# A cut connection is noticed within seconds, not hours. The address may say otherwise.
_USUAL = {
    "keepalives": "1",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "connect_timeout": "5",
    "target_session_attrs": "read-write",
    "application_name": "postroom",
}


class PostgresAddress(NamedTuple):
    """An address, parsed."""

    conninfo: str  # libpq's part of it
    schema: str
    pooled: bool  # by a PgBouncer in transaction mode: no prepared statements, no LISTEN

    def __str__(self) -> str:
        own = {"schema": self.schema} if self.schema != DEFAULT_SCHEMA else {}
        own |= {"pooler": "transaction"} if self.pooled else {}
        mark = "&" if "?" in self.conninfo else "?"
        return f"{self.conninfo}{mark if own else ''}{urlencode(own)}"

    @property
    def options(self) -> dict[str, str]:
        """Return what each connection is made with, besides the address."""
        named = dict(parse_qsl(urlsplit(self.conninfo).query))
        return {name: value for name, value in _USUAL.items() if name not in named}


def parse(address: str) -> PostgresAddress:
    """Return the parts of an address; BadStore for what is none, without showing a password that stands in it."""
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadStore("the address is no URL of PostgreSQL", field="store", hint=RULE) from None
    user, _, server = parts.netloc.rpartition("@")
    if ":" in user or "password" in options or "sslpassword" in options:
        raise BadStore("the address holds a password", field="store", hint=_PASSWORD_HINT)
    schema, pooler = options.pop("schema", DEFAULT_SCHEMA), options.pop("pooler", "session")
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_") or schema == "public":
        hint = "up to 48 small letters, digits and _, beginning with a letter; not public, and no pg_"
        raise BadStore(f"{schema!a} is no schema for a room", field="store", hint=hint)
    if pooler not in {"session", "transaction"}:
        raise BadStore(f"{pooler!a} is no mode of a pooler", field="store", hint="pooler=transaction, or nothing")
    if parts.fragment:
        raise BadStore("the address has a part after #", field="store", hint=RULE)
    login = f"{quote(unquote(user))}@" if user else ""
    rest = f"?{urlencode(options)}" if options else ""
    return PostgresAddress(f"postgresql://{login}{server}{parts.path}{rest}", schema, pooler == "transaction")
