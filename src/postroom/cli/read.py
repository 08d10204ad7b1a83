"""Enclosed files, put into a folder: each under a name that is safe, none outside it, none over another.

The name of a file is its sender's word, and senders are strangers. Only its last piece counts, without what would
hide it, name an option, or mislead the eye.
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
from ..errors import Invalid, StoreFailing, UnknownMessage
from ..formats.plain import plain_letter, plain_message
from ..model.codec import to_plain
from ..model.message import same_name
from ..model.query import read_query, words
from ..store.address import file_of
from . import views
from .copies import FULL
from .errors import NOTHING, CannotCreate, Usage
from .output import Answer, again, ago, hint, painted, sayable, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..letter import Letter
    from ..model.message import Message, Part
    from ..model.query import Term
    from .context import Context
    from .output import Screen


LONGEST = 200  # bytes of a name: file systems take 255
MOST = 1000  # files of one name
NAMELESS = "file"
_FORBIDDEN = frozenset('/\\:*?"<>|')  # by some file system, or by every one


def folder_for(context: Context) -> Path:
    """The folder that was named, made if need be; looked at before the letter is."""
    folder = Path(context.get("save"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as broken:
        what = f"{str(folder)!a} cannot be used: {broken.strerror}"
        raise CannotCreate(what, field="--save", hint="name a folder") from None
    return folder


def save(context: Context, message: Message, folder: Path) -> list[dict[str, Any]]:
    """The files of a letter, and where they are now."""
    room, saved = file_of(context.settings.store), []
    for part in message.parts:
        content = _content(part)
        if content is not None:
            place = _write(folder, _apart(folder, safe_name(part["path"]), room), content)
            saved.append({"path": part["path"], "file": sayable(str(place)), "bytes": len(content)})
    return saved


def safe_name(path: str) -> str:
    """What a file is called here, whatever its sender called it."""
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
    """The bytes that are enclosed; None when this is no file, or one that was not enclosed."""
    held = part.get("bytes") if part.type == "file" else None
    if not isinstance(held, str):
        return None
    try:
        return binascii.a2b_base64(held, strict_mode=True)
    except (ValueError, binascii.Error):
        raise Invalid(f"{part['path']!a} is not base64 text", field="--save") from None


def _apart(folder: Path, name: str, room: str | None) -> str:
    """Not as the room's own files are called: a log that was planted beside a room would be taken for its own."""
    own = room is not None and os.path.realpath(folder / name).startswith(os.path.realpath(room))
    return f"saved-{name}" if own else name


def _write(folder: Path, name: str, content: bytes) -> Path:
    """Under the first name that is free."""
    for place in _places(folder, name):
        try:
            descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except OSError as broken:
            raise _failed(place, broken) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as broken:
            with suppress(OSError):
                place.unlink()
            raise _failed(place, broken) from None
        return place
    raise CannotCreate(f"there are too many files called {name!a}", field="--save", hint="name another folder")


