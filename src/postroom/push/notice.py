"""What a ring says: who wrote, about what, how urgent, and by which id it is found. Never what a letter says.

Sender and subject are words of whoever wrote the letter. In JSON they stand as values, cut to a length; a receiver
treats them as it would any stranger's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.codec import encode
from ..service.present import harmless_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.ring import RungLetter

WAITING = "mail.waiting"  # unread mail, which was not told of before or is urgent
TEST = "mail.test"  # somebody tries a webhook out
MOST = 50  # letters that are named; the rest is counted
LONGEST_SUBJECT = 200


def waiting(mailbox: str, at: datetime, unread: int, letters: Sequence[RungLetter]) -> bytes:
    """The body of a call: a pointer to what waits."""
    told = {
        "type": WAITING,
        "timestamp": at,
        "mailbox": mailbox,
        "unread": unread,
        "letters": [_letter(letter) for letter in letters[:MOST]],
        "more": max(0, len(letters) - MOST),
    }
    return harmless_json(encode(told))


def trial(mailbox: str, at: datetime) -> bytes:
    """The body of a call that only asks whether calls arrive. It is shaped like the others."""
    return encode({"type": TEST, "timestamp": at, "mailbox": mailbox, "unread": 0, "letters": [], "more": 0})


def _letter(letter: RungLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": letter.sender,
        "verified": letter.proven,
        "subject": letter.subject[:LONGEST_SUBJECT],
        "priority": letter.priority.name.lower(),
        "thread": letter.thread,
    }
