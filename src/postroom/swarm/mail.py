"""Mail of a swarm: its members, and how letters are found, sent and worked on.

A swarm's members are the files `swarms/<swarm>/agents/*.md` below the working folder, and the agents that
registered with the swarm as a scope. Member X of swarm S has two spellings, X and `S/X`. A letter is filed under
the spelling that its sender used, because programs of the design check one spelling only; a query for either
finds both. Names that differ in case only are one name: the room keeps the first spelling, and refuses another.
Other agents, such as `coo`, are members of no swarm: their bare name is their mailbox.

A letter goes unread → read → processing → completed → archived, or failed. Processing is a claim under a lease:
one worker gets the letter. When the lease runs out, the letter is unread again and an attempt is counted; after
the last attempt it has failed. A letter may be completed by

- the manager that claimed it, with its lease, also when the lease ran out but no other worker has claimed it;
- any other manager, for the mailbox: the design's agents run every step in a process of its own, so the process
  that completes a letter is often not the one that claimed it;
- not by a manager that claimed it and lost it to another worker: the other one's work counts.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..core import agents as core_agents
from ..core import dead, inbox, messages, threads, work
from ..core import deliveries as core_deliveries
from ..core.authorize import authorize
from ..core.compose import Draft, encode_within_limit
from ..core.messages import check_answer_rate
from ..core.names import mailbox_named
from ..core.proof import is_own_reader, people_names
from ..core.verb import perform
from ..errors import (
    IllegalMove,
    Invalid,
    LeaseLost,
    Missing,
    NotAllowed,
    StaleRevision,
    UnknownAgent,
    UnknownMessage,
)
from ..model import delivery as model_delivery
from ..model.delivery import State
from ..model.message import DEFAULT_SCOPE, Priority
from ..model.names import BROADCAST, check_agent, check_id, check_scope, fold
from ..model.query import Found, Query
from ..model.values import passes
from ..policy.limits import archive_cutoff
from .message import MessagePriority, MessageType, aware, id_in, is_unread, message_of, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import Runs
    from ..model.delivery import Delivery
    from ..store.protocol import Post
    from .message import Message


SWARMS = Path("swarms")
_log = logging.getLogger("postroom")


class Place(NamedTuple):
    """A mailbox with mail for a name: all of it, or only the letters of one swarm."""

    mailbox: str
    scope: str | None = None


def members(core: Core, swarm: str) -> list[str]:
    """Return the names of everyone in a swarm, each agent once.

    A member file X is addressed as X, the spelling that the design's own programs check. An agent that registered
    with the swarm is addressed by the name it registered. Either is in the case that the room knows.
    """
    check_scope(swarm, "swarm_name")
    registered = sorted(_registered(core, swarm), key=lambda name: "/" not in name)  # a bare name wins
    everyone = {fold(full_name(name, swarm)): name for name in (*_files_of(swarm), *registered)}
    return [as_known(core, name) for name in everyone.values()]


def as_known(core: Core, name: str) -> str:
    """Return the name in the case that the room knows."""
    held = mailbox_named(core, name)
    return held if held is not None and fold(held) == fold(name) else name


def full_name(name: str, swarm: str) -> str:
    """Return `S/X` for a bare X of swarm S; another name as it is."""
    return name if "/" in name else f"{swarm}/{name}"


def mailbox(core: Core, name: str, swarm: str | None) -> str:
    """Return the name under which a letter of a swarm is filed: as written, or `S/X` if only that is registered.

    A query for `S/X` finds mail for a bare X only if a member file shows that they are one agent.
    """
    if swarm is None or "/" in name or not _has_mailboxes(swarm) or _file_of(swarm, name):
        return name
    registered = {fold(one): one for one in _registered(core, check_scope(swarm, "swarm_name"))}
    return name if fold(name) in registered else registered.get(fold(full_name(name, swarm)), name)


def places_of(name: str) -> list[Place]:
    """Return every place with mail for a name: a member has two spellings and one mailbox.

    If several swarms have an X, a letter to the bare X belongs to the swarm that the letter names.
    """
    mailbox = check_agent(name, "agent_name")
    # `S/X` and X are one member only if a member file of S says so.
    swarm, slash, bare = mailbox.rpartition("/")
    files = {folder.name: file for folder in _folders() if (file := _file_of(folder.name, bare)) is not None}
    if slash:
        scopes = {one: None if len(files) == 1 else one for one in files if fold(one) == fold(swarm)}
        return [Place(mailbox), *(Place(files[one], scope) for one, scope in scopes.items())]
    return [Place(mailbox), *(Place(f"{one}/{file}") for one, file in files.items() if len(files) == 1)]


def _files_of(swarm: str) -> list[str]:
    names: list[str] = []
    if not _has_mailboxes(swarm):
        return names
    for path in sorted((SWARMS / swarm / "agents").glob("*.md")):
        if path.name.startswith("_"):
            continue
        try:
            names.append(check_agent(path.stem, "agent"))
        except Invalid as wrong:
            _log.warning("%s is not a member file: %s", path, wrong)
    return names


def _file_of(swarm: str, name: str) -> str | None:
    """Return the name of the member file of an agent, in its own case; None if there is none.

    The swarm is a checked name, so this is never a path out of the folder.
    """
    if not _has_mailboxes(swarm) or name.startswith("_"):
        return None
    files = (SWARMS / swarm / "agents").glob("*.md")
    return next((path.stem for path in files if fold(path.stem) == fold(name)), None)


def _has_mailboxes(swarm: str) -> bool:
    """Return whether `swarm/agent` can be a mailbox.

    In a scope such as `swarm:team` all agents have bare names.
    """
    return not {":", "/"} & set(swarm)


def _folders() -> list[Path]:
    return [folder for folder in SWARMS.iterdir() if folder.is_dir()] if SWARMS.is_dir() else []


def _registered(core: Core, swarm: str) -> list[str]:
    return core_agents.members_of(core, swarm)


# Finding letters

EXPIRED = "expired"  # the reason of an expired delivery


def find(core: Core, principal: Principal, handle: str) -> Found | None:
    """Return the letter with an id as it is now; None if it is unknown, or if the caller may not read it."""
    # Absent and forbidden look the same (G8).
    found = _first(core, handle)
    if found is None or not _may(principal, "read", found.delivery.mailbox):
        return None
    return _first(core, f"{found.message.id}@{found.delivery.mailbox}")


def waiting(
    core: Core,
    principal: Principal,
    agent_name: str,
    *,
    unread_only: bool,
    message_types: Sequence[MessageType] | None,
    min_priority: MessagePriority | None,
) -> list[Found]:
    """Return the mail of an agent by priority, then age: unread letters, or all but old completed ones."""
    authorize(principal, "check", check_agent(agent_name, "agent_name"))
    moment = core.now()
    # One member may have two spellings, bare and with its swarm; programs of the design read both.
    own, *others = places_of(agent_name)
    known = [place._replace(mailbox=as_known(core, place.mailbox)) for place in others]
    places = [own, *(place for place in known if _may(principal, "check", place.mailbox))]
    found: list[Found] = []
    for place in places:
        query = Query(
            mailbox=place.mailbox,
            scope=place.scope,
            states=(State.UNREAD,) if unread_only else _IN_THE_INBOX,
            shown_only=True,
            offered_at=moment.wall,
            min_priority=Priority.LOW if min_priority is None else Priority(min_priority.value),
        )
        # One query for each spelling: the design files a letter under the name that its sender used.
        found += core_deliveries.find_letters(core, query)
        if place is own and not found:
            inbox.check_spelling(core, place.mailbox)
    completed_before = archive_cutoff(moment.wall, core.limits)
    shown = [
        one
        for one in found
        if (is_unread(one.delivery) if unread_only else _is_listed(one.delivery, completed_before))
    ]
    if message_types:
        shown = [one for one in shown if type_of(one.message) in message_types]
    return sorted(shown, key=lambda one: (-one.message.priority, one.message.created_at, one.delivery.number))


def thread(core: Core, principal: Principal, thread_id: str) -> list[Found]:
    """Return all letters of a thread, the oldest first, each with the delivery of its first recipient."""
    try:
        authorize(principal, "room")
        letters = perform(core, principal, threads.GetThread(thread=id_in(thread_id))).letters
    except Invalid:  # no thread can have this id
        return []
    # The design knows one state per mail and not one per recipient: the first recipient's stands for all.
    found = [first for letter in letters if (first := _first(core, letter.id)) is not None]
    return sorted(found, key=lambda one: (one.message.created_at, one.delivery.number))


_IN_THE_INBOX = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)


def _may(principal: Principal, action: str, mailbox: str) -> bool:
    return passes(NotAllowed, authorize, principal, action, mailbox)


def _is_listed(delivery: Delivery, completed_before: datetime) -> bool:
    """Return whether a letter is part of a mailbox's full list.

    A completed letter stays in it until it is old enough for the archive, even if `mark_completed` archived it
    at once.
    """
    if delivery.archived_at is None:
        return delivery.reason != EXPIRED
    return not delivery.has_left and delivery.acked_at is not None and delivery.acked_at > completed_before


def _first(core: Core, handle: str) -> Found | None:
    """Return the letter at the mailbox that the handle names, else at its first recipient."""
    id, at, name = handle.partition("@")
    try:
        owner = check_agent(name, "message_id") if at else None
        query = Query(mailbox=owner, message_ids=(check_id(id, "message_id"),), shown_only=True)
    except Invalid:  # no letter can have this id
        return None
    found = [one for one in core_deliveries.find_letters(core, query) if one.delivery.state is not State.QUEUED]
    return min(found, key=_place_among_recipients, default=None)


def _place_among_recipients(found: Found) -> int:
    named = [recipient.address for recipient in found.message.recipients]
    mailbox = found.delivery.mailbox
    return named.index(mailbox) if mailbox in named else len(named)


# Sending: one letter, an answer, or one letter to each member of a swarm, in one commit. All rules of the room
# hold.

BROADCAST_TAG = "broadcast"


class SendArguments(NamedTuple):
    """The arguments of `send`, by the design's names."""

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


