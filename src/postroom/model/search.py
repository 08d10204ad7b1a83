"""The search language, and text as words.

`SearchQuery` asks for letters by their words. One rule turns text into words, for letters and for queries, whether
a store scans or keeps an index: case and accents do not count (`Café` is `cafe`), and every character that is
neither letter nor digit separates words, so `a_b-c.py` is four words. Chinese and Japanese are written without
blanks, so each of their characters is a word; so is each emoji.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid, TooLarge
from .names import BROADCAST, check_id, check_kind, check_party, check_scope, fold
from .values import check_label, check_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .message import Message, Part


# Text as words

BREAK = "\ue000"  # separates two texts of a letter, so that no phrase matches across them
ESCAPE, _CSI = "\x1b", "\x9b"  # start a terminal control sequence: ESC with [, or CSI alone
ZERO_WIDTH_SPACE = "\u200b"  # separates words; all other invisible characters do not
_WITHOUT_BLANKS = ("CJK ", "HIRAGANA", "KATAKANA")  # prefixes of the Unicode names of such characters


class _Folded(dict[int, str]):
    """A translation table for `str.translate`, filled when a character is first met."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code)).casefold()
        self[code] = folded = "".join(map(_fold_character, unicodedata.normalize("NFKD", plain)))
        return folded


_FOLDED = _Folded()


def words(text: str) -> list[str]:
    """Return the words of a text, in order, in the form in which they are compared."""
    if has_controls(text):
        text = _controls().sub(" ", text)
    return text.translate(_FOLDED).split()


def has_controls(text: str) -> bool:
    """Return whether a text may hold terminal control sequences."""
    return ESCAPE in text or _CSI in text


@cache
def _controls() -> re.Pattern[str]:
    """Return the pattern of a control sequence, compiled when first needed: few texts hold any."""
    return re.compile(rf"(?:{ESCAPE}\[|{_CSI})[0-?]*[ -/]*[@-~]")


def stands_alone(word: str) -> bool:
    """Return whether a word is a character that is always a whole word, so that no longer word begins with it."""
    return len(word) == 1 and _fold_character(word) != word


def search_text(message: Message) -> str:
    """Return all searchable words of a letter, with a blank before and after each."""
    return f" {f' {BREAK} '.join(' '.join(words(text)) for text in texts(message))} "


def texts(message: Message) -> Iterator[str]:
    """Yield the searchable texts of a letter: never private fields such as metadata, context and keys."""
    yield message.subject
    yield message.sender
    yield from message.tags
    for part in message.parts:
        yield from _texts_of_part(part)


def _texts_of_part(part: Part) -> Iterator[str]:
    if part.type == "text":
        yield part["text"]
    elif part.type == "file":
        yield part["path"]  # its bytes are not searchable
    elif part.type == "reference":
        yield part["uri"]
        yield part.get("label") or ""
    else:
        yield from _strings({name: value for name, value in part.to_json().items() if name != "type"})


def _strings(value: Any) -> Iterator[str]:
    """Yield all text in a JSON value, without the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _fold_character(character: str) -> str:
    """Return what a decomposed character contributes to words: itself, a word of its own, a blank, or nothing."""
    if character == ZERO_WIDTH_SPACE:
        return " "
    category = unicodedata.category(character)
    if "\u0300" <= character <= "\u036f" or "\ufe00" <= character <= "\ufe0f" or category == "Cf":
        return ""  # accents, variants of emoji, invisible characters
    if category == "So" or unicodedata.name(character, "").startswith(_WITHOUT_BLANKS):
        return f" {character} "
    return character if category[0] in "LMN" else " "


# The search language:
#
#     merge sort              letters with both words
#     "merge sort"            with the words side by side; the same for joined words, as `a_b` or `app/main.py`
#     sort*                   with a word that starts like this
#     -draft                  without it; also -"some phrase", -from:bob, -tag:old
#     from:bob to:coder       sent by, addressed to
#     tag:red kind:task       carrying a tag, of a kind
#     thread:<id>             of the thread with this root
#     after:2030-01-31        written on that day (UTC) or later; also a time, or an age: after:7d
#     before:12h              written earlier than that
#
# Nothing else has a meaning: AND, NEAR and the like are words, brackets are ignored. Several `from:`, `kind:` or
# `thread:` mean any of them, because a letter has only one; of all other terms, every one must match.

LONGEST = 1000  # characters of a query
MOST_TERMS = 64
SHORTEST_PREFIX = 3  # characters before a `*`: shorter prefixes match a large part of all words
MARKS = {"from": "senders", "to": "recipients", "tag": "tags", "kind": "kinds", "thread": "threads"}
TIMES = ("before", "after")
RULE = 'words, "a phrase", from: to: tag: kind: thread: before: after:'
_ALMOST = {
    "sender": "from", "by": "from", "recipient": "to", "cc": "to", "label": "tag", "type": "kind",
    "since": "after", "newer": "after", "until": "before", "older": "before",
}  # fmt: skip
_QUOTES = str.maketrans("\u201c\u201d\u201e", '"""')
_PIECE = re.compile(r'(-?)(?:([A-Za-z]+):)?(?:"([^"]*)("?)|([^\s"]+)|(?=\s|$))|.', re.DOTALL)
_AGE = re.compile(r"(\d{1,6})([mhdw])")
_UNIT = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Term(Struct, frozen=True):
    """A word, or several words side by side."""

    words: tuple[str, ...]
    begins: bool = False  # the last word is a prefix


