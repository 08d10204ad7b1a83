"""What is in a letter besides text: data becomes text, files become media in a folder of ours.

A file's bytes come in the letter. Where a stranger sent only a path, it is shown as text: no path is ever followed
here. Whatever cannot be taken is said in the text; it never stops the letter.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import re
import time
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ... import room as postroom_room
from ...aio import AsyncRoom
from ...core import messages
from ...errors import HopsSpent, LoopDetected, NotAllowed, PostroomError, TooFast
from ...model.codec import encode
from ...model.message import file, reference, same_name
from ...model.names import check_agent, check_party
from ...model.task import TaskState, answer
from ...policy.admission import REQUIRED
from ..manager import post_message as post_of
from . import auto_reply, intent
from . import text as channel_text
from .config import OWN_CHANNEL
from .intent import Origin
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from ...aio import AsyncTask
    from ...core.core import Core
    from ...core.messages import Receipt
    from ...mailbox import Mailbox
    from ...model.message import Message, Part
    from .config import Config
    from .turns import Turn


MOST_FILES = 20  # of one letter
MOST_BYTES = 20 * 1024 * 1024  # of them all
MARK = 20  # characters that no other letter's folder has
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Unpacked(msgspec.Struct, frozen=True):
    """A letter's content as a model can use it."""

    text: str
    media: tuple[str, ...]  # paths of files


def unpack(letter: Message, folder: Path) -> Unpacked:
    """The content as text, and its files below `folder`."""
    pieces: list[str] = []
    media: list[str] = []
    room = MOST_BYTES
    for number, part in enumerate(letter.parts):
        if part.type == "file":
            files_left = MOST_FILES - len(media)
            file = _file(part, folder / _folder_of(letter.id), number, room if files_left else 0)
            pieces.append(file.text)
            media += [file.path] if file.path else []
            room -= file.size
        else:
            pieces.append(_text(part))
    if letter.attachments:
        pieces.append("Attachments:\n" + "\n".join(f"- {name}" for name in letter.attachments))
    return Unpacked("\n\n".join(pieces), tuple(media))


def _text(part: Part) -> str:
    """What a stranger left out does not stop the letter: such a part is shown as it is."""
    if part.type == "text" and part.get("text") is not None:
        return str(part["text"])
    if part.type == "reference" and part.get("uri") is not None:
        return f"[{part.get('label') or 'reference'}]({part['uri']})"
    if part.type == "data" and part.get("data") is not None:
        name = f" ({part['schema']})" if part.get("schema") else ""
        return f"[data{name}]\n{json.dumps(part['data'], ensure_ascii=False, indent=2)}"
    return f"[{part.type}] {encode(part).decode()}"


class _File(msgspec.Struct, frozen=True):
    """What is said of a file, where it lies now, and what it takes there."""

    text: str
    path: str | None = None
    size: int = 0


def _file(part: Part, folder: Path, number: int, room: int) -> _File:
    name = str(part.get("path") or "").replace("\\", "/").rpartition("/")[2] or "file"
    if part.get("bytes") is None:
        size = part.get("size")
        about = f", {size} bytes" if isinstance(size, int) else ""
        return _File(f"[file {name}{about}: it came without its content]")
    try:
        content = _bytes(part["bytes"], room)
        path = folder / f"{number}-{_safe(name)}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    except (OSError, ValueError) as refused:
        return _File(f"[file {name} was not taken: {refused}]")
    return _File(f"[file {name}, {len(content)} bytes: {path}]", str(path), len(content))