def send(core: Core, principal: Principal, args: SendArguments) -> Message:
    """Send one letter, or, to `broadcast:<swarm>`, one to each member."""
    if not args.to_agent.startswith(BROADCAST):
        return _post(core, principal, [args])[0]
    swarm = args.to_agent.removeprefix(BROADCAST)
    copies = broadcast(core, principal, args._replace(swarm_name=swarm), ())
    if not copies:  # the caller must not believe that it was sent
        raise UnknownAgent(
            f"no other agent is in {swarm!r}",
            field="to_agent",
            hint=f"put files into swarms/{swarm}/agents, or register agents with this scope",
        )
    first = copies[0]
    first.to_agent = args.to_agent
    return first


def broadcast(core: Core, principal: Principal, args: SendArguments, exclude: Sequence[str]) -> list[Message]:
    """Send one letter to each member but the sender, with an id of its own, all of them or none."""
    swarm = args.swarm_name or ""
    everyone = members(core, swarm)
    left_out = {fold(full_name(name, swarm)) for name in (args.from_agent, *exclude)}
    marks = [BROADCAST_TAG, f"swarm:{swarm}"]
    tags = [*marks, *(tag for tag in args.tags or () if tag not in marks)]
    others = [name for name in everyone if fold(full_name(name, swarm)) not in left_out]
    # The design has one recipient for each letter, so a broadcast is many letters in one commit (G2).
    copies = [args._replace(to_agent=name, tags=tags) for name in others]
    if not copies:
        _log.warning("no other agent is in swarm %r: nothing was sent", swarm)
        return []
    return _post(core, principal, copies)


