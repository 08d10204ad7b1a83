"""Alerts: decide when a person or program is notified of mail, and record what came of it and what was shown.

An alert is a hint: it moves no delivery, and one that is lost loses no mail. The rules (when, for which letters,
how often) are `policy.alerts`; this module reads what they need and writes what follows. The public API calls an
alert a *ring* and its channel a *way*; these words are stored, too. Three kinds of record are kept:

- the alert log (`ALERT_LOG`), one for a mailbox and a channel (`claude`, `exec`, `webhook:<id>`);
- the recipient's alerts (`RECIPIENT_ALERTS`), one for a mailbox: how often it was alerted, by whatever channel;
- the audit (`AUDIT`), one for a letter at a mailbox: its alerts, and where it was shown. It is deleted with the
  letter and never leaves this room.

The letters are synced to disk before an alert names them. An alert is decided and recorded in one commit,
so two processes never alert by one channel for the same letter, and two channels at once count as one alert.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, TooLarge
from ..model import delivery as model_delivery
from ..model.alert import Alert, AlertLetter, AlertLog, Audit, DeadAlertRow, RecipientAlerts, Rung, Sight
from ..model.codec import convert
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_id, check_kind
from ..model.query import Found, Query
from ..model.record import ALERT_LOG, AUDIT, AUDITED, RECIPIENT_ALERTS, pair_key
from ..model.report import Rate
from ..model.values import as_list, check_limit, check_line, check_seconds, check_text
from ..policy import alerts
from ..policy.alerts import WaitingLetter
from ..store.protocol import Move
from . import deliveries, inbox
from .core import change_record, commit, find_record, find_value, put_record
from .inbox import check_spelling
from .proof import is_unproven
from .verb import LOCAL, LONGEST_WAIT, MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Moment
    from ..model.record import Record
    from ..store.protocol import Put, Write
    from .authorize import Principal
    from .core import Core


MOST_RECENT = 100  # audited letters of a mailbox that are counted in rates
LONGEST_WHERE = 200  # characters of the place where a letter was shown
MOST_AUDITED = 1000  # letters named in one call
_ARRIVED = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)


# -- the audit: alerts and sights of one letter


def audit_of(core: Core, mailbox: str, letter: str) -> Audit:
    return find_value(core, AUDIT + mailbox, letter, Audit) or Audit()


def audit_writes(
    core: Core, mailbox: str, ids: Collection[str], change: Callable[[str, Audit], Audit]
) -> list[Write]:
    """Return the writes that change the audits of these letters. Reads, so it belongs inside a plan."""
    writes: list[Write] = []
    for id in ids:
        held, audit = find_record(core, AUDIT + mailbox, id), change(id, audit_of(core, mailbox, id))
        writes.append(put_record(AUDIT + mailbox, id, audit, held, durable=False))
    if not writes:
        return []
    held = find_record(core, AUDITED, mailbox)
    before = [] if held is None else held.value
    after = [*(id for id in before if id not in set(ids)), *ids][-MOST_RECENT:]
    return writes if after == before else [*writes, put_record(AUDITED, mailbox, after, held, durable=False)]


def check_ids(ids: Any) -> tuple[str, ...]:
    """Check the ids of letters that a caller names, and return each once."""
    named = tuple(dict.fromkeys(check_id(id, "ids") for id in as_list(ids, "ids")))
    if len(named) > MOST_AUDITED:
        raise TooLarge(f"{len(named)} letters, the limit is {MOST_AUDITED}", field="ids")
    return named


def forget_letters(core: Core, letters: Sequence[Message]) -> list[Write]:
    """Return the writes that delete audits and log entries of deleted letters. Belongs inside a plan."""
    audited = {held.key: held for held in core.store.records(AUDITED)}
    if not audited:
        return []
    ids = {letter.id for letter in letters}
    found = core.store.find(Query(message_ids=tuple(ids)))
    places = {(f.delivery.mailbox, f.message.id) for f in found if f.delivery.mailbox in audited}
    audits = [(AUDIT + at, id, find_record(core, AUDIT + at, id)) for at, id in sorted(places)]
    writes: list[Write] = [put_record(kind, id, None, held, durable=False) for kind, id, held in audits if held]
    for mailbox in sorted({at for at, _ in places}):
        kept = [id for id in audited[mailbox].value if id not in ids]
        if kept != audited[mailbox].value:
            writes.append(put_record(AUDITED, mailbox, kept or None, audited[mailbox], durable=False))
    return [*writes, *without(core, ids)]


@verb("shown", int, under="shown", action="show", old_names={"message_ids": "ids"})
class Shown(MailboxVerb, kw_only=True):
    """Record that letters were shown to the agent's model or a person; it stamps them as read.

    Call it after showing them: better shown twice than never. Letters that are not in the mailbox (any more) are
    skipped.
    """

    ids: Annotated[str | list[str], "ids of letters"]
    host: Annotated[str, "in what, such as claude"]
    where: Annotated[str, "at what occasion"] = ""
    read: Annotated[bool, LOCAL] = True  # False: only their headings were shown, and they are not read

    def run(self, core: Core, _principal: Principal) -> int:
        mailbox, named = self.agent_id, check_ids(self.ids)
        now = core.now().wall
        where = check_line(self.where, "where", LONGEST_WHERE)
        sight = Sight(at=now, host=check_kind(self.host, "host"), where=where)

        def plan() -> tuple[Sequence[Write], int]:
            query = Query(mailbox=mailbox, message_ids=named, states=_ARRIVED, shown_only=True, order="age")
            found = [f.delivery for f in core.store.find(query)]
            here = [delivery.message_id for delivery in found]
            writes = audit_writes(core, mailbox, here, lambda _, audit: audit.with_sight(sight))
            unread = [d for d in found if self.read and d.read_at is None and d.state in inbox.READABLE]
            return [*(Move(d, model_delivery.read(d, now), "read") for d in unread), *writes], len(found)

        return commit(core, plan) if named else 0


# -- alert logs, and the letters that wait

MOST_ALERTED = 100  # letters named in an alert, and urgent ones besides; the others are only counted


class WaitingMail(Struct, frozen=True):
    """The letters that wait at a mailbox, as the rules need them."""

    waiting: tuple[WaitingLetter, ...]
    found: dict[str, Found]  # the waiting letters, by id
    settled: frozenset[str]  # letters in the log that need no alert any more


def find_log(core: Core, mailbox: str, way: str) -> tuple[AlertLog, Record] | None:
    held = find_record(core, ALERT_LOG, pair_key(mailbox, way))
    return None if held is None else (convert(held.value, AlertLog), held)


def alert_logs(core: Core, mailbox: str | None) -> Iterator[tuple[str, str, AlertLog, Record]]:
    """Yield mailbox, channel, alert log and record: of one mailbox, or of all (None)."""
    for held in core.store.records(ALERT_LOG):
        at, _, way = held.key.partition(" ")
        if mailbox in {None, at}:
            yield at, way, convert(held.value, AlertLog), held


def without(core: Core, ids: AbstractSet[str]) -> list[Write]:
    """Return the writes that remove these letters from all alert logs."""
    return [
        put_log(at, way, alerts.forget(log, ids), held)
        for at, way, log, held in alert_logs(core, None)
        if ids & (log.notes.keys() | log.dead.keys() | log.open.keys())
    ]


def put_log(mailbox: str, way: str, log: AlertLog, held: Record | None) -> Put:
    return put_record(ALERT_LOG, pair_key(mailbox, way), log, held, durable=False)


def find_recipient(core: Core, mailbox: str, moment: Moment) -> tuple[RecipientAlerts, Record | None]:
    """Return the alerts of a mailbox by all channels, and their record."""
    held = find_record(core, RECIPIENT_ALERTS, mailbox)
    return RecipientAlerts(boot=moment.boot) if held is None else convert(held.value, RecipientAlerts), held


def put_recipient(mailbox: str, recipient: RecipientAlerts, held: Record | None) -> Put:
    return put_record(RECIPIENT_ALERTS, mailbox, recipient, held, durable=False)


def look(
    core: Core,
    mailbox: str,
    way: str,
    log: AlertLog,
    moment: Moment,
    until: int,
    least: Priority = Priority.NORMAL,
) -> WaitingMail:
    """Return new letters that came up to the number `until`, and those in the log."""
    page = _new(core, mailbox, way, log.up_to, until, moment, least)
    # Urgent letters overtake: they are named even beyond the first page.
    more = _new(core, mailbox, way, _number(page[-1]), until, moment, Priority.URGENT) if page else []
    # Those in the log that are not settled, claimed or not.
    open_here = (State.UNREAD, State.CLAIMED)
    query = Query(mailbox=mailbox, message_ids=tuple(log.notes), states=open_here, order="age")
    noted = core.store.find(query) if log.notes else []
    again = [f for f in noted if f.delivery.state is State.UNREAD]
    return WaitingMail(
        waiting=(*(_waiting(f, is_new=True) for f in (*page, *more)), *(_waiting(f, is_new=False) for f in again)),
        found={f.message.id: f for f in (*page, *more, *again)},
        settled=frozenset(log.notes) - {f.message.id for f in noted},
    )


def not_new(core: Core, mailbox: str, log: AlertLog, until: int) -> int:
    """Return the number up to which letters are no longer new after an alert.

    It stays before a letter that is claimed and unread, because that letter may come back to the inbox.
    """
    held = Query(mailbox=mailbox, states=(State.CLAIMED,), unread_only=True, after=log.up_to, order="age", limit=1)
    return min((until, *(_number(f) - 1 for f in core.store.find(held))))


def alerted_letters(core: Core, found: Iterable[Found]) -> tuple[AlertLetter, ...]:
    """Return these letters as an alert names them: the most urgent first, then the oldest."""
    ordered = sorted(found, key=lambda f: (-f.delivery.priority, _number(f)))
    return tuple(
        AlertLetter(
            id=f.message.id,
            sender=f.message.sender,
            proven=f.message.proven,
            signed=f.message.proof is not None,
            unproven=is_unproven(core, f.message),
            subject=f.message.subject,
            thread=f.message.thread,
            priority=f.delivery.priority,
        )
        for f in ordered
    )


def _new(
    core: Core, mailbox: str, way: str, after: int, until: int, moment: Moment, least: Priority
) -> list[Found]:
    """Return the first unread letters without an alert by this channel, in the order of arrival."""
    while True:
        query = Query(
            mailbox=mailbox,
            states=(State.UNREAD,),
            unread_only=True,
            min_priority=least,
            offered_at=moment.wall,
            after=after,
            until=until,
            order="age",
            limit=MOST_ALERTED,
        )
        page = core.store.find(query)
        new = [f for f in page if audit_of(core, mailbox, f.message.id).last(way) is None]
        if new or len(page) < MOST_ALERTED:
            return new
        after = _number(page[-1])


def _waiting(found: Found, *, is_new: bool) -> WaitingLetter:
    delivery = found.delivery
    return WaitingLetter(
        id=found.message.id,
        number=_number(found),
        priority=delivery.priority,
        came=delivery.delivered_at,
        is_unread=delivery.is_unread,
        is_new=is_new,
    )


def _number(found: Found) -> int:
    """Return the number of the change by which the letter arrived."""
    return found.delivery.arrived or found.delivery.number


# -- deciding and recording an alert

OnAlert = Callable[[Collection[str]], Sequence[Any]]  # the ids of letters -> writes of the same commit
_CHANNEL = "the channel of the alert, such as claude; each has a log of its own"

SOON = 1.0  # seconds; a caller that waits for letters which come together waits itself
LOOK_EVERY = 10.0  # seconds; RetryAlerts sends no notification
CUT_OFF = "the program that alerted ended before it was done"  # shown as the reason of such a failure
NOT_NOW = 1.0  # seconds until `may_alert`, which said no, is called again


@verb("begin_alerts", int, under="unread", action="ring", local=True)
class BeginAlerts(MailboxVerb, kw_only=True):
    """Begin an alert log, if there is none: letters that are unread already count as alerted.

    With `backlog`, only letters that were alerted by this channel count as alerted.
    """

    way: Annotated[str, _CHANNEL]
    backlog: Annotated[bool, "alert of letters that are unread already, too"] = False

    def run(self, core: Core, _principal: Principal) -> int:
        mailbox, way, backlog = self.agent_id, check_kind(self.way, "way"), self.backlog
        check_spelling(core, mailbox)

        def plan() -> tuple[Sequence[Write], int]:
            found = find_log(core, mailbox, way)
            if found is not None:
                log, held = found
                return ([put_log(mailbox, way, replace(log, up_to=0), held)] if backlog else []), 0
            log = AlertLog(up_to=0 if backlog else core.store.cursor().number)
            seen = 0 if backlog else _count_unread(core, mailbox, core.now())
            return [put_log(mailbox, way, log, None)], seen

        return commit(core, plan) if backlog or find_log(core, mailbox, way) is None else 0


class DueAlert(Struct):
    """An alert to give now, or when to look again: in how many seconds, or (None) when new mail comes."""

    rung: Rung | None
    look_again: float | None = None


@verb("ring", DueAlert, action="ring", waits=True, slow=True)
class NextAlert(MailboxVerb, kw_only=True):
    """Decide whether it is time to alert the agent about mail; if so record it, for the caller to deliver.

    At the first call for a channel, letters that are unread already count as alerted. With `within`, an alert that
    is not confirmed by `AlertDone` in so many seconds has failed. The writes of `on_alert`, called with the ids of
    the letters, go into the same commit.
    """

    way: Annotated[str, _CHANNEL]
    peek: Annotated[bool, "record no alert; return only when to call without it"] = False
    unread: Annotated[int | None, "alert only if so many letters are unread"] = None
    timeout: Annotated[
        float, f"how long to wait for something to alert about, in seconds; over a wire {LONGEST_WAIT:g} at most"
    ] = 0.0
    may_alert: Annotated[Callable[[], bool] | None, LOCAL] = None  # asked when there is something to alert about
    within: Annotated[float | None, LOCAL] = None
    least: Annotated[Priority, LOCAL] = Priority.NORMAL  # letters below this priority get no alert
    on_alert: Annotated[OnAlert | None, LOCAL] = None

    def run(self, core: Core, principal: Principal) -> DueAlert:
        mailbox, way = self.agent_id, check_kind(self.way, "way")
        if self.may_alert is not None and not callable(self.may_alert):
            raise Invalid(f"must be a function, not {type(self.may_alert).__name__}", field="may_alert")
        within = None if self.within is None else check_seconds(self.within, "within", above=0)
        moment = core.now()
        deliveries.apply_timers(core, moment, (mailbox,))
        log = _current_log(core, principal, mailbox, way, moment)
        if log is None:
            BeginAlerts(agent_id=mailbox, way=way).run(core, principal)
            return DueAlert(None)
        more = alerts.unconfirmed(log, moment)[1]
        # Letters up to here are synced below before anybody is alerted; later ones wait for the next look.
        until = core.store.cursor().number
        seen = look(core, mailbox, way, log, moment, until, self.least)
        if not seen.waiting:
            check_spelling(core, mailbox)
            return DueAlert(None, more)
        before, _ = find_recipient(core, mailbox, moment)
        verdict = alerts.decide(seen.waiting, log, before, moment, core.limits)
        if not verdict.ring:
            return DueAlert(None, min((s for s in (verdict.look_again, more) if s is not None), default=None))
        pause = self._pause(core, moment)
        if pause is not None:
            return DueAlert(None, pause)
        core.store.commit(())  # the letters must survive a power cut before anybody hears of them
        letters = _record_alert(core, mailbox, way, moment, until, self.least, self.on_alert, within)
        if not letters:
            return DueAlert(None, 0.0)  # another process recorded it first
        unread = _count_unread(core, mailbox, moment)
        return DueAlert(Rung(mailbox=mailbox, way=way, letters=letters, unread=unread))

    def _pause(self, core: Core, moment: Moment) -> float | None:
        """Return when to look again, in seconds, if the caller does not want to alert now."""
        if self.peek or (self.unread is not None and self.unread != _count_unread(core, self.agent_id, moment)):
            return 0.0
        # Called last and outside of the commit: it may ask a host, and what it costs is paid only when there is
        # mail.
        if self.may_alert is not None and not self.may_alert():
            return NOT_NOW
        return None

    def is_empty(self, result: DueAlert) -> bool:
        # A caller that waits for letters which come together waits itself.
        return result.rung is None and (result.look_again is None or result.look_again > SOON)


@verb("wait_for_alert", DueAlert, action="ring", waits=True, local=True)
class WaitForAlert(NextAlert, kw_only=True):
    """Wait until it is time to alert: woken by new mail and by the rules' timers."""

    timeout: Annotated[float, "how long to wait, in seconds"] = 30.0
    _look_again: float | None = None  # what the last look found

    def run(self, core: Core, principal: Principal) -> DueAlert:
        due = super().run(core, principal)
        self._look_again = due.look_again
        return due

    def is_empty(self, result: DueAlert) -> bool:
        return result.rung is None

    def longest_sleep(self) -> float:
        return LOOK_EVERY if self._look_again is None else min(self._look_again + 0.001, LOOK_EVERY)


