"""Webhooks: URLs that are called when mail waits, their secrets, and the calls that are open.

A webhook is for one mailbox. Its secret is made here, shown once, and kept in plain text in the room alone: calls
are signed with it. After a change of secret both secrets sign for a day, so that the other side can follow.

When to call and for which letters is decided in `alerts`; each alert becomes a call with an id, recorded in the
commit that decides on the alert and kept until it is answered. So a server that dies in the middle of a call makes
it again, and the called side knows by the id that it is the same call. `hosts/webhooks.py` makes the calls.
"""

from __future__ import annotations

import math
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing
from ..model.alert import AlertLetter
from ..model.codec import convert
from ..model.message import Priority
from ..model.names import check_agent, meant
from ..model.record import ALERT_LOG, CALLS, WEBHOOK, pair_key
from ..model.values import check_line, is_made_id
from ..model.webhook import OpenCall, Webhook, check_target, read_target, secret_of
from ..store.protocol import Put, record_keys
from . import alerts, names
from .alerts import find_log
from .core import change_record, commit, find_record, find_value, put_record, values_of
from .verb import LOCAL, MailboxVerb, Verb, perform, seconds_to_sleep, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..model.record import Record
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


GRACE = timedelta(days=1)  # how long a former secret still signs, beside the new one
MOST = 100  # webhooks of a room
_LONGEST_NOTE = 500


@verb("add_webhook", Webhook, under="webhook", action="webhooks", local=True)
class AddWebhook(Verb, kw_only=True):
    """Add a webhook with a fresh secret. Mail that waits already causes no call."""

    url: Annotated[str, "the address to call"]
    mailbox: Annotated[str, "whose mail it is called for"]
    min_priority: Annotated[Priority, "only for letters of at least this priority"] = Priority.NORMAL
    allow_private: Annotated[bool, "it may be on this machine or in a private network"] = False

    def run(self, core: Core, principal: Principal) -> Webhook:
        check_target(read_target(self.url), allow_private=self.allow_private)
        made = Webhook(
            id=os.urandom(4).hex(),
            url=self.url,
            mailbox=names.current_name(core, meant(check_agent(self.mailbox, "for"), core.limits.human)),
            secret=secret_of(os.urandom(32)),
            min_priority=self.min_priority,
            allow_private=self.allow_private,
            created_at=core.now().wall,
        )

        def plan() -> Sequence[Write]:
            _check_space(core)
            return [put_record(WEBHOOK, made.id, made, None)]

        _check_space(core)
        # Before the webhook exists: a letter that comes in between is then new to it, and not missed.
        alerts.BeginAlerts(agent_id=made.mailbox, way=made.way).run(core, principal)
        core.store.commit(plan)
        return made


def all_webhooks(core: Core) -> list[Webhook]:
    """Return all webhooks, also those that are off; the oldest first."""
    return sorted(values_of(core, WEBHOOK, Webhook).values(), key=lambda one: (one.created_at, one.id))


@verb("webhooks", list[Webhook], under="webhooks", action="webhooks", writes=False)
class ListWebhooks(Verb, kw_only=True):
    """Return all webhooks without their secrets, also those that are off; the oldest first."""

    def run(self, core: Core, _principal: Principal) -> list[Webhook]:
        return all_webhooks(core)


@verb("webhook", Webhook, under="webhook", action="webhooks", writes=False, local=True)
class GetWebhook(Verb, kw_only=True):
    """Return one webhook with its secret."""

    id: Annotated[str, "the webhook's id"]

    def run(self, core: Core, _principal: Principal) -> Webhook:
        return convert(_held(core, self.id).value, Webhook)


@verb("rotate_webhook", Webhook, under="webhook", action="webhooks", local=True)
class RotateWebhook(Verb, kw_only=True):
    """Give a webhook another secret. The former one signs beside it for a day."""

    id: Annotated[str, "the webhook's id"]

    def run(self, core: Core, _principal: Principal) -> Webhook:
        fresh, until = secret_of(os.urandom(32)), core.now().wall + GRACE

        return _change(
            core, self.id, lambda now: replace(now, secret=fresh, former_secret=now.secret, former_until=until)
        )


@verb("switch_webhook", Webhook, under="webhook", action="webhooks", local=True)
class SwitchWebhook(Verb, kw_only=True):
    """Stop calling a webhook, and note why; or call it again."""

    id: Annotated[str, "the webhook's id"]
    off: Annotated[str, "why it is not called any more; empty: it is called again"] = ""

    def run(self, core: Core, _principal: Principal) -> Webhook:
        at, why = core.now().wall, check_line(self.off[:_LONGEST_NOTE], "off", _LONGEST_NOTE)
        if not why:
            return _change(core, self.id, lambda now: replace(now, off_at=None, note=""))
        return _change(core, self.id, lambda now: replace(now, off_at=now.off_at or at, note=now.note or why))


@verb("remove_webhook", Webhook, under="webhook", action="webhooks", local=True)
class RemoveWebhook(Verb, kw_only=True):
    """Delete a webhook, its secret, and the calls that were to be tried again."""

    id: Annotated[str, "the webhook's id"]

    def run(self, core: Core, _principal: Principal) -> Webhook:
        def plan() -> tuple[Sequence[Write], Webhook]:
            held = _held(core, self.id)
            gone = convert(held.value, Webhook)
            return [put_record(WEBHOOK, self.id, None, held), *forget(core, gone)], gone

        return commit(core, plan)


def _change(core: Core, id: str, step: Callable[[Webhook], Webhook]) -> Webhook:
    held = _held(core, id)
    # Removed by another process meanwhile: it stays removed.
    after = change_record(core, WEBHOOK, held.key, Webhook, lambda now: None if now is None else step(now))
    return after or convert(held.value, Webhook)


