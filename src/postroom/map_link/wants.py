"""What is wanted of a link: the server, as whom, and who is shown there. Checked before anything is dialled."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import Invalid
from ..lines.near import is_near
from ..model.names import check_agent, check_scope
from .directory import ALL, NONE

METHODS = ("bearer", "api-key")


class Wants(Struct, frozen=True, kw_only=True):
    """A link, as it is asked for."""

    server: str  # ws://... or wss://...
    scope: str = ""  # in which our agents are there
    name: str = ""  # of the link's own agent there; the room's by default
    expose: str = ALL  # all, none, or names with commas
    token: str = ""
    method: str = METHODS[0]  # how the token is shown first; a server that wants it otherwise says so


def checked(wants: Wants) -> Wants:
    """The same, or an error that names what is wrong."""
    place = urlsplit(wants.server)
    if place.scheme not in {"ws", "wss"} or not place.hostname:
        hint = "such as ws://127.0.0.1:8080 or wss://map.example.com"
        raise Invalid(f"{wants.server!a} is no WebSocket address", field="map-server", hint=hint)
    if wants.token and place.scheme == "ws" and not is_near(wants.server):
        raise Invalid(
            "a token would go there for everybody to read",
            field="map-server",
            hint="wss://, or no POSTROOM_MAP_TOKEN",
        )
    if wants.method not in METHODS:
        raise Invalid(f"{wants.method!a} is no way to show a token", field="map-auth", hint=", ".join(METHODS))
    if wants.scope:
        check_scope(wants.scope, "map-scope")
    if wants.name:
        check_agent(wants.name, "map-name")
    if wants.expose not in {ALL, NONE}:
        for name in wants.expose.split(","):
            check_agent(name.strip(), "map-expose")
    return wants
