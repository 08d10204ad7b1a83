"""Mail by the design's names: send_mail, check_mail, unread, mark_read, archive_old_mail.

Letters are sent, settled and archived by the room, so nothing here can lose one. They are read from the files,
which are the truth: read ones too, in the order of time, under the names they have there.
"""

from __future__ import annotations

import os
from calendar import timegm
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import messages
from ..core.compose import Draft, seal
from ..core.deliveries import SLICE, move_found
from ..core.retention import EVER
from ..core.validation import check_seconds
from ..errors import IdTaken, Invalid, Missing, Unreadable
from ..model import delivery as model_delivery
from ..model.delivery import OPEN, State
from ..model.names import check_agent, check_party
from ..model.query import Query
from ..store.files import durable, letter_files
from ..store.files.layouts.base import Where, line_in
from ..store.files.layouts.chipset import LAYOUT
from ..store.sqlite.rows import micros
from .folder import LARGEST, text_of, time_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..clock import Clock
    from ..core.messages import Receipt
    from ..letter import Letter
    from ..mailbox import Mailbox
    from ..room import Room
    from ..store.files.letter_files import ParsedFile
    from .folder import Fields, StateFolder


MAIL, ARCHIVE = LAYOUT.home, "archive"
TYPES = tuple(LAYOUT.kinds)
PRIORITIES = ("urgent", "normal", "low")
A_DAY = 24 * 3600.0
_REQUIRED = ("from", "to", "type", "subject", "body")
_SAID = {*_REQUIRED, "priority", "timestamp", "read"}
_LARGEST = 16 * LARGEST
_TRIES = 20  # for a name that no other letter has


class Mail(Struct, frozen=True, kw_only=True):
    """One letter: the design's eight fields, and the file it lies in. `sender` is `from` in the file."""

    sender: str
    to: str
    type: str
    subject: str
    body: str
    timestamp: str
    read: bool
    priority: str
    filename: str

    def to_dict(self) -> Fields:
        """The eight fields, as they stand in the file."""
        fields = {
            name: getattr(self, name) for name in self.__struct_fields__ if name not in {"sender", "filename"}
        }
        return {"from": self.sender, **fields}


