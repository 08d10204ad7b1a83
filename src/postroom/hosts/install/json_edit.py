"""Edits of JSON files that keep everything else as it is written, comments included where the host allows them.

The text is parsed with the position of each value. It is never serialised again: an edit only inserts or cuts.
This module knows no host.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Invalid, Refused
from .text_edit import Edit, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


DEEPEST = 64  # levels; no settings file has more
_BLANKS = " \t\r\n"


class Item(NamedTuple):
    """A member of an object, or an element of a list."""

    key: str | None
    start: int  # of the key, where there is one
    node: Node
    comma: int | None  # the position of the comma after it; None if it is the last


class Node(NamedTuple):
    """A value and its position in the text."""

    start: int
    end: int
    value: Any
    items: tuple[Item, ...] = ()
    inside: int = 0  # of an object or list: where a new item is inserted, after the last item and its comments

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def at(self, key: str) -> Node | None:
        """Return the value of a key. If the key occurs twice, the last one counts, as for every host."""
        return next((item.node for item in reversed(self.items) if item.key == key), None)


def parse(text: str, *, comments: bool) -> Node:
    """Parse a whole file."""
    reader = _Reader(text, comments=comments)
    start = reader.skip(1 if text.startswith("\ufeff") else 0)
    node = reader.value(start, 0)
    end = reader.skip(node.end)
    if end < len(text):
        raise reader.fault(end, "nothing may follow the value")
    return node


class _Reader:
    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments
        self._scalar = json.JSONDecoder(parse_constant=self._no_constant).raw_decode

    def fault(self, at: int, what: str) -> Invalid:
        line = self._text.count("\n", 0, at) + 1
        return Invalid(f"line {line}: {what}", hint="put that right first: the host does not read it either")

    def skip(self, at: int) -> int:
        """Return the position after blanks and comments."""
        text = self._text
        while at < len(text):
            if text[at] in _BLANKS:
                at += 1
            elif self._comments and text.startswith("//", at):
                at = _end_of(text, "\n", at, 0)
            elif self._comments and text.startswith("/*", at):
                at = _end_of(text, "*/", at + 2, 2)
            else:
                break
        return at

    def value(self, at: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.fault(at, "nested too deeply")
        if self._text.startswith(("{", "["), at):
            return self._container(at, depth, "}" if self._text[at] == "{" else "]")
        try:
            found, end = self._scalar(self._text, at)
        except (ValueError, RecursionError):
            raise self.fault(at, "not JSON") from None
        return Node(at, end, found)

    def _container(self, start: int, depth: int, closing: str) -> Node:
        items: list[Item] = []
        inside, at = start + 1, self.skip(start + 1)
        while not self._text.startswith(closing, at) or (items and items[-1].comma is not None):
            if items and items[-1].comma is None:
                raise self.fault(at, f"a comma or {closing} is missing")
            item = self._item(at, depth, is_member=closing == "}")
            items.append(item)
            inside = item.node.end
            at = self.skip(inside if item.comma is None else item.comma + 1)
        return Node(start, at + 1, _value_of(items, closing), tuple(items), self._behind_comments(inside, at))

    def _item(self, at: int, depth: int, *, is_member: bool) -> Item:
        start, key = at, None
        if is_member:
            named = self.value(at, depth + 1)
            if not isinstance(named.value, str):
                raise self.fault(at, "a name is missing")
            key = named.value
            colon = self.skip(named.end)
            if not self._text.startswith(":", colon):
                raise self.fault(colon, "a colon is missing")
            at = self.skip(colon + 1)
        node = self.value(at, depth + 1)
        behind = self.skip(node.end)
        return Item(key, start, node, behind if self._text.startswith(",", behind) else None)

    def _behind_comments(self, inside: int, closing: int) -> int:
        """Return where an item can be inserted: after a comment on the last item, before the closing bracket."""
        return inside + len(self._text[inside:closing].rstrip(_BLANKS))

    @staticmethod
    def _no_constant(name: str) -> None:
        raise ValueError(name)


def _value_of(items: list[Item], closing: str) -> Any:
    if closing == "}":
        return {item.key: item.node.value for item in items}
    return [item.node.value for item in items]


def _end_of(text: str, mark: str, at: int, size: int) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found + size


# -- edits
#
# An inserted value stands last in its object or list, with the indentation and line ends of the file.

if TYPE_CHECKING:
    Where = tuple[str, ...]  # the keys that lead to a value; elements of a list have the path of the list
    IsOurs = Callable[[Where, Any], bool]

_UNIT = "  "


def put_in(text: str, node: Node, extra: Any, path: Where = ()) -> list[Edit]:
    """Return the edits that add these members and elements. Existing objects are extended, nothing is replaced."""
    if isinstance(node.value, list) and isinstance(extra, list):
        return _insert(text, node, [_written(text, node, value) for value in extra])
    if not (node.is_object and isinstance(extra, dict)):
        kinds = f"is {_kind(node.value)} where {_kind(extra)} is needed"
        raise Refused(f"{'.'.join(path) or 'the whole'} {kinds}")
    edits, fresh = [], []
    for key, value in extra.items():
        there = node.at(key)
        if there is None:
            fresh.append(f"{json.dumps(key)}: {_written(text, node, value)}")
        else:
            edits += put_in(text, there, value, (*path, key))
    return edits + _insert(text, node, fresh)


def take_out(text: str, node: Node, is_ours: IsOurs) -> list[Edit]:
    """Return the edits that cut out our values, and every list and object that is empty then."""
    edits, is_emptied = _take_out(text, node, is_ours, ())
    return [Edit(node.start + 1, node.end - 1)] if is_emptied else edits


def ours_in(node: Node, is_ours: IsOurs, path: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Yield our values, each with its path."""
    for item in node.items:
        here = path if item.key is None else (*path, item.key)
        if is_ours(here, item.node.value):
            yield here, item.node.value
        else:
            yield from ours_in(item.node, is_ours, here)