def _current_log(core: Core, principal: Principal, mailbox: str, way: str, moment: Moment) -> AlertLog | None:
    """Return the alert log after failing the alerts that were not confirmed in time."""
    found = find_log(core, mailbox, way)
    if found is not None and (lost := alerts.unconfirmed(found[0], moment)[0]):
        AlertFailed(agent_id=mailbox, way=way, ids=list(lost), why=CUT_OFF).run(core, principal)
        found = find_log(core, mailbox, way)
    return None if found is None else found[0]


def _record_alert(
    core: Core,
    mailbox: str,
    way: str,
    moment: Moment,
    until: int,
    least: Priority,
    on_alert: OnAlert | None,
    within: float | None,
) -> tuple[AlertLetter, ...]:
    """Look again inside the commit, and record the alert. Returns its letters; none if another process was first.

    Letters that came after the first look (`until`) are left out: they may not be on stable storage yet.
    """

    def plan() -> tuple[Sequence[Write], tuple[AlertLetter, ...]]:
        found = find_log(core, mailbox, way)
        if found is None:
            return [], ()
        log, held = found
        seen = look(core, mailbox, way, log, moment, until, least)
        before, recipient = find_recipient(core, mailbox, moment)
        # Decided again inside the commit: of two processes that alert by this channel, only one records it (G11).
        verdict = alerts.decide(seen.waiting, log, before, moment, core.limits)
        ids = verdict.ring
        if not ids:
            return [], ()
        after = alerts.recipient_notified(before, len(ids), until, moment, core.limits, joins=verdict.joins)
        recipient_alert = after.tellings[-1]
        alerted = [waiting for waiting in seen.waiting if waiting.id in ids]
        # Where it joins an earlier alert, only letters of that time are no longer new.
        up_to = min(recipient_alert.up_to, not_new(core, mailbox, log, until))
        log = alerts.record_alert(log, alerted, up_to, recipient_alert.number, moment, core.limits, within=within)
        ring = Alert(at=moment.wall, way=way, telling=recipient_alert.number)
        letters = alerted_letters(core, [seen.found[id] for id in ids])
        return [
            put_log(mailbox, way, alerts.forget(log, seen.settled), held),
            put_recipient(mailbox, after, recipient),
            *audit_writes(core, mailbox, ids, lambda _, audit: audit.with_ring(ring)),
            *(on_alert([letter.id for letter in letters]) if on_alert is not None else ()),
        ], letters

    return commit(core, plan)


