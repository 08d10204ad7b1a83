"""What a person types to find letters, and what it means.

    merge sort              letters with both words
    "merge sort"            with the words side by side; so is what hangs together, as `a_b` or `app/main.py`
    sort*                   with a word that begins so
    -draft                  without it; also -"some phrase", -from:bob, -tag:old
    from:bob to:coder       sent by, addressed to
    tag:red kind:task       carrying a tag, of a kind
    thread:<id>             of the thread with this root
    after:2030-01-31        written on that day (UTC) or later; also a time, or an age: after:7d
    before:12h              written earlier than that

Nothing else has a meaning: brackets, AND, NEAR and the like are words, or nothing. Several `from:`, `kind:` or
`thread:` mean any of them, because a letter has only one; several of everything else must all be true.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from ..errors import Invalid, TooLarge
from .names import BROADCAST, check_id, check_kind, check_party, check_scope, fold
from .values import check_label, check_text
from .words import stands_alone, words

LONGEST = 1000  # characters of a query
MOST_TERMS = 64
SHORTEST_PREFIX = 3  # letters before a `*`: what begins with fewer is half of all words
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
    """Words side by side."""

    words: tuple[str, ...]
    begins: bool = False  # the last one need only begin so


class Marks(Struct, frozen=True, kw_only=True):
    """What is written on a letter, as it is compared: names, tags and kinds whatever their case."""

    senders: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()


class SearchQuery(Struct, frozen=True, kw_only=True):
    """Letters. Every field narrows."""

    terms: tuple[Term, ...] = ()
    wanted: Marks = Marks()
    without: tuple[Term, ...] = ()
    unwanted: Marks = Marks()
    after: datetime | None = None  # written at this time or later
    before: datetime | None = None  # written earlier than this
    one_agent: tuple[tuple[str, ...], ...] = ()  # names, folded, that are or were one agent's

    def names_of(self, name: str) -> tuple[str, ...]:
        """All names of the agent that is or was called so."""
        return next((names for names in self.one_agent if name in names), (name,))


def read_query(text: Any, now: datetime) -> SearchQuery:
    """What was typed, understood; or Invalid, with the field `query`."""
    reading = _Reading(now)
    for piece in _PIECE.finditer(check_text(text, "query", LONGEST).translate(_QUOTES)):
        reading.take(piece)
    return reading.query()


class _Reading:
    """A query as far as it was read."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._terms: dict[bool, list[Term]] = {True: [], False: []}
        self._marks: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
        self._times: dict[str, list[datetime]] = {}

    def take(self, piece: re.Match[str]) -> None:
        minus, name, quoted, end, bare = piece.groups()
        if quoted is not None and not end:
            raise Invalid("a quote is not closed", field="query", hint='write "like this"')
        wanted, value = not minus, (bare or "") if quoted is None else quoted
        operator = (name or "").lower()
        if operator in TIMES:
            self._take_time(operator, value, wanted=wanted)
        elif operator in MARKS:
            self._marks[wanted].setdefault(MARKS[operator], []).append(_mark(operator, value))
        else:
            _refuse_misspelt(operator)
            self._take_term(f"{name}:{value}" if name else value, quoted is not None, wanted=wanted)

    def _take_term(self, text: str, quoted: bool, *, wanted: bool) -> None:
        found = tuple(words(text))
        if not found:
            return  # punctuation alone
        begins = text.endswith("*") and not quoted and not stands_alone(found[-1])
        if begins and len(found[-1]) < SHORTEST_PREFIX:
            raise Invalid(f"{text[:20]!a} begins too many words", field="query", hint="three letters before the *")
        self._terms[wanted].append(Term(found, begins))

    def _take_time(self, operator: str, value: str, *, wanted: bool) -> None:
        if not wanted:
            other = TIMES[1 - TIMES.index(operator)]
            raise Invalid(f"-{operator}: is not understood", field="query", hint=f"write {other}:{value[:30]}")
        self._times.setdefault(operator, []).append(_time(operator, value, self._now))

    def query(self) -> SearchQuery:
        query = SearchQuery(
            terms=tuple(self._terms[True]),
            without=tuple(self._terms[False]),
            wanted=_gathered(self._marks[True]),
            unwanted=_gathered(self._marks[False]),
            after=max(self._times.get("after", ()), default=None),
            before=min(self._times.get("before", ()), default=None),
        )
        if query == SearchQuery():
            raise Invalid("there is nothing to look for", field="query", hint=RULE)
        marks = [*self._marks[True].values(), *self._marks[False].values()]
        if len(query.terms) + len(query.without) + sum(map(len, marks)) > MOST_TERMS:
            raise TooLarge(f"more than {MOST_TERMS} things to look for", field="query")
        return query


def _gathered(marks: dict[str, list[str]]) -> Marks:
    return Marks(**{name: tuple(values) for name, values in marks.items()})


def _mark(operator: str, value: str) -> str:
    if not value:
        raise Invalid(f"{operator}: is followed by nothing", field="query", hint=f"as in {operator}:name")
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
    """A day, a time (UTC, unless it says otherwise), or an age."""
    age = _AGE.fullmatch(value.lower())
    try:
        if age:
            return now - timedelta(**{_UNIT[age[2]]: int(age[1])})
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "2030-01-31, 2030-01-31T14:00, or an age such as 30m, 12h, 7d, 2w"
        raise Invalid(f"{operator}: {value[:40]!a} is no time", field="query", hint=hint) from None


def _refuse_misspelt(operator: str) -> None:
    """`form:bob` is a slip; `https://…` and `12:30` are words."""
    meant = _ALMOST.get(operator)
    if meant is None and len(operator) > 2:
        from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

        meant = next(iter(get_close_matches(operator, (*MARKS, *TIMES), n=1, cutoff=0.75)), None)
    if meant is not None:
        raise Invalid(
            f"{operator}: is not understood", field="query", hint=f'{meant}: or, as words, "{operator} …"'
        )
