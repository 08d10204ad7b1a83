"""Mail with the design's verbs: send_mail, check_mail, unread, mark_read, archive_old_mail; letters of the flow.

The room finds, sends, settles and archives letters, so nothing here can lose one. They are shown as they stand in
their files, which are the truth: all of them, read or not, in the order of time, under the names of their files.
"""

from __future__ import annotations

import os
from calendar import timegm
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import folders, messages, work
from ..core.compose import encode_within_limit
from ..core.deliveries import SLICE, find_letters, move_found
from ..core.retention import EVER
from ..core.verb import checked_mailbox, perform
from ..errors import IdTaken, Invalid, Missing
from ..model import delivery as model_delivery
from ..model.codec import blake2b
from ..model.delivery import State
from ..model.names import check_party
from ..model.query import Query
from ..model.values import check_seconds
from ..store.files import letter_files
from ..store.files.layouts.base import line_in, text_of, time_or_none
from ..store.files.layouts.chipset import LAYOUT
from ..store.sqlite.rows import micros

if TYPE_CHECKING:
    from datetime import datetime

    from ..core.authorize import Principal
    from ..core.compose import Draft
    from ..core.core import Core
    from ..core.messages import Receipt
    from ..model.message import Message
    from .folder import Fields
    from .hooks import Hook, Item


ARCHIVE = "archive"
TYPES = tuple(LAYOUT.kinds)
ASSIGNMENT, COMPLETION, ESCALATION = "work_assignment", "completion_report", "health_escalation"
REASSIGN = "It did not answer. Reassign the item."
SPENT = "It did not answer, and the item was started as often as it may be. A human is told."
PRIORITIES = ("urgent", "normal", "low")
A_DAY = 24 * 3600.0
_LISTED = (State.UNREAD, State.CLAIMED, State.DONE)
_REQUIRED = ("from", "to", "type", "subject", "body")
_FIELDS = {*_REQUIRED, "priority", "timestamp", "read"}
_TRIES = 20  # attempts to find an unused file name


class Mail(Struct, frozen=True, kw_only=True):
    """One letter: the design's eight fields, and the name of its file. `sender` is `from` in the file."""

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
        """Return the eight fields of the file."""
        fields = {
            name: getattr(self, name) for name in self.__struct_fields__ if name not in {"sender", "filename"}
        }
        return {"from": self.sender, **fields}


