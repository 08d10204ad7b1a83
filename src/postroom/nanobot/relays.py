"""The loop guard of the design, kept by us: `ttl` and `trace` of a mail, whatever its sender wrote there.

A mail that names other agents in its `trace` is passed on, and so is an answer to somebody who does not have the
letter. Each goes one step further at most, and never back. To answer whoever has the letter is no relay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import policy, service
from ..errors import HopsSpent, UnknownMessage
from ..model.message import FIRST_HOPS, same_name
from ..model.task import TASK_UPDATE

if TYPE_CHECKING:
    from ..model.message import Message
    from ..service.office import Office


def counted(office: Office, message: Message, to: str) -> Message:
    """The mail with the hops and the trace that are true, or a refusal."""
    came = _came_as(office, message, to)
    if came is None:
        return replace(message, hops=min(message.hops, FIRST_HOPS), trace=(message.sender,))
    targets = service.naming.names_of(office, service.naming.resident(office, to))
    try:
        hops, trace = policy.hops.relay(came, message.sender, targets, FIRST_HOPS)
    except HopsSpent as spent:
        spent.field = "ttl"
        raise
    return replace(message, hops=hops, trace=trace)


def letter_above(office: Office, message: Message) -> Message | None:
    """The letter it answers, if its sender has that one."""
    if message.in_reply_to is None:
        return None
    try:
        return service.sending.known_letter(office, message.sender, message.in_reply_to)
    except UnknownMessage:
        return None


def _came_as(office: Office, message: Message, to: str) -> Message | None:
    """What is passed on, as its sender got it; None for a first mail or an answer."""
    parent = letter_above(office, message)
    if parent is not None:
        parent = service.addressing.routed_to(office, parent)
        return parent if service.addressing.without_it(office, parent, [to]) else None
    others = tuple(agent for agent in message.trace if not same_name(agent, message.sender))
    is_answer = message.kind == TASK_UPDATE and any(same_name(agent, to) for agent in others)
    if not others or is_answer:
        return None
    # Whoever stands in the trace already has counted itself. No ttl is higher than so long a way leaves.
    hops = message.hops + (len(others) != len(message.trace))
    return replace(message, hops=min(hops, FIRST_HOPS + 1 - len(others)), trace=others)