class Mailboxes:
    """The mail of a state folder. `room` is the room over the same folder."""

    def __init__(self, folder: StateFolder, room: Room, clock: Clock) -> None:
        self._folder = folder
        self._room = room
        self._clock = clock

    def send_mail(self, message: Mapping[str, Any], *, key: str | None = None) -> Mail:
        """Send a letter: from, to, type, subject, body, and priority, which is normal by default.

        When this returns, it is on stable storage. A `timestamp` in the message is the letter's time, in the file
        and in its name; without one it is now. `read` may be there, and is the room's to say. The same key again
        sends nothing twice.
        """
        value = _checked(message)
        sent = self._send(value, key).message
        return Mail(
            sender=sent.sender,
            to=sent.recipients[0].address,
            type=value["type"] if value["type"] in TYPES else LAYOUT.other_kind,
            subject=sent.subject,
            body=value["body"],
            timestamp=text_of(sent.created_at),
            read=False,
            priority=value.get("priority", "normal"),
            filename=f"{sent.id}{LAYOUT.ending}",
        )

    def check_mail(self, agent: str) -> list[Mail]:
        """Everything in a mailbox, read or not, the oldest first. Looking changes nothing."""
        self._room.quarantined()  # whatever is asked of the room, it takes in what strangers did first
        found = sorted(self._sheets(agent), key=lambda each: (each[1].message.created_at, each[1].order, each[0]))
        return [_mail(sheet, name, agent) for name, sheet in found]

    def unread(self, agent: str) -> list[Mail]:
        """What was not marked as read yet."""
        return [mail for mail in self.check_mail(agent) if not mail.read]

    def mark_read(self, agent: str, filename: str) -> None:
        """This letter is done with. Nothing happens if it is gone or was read before."""
        home, name = self._home(agent), _file_name(filename)
        for place in ("", ARCHIVE):
            sheet = self._sheet(agent, home, place, name)
            if sheet is not None and sheet.state.state is not State.DONE:
                self._settle(agent, sheet.message.id)

    def archive_old_mail(self, agent: str, older_than: float | timedelta = A_DAY) -> int:
        """Put letters into `archive/` that were written so long ago and are read; says how many went.

        What nobody has read stays where it is, however old.
        """
        span = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        now = self._clock.now().wall
        cutoff = now - timedelta(seconds=check_seconds(span, "older_than", most=1e9))
        self._room.quarantined()
        old = [
            sheet.message.id
            for _, sheet in self._sheets(agent, ("",))
            if sheet.state.state is State.DONE and sheet.message.created_at <= cutoff
        ]
        slices = (tuple(old[start : start + SLICE]) for start in range(0, len(old), SLICE))
        return sum(self._put_away(self._room.mailbox(agent), ids, now) for ids in slices)

    # -- below

    def _send(self, value: Fields, key: str | None) -> Receipt:
        box, to, time = self._room.mailbox(value["from"]), check_party(value["to"], "to"), value.get("timestamp")
        fields = {"subject": value["subject"], "kind": value["type"], "priority": value.get("priority", "normal")}
        if key is not None:
            fields["key"] = key
        if time is None:
            return box.send(to, value["body"], **fields)
        return self._send_at(_time(time), Draft(sender=box.name, to=to, body=value["body"], **fields))

    def _send_at(self, time: datetime, draft: Draft) -> Receipt:
        """Send a letter whose time its sender chose. Its file's name begins with that time and ends with digits
        that no other letter has: where one has them, other digits are tried.
        """
        core, principal = self._room._core, self._room._principal
        for last in range(_TRIES, 0, -1):
            named = draft.but(id=_id_at(draft.sender, time))
            now = core.now().wall
            post = messages.prepare(core, principal, named, now)
            letter = replace(post.message, created_at=time)
            sent = tuple(replace(one, delivered_at=now) for one in post.deliveries)  # its age counts from now
            post = replace(post, message=letter, deliveries=sent, encoded=seal(letter, core.limits))
            try:
                (receipt,) = messages.commit_posts(core, [post], [post])
            except IdTaken as taken:
                if taken.field != "id" or last == 1:
                    raise
                continue
            is_by_key = letter.key is not None and receipt.message.key == letter.key
            if is_by_key or not receipt.repeated:  # else another letter of the same words has these digits
                return receipt
        raise IdTaken(field="id")

    def _put_away(self, box: Mailbox, ids: tuple[str, ...], now: datetime) -> int:
        """Each of them is asked about again in the commit: somebody may be quicker."""
        query = Query(mailbox=box.name, message_ids=ids, states=(State.DONE,), unarchived_before=EVER)
        moved = move_found(box._core, query, "archive", lambda delivery: model_delivery.archive(delivery, now))
        return len(moved)

    def _settle(self, agent: str, id: str) -> None:
        box = self._room.mailbox(agent)
        letter = _read(box, id) or _read(box, self._id_there(box, id))
        if letter is not None and letter.state is not State.DONE:
            with suppress(Missing):  # it went meanwhile
                letter.ack(archive=False)

    @staticmethod
    def _id_there(box: Mailbox, id: str) -> str:
        """A second letter under a name of ours, with other content, has a longer id in the room."""
        found = box._core.store.find(Query(mailbox=box.name, states=tuple(OPEN)))
        return next((each.message.id for each in found if each.message.id.startswith(f"{id[:180]}.")), id)

    def _sheets(self, agent: str, places: tuple[str, ...] = ("", ARCHIVE)) -> Iterator[tuple[str, ParsedFile]]:
        """What lies in the mailbox; and in its archive, what nobody has read: a stranger put it there."""
        home = self._home(agent)
        for place in places:
            for name in self._folder.names(*_at(home, place)):
                sheet = self._sheet(agent, home, place, name)
                if sheet is not None and (not place or sheet.state.state is State.UNREAD):
                    yield name, sheet

    def _sheet(self, agent: str, home: str, place: str, name: str) -> ParsedFile | None:
        """None if it is gone, or is no letter: the room sets that aside, and says so, once it is sure."""
        try:
            self._folder.check_folders(*_at(home, place))
            raw, stamp = durable.read("/".join((self._folder.path, *_at(home, place), name)), _LARGEST)
            written = datetime.fromtimestamp(stamp.written // 1000 / 1e6, UTC)
            where = Where(check_agent(agent, "agent"), place, name, written)
            return letter_files.parse_file(LAYOUT, raw, where, _LARGEST)
        except (FileNotFoundError, Unreadable):
            return None

    def _home(self, agent: str) -> str:
        return self._folder.spelling(agent, MAIL)


def _read(box: Mailbox, id: str) -> Letter | None:
    try:
        return box.read(id)
    except Missing:
        return None


def _at(home: str, place: str) -> tuple[str, ...]:
    return (MAIL, home, place) if place else (MAIL, home)


def _mail(sheet: ParsedFile, name: str, agent: str) -> Mail:
    fields, message = sheet.fields, sheet.message
    to, type, body, timestamp = (fields.get(name) for name in ("to", "type", "body", "timestamp"))
    priority = fields.get("priority")
    return Mail(
        sender=message.sender,
        to=to if isinstance(to, str) else agent,
        type=type if isinstance(type, str) else LAYOUT.other_kind,
        subject=line_in(fields.get("subject")),
        body=body if isinstance(body, str) else message.text,
        timestamp=timestamp if isinstance(timestamp, str) else text_of(message.created_at),
        read=sheet.state.state is State.DONE,
        priority=priority if priority in PRIORITIES else "normal",
        filename=name,
    )


def _checked(message: Any) -> Fields:
    """What a sender must say, and nothing that no letter of the design has."""
    if not isinstance(message, Mapping):
        raise Invalid(f"must be an object, not {type(message).__name__}", field="message")
    value = dict(message)
    for name in _REQUIRED:
        if not isinstance(value.get(name), str):
            raise Invalid("is missing, or no text", field=name, hint=", ".join(_REQUIRED))
    if strange := sorted(map(str, set(value) - _SAID)):
        raise Invalid("a letter has no such field", field=strange[0], hint=", ".join(sorted(_SAID)))
    if value.get("timestamp") is not None:
        _time(value["timestamp"])
    if value.get("priority", "normal") not in PRIORITIES:
        raise Invalid(f"{value['priority']!a} is no priority", field="priority", hint=", ".join(PRIORITIES))
    return value


def _time(value: Any) -> datetime:
    time = time_in(value)
    if time is None or time.year < 1970 or micros(time) >= letter_files.LATEST:
        raise Invalid(f"{value!a} is no time", field="timestamp", hint="in ISO form, such as 2026-03-05T10:30:00Z")
    return time


def _id_at(sender: str, time: datetime) -> str:
    """A new id for this time. What the time leaves open (a whole second: nine digits) comes from the clock."""
    now = time_ns()
    whole = timegm(time.utctimetuple()) * 1_000_000 + (time.microsecond or now // 1000 % 1_000_000)
    return LAYOUT.fresh_id(sender, whole * 1000, now % 1000)


def _file_name(name: Any) -> str:
    """The name of a letter's file, and no path."""
    if not isinstance(name, str) or os.path.basename(name) != name or not LAYOUT.may_hold(name) or "\0" in name:
        raise Invalid(f"{name!a} is no letter's name", field="filename", hint="as check_mail tells it")
    return name
