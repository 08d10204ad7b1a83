"""Sending: one letter or many, replies, relays, broadcasts, handoffs. All recipients or none.

Hops, trace, allow lists, quotas and pace are enforced here, on every path; no caller can leave them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..errors import Invalid, PostroomError, UnknownAgent
from ..model.delivery import open_delivery
from ..model.handoff import Handoff
from ..model.message import Message, is_broadcast
from ..model.names import BROADCAST, check_agent, fold
from ..model.query import LetterQuery
from ..model.record import GUARD, MEMBER
from ..policy.admission import check_allowed, check_expiry, check_pace
from ..policy.hops import is_reply_to_holders, relay
from ..store.base import Plan, Post, Posted, Write
from .authorize import Principal, authorize
from .compose import Draft, check_size, check_when, compose
from .office import Office
from .present import handoff_text
from .reading import received

FEW = 8  # up to so many recipients are looked up one by one


class Receipt(Struct, frozen=True, kw_only=True):
    """What became of a letter that was sent."""

    message: Message
    repeated: bool = False  # it had been sent before, with the same key
    unknown: tuple[str, ...] = ()  # recipients nobody here has heard from: a new mailbox, or a typing error

    @property
    def id(self) -> str:
        return self.message.id


def send(office: Office, caller: Principal, drafts: Sequence[Draft]) -> list[Receipt]:
    """Send letters, all in one commit. A temporary error carries the key with which to try again."""
    now = office.now().wall
    posts = [prepare(office, caller, draft, now) for draft in drafts]
    return commit_posts(office, posts, posts)


def commit_posts(office: Office, posts: Sequence[Post], writes: Sequence[Write] | Plan) -> list[Receipt]:
    """Commit `writes`, which hold these letters and perhaps more."""
    try:
        posted = office.store.commit(writes)
    except PostroomError as error:
        if error.temporary and len(posts) == 1:
            error.key = posts[0].message.key or posts[0].message.id
        raise
    return [_receipt(office, p.message, outcome) for p, outcome in zip(posts, posted, strict=True)]


def prepare(office: Office, caller: Principal, draft: Draft, now: datetime) -> Post:
    """A letter ready to be committed, or the reason why not."""
    authorize(caller, "send", check_agent(draft.sender, "sender"))
    message = compose(office, draft, now)
    check_expiry(message.expires_at, now)
    first, others = _mailboxes(office, message, draft)
    if message.in_reply_to is not None:
        message = check_size(_follow(office, message), office.limits)
    _check_guards(office, message.sender, [name for name, _ in first] + others)
    due_at = check_when(draft.at, "at", now)
    due_at = None if due_at is None or due_at <= now else due_at
    return Post(
        message=message,
        deliveries=tuple(open_delivery(message, name, kind, now, due_at) for name, kind in first),
        copies=tuple(others),
        quota=office.limits.inbox_quota,
        known_only=office.limits.unknown == "refuse",
    )


def reply_draft(
    office: Office, mailbox: str, id: str, /, body: Any, *, to_all: bool = False, **more: Any
) -> Draft:
    """An answer: thread, scope, priority, conversation and callback kept, "Re:" once."""
    letter = known_letter(office, mailbox, id)
    to, cc = _answer_to(letter, mailbox, to_all=to_all)
    kept = {
        "to": to,
        "cc": cc,
        "subject": _marked("Re:", letter.subject),
        "priority": letter.priority,
        "scope": letter.scope,
        "callback": letter.callback,
    }
    return Draft(sender=mailbox, in_reply_to=letter.id, body=body, **(kept | more))


def forward_draft(office: Office, mailbox: str, id: str, /, to: Any, body: Any = None, **more: Any) -> Draft:
    """The letter passed on, after a word of one's own. One hop less; never back along its way."""
    letter = known_letter(office, mailbox, id)
    words = [] if body is None else [body] if isinstance(body, (str, dict)) else list(body)
    kept = {
        "subject": _marked("Fwd:", letter.subject),
        "kind": letter.kind,
        "priority": letter.priority,
        "scope": letter.scope,
        "context": letter.context,
        "attachments": letter.attachments,
        "tags": letter.tags,
        "metadata": letter.metadata | {"forwarded": {"id": letter.id, "sender": letter.sender}},
    }
    parts = [*words, *letter.parts]
    return Draft(sender=mailbox, to=to, in_reply_to=letter.id, body=parts, **(kept | more))


def broadcast_draft(mailbox: str, scope: Any, /, body: Any, **more: Any) -> Draft:
    """One letter to everyone in a scope but its sender."""
    if not isinstance(scope, str):
        raise Invalid(f"must be text, not {type(scope).__name__}", field="scope")
    kept = {"kind": "notification", "scope": scope, "tags": ("broadcast", f"swarm:{scope}")}
    return Draft(sender=mailbox, to=BROADCAST + scope, body=body, **(kept | more))