class Mailboxes:
    """The mail of a state folder. `core` is that of the room over the same folder."""

    def __init__(self, core: Core, principal: Principal) -> None:
        self._core = core
        self._principal = principal

    def send_mail(self, message: Mapping[str, Any], *, key: str | None = None) -> Mail:
        """Send a letter: from, to, type, subject, body, and priority, which is normal by default.

        When this returns, it is on stable storage. A `timestamp` in the message is the letter's time, in the file
        and in its name; the default is now. A `read` in it is ignored. A second send with the same key has no
        effect.
        """
        fields = _check_fields(message)
        # Through the room, so that quota, allow list and loop guard hold for programs of the design, too.
        sent = self._send(fields, key).message
        written = LAYOUT.write(sent, sent.recipients[0].address)
        return _mail(written, sent, f"{sent.id}{LAYOUT.ending}", is_read=False)

    def check_mail(self, agent: str) -> list[Mail]:
        """Return all letters of a mailbox, read or not, the oldest first. This changes nothing."""
        query = Query(mailbox=checked_mailbox(self._core, agent), states=_LISTED)
        # Unread letters in the archive are listed too: another program may have put one there.
        found = [one for one in find_letters(self._core, query) if one.delivery.archived_at is None]
        found.sort(key=lambda one: (one.message.created_at, one.delivery.number))
        return [
            _mail(fields, one.message, name, is_read=one.delivery.state is State.DONE)
            for one, name, fields in folders.file_contents(self._core, found)
        ]

    def unread(self, agent: str) -> list[Mail]:
        """Return the letters that are not marked as read."""
        return [mail for mail in self.check_mail(agent) if not mail.read]

    def mark_read(self, agent: str, filename: str) -> None:
        """Mark a letter as read, which settles it. Do nothing if it is gone or was read before."""
        mailbox, name = checked_mailbox(self._core, agent), _file_name(filename)
        for place in ("", ARCHIVE):
            id = folders.id_in_file(self._core, mailbox, place, name)
            if id is not None:
                with suppress(Missing):  # it was deleted meanwhile
                    perform(self._core, self._principal, work.Ack(agent_id=mailbox, ids=id, keep=True))

    def archive_old_mail(self, agent: str, older_than: float | timedelta = A_DAY) -> int:
        """Move read letters of at least this age into `archive/`, and return how many.

        Unread letters stay, however old they are.
        """
        span = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        mailbox, now = checked_mailbox(self._core, agent), self._core.now().wall
        cutoff = now - timedelta(seconds=check_seconds(span, "older_than", most=1e9))
        settled = Query(mailbox=mailbox, states=(State.DONE,), unarchived_before=EVER)
        old = [one.message.id for one in find_letters(self._core, settled) if one.message.created_at <= cutoff]
        slices = (tuple(old[start : start + SLICE]) for start in range(0, len(old), SLICE))
        # The commit looks at each letter again: another process may be faster.
        queries = (replace(settled, message_ids=ids) for ids in slices)
        moved = (
            move_found(self._core, query, "archive", partial(model_delivery.archive, now=now)) for query in queries
        )
        return sum(map(len, moved))

    # -- letters of the flow: assignment, completion, and escalation to the mayor or a human
    #
    # Each has an idempotency key made from its subject matter, and holds nothing that changes from one check to
    # the next: sent again after a crash, it is the same letter and arrives once (G3).

    def assign(self, sender: str, hook: Hook, body: str) -> None:
        """Send the assignment of the item on a hook to its owner."""
        title = f": {hook.item.title}" if hook.item.title else ""
        subject = f"{hook.item.bead_id} is on your hook{title}"
        self._send_once(ASSIGNMENT, sender, hook.agent_id, subject, body, ASSIGNMENT, *_assignment(hook))

    def complete(self, hook: Hook, mayor: str, body: str) -> None:
        """Send the completion report of a hook's owner to the mayor."""
        subject = f"{hook.item.bead_id} is done"
        self._send_once(COMPLETION, hook.agent_id, mayor, subject, body, COMPLETION, *_assignment(hook))

    def escalate(self, sender: str, to: str, subject: str, lines: list[str], *about: str) -> None:
        """Send an escalation; `about` identifies what it is about."""
        with suppress(IdTaken):  # it was sent before, with other text
            self._send_once(ESCALATION, sender, to, subject, "\n".join(lines), to, *about, priority="urgent")

    def notify_human(self, sender: str, human: str, hook: Hook, item: Item) -> None:
        lines = [*facts(hook, item), "", "It will not be started again until somebody decides."]
        subject = f"{line_in(item.bead)} was started {item.restarts + 1} times and is stuck"
        self.escalate(sender, human, subject, lines, item.bead, *item.starts)

    # -- below

    def _send_once(
        self, kind: str, sender: str, to: str, subject: str, body: str, *about: str, priority: str = "normal"
    ) -> None:
        key = f"chipset-{blake2b(' '.join(about).encode(), digest_size=16).hexdigest()}"
        draft = messages.Send(
            agent_id=sender, to=to, body=body, subject=line_in(subject), kind=kind, priority=priority, key=key
        )
        perform(self._core, self._principal, draft)

    def _send(self, mail: Fields, key: str | None) -> Receipt:
        draft = messages.Send(
            agent_id=checked_mailbox(self._core, mail["from"]),
            to=check_party(mail["to"], "to"),
            body=mail["body"],
            subject=mail["subject"],
            kind=mail["type"],
            priority=mail.get("priority", "normal"),
            key=key,
        )
        time = mail.get("timestamp")
        return perform(self._core, self._principal, draft) if time is None else self._send_at(_time(time), draft)

    def _send_at(self, time: datetime, draft: Draft) -> Receipt:
        """Send a letter with a time that its sender chose.

        The name of its file starts with that time and ends with digits that no other letter has: if another letter
        has them, other digits are tried.
        """
        core, principal = self._core, self._principal
        for last in range(_TRIES, 0, -1):
            named = replace(draft, letter_id=_id_at(draft.agent_id, time))
            now = core.now().wall
            (post,) = messages.prepare_all(core, principal, [named], now)
            letter = replace(post.message, created_at=time, proof=None)  # it was signed with another time
            sent = tuple(replace(one, delivered_at=now) for one in post.deliveries)  # its age in the inbox is real
            post = replace(post, message=letter, deliveries=sent, encoded=encode_within_limit(letter, core.limits))
            try:
                (receipt,) = messages.commit_posts(core, [post], [post])
            except IdTaken as taken:
                if taken.field != "id" or last == 1:
                    raise
                continue
            is_by_key = letter.key is not None and receipt.message.key == letter.key
            if is_by_key or not receipt.repeated:  # else another letter with the same content has these digits
                return receipt
        raise IdTaken(field="id")


