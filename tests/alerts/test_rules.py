"""The rules of rings alone (B2), over any history; and a twin of each rule that the witness finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from postroom.model.alert import AlertLog, RecipientAlerts
from postroom.model.message import Priority
from postroom.model.query import Moment
from postroom.policy import alerts
from postroom.policy.alerts import WaitingLetter
from tests.alerts.histories import CHANNELS, EXAMPLES, HISTORIES, SEVERAL, History, Ringer, history, plant, play
from tests.alerts.witness import LIMITS


class Rules(Ringer):
    """No room, no store: letters in a list, and books."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        super().__init__(channels)
        self._logs = {channel: AlertLog(up_to=0) for channel in channels}
        self._recipient_alerts = RecipientAlerts()
        self._waiting: dict[str, WaitingLetter] = {}

    def send(self, word: str) -> None:
        id = f"m-{len(self._waiting)}"
        priority = Priority.NORMAL if word == "brief" else Priority[word.upper()]
        self._waiting[id] = WaitingLetter(
            id=id, number=len(self._waiting) + 1, priority=priority, came=self.clock.wall
        )
        self.note(id, word)

    def touch(self, what: str, id: str) -> None:
        self.let_time_pass()
        seen = self.witness.letters[id]
        if seen.is_over:
            return
        if what == "read":
            seen.is_read = True
        elif what in {"claim", "release"}:
            seen.is_held = what == "claim"
        else:
            seen.is_over = True

    def fail(self, channel: str | None = None) -> None:
        channel = channel or self.channels[0]
        lost = self.witness.witnesses[channel].last
        for id in lost:
            self._logs[channel] = alerts.failed(self._logs[channel], id, "exit 1", self.clock.moment, LIMITS)
        self._recipient_alerts = alerts.recipient_failed(
            self._recipient_alerts, [self._logs[channel].telling] * len(lost)
        )
        self.witness.failed(channel)

    def look_by(self, channel: str, _: str | None) -> float | None:
        self.let_time_pass()
        now, log = self.clock.moment, self._logs[channel]
        waiting = [
            self._seen(channel, id)
            for id, seen in self.witness.letters.items()
            if not (seen.is_over or seen.is_held)
        ]
        verdict = alerts.decide(waiting, log, self._recipient_alerts, now, LIMITS)
        if not verdict.ring:
            self.witness.later(channel, verdict.look_again, now)
            return verdict.look_again
        self._recipient_alerts = alerts.recipient_notified(
            self._recipient_alerts, len(verdict.ring), len(self._waiting), now, LIMITS, joins=verdict.joins
        )
        rung = [letter for letter in waiting if letter.id in verdict.ring]
        self._logs[channel] = alerts.record_alert(
            log, rung, 0, self._recipient_alerts.tellings[-1].number, now, LIMITS
        )
        self.witness.rang(channel, verdict.ring, now, set())
        return 0.0

    def _seen(self, channel: str, id: str) -> WaitingLetter:
        seen, its = self.witness.letters[id], self.witness.witnesses[channel].letters.get(id)
        return replace(self._waiting[id], is_unread=not seen.is_read, is_new=its is None or not its.rings)


def run(steps: History, channels: tuple[str, ...] = CHANNELS[:1]) -> None:
    play(Rules(channels), steps)


@settings(max_examples=EXAMPLES * 5)
@given(HISTORIES)
def test_the_rules_hold_in_any_history(steps: History) -> None:
    run(steps)


@settings(max_examples=EXAMPLES * 5)
@given(SEVERAL)
def test_the_rules_hold_for_a_recipient_with_several_channels(steps: History) -> None:
    run(steps, CHANNELS)


def test_an_alert_of_more_than_an_hour_ago_is_forgotten_when_another_begins() -> None:
    run(history("urgent, look exec, wait 3601, look exec, fail exec, look hook, normal"), CHANNELS)


# complaint -> a history, and the line that makes it one to complain of: its function, as it is, as it must not be
BUGS = {
    "rung for what is read": (
        "normal, read 0", "_is_fresh", "letter.is_new and letter.is_unread", "letter.is_new",
    ),
    "rung for mail of low priority": ("low", "_is_fresh", " and letter.priority > Priority.LOW", ""),
    "not all were told together": ("normal, urgent", "decide", "own[w.id] == 0 or _is_fresh(w)", "own[w.id] == 0"),
    "no pause between two rings": (
        "urgent, look, normal", "_Hold", "else max(self.cap, self.pause)", "else self.cap",
    ),
    "more rings in an hour than there may be": (
        "urgent, look, urgent, look, urgent, look, urgent, look, urgent",
        "_Hold", "return self.cap if letter", "return 0.0 if letter",
    ),
    "rung for twice": (
        "normal, wait 1, look, fail", "_own_time", "letter.is_urgent and limits.ring_again", "limits.ring_again",
    ),
    "rung for again too soon": ("urgent", "_own_time", "note.last + limits.ring_again", "note.last"),
    "rung for too often": ("urgent", "_own_time", " and note.rung < limits.ring_most", ""),
    "urgent mail was not rung for again": (
        "urgent, look, fail", "_noted", "rung=held.rung + 1", "rung=held.rung + 2",
    ),
    "rung for after it was given up": (
        "urgent, look, fail, wait 45, look, fail",
        "failed", "tries >= limits.ring_tries", "tries > limits.ring_tries",
    ),
    "tried again too soon": (
        "urgent, look, fail", "failed", "backoff(max(tries, 1), limits).total_seconds()", "0.0",
    ),
    "tried again for what is read": (
        "normal, urgent, look, read 0, fail", "_own_time", " or not (letter.is_unread or letter.is_urgent)", "",
    ),
    "a ring that failed was never tried again": (
        "normal, urgent, look, fail", "failed", "tries=tries, due=due", "tries=tries, due=None",
    ),
    "somebody was never told": (
        "normal", "decide", "look_again=min(times.values(), default=None)", "look_again=None",
    ),
    "somebody is told too late": (
        "normal, jump -86400", "_gathering", "0 < left <= limits.ring_gather", "0 < left",
    ),
    "it says when to look, and then does not ring": (
        "normal", "decide", "min(times.values(), default=None)", "min(times.values()) / 2 if times else None",
    ),
}  # fmt: skip


