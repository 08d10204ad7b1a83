"""What a store can be asked: for deliveries (mail at mailboxes), or for letters themselves."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..errors import Invalid, TooLarge
from .delivery import Delivery, State
from .message import Message, Priority
from .names import BROADCAST, check_id, check_kind, check_party, check_scope, fold
from .values import check_label, check_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .message import Part


# inbox: unread first, then priority, then age. priority: priority, then age. age and newest: acceptance.
Order = Literal["inbox", "priority", "age", "newest"]


class Moment(Struct, frozen=True, gc=False, kw_only=True):
    """Now, by both clocks: the wall's for what people agreed on, the machine's uptime for leases."""

    wall: datetime
    steady: float
    boot: str


class Found(Struct, frozen=True, gc=False):
    """A letter at a mailbox."""

    message: Message
    delivery: Delivery


class Query(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Deliveries. Every field narrows; the default asks for all."""

    mailbox: str | None = None
    states: tuple[State, ...] = ()
    message_ids: tuple[str, ...] = ()
    unread_only: bool = False  # without read_at
    shown_only: bool = False  # without what was taken back before its recipient looked
    kinds: tuple[str, ...] = ()
    min_priority: Priority = Priority.LOW
    sender: str | None = None
    thread: str | None = None
    thread_tag: str | None = None
    tag: str | None = None
    scope: str | None = None
    after: int | None = None  # came after this number; then the answer is in order of coming
    until: int | None = None  # and not after this one
    since: datetime | None = None  # created at or after
    sent_before: datetime | None = None  # created before
    offered_at: datetime | None = None  # not expired at this time
    due_at: datetime | None = None  # and not waiting for a later try
    due_most: datetime | None = None  # a retry set for later than this was set by a wrong clock, and is due
    unarchived_before: datetime | None = None  # acknowledged before, not archived yet
    order: Order = "inbox"
    limit: int | None = None


class LetterQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Letters, whoever got them."""

    thread: str | None = None
    thread_tag: str | None = None
    conversation: str | None = None
    scope: str | None = None
    party: str | None = None  # sent by, or delivered to
    sender: str | None = None
    replies_in: str | None = None  # a thread, without its root
    received_by: str | None = None  # delivered to
    to_several: bool = False  # delivered to more than one mailbox
    newest: int | None = None  # of one conversation or the replies of one thread: only the newest so many
    after: int = 0  # acceptance number
    settled_before: datetime | None = None  # every delivery done or dead by then
    spared: tuple[str, ...] = ()  # not these, by id
    order: Literal["age", "newest"] = "age"
    skip: int = 0
    limit: int | None = None


# How text becomes words that can be searched for, and what of a letter is such text.
#
# The same rule everywhere: for the letter, for the query, for a store that scans and for one that keeps an index.
# Case and accents do not count (`Café` is `cafe`). Whatever is neither letter nor digit parts words, so
# `a_b-c.py`
# is four of them, and so does what colours text on a terminal. Chinese and Japanese are written without blanks,
# so
# there every character is a word; so is every emoji.

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


# What a person types to find letters, and what it means.
#
#     merge sort              letters with both words
#     "merge sort"            with the words side by side; so is what hangs together, as `a_b` or `app/main.py`
#     sort*                   with a word that begins so
#     -draft                  without it; also -"some phrase", -from:bob, -tag:old
#     from:bob to:coder       sent by, addressed to
#     tag:red kind:task       carrying a tag, of a kind
#     thread:<id>             of the thread with this root
#     after:2030-01-31        written on that day (UTC) or later; also a time, or an age: after:7d
#     before:12h              written earlier than that
#
# Nothing else has a meaning: brackets, AND, NEAR and the like are words, or nothing. Several `from:`, `kind:` or
# `thread:` mean any of them, because a letter has only one; several of everything else must all be true.

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
