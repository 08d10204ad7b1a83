"""`MailboxChannel`: the reception as a channel of nanobot's gateway. Thin: it translates, and decides nothing.

Works with nanobot 0.2.2 to 0.3.5. All say when a turn is over; of old ones, the last word says whether it failed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot.agent.tools.context import current_request_context
from nanobot.bus.events import InboundMessage, OutboundMessage
from nanobot.channels.base import BaseChannel
from nanobot.config.loader import load_config
from nanobot.config.paths import get_data_dir, get_media_dir
from nanobot.config.schema import Base

from ...errors import Busy, PostroomError, TooFast, UnknownAgent
from . import bus as channel_bus
from . import config as channel_config
from . import gateways, intent, outbound
from . import text as channel_text
from .auto_reply import MOST_REFUSALS
from .bus import Inbound
from .config import OWN_CHANNEL
from .gateways import is_reached
from .post import shared
from .reception import Reception
from .toolbox import WHOM

if TYPE_CHECKING:
    from .post import Caller, Post
    from .turns import Turn


STOP_PATIENCE = 10.0  # seconds
BEFORE_TOLD = 1.0  # seconds after a word in which nanobot would queue again what the turn did not take up
BEFORE_GIVING_UP = 2.0  # seconds after a turn was stopped: a gateway that goes down stops its channels next


class MailboxConfig(Base):  # type: ignore[misc] # nanobot is installed elsewhere, and unknown here
    """The section of the design, for programs that make it in Python. The channel itself reads `config.Config`."""

    enabled: bool = False
    agent_id: str = ""
    description: str = ""
    capabilities: list[str] = []  # noqa: RUF012 - pydantic copies it
    allow_from: list[str] = ["*"]  # noqa: RUF012 - likewise
    max_concurrent_tasks: int = 3
    poll_interval: float = 5.0
    mailboxes_root: str = "~/.nanobot/mailboxes"


class MailboxChannel(BaseChannel):  # type: ignore[misc] # nanobot is installed elsewhere, and unknown here
    """Mail between agents."""

    name = OWN_CHANNEL
    display_name = "Mailbox"

    def __init__(self, config: Any, bus: Any) -> None:
        if isinstance(config, MailboxConfig):
            config = config.model_dump(by_alias=True)
        self.settings = channel_config.parse(config)
        super().__init__({**config, "allowFrom": list(self.settings.allow_from)}, bus)
        self.post: Post | None = None
        self.reception: Reception | None = None
        self._workspace = Path()
        self._refused: Counter[tuple[str, str]] = Counter()  # by channel and chat
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: list[Any] = []
        self._says_how = False  # does nanobot say how a turn ended?
        self._log = self.logger  # loguru's: its texts have places in braces
        self._under_way: set[asyncio.Task[None]] = set()
        self._giving_up: set[asyncio.Task[None]] = set()
        self._publish_outbound = bus.publish_outbound
        bus.publish_outbound = self._note_outbound  # the only place where the asking session is known
        self._publish_inbound = bus.publish_inbound
        bus.publish_inbound = self._note_inbound

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        return channel_config.default_config()

    def progress_transport_defaults(self) -> tuple[bool, bool]:
        return (False, False)

    def should_retry_send_error(self, error: Exception) -> bool:
        return not isinstance(error, PostroomError) or error.temporary

    def start_error_message(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, PostroomError) else None

    def is_allowed(self, sender_id: str) -> bool:
        """The post room asks its own guards."""
        return bool(sender_id)

    # -- life

    async def start(self) -> None:
        """Stays until it is stopped."""
        self._task = asyncio.current_task()
        written = await asyncio.to_thread(load_config)
        self._workspace = written.workspace_path
        home = await asyncio.to_thread(gateways.home_at, get_data_dir())
        self.post = await shared(self.settings, str(self._workspace), home)
        self.post.tell_person = self._tell_person
        self.reception = Reception(self.post, self, self._log, Path(get_media_dir(OWN_CHANNEL)))
        self._subscribe()
        self._running = True
        try:
            await self.reception.run()
        finally:
            self._running = False

    async def stop(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=STOP_PATIENCE)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for task in self._giving_up:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=STOP_PATIENCE)
        self.bus.publish_outbound = self._publish_outbound
        self.bus.publish_inbound = self._publish_inbound
        if self.reception is not None:
            await self.reception.leave()
        if self.post is not None:
            await self.post.close()
        self.post = self.reception = None

    # -- to the model

    @property
    def says_what_is_over(self) -> bool:
        return bool(self._unsubscribe)

    async def reaches(self, channel: str) -> bool:
        """Asked anew each time: channels are turned on and off while the gateway runs."""
        written = await asyncio.to_thread(load_config)
        return is_reached(channel, dict(written.channels))

    async def hand_over(self, inbound: Inbound) -> None:
        await self.bus.publish_inbound(
            InboundMessage(
                channel=inbound.channel,
                sender_id=inbound.sender,
                chat_id=inbound.chat,
                content=inbound.content,
                media=list(inbound.media),
                metadata=dict(inbound.metadata),
                session_key_override=inbound.session,
            )
        )

    # -- from the model

    async def send(self, msg: OutboundMessage) -> None:
        """The last word of a turn, or mail by the stock `message` tool or by local code."""
        if self.post is None or self.reception is None:
            raise ConnectionError("the mailbox is not open yet")
        if outbound.is_progress(msg):
            return
        turn = outbound.turn_of(msg, self.post.turns)
        if turn is not None:
            turn.failed = (
                turn.failed or await self._has_failed(turn, msg) or await self._lacks_result(self.post, turn, msg)
            )
            await self.reception.say(turn.id, msg.content, tuple(msg.media))
        elif not outbound.is_about_turn(msg):
            await self._mail(self.post, msg)

    async def send_message(self, to_id: str, msg: dict[str, Any]) -> None:
        """Mail a message of the design to another agent. A loop, or a `ttl` that is spent, is refused."""
        if self.post is None:
            raise ConnectionError("the mailbox is not open yet")
        await self.post.send_designed(to_id, msg)

    async def _has_failed(self, turn: Turn, msg: OutboundMessage | None) -> bool:
        """As far as a nanobot that does not say so lets us know: by what it has just kept in the session."""
        if self._says_how:
            return False
        kept = await asyncio.to_thread(self._kept_in, turn.intent.session)
        return outbound.is_failure(msg, outbound.last_answer(kept))

    async def _lacks_result(self, post: Post, turn: Turn, msg: OutboundMessage) -> bool:
        """Has a task come to its end without a word of the model? Not if others go on with it."""
        if turn.task is None or turn.parts or not outbound.is_no_answer(msg):
            return False
        return not await post.room.run(intent.is_waiting, post.core, post.name, turn.task.id, turn.id)

    def _kept_in(self, session: str) -> list[Any]:
        from nanobot.session.manager import SessionManager  # noqa: PLC0415 - not needed from 0.3.5 on

        try:
            held = SessionManager(self._workspace).read_session_file(session)
        except OSError:  # nothing can be kept there: then nothing was
            held = None
        return list(held["messages"]) if held else []

    async def _mail(self, post: Post, msg: OutboundMessage) -> None:
        """Send new mail, or tell the conversation why not. What is raised is tried again by nanobot for some
        seconds. That is too short for a pace: TooFast is raised only where no conversation can be told of it.
        """
        caller = outbound.caller_of(msg)
        try:
            await post.send(outbound.outgoing(msg, post, self._warn), caller)
        except PostroomError as refused:
            if isinstance(refused, TooFast):
                del msg.metadata[outbound.SENT_AS]  # the next try is counted like the first
            if isinstance(refused, Busy) and (caller is None or not isinstance(refused, TooFast)):
                raise
            if isinstance(refused, UnknownAgent):
                refused.hint = WHOM  # a model registers nobody
            self._log.warning("mailbox: the mail to {} is not sent: {}", msg.chat_id, refused)
            if caller is not None and caller.channel != OWN_CHANNEL:
                await self._tell_not_sent(msg, caller, refused)

    def _warn(self, text: str) -> None:
        self._log.warning("mailbox: {}", text)

    async def _tell_person(self, caller: Caller, text: str) -> None:
        """Into the person's chat, without a turn of the model."""
        await self._publish_outbound(OutboundMessage(channel=caller.channel, chat_id=caller.chat, content=text))

    async def _tell_not_sent(self, msg: OutboundMessage, caller: Caller, refused: PostroomError) -> None:
        """A model that tries again whenever it is told is not told for ever."""
        self._refused[caller.channel, caller.chat] += 1
        if self._refused[caller.channel, caller.chat] > MOST_REFUSALS:
            return
        await self.hand_over(
            Inbound(
                channel="system",
                sender=OWN_CHANNEL,
                chat=f"{caller.channel}:{caller.chat}",
                session=caller.session,
                content=channel_text.not_sent(msg.chat_id, str(refused)),
            )
        )

    async def _note_outbound(self, msg: OutboundMessage) -> None:
        """Every message that leaves the model passes here, while it is still known who speaks."""
        context = current_request_context()
        turns = None if self.post is None else self.post.turns
        if msg.channel == OWN_CHANNEL:
            outbound.note(msg, context, turns, collects=self.says_what_is_over)
        elif turns is not None and context is None and outbound.is_last_word(msg):
            for turn in turns.told_at(*outbound.place_of(msg)):
                turn.last_message = msg
        await self._publish_outbound(msg)

    async def _note_inbound(self, msg: InboundMessage) -> None:
        turn = self._turn_of(msg.metadata)
        if turn is not None:
            turn.queued_at = time.monotonic()
        elif msg.channel not in {"system", OWN_CHANNEL}:  # a person speaks
            self._refused.pop((msg.channel, msg.chat_id), None)
            if self.post is not None:
                self.post.person_wrote(f"{msg.channel}:{msg.chat_id}")
        elif msg.channel == "system" and self.post is not None:  # such as the result of a subagent
            self.post.unattended.add(msg.chat_id)
        await self._publish_inbound(msg)

    async def _told(self, turn: Turn, at: float) -> None:
        """A person was told something: what waited for it there was part of that, unless it is queued again."""
        received = turn.last_message
        await asyncio.sleep(BEFORE_TOLD)
        if turn.queued_at <= at:
            await self._over(turn, received)

    async def _over(self, turn: Turn, received: OutboundMessage | None) -> None:
        turn.failed = turn.failed or await self._has_failed(turn, received)
        if self.reception is not None:
            await self.reception.over(turn.id)

    # -- what nanobot says of turns

    def _subscribe(self) -> None:
        said_at = channel_bus.said_at(self.bus)
        if said_at is None:
            return
        from nanobot.bus.runtime_events import TurnCompleted, TurnRunStatusChanged  # noqa: PLC0415 - only where it speaks

        self._says_how = "outcome" in TurnCompleted.__dataclass_fields__  # from 0.3.5 on
        self._unsubscribe = [
            said_at.subscribe(self._on_completed, TurnCompleted),
            said_at.subscribe(self._on_status, TurnRunStatusChanged),
        ]

    def _on_completed(self, event: Any) -> None:
        """Comes when the last word is queued and before it is sent, so that `send` knows how the turn ended."""
        reception = self.reception
        if reception is None:
            return
        turn = self._turn_of(event.context.metadata)
        if turn is not None:
            turn.is_over = True
            self._note_outcome(turn, event)
            if not turn.is_answering:
                _soon(self._over(turn, turn.last_message), self._under_way)
        for waiting in reception.post.turns.told_in(event.context.session_key):
            if waiting is not turn:  # it may have been part of this one
                self._note_outcome(waiting, event)
                _soon(self._told(waiting, time.monotonic()), self._under_way)

    def _note_outcome(self, turn: Turn, event: Any) -> None:
        if self._says_how:
            turn.failed = event.outcome == "failed"

    def _on_status(self, event: Any) -> None:
        turn = self._turn_of(event.context.metadata)
        if turn is not None and event.status == "idle" and not turn.is_over:
            _soon(self._give_up(turn.id), self._giving_up)

    async def _give_up(self, letter: str) -> None:
        await asyncio.sleep(BEFORE_GIVING_UP)
        if self.reception is not None:
            await self.reception.broken_off(letter)

    def _turn_of(self, metadata: Any) -> Turn | None:
        return None if self.post is None else self.post.turns.get(outbound.letter_in(metadata))


def _soon(doing: Any, tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.create_task(doing)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