def reply(
    core: Core, principal: Principal, handle: str, from_agent: str, body: str, payload: dict[str, Any] | None
) -> Message | None:
    """Answer the sender of a letter, in its thread, with its priority. Return None if there is no such letter."""
    original = find(core, principal, handle)
    if original is None:
        _log.warning("no letter %r to reply to", handle)
        return None
    letter = original.message
    swarm = None if letter.scope == DEFAULT_SCOPE else letter.scope
    try:
        request = messages.Reply(
            agent_id=from_agent, id=letter.id, body=body, kind="response", data=payload or None
        )
        draft = request.draft(core)
    except Missing:  # the agent neither sent nor received it: in this design any agent may answer
        args = SendArguments(
            from_agent=from_agent,
            to_agent=letter.sender,
            subject=messages.with_prefix("Re:", letter.subject),
            body=body,
            message_type=MessageType.RESPONSE,
            priority=MessagePriority(int(letter.priority)),
            payload=payload,
            swarm_name=swarm,
            reply_to=letter.id,
        )
        return _post(core, principal, [args])[0]
    return _commit(core, messages.prepare_all(core, principal, [draft], core.now().wall))[0]


def _post(core: Core, principal: Principal, wanted: Sequence[SendArguments]) -> list[Message]:
    return _commit(core, [_prepare(core, principal, args) for args in wanted])