def _places(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name
    stem, dot, end = name.rpartition(".")
    for number in range(2, MOST + 1):
        yield folder / (f"{stem}-{number}{dot}{end}" if dot else f"{name}-{number}")


def _failed(place: Path, broken: OSError) -> CannotCreate | StoreFailing:
    kind = StoreFailing if broken.errno in FULL else CannotCreate
    return kind(f"{str(place)!a} cannot be written: {broken.strerror}", field="--save")


# The commands that look at mail. Reading stamps, and never takes.

_WANTED = {"kinds": "kind", "sender": "from"}
_SAME = ("min_priority", "thread", "thread_tag", "tag", "scope")
FOR_EVER = 1e9  # seconds


def filters_of(context: Context) -> dict[str, Any]:
    """Which letters are wanted, under the library's names."""
    return context.options_given(*_SAME, **_WANTED) | context.options_given("since")


def run_check(context: Context) -> Answer:
    found = context.mailbox.check(
        context.get("limit", 20),
        unread_only=not context.get("all"),
        peek=bool(context.get("peek")),
        **filters_of(context),
    )
    if not found:
        context.note_if_unknown()
    data = {"mailbox": context.me, "letters": [plain_letter(letter) for letter in found]}
    view = partial(views.inbox, states=bool(context.get("all")))
    return Answer(context.name, data, view, letters=tuple(letter.message for letter in found))


def run_read(context: Context) -> Answer:
    if context.get("markdown"):
        context.screen.tables = False
    id, box = context.get("id"), context.mailbox
    folder = None if context.get("save") is None else folder_for(context)
    try:
        letter = box.read(id)
    except UnknownMessage as missing:
        if any(message.id == id and same_name(message.sender, box.name) for message in box.thread(id)):
            text = f"{id}{again(context.screen, '')}"
            missing.hint = f"you sent it: postroom thread {text}, or postroom trace {text}"
        raise
    saved = None if folder is None else save(context, letter.message, folder)
    data = {"letter": plain_letter(letter), "saved": saved}
    return Answer(context.name, data, views.read, letters=(letter.message,))


def run_wait(context: Context) -> Answer | Iterator[Answer]:
    names, wanted = _awaited(context)
    context.try_out(lambda box: box.room.wait(names, 0, **wanted))
    if context.get("follow"):
        return _follow(context)
    found = _wait(context, context.get("timeout", 30.0), context.get("cursor"))
    return _waited(context, found)


def _follow(context: Context) -> Iterator[Answer]:
    """Letter after letter: first the unread mail, then by the cursor of the last one, so that what somebody else
    reads meanwhile is seen too.
    """
    cursor: Any = context.get("cursor")
    something = False
    if cursor is None:
        cursor = (
            context.room.cursor()
        )  # before the look: what comes meanwhile may be shown twice, never not at all
        seen = set()
        while (found := _wait(context, 0.0, None)) and found.id not in seen:
            seen.add(found.id)  # whoever only peeks would get the same letter for ever
            something = True
            yield _waited(context, found)
    while found := _wait(context, context.get("timeout", FOR_EVER), cursor):
        cursor = found.cursor
        something = True
        yield _waited(context, found)
    if not something:
        yield _waited(context, None)


def _awaited(context: Context) -> tuple[list[str], dict[str, Any]]:
    """At which mailboxes, for which letters."""
    return [context.me, *context.get("at_mailbox", ())], context.options_given(*_SAME, **_WANTED)


def _wait(context: Context, timeout: float, since: Any) -> Letter | None:
    names, wanted = _awaited(context)
    return context.room.wait(names, timeout, since=since, peek=bool(context.get("peek")), **wanted)


def _waited(context: Context, found: Letter | None) -> Answer:
    if found is None:
        nothing = {"letter": None, "cursor": str(context.get("cursor") or context.room.cursor())}
        return Answer(context.name, nothing, views.letter, code=NOTHING)
    data = {"letter": plain_letter(found), "cursor": str(found.cursor)}
    return Answer(context.name, data, views.letter, letters=(found.message,))


def run_counts(context: Context) -> Answer:
    counted = context.mailbox.counts()
    if not counted["total"]:
        context.note_if_unknown()
    return Answer(context.name, {"mailbox": context.me, **counted}, views.counts)


def run_sent(context: Context) -> Answer:
    found = context.mailbox.sent(context.get("limit", 20))
    if not found:
        context.note_if_unknown()
    data = {"mailbox": context.me, "letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, views.outbox, letters=tuple(found))


def run_digest(context: Context) -> Answer:
    text = context.mailbox.digest(**context.options_given("budget", "most", "longest"))
    if not context.mailbox.counts()["total"]:
        context.note_if_unknown()
    return Answer(context.name, {"mailbox": context.me, "text": text}, views.digest)


# The command that finds letters. On a terminal it shows the line that says it, with the words marked.

_WORD = re.compile(r"[^\W_]+")
_BEFORE = 30  # characters shown before the first word that was looked for


def run_search(context: Context) -> Answer:
    query = " ".join(context.get("query"))
    terms = read_query(
        query, SystemClock().now().wall
    ).terms  # what is not understood is told before a room is opened
    whose = context.room if context.get("everyone") else context.mailbox
    found = whose.search(query, ranked=bool(context.get("ranked")), **context.options_given("limit"))
    data = {"letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, partial(_results, terms), letters=tuple(found))


def _results(terms: Sequence[Term], screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables or not data["letters"]:
        return views.letters(screen, data)
    wanted = Wanted(terms)
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


class Wanted:
    """The words that were looked for."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._words = {word for term in terms for word in term.words}
        self._beginnings = tuple(term.words[-1] for term in terms if term.begins)

    def line(self, text: str) -> str:
        """The first line that holds one of them, else the first there is; it begins near the word."""
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        for line in lines:
            for piece in _WORD.finditer(line):
                if self._holds(piece[0]):
                    start = max(piece.start() - _BEFORE, 0)
                    return f"…{line[start:]}" if start else line
        return lines[0] if lines else ""

    def marked(self, screen: Screen, line: str) -> str:
        """A line that is safe to show, with the words in colour."""
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


# The commands about threads and conversations. Each shows what the caller may see.


def run_thread(context: Context) -> Answer:
    id, everyone = context.get("id"), context.get("everyone")
    if context.get("chain"):
        if everyone:
            raise Usage("shows your own view", field="--chain")
        return _letters(context, context.mailbox.reply_chain(id))
    return _letters(context, context.room.thread(id) if everyone else context.mailbox.thread(id))


def run_tagged(context: Context) -> Answer:
    return _letters(context, context.mailbox.tagged(context.get("tag"), context.get("scope")))


def run_threads(context: Context) -> Answer:
    found = (context.room if context.get("everyone") else context.mailbox).threads(context.get("limit", 50))
    return Answer(context.name, {"threads": to_plain(found)}, views.threads)


def run_conversations(context: Context) -> Answer:
    whose = context.room if context.get("everyone") else context.mailbox
    found = whose.conversations(scope=context.get("scope"), limit=context.get("limit", 50))
    return Answer(context.name, {"conversations": to_plain(found)}, views.conversations)


def run_conversation(context: Context) -> Answer:
    found = context.mailbox.conversation(context.get("id"))
    return Answer(context.name, {"conversation": to_plain(found)}, views.conversation)


def run_turns(context: Context) -> Answer:
    found = (context.room if context.get("everyone") else context.mailbox).turns(context.get("id"))
    return Answer(context.name, {"turns": to_plain(found)}, views.turns)


def _letters(context: Context, found: Sequence[Message]) -> Answer:
    data = {"letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, views.thread, letters=tuple(found))