def _count_unread(core: Core, mailbox: str, moment: Moment) -> int:
    query = Query(mailbox=mailbox, states=(State.UNREAD,), unread_only=True, offered_at=moment.wall)
    return sum(core.store.count(query).values())


# -- outcomes: a failed alert is tried again after a pause, and given up (dead) after several tries

LONGEST_WHY = 500


@verb("ring_failed", int, under="given_up", action="ring", old_names={"message_ids": "ids"})
class AlertFailed(MailboxVerb, kw_only=True):
    """Record that an alert could not be delivered: it is tried again later, and given up after several tries.

    Reporting it twice counts once. `delay`: seconds that must pass before the next try; `chance` and `was_tried`
    as in `policy.alerts.failed`.
    """

    way: Annotated[str, _CHANNEL]
    ids: Annotated[str | list[str], "ids of letters"]
    why: Annotated[str, "what went wrong"]
    delay: Annotated[float, LOCAL] = 0.0
    chance: Annotated[float, LOCAL] = 1.0
    was_tried: Annotated[bool, LOCAL] = True

    def run(self, core: Core, _principal: Principal) -> int:
        mailbox, way = self.agent_id, check_kind(self.way, "way")
        why, named = check_text(self.why, "why")[:LONGEST_WHY], check_ids(self.ids)
        how: dict[str, Any] = {"delay": self.delay, "chance": self.chance, "was_tried": self.was_tried}
        moment = core.now()

        def plan() -> tuple[Sequence[Write], int]:
            found = find_log(core, mailbox, way)
            if found is None:
                return [], 0
            log, held = found
            is_known = log.open.keys().isdisjoint(named)
            log = alerts.done(log, named)
            lasts = {id: audit_of(core, mailbox, id).last(way) for id in named}
            # An alert that was reported as failed before has another outcome by now: it counts once.
            lost = {id: last for id, last in lasts.items() if last is not None and last.outcome == "rung"}
            for id in lost:
                log = alerts.failed(log, id, why, moment, core.limits, **how)
            outcomes = {
                id: replace(last, outcome="dead" if id in log.dead else "failed", why=why)
                for id, last in lost.items()
            }
            audits = audit_writes(core, mailbox, outcomes, lambda letter, audit: audit.with_last(outcomes[letter]))
            before, recipient = find_recipient(core, mailbox, moment)
            after = alerts.recipient_failed(before, [last.telling for last in lost.values()])
            if is_known and not lost:
                return [], 0
            writes = [put_log(mailbox, way, log, held), put_recipient(mailbox, after, recipient), *audits]
            return writes, len(lost.keys() & log.dead.keys())

        return commit(core, plan)


