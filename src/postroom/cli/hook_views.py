"""Mail as a hook prints it: agent-inbox's headings, and each body inside a fence that it cannot break.

What stands outside the fence is written by the house; of a peer's words only sender, subject and thread stand
there, on one line, cut, behind words of ours.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import service
from ..model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUDGET = 9000  # characters; hosts cut what a hook says at 10,000
LONGEST = 2000  # characters of a body
SHORT = 200  # and at the start of a session
_LONGEST_WORDS = 200  # of a subject


def shown(
    entries: Sequence[Mapping[str, Any]], total: int, now: datetime, nonce: str, longest: int
) -> tuple[str, int]:
    """The text for as many of the first entries as fit, and how many those are."""
    head = f"## [Inbox] {total} new message(s)\n"
    pieces: list[str] = []
    room = BUDGET - len(head) - 100
    for entry in entries:
        piece = _letter(entry, now, nonce, longest)
        if len(piece) > room and pieces:
            break
        pieces.append(piece)
        room -= len(piece) + 1
    left = total - len(pieces)
    tail = [f"({left} more not shown here.)\n"] if left > 0 else []
    return "\n".join([head, *pieces, *tail]), len(pieces)


def _letter(entry: Mapping[str, Any], now: datetime, nonce: str, longest: int) -> str:
    words = [f"**From {_words(entry.get('from'))}** ({age(entry.get('timestamp'), now)} ago)"]
    if entry.get("importance") not in {None, "normal"}:
        words.append(f"[{_words(entry['importance'])}]")
    if entry.get("subject"):
        words.append(f"— {_words(entry['subject'])}")
    if entry.get("threadTag"):
        words.append(f"(thread: {_words(entry['threadTag'])})")
    id = f"Id: {_words(entry['messageId'])}\n" if entry.get("messageId") else ""
    fence = service.present.fence(_text(entry.get("content", entry.get("payload"))), nonce, longest)
    return f"{' '.join(words)}\n{id}{fence}\n"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and content.get("type") == "text" and isinstance(content.get("text"), str):
        return str(content["text"])
    return encode(content).decode()


def _words(value: Any) -> str:
    return service.present.one_line(str(value))[:_LONGEST_WORDS]


def age(timestamp: Any, now: datetime) -> str:
    """How old, in the largest unit that is full."""
    try:
        seconds = (now - datetime.fromisoformat(timestamp)).total_seconds()
    except (TypeError, ValueError):
        return "?"
    if seconds < 1:
        return "<1s"
    for unit, size, most in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86400)):
        if seconds < most:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86400)}d"