# -- putting in


def _insert(text: str, node: Node, written: Sequence[str]) -> list[Edit]:
    if not written:
        return []
    newline, indent = _newline(text), _inner_indent(text, node)
    body = ",".join(f"{newline}{indent}{one}" for one in written)
    if "\n" not in text[node.inside : node.end - 1]:
        body += newline + _indent_at(text, node.start)
    if not node.items:
        return [Edit(node.inside, node.inside, body)]
    last = node.items[-1].node.end
    if last == node.inside:
        return [Edit(last, last, f",{body}")]
    # A comment stands after the last item: the comma goes before the comment, the new items after it.
    return [Edit(last, last, ","), Edit(node.inside, node.inside, body)]


def _written(text: str, node: Node, value: Any) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + _inner_indent(text, node)).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return the indentation of one level: that of the first indented line of the file."""
    return next((found for line in text.split("\n") if line.strip() and (found := _indent_of(line))), _UNIT)


def _inner_indent(text: str, node: Node) -> str:
    """Return the indentation of items in an object or list: that of its first item, if that begins a line."""
    if node.items and not text[text.rfind("\n", 0, node.items[0].start) + 1 : node.items[0].start].strip():
        return _indent_at(text, node.items[0].start)
    return _indent_at(text, node.start) + _unit(text)


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line at this position."""
    return _indent_of(text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0])


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a plain value"


# -- taking out


def _take_out(text: str, node: Node, is_ours: IsOurs, path: Where) -> tuple[list[Edit], bool]:
    """Return the edits, and whether the object or list would be empty."""
    edits: list[Edit] = []
    gone: list[Item] = []
    for item in node.items:
        here = path if item.key is None else (*path, item.key)
        inner: list[Edit] = []
        is_emptied = is_ours(here, item.node.value)
        if not is_emptied:
            inner, is_emptied = _take_out(text, item.node, is_ours, here)
        if is_emptied:
            gone.append(item)
        edits += [] if is_emptied else inner
    if not gone:
        return edits, False
    edits += [cut for item in gone for cut in _cuts(text, item)]
    kept = [item for item in node.items if item not in gone]
    if not kept:
        return edits, not _interior(text, node, edits).strip()
    # JSON allows no comma after the last item: if the items behind it went, its comma goes too.
    if kept[-1].comma is not None and kept[-1] is not node.items[-1]:
        edits.append(Edit(kept[-1].comma, kept[-1].comma + 1))
    return edits, False


def _cuts(text: str, item: Item) -> Iterator[Edit]:
    """Cut an item with the blanks before it, and its comma; a comment between the two stays."""
    before = len(text[: item.start].rstrip(" \t\r\n"))
    yield Edit(before, item.node.end)
    if item.comma is not None:
        yield Edit(item.comma, item.comma + 1)


def _interior(text: str, node: Node, edits: Sequence[Edit]) -> str:
    """Return the text that these edits leave between the brackets."""
    moved = [Edit(cut.start - node.start - 1, cut.end - node.start - 1) for cut in edits]
    return apply(text[node.start + 1 : node.end - 1], moved)


def value_at(value: Any, *names: str) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
