"""The writes of one commit as the function `apply` takes them: JSON, and beside it the bodies of the letters.

What a write does to the tables stands in `schema/functions.sql`. Here letters that may repeat another one, or that
a guard must see, are looked at under the lock before they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...model.codec import encode
from ...model.delivery import REDIRECTED, SIGNS_OF_LIFE
from ...model.names import AT, fold
from ...model.record import FORGOTTEN, GUARD, ROUTE, SPENT, pair_key
from ..protocol import Forget, Introduce, Move, Post, Put, Rename
from ..queries import MEANT, by_key
from ..sqlite.rows import COLUMNS, delivery_row, letter_row
from ..sqlite.writes import repeat_of_letter, repeat_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...model.delivery import Delivery
    from ..protocol import Posted, Write
    from .connection import Row

_COLUMNS = ("number", "id", "sender", "created_at", "kind", "scope", "tags", "thread", "thread_tag")
LETTER_COLUMNS = (*_COLUMNS, "conversation", "key", "sum")  # as `rows.letter_row` has them, without the body

# All that must be known before a letter is accepted: what is left of an earlier letter with its id or key, and
# whether any mailbox has a guard, and any agent is known to be at another system.
BEFORE_POST = f"""
SELECT (SELECT value FROM ROOM.records WHERE kind = '{FORGOTTEN}' AND key = ?),
       (SELECT value FROM ROOM.records WHERE kind = '{SPENT}' AND key = ?),
       (SELECT body FROM ROOM.letters WHERE id = ?),
       EXISTS (SELECT FROM ROOM.records WHERE kind = '{GUARD}'),
       EXISTS (SELECT FROM ROOM.records WHERE kind = '{ROUTE}')"""
_IS_KNOWN = f"SELECT 1 FROM ROOM.mailboxes WHERE known AND id = ({MEANT})"


def as_json(writes: Sequence[Write]) -> tuple[bytes, list[bytes]]:
    """Return the writes as `apply` takes them, and the bodies of their letters."""
    bodies: list[bytes] = []
    return encode([_form(write, bodies) for write in writes]), bodies


def _form(write: Write, bodies: list[bytes]) -> dict[str, Any]:
    if isinstance(write, Post):
        return _post(write, bodies)
    if isinstance(write, Move):
        return _move(write)
    if isinstance(write, Put):
        record = write.record
        value = None if record.value is None else encode(record.value).decode()
        form = {
            "write": "put",
            "kind": record.kind,
            "key": record.key,
            "revision": record.revision,
            "value": value,
        }
        return form | {"first": write.first, "durable": write.durable}
    if isinstance(write, Forget):
        return {"write": "forget", "id": write.message_id}
    if isinstance(write, Introduce):
        return {"write": "introduce", "mailbox": write.mailbox, "known": write.known}
    if isinstance(write, Rename):
        return {"write": "rename", "old": write.old, "new": write.new}
    return {"write": "renew"}


def _post(post: Post, bodies: list[bytes]) -> dict[str, Any]:
    message, body = post.message, post.encoded or encode(post.message)
    deliveries = post.deliveries
    if all(replace(one, mailbox=deliveries[0].mailbox) == deliveries[0] for one in deliveries[1:]):
        deliveries = deliveries[:1]  # the server makes the others like the first
    *letter, _ = letter_row(message, 0, 0, body)
    bodies.append(body)
    return {
        "write": "post",
        "letter": dict(zip(LETTER_COLUMNS, letter, strict=True)),
        "sender": message.sender,
        "spent": pair_key(message.sender, message.key or message.id),
        "names": [*(delivery.mailbox for delivery in post.deliveries), *post.copies],
        "deliveries": [_delivery(delivery) for delivery in deliveries],
        "quota": post.quota,
        "outbox": post.outbox,
        "known_only": post.known_only,
        "asks": post.admit is not None,
    }


def _move(move: Move) -> dict[str, Any]:
    before = move.before
    return {
        "write": "move",
        "action": move.action,
        "mailbox": before.mailbox,
        "to": move.after.mailbox if move.action == REDIRECTED else None,
        "revision": before.revision,
        # A claim that was lost with the server may have been made again, at the same revision (G5).
        "token": None if before.lease is None else before.lease.token,
        "lives": move.action in SIGNS_OF_LIFE,
        "after": _delivery(move.after, before.number),
    }


def _delivery(delivery: Delivery, number: int = 0) -> dict[str, Any]:
    row = dict(zip(COLUMNS, delivery_row(delivery, number, 0), strict=True))
    row["seen"] = int(row["seen"])
    row["history"] = None if row["history"] is None else row["history"].decode()
    return {name: value for name, value in row.items() if value is not None}


def must_look(writes: Sequence[Write]) -> bool:
    """Return whether a letter must be looked at under the lock: its recipient must be found there, or the same
    commit writes a record that decides about it.
    """
    posts = [write for write in writes if isinstance(write, Post)]
    kinds = (
        {write.record.kind for write in writes if isinstance(write, Put)} if len(posts) < len(writes) else set()
    )
    return any(post.routes for post in posts) or bool(posts and kinds & {GUARD, ROUTE, FORGOTTEN, SPENT})


def look(run: Callable[[str, Any], list[Row]], post: Post) -> Posted | Post:
    """Return the letter as it may be written, or the result of the first one if it repeats another.

    Call it under the lock.
    """
    message = post.message
    spent = pair_key(message.sender, message.key or message.id)
    forgotten, gone, body, is_guarded, is_led = run(BEFORE_POST, (message.id, spent, message.id))[0]
    # No refusal counts for a letter that repeats another (G3).
    if forgotten is not None:
        return repeat_of_memory(message, forgotten, "id")
    if gone is not None:
        return repeat_of_memory(message, gone, "key")
    if body is not None:
        return repeat_of_letter(message, body, "id")
    if message.key is not None and (first := run(*by_key(message.sender, message.key))):
        return repeat_of_letter(message, first[0][2], "key")
    leads = is_led and not all(_is_placed(run, one.mailbox) for one in post.deliveries)
    if post.admit is not None and (post.routes or is_guarded or leads):
        return post.admit(post)
    return post


def _is_placed(run: Callable[[str, Any], list[Row]], name: str) -> bool:
    """Return whether the name includes a system, or belongs to a known agent here."""
    return AT in name or bool(run(_IS_KNOWN, [fold(name)] * 2))