def _commit(core: Core, posts: Sequence[Post]) -> list[Message]:
    receipts = messages.commit_posts(core, posts, posts)
    pairs = zip(receipts, posts, strict=True)
    people = people_names(core)
    return [message_of(Found(receipt.message, post.deliveries[0]), people) for receipt, post in pairs]


def _prepare(core: Core, principal: Principal, args: SendArguments) -> Post:
    now = core.now().wall
    sender = check_agent(mailbox(core, args.from_agent, args.swarm_name), "from_agent")
    expires = aware(args.expires_at)
    # The design stores such a letter and never offers it; `send` of the room would refuse it.
    is_over = expires is not None and expires <= now
    reply_to = None if args.reply_to is None else check_id(id_in(args.reply_to), "reply_to")
    draft = Draft(
        agent_id=sender,
        to=mailbox(core, args.to_agent, args.swarm_name),
        body=args.body,
        data=args.payload or None,
        subject=args.subject,
        kind=MessageType(args.message_type).value,
        priority=MessagePriority(args.priority).value,
        scope=args.swarm_name or None,
        context=args.context or None,
        attachments=args.attachments,
        tags=args.tags,
        expires=None if is_over else expires,
        in_reply_to=reply_to if reply_to is not None and _is_known(core, sender, reply_to) else None,
    )
    (post,) = messages.prepare_all(core, principal, [draft], now)
    post = _in_thread(core, principal, post, reply_to, args.thread_id)
    return _expired(core, post, expires) if is_over else post


def _is_known(core: Core, sender: str, reply_to: str) -> bool:
    """Return whether the sender wrote or received a letter. Then the rules about answers and relays apply."""
    return passes(Missing, messages.known_letter, core, sender, reply_to)


def _in_thread(core: Core, principal: Principal, post: Post, reply_to: str | None, thread_id: str | None) -> Post:
    """Return the post in the requested thread, even if its sender has seen nothing of that thread."""
    # In this design anybody may go on in any thread; the room knows only threads of one's own letters.
    thread = None if not thread_id else check_id(id_in(thread_id), "thread_id")
    if thread is None and reply_to is not None:
        parent = find(core, principal, reply_to)
        thread = None if parent is None else parent.message.thread
    message = post.message
    if message.in_reply_to == reply_to and (thread is None or message.thread_id == thread):
        return post
    fields = {"in_reply_to": reply_to, "thread_id": thread or message.thread_id}
    threaded = _with_fields(core, post, **fields, proof=None)  # it was signed as another letter
    check_answer_rate(core, threaded.message)
    return threaded


def _expired(core: Core, post: Post, expires: datetime | None) -> Post:
    """Return the post of an expired letter, which the design stores and never offers."""
    deliveries = tuple(replace(delivery, expires_at=expires) for delivery in post.deliveries)
    return replace(_with_fields(core, post, expires_at=expires), deliveries=deliveries)


def _with_fields(core: Core, post: Post, **fields: Any) -> Post:
    message = replace(post.message, **fields)
    return replace(post, message=message, encoded=encode_within_limit(message, core.limits))


# Working on letters

LEASE = 3600.0  # seconds for which a worker holds a letter
_ATTEMPTS = 5  # at a step, while other processes change the same letter
_RACES = (LeaseLost, StaleRevision, IllegalMove, UnknownMessage)


class HeldClaim(NamedTuple):
    """The proof that this manager claimed a letter."""

    token: str
    thread: int  # of the threads that share a manager, one gets the letter


