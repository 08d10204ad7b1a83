"""Turns: the letters that the model works on, those that wait for their session, and the state of each.

A session has one turn at a time. nanobot would add a second letter to the running turn and give one answer to
both; so the second letter waits here, under its lease.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...model.names import fold

if TYPE_CHECKING:
    from ...aio import AsyncTask, AsyncWork
    from .bus import BusMessage
    from .intent import Intent


@dataclass
class ModelTurn:
    """A letter that the model works on, or that waits for its session."""

    work: AsyncWork
    intent: Intent
    task: AsyncTask | None = None  # the task that its final answer completes
    task_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while the task is read and then moved
    began: float | None = None  # monotonic time; None until it is handed over
    queued_at: float = 0.0  # monotonic time; nanobot queues again what a running turn did not take up
    is_answered: bool = False  # by a tool; then the final answer is not mailed
    is_answering: bool = False  # its final answer is on the way to the reception
    is_waiting: bool = False  # not handed over: its session is busy, or it is postponed
    postponed_until: float | None = None  # monotonic time
    is_over: bool = False  # as nanobot announced
    failed: bool = False  # as nanobot announced, or as its final message shows
    last_message: BusMessage | None = None  # the last message in the chat where it is reported
    # (text, files) that tools sent to the chat of the turn, as parts of the answer
    parts: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.work.id

    def age(self, now: float) -> float:
        """Return for how many seconds the model has had it."""
        return 0.0 if self.is_waiting or self.began is None else now - self.began

    @property
    def peer(self) -> str:
        """The agent that is answered in this turn."""
        return (
            self.intent.origin.chat
            if self.intent.action == "continue" and self.intent.origin
            else self.work.sender
        )

    @property
    def is_of_mail(self) -> bool:
        """True if the turn runs in a session of mail, not in one of a person."""
        return self.intent.action != "report"

    @property
    def is_reporting(self) -> bool:
        """True while the model reports the letter to a person."""
        return self.intent.action == "report" and not self.is_waiting


class Turns:
    """All turns that are not settled."""

    def __init__(self) -> None:
        self._by_letter: dict[str, ModelTurn] = {}
        self._waiting: defaultdict[str, deque[ModelTurn]] = defaultdict(deque)
        self._running: dict[str, ModelTurn] = {}

    def __len__(self) -> int:
        return len(self._by_letter)

    @property
    def running(self) -> int:
        """The number of turns that do not wait."""
        return sum(not turn.is_waiting for turn in self._by_letter.values())

    def peers_with(self, most: int) -> frozenset[str]:
        """Return the folded names of the senders of `most` or more of these letters."""
        counted = Counter(fold(turn.work.sender) for turn in self._by_letter.values())
        return frozenset(peer for peer, count in counted.items() if count >= most)

    def all(self) -> list[ModelTurn]:
        return list(self._by_letter.values())

    def get(self, letter: str | None) -> ModelTurn | None:
        return None if letter is None else self._by_letter.get(letter)

    def begin(self, turn: ModelTurn) -> bool:
        """Add a turn; return whether it may be handed over now."""
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

    def end(self, turn: ModelTurn) -> ModelTurn | None:
        """Remove a turn; return the next one of its session, which may be handed over now."""
        # The letter may have come again meanwhile, with a turn of its own.
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

    def reporting_to(self, channel: str, chat: str) -> list[ModelTurn]:
        """Return the turns that are being reported to this chat."""
        return [
            turn
            for turn in self._by_letter.values()
            if turn.is_reporting
            and turn.intent.origin is not None
            and (turn.intent.origin.channel, turn.intent.origin.chat) == (channel, chat)
        ]

    def reporting_in(self, session: str) -> list[ModelTurn]:
        """Return the turns that are being reported in this session."""
        return [turn for turn in self._by_letter.values() if turn.is_reporting and turn.intent.session == session]

    def of_task(self, letter: str) -> ModelTurn | None:
        """Return the turn that works on the task that this letter opened."""
        return next((turn for turn in self._by_letter.values() if turn.task and turn.task.id == letter), None)

    def first_of(self, peer: str) -> ModelTurn | None:
        """Return the turn of a peer that runs longest and has no final answer yet."""
        return next((turn for turn in self._running.values() if turn.peer == peer and not turn.is_answering), None)
