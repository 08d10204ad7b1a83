"""Sending in the design's words: one letter, an answer, or one to each member of a swarm. One commit each.

The rules of the house hold here too: names are checked, relays are counted, nobody mails around in circles.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from .. import service
from ..errors import Missing, UnknownAgent
from ..model.message import DEFAULT_SCOPE
from ..model.names import BROADCAST, check_agent, check_id, fold
from ..model.query import Found
from ..service.compose import Draft, seal
from ..service.pace import check_pace
from . import looking, members
from .message import MessagePriority, MessageType
from .translating import aware, id_in, message_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..room import Room
    from ..store.base import Post
    from .message import Message

BROADCAST_TAG = "broadcast"
_log = logging.getLogger("postroom")


class Said(NamedTuple):
    """What a caller of `send` said, by the design's names."""

    from_agent: str
    to_agent: str
    subject: str
    body: str
    message_type: MessageType = MessageType.REQUEST
    priority: MessagePriority = MessagePriority.NORMAL
    payload: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    swarm_name: str | None = None
    reply_to: str | None = None
    thread_id: str | None = None
    expires_at: datetime | None = None
    attachments: list[str] | None = None
    tags: list[str] | None = None


def send(room: Room, said: Said) -> Message:
    """One letter, or, to `broadcast:<swarm>`, one to each member."""
    if not said.to_agent.startswith(BROADCAST):
        return _post(room, [said])[0]
    swarm = said.to_agent.removeprefix(BROADCAST)
    copies = broadcast(room, said._replace(swarm_name=swarm), ())
    if not copies:  # it must not look as if it had been sent
        hint = f"put files into swarms/{swarm}/agents, or register agents with this scope"
        raise UnknownAgent(f"nobody else is in {swarm!r}", field="to_agent", hint=hint)
    first = copies[0]
    first.to_agent = said.to_agent
    return first


def broadcast(room: Room, said: Said, exclude: Sequence[str]) -> list[Message]:
    """One letter to each member, with an id of its own; never to the sender. All of them or none."""
    swarm = said.swarm_name or ""
    everyone = members.members(room, swarm)
    left_out = {fold(members.full_name(name, swarm)) for name in (said.from_agent, *exclude)}
    marks = [BROADCAST_TAG, f"swarm:{swarm}"]
    tags = [*marks, *(tag for tag in said.tags or () if tag not in marks)]
    others = [name for name in everyone if fold(members.full_name(name, swarm)) not in left_out]
    copies = [said._replace(to_agent=name, tags=tags) for name in others]
    if not copies:
        _log.warning("nobody else is in swarm %r: nothing was sent", swarm)
        return []
    return _post(room, copies)


def reply(room: Room, handle: str, from_agent: str, body: str, payload: dict[str, Any] | None) -> Message | None:
    """An answer to the letter's sender, in its thread, with its priority; None if nobody knows the letter."""
    original = looking.find(room, handle)
    if original is None:
        _log.warning("no letter %r to reply to", handle)
        return None
    letter = original.message
    swarm = None if letter.scope == DEFAULT_SCOPE else letter.scope
    try:
        draft = service.sending.reply_draft(
            room._office, room._principal, from_agent, letter.id, body, kind="response", data=payload or None
        )
    except Missing:  # neither sent nor received it: in this design anybody may answer
        said = Said(
            from_agent=from_agent,
            to_agent=letter.sender,
            subject=service.sending.marked("Re:", letter.subject),
            body=body,
            message_type=MessageType.RESPONSE,
            priority=MessagePriority(int(letter.priority)),
            payload=payload,
            swarm_name=swarm,
            reply_to=letter.id,
        )
        return _post(room, [said])[0]
    return _commit(room, service.sending.prepare_all(room._office, room._principal, [draft], _now(room)))[0]


def _post(room: Room, wanted: Sequence[Said]) -> list[Message]:
    return _commit(room, [_prepared(room, said) for said in wanted])


def _commit(room: Room, posts: Sequence[Post]) -> list[Message]:
    receipts = service.sending.commit_posts(room._office, posts, posts)
    pairs = zip(receipts, posts, strict=True)
    return [message_of(Found(receipt.message, post.deliveries[0])) for receipt, post in pairs]


def _prepared(room: Room, said: Said) -> Post:
    office, now = room._office, _now(room)
    sender = check_agent(members.mailbox(room, said.from_agent, said.swarm_name), "from_agent")
    expires = aware(said.expires_at)
    is_over = expires is not None and expires <= now
    reply_to = None if said.reply_to is None else check_id(id_in(said.reply_to), "reply_to")
    draft = Draft(
        sender=sender,
        to=members.mailbox(room, said.to_agent, said.swarm_name),
        body=said.body,
        data=said.payload or None,
        subject=said.subject,
        kind=MessageType(said.message_type).value,
        priority=MessagePriority(said.priority).value,
        scope=said.swarm_name or None,
        context=said.context or None,
        attachments=said.attachments or (),
        tags=said.tags or (),
        expires=None if is_over else expires,
        in_reply_to=reply_to if reply_to is not None and _is_known(room, sender, reply_to) else None,
    )
    post = service.sending.prepare(office, room._principal, draft, now)
    post = _in_thread(room, post, reply_to, said.thread_id)
    return _expired(room, post, expires) if is_over else post


def _is_known(room: Room, sender: str, reply_to: str) -> bool:
    """Did the sender write or get that letter? Then the rules about answers and relays apply."""
    try:
        service.sending.known_letter(room._office, sender, reply_to)
    except Missing:
        return False
    return True


def _in_thread(room: Room, post: Post, reply_to: str | None, thread_id: str | None) -> Post:
    """The letter in the thread it is said to be in, whether or not its sender has seen any of that thread."""
    thread = None if not thread_id else check_id(id_in(thread_id), "thread_id")
    if thread is None and reply_to is not None:
        parent = looking.find(room, reply_to)
        thread = None if parent is None else parent.message.thread
    message = post.message
    if message.in_reply_to == reply_to and (thread is None or message.thread_id == thread):
        return post
    threaded = _saying(room, post, in_reply_to=reply_to, thread_id=thread or message.thread_id)
    check_pace(room._office, threaded.message)
    return threaded


def _expired(room: Room, post: Post, expires: datetime | None) -> Post:
    """A letter that is too late already is kept and never offered, as the design has it."""
    deliveries = tuple(replace(delivery, expires_at=expires) for delivery in post.deliveries)
    return replace(_saying(room, post, expires_at=expires), deliveries=deliveries)


def _saying(room: Room, post: Post, **fields: Any) -> Post:
    message = replace(post.message, **fields)
    return replace(post, message=message, encoded=seal(message, room._office.limits))


def _now(room: Room) -> datetime:
    return room._office.now().wall
