"""`MailboxChannel`: mail as a channel of nanobot's gateway. It translates between nanobot and `Reception`.

It works with nanobot 0.2.2 to 0.3.5. All versions announce the end of a turn. Before 0.3.5 only the final message
of a turn shows whether it failed.
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
from nanobot.config.paths import get_media_dir
from nanobot.config.schema import Base

from ...errors import Busy, PostroomError, TooFast, UnknownAgent
from . import bus as channel_bus
from . import config as channel_config
from . import intent
from . import text as channel_text
from .auto_reply import MOST_REFUSALS
from .bus import Inbound
from .config import OWN_CHANNEL
from .gateways import is_reached
from .post import shared
from .reception import Reception
from .toolbox import WHOM

if TYPE_CHECKING:
    from .post import AgentPost, ToolCaller
    from .turns import ModelTurn


STOP_PATIENCE = 10.0  # seconds to wait for running operations when the channel stops
REQUEUE_WINDOW = 1.0  # seconds after an answer in which nanobot may queue again what its turn did not take up
BEFORE_GIVING_UP = 2.0  # seconds after a turn was stopped: a gateway that shuts down stops its channels next


class MailboxConfig(Base):  # type: ignore[misc] # nanobot is installed elsewhere, and unknown here
    """The settings of the channel, for programs that create it in Python. The channel reads `config.Config`."""

    enabled: bool = False
    agent_id: str = ""
    description: str = ""
    capabilities: list[str] = []  # noqa: RUF012 - pydantic copies it
    allow_from: list[str] = ["*"]  # noqa: RUF012 - pydantic copies it
    max_concurrent_tasks: int = 3
    poll_interval: float = 5.0
    mailboxes_root: str = "~/.nanobot/mailboxes"


class MailboxChannel(BaseChannel):  # type: ignore[misc] # nanobot is installed elsewhere, and unknown here
    """The channel `mailbox`: mail between agents."""

    name = OWN_CHANNEL
    display_name = "Mailbox"

    def __init__(self, config: Any, bus: Any) -> None:
        if isinstance(config, MailboxConfig):
            config = config.model_dump(by_alias=True)
        self.settings = channel_config.parse(config)
        super().__init__({**config, "allowFrom": list(self.settings.allow_from)}, bus)
        self.post: AgentPost | None = None
        self.reception: Reception | None = None
        self._workspace = Path()
        self._refused: Counter[tuple[str, str]] = Counter()  # by channel and chat
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: list[Any] = []
        self._reports_outcome = False  # does nanobot announce whether a turn failed?
        self._log = self.logger  # loguru's: its placeholders are braces
        self._under_way: set[asyncio.Task[None]] = set()
        self._giving_up: set[asyncio.Task[None]] = set()
        self._publish_outbound = bus.publish_outbound
        bus.publish_outbound = self._note_outbound  # the only place where the calling session is known
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
        """Allow any sender: the room itself checks `allow_from`."""
        return bool(sender_id)

    # -- start and stop

    async def start(self) -> None:
        """Run until the channel is stopped."""
        self._task = asyncio.current_task()
        written = await asyncio.to_thread(load_config)
        self._workspace = written.workspace_path
        self.post = await shared(self.settings, str(self._workspace))
        self.post.notify_person = self._notify_person
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
        # No events from here on: the end of a turn would settle a letter that is given back below.
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for task in self._giving_up:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=STOP_PATIENCE)
        self.bus.publish_outbound = self._publish_outbound
        self.bus.publish_inbound = self._publish_inbound
        # Before the room is closed: letters in hand go back now, not when their leases end.
        if self.reception is not None:
            await self.reception.leave()
        if self.post is not None:
            await self.post.close()
        self.post = self.reception = None

    # -- to the model

    @property
    def reports_turn_ends(self) -> bool:
        return bool(self._unsubscribe)

    async def reaches(self, channel: str) -> bool:
        """Read the config at each call: channels are enabled and disabled while the gateway runs."""
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
        """Take the final answer of a turn, or a mail of nanobot's `message` tool or of local code."""
        if self.post is None or self.reception is None:
            raise ConnectionError("the mailbox is not open yet")
        if channel_bus.is_progress(msg):
            return
        turn = channel_bus.turn_of(msg, self.post.turns)
        if turn is not None:
            turn.failed = (
                turn.failed or await self._has_failed(turn, msg) or await self._lacks_result(self.post, turn, msg)
            )
            await self.reception.answer_turn(turn.id, msg.content, tuple(msg.media))
        elif not channel_bus.is_about_turn(msg):
            await self._mail(self.post, msg)

    async def send_message(self, to_id: str, msg: dict[str, Any]) -> None:
        """Send a message in the format of `MailboxManager.send`. A loop or a spent `ttl` is refused."""
        if self.post is None:
            raise ConnectionError("the mailbox is not open yet")
        await self.post.send_manager_message(to_id, msg)

    async def _has_failed(self, turn: ModelTurn, msg: OutboundMessage | None) -> bool:
        """Return whether a turn failed. Versions before 0.3.5 show it only in what they store in the session."""
        if self._reports_outcome:
            return False
        # An error looks like an answer in old versions; only what the session kept tells them apart.
        kept = await asyncio.to_thread(self._kept_in, turn.intent.session)
        return channel_bus.is_failure(msg, channel_bus.last_answer(kept))

    async def _lacks_result(self, post: AgentPost, turn: ModelTurn, msg: OutboundMessage) -> bool:
        """Return whether a task ended without an answer of the model and no other agent works on a part of it."""
        if turn.task is None or turn.parts or not channel_bus.is_no_answer(msg):
            return False
        return not await post.room.run(intent.has_open_requests, post.core, post.name, turn.task.id, turn.id)

    def _kept_in(self, session: str) -> list[Any]:
        from nanobot.session.manager import SessionManager  # noqa: PLC0415 - not needed from 0.3.5 on

        try:
            held = SessionManager(self._workspace).read_session_file(session)
        except OSError:  # no session can be stored there, so none was
            held = None
        return list(held["messages"]) if held else []

    async def _mail(self, post: AgentPost, msg: OutboundMessage) -> None:
        """Send new mail, or report in the conversation why it was refused.

        nanobot repeats a send that raises for some seconds. That is too short for a rate limit, so TooFast is
        raised only if there is no conversation in which it can be reported.
        """
        caller = channel_bus.caller_of(msg)
        try:
            await post.send(channel_bus.outgoing(msg, post, self._warn), caller)
        except PostroomError as refused:
            if isinstance(refused, TooFast):
                del msg.metadata[channel_bus.SENT_AS]  # so that the next attempt is counted like the first
            if isinstance(refused, Busy) and (caller is None or not isinstance(refused, TooFast)):
                raise
            if isinstance(refused, UnknownAgent):
                refused.hint = WHOM  # the usual hint speaks of registering agents, which a model cannot
            self._log.warning("mailbox: the mail to {} is not sent: {}", msg.chat_id, refused)
            if caller is not None and caller.channel != OWN_CHANNEL:
                await self._report_refusal(msg, caller, refused)

    def _warn(self, text: str) -> None:
        self._log.warning("mailbox: {}", text)

    async def _notify_person(self, caller: ToolCaller, text: str) -> None:
        """Write into the person's chat without a turn of the model."""
        await self._publish_outbound(OutboundMessage(channel=caller.channel, chat_id=caller.chat, content=text))

    async def _report_refusal(self, msg: OutboundMessage, caller: ToolCaller, refused: PostroomError) -> None:
        """Report a refused mail to its conversation, at most MOST_REFUSALS times: a model may retry each time."""
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
        """Note which conversation a message comes from; every message of the model passes here."""
        context = current_request_context()
        turns = None if self.post is None else self.post.turns
        if msg.channel == OWN_CHANNEL:
            channel_bus.note_message(msg, context, turns, collects=self.reports_turn_ends)
        elif turns is not None and context is None and channel_bus.is_last_word(msg):
            for turn in turns.reporting_to(*channel_bus.place_of(msg)):
                turn.last_message = msg
        await self._publish_outbound(msg)

    async def _note_inbound(self, msg: InboundMessage) -> None:
        turn = self._turn_of(msg.metadata)
        if turn is not None:
            turn.queued_at = time.monotonic()
        elif msg.channel not in {"system", OWN_CHANNEL}:  # a person wrote it
            self._refused.pop((msg.channel, msg.chat_id), None)
            if self.post is not None:
                self.post.person_wrote(f"{msg.channel}:{msg.chat_id}")
        elif msg.channel == "system" and self.post is not None:  # such as the result of a subagent
            self.post.unattended.add(msg.chat_id)
        await self._publish_inbound(msg)

    async def _finish_report(self, turn: ModelTurn, at: float) -> None:
        """End a turn whose report was part of another answer to the person, unless nanobot queues it again."""
        # Taken before the pause: what is said afterwards in that chat belongs to another turn.
        message = turn.last_message
        await asyncio.sleep(REQUEUE_WINDOW)
        if turn.queued_at <= at:
            await self._end_turn(turn, message)

    async def _end_turn(self, turn: ModelTurn, message: OutboundMessage | None) -> None:
        # What the event said stays: an old version's message may look like an answer although the turn failed.
        turn.failed = turn.failed or await self._has_failed(turn, message)
        if self.reception is not None:
            await self.reception.end_turn(turn.id)

    # -- nanobot's events about turns

    def _subscribe(self) -> None:
        source = channel_bus.event_source(self.bus)
        if source is None:
            return
        from nanobot.bus.runtime_events import TurnCompleted, TurnRunStatusChanged  # noqa: PLC0415 - not in 0.2.2

        self._reports_outcome = "outcome" in TurnCompleted.__dataclass_fields__  # from 0.3.5 on
        self._unsubscribe = [
            source.subscribe(self._on_completed, TurnCompleted),
            source.subscribe(self._on_status, TurnRunStatusChanged),
        ]

    def _on_completed(self, event: Any) -> None:
        """Note the outcome of a turn: this event comes before `send` gets the final answer."""
        reception = self.reception
        if reception is None:
            return
        turn = self._turn_of(event.context.metadata)
        if turn is not None:
            turn.is_over = True
            self._note_outcome(turn, event)
            if not turn.is_answering:
                _start_task(self._end_turn(turn, turn.last_message), self._under_way)
        for waiting in reception.post.turns.reporting_in(event.context.session_key):
            if waiting is not turn:  # nanobot may have merged its report into this turn
                self._note_outcome(waiting, event)
                _start_task(self._finish_report(waiting, time.monotonic()), self._under_way)

    def _note_outcome(self, turn: ModelTurn, event: Any) -> None:
        if self._reports_outcome:
            turn.failed = event.outcome == "failed"

    def _on_status(self, event: Any) -> None:
        turn = self._turn_of(event.context.metadata)
        if turn is not None and event.status == "idle" and not turn.is_over:
            _start_task(self._give_up(turn.id), self._giving_up)

    async def _give_up(self, letter: str) -> None:
        await asyncio.sleep(BEFORE_GIVING_UP)
        if self.reception is not None:
            await self.reception.stop_turn(letter)

    def _turn_of(self, metadata: Any) -> ModelTurn | None:
        return None if self.post is None else self.post.turns.get(channel_bus.letter_in(metadata))


def _start_task(operation: Any, tasks: set[asyncio.Task[None]]) -> None:
    """Run a coroutine as a task, referenced until it is done."""
    task = asyncio.create_task(operation)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
