"""The codec of alerts: what a watch's program and the receiver of a webhook read of waiting letters.

Sender and subject were written by the sender of the letter; receivers must treat them as untrusted text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.presentation import escape_json
from ..model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.alert import AlertLetter, Rung


WAITING = "mail.waiting"  # unread mail that was not announced before, or is urgent
TEST = "mail.test"  # a test call
MOST_NAMED = 50  # letters that are listed in a call; the others are counted
LONGEST_SUBJECT = 200


def letter_record(letter: AlertLetter) -> dict[str, Any]:
    """Return what an alert shows of a letter."""
    return {
        "id": letter.id,
        "from": letter.sender,
        "subject": letter.subject,
        "priority": letter.priority.name.lower(),
        "unproven": letter.unproven,
    }


def alert_record(rung: Rung) -> dict[str, Any]:
    """Return an alert as the program of a watch reads it."""
    return {"mailbox": rung.mailbox, "unread": rung.unread, "letters": list(map(letter_record, rung.letters))}


def webhook_call(
    mailbox: str, at: datetime, unread: int = 0, letters: Sequence[AlertLetter] = (), *, type: str = WAITING
) -> bytes:
    """Return the body of a webhook's call about waiting letters, or of a test call."""
    content = {
        "type": type,
        "timestamp": at,
        "mailbox": mailbox,
        "unread": unread,
        "letters": list(map(_call_record, letters[:MOST_NAMED])),
        "more": max(0, len(letters) - MOST_NAMED),
    }
    return escape_json(encode(content))


def _call_record(letter: AlertLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "from": letter.sender,
        "verified": letter.proven and not letter.unproven,
        "unproven": letter.unproven,
        "subject": letter.subject[:LONGEST_SUBJECT],
        "priority": letter.priority.name.lower(),
        "thread": letter.thread,
    }
