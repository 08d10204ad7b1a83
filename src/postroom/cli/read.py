"""The commands that read mail: check, read, wait, counts, sent, digest, search, threads and conversations.

Reading marks a letter as read and never takes it. Files in a letter are saved under safe names: the name of a file
comes from its sender, so only its last piece counts, without characters that would hide it, make it an option or
mislead the eye; no file is written outside the folder or over another.
"""

from __future__ import annotations

import binascii
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..errors import Invalid, UnknownMessage
from ..model.message import same_name
from ..model.search import read_query, words
from ..store.address import file_of
from . import views
from .answer import printable
from .command import LIMIT, Option, command
from .errors import CannotCreate, cannot_write
from .output import again, ago, hint, painted, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..model.message import Message, Part
    from ..model.search import Term
    from .answer import Answer, Screen
    from .context import Context


# -- saving the files of a letter

LONGEST = 200  # bytes of a name: file systems take 255
MOST = 1000  # files of one name
NAMELESS = "file"
_FORBIDDEN = frozenset('/\\:*?"<>|')  # in names of some or all file systems


def folder_for(context: Context) -> Path:
    """Return the folder of --save, made if need be; checked before the letter is read."""
    folder = Path(context.get("save"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as broken:
        raise CannotCreate(
            f"{str(folder)!a} cannot be used: {broken.strerror}", field="--save", hint="name a folder"
        ) from None
    return folder


def save(context: Context, message: Message, folder: Path) -> list[dict[str, Any]]:
    """Save the files of a letter; return their names and places."""
    room, saved = file_of(context.settings.store), []
    for part in message.parts:
        content = _content(part)
        if content is not None:
            place = _write(folder, _apart(folder, safe_name(part["path"]), room), content)
            saved.append({"path": part["path"], "file": printable(str(place)), "bytes": len(content)})
    return saved


def safe_name(path: str) -> str:
    """Return a safe name for a file, whatever its sender called it."""
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    seen = "".join(c for c in last if c.isprintable() and c not in _FORBIDDEN)
    stem, dot, end = seen.lstrip(".-~ ").rstrip(". ").rpartition(".")
    if not dot:
        stem, end = end, ""
    ending = f"{dot}{_cut(end, LONGEST // 4)}" if dot else ""
    return f"{_cut(stem, LONGEST - len(ending.encode()))}{ending}" or NAMELESS


def _cut(text: str, most: int) -> str:
    return text.encode("utf-8", "ignore")[:most].decode("utf-8", "ignore")


def _content(part: Part) -> bytes | None:
    """Return the bytes of an enclosed file; None for a part that is no file, or a mere reference."""
    encoded = part.get("bytes") if part.type == "file" else None
    if not isinstance(encoded, str):
        return None
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except (ValueError, binascii.Error):
        raise Invalid(f"{part['path']!a} is not base64 text", field="--save") from None


def _apart(folder: Path, name: str, room: str | None) -> str:
    """Rename a file that is called like one of the room's own: SQLite would take a planted log for its own."""
    own = room is not None and os.path.realpath(folder / name).startswith(os.path.realpath(room))
    return f"saved-{name}" if own else name


def _write(folder: Path, name: str, content: bytes) -> Path:
    """Write a file under the first name that is free."""
    for place in _places(folder, name):
        try:
            descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except OSError as broken:
            raise cannot_write(f"{str(place)!a}", broken, "--save") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as broken:
            with suppress(OSError):
                place.unlink()
            raise cannot_write(f"{str(place)!a}", broken, "--save") from None
        return place
    raise CannotCreate(f"there are too many files called {name!a}", field="--save", hint="name another folder")


def _places(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name
    stem, dot, end = name.rpartition(".")
    for number in range(2, MOST + 1):
        yield folder / (f"{stem}-{number}{dot}{end}" if dot else f"{name}-{number}")


# -- looking at mail

FOR_EVER = 1e9  # seconds


command(
    "check",
    Option(
        "--all",
        name="unread_only",
        help="also mail that was read and is still in the inbox",
        kind="flag",
        value=False,
    ),
    verb="inbox.Check",
    view=views.inbox,
    without=("order",),
    about="Letters that are shown are marked as read, and stay in the inbox until they are acknowledged. An empty"
    " inbox is no error. On a terminal the answer is a table; otherwise each letter is printed whole, its content"
    " inside a fence that it cannot break.",
    examples=(
        ("postroom check --as coder", "what is new"),
        ("postroom check --as coder --all --min-priority high", "urgent and high, read or not"),
        ("postroom check --as coder --peek --json", "for a program, stamping nothing"),
    ),
    looks=True,
)


@command(
    "read",
    Option("--markdown", help="for a prompt, its content inside a fence, also on a terminal", kind="flag"),
    Option("--save", help="put the files it encloses into this folder", metavar="DIR", complete="files"),
    verb="inbox.Read",
    places=("id",),
    about="Marks it as read. --save makes the folder if need be. A file gets the last part of the name that its"
    " sender gave it, without hidden or misleading characters. Nothing is written outside the folder, and no"
    " file is overwritten: a second report.txt becomes report-2.txt.",
    examples=(
        ("postroom read m-1 --as researcher", "one letter"),
        ("postroom read m-1 --as researcher --save files", "and the files in it"),
    ),
    json="letter saved",
    looks=True,
)
def run_read(context: Context) -> Answer:
    if context.get("markdown"):
        context.screen.tables = False
    id, box = context.get("id"), context.mailbox
    folder = None if context.get("save") is None else folder_for(context)
    try:
        found = context.perform()
    except UnknownMessage as missing:
        if any(message.id == id and same_name(message.sender, box.name) for message in box.thread(id)):
            text = f"{id}{again(context.screen, '')}"
            missing.hint = f"you sent it: postroom thread {text}, or postroom trace {text}"
        raise
    saved = None if folder is None else save(context, found.letter.message, folder)
    answer = context.answer_with(found, views.read)
    answer.data = {**answer.data, "saved": saved}
    return answer


@command(
    "wait",
    Option(
        "--cursor",
        help="the next letter after this cursor, which an earlier wait or rooms changes printed, read or not",
        name="since",
        metavar="CURSOR",
    ),
    Option(
        "--follow",
        help="print one letter after the other, until none comes for the timeout; for ever without one",
        kind="flag",
    ),
    verb="inbox.Wait",
    view=views.letter,
    waits_for="letter",
    about="Wakes within milliseconds. It marks the letter as read and does not claim it: for work that must not be"
    " lost, use claim. --follow begins after --cursor, or else with the unread mail; with --json it prints"
    " one document per line, each with the cursor after it.",
    examples=(
        ("postroom wait --as researcher --timeout 30s", "the next letter"),
        ("postroom wait --as coder --thread m-2 --timeout 1s", "the answer to one letter"),
    ),
)
def run_wait(context: Context) -> Iterator[Answer]:
    """Answer with the next letter; with --follow with one after the other.

    These are first the unread mail, then what comes after the cursor. By the cursor, a letter that another process
    reads meanwhile is seen too.
    """
    if not context.get("follow"):
        yield context.answer()
        return
    cursor, timeout, has_answered = context.get("since"), context.get("timeout", FOR_EVER), False
    if cursor is None:
        # The cursor is taken before the look: a letter that comes meanwhile may be shown twice, never missed.
        cursor = str(context.room.cursor())
        seen = set()
        while (found := context.perform(timeout=0.0)).letter and found.letter.message.id not in seen:
            seen.add(found.letter.message.id)  # with --peek the same letter would come for ever
            has_answered = True
            yield context.answer_with(found)
    while (found := context.perform(since=cursor, timeout=timeout)).letter:
        cursor, has_answered = found.cursor, True
        yield context.answer_with(found)
    if not has_answered:
        yield context.answer_with(found)


command(
    "counts",
    verb="inbox.Counts",
    view=views.counts,
    examples=(("postroom counts --as coder", "how much is there"),),
    looks=True,
)


command(
    "sent",
    verb="search.Sent",
    view=views.outbox,
    about="trace shows what became of one; search from:NAME with words finds older ones.",
    examples=(
        ("postroom sent --as coder", "the last twenty"),
        ("postroom sent --as coder -n 1 --json", "the last one"),
    ),
    json="mailbox letters forwarded",
    looks=True,
)


@command(
    "digest",
    verb="inbox.Digest",
    view=views.digest,
    about="What others wrote stands inside a fence that they cannot close. Marks nothing as read.",
    examples=(("postroom digest --as coder --budget 2000", "for a prompt"),),
    json="mailbox text",
    looks=True,
)
def run_digest(context: Context) -> Answer:
    if not context.mailbox.counts()["total"]:
        context.note_if_unknown()
    return context.answer()


# -- search: on a terminal the line that matches is shown, with the words marked

_WORD = re.compile(r"[^\W_]+")
_BEFORE = 30  # characters shown before the first match


@command(
    "search",
    Option(
        "QUERY",
        name="query",
        help="words, and what else is wanted; several words must all be there",
        many=True,
        required=True,
    ),
    verb="search.Search",
    about='A query is made of words, "phrases", beginnings such as sort*, from:NAME, to:NAME, tag:LABEL,'
    " kind:WORD, thread:ID, before:WHEN and after:WHEN (a day, a time, or an age such as 7d); a - before one"
    " of them means without. Any other word before a colon, as in subject:x, is a word like the rest. Case"
    " and accents do not count. Your shell takes quotes away, so put a query with a phrase or a - into"
    " single quotes, and -- before one that begins with -."
    " It sees everything that was sent before it. On a terminal the answer is a table with the words"
    " marked; otherwise each letter is printed whole, its content inside a fence that it cannot break.",
    examples=(
        ("postroom search stable --as coder", "letters with a word"),
        (
            "postroom search '\"which sort\" from:coder -draft' --as researcher",
            "a phrase, by somebody, without a word",
        ),
        ("postroom search --everyone -- -draft", "all letters without a word"),
        (
            "postroom search sort kind:request after:7d --everyone --ranked --json",
            "the operator's view, for a program",
        ),
    ),
    looks=True,
)
def run_search(context: Context) -> Answer:
    query = " ".join(context.get("query"))
    terms = read_query(query, SystemClock().now().wall).terms  # a wrong query is refused before a room is opened
    return context.answer(partial(_results, terms), query=query)


def _results(terms: Sequence[Term], screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables or not data["letters"]:
        return views.letters(screen, data)
    wanted = QueryWords(terms)
    rows = [
        (
            screen.short(letter["id"]),
            ago(letter["created_at"], screen.now),
            letter["sender"],
            ", ".join(r["address"] for r in letter["recipients"]),
            letter["subject"],
            wanted.line(letter["text"]),
        )
        for letter in data["letters"]
    ]
    shown = table(
        screen, ("ID", "AGE", "FROM", "TO", "SUBJECT", "TEXT"), rows, mark=lambda cell: wanted.marked(screen, cell)
    )
    return shown + hint(screen, "thread ID", "shows what was said around it")


class QueryWords:
    """The words of a query, for finding and marking them in a text."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._words = {word for term in terms for word in term.words}
        self._beginnings = tuple(term.words[-1] for term in terms if term.begins)

    def line(self, text: str) -> str:
        """Return the first line that holds one of the words, from shortly before it; else the first line."""
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        for line in lines:
            for piece in _WORD.finditer(line):
                if self._holds(piece[0]):
                    start = max(piece.start() - _BEFORE, 0)
                    return f"…{line[start:]}" if start else line
        return lines[0] if lines else ""

    def marked(self, screen: Screen, line: str) -> str:
        """Return a line with the words in colour."""
        return _WORD.sub(lambda piece: self._mark(screen, piece[0]), line)

    def _mark(self, screen: Screen, piece: str) -> str:
        if len(words(piece)) > 1:  # a script without blanks: each character is a word
            return "".join(painted(screen, c, "yellow") if self._holds(c) else c for c in piece)
        return painted(screen, piece, "yellow") if self._holds(piece) else piece

    def _holds(self, piece: str) -> bool:
        return any(
            word in self._words or (self._beginnings and word.startswith(self._beginnings))
            for word in words(piece)
        )


# -- threads and conversations


@command(
    "thread",
    Option(
        "ID",
        name="thread",
        help="the thread's root letter; with --chain, any letter",
        required=True,
        complete="letters",
    ),
    LIMIT,
    Option("--chain", help="from the root down to this letter alone", kind="flag", against=("everyone",)),
    verb="threads.GetThread",
    view=views.thread,
    about="The letters you sent or received, the oldest first.",
    examples=(
        ("postroom thread m-1 --as researcher", "a whole thread"),
        ("postroom thread m-3 --as coder --chain", "how it came to this letter"),
    ),
    looks=True,
)
def run_thread(context: Context) -> Answer:
    if not context.get("chain"):
        return context.answer()
    from ..core.threads import GetReplyChain  # noqa: PLC0415 - only here

    return context.answer_with(context.perform(GetReplyChain, id=context.get("thread")))


command(
    "tagged",
    LIMIT,
    verb="threads.GetTagged",
    places=("tag",),
    view=views.thread,
    examples=(("postroom tagged release --as coder", "all about one label"),),
    looks=True,
)
command(
    "threads",
    verb="threads.ListThreads",
    view=views.threads,
    examples=(("postroom threads --as coder", "where something happened"),),
    looks=True,
)
command(
    "conversations",
    verb="threads.ListConversations",
    view=views.conversations,
    examples=(("postroom conversations --as coder", "what is talked about"),),
    looks=True,
)
command(
    "conversation",
    verb="threads.GetConversation",
    places=("conversation",),
    view=views.conversation,
    examples=(("postroom conversation conv-general:default --as coder", "the catch-all of a scope"),),
    looks=True,
)
command(
    "turns",
    LIMIT,
    verb="threads.ListTurns",
    places=("conversation",),
    view=views.turns,
    examples=(("postroom turns conv-general:default --as coder", "its letters, in order"),),
    looks=True,
)