def _bytes(enclosed: Any, room: int) -> bytes:
    try:
        content = base64.b64decode(enclosed, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("its bytes are not base64 text") from None
    if len(content) > room or not room:
        raise ValueError(f"a letter may bring {MOST_FILES} files of {MOST_BYTES} bytes in all")
    return content


def _folder_of(letter: str) -> str:
    """Of this letter alone: the mark keeps those apart that would be written alike."""
    return f"{_safe(letter)}-{hashlib.sha256(letter.encode()).hexdigest()[:MARK]}"


def _safe(name: str) -> str:
    """A name that is no path and hides nothing."""
    return _UNSAFE.sub("_", name).lstrip(".")[-100:] or "file"


def body(text: str, media: Sequence[str]) -> list[str | Part]:
    """What a model sends: its text, its files (enclosed when the letter is sent), its links."""
    parts: list[str | Part] = [text] if text.strip() else []
    for path in media:
        is_link = path.startswith(("http://", "https://"))
        parts.append(reference(path) if is_link else file(path))
    return parts


# One agent's post: its room, its mailbox, and what its model sends from a conversation.
#
# The channel and the tools of one process share it. All file work runs in the room's threads.

log = logging.getLogger("postroom")

_shared: dict[tuple[str, str, str], Post] = {}
_opening = asyncio.Lock()


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation in which a model calls a tool."""

    channel: str
    chat: str
    session: str
    letter: str | None = None  # the letter that began the turn
    is_reached: bool = True  # can a gateway speak there later?

    @property
    def place(self) -> str:
        """The conversation in which automatic mails are counted: a person's chat, or a thread of mail."""
        return self.session if self.channel == OWN_CHANNEL else f"{self.channel}:{self.chat}"


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
    task_id: str | None = None  # chosen by local code
    ttl: int | None = None  # likewise: fewer hops than usual
    callback: Caller | None = None  # likewise: where its answer is told, in the place of the caller


class Post:
    """The post of one agent."""

    def __init__(self, config: Config, opened: postroom_room.Room, home: str) -> None:
        self.config = config
        self.home = home  # what this gateway is known by among those of the same agent
        self.name = check_agent(config.agent_id, "agentId")
        self.room = AsyncRoom(opened)
        self.box = self.room.mailbox(self.name)
        self.turns = Turns()
        self.automatic = auto_reply.Automatic(config.automatic_mails, config.automatic_per_hour)
        self.unattended: set[str] = set()  # conversations in which something else than a person or mail speaks
        self.tell_person: Callable[[Caller, str], Awaitable[None]] | None = None  # set by a channel that runs
        self._pace = auto_reply.Pace(config.mails_per_minute)

    @property
    def core(self) -> Core:
        return self.room.room._core

    @property
    def mailbox(self) -> Mailbox:
        return self.box.mailbox

    async def close(self) -> None:
        _shared.pop((self.config.address, self.config.agent_id, self.home), None)
        await self.room.close()

    def turn_of(self, caller: Caller | None) -> Turn | None:
        return None if caller is None else self.turns.get(caller.letter)

    def new_id(self) -> str:
        return self.core.new_id(self.name)

    async def send(self, outgoing: Outgoing, caller: Caller | None) -> Receipt:
        """Mail, or a task, from a conversation. Its answer comes back there."""
        to = check_party(outgoing.to, "to")
        turn = self.turn_of(caller)
        if same_name(to, self.name):
            raise NotAllowed("that is you", field="to")
        if turn is not None:
            _check_turn(to, turn)
        if not outgoing.is_retry:
            await self._check_limits(to, caller)
        where = self._where(outgoing.callback or caller, turn)
        return await self.room.run(self._send, outgoing, to, where, _passed_on(caller, turn))

    def _send(self, outgoing: Outgoing, to: str, where: Origin | None, via: str | None) -> Receipt:
        id = outgoing.id or self.new_id()
        fields: dict[str, Any] = {"id": id}
        if outgoing.subject:
            fields["subject"] = outgoing.subject
        if via is not None:  # passed on: one hop less, and never back
            fields["in_reply_to"] = via
        fields["metadata"] = _metadata(outgoing)
        content = body(outgoing.text, outgoing.media)
        mailbox = self.mailbox if outgoing.ttl is None else self._mailbox_with(hops=outgoing.ttl)
        if outgoing.is_task:
            value = None if where is None else where.to_record()
            if outgoing.task_id is not None:
                fields["key"] = outgoing.task_id  # which names the task
            return mailbox.give_task(to, content, deadline=outgoing.deadline, session=value, **fields)
        if where is not None:
            intent.remember(self.core, self.name, id, where)
        return mailbox.send(to, content, **fields)

    async def send_designed(self, to: str, message: dict[str, Any]) -> None:
        """A message of the design, as `MailboxManager.send` takes it, by local code."""
        if same_name(check_party(to, "to"), self.name):
            raise NotAllowed("that is you", field="to")
        if message.get("ttl") == 0:
            raise HopsSpent("the message was relayed as often as it may be", field="ttl")
        self.check_pace(to)
        await self.room.run(self._send_designed, to, message)

    def _send_designed(self, to: str, message: dict[str, Any]) -> None:
        post = post_of(self.core, self.name, to, message)
        messages.commit_posts(self.core, [post], [post], answer)

    def _mailbox_with(self, **limits: Any) -> Mailbox:
        """The mailbox under other limits than the room's."""
        changed = copy(self.mailbox)
        changed._core = replace(self.core, limits=replace(self.core.limits, **limits))
        return changed

    async def reply(self, letter: str, to: str, text: str, caller: Caller | None) -> Receipt:
        """An answer from a conversation; what comes of it comes back there."""
        turn = self.turn_of(caller)
        if turn is not None:
            _check_turn(to, turn)
        await self._check_limits(to, caller)
        return await self.room.run(self._reply, letter, text, self._where(caller, turn))

    def _reply(self, letter: str, text: str, where: Origin | None) -> Receipt:
        id = self.new_id()
        if where is not None:
            intent.remember(self.core, self.name, id, where)
        return self.mailbox.reply(letter, text, id=id)

    async def answer(self, task: AsyncTask, text: str, caller: Caller | None) -> None:
        """The answer to a question about a task that we gave: a round, like any errand."""
        turn = self.turn_of(caller)
        await self._check_limits(task.receiver, caller)
        rounds = 0 if turn is None else turn.intent.rounds
        await self.room.run(intent.set_rounds, self.core, self.name, task.id, rounds)
        await task.answer(text)

    async def ask(self, task: AsyncTask, question: str) -> None:
        """A question to whoever gave us a task. Here no person speaks: the rounds are counted by the task."""
        asked_before = sum(_is_question(letter, task) for letter in await task.letters())
        if asked_before >= auto_reply.MOST_ROUNDS:
            raise NotAllowed(
                f"{task.giver} was asked {asked_before} times about this task",
                hint="do it with what you know, or call mail_decline",
            )
        self.check_pace(task.giver)
        if task.state is TaskState.ACCEPTED:
            await task.start()
        await task.ask(question)

    def _where(self, caller: Caller | None, turn: Turn | None) -> Origin | None:
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
            home=self.home,
        )

    async def _check_limits(self, to: str, caller: Caller | None) -> None:
        """Refuse a mail that is one too many: within a minute, or of those that no person asked for (G11)."""
        if caller is not None and (caller.letter is not None or caller.place in self.unattended):
            turn = self.turn_of(caller)
            rounds = 0 if turn is None else turn.intent.rounds
            stop = self.automatic.stop(caller.place, to, rounds, time.monotonic())
            if stop is not None:
                if stop.is_first:
                    await self.tell_of_stop(to, stop.why, caller)
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

    async def tell_of_stop(self, peer: str, why: str, caller: Caller | None = None) -> None:
        """Tell the peer and the person: in the person's chat, or, where mail began all this, by a letter."""
        notified = [peer]
        if caller is None or caller.channel == OWN_CHANNEL:
            notified.append(self.core.limits.human)
        elif self.tell_person is not None:
            await self.tell_person(caller, channel_text.stopped(self.name, peer, why))
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
        except PostroomError as refused:  # the stop itself is what matters
            log.warning("mailbox: %s cannot be told of the stop: %s", to, refused)


def _metadata(outgoing: Outgoing) -> dict[str, Any]:
    fields: dict[str, Any] = dict(auto_reply.AUTOMATIC) if outgoing.is_automatic else {}
    return fields | ({REQUIRED: list(outgoing.needs)} if outgoing.needs else {})


def _passed_on(caller: Caller | None, turn: Turn | None) -> str | None:
    """The letter that is passed on by what is sent in a session of mail, also when its turn is settled already."""
    if turn is None:
        return caller.letter if caller is not None and caller.channel == OWN_CHANNEL else None
    return (turn.intent.answers or turn.id) if turn.is_of_mail else None


def _check_turn(to: str, turn: Turn) -> None:
    if turn.is_of_mail and same_name(to, turn.peer):
        says = "your last words in this turn are mailed to it" if turn.intent.answers else "it expects no answer"
        raise LoopDetected(f"this turn was begun by a mail of {turn.peer}: {says}", field="to")


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


def _open(config: Config, file_root: str) -> postroom_room.Room:
    """A recipient nobody has heard of is refused: a model's typing error would be a black hole."""
    return postroom_room.open(config.address, file_root=file_root, unknown="refuse")
