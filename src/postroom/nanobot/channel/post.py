"""`AgentPost`: the room and the mailbox of one agent, and the mail that its model sends.

The channel and the tools of one process share it (`shared`). All file work runs in the threads of the room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ... import room as postroom_room
from ...aio import AsyncRoom
from ...core import messages
from ...errors import HopsSpent, LoopDetected, NotAllowed, PostroomError, TooFast
from ...model.message import file, reference, same_name
from ...model.names import check_agent, check_party
from ...model.task import TaskState, answer
from ...policy.admission import REQUIRED
from ..manager import post_message
from . import auto_reply, intent
from . import text as channel_text
from .config import OWN_CHANNEL
from .intent import Origin
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...aio import AsyncTask
    from ...core.core import Core
    from ...core.messages import Receipt
    from ...mailbox import Mailbox
    from ...model.message import Message, Part
    from .config import Config
    from .turns import ModelTurn


def body(text: str, media: Sequence[str]) -> list[str | Part]:
    """Return the parts of a letter: the text, the files (read when the letter is sent) and the links."""
    parts: list[str | Part] = [text] if text.strip() else []
    for path in media:
        is_link = path.startswith(("http://", "https://"))
        parts.append(reference(path) if is_link else file(path))
    return parts


log = logging.getLogger("postroom")

_shared: dict[tuple[str, str], AgentPost] = {}
_opening = asyncio.Lock()


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation in which a model calls a tool."""

    channel: str
    chat: str
    session: str
    letter: str | None = None  # the letter that began the turn
    is_reached: bool = True  # can a gateway send messages there later?

    @property
    def place(self) -> str:
        """The key under which automatic mails are counted: a person's chat, or a thread of mail."""
        return self.session if self.channel == OWN_CHANNEL else f"{self.channel}:{self.chat}"


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A mail or a task to be sent."""

    to: str
    text: str
    media: tuple[str, ...] = ()
    subject: str = ""
    is_task: bool = False
    deadline: Any = None
    needs: tuple[str, ...] = ()  # capabilities without which a task is rejected
    id: str | None = None  # chosen before the first attempt, so that a retry sends nothing twice
    is_retry: bool = False
    is_automatic: bool = False  # written outside any conversation: it gets no automatic answer
    task_id: str | None = None  # set by local code
    ttl: int | None = None  # set by local code: fewer hops than usual
    callback: ToolCaller | None = None  # set by local code: where its answer is reported, instead of to the caller


class AgentPost:
    """The room and the mailbox of one agent, with the limits on what its model may send."""

    def __init__(self, config: Config, opened: postroom_room.Room) -> None:
        self.config = config
        self.name = check_agent(config.agent_id, "agentId")
        self.room = AsyncRoom(opened)
        self.box = self.room.mailbox(self.name)
        self.turns = Turns()
        self.automatic = auto_reply.Automatic(config.automatic_mails, config.automatic_per_hour)
        self.unattended: set[str] = set()  # conversations with input from neither a person nor mail
        self.notify_person: Callable[[ToolCaller, str], Awaitable[None]] | None = (
            None  # set by a channel that runs
        )
        self._pace = auto_reply.Pace(config.mails_per_minute)

    @property
    def core(self) -> Core:
        return self.room.room.core

    @property
    def mailbox(self) -> Mailbox:
        return self.box.mailbox

    async def close(self) -> None:
        # First, so that a tool that is called now opens a room of its own.
        _shared.pop((self.config.address, self.config.agent_id), None)
        await self.room.close()

    def turn_of(self, caller: ToolCaller | None) -> ModelTurn | None:
        return None if caller is None else self.turns.get(caller.letter)

    def new_id(self) -> str:
        return self.core.new_id(self.name)

    async def send(self, outgoing: Outgoing, caller: ToolCaller | None) -> Receipt:
        """Send a mail or a task from a conversation. Its answer comes back to that conversation."""
        to = check_party(outgoing.to, "to")
        turn = self.turn_of(caller)
        if same_name(to, self.name):
            raise NotAllowed("that is you", field="to")
        if turn is not None:
            _check_turn(to, turn)
        # A retry was counted when it was first tried.
        if not outgoing.is_retry:
            await self._check_limits(to, caller)
        origin = self._origin(outgoing.callback or caller, turn)
        return await self.room.run(self._send, outgoing, to, origin, _forwarded_letter(caller, turn))

    def _send(self, outgoing: Outgoing, to: str, origin: Origin | None, via: str | None) -> Receipt:
        id = outgoing.id or self.new_id()
        fields: dict[str, Any] = {"id": id}
        if outgoing.subject:
            fields["subject"] = outgoing.subject
        if via is not None:  # forwarded: one hop less, and never back to its sender
            fields["in_reply_to"] = via
        fields["metadata"] = _metadata(outgoing)
        content = body(outgoing.text, outgoing.media)
        mailbox = self.mailbox if outgoing.ttl is None else self._mailbox_with(hops=outgoing.ttl)
        if outgoing.is_task:
            value = None if origin is None else origin.to_record()
            if outgoing.task_id is not None:
                fields["key"] = outgoing.task_id  # the key becomes the id of the task
            return mailbox.give_task(to, content, deadline=outgoing.deadline, session=value, **fields)
        if origin is not None:
            intent.remember(self.core, self.name, id, origin)  # first: the answer may come at once
        return mailbox.send(to, content, **fields)

    async def send_manager_message(self, to: str, message: dict[str, Any]) -> None:
        """Send a message in the format of `MailboxManager.send`, for local code."""
        if same_name(check_party(to, "to"), self.name):
            raise NotAllowed("that is you", field="to")
        if message.get("ttl") == 0:
            raise HopsSpent("the message was relayed as often as it may be", field="ttl")
        self.check_pace(to)

        def send() -> None:
            post = post_message(self.core, self.name, to, message)
            messages.commit_posts(self.core, [post], [post], answer)

        await self.room.run(send)

    def _mailbox_with(self, **limits: Any) -> Mailbox:
        """Return this mailbox with limits that differ from those of the room."""
        # A copy: other threads send with the usual limits meanwhile.
        changed = copy(self.mailbox)
        changed.core = replace(self.core, limits=replace(self.core.limits, **limits))
        return changed

    async def reply(self, letter: str, to: str, text: str, caller: ToolCaller | None) -> Receipt:
        """Reply to a letter from a conversation. Further answers come back to that conversation."""
        turn = self.turn_of(caller)
        if turn is not None:
            _check_turn(to, turn)
        await self._check_limits(to, caller)
        return await self.room.run(self._reply, letter, text, self._origin(caller, turn))

    def _reply(self, letter: str, text: str, origin: Origin | None) -> Receipt:
        id = self.new_id()
        if origin is not None:
            intent.remember(self.core, self.name, id, origin)  # first: the answer may come at once
        return self.mailbox.reply(letter, text, id=id)

    async def answer(self, task: AsyncTask, text: str, caller: ToolCaller | None) -> None:
        """Answer a question about a task that we gave. It counts as a round, like any mail."""
        turn = self.turn_of(caller)
        await self._check_limits(task.receiver, caller)
        rounds = 0 if turn is None else turn.intent.rounds
        await self.room.run(intent.set_rounds, self.core, self.name, task.id, rounds)
        await task.answer(text)

    async def ask(self, task: AsyncTask, question: str) -> None:
        """Ask the giver of a task a question. No person takes part, so the rounds are counted per task."""
        questions = sum(_is_question(letter, task) for letter in await task.letters())
        if questions >= auto_reply.MOST_ROUNDS:
            raise NotAllowed(
                f"{task.giver} was asked {questions} times about this task",
                hint="do it with what you know, or call mail_decline",
            )
        self.check_pace(task.giver)
        if task.state is TaskState.ACCEPTED:
            await task.start()
        await task.ask(question)

    def _origin(self, caller: ToolCaller | None, turn: ModelTurn | None) -> Origin | None:
        if caller is None or not caller.channel:
            return None
        rounds = 0 if turn is None else turn.intent.rounds
        letter = None if turn is None else turn.intent.answers
        return Origin(
            channel=caller.channel,
            chat=caller.chat,
            session=caller.session,
            rounds=rounds,
            letter=letter,
        )

    async def _check_limits(self, to: str, caller: ToolCaller | None) -> None:
        """Refuse a mail over the rate limit, or over the limit of mails without a person's word (G11)."""
        # nanobot 0.3.5 merges a report that comes during a person's turn into that turn, where no letter is the
        # caller. While a report is in hand there, the model may be acting on it: mail counts as automatic (G11).
        is_automatic = caller is not None and bool(
            caller.letter or caller.place in self.unattended or self.turns.reporting_in(caller.session)
        )
        if caller is not None and is_automatic:
            turn = self.turn_of(caller)
            rounds = 0 if turn is None else turn.intent.rounds
            stop = self.automatic.stop(caller.place, to, rounds, time.monotonic())
            if stop is not None:
                if stop.is_first:
                    await self.notify_stop(to, stop.why, caller)
                raise NotAllowed(
                    stop.why, field="to", hint="ask the person first: it goes on when a person writes"
                )
        self.check_pace(to)

    def check_pace(self, to: str) -> None:
        if not self._pace.allows(to, time.monotonic()):
            raise TooFast(
                f"more than {self._pace.most} mails to {to} within a minute", field="to", hint="wait a minute"
            )

    def person_wrote(self, place: str) -> None:
        self.unattended.discard(place)
        self.automatic.person_wrote(place)

    async def notify_stop(self, peer: str, why: str, caller: ToolCaller | None = None) -> None:
        """Notify the peer and the person that automatic mail stopped.

        The person is notified in their chat, or by a letter if mail began the conversation.
        """
        notified = [peer]
        if caller is None or caller.channel == OWN_CHANNEL:
            notified.append(self.core.limits.human)
        elif self.notify_person is not None:
            await self.notify_person(caller, channel_text.stopped(self.name, peer, why))
        for name in notified:
            await self.room.run(self._notify, name, channel_text.stopped(self.name, peer, why))

    def _notify(self, to: str, text: str) -> None:
        try:
            self._mailbox_with(unknown="accept").send(
                to,
                text,
                kind="notification",
                subject="Automatic mail stopped",
                metadata=dict(auto_reply.AUTOMATIC),
            )
        except PostroomError as refused:  # the stop holds even if its notification cannot be sent
            log.warning("mailbox: %s cannot be notified of the stop: %s", to, refused)


