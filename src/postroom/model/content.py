"""Content as the inbox design says it: one object with a `type`. To our parts, and back exactly as it was said.

| said | part | comes back as |
|---|---|---|
| text | text | `{"type": "text", "text": ...}` |
| an object of a type that is ours too, and sound | as it is | as it was |
| an object of any other type, and every `file` | `{"type": "x-content", "content": the object}` | the object |
| anything else | data | `{"type": "data", "data": ...}` |

A `file` of theirs names a path on their machine, and ours brings its bytes. So theirs is carried as it is.
A letter of several parts has no word in that design: it comes out as its text, with all `parts` beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parts import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Message
    from .parts import Part

CARRIED = "x-content"  # the type of the part that carries an object of a stranger's type
_OURS = frozenset(FIELDS) - {"file"}


def payload_to_parts(payload: Any) -> list[dict[str, Any]]:
    """What a letter's body is made of, for content that was said in that design's words."""
    if isinstance(payload, str):
        return [{"type": "text", "text": payload}]
    if not is_typed(payload):
        return [{"type": "data", "data": payload}]
    return [dict(payload) if _is_ours(payload) else {"type": CARRIED, "content": payload}]


def is_typed(payload: Any) -> bool:
    return isinstance(payload, dict) and isinstance(payload.get("type"), str)


def content_of(parts: Sequence[Part]) -> dict[str, Any]:
    """The content of a letter as one object."""
    if len(parts) == 1:
        part = parts[0]
        if part.type == CARRIED and isinstance(carried := part.get("content"), dict):
            return carried
        return part.to_json()
    text = "\n\n".join(part["text"] for part in parts if part.type == "text")
    if not parts:
        return {"type": "text", "text": ""}
    plain = [content_of([part]) for part in parts]
    if any(part.type == "text" for part in parts):
        return {"type": "text", "text": text, "parts": plain}
    return {"type": "parts", "parts": plain}


def content_type(message: Message) -> str:
    kind = content_of(message.parts).get("type")
    return kind if isinstance(kind, str) else "data"


def _is_ours(payload: dict[str, Any]) -> bool:
    """Would it pass the check of our parts, and is it not what we carry others in?"""
    kind = payload["type"]
    if kind not in _OURS:
        return bool(kind.startswith("x-") and len(kind) > 2 and kind != CARRIED)
    return all(
        (name in payload or not required) and (wanted is not str or isinstance(payload.get(name, ""), str))
        for name, (required, wanted) in FIELDS[kind].items()
    )
