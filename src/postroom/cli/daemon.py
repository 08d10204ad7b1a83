"""Verbs carried out by the post room that serves this room on this machine, where the room is on a server.

So a command is spared the library of PostgreSQL, which takes half of its time, and a connection of its own. The post
room takes the owner of its socket for the owner of the room, but heeds the tokens of agents, and has no keys of people.
What it cannot or may not do, the command does itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from ..core.agents import ListMailboxes
from ..core.people import ListPeople
from ..core.verb import parameters
from ..errors import Busy, NotAllowed
from ..formats.errors import result_of
from ..formats.plain import json_type, read_result, read_value
from ..hosts.quick import exchange
from ..model.codec import encode
from ..model.names import PEOPLE, fold
from ..model.query import Found

if TYPE_CHECKING:
    from ..core.people import People
    from ..core.verb import Declaration, Verb
    from ..model.message import Message

SECONDS = 60.0  # for a reply


class NotThere(Exception):
    """The command has to do it itself."""


class Daemon:
    """The post room at a socket. NotThere if none answers."""

    def __init__(self, path: str) -> None:
        self._path = path
        known: People = read_result(ListPeople.declaration(), self.ask(ListPeople()))
        keys = [name for key in known.people if key.is_live for name in (key.person, *key.formerly)]
        self.people = frozenset(map(fold, (*PEOPLE, *known.mailboxes, *keys)))  # the folded names of people

    def ask(self, request: Verb) -> Any:
        """Return the result of a verb as JSON; NotThere if no post room answers, or if it cannot or may not."""
        declaration, known = request.declaration(), parameters(type(request))
        fields = {field.name: field.default for field in msgspec.structs.fields(type(request))}
        given = {name for name, default in fields.items() if getattr(request, name) != default}
        waits = declaration.waits and getattr(request, "timeout", None)
        if declaration.local or waits or not given <= {one.field for one in known.values()}:
            raise NotThere
        params = {name: getattr(request, one.field) for name, one in known.items() if one.field in given}
        line = encode({"jsonrpc": "2.0", "id": 1, "method": f"mail/{declaration.name}", "params": params})
        try:
            return result_of(exchange(self._path, line + b"\n", 1, SECONDS))
        except (FileNotFoundError, ConnectionRefusedError, NotAllowed):
            raise NotThere from None
        except OSError as broken:
            text = f"the post room at {self._path} did not answer: {broken}"
            raise Busy(text, hint="it may have been done: look before you try again") from broken

    def mailboxes(self) -> list[str]:
        found: list[str] = read_result(ListMailboxes.declaration(), self.ask(ListMailboxes()))
        return found


def with_times(declaration: Declaration, shown: dict[str, Any]) -> dict[str, Any]:
    """Return a result in JSON with its times as times, for a view."""
    kind = json_type(declaration.result)
    under = declaration.under
    found: dict[str, Any] = _timed(shown, kind) if under is None else {under: _timed(shown[under], kind)}
    return found


def _timed(value: Any, wanted: Any) -> Any:
    """Return a value of JSON with its times as times, by the type that it has there."""
    parts = get_args(wanted)
    if isinstance(value, str) and datetime in (wanted, *parts):
        return datetime.fromisoformat(value)
    if isinstance(value, list) and parts:
        return [_timed(one, parts[0]) for one in value]
    kind = next(
        (one for one in (wanted, *parts) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None
    )
    if kind is None or not isinstance(value, dict):
        return value
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: _timed(one, types.get(name)) for name, one in value.items()}


def messages_in(shown: dict[str, Any]) -> tuple[Message, ...]:
    """Return the letters in a result; none where it holds only what was written of them."""
    try:
        letters = [one for one in shown.get("letters") or [shown.get("letter")] if one is not None]
        return tuple(read_value(one, Found).message for one in letters)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError):
        return ()