def _held(core: Core, id: Any) -> Record:
    held = find_record(core, WEBHOOK, id) if is_made_id(id) else None
    if held is None:
        raise Missing(f"there is no webhook {id!a}", field="id", hint="postroom webhooks shows all")
    return held


def _check_space(core: Core) -> None:
    if len(record_keys(core.store, WEBHOOK)) >= MOST:
        raise Invalid(f"there are {MOST} webhooks already", field="url", hint="postroom webhooks remove ID")


# -- calls: which are to be made, under which id, and what became of them

CUT_OFF = "the post room ended before the receiver answered"


class DueCall(Struct, frozen=True, kw_only=True):
    """A call that is to be made now."""

    id: str
    letters: tuple[AlertLetter, ...]
    unread: int  # number of all unread letters at the mailbox


class DueCalls(Struct, frozen=True, kw_only=True):
    """The calls to make now; without any, the seconds until another look is worth it."""

    calls: tuple[DueCall, ...] = ()
    nap: float = 0.0


def due(core: Core, caller: Principal, webhook: Webhook) -> DueCalls:
    """Return the calls that are to be made now; the caller makes them and reports `answered` or `failed`."""
    if find_record(core, WEBHOOK, webhook.id) is None:
        return DueCalls(nap=alerts.LOOK_EVERY)  # it was removed; its caller will be stopped
    opened: list[OpenCall] = []

    def record_calls(ids: Collection[str]) -> Sequence[Write]:
        held = find_record(core, CALLS, webhook.id)
        before = _kept(core, webhook, [] if held is None else convert(held.value, list[OpenCall]))
        # In the commit of the alert, so a killed server finds the id and repeats the same call.
        opened[:] = _calls_for(before, ids, core.ids.token())
        known = {call.id for call in before}
        calls = [*before, *(call for call in opened if call.id not in known)]
        return [put_record(CALLS, webhook.id, calls or None, held, durable=False)]

    request = alerts.NextAlert(
        agent_id=webhook.mailbox, way=webhook.way, least=webhook.min_priority, on_alert=record_calls
    )
    began = core.now()
    outcome = perform(core, caller, request)
    alert = outcome.rung
    if alert is None:
        timer = seconds_to_sleep(core, (webhook.mailbox,), began)
        again = math.inf if outcome.look_again is None else outcome.look_again + 0.001
        return DueCalls(nap=min(timer, again, alerts.LOOK_EVERY))
    named = {letter.id: letter for letter in alert.letters}
    calls = [DueCall(id=c.id, letters=tuple(named[id] for id in c.letters), unread=alert.unread) for c in opened]
    return DueCalls(calls=tuple(calls))


@verb("call_answered", type(None), action="ring", local=True)
class CallAnswered(MailboxVerb, kw_only=True):
    """Record that a call of a webhook got through: it is over."""

    webhook: Annotated[Webhook, LOCAL]
    call: Annotated[str, "the call's id"]

    def run(self, core: Core, _principal: Principal) -> None:
        def left(calls: list[OpenCall] | None) -> list[OpenCall] | None:
            return [one for one in calls or () if one.id != self.call] or None

        change_record(core, CALLS, self.webhook.id, list[OpenCall], left, durable=False)


def failed(
    core: Core,
    caller: Principal,
    webhook: Webhook,
    call: DueCall,
    why: str,
    *,
    delay: float,
    chance: float,
    was_tried: bool = True,
) -> int:
    """Record that a call did not get through; return for how many letters it is given up.

    It is made again later, under the same id. A call that was not even tried, because of the answer to another
    one, loses no try.
    """
    ids = [letter.id for letter in call.letters]
    how: dict[str, Any] = {"delay": delay, "chance": chance, "was_tried": was_tried}
    request = alerts.AlertFailed(agent_id=webhook.mailbox, way=webhook.way, ids=ids, why=why, **how)
    return perform(core, caller, request)


def resume(core: Core, caller: Principal, webhook: Webhook) -> int:
    """Make the calls again that were under way when the last server ended; return how many calls are open."""
    calls = find_value(core, CALLS, webhook.id, list[OpenCall]) or []
    ids = [id for call in calls for id in call.letters]
    if ids:
        perform(core, caller, alerts.AlertFailed(agent_id=webhook.mailbox, way=webhook.way, ids=ids, why=CUT_OFF))
    return len(calls)


def forget(core: Core, webhook: Webhook) -> list[Put]:
    """Return the writes that delete all records of a webhook's calls. Belongs inside a plan."""
    kept = ((CALLS, webhook.id), (ALERT_LOG, pair_key(webhook.mailbox, webhook.way)))
    return [Put(record=replace(held, value=None)) for at in kept for held in core.store.records(*at)]


def _calls_for(open_calls: Sequence[OpenCall], ids: Collection[str], fresh: str) -> list[OpenCall]:
    """Return the calls for these letters: repeated ones each by itself, and one for all new letters."""
    again = [OpenCall(c.id, tuple(id for id in c.letters if id in ids)) for c in open_calls]
    known = {id for call in again for id in call.letters}
    new = OpenCall(fresh, tuple(id for id in ids if id not in known))
    return [call for call in (*again, new) if call.letters]


def _kept(core: Core, webhook: Webhook, calls: Sequence[OpenCall]) -> list[OpenCall]:
    """Return the calls that may be made again; letters that left the alert log were settled meanwhile."""
    found = find_log(core, webhook.mailbox, webhook.way)
    held = set() if found is None else found[0].notes.keys() | found[0].dead.keys()
    return [call for call in calls if held.intersection(call.letters)]