class Lifecycle:
    """The steps of one manager on letters, and its claims. Any number of threads may use it."""

    def __init__(self, core: Core, principal: Principal, lease: float = LEASE) -> None:
        self._core = core
        self._principal = principal
        self._lease = lease
        self._claims: dict[tuple[str, str], HeldClaim] = {}  # by letter and mailbox; each step on it is atomic

    def take(self, handle: str, step: Callable[[Found], Found | None]) -> Message | None:
        """Take a step on the letter as it is now; try again if another process was faster."""
        for last in range(_ATTEMPTS, 0, -1):
            # Read again for each attempt: a step counts only if the delivery is unchanged since.
            found = find(self._core, self._principal, handle)
            if found is None:
                return None
            try:
                done = step(found)
            except _RACES as lost:
                if last == 1:
                    _log.warning("%s: %s", handle, lost)
            else:
                return None if done is None else message_of(done, people_names(self._core))
        return None

    # -- steps

    def read(self, found: Found) -> Found:
        """Mark an unread letter as read."""
        if not is_unread(found.delivery):
            return found
        if not is_own_reader(self._core, self._principal, found.delivery.mailbox):
            return found
        now = self._core.now().wall
        return self._moved(
            found, "read", lambda delivery: replace(model_delivery.read(delivery, now), read_at=now)
        )

    def start(self, found: Found) -> Found | None:
        """Claim a letter, or renew the claim of the same thread. Return None if it is claimed or done."""
        state = found.delivery.state
        if state is State.UNREAD:
            return self._claim(found)
        # Another thread of this program is another worker, and must not get the letter too (G5).
        claim = self._claim_on(found)
        if state is State.CLAIMED and claim and claim.thread == get_ident() and self._is_ours(found):
            return self._settled(work.Renew, found, lease=self._lease)
        if state is State.DEAD and found.delivery.reason != EXPIRED:
            return self._claim(self._revived(found))
        _log.info("%s is %s and cannot be claimed", found.message.id, state)
        return None

    def complete(self, found: Found, *, archive: bool) -> Found | None:
        if self._was_lost(found):  # a late ack is refused (G5)
            return None
        if found.delivery.state is State.DONE:
            now = self._core.now().wall
            if not archive or found.delivery.archived_at is not None:
                return found
            return self._moved(found, "archive", lambda delivery: model_delivery.archive(delivery, now))
        held = self._revived(found) if found.delivery.state is State.DEAD else found
        done = self._settled(work.Ack, held, keep=not archive)
        self._let_go(done)
        return done

    def fail(self, found: Found, reason: str, *, retry: bool) -> Found | None:
        if self._was_lost(found) or found.delivery.state is State.DONE:
            return None
        if found.delivery.state is State.DEAD:
            return found
        held = self._claim(found) if retry and found.delivery.state is State.UNREAD else found
        failed = self._settled(work.Fail, held, reason=reason, retry=retry)
        self._let_go(failed)
        return failed

    # -- transitions

    def _claim(self, found: Found) -> Found:
        mailbox = found.delivery.mailbox
        holder = f"{mailbox} (process {os.getpid()})"
        request = work.ClaimOne(agent_id=mailbox, id=found.message.id, lease=self._lease, holder=holder)
        claimed = perform(self._core, self._principal, request).letter
        lease = claimed.delivery.lease
        self._claims[claimed.message.id, mailbox] = HeldClaim(lease.token if lease else "", get_ident())
        return claimed

    def _settled(self, verb: Callable[..., Runs[work.Settled]], found: Found, **params: Any) -> Found:
        request = verb(agent_id=found.delivery.mailbox, ids=found.message.id, held=[found], **params)
        return perform(self._core, self._principal, request).letters[0]

    def _revived(self, found: Found) -> Found:
        request = dead.Revive(agent_id=found.delivery.mailbox, ids=found.message.id)
        return perform(self._core, self._principal, request).letters[0]

    def _moved(self, found: Found, action: str, step: Callable[[Delivery], Delivery]) -> Found:
        # The query names the state that was read: if another process moved the delivery, nothing is found.
        query = Query(
            mailbox=found.delivery.mailbox, message_ids=(found.message.id,), states=(found.delivery.state,)
        )
        done = core_deliveries.move_found(self._core, query, action, step)
        if not done:
            raise StaleRevision
        return done[0]

    # -- claims

    def _is_ours(self, found: Found) -> bool:
        lease, claim = found.delivery.lease, self._claim_on(found)
        return lease is not None and claim is not None and lease.token == claim.token

    def _was_lost(self, found: Found) -> bool:
        """Return whether this manager had claimed the letter, and now another holder has it."""
        held_once = self._claim_on(found) is not None
        lost = found.delivery.state is State.CLAIMED and held_once and not self._is_ours(found)
        if lost:
            holder = found.delivery.lease.holder if found.delivery.lease else "nobody"
            _log.warning("%s is held by %s now: our lease ran out", found.message.id, holder)
        return lost

    def _claim_on(self, found: Found) -> HeldClaim | None:
        return self._claims.get((found.message.id, found.delivery.mailbox))

    def _let_go(self, found: Found) -> None:
        self._claims.pop((found.message.id, found.delivery.mailbox), None)
