"""Histories: what may happen at a mailbox, in any order, and how it is played on whatever keeps the rules."""

from __future__ import annotations

import inspect
import sys
import textwrap
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.alerts.recipient import Recipient
from tests.alerts.witness import Seen
from tests.conftest import LONG
from tests.rooms import FakeClock

History = list[tuple[str, Any]]
BRIEF = 30.0  # seconds until a letter expires that does
TOUCHES = ("read", "ack", "claim", "release", "unsend")
# What somebody else may do while a ring is made ready.
MEANWHILE = (None, None, "read", "ack", "send", "rival")
SPANS = (0.1, 0.4, 3.0, 21.0, 45.0, 301.0, 900.0, 3601.0)
CLOCKS = (("jump", -86400.0), ("jump", 86400.0), ("jump", -5.0), ("reboot", None))

_sends = st.tuples(
    st.just("send"), st.sampled_from(("low", "normal", "normal", "high", "urgent", "urgent", "brief"))
)
_looks = st.tuples(st.just("look"), st.sampled_from(MEANWHILE))
_waits = st.tuples(st.just("wait"), st.sampled_from(SPANS))
_touches = st.tuples(st.sampled_from(TOUCHES), st.integers(0, 9))
_rare = st.one_of(st.just(("fail", None)), st.sampled_from(CLOCKS))
HISTORIES = st.lists(st.one_of(_sends, _looks, _waits, _looks, _touches, _rare), min_size=3, max_size=40)

# Histories with several channels: which of them looks, and which is broken.
CHANNELS = ("exec", "hook", "note")
_looks_of = st.tuples(
    st.just("look"), st.tuples(st.sampled_from(CHANNELS), st.sampled_from((*MEANWHILE, "other")))
)
_fails_of = st.tuples(st.just("fail"), st.sampled_from(CHANNELS))
_rare_of = st.one_of(_fails_of, _fails_of, st.sampled_from(CLOCKS))
SEVERAL = st.lists(
    st.one_of(_sends, _looks_of, _waits, _looks_of, _looks_of, _touches, _rare_of), min_size=3, max_size=50
)


class Ringer:
    """The verbs of a history, at a mailbox with these channels. Subclasses keep the rules."""

    def __init__(self, channels: tuple[str, ...] = CHANNELS[:1]) -> None:
        self.clock = FakeClock()
        self.channels = channels
        self.witness = Recipient(channels)
        self._ends: dict[str, datetime] = {}

    def send(self, word: str) -> None:
        raise NotImplementedError

    def touch(self, what: str, id: str) -> None:
        raise NotImplementedError

    def fail(self, channel: str | None = None) -> None:
        """Record that the last alert on this channel failed."""
        raise NotImplementedError

    def look_by(self, channel: str, meanwhile: str | None) -> float | None:
        """One look; if it rang, the witness has seen it. When to look again; None: never."""
        raise NotImplementedError

    def look(self, how: str | tuple[str, str | None] | None = None) -> float | None:
        """Look by one channel: the first, unless one is named."""
        return self.look_by(*how) if isinstance(how, tuple) else self.look_by(self.channels[0], how)

    def look_everywhere(self) -> float | None:
        message = [self.look_by(channel, None) for channel in self.channels]
        return min((seconds for seconds in message if seconds is not None), default=None)

    def note(self, id: str, word: str, *, is_old: bool = False) -> None:
        """A letter was sent."""
        self.witness.letters[id] = Seen(word=word, is_old=is_old)
        if word == "brief":
            self._ends[id] = self.clock.wall + timedelta(seconds=BRIEF)

    def let_time_pass(self) -> None:
        """What is in the inbox after its time is over, and stays so."""
        for id, end in self._ends.items():
            if end <= self.clock.wall and not self.witness.letters[id].is_held:
                self.witness.letters[id].is_over = True

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def jump(self, seconds: float) -> None:
        self.clock.jump(seconds)

    def reboot(self, _: None = None) -> None:
        self.clock.reboot()


def play(ringer: Ringer, history: History) -> None:
    """Let all of it happen, and then time pass until nobody will ever be told of anything again."""
    letters = ringer.witness.letters
    for what, how in history:
        if what not in TOUCHES:
            getattr(ringer, what)(how)
        elif letters:
            ringer.touch(what, list(letters)[how % len(letters)])
    for id in letters:
        ringer.touch("release", id)
    in_vain = 0
    while (seconds := ringer.look_everywhere()) is not None:
        in_vain = (
            0
            if ringer.witness.rings and ringer.witness.rings[-1][1] == ringer.clock.moment.steady
            else in_vain + 1
        )
        assert in_vain < 3, "it says when to look, and then does not ring"
        ringer.wait(seconds + 0.001)
    ringer.witness.rests()


def history(words: str) -> History:
    """As one writes it down: `urgent, look, wait 45, read 0`; `look hook`, `fail hook` with several channels."""
    steps: History = []
    for word, _, how in (step.strip().partition(" ") for step in words.split(",")):
        if word in TOUCHES:
            steps.append((word, int(how)))
        elif word in {"wait", "jump"}:
            steps.append((word, float(how)))
        elif word == "look" and how.partition(" ")[0] in CHANNELS:
            channel, _, meanwhile = how.partition(" ")
            steps.append((word, (channel, meanwhile or None)))
        else:
            steps.append((word, how or None) if word in {"look", "fail", "reboot"} else ("send", word))
    return steps


def plant(
    monkeypatch: pytest.MonkeyPatch,
    place: ModuleType | type,
    name: str,
    right: str,
    wrong: str,
    *others: ModuleType,
) -> None:
    """One line of the real code, of a module or a class, made wrong; also for `others` who have it by its name."""
    source = textwrap.dedent(inspect.getsource(getattr(place, name)))
    names = vars(sys.modules[place.__module__] if isinstance(place, type) else place)
    assert 1 == source.count(right), "the line is not there any more"
    made: dict[str, Any] = {}
    code = compile(source.replace(right, wrong), f"<planted {name}>", "exec", annotations.compiler_flag)
    exec(code, names, made)  # noqa: S102 - our own
    for holder in (place, *others):
        monkeypatch.setattr(holder, name, made[name])


EXAMPLES = 3000 if LONG else 60
