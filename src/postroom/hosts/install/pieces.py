"""Our part of one file of a host: a whole file, a few values in JSON, a table in TOML, or a block of text.

Each is recognised by a mark of ours, or by the command that it runs. To put it in and to take it out again gives
the file back to the byte; only what was empty before, an object or a list, is not there afterwards.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import tomlkit
from tomlkit.items import Table

from ...errors import Invalid, Refused
from ..recipes import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Where = tuple[str, ...]  # the keys that lead to a value; elements of a list have the path of the list
    IsOurs = Callable[[Where, Any], bool]


# -- edits of JSON text
#
# The text is read with the position of each value. It is never serialised again: an edit only inserts or cuts,
# what is cut is what was inserted, and comments stay.

_BLANKS = " \t\r\n"
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TOKEN = re.compile(r'[{}\[\]:,]|"(?:\\.|[^"\\])*"|[^\s{}\[\]:,"]+')


class Node:
    """A value and its position in the text. As a member of an object it begins with its key."""

    def __init__(self, start: int, value: Any, path: Where) -> None:
        self.start = start
        self.bracket = start  # where an object or a list opens
        self.end = start
        self.value = value
        self.path = path
        self.items: list[Node] = []


class TextEdit(NamedTuple):
    """A replacement of the text from `start` to `end`."""

    start: int
    end: int
    text: str = ""


class Document:
    """A JSON text with the position of each value."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self.text = text
        # Comments become blanks, and a byte order mark does: all positions stay what they are.
        bare = _COMMENT.sub(_blanked, text) if comments else text
        self.bare = " " + bare[1:] if text.startswith("\ufeff") else bare
        try:
            self.value = json.loads(self.bare, parse_constant=_refuse, object_pairs_hook=_members)
            tokens = _TOKEN.finditer(self.bare)
            self.root = _node(tokens, next(tokens), self.value, ())
        except (ValueError, RecursionError) as broken:
            raise Invalid(f"not JSON: {broken}", hint="correct the JSON of this file first") from None

    # -- putting in

    def merged(self, extra: Mapping[str, Any]) -> str:
        """Return the text with these members and elements added. What is there is extended, never replaced."""
        return _applied(self.text, self._additions(self.root, extra, 1))

    def _additions(self, node: Node, extra: Any, depth: int) -> list[TextEdit]:
        """Return the edits that add to an object or a list, whose items are indented by so many levels."""
        if type(node.value) is not type(extra) or not isinstance(extra, dict | list):
            kinds = f"is {_kind(node.value)} where {_kind(extra)} is needed"
            raise Refused(f"{'.'.join(node.path) or 'the whole'} {kinds}")
        if isinstance(extra, list):
            return self._insertion(node, [self._written(one, depth) for one in extra], depth)
        members = {item.path[-1]: item for item in node.items}
        edits = [self._additions(members[key], one, depth + 1) for key, one in extra.items() if key in members]
        fresh = [
            f"{json.dumps(key)}: {self._written(one, depth)}" for key, one in extra.items() if key not in members
        ]
        return [edit for inner in edits for edit in inner] + self._insertion(node, fresh, depth)

    def _insertion(self, node: Node, written: list[str], depth: int) -> list[TextEdit]:
        """Insert behind the last item and its comments."""
        if not written:
            return []
        body = ",".join(f"{self._line(depth)}{one}" for one in written)
        closing = node.end - 1
        if not node.items:
            return [TextEdit(closing, closing, f"{body}{self._line(depth - 1)}")]
        last = node.items[-1].end
        behind = last + len(self.text[last:closing].rstrip(_BLANKS))
        return (
            [TextEdit(last, last, f",{body}")]
            if behind == last
            else [TextEdit(last, last, ","), TextEdit(behind, behind, body)]
        )

    def _written(self, value: Any, depth: int) -> str:
        lines = json.dumps(value, indent=self._unit, ensure_ascii=False).split("\n")
        return self._line(depth).join(lines)

    def _line(self, depth: int) -> str:
        """Return the end of a line and the indentation of the next, as they are in the file."""
        return ("\r\n" if "\r\n" in self.text else "\n") + self._unit * depth

    @property
    def _unit(self) -> str:
        """Return the indentation of one level: that of the first indented line of the file."""
        found = re.search(r"^([ \t]+)\S", self.text, re.MULTILINE)
        return found[1] if found else "  "

    # -- taking out

    def ours(self, is_ours: IsOurs) -> list[Any]:
        """Return our values, each with its path."""
        return [(node.path, node.value) for node in _ours(self.root, is_ours)]

    def without(self, is_ours: IsOurs) -> str:
        """Return the text without our values, and without every list and object that is empty then."""
        edits, is_emptied = self._cuts(self.root, is_ours)
        if is_emptied:
            edits = [TextEdit(self.root.start + 1, self.root.end - 1)]
        return _applied(self.text, edits)

    def _cuts(self, node: Node, is_ours: IsOurs) -> tuple[list[TextEdit], bool]:
        """Return the edits, and whether the object or list would be empty."""
        edits: list[TextEdit] = []
        gone = []
        for item in node.items:
            inner, is_emptied = self._cuts(item, is_ours)
            gone.append(is_emptied or is_ours(item.path, item.value))
            edits += [] if gone[-1] else inner
        last_kept = max((number for number, is_gone in enumerate(gone) if not is_gone), default=-1)
        for number, item in enumerate(node.items):
            if gone[number]:
                edits.append(TextEdit(len(self.text[: item.start].rstrip(_BLANKS)), item.end))
            if number + 1 < len(gone) and (gone[number] or number >= last_kept):
                comma = self.bare.index(",", item.end)
                edits.append(TextEdit(comma, comma + 1))
        interior = [TextEdit(start - node.bracket - 1, end - node.bracket - 1) for start, end, _ in edits]
        is_bare = not _applied(self.text[node.bracket + 1 : node.end - 1], interior).strip()
        return edits, bool(gone) and last_kept < 0 and is_bare


def _node(tokens: Iterator[re.Match[str]], first: re.Match[str], value: Any, path: Where) -> Node:
    """Return the node of a value, which begins with this token of a valid text."""
    node = Node(first.start(), value, path)
    node.end = first.end()
    if first[0] not in "{[":
        return node
    for token in tokens:
        if token[0] in "}]":
            node.end = token.end()
            break
        if token[0] == ",":
            continue
        if first[0] == "[":
            node.items.append(_node(tokens, token, value[len(node.items)], path))
        else:
            next(tokens)  # the colon
            key = json.loads(token[0])
            node.items.append(_node(tokens, next(tokens), value[key], (*path, key)))
            node.items[-1].start = token.start()
    return node


def _ours(node: Node, is_ours: IsOurs) -> Iterator[Node]:
    if is_ours(node.path, node.value):
        yield node
    else:
        for item in node.items:
            yield from _ours(item, is_ours)


def _applied(text: str, edits: list[TextEdit]) -> str:
    """Apply edits, each at its position in the original text. They do not overlap."""
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def _blanked(found: re.Match[str]) -> str:
    """Return a comment as blanks, and a text as it is."""
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def _refuse(name: str) -> None:
    raise ValueError(name)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Of a name that occurs twice, no edit could tell which one counts."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return members


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a plain value"


def value_at(value: Any, *names: str) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


# -- the parts

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