def handoff_draft(mailbox: str, to: Any, handoff: Handoff, **more: Any) -> Draft:
    """Work changes hands: the context as data, a body a model can read, the files it names attached."""
    kept = {
        "kind": "handoff",
        "subject": "Handoff",
        "context": asdict(handoff),
        "attachments": handoff.files,
        "tags": ("handoff",),
    }
    return Draft(sender=mailbox, to=to, body=handoff_text(mailbox, handoff), **(kept | more))


def known_letter(office: Office, mailbox: str, id: str) -> Message:
    """A letter this mailbox sent or received; any other is unknown."""
    letter = office.store.get((id,)).get(id) if isinstance(id, str) else None
    if letter is not None and letter.message.sender == mailbox:
        return letter.message
    return received(office, mailbox, id).message.seen_by(mailbox)


def _answer_to(letter: Message, mailbox: str, *, to_all: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whom an answer goes to: the sender (or, of one's own letter, whoever got it), and with all, the others."""
    to = tuple(r.address for r in letter.recipients if r.kind == "to")
    cc = tuple(r.address for r in letter.recipients if r.kind == "cc")
    if letter.sender == mailbox:
        return to or cc, cc if to_all else ()
    if not to_all:
        return (letter.sender,), ()
    return (letter.sender, *(a for a in to if a != mailbox)), tuple(a for a in cc if a != mailbox)


def _follow(office: Office, message: Message) -> Message:
    """Thread, conversation, hops and trace from the letter this one answers or passes on."""
    parent = known_letter(office, message.sender, message.in_reply_to or "")
    targets = [recipient.address for recipient in message.recipients]
    hops, trace = message.hops, message.trace
    if not is_reply_to_holders(parent, targets):
        hops, trace = relay(parent, message.sender, targets)
    _check_pace(office, message, parent.thread)
    return replace(
        message,
        thread_id=parent.thread,
        thread_tag=message.thread_tag or parent.thread_tag,
        conversation_id=message.conversation_id or parent.conversation_id,
        hops=hops,
        trace=trace,
    )


def _check_pace(office: Office, message: Message, thread: str) -> None:
    rate = office.limits.thread_rate
    if rate:
        query = LetterQuery(replies_in=thread, sender=message.sender, order="newest", skip=rate - 1, limit=1)
        earlier = office.store.letters(query)
        check_pace(rate, earlier[0].message.created_at if earlier else None, message.created_at)


def _mailboxes(office: Office, message: Message, draft: Draft) -> tuple[list[tuple[str, Any]], list[str]]:
    """Where the letter goes: named mailboxes with their kind, and further ones that get the same as the first."""
    named = [(r.address, r.kind) for r in message.recipients if not is_broadcast(r.address)]
    scopes = [r.address.removeprefix(BROADCAST) for r in message.recipients if is_broadcast(r.address)]
    if not scopes:
        return named, []
    left_out = {fold(name) for name in (message.sender, *draft.exclude, *(name for name, _ in named))}
    members = [name for scope in scopes for name in office.store.keys(MEMBER + scope)]
    members = [name for name in dict.fromkeys(members) if fold(name) not in left_out]
    if not members and not named:
        raise UnknownAgent(
            f"nobody else is in {', '.join(scopes)!r}", field="to", hint="register agents with this scope"
        )
    if not named or named[0][1] != "to":
        named = [(name, "to") for name in members[:1]] + named
        members = members[1:]
    return named, members


def _check_guards(office: Office, sender: str, mailboxes: Sequence[str]) -> None:
    """Allow lists exist only where somebody set one, so mostly there is nothing to read."""
    guarded = mailboxes
    if len(mailboxes) > FEW:
        guards = set(office.store.keys(GUARD))
        guarded = [name for name in mailboxes if name in guards] if guards else []
    for mailbox in guarded:
        for guard in office.store.records(GUARD, mailbox):
            check_allowed(sender, mailbox, guard.value)


def _receipt(office: Office, message: Message, posted: Posted) -> Receipt:
    if not posted.repeated:
        return Receipt(message=message, unknown=posted.unknown)
    first = office.store.get((posted.message_id,)).get(posted.message_id)
    kept = replace(message, id=posted.message_id) if first is None else first.message
    return Receipt(message=kept, repeated=True)


def _marked(mark: str, subject: str) -> str:
    if not subject or subject.lower().startswith(mark.lower()):
        return subject
    return f"{mark} {subject}"[:1000]