@verb("alert_done", type(None), action="ring", local=True)
class AlertDone(MailboxVerb, kw_only=True):
    """Record that the alert for these letters was carried out, as promised by `within` of `NextAlert`."""

    way: Annotated[str, _CHANNEL]
    ids: Annotated[str | list[str], "ids of letters"]

    def run(self, core: Core, _principal: Principal) -> None:
        mailbox, way, named = self.agent_id, check_kind(self.way, "way"), check_ids(self.ids)

        key = pair_key(mailbox, way)
        change_record(core, ALERT_LOG, key, AlertLog, lambda log: log and alerts.done(log, named), durable=False)


@verb("dead_alerts", list[DeadAlertRow], under="alerts", action="ring", many=True, writes=False, everyone=True)
class DeadAlerts(MailboxVerb, kw_only=True):
    """Return alerts that were given up, for letters that are still unread."""

    limit: Annotated[int | None, "how many at most"] = None

    def run(self, core: Core, _principal: Principal) -> list[DeadAlertRow]:
        most = check_limit(self.limit)
        logs = list(alert_logs(core, self.mailbox))
        unread = _unread_dead(core, self.mailbox, [log for _, _, log, _ in logs])
        rows = [
            DeadAlertRow(mailbox=at, way=way, letter=unread[at, id], at=dead.at, tries=dead.tries, why=dead.why)
            for at, way, log, _ in logs
            for id, dead in log.dead.items()
            if (at, id) in unread
        ]
        return rows[:most]