def _metadata(outgoing: Outgoing) -> dict[str, Any]:
    fields: dict[str, Any] = dict(auto_reply.AUTOMATIC) if outgoing.is_automatic else {}
    return fields | ({REQUIRED: list(outgoing.needs)} if outgoing.needs else {})


def _forwarded_letter(caller: ToolCaller | None, turn: ModelTurn | None) -> str | None:
    """Return the letter that mail sent from a session of mail forwards, even if its turn is settled already."""
    if turn is None:
        return caller.letter if caller is not None and caller.channel == OWN_CHANNEL else None
    return (turn.intent.answers or turn.id) if turn.is_of_mail else None


def _check_turn(to: str, turn: ModelTurn) -> None:
    if turn.is_of_mail and same_name(to, turn.peer):
        why = "your last words in this turn are mailed to it" if turn.intent.answers else "it expects no answer"
        raise LoopDetected(f"this turn was begun by a mail of {turn.peer}: {why}", field="to")


def _is_question(letter: Message, task: AsyncTask) -> bool:
    note = letter.task
    is_of_task = note is not None and note.id == task.standing.id and letter.sender != task.giver
    return is_of_task and note is not None and note.state == TaskState.INPUT_REQUIRED


async def shared(config: Config, file_root: str) -> AgentPost:
    """Return the post of this agent in this process, opened at the first call."""
    key = (config.address, config.agent_id)
    async with _opening:  # tools called at once must share one room
        if key not in _shared:
            opened = await asyncio.to_thread(_open, config, file_root)
            _shared[key] = AgentPost(config, opened)
        return _shared[key]


def _open(config: Config, file_root: str) -> postroom_room.Room:
    """Open the room so that unknown recipients are refused: mail to a model's misspelt name would be lost."""
    return postroom_room.open(config.address, file_root=file_root, unknown="refuse")
