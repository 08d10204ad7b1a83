"""How text becomes words that can be searched for, and what of a letter is such text.

The same rule everywhere: for the letter, for the query, for a store that scans and for one that keeps an index.
Case and accents do not count (`Café` is `cafe`). Whatever is neither letter nor digit parts words, so `a_b-c.py`
is four of them, and so does what colours text on a terminal. Chinese and Japanese are written without blanks, so
there every character is a word; so is every emoji.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .message import Message
    from .parts import Part

BREAK = "\ue000"  # stands between two texts of a letter; no text holds it as a word, so no phrase goes across
ESCAPE, _CSI = "\x1b", "\x9b"  # what begins a sequence for a terminal, with [ or alone
ZERO_WIDTH_SPACE = "\u200b"  # a blank for all but the eye; whatever else nobody sees joins
_WITHOUT_BLANKS = ("CJK ", "HIRAGANA", "KATAKANA")  # how the names of such characters begin


class _Folded(dict[int, str]):
    """What becomes of each character; worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code)).casefold()
        self[code] = folded = "".join(map(_kept, unicodedata.normalize("NFKD", plain)))
        return folded


_FOLDED = _Folded()


def words(text: str) -> list[str]:
    """The words of a text, in order, as they are compared."""
    if has_controls(text):
        text = _controls().sub(" ", text)
    return text.translate(_FOLDED).split()


def has_controls(text: str) -> bool:
    """May it hold sequences that steer a terminal?"""
    return ESCAPE in text or _CSI in text


@cache
def _controls() -> re.Pattern[str]:
    """Colours and the like, from their beginning to the letter that ends them. Few texts hold any."""
    return re.compile(rf"(?:{ESCAPE}\[|{_CSI})[0-?]*[ -/]*[@-~]")


def stands_alone(word: str) -> bool:
    """Is it a character that is a word by itself? Then no word begins with it."""
    return len(word) == 1 and _kept(word) != word


def wording(message: Message) -> str:
    """All that can be searched for in a letter: its words, with a blank before and after each."""
    return f" {f' {BREAK} '.join(' '.join(words(text)) for text in texts(message))} "


def texts(message: Message) -> Iterator[str]:
    """Subject, sender, tags, and the text in the parts. Never what is private: metadata, context, keys."""
    yield message.subject
    yield message.sender
    yield from message.tags
    for part in message.parts:
        yield from _texts_of_part(part)


def _texts_of_part(part: Part) -> Iterator[str]:
    if part.type == "text":
        yield part["text"]
    elif part.type == "file":
        yield part["path"]  # its bytes are no words
    elif part.type == "reference":
        yield part["uri"]
        yield part.get("label") or ""
    else:
        yield from _strings({name: value for name, value in part.to_json().items() if name != "type"})


def _strings(value: Any) -> Iterator[str]:
    """All text in a JSON value; the names of its fields do not count."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _kept(character: str) -> str:
    if character == ZERO_WIDTH_SPACE:
        return " "
    category = unicodedata.category(character)
    if "\u0300" <= character <= "\u036f" or "\ufe00" <= character <= "\ufe0f" or category == "Cf":
        return ""  # accents, variants of emoji, and what nobody sees
    if category == "So" or unicodedata.name(character, "").startswith(_WITHOUT_BLANKS):
        return f" {character} "
    return character if category[0] in "LMN" else " "
