"""One agent's post: its room, its mailbox, and what its model sends from a conversation.

The channel and the tools of one process share it. All file work runs in the room's threads.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from .. import room
from ..aio import AsyncRoom
from ..errors import LoopDetected, NotAllowed, TooFast
from ..model.message import same_name
from ..model.names import check_agent, check_party
from ..model.task import TaskState
from ..policy.admission import REQUIRED
from . import asked, manners
from .asked import Asked
from .config import OWN_CHANNEL
from .enclosures import body
from .turns import Turns

if TYPE_CHECKING:
    from ..aio_task import AsyncTask
    from ..mailbox import Mailbox
    from ..model.message import Message
    from ..service.office import Office
    from ..service.sending import Receipt
    from .config import Config
    from .turns import Turn

_shared: dict[tuple[str, str, str], Post] = {}
_opening = asyncio.Lock()


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation in which a model calls a tool."""

    channel: str
    chat: str
    session: str
    letter: str | None = None  # the letter that began the turn
    is_reached: bool = True  # can a gateway speak there later?


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent."""

    to: str
    text: str
    media: tuple[str, ...] = ()
    subject: str = ""
    is_task: bool = False
    deadline: Any = None
    needs: tuple[str, ...] = ()  # capabilities without which a task is rejected
    id: str | None = None  # chosen before, so that a second try sends nothing twice
    is_retry: bool = False
    is_automatic: bool = False  # nobody in a conversation wrote it: it is not answered by itself


class Post:
    """The post of one agent."""

    def __init__(self, config: Config, opened: room.Room, home: str) -> None:
        self.config = config
        self.home = home  # what this gateway is known by among those of the same agent
        self.name = check_agent(config.agent_id, "agentId")
        self.room = AsyncRoom(opened)
        self.box = self.room.mailbox(self.name)
        self.turns = Turns()
        self._pace = manners.Pace()

    @property
    def office(self) -> Office:
        return self.room.room._office

    @property
    def mailbox(self) -> Mailbox:
        return self.box.mailbox

    async def close(self) -> None:
        _shared.pop((self.config.address, self.config.agent_id, self.home), None)
        await self.room.close()

    def turn_of(self, caller: Caller | None) -> Turn | None:
        return None if caller is None else self.turns.get(caller.letter)

    def new_id(self) -> str:
        return self.office.new_id(self.name)

    async def send(self, outgoing: Outgoing, caller: Caller | None) -> Receipt:
        """Mail, or a task, from a conversation. Its answer comes back there."""
        to = check_party(outgoing.to, "to")
        turn = self.turn_of(caller)
        self._check_manners(to, turn, outgoing)
        return await self.room.run(self._send, outgoing, to, self._where(caller, turn), _passed_on(caller, turn))

    def _send(self, outgoing: Outgoing, to: str, where: Asked | None, via: str | None) -> Receipt:
        id = outgoing.id or self.new_id()
        fields: dict[str, Any] = {"id": id}
        if outgoing.subject:
            fields["subject"] = outgoing.subject
        if via is not None:  # passed on: one hop less, and never back
            fields["in_reply_to"] = via
        fields["metadata"] = _metadata(outgoing)
        content = body(outgoing.text, outgoing.media)
        if outgoing.is_task:
            said = None if where is None else where.to_record()
            return self.mailbox.give_task(to, content, deadline=outgoing.deadline, session=said, **fields)
        if where is not None:
            asked.remember(self.office, self.name, id, where)
        return self.mailbox.send(to, content, **fields)

    async def reply(self, letter: str, to: str, text: str, caller: Caller | None) -> Receipt:
        """An answer from a conversation; what comes of it comes back there."""
        turn = self.turn_of(caller)
        if turn is not None:
            _check_turn(to, turn)
        self.check_pace(to)
        return await self.room.run(self._reply, letter, text, self._where(caller, turn))

    def _reply(self, letter: str, text: str, where: Asked | None) -> Receipt:
        id = self.new_id()
        if where is not None:
            asked.remember(self.office, self.name, id, where)
        return self.mailbox.reply(letter, text, id=id)

    async def answer(self, task: AsyncTask, text: str, caller: Caller | None) -> None:
        """The answer to a question about a task that we gave: a round, like any errand."""
        turn = self.turn_of(caller)
        if turn is not None:
            _check_rounds(turn)
        self.check_pace(task.receiver)
        rounds = 0 if turn is None else turn.errand.rounds
        await self.room.run(asked.set_rounds, self.office, self.name, task.id, rounds)
        await task.answer(text)

    async def ask(self, task: AsyncTask, question: str) -> None:
        """A question to whoever gave us a task. Here no person speaks: the rounds are counted by the task."""
        asked_before = sum(_is_question(letter, task) for letter in await task.letters())
        if asked_before >= manners.MOST_ROUNDS:
            raise NotAllowed(
                f"{task.giver} was asked {asked_before} times about this task",
                hint="do it with what you know, or call mail_decline",
            )
        self.check_pace(task.giver)
        if task.state is TaskState.ACCEPTED:
            await task.start()
        await task.ask(question)

    def _where(self, caller: Caller | None, turn: Turn | None) -> Asked | None:
        if caller is None or not caller.channel:
            return None
        rounds = 0 if turn is None else turn.errand.rounds
        letter = None if turn is None else turn.errand.answers
        return Asked(
            channel=caller.channel,
            chat=caller.chat,
            session=caller.session,
            rounds=rounds,
            letter=letter,
            home=self.home,
        )

    def _check_manners(self, to: str, turn: Turn | None, outgoing: Outgoing) -> None:
        if same_name(to, self.name):
            raise NotAllowed("that is you", field="to")
        if turn is not None:
            _check_turn(to, turn)
        if not outgoing.is_retry:
            self.check_pace(to)

    def check_pace(self, to: str) -> None:
        if not self._pace.allows(to, time.monotonic()):
            raise TooFast(
                f"more than {manners.PER_MINUTE} mails to {to} within a minute", field="to", hint="wait a minute"
            )


def _metadata(outgoing: Outgoing) -> dict[str, Any]:
    said: dict[str, Any] = dict(manners.AUTOMATIC) if outgoing.is_automatic else {}
    return said | ({REQUIRED: list(outgoing.needs)} if outgoing.needs else {})


def _passed_on(caller: Caller | None, turn: Turn | None) -> str | None:
    """The letter that is passed on by what is sent in a session of mail, also when its turn is settled already."""
    if turn is None:
        return caller.letter if caller is not None and caller.channel == OWN_CHANNEL else None
    return (turn.errand.answers or turn.id) if turn.is_of_mail else None


def _check_turn(to: str, turn: Turn) -> None:
    if turn.is_of_mail and same_name(to, turn.peer):
        says = "your last words in this turn are mailed to it" if turn.errand.answers else "it expects no answer"
        raise LoopDetected(f"this turn was begun by a mail of {turn.peer}: {says}", field="to")
    _check_rounds(turn)


def _check_rounds(turn: Turn) -> None:
    if turn.errand.rounds >= manners.MOST_ROUNDS:
        raise NotAllowed(
            f"this went on for {turn.errand.rounds} rounds without a word of the person",
            hint="ask the person first",
        )


def _is_question(letter: Message, task: AsyncTask) -> bool:
    note = letter.task
    is_of_task = note is not None and note.id == task.standing.id and letter.sender != task.giver
    return is_of_task and note is not None and note.state == TaskState.INPUT_REQUIRED


async def shared(config: Config, file_root: str, home: str) -> Post:
    """The post of this agent in this process; opened when it is first asked for."""
    key = (config.address, config.agent_id, home)
    async with _opening:
        if key not in _shared:
            opened = await asyncio.to_thread(_open, config, file_root)
            _shared[key] = Post(config, opened, home)
        return _shared[key]


def _open(config: Config, file_root: str) -> room.Room:
    """A recipient nobody has heard of is refused: a model's typing error would be a black hole."""
    return room.open(config.address, file_root=file_root, unknown="refuse")