def _mail(fields: Fields, message: Message, name: str, *, is_read: bool) -> Mail:
    """Return a letter as its file shows it, which any program may have written."""
    to, type, body, timestamp = (fields.get(name) for name in ("to", "type", "body", "timestamp"))
    priority = fields.get("priority")
    return Mail(
        sender=message.sender,
        to=to if isinstance(to, str) else message.recipients[0].address,
        type=type if isinstance(type, str) else LAYOUT.other_kind,
        subject=line_in(fields.get("subject")),
        body=body if isinstance(body, str) else message.text,
        timestamp=timestamp if isinstance(timestamp, str) else text_of(message.created_at),
        read=is_read,
        priority=priority if priority in PRIORITIES else "normal",
        filename=name,
    )


def facts(hook: Hook, item: Item) -> list[str]:
    """Return the facts, one to a line. Text from a hook is reduced to one line, so that it cannot add facts."""
    last = "never" if hook.last_activity is None else text_of(hook.last_activity)
    return [
        f"agent: {hook.agent_id}",
        f"bead: {line_in(item.bead)}",
        f"title: {line_in(hook.item.title)}",
        f"status: {hook.status}",
        f"last_activity: {last}",
        f"restarts: {item.restarts}",
    ]


def _assignment(hook: Hook) -> tuple[str, str, str]:
    """Return what identifies an assignment."""
    return hook.agent_id, hook.item.bead_id, str(hook.item.assigned_at)


def _check_fields(message: Any) -> Fields:
    """Return the fields of a message, or raise Invalid if one is missing, unknown or wrong."""
    if not isinstance(message, Mapping):
        raise Invalid(f"must be an object, not {type(message).__name__}", field="message")
    fields = dict(message)
    for name in _REQUIRED:
        if not isinstance(fields.get(name), str):
            raise Invalid("is missing, or no text", field=name, hint=", ".join(_REQUIRED))
    if unknown := sorted(map(str, set(fields) - _FIELDS)):
        raise Invalid("a letter has no such field", field=unknown[0], hint=", ".join(sorted(_FIELDS)))
    if fields.get("timestamp") is not None:
        _time(fields["timestamp"])
    if fields.get("priority", "normal") not in PRIORITIES:
        raise Invalid(f"{fields['priority']!a} is not a priority", field="priority", hint=", ".join(PRIORITIES))
    return fields


def _time(value: Any) -> datetime:
    time = time_or_none(value)
    if time is None or time.year < 1970 or micros(time) >= letter_files.LATEST:
        raise Invalid(f"{value!a} is not a time", field="timestamp", hint="write it as 2026-03-05T10:30:00Z")
    return time


def _id_at(sender: str, time: datetime) -> str:
    """Return a new id for a time.

    Digits that the time leaves open (nine for a whole second) come from the clock.
    """
    # Two letters of one sender in one second must not get one name (C2).
    now = time_ns()
    whole = timegm(time.utctimetuple()) * 1_000_000 + (time.microsecond or now // 1000 % 1_000_000)
    return LAYOUT.fresh_id(sender, whole * 1000, now % 1000)


def _file_name(name: Any) -> str:
    """Return the name of a letter's file; refuse a path."""
    if not isinstance(name, str) or os.path.basename(name) != name or not LAYOUT.may_hold(name) or "\0" in name:
        raise Invalid(f"{name!a} is not a letter's file name", field="filename", hint="use one from check_mail")
    return name