class Marks(Struct, frozen=True, kw_only=True):
    """Conditions on the fields of a letter, in the folded form in which they are compared."""

    senders: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A search for letters. Every field narrows it."""

    terms: tuple[Term, ...] = ()
    wanted: Marks = Marks()
    without: tuple[Term, ...] = ()
    unwanted: Marks = Marks()
    after: datetime | None = None  # written at this time or later
    before: datetime | None = None  # written earlier than this
    below: int | None = None  # with a smaller number of acceptance
    one_agent: tuple[tuple[str, ...], ...] = ()  # for each renamed agent: its present and former names, folded

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return all present and former names of the agent with this name."""
        return next((names for names in self.one_agent if name in names), (name,))


def read_query(text: Any, now: datetime) -> SearchQuery:
    """Return the search that a text asks for, or raise Invalid with the field `query`."""
    terms: dict[bool, list[Term]] = {True: [], False: []}  # True: wanted; False: unwanted
    marks: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    times: dict[str, list[datetime]] = {}
    for piece in _PIECE.finditer(check_text(text, "query", LONGEST).translate(_QUOTES)):
        minus, name, quoted, end, bare = piece.groups()
        if quoted is not None and not end:
            raise Invalid("a quote is not closed", field="query", hint='write "like this"')
        value, operator = (bare or "") if quoted is None else quoted, (name or "").lower()
        if operator in TIMES and minus:
            other = TIMES[1 - TIMES.index(operator)]
            raise Invalid(f"-{operator}: is not understood", field="query", hint=f"write {other}:{value[:30]}")
        if operator in TIMES:
            times.setdefault(operator, []).append(_time(operator, value, now))
        elif operator in MARKS:
            marks[not minus].setdefault(MARKS[operator], []).append(_mark(operator, value))
        else:
            _refuse_misspelt(operator)
            terms[not minus] += _terms(f"{name}:{value}" if name else value, is_quoted=quoted is not None)
    query = SearchQuery(
        terms=tuple(terms[True]),
        without=tuple(terms[False]),
        wanted=Marks(**{name: tuple(values) for name, values in marks[True].items()}),
        unwanted=Marks(**{name: tuple(values) for name, values in marks[False].items()}),
        after=max(times.get("after", ()), default=None),
        before=min(times.get("before", ()), default=None),
    )
    if query == SearchQuery():
        raise Invalid("there is nothing to look for", field="query", hint=RULE)
    of_fields = [*marks[True].values(), *marks[False].values()]
    if len(query.terms) + len(query.without) + sum(map(len, of_fields)) > MOST_TERMS:
        raise TooLarge(f"more than {MOST_TERMS} things to look for", field="query")
    return query


def _terms(text: str, *, is_quoted: bool) -> list[Term]:
    """Return the term that a text stands for; none if it is punctuation alone."""
    found = tuple(words(text))
    begins = bool(found) and text.endswith("*") and not is_quoted and not stands_alone(found[-1])
    if begins and len(found[-1]) < SHORTEST_PREFIX:
        raise Invalid(
            f"{text[:20]!a} begins too many words",
            field="query",
            hint="write at least three letters before the *",
        )
    return [Term(found, begins)] if found else []


def _mark(operator: str, value: str) -> str:
    """Return the value of an operator such as `from:`, checked and folded."""
    if not value:
        raise Invalid(f"{operator}: needs a value", field="query", hint=f"write it as {operator}:name")
    if operator == "thread":
        return check_id(value, "query")
    if operator == "tag":
        return check_label(value, "query").casefold()
    if operator == "kind":
        return check_kind(value, "query").casefold()
    if operator == "to" and value.startswith(BROADCAST):
        return BROADCAST + fold(check_scope(value.removeprefix(BROADCAST), "query"))
    return fold(check_party(value, "query"))


def _time(operator: str, value: str, now: datetime) -> datetime:
    """Return the time that a day, a time (UTC unless it has a zone) or an age stands for."""
    age = _AGE.fullmatch(value.lower())
    try:
        if age:
            return now - timedelta(**{_UNIT[age[2]]: int(age[1])})
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{operator}: {value[:40]!a} is not a time",
            field="query",
            hint="2030-01-31, 2030-01-31T14:00, or an age such as 30m, 12h, 7d, 2w",
        ) from None


def _refuse_misspelt(operator: str) -> None:
    """Refuse an operator that looks like a typing error: `form:bob`, but not `https://…` and `12:30`."""
    meant = _ALMOST.get(operator)
    if meant is None and len(operator) > 2:
        from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

        meant = next(iter(get_close_matches(operator, (*MARKS, *TIMES), n=1, cutoff=0.75)), None)
    if meant is not None:
        raise Invalid(
            f"{operator}: is not understood", field="query", hint=f'{meant}: or, as words, "{operator} …"'
        )
