"""All methods of MAP by name. Checks, docs and the matrix of rights are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..federation.methods import FEDERATION
from ..formats.errors import NoSuchMethod
from ..formats.map import spellings
from ..server.mail import MAIL
from . import agents, connection_methods, method, routing, scopes  # noqa: F401 - they declare the methods

if TYPE_CHECKING:
    from ..core.verb import Verb


MAP: dict[str, type[Verb]] = dict(sorted((method.MAP | FEDERATION).items()))
SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in MAP.items() for spelling in spellings(name)}


def for_map(name: str) -> type[Verb]:
    """Return the verb of this name, in either spelling; `mail/*` of conversations are methods of MAP, too."""
    found = SPELT.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name[:200]}", field="method")
    return found
