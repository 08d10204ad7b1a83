"""The pieces of a letter's content.

A part is a type and its fields, flat in JSON: `{"type": "text", "text": "..."}`. The five known types have
required fields; any `x-*` type is kept as it is. Fields a source format added are kept too.
"""

from __future__ import annotations

from typing import Any, Literal

from ..errors import Invalid
from .values import check_json, check_text

# type -> {field: (is it required?, the JSON types it may have)}; "any" means any JSON.
FIELDS: dict[str, dict[str, tuple[bool, Any]]] = {
    "text": {"text": (True, str)},
    "data": {"data": (True, Any), "schema": (False, str)},
    "event": {"event": (True, str), "data": (False, Any)},
    "file": {"path": (True, str), "mime": (False, str)},
    "reference": {"uri": (True, str), "label": (False, str)},
}
Known = Literal["text", "data", "event", "file", "reference"]
PART_RULE = "text, data, event, file, reference, or a type of your own that starts with 'x-'"


class Part:
    """One piece of content. Equal to another part with the same type and fields; never changes."""

    __slots__ = ("_fields", "type")

    def __init__(self, type: str, **fields: Any) -> None:
        self.type = type
        self._fields = fields

    def __getitem__(self, field: str) -> Any:
        return self._fields[field]

    def get(self, field: str, default: Any = None) -> Any:
        return self._fields.get(field, default)

    @property
    def is_bare_text(self) -> bool:
        """Text, and nothing that a source format added."""
        return self.type == "text" and len(self._fields) == 1

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, **self._fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.type == other.type and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((self.type, frozenset(self._fields)))  # the names alone: values may be lists

    def __repr__(self) -> str:
        inside = "".join(f", {name}={value!r}" for name, value in self._fields.items())
        return f"Part({self.type!r}{inside})"


class LocalFile(Part):
    """A file on this machine, which is read when the letter is sent.

    Only the sender's own code makes one. Nothing that reads JSON does: a path in a request or in a letter that was
    received is text, and nobody opens it.
    """

    __slots__ = ()


def text(content: str) -> Part:
    """Markdown text."""
    return made("text", {"text": content})


def data(content: Any, schema: str | None = None) -> Part:
    """JSON, optionally with the name of its schema."""
    return Part("data", data=content) if schema is None else Part("data", data=content, schema=schema)


def event(name: str, content: Any = None) -> Part:
    """Something that happened."""
    return Part("event", event=name) if content is None else Part("event", event=name, data=content)


def file(path: str, mime: str | None = None) -> Part:
    """A file of the sender, by its path: sending reads it and encloses its bytes."""
    return LocalFile("file", path=path) if mime is None else LocalFile("file", path=path, mime=mime)


def reference(uri: str, label: str | None = None) -> Part:
    """Something elsewhere, by its URI."""
    return Part("reference", uri=uri) if label is None else Part("reference", uri=uri, label=label)


def check_part(value: Any, field: str, depth: int) -> Part:
    """A checked, private copy of a part given as text, as a Part or as a JSON object."""
    if isinstance(value, str):
        return text(check_text(value, field))
    if isinstance(value, Part) and value.type == "text" and [*value._fields] == ["text"]:  # most of them
        return text(check_text(value["text"], f"{field}.text"))
    fields = value.to_json() if isinstance(value, Part) else value
    if not isinstance(fields, dict):
        raise Invalid(f"must be text, a part or an object, not {type(value).__name__}", field=field)
    checked: dict[str, Any] = check_json(fields, field, depth)
    kind = checked.pop("type", None)
    if not isinstance(kind, str) or not (kind in FIELDS or (kind.startswith("x-") and len(kind) > 2)):
        hint = PART_RULE if kind is not None else f"{PART_RULE}; plain JSON goes into data="
        raise Invalid(f"has the type {kind!a}", field=f"{field}.type", hint=hint)
    for name, (required, wanted) in FIELDS.get(kind, {}).items():
        if required and name not in checked:
            raise Invalid("is missing", field=f"{field}.{name}", hint=f"a {kind} part needs it")
        if wanted is str and not isinstance(checked.get(name, ""), str):
            raise Invalid("must be text", field=f"{field}.{name}")
    return part_from_json({"type": kind, **checked})


def part_from_json(fields: dict[str, Any]) -> Part:
    """A part as it was stored, made of the fields handed in; already checked when it was accepted."""
    return made(fields.pop("type"), fields)


def made(type: str, fields: dict[str, Any]) -> Part:
    """Of fields that were checked before. Quicker than to name them: most parts are made here."""
    part = _new(Part)
    part.type = type
    part._fields = fields
    return part


_new = object.__new__
