"""Webhooks: whom to call when mail waits. Without one nothing is ever called.

A webhook is for one mailbox. Its secret is made here, told once, and kept as it is, in the room alone: whoever
signs needs it. After a change of secret both sign for a day, so that the other side can follow.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, Missing
from ..model.codec import convert, to_plain
from ..model.message import Priority
from ..model.names import check_agent, meant
from ..model.record import WEBHOOK
from ..model.signing import secret_of
from ..model.target import read_target
from ..model.values import check_line
from ..model.webhook import Webhook
from ..policy.reach import check_target
from .authorize import authorize
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.record import Record
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

GRACE = timedelta(days=1)  # for which a secret signs beside the one that follows it
MOST = 100  # webhooks of a room
_LONGEST_NOTE = 500


def add(
    office: Office,
    caller: Principal,
    url: str,
    mailbox: str,
    *,
    min_priority: Priority = Priority.NORMAL,
    allow_private: bool = False,
) -> tuple[str, Webhook]:
    """A new webhook, and its secret, which is told once and never again. What waits already is not told of."""
    authorize(caller, "webhooks")
    check_target(read_target(url), allow_private=allow_private)
    made = Webhook(
        id=os.urandom(4).hex(),
        url=url,
        mailbox=service.naming.resident(office, meant(check_agent(mailbox, "for"), office.limits.human)),
        secret=_fresh_secret(),
        min_priority=min_priority,
        allow_private=allow_private,
        created_at=office.now().wall,
    )

    def plan() -> Sequence[Write]:
        _check_space(office)
        return [put_record(WEBHOOK, made.id, to_plain(made), None)]

    _check_space(office)
    service.ringing.begin(office, caller, made.mailbox, made.way)
    office.store.commit(plan)
    return made.secret, made


def all_webhooks(office: Office) -> list[Webhook]:
    """Also those that are off; the oldest first."""
    found = [convert(record.value, Webhook) for record in office.store.records(WEBHOOK)]
    return sorted(found, key=lambda one: (one.created_at, one.id))


def everyone(office: Office, caller: Principal) -> list[Webhook]:
    """The same, for who asks."""
    authorize(caller, "webhooks")
    return all_webhooks(office)


def webhook(office: Office, caller: Principal, id: str) -> Webhook:
    """The one with this id, or Missing."""
    authorize(caller, "webhooks")
    return convert(_held(office, id).value, Webhook)


def rotate(office: Office, caller: Principal, id: str) -> tuple[str, Webhook]:
    """Another secret, told once. The one before signs beside it for a day."""
    fresh, until = _fresh_secret(), office.now().wall + GRACE
    changed = _change(
        office, caller, id, lambda now: replace(now, secret=fresh, former_secret=now.secret, former_until=until)
    )
    return fresh, changed


def switch_off(office: Office, caller: Principal, id: str, note: str) -> Webhook:
    """Nothing is called there any more; the note says why."""
    at, why = office.now().wall, check_line(note[:_LONGEST_NOTE], "note", _LONGEST_NOTE)
    return _change(office, caller, id, lambda now: replace(now, off_at=now.off_at or at, note=now.note or why))


def switch_on(office: Office, caller: Principal, id: str) -> Webhook:
    """It is called again."""
    return _change(office, caller, id, lambda now: replace(now, off_at=None, note=""))


def remove(office: Office, caller: Principal, id: str) -> Webhook:
    """Nothing is called there any more. Its secret is forgotten, and so is what was to be tried again."""
    authorize(caller, "webhooks")
    gone: list[Webhook] = []

    def plan() -> Sequence[Write]:
        held = _held(office, id)
        gone[:] = [convert(held.value, Webhook)]
        return [put_record(WEBHOOK, id, None, held), *service.calling.forget(office, gone[0])]

    office.store.commit(plan)
    return gone[0]


def _change(office: Office, caller: Principal, id: str, step: Callable[[Webhook], Webhook]) -> Webhook:
    authorize(caller, "webhooks")
    kept: list[Webhook] = []

    def plan() -> Sequence[Write]:
        held = _held(office, id)
        before = convert(held.value, Webhook)
        kept[:] = [step(before)]
        return [] if kept[0] == before else [put_record(WEBHOOK, id, to_plain(kept[0]), held)]

    office.store.commit(plan)
    return kept[0]


def _held(office: Office, id: Any) -> Record:
    is_one = isinstance(id, str) and 0 < len(id) <= 32 and id.isalnum()
    held = find_record(office, WEBHOOK, id) if is_one else None
    if held is None:
        raise Missing(f"there is no webhook {id!a}", field="id", hint="postroom webhook list shows all")
    return held


def _check_space(office: Office) -> None:
    if len(office.store.keys(WEBHOOK)) >= MOST:
        raise Invalid(f"there are {MOST} webhooks already", field="url", hint="postroom webhook remove ID")


def _fresh_secret() -> str:
    return secret_of(os.urandom(32))
