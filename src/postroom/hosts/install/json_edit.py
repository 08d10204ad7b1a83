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
