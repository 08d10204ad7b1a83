"""Values of the house as plain JSON, every field always there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..model.codec import to_plain

if TYPE_CHECKING:
    from ..letter import Letter, Work
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..service.sending import Receipt


def plain_letter(letter: Letter) -> dict[str, Any]:
    """A letter in a mailbox."""
    return plain_message(letter.message) | {"delivery": plain_delivery(letter.delivery)}


def plain_work(work: Work, seconds: float) -> dict[str, Any]:
    """A letter that was claimed, with the proof of it."""
    lease = work.delivery.lease
    return plain_letter(work) | {"token": lease.token if lease else None, "lease_seconds": seconds}


def plain_message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(message))
    plain["priority"] = message.priority.name.lower()
    plain["task"] = None if message.task is None else to_plain(asdict(message.task))
    return plain | {"text": message.text, "thread": message.thread}


def plain_delivery(delivery: Delivery) -> dict[str, Any]:
    """Without the lease's token: it is shown once, to whoever claims."""
    plain: dict[str, Any] = to_plain(asdict(delivery))
    del plain["lease"], plain["priority"], plain["message_id"]
    return plain | {"holder": delivery.lease.holder if delivery.lease else None}


def plain_move(letter: Letter) -> dict[str, Any]:
    """What became of a letter that was settled."""
    held = letter.delivery
    due = to_plain(held.due_at)
    return {
        "id": letter.id,
        "state": str(held.state),
        "attempts": held.attempts,
        "reason": held.reason,
        "due_at": due,
    }


def plain_receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "thread": receipt.thread,
        "repeated": receipt.repeated,
        "unknown": list(receipt.unknown),
        "routed": list(receipt.routed),
        "letter": plain_message(receipt.message),
    }
