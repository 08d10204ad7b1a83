"""Turns of the model that mail began: which there are, which wait for their session, and what has come of each.

One session has one turn at a time. nanobot would push a second letter into the running turn and give one answer
for both; so the second waits here, under its lease.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...model.names import fold

if TYPE_CHECKING:
    from ...aio import AsyncTask, AsyncWork
    from .intent import Intent
    from .outbound import Message


@dataclass
class Turn:
    """A letter in the hands of the model."""

    work: AsyncWork
    intent: Intent
    task: AsyncTask | None = None  # the task that its last word finishes
    moving: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who looks at the task and then moves it
    began: float | None = None  # seconds of a steady clock; None until it is handed over
    queued_at: float = 0.0  # likewise; nanobot queues once more what a running turn did not take up
    is_answered: bool = False  # by a tool; then the last word is not mailed
    is_answering: bool = False  # its last word is on its way to us
    is_waiting: bool = False  # not handed over: its session is busy, or it is put off
    put_off_until: float | None = None  # seconds of a steady clock
    is_over: bool = False  # as nanobot says
    failed: bool = False  # likewise
    last_message: Message | None = None  # the last thing said where it is told
    parts: list[tuple[str, tuple[str, ...]]] = field(
        default_factory=list
    )  # by tools, as part of the answer: text, files

    @property
    def id(self) -> str:
        return self.work.id

    def age(self, now: float) -> float:
        """For how many seconds the model has had it."""
        return 0.0 if self.is_waiting or self.began is None else now - self.began

    @property
    def peer(self) -> str:
        """Who is answered in this turn."""
        return self.intent.origin.chat if self.intent.what == "go_on" and self.intent.origin else self.work.sender

    @property
    def is_of_mail(self) -> bool:
        """Does it run in a session of mail, not in that of a person?"""
        return self.intent.what != "tell"

    @property
    def is_telling(self) -> bool:
        """Is a person being told of it?"""
        return self.intent.what == "tell" and not self.is_waiting


class Turns:
    """All turns that are not settled."""

    def __init__(self) -> None:
        self._by_letter: dict[str, Turn] = {}
        self._waiting: defaultdict[str, deque[Turn]] = defaultdict(deque)
        self._running: dict[str, Turn] = {}

    def __len__(self) -> int:
        return len(self._by_letter)

    @property
    def running(self) -> int:
        """How many do not wait."""
        return sum(not turn.is_waiting for turn in self._by_letter.values())

    def peers_with(self, most: int) -> frozenset[str]:
        """Who sent so many of these letters, or more; folded."""
        counted = Counter(fold(turn.work.sender) for turn in self._by_letter.values())
        return frozenset(peer for peer, count in counted.items() if count >= most)

    def all(self) -> list[Turn]:
        return list(self._by_letter.values())

    def get(self, letter: str | None) -> Turn | None:
        return None if letter is None else self._by_letter.get(letter)

    def begin(self, turn: Turn) -> bool:
        """Take a letter in hand. May it be handed over now?"""
        self._by_letter[turn.id] = turn
        session = turn.intent.session
        if not turn.is_of_mail:
            return True
        if session in self._running:
            turn.is_waiting = True
            self._waiting[session].append(turn)
            return False
        self._running[session] = turn
        return True

    def end(self, turn: Turn) -> Turn | None:
        """Let go of it. Gives the next one for its session."""
        if self._by_letter.get(turn.id) is turn:
            del self._by_letter[turn.id]
        session = turn.intent.session
        waiting = self._waiting.get(session)
        if waiting and turn in waiting:
            waiting.remove(turn)
        if self._running.get(session) is not turn:
            return None
        del self._running[session]
        if not waiting:
            self._waiting.pop(session, None)
            return None
        after = waiting.popleft()
        after.is_waiting = False
        self._running[session] = after
        return after

    def told_at(self, channel: str, chat: str) -> list[Turn]:
        """What a person at this chat is about to be told."""
        return [
            turn
            for turn in self._by_letter.values()
            if turn.is_telling
            and turn.intent.origin is not None
            and (turn.intent.origin.channel, turn.intent.origin.chat) == (channel, chat)
        ]

    def told_in(self, session: str) -> list[Turn]:
        """What is about to be told in this session."""
        return [turn for turn in self._by_letter.values() if turn.is_telling and turn.intent.session == session]

    def of_task(self, letter: str) -> Turn | None:
        """The turn that works on the task that this letter opened."""
        return next((turn for turn in self._by_letter.values() if turn.task and turn.task.id == letter), None)

    def first_of(self, peer: str) -> Turn | None:
        """The turn for a peer that has run longest and has not said its last word."""
        return next((turn for turn in self._running.values() if turn.peer == peer and not turn.is_answering), None)
