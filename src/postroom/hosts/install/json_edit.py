"""Edits of JSON files that keep everything else as it is written, comments included where the host allows them.

The text is read with the position of each value. It is never serialised again: an edit only inserts or cuts, and
what is cut is what was inserted. This module knows no host.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Invalid, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Where = tuple[str, ...]  # the keys that lead to a value; elements of a list have the path of the list
    IsOurs = Callable[[Where, Any], bool]


_BLANKS = " \t\r\n"
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TOKEN = re.compile(r'[{}\[\]:,]|"(?:\\.|[^"\\])*"|[^\s{}\[\]:,"]+')


class Node:
    """A value and its position in the text. As a member of an object it begins with its key."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.bracket = start  # where an object or a list opens
        self.end = start
        self.key: str | None = None
        self.items: list[Node] = []


class Edit(NamedTuple):
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
            self.root = _node(tokens, next(tokens))
        except (ValueError, RecursionError) as broken:
            raise Invalid(f"not JSON: {broken}", hint="put that right first") from None

    # -- putting in

    def merged(self, extra: Mapping[str, Any]) -> str:
        """Return the text with these members and elements added. What is there is extended, never replaced."""
        return _applied(self.text, self._additions(self.root, self.value, extra, ()))

    def _additions(self, node: Node, value: Any, extra: Any, path: Where) -> list[Edit]:
        if type(value) is not type(extra) or not isinstance(extra, dict | list):
            kinds = f"is {_kind(value)} where {_kind(extra)} is needed"
            raise Refused(f"{'.'.join(path) or 'the whole'} {kinds}")
        if isinstance(extra, list):
            return self._insertion(node, [self._written(node, one) for one in extra])
        edits: list[Edit] = []
        fresh = []
        for key, one in extra.items():
            if key in value:
                there = next(item for item in node.items if item.key == key)
                edits += self._additions(there, value[key], one, (*path, key))
            else:
                fresh.append(f"{json.dumps(key)}: {self._written(node, one)}")
        return edits + self._insertion(node, fresh)

    def _insertion(self, node: Node, written: list[str]) -> list[Edit]:
        """Insert behind the last item and its comments, with the indentation and line ends of the file."""
        if not written:
            return []
        body = ",".join(f"{self._newline}{self._indent(node)}{one}" for one in written)
        closing = node.end - 1
        if not node.items:
            return [Edit(closing, closing, f"{body}{self._newline}{self._indent_at(node.start)}")]
        last = node.items[-1].end
        behind = last + len(self.text[last:closing].rstrip(_BLANKS))
        return (
            [Edit(last, last, f",{body}")]
            if behind == last
            else [Edit(last, last, ","), Edit(behind, behind, body)]
        )

    def _written(self, node: Node, value: Any) -> str:
        lines = json.dumps(value, indent=self._unit, ensure_ascii=False).split("\n")
        return (self._newline + self._indent(node)).join(lines)

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def _unit(self) -> str:
        """Return the indentation of one level: that of the first indented line of the file."""
        found = re.search(r"^([ \t]+)\S", self.text, re.MULTILINE)
        return found[1] if found else "  "

    def _indent(self, node: Node) -> str:
        """Return the indentation of the items of a node: that of the first one, if that begins a line."""
        first = node.items[0].start if node.items else node.start
        if node.items and not self.text[self.text.rfind("\n", 0, first) + 1 : first].strip():
            return self._indent_at(first)
        return self._indent_at(node.start) + self._unit

    def _indent_at(self, at: int) -> str:
        """Return the indentation of the line at this position."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    # -- taking out

    def ours(self, is_ours: IsOurs) -> list[tuple[Where, Any]]:
        """Return our values, each with its path."""
        return list(_ours(self.value, is_ours, ()))

    def without(self, is_ours: IsOurs) -> str:
        """Return the text without our values, and without every list and object that is empty then."""
        edits, is_emptied = self._cuts(self.root, self.value, is_ours, ())
        if is_emptied:
            edits = [Edit(self.root.start + 1, self.root.end - 1)]
        return _applied(self.text, edits)

    def _cuts(self, node: Node, value: Any, is_ours: IsOurs, path: Where) -> tuple[list[Edit], bool]:
        """Return the edits, and whether the object or list would be empty."""
        edits: list[Edit] = []
        gone = []
        for number, item in enumerate(node.items):
            one = value[number] if item.key is None else value[item.key]
            here = path if item.key is None else (*path, item.key)
            inner, is_emptied = self._cuts(item, one, is_ours, here)
            gone.append(is_emptied or is_ours(here, one))
            edits += [] if gone[-1] else inner
        last_kept = max((number for number, is_gone in enumerate(gone) if not is_gone), default=-1)
        for number, item in enumerate(node.items):
            if gone[number]:
                edits.append(Edit(len(self.text[: item.start].rstrip(_BLANKS)), item.end))
            if number + 1 < len(gone) and (gone[number] or number >= last_kept):
                comma = self.bare.index(",", item.end)
                edits.append(Edit(comma, comma + 1))
        interior = [Edit(start - node.bracket - 1, end - node.bracket - 1) for start, end, _ in edits]
        is_bare = not _applied(self.text[node.bracket + 1 : node.end - 1], interior).strip()
        return edits, bool(gone) and last_kept < 0 and is_bare


def _node(tokens: Iterator[re.Match[str]], first: re.Match[str]) -> Node:
    """Return the value that begins with this token of a valid text."""
    node = Node(first.start())
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
            node.items.append(_node(tokens, token))
        else:
            next(tokens)  # the colon
            item = _node(tokens, next(tokens))
            item.start, item.key = token.start(), json.loads(token[0])
            node.items.append(item)
    return node


def _ours(value: Any, is_ours: IsOurs, path: Where) -> Iterator[tuple[Where, Any]]:
    if is_ours(path, value):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _ours(one, is_ours, (*path, key))
    elif isinstance(value, list):
        for one in value:
            yield from _ours(one, is_ours, path)


def _applied(text: str, edits: list[Edit]) -> str:
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
