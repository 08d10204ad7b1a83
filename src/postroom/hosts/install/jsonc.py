"""A JSON file as it is written: each value, and where it stands. Comments are taken where a host takes them.

Knows no host. The text is never written anew from its values: whoever changes a file puts in and cuts out.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ...errors import Invalid

DEEPEST = 64  # levels; no settings file has more
_BLANKS = " \t\r\n"


class Item(NamedTuple):
    """A member of an object, or an element of a list."""

    key: str | None
    start: int  # of the key, where there is one
    node: Node
    comma: int | None  # the place of the comma behind it; None of the last


class Node(NamedTuple):
    """A value, and from where to where it stands."""

    start: int
    end: int
    value: Any
    items: tuple[Item, ...] = ()
    inside: int = 0  # of an object or list: behind the last that is no blank, before it closes

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def at(self, key: str) -> Node | None:
        """What stands under this key. Where it stands twice the last one counts, as for every host."""
        return next((item.node for item in reversed(self.items) if item.key == key), None)


def parse(text: str, *, comments: bool) -> Node:
    """The value of a whole file."""
    reader = _Reader(text, comments=comments)
    start = reader.skip(1 if text.startswith("\ufeff") else 0)
    node = reader.value(start, 0)
    end = reader.skip(node.end)
    if end < len(text):
        raise reader.fault(end, "nothing may follow")
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
        """Over blanks and comments, to what comes next."""
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
            raise self.fault(at, "too deep")
        if self._text.startswith(("{", "["), at):
            return self._container(at, depth, "}" if self._text[at] == "{" else "]")
        try:
            found, end = self._scalar(self._text, at)
        except (ValueError, RecursionError):
            raise self.fault(at, "no JSON") from None
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
        """Where something may be put in before it closes: not before a comment on what stands there already."""
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