@verb("retry_alerts", int, under="retried", action="ring", everyone=True)
class RetryAlerts(MailboxVerb, kw_only=True):
    """Try given-up alerts again: of these letters or of all, by this channel or by any.

    The process that alerts by that channel notices within LOOK_EVERY seconds.
    """

    way: Annotated[str | None, "only by this channel"] = None
    ids: Annotated[str | list[str] | None, "only of these letters"] = None

    def run(self, core: Core, _principal: Principal) -> int:
        wanted = None if self.way is None else check_kind(self.way, "way")
        named = None if self.ids is None else check_ids(self.ids)
        moment = core.now()

        def plan() -> tuple[Sequence[Write], int]:
            writes: list[Write] = []
            count = 0
            logs = [one for one in alert_logs(core, self.mailbox) if wanted in {None, one[1]}]
            unread = _unread_dead(core, self.mailbox, [log for _, _, log, _ in logs])
            for at, way, log, held in logs:
                again = [id for id in log.dead if (at, id) in unread and (named is None or id in named)]
                count += len(again)
                if again:
                    writes.append(put_log(at, way, alerts.retry_dead(log, again, moment), held))
            return writes, count

        return commit(core, plan)


def _unread_dead(core: Core, mailbox: str | None, logs: Iterable[AlertLog]) -> dict[tuple[str, str], AlertLetter]:
    """Return the letters of given-up alerts that are still unread, by mailbox and id."""
    ids = tuple({id for log in logs for id in log.dead})
    query = Query(mailbox=mailbox, message_ids=ids, states=(State.UNREAD,), unread_only=True, order="age")
    found = core.store.find(query) if ids else []
    return {(f.delivery.mailbox, f.message.id): letter for f in found for letter in alerted_letters(core, [f])}


