"""Our part of one file of a host: a whole file, a few values in JSON, a table in TOML, or a block of text.

Each is recognised by a mark of ours, or by the command that it runs. To put it in and to take it out again gives
the file back to the byte; only what was empty before, an object or a list, is not there afterwards.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

import tomlkit
from tomlkit.items import Table

from ...errors import Invalid, Refused
from ..recipes import words_of
from .json_edit import Document, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .json_edit import IsOurs


PROGRAM = "postroom"


class Piece(Protocol):
    """Our part of the file at `path`."""

    path: str

    def ours(self, text: str) -> list[Any]:
        """Return our part as it is, in values that can be compared; an empty list if it is not there."""

    def added(self, text: str) -> str:
        """Return the text with our part, complete and up to date."""

    def without(self, text: str) -> str:
        """Return the text without our part, even if others changed it."""


class OwnFile:
    """A file that is entirely ours. With no content, it is one that is not wanted any more."""

    def __init__(self, path: str, content: str | None) -> None:
        self.path = path
        self._content = content or ""

    def ours(self, text: str) -> list[Any]:
        try:
            return [json.loads(text)]
        except ValueError:  # it is no JSON
            return [text] if text else []

    def added(self, _text: str) -> str:
        return self._content

    def without(self, _text: str) -> str:
        return ""


class JsonValues:
    """Members and elements of a JSON file. Ours are recognised by their content."""

    def __init__(
        self, path: str, hooks: Mapping[str, Any], servers: Mapping[str, Any], is_ours: IsOurs, *, comments: bool
    ) -> None:
        self.path = path
        self._hooks = hooks
        self._servers = servers
        self._is_ours = is_ours
        self._comments = comments

    def ours(self, text: str) -> list[Any]:
        return sorted(self._read(text).ours(self._is_ours), key=repr) if text.strip() else []

    def added(self, text: str) -> str:
        bare = self.without(text)
        if not bare.strip():
            return json.dumps({**self._hooks, **self._servers}, indent=2, ensure_ascii=False) + "\n"
        document = self._read(bare)
        is_kept = is_kept_server(value_at(document.value, "mcpServers", PROGRAM), "mcpServers")
        return document.merged(self._hooks if is_kept else {**self._hooks, **self._servers})

    def without(self, text: str) -> str:
        return self._read(text).without(self._is_ours) if text.strip() else text

    def _read(self, text: str) -> Document:
        return Document(text, comments=self._comments)


class TomlTable:
    """The table of our server in a TOML file. It is ours by a comment behind its header."""

    HEADER = f"[mcp_servers.{PROGRAM}]"

    def __init__(self, path: str, mark: str, wanted: Mapping[str, Any]) -> None:
        self.path = path
        self._header = f"{self.HEADER} {mark}"
        self._older = f"{mark}\n{self.HEADER}\n"  # earlier versions wrote the mark on a line of its own
        self._wanted = wanted

    def ours(self, text: str) -> list[Any]:
        values = _toml_values(text)
        return [values["mcp_servers"][PROGRAM]] if self._is_marked(text) else []

    def added(self, text: str) -> str:
        """Return the text with our table behind everything else, or with our values in the table that is there."""
        text = self._with_mark(text)
        there = value_at(_toml_values(text), "mcp_servers", PROGRAM)
        # Updated in place: comments and keys that the user added inside stay.
        if self._is_marked(text):
            return self._updated(text) if self._wanted else self.without(text)
        if not self._wanted or is_kept_server(there, "mcp_servers"):
            return text
        table = f"{self._header}\n{tomlkit.dumps(self._wanted)}"
        added = f"{text}\n{table}" if text else table
        _toml_values(added)  # a table that is there in another form can have no second one
        return added

    def without(self, text: str) -> str:
        """Return the text without our table, and without what a user allowed our server in tables inside it."""
        text = self._with_mark(text)
        if not self._is_marked(text):
            return text
        document: Any = tomlkit.parse(text)
        before = text.partition(self._header)[0]
        comments = _comments_behind(document["mcp_servers"][PROGRAM])
        del document["mcp_servers"][PROGRAM]
        left = before.removesuffix("\n") + comments + tomlkit.dumps(document).removeprefix(before)
        if _others(_toml_values(left)) != _others(_toml_values(text)):
            raise Refused(
                f"{self.HEADER} cannot be separated from the rest of the file", hint="correct it by hand"
            )
        return left

    def _updated(self, text: str) -> str:
        document: Any = tomlkit.parse(text)
        document["mcp_servers"][PROGRAM].update(self._wanted)
        return tomlkit.dumps(document)

    def _with_mark(self, text: str) -> str:
        return text.replace(self._older, f"{self._header}\n")

    def _is_marked(self, text: str) -> bool:
        return self._header in self._with_mark(text).split("\n")


def _toml_values(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as broken:
        raise Invalid(f"not TOML: {broken}") from None


def _others(values: dict[str, Any]) -> dict[str, Any]:
    """Return everything but our table, and an empty table of servers as none."""
    servers = {name: one for name, one in (values.get("mcp_servers") or {}).items() if name != PROGRAM}
    return {**values, "mcp_servers": servers}


def _comments_behind(table: Any) -> str:
    """Return the blank lines and comments behind the values of a table: they are about what follows."""
    body = getattr(table.value, "body", [])
    while body and isinstance(body[-1][1], Table):
        body = body[-1][1].value.body
    comments = takewhile(lambda item: item[0] is None, reversed(body))
    return "".join(reversed([item.as_string() for _, item in comments]))


class TextBlock:
    """A block in a file of rules for models, between two comments.

    They name the host: two hosts may read one file by a link, each with its own block.
    """

    def __init__(self, path: str, content: str, host: str) -> None:
        self.path = path
        text = f"Written by `postroom install {host}`, taken out by `postroom uninstall {host}`."
        begin, end = f"<!-- postroom {host}: begin. {text} -->", f"<!-- postroom {host}: end -->"
        self._block = f"{begin}\n{content.rstrip()}\n{end}\n"
        whole = rf"\n?^{re.escape(begin)}\n((?:(?!{re.escape(begin)}).)*?)^{re.escape(end)}$\n?"
        self._whole = re.compile(whole, re.DOTALL | re.MULTILINE)
        self._half = re.compile(rf"^(?:{re.escape(begin)}|{re.escape(end)})\n?", re.MULTILINE)

    def ours(self, text: str) -> list[Any]:
        return self._whole.findall(text) + self._half.findall(self._whole.sub("", text))

    def added(self, text: str) -> str:
        # Taken out first: a block of an earlier version is replaced, not doubled.
        bare = self.without(text)
        return f"{bare}\n{self._block}" if bare else self._block

    def without(self, text: str) -> str:
        return self._half.sub("", self._whole.sub("", text))


def is_kept_server(found: Any, where: str) -> bool:
    """Return whether others configured our server already, which stays. Refuse another server of that name."""
    words = words_of(found) if isinstance(found, dict) else []
    names = [word.rpartition("/")[2] for word in words]
    if any(pair == (PROGRAM, "mcp") for pair in zip(names, words[1:], strict=False)):
        return True
    # No server may be there, but the permissions that the user gave its tools.
    if found is None or (isinstance(found, dict) and not {"command", "url", "httpUrl"} & found.keys()):
        return False
    raise Refused(f"{where}.{PROGRAM} is there and is not ours", hint="give that server another name")


def entries_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield each hook and server in a value, with its place: the objects that have a command."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from entries_in(one, path)
    elif isinstance(value, dict):
        if isinstance(value.get("command"), str):
            yield path, value
        for key, one in value.items():
            yield from entries_in(one, (*path, key))
