"""Letters about tasks that were found in files enter the book of tasks, in the transaction that takes them in.

They may be strangers', or our own after the index was lost: what the book knows already is not told it again. What
is entered is told by the letters, so a journal that cannot be written fails nobody.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...model.book import Pages, task_above, task_on, write_task
from ...model.codec import convert, to_plain
from ...model.delivery import UNSENT
from ...model.guard import guard_from
from ...model.record import GUARD, TASKS
from ...model.task import TASK_UPDATE, Standing, answer, open_task
from ..base import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model.delivery import Delivery
    from ...model.message import Message
    from ..sqlite.writing import Writing
    from .connection import FileConnection


class Entering:
    """Of one look at the folders."""

    def __init__(self, here: FileConnection) -> None:
        self._here = here
        self._came: list[tuple[Message, Delivery]] = []
        self._called: dict[tuple[str, str], set[str]] = {}  # letters that opened tasks, by party and name
        self._known: set[str] = set()  # parties whose tasks of before are among these

    def note(self, message: Message, delivery: Delivery) -> None:
        """A letter came, at this mailbox. In the order of acceptance."""
        if message.task is not None and delivery.reason != UNSENT:
            self._came.append((message, delivery))

    def enter(self, writing: Writing) -> Sequence[Put]:
        """What changed in the book."""
        if not self._came:
            return ()
        self._pages = Pages(self._here.records)
        told = [(replace(m, sender=self._resident(m.sender)), delivery) for m, delivery in self._came]
        for message, delivery in told:
            if delivery.kind == "to":
                self._open(message, delivery.mailbox)
        places = {message.id: place for place, (message, _) in enumerate(told)}
        for message, _ in told:  # whatever the clocks of strangers say, an answer comes after its task
            if message.kind == TASK_UPDATE:
                self._update(message, places)
        puts = [Put(record=record) for record in self._pages.changed()]
        writing.apply(puts)
        self._journal(puts)
        return puts

    def _open(self, message: Message, mailbox: str) -> None:
        opened = open_task(message)
        if opened is not None and task_on(self._pages, opened.giver, opened.letter) is None:
            self._write(replace(opened, receiver=self._resident(mailbox)))

    def _update(self, message: Message, places: dict[str, int]) -> None:
        task = task_above(self._pages, message) or self._task_called(message)
        if task is None:
            return
        if task.last != task.letter and places[message.id] <= places.get(task.last, -1):
            return  # the book is further than this letter
        # A stranger names the letter it answers, or only the task. Our threads it does not know.
        after = answer(task, replace(message, thread_id=task.thread))
        if after != task:
            self._write(after)

    def _task_called(self, message: Message) -> Standing | None:
        """The one task of its sender that has this name, where the letter it answers says nothing of one."""
        if message.task is None:
            return None
        party = message.sender
        if party not in self._known:
            self._known.add(party)
            for record in self._here.records(TASKS + party):
                self._learn(party, convert(record.value, Standing))
        letters = self._called.get((party, message.task.id), ())
        return task_on(self._pages, party, *letters) if len(letters) == 1 else None

    def _learn(self, party: str, task: Standing) -> None:
        self._called.setdefault((party, task.id), set()).add(task.letter)

    def _write(self, task: Standing) -> None:
        write_task(self._pages, task)
        for party in (task.giver, task.receiver):
            self._learn(party, task)

    def _resident(self, name: str) -> str:
        """Who is meant by a name today."""
        guard = self._pages.read(GUARD, name)
        return (guard_from(guard).moved_to if guard is not None else None) or name

    def _journal(self, puts: Sequence[Put]) -> None:
        if puts:
            writes = [{"put": to_plain(self._here.record_as_written(put))} for put in puts]
            with suppress(OSError):
                line = {"n": self._here.ledger.next_line(), "writes": writes}
                self._here.journal.append(line, durable=False)