# -- rates: do alerts help? A sample of the newest audited letters, so a room of a million letters answers quickly

SAMPLE = 2000  # letters that are looked at, at most

AuditedDelivery = tuple["Audit", "Delivery"]


def rates(core: Core) -> tuple[Rate, ...]:
    """Return one rate for each channel and host, by name."""
    by_name: dict[str, list[AuditedDelivery]] = {}
    for audit, delivery in _sample(core):
        for name in {ring.way for ring in audit.rings} | {sight.host for sight in audit.sights}:
            by_name.setdefault(name, []).append((audit, delivery))
    return tuple(_rate(name, by_name[name]) for name in sorted(by_name))


def _sample(core: Core) -> Iterator[AuditedDelivery]:
    # Each mailbox gets the same share of the sample, so that a busy one does not hide the others.
    recent = core.store.records(AUDITED)[:SAMPLE]
    share = SAMPLE // max(len(recent), 1)
    for held in recent:
        for found in core.store.find(Query(mailbox=held.key, message_ids=tuple(held.value[-share:]))):
            yield audit_of(core, held.key, found.message.id), found.delivery


def _rate(name: str, audited: Sequence[AuditedDelivery]) -> Rate:
    alerted = [(audit, at) for audit, _ in audited if (at := _alerted_at(audit, name)) is not None]
    shown = [(delivery, audit.sights[0].at) for audit, delivery in audited if audit.sights]
    return Rate(
        name=name,
        letters=len(audited),
        rung=len(alerted),
        shown=len(shown),
        acknowledged=sum(_acked_at(delivery) is not None for _, delivery in audited),
        median_to_shown=median(_until(at, (sight.at for sight in audit.sights)) for audit, at in alerted),
        median_to_acknowledged=median(_until(at, (_acked_at(delivery),)) for delivery, at in shown),
    )


def _alerted_at(audit: Audit, way: str) -> datetime | None:
    """Return when the first alert by this channel got through, as far as is known."""
    return next((ring.at for ring in audit.rings if ring.way == way and ring.outcome == "rung"), None)


def _acked_at(delivery: Delivery) -> datetime | None:
    return None if delivery.has_left else delivery.acked_at


def _until(start: datetime, times: Iterable[datetime | None]) -> float | None:
    """Return the seconds from `start` to the first of these times at or after it; None if there is none."""
    return next(((at - start).total_seconds() for at in times if at is not None and at >= start), None)


def median(spans: Iterable[float | None]) -> float | None:
    """Return the median; of an even number of spans, the greater of the two in the middle."""
    found = sorted(span for span in spans if span is not None)
    return found[len(found) // 2] if found else None