@pytest.mark.parametrize("complaint", BUGS)
def test_a_rule_that_is_broken_is_found_out(complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, name, right, wrong = BUGS[complaint]
    run(history(words))
    plant(monkeypatch, alerts, name, right, wrong)
    with pytest.raises(AssertionError, match=complaint):
        run(history(words))


HELD = "urgent, urgent, urgent, urgent, urgent, claim 0, claim 1, claim 2, claim 3"
# what is wrong -> the complaint, a history of several channels, and the line: where it is, right and wrong
BUGS_OF_SEVERAL: dict[str, tuple[Any, ...]] = {
    "each channel pauses by itself": (
        "no pause between two alerts", "normal, wait 1, look exec, normal, wait 1, look hook",
        alerts, "decide", "0.0 if w.id in joining else there.seconds(w)", "0.0",
    ),
    "each channel has a limit of its own": (
        "more alerts in an hour than are allowed",
        "urgent, look exec, urgent, look hook, urgent, look note, urgent, look exec, urgent, look hook",
        alerts, "decide", ".times, now", ".times[-1:], now",
    ),
    "no channel joins another": (
        "somebody is told too late", "normal, wait 1, look exec, look hook",
        alerts, "_joins", "letter.number > ", "letter.number >= 0 or ",
    ),
    "what came later joins": (
        "no pause between two alerts", "normal, wait 1, look exec, normal, wait 1, look hook",
        alerts, "_joins", "letter.number > ", "False and ",
    ),
    "who joins is counted": (
        "somebody is told too late",
        "urgent, look exec, look hook, look note, urgent, look exec, urgent, look exec",
        alerts, "decide", "joins=not begins", "joins=False",
    ),
    "a channel joins again and again": (
        "more alerts in an hour than are allowed",
        f"{HELD}, look exec, release 0, look exec, release 1, look exec, release 2, look exec, look hook,"
        " release 3, look hook",
        alerts, "_joins", ".telling != ", ".telling == 0 or True or ",
    ),
    "a broken channel silences the others": (
        "not all were told together", "normal, wait 1, look exec, fail exec, normal, wait 1, look hook",
        alerts, "recipient_failed", ".rung > 0", ".rung > 0 or True",
    ),
    "one broken channel undoes the alerts of others": (
        "no pause between two alerts",
        "normal, wait 1, look exec, look hook, fail hook, normal, wait 1, look note",
        alerts, "recipient_failed", ".rung > 0", ".number not in numbers",
    ),
    "a broken channel has no pause": (
        "no pause between two rings", "normal, wait 1, look exec, fail exec, normal, wait 1, look exec",
        alerts, "decide", "_hold(log.recent, ", "_hold((), ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS_OF_SEVERAL)
def test_planted_bugs_with_several_channels_are_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint, words, *bug = BUGS_OF_SEVERAL[name]
    run(history(words), CHANNELS)
    plant(monkeypatch, *bug)
    with pytest.raises(AssertionError, match=complaint):
        run(history(words), CHANNELS)


def test_uptimes_of_an_earlier_boot_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "urgent, look, reboot, normal"
    run(history(words))
    monkeypatch.setattr(alerts, "of_this_boot", lambda log, _: log)
    with pytest.raises(AssertionError, match="somebody is told too late"):
        run(history(words))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("urgent, look, jump -86400, normal", "somebody is told too late"),
        ("normal, wait 1, look, jump 86400, normal, wait 1, look", "no pause between two rings"),
    ],
)
def test_pauses_by_the_wall_clock_are_found_out(
    words: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that is set, a channel would be silenced for a day, or alert without a pause."""

    def by_the_wall(rule: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*message: Any) -> Any:
            return rule(*(replace(x, steady=x.wall.timestamp()) if isinstance(x, Moment) else x for x in message))

        return answer

    run(history(words))
    for name in ("decide", "record_alert", "failed"):
        monkeypatch.setattr(alerts, name, by_the_wall(getattr(alerts, name)))
    with pytest.raises(AssertionError, match=complaint):
        run(history(words))
