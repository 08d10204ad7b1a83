"""Sending: one letter or many, replies, relays, broadcasts, handoffs. All recipients or none.

Hops, trace, allow lists, quotas and pace are enforced here, on every path; no caller can leave them out.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError
from msgspec.structs import asdict, replace

from ..errors import IllegalMove, Invalid, PostroomError, TooLarge, UnknownAgent, UnknownMessage
from ..model import delivery as model_delivery
from ..model import message as model_message
from ..model import task as model_task
from ..model.codec import convert, to_plain
from ..model.delivery import UNSENT, State, open_delivery
from ..model.message import Message, Priority, is_any, is_broadcast
from ..model.names import AT, BROADCAST, check_agent, check_id, check_scope, fold, meant
from ..model.query import LetterQuery, Query
from ..model.record import MEMBER, SPENT, spent_key
from ..model.thread import conversation_of, general_scope
from ..policy import admission
from ..policy.admission import HOUR, MINUTE, check_expiry, is_within, too_crowded, too_fast
from ..store.protocol import FEW, Move, Post, vouched
from . import addressing, inbox, outbox, presentation, task_index
from . import names as core_names
from . import peers as core_peers
from .authorize import authorize
from .compose import Draft, check_when, compose, pieces, seal
from .names import check_not_moved, is_sent_by
from .task_index import has_moved, opened_by, take_back
from .validation import listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import RecipientKind
    from ..model.peer import Peer
    from ..model.task import Step
    from ..store.protocol import Plan, Posted, Write
    from .authorize import Principal
    from .core import Core


class Receipt(Struct, frozen=True, gc=False, kw_only=True):
    """What became of a letter that was sent."""

    message: Message
    repeated: bool = False  # it had been sent before, with the same key
    unknown: tuple[str, ...] = ()  # recipients nobody here has heard from: a new mailbox, or a typing error
    routed: tuple[str, ...] = ()  # who was chosen for `any:` addresses

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def thread(self) -> str:
        """Where the answer will be: `wait(thread=receipt.thread)`."""
        return self.message.thread


def send(core: Core, caller: Principal, drafts: Sequence[Draft]) -> list[Receipt]:
    """Send letters, all in one commit. A temporary error carries the key with which to try again."""
    posts = prepare_all(core, caller, drafts, core.now().wall)
    return commit_posts(core, posts, posts)


def prepare_all(core: Core, caller: Principal, drafts: Sequence[Draft], now: datetime) -> list[Post]:
    """Letters ready to be committed together; each counts towards the pace of the next."""
    if len(drafts) == 1:
        return [prepare(core, caller, drafts[0], now)]
    batch, posts = Batch(), []
    try:
        for draft in drafts:
            post = prepare(core, caller, draft, now, batch)
            posts.append(post)
            batch.add(post.message)
    except PostroomError as error:
        if error.field is not None:  # of which letter
            error.field = f"drafts[{len(posts)}].{error.field}"
        if error.temporary:
            error.keys = tuple(_key_to_retry(core, draft) for draft in drafts)
        raise
    return posts


def commit_posts(
    core: Core, posts: Sequence[Post], writes: Sequence[Write] | Plan, step: Step | None = None
) -> list[Receipt]:
    """Commit `writes`, which end with these letters. What they say of tasks is entered in the same commit."""
    for post in posts:
        if post.message.task is not None:
            writes = partial(_entered, core, writes, step)
            break
    # A letter that was sent before, with the same key, has no deliveries: it was counted then.
    senders = (post.message.sender for post in posts if post.deliveries)
    try:
        with core.within_rate(senders):
            posted = core.store.commit(writes)
    except PostroomError as error:
        if error.temporary:
            error.keys = tuple(post.message.key or post.message.id for post in posts)
        raise
    receipts = []
    for place, post in enumerate(posts, len(posted) - len(posts)):  # before ours may stand bounces
        receipts.append(_receipt(core, post, posted[place]))
    return receipts


def _entered(core: Core, writes: Sequence[Write] | Plan, step: Step | None) -> Sequence[Write]:
    return task_index.entered(core, writes() if callable(writes) else writes, step)


def prepare(
    core: Core,
    caller: Principal,
    draft: Draft,
    now: datetime,
    batch: Batch | None = None,
) -> Post:
    """A letter ready to be committed, or the reason why not. `batch`: the letters that are sent with it. A
    temporary error carries the key with which to try again.
    """
    try:
        if draft.to is None:
            draft = _answering(core, caller, draft)
        return _prepare(core, caller, draft, now, batch)
    except PostroomError as error:
        if error.temporary:
            error.keys = (_key_to_retry(core, draft),)
        raise


def _key_to_retry(core: Core, draft: Draft) -> str:
    """Nothing was written yet: a letter without a key of its own may be sent with any new one."""
    key = draft.fields.get("key") or draft.fields.get("id")
    return key if isinstance(key, str) else core.ids.message()


def _prepare(core: Core, caller: Principal, draft: Draft, now: datetime, batch: Batch | None) -> Post:
    authorize(caller, "send", check_agent(draft.sender, "sender"))
    message = compose(core, draft, now)
    if caller.token is not None and caller.agent is not None:
        message = vouched(core.store, replace(message, proven=True))
    if message.is_automatic:
        raise Invalid(f"only the house writes a {message.kind!r}", field="kind")
    seeks = core.limits.federation_strategy != "table"
    peers: dict[str, Peer] | None = None
    for recipient in message.recipients:
        if AT in recipient.address:
            peers = core_peers.all_peers(core)
            message = outbox.at_home(core, peers, message)
            break
    way = None if message.key is None else _way_of_first(core, message.sender, message.key)
    if way is not None:
        return _repeat(core, message, way, draft)
    if message.expires_at is not None:
        check_expiry(message.expires_at, now)
    first, others = _mailboxes(core, message, draft)
    if peers is not None and not seeks:  # now, if that will do: so who is in the room already can take it along
        far = [name for name, _ in first if AT in name]
        seeks = not (batch is None and outbox.are_open(core, peers, message, far))
    if message.in_reply_to is not None:
        names = [name for name, _ in first] + others
        message = _follow(core, message, names, draft)
    check_pace(core, message, batch)
    at = draft.fields.get("at")
    due_at = None if at is None else _due_at(message, at, now)
    deliveries, routes = [], seeks
    for name, kind in first:
        deliveries.append(open_delivery(message, name, kind, now, due_at))
        routes = routes or is_any(name)
    return Post(
        message=message,
        encoded=seal(message, core.limits),
        deliveries=tuple(deliveries),
        copies=tuple(others),
        quota=core.limits.inbox_quota,
        outbox=core.limits.outbox_max_letters,
        known_only=core.limits.unknown == "refuse",
        admit=partial(_admitted, core),
        routes=routes,
    )


def _due_at(message: Message, at: Any, now: datetime) -> datetime | None:
    """When it is delivered, if that is later."""
    due_at = check_when(at, "at", now)
    if due_at is None or due_at <= now:
        return None
    if message.expires_at is not None and message.expires_at <= due_at:
        hint = "let it expire later, or deliver it earlier"
        raise Invalid("is not after the time of its delivery (at)", field="expires", hint=hint)
    return due_at


def _admitted(core: Core, post: Post) -> Post:
    """Asked by the store, inside the commit, where there is a guard to pass or an agent to choose."""
    return addressing.addressed(core, post)


def _way_of_first(core: Core, sender: str, key: str) -> dict[str, Any] | None:
    """How the letter that used this key before found its way, even if it is deleted by now."""
    sent = core.store.sent(sender, key)
    if sent is not None and sent.message.sender != sender:  # renamed since: the store knows that letter by its id
        return way_of(sent.message) | {"sender": sent.message.sender, "id": sent.message.id}
    if sent is not None:
        return way_of(sent.message)
    spent = core.store.records(SPENT, spent_key(sender, key))
    return spent[0].value["way"] if spent else None


def _repeat(core: Core, message: Message, way: dict[str, Any], draft: Draft) -> Post:
    """A letter with a key that was used before. What held for the first is not asked again; whether it says
    the same, the store decides.
    """
    fields = {
        "thread_tag": message.thread_tag or way["thread_tag"],
        "conversation_id": message.conversation_id or way["conversation_id"],
    }
    kept = {name: way[name] for name in way if name not in INHERITED or draft.fields.get(name) is None}
    if "priority" in kept:
        kept["priority"] = Priority(kept["priority"])
    followed = replace(message, **(kept | fields | {"trace": tuple(way["trace"])}))
    return Post(message=followed, encoded=seal(followed, core.limits), deliveries=())


# What an answer has from the letter that it answers, where its sender says nothing else. Whatever surface it comes
# by: `reply` of the library, `inReplyTo` of the socket, MCP and MAP.
INHERITED = ("subject", "priority", "scope")


def reply_draft(
    core: Core,
    caller: Principal,
    mailbox: str,
    id: str,
    /,
    body: Any,
    *,
    to_all: bool = False,
    field: str = "id",
    **more: Any,
) -> Draft:
    """An answer to whoever wrote the letter, with its callback; what else is kept is in `_inherited`. `field`: the
    caller's name of the id, for errors.
    """
    authorize(caller, "send", mailbox)
    letter = addressing.routed_to(core, known_letter(core, mailbox, id, field))
    known = tuple(one for one in letter.recipients if outbox.is_somebody(core, one.address))
    letter = replace(letter, recipients=known)  # an answer from here makes no mailbox of a name from elsewhere
    # What escalated is answered to everyone it went past: that is how an answer comes back down.
    names = core_names.names_of(core, mailbox)
    to, cc = _answer_to(letter, names, to_all=to_all or letter.kind == model_task.ESCALATION)
    kept: dict[str, Any] = {"to": to, "cc": cc, "callback": letter.callback}
    return Draft(**(kept | more | {"sender": mailbox, "in_reply_to": letter.id, "body": body}))


def _answering(core: Core, caller: Principal, draft: Draft) -> Draft:
    """A letter to which its sender named nobody: with `in_reply_to` it is a reply, by the rules of `reply`."""
    fields = dict(draft.fields)
    id = fields.pop("in_reply_to", None)
    if id is None:
        hint = "an agent's name, a list of them, or in_reply_to for whoever wrote that letter"
        raise Invalid("nobody is named", field="to", hint=hint)
    return reply_draft(core, caller, draft.sender, id, draft.body, field="in_reply_to", **fields)


def forward_draft(
    core: Core, caller: Principal, mailbox: str, id: str, /, to: Any, body: Any = None, **more: Any
) -> Draft:
    """The letter passed on, after a word of one's own. One hop less; never back along its way."""
    authorize(caller, "send", mailbox)
    letter = known_letter(core, mailbox, id)
    kept: dict[str, Any] = {
        "subject": marked("Fwd:", letter.subject),
        "kind": letter.kind,
        "priority": letter.priority,
        "scope": letter.scope,
        "context": letter.context,
        "attachments": letter.attachments,
        "tags": letter.tags,
        "metadata": letter.metadata | {"forwarded": {"id": letter.id, "sender": letter.sender}},
    }
    parts = [*pieces(body), *letter.parts]
    own = {"sender": mailbox, "to": to, "in_reply_to": letter.id, "relays": True, "body": parts}
    return Draft(**(kept | more | own))


def broadcast_draft(mailbox: str, scope: Any, /, body: Any, **more: Any) -> Draft:
    """One letter to everyone in a scope but its sender."""
    team = check_scope(scope, "scope")
    kept = {"kind": "notification", "scope": team, "tags": ("broadcast", f"swarm:{team}")}
    return Draft(sender=mailbox, to=BROADCAST + team, body=body, **(kept | more))


def handoff_draft(mailbox: str, to: Any, handoff: model_message.Handoff, /, **more: Any) -> Draft:
    """Work changes hands: the context as data, a body a model can read, the files it names attached."""
    handoff = _check_handoff(handoff)
    kept = {
        "kind": "handoff",
        "subject": "Handoff",
        "context": asdict(handoff),
        "attachments": handoff.files,
        "tags": ("handoff",),
    }
    return Draft(sender=mailbox, to=to, body=presentation.handoff_text(mailbox, handoff), **(kept | more))


def _check_handoff(handoff: Any) -> model_message.Handoff:
    if not isinstance(handoff, model_message.Handoff):
        raise Invalid(f"must be a Handoff, not {type(handoff).__name__}", field="handoff")
    try:
        return convert(to_plain(handoff), model_message.Handoff)
    except (ValidationError, TypeError) as broken:
        raise Invalid(str(broken), field="handoff") from None


def known_letter(core: Core, mailbox: str, id: Any, field: str = "id") -> Message:
    """A letter this mailbox sent or received; any other is unknown."""
    letter = core.store.get((check_id(id, field),)).get(id)
    if letter is not None and core_names.is_sent_by(core, letter.message, mailbox):
        return letter.message
    return core_names.seen_by(core, inbox.received(core, mailbox, id, field).message, mailbox)


def _answer_to(letter: Message, own: Sequence[str], *, to_all: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whom an answer goes to: the sender (or, of one's own letter, whoever got it), and with all, the others.
    `own`: the names of who answers.
    """
    to = tuple(r.address for r in letter.recipients if r.kind == "to")
    cc = tuple(r.address for r in letter.recipients if r.kind == "cc")
    if letter.sender in own:
        return to or cc, cc if to_all else ()
    if not to_all:
        return (letter.sender,), ()
    return (letter.sender, *(a for a in to if a not in own)), tuple(a for a in cc if a not in own)


def _follow(core: Core, message: Message, mailboxes: Sequence[str], draft: Draft) -> Message:
    """Thread, conversation, hops and trace from the letter this one answers or passes on; of an answer, also what
    it inherits.
    """
    parent = addressing.routed_to(core, known_letter(core, message.sender, message.in_reply_to, "in_reply_to"))
    targets = [recipient.address for recipient in message.recipients]
    passed_to = targets if draft.relays else addressing.without_it(core, parent, targets)
    hops, trace = message.hops, message.trace
    if passed_to:
        reached = mailboxes if any(map(is_broadcast, passed_to)) else passed_to
        if len(reached) <= FEW:  # whoever was renamed since is still the same
            reached = [
                was for name in reached for was in core_names.names_of(core, core_names.resident(core, name))
            ]
        hops, trace = admission.relay(parent, message.sender, reached, core.limits.hops)
    return replace(
        message,
        thread_id=parent.thread,
        thread_tag=message.thread_tag or parent.thread_tag,
        conversation_id=message.conversation_id or parent.conversation_id,
        hops=hops,
        trace=trace,
        **_inherited(draft, parent, is_answer=len(passed_to) < len(targets)),
    )


def _inherited(draft: Draft, parent: Message, *, is_answer: bool) -> dict[str, Any]:
    """What a letter has from the one it refers to, where its sender left it unsaid. One that goes to nobody who
    knows that letter is no answer: it stays in the same scope, and has a subject and a priority of its own.
    """
    if draft.relays:
        return {}
    had: dict[str, Any] = {"scope": parent.scope}
    if is_answer:
        had |= {"subject": marked("Re:", parent.subject), "priority": parent.priority}
    return {name: value for name, value in had.items() if draft.fields.get(name) is None}


def _mailboxes(core: Core, message: Message, draft: Draft) -> tuple[list[tuple[str, RecipientKind]], list[str]]:
    """Where the letter goes: named mailboxes with their kind, and further ones that get the same as the first."""
    named: list[tuple[str, RecipientKind]] = []
    scopes: list[str] = []
    for recipient in message.recipients:
        address = recipient.address
        if ":" in address and is_broadcast(address):
            scopes.append(address.removeprefix(BROADCAST))
        else:
            named.append((address, recipient.kind))
    if not scopes and not draft.exclude:
        return named, []
    if not scopes:
        raise Invalid("only a broadcast can leave somebody out", field="exclude")
    human = core.limits.human
    excluded = [meant(check_agent(name, "exclude"), human) for name in listed(draft.exclude, "exclude")]
    left_out = {fold(name) for name in (message.sender, *excluded, *(name for name, _ in named))}
    members = [name for scope in scopes for name in core.store.keys(MEMBER + scope)]
    members = [name for name in dict.fromkeys(members) if fold(name) not in left_out]
    if not members and not named:
        raise UnknownAgent(
            f"nobody else is in {', '.join(scopes)!r}", field="to", hint="register agents with this scope"
        )
    if len(named) + len(members) > core.limits.max_recipients:
        raise TooLarge(f"more than {core.limits.max_recipients} recipients", field="to")
    if not named or named[0][1] != "to":
        first: list[tuple[str, RecipientKind]] = [(name, "to") for name in members[:1]]
        named = first + named
        members = members[1:]
    return named, members


def _receipt(core: Core, post: Post, posted: Posted) -> Receipt:
    message = post.message
    if not posted.repeated:
        routed = addressing.routed_by(post, posted.written) if posted.written is not None else ()
        return Receipt(message=message, unknown=posted.unknown, routed=routed)
    first = core.store.get((posted.message_id,)).get(posted.message_id)
    kept = replace(message, id=posted.message_id) if first is None else first.message
    return Receipt(message=kept, repeated=True)


def marked(mark: str, subject: str) -> str:
    """The subject with a mark before it, once."""
    if not subject or subject.lower().startswith(mark.lower()):
        return subject
    return f"{mark} {subject}"[:1000]


def way_of(message: Message) -> dict[str, Any]:
    """What a letter has from the one it answers: needed to tell whether another says the same."""
    inherited = {} if message.in_reply_to is None else {n: getattr(message, n) for n in INHERITED}
    return inherited | {
        "thread_id": message.thread_id,
        "thread_tag": message.thread_tag,
        "conversation_id": message.conversation_id,
        "hops": message.hops,
        "trace": message.trace,
    }


# Taking a letter back, while nobody has begun to work on it: from all its recipients, or from none.

_NAMED = 3  # so many holders are named in a refusal


def unsend(core: Core, caller: Principal, mailbox: str, id: str) -> Message:
    """Take a letter back. It is dead everywhere with the reason "unsent", and nobody can revive it; who had not
    looked at it never sees it. A task that it opened is canceled. Unsending twice is the same as once.
    """
    authorize(caller, "unsend", mailbox)
    check_not_moved(core, mailbox, "mailbox")
    letter = core.store.get((check_id(id, "id"),)).get(id)
    if letter is None or not is_sent_by(core, letter.message, mailbox):
        raise UnknownMessage(f"no letter {id!r} was sent by {mailbox!r}", field="id")
    now = core.now().wall

    def plan() -> Sequence[Write]:
        found = [f.delivery for f in core.store.find(Query(message_ids=(id,), order="age"))]
        if all(_is_unsent(delivery) for delivery in found):
            return []
        _check_untouched(found)
        _check_task(core, letter.message)
        seen = any(delivery.kind == "to" and delivery.read_at is not None for delivery in found)
        taken_back = [Move(delivery, model_delivery.unsend(delivery, now), "unsend") for delivery in found]
        return [*taken_back, *take_back(core, letter.message, now, seen=seen)]

    core.store.commit(plan)
    return letter.message


def _is_unsent(delivery: Delivery) -> bool:
    return delivery.state is State.DEAD and delivery.reason == UNSENT


def _check_untouched(deliveries: Sequence[Delivery]) -> None:
    """Refuse, and say who has it, once somebody has claimed or settled it. A claim that was given back as if it
    had never been does not count; a failed try does, but not one to bring it to another system.
    """
    taken = [d for d in deliveries if d.state not in {State.QUEUED, State.UNREAD} or _was_tried(d)]
    if taken:
        results = [f"{d.mailbox} ({_what_happened(d)})" for d in taken[:_NAMED]]
        more = f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else ""
        raise IllegalMove(f"too late to unsend: {', '.join(results)}{more}", field="id", hint="send a correction")


def _check_task(core: Core, message: Message) -> None:
    """Refuse once the receiver has taken the task on, which it may without settling the letter; and a step of a
    task, by which the other party goes.
    """
    task = opened_by(core, message)
    if task is not None and task.is_active:
        text = f"{task.receiver} has taken the task on"
        raise IllegalMove(f"too late to unsend: {text}", field="id", hint="cancel the task")
    if has_moved(core, message):
        raise IllegalMove("a step of a task cannot be taken back", field="id", hint="send a correction")


def _was_tried(delivery: Delivery) -> bool:
    return delivery.attempts > 0 and delivery.state is not State.QUEUED


def _what_happened(delivery: Delivery) -> str:
    if delivery.has_left and delivery.reason:
        return delivery.reason
    return str(delivery.state) if delivery.state is not State.UNREAD else "tried it before"


# The pace of answers in one thread or conversation, whatever surface or link they come by (G11).
#
# An answer is a reply, or a letter in a conversation (by its id, or by thread tag and scope) in which somebody
# has
# written to its sender since. So a producer that fills a work queue under one tag has no pace, and neither has
# the
# catch-all of a scope. One sender may write `thread_rate` answers in a minute. All senders together may write
# `thread_hourly` answers to several recipients in an hour, counted anew when a person writes: such answers
# multiply,
# so agents that answer everything to everyone come to rest only if they share one limit whose window is long
# enough
# to work through what they received.

LOOK_BACK = 4096  # letters: a send must not cost more the longer a conversation is


class Batch:
    """Letters that are checked one by one and written together: each counts those before it."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, message: Message) -> None:
        own, shared = _places(message)
        if own is not None and shared is not None:
            self._counts[message.sender, _name(own)] += 1
            if _is_to_several(message):
                self._counts["", _name(shared)] += 1

    def count(self, sender: str, place: LetterQuery) -> int:
        return self._counts[sender, _name(place)]


def check_pace(core: Core, message: Message, batch: Batch | None = None) -> None:
    """Raise TooFast if this letter is one answer too many. `batch`: the letters that are written with it. A letter
    that is no reply and is in no named conversation costs nothing.
    """
    batch = batch or Batch()
    own, shared = _places(message)
    if own is None or shared is None:
        return
    _check_sender(core, message, own, batch)
    if _is_to_several(message) and message.sender != core.limits.human:
        _check_crowd(core, message, shared, batch)


def _check_sender(core: Core, message: Message, place: LetterQuery, batch: Batch) -> None:
    rate, now = core.limits.thread_rate, message.created_at
    back = rate - 1 - batch.count(message.sender, place)
    earlier = _earlier(core, message, replace(place, sender=message.sender), back) if rate else None
    if earlier is None or not is_within(MINUTE, earlier[1], now):
        return
    if _is_answer(core, message, place, earlier[0]):
        raise too_fast(_name(place), rate, earlier[1], now)


def _check_crowd(core: Core, message: Message, place: LetterQuery, batch: Batch) -> None:
    rate, now = core.limits.thread_hourly, message.created_at
    several, back = replace(place, to_several=True), rate - 1 - batch.count("", place)
    earlier = _earlier(core, message, several, back) if rate else None
    if earlier is None or not is_within(HOUR, earlier[1], now):
        return
    since = 0 if earlier[0] is None else earlier[0] - 1  # that letter may be the person's own
    person = core.store.letters(replace(place, sender=core.limits.human, after=since))
    if person:
        earlier = _earlier(core, message, replace(several, after=person[0].number), back)
    if earlier is not None and _is_answer(core, message, place, earlier[0]):
        raise too_crowded(_name(place), rate, earlier[1], now)


def _is_answer(core: Core, message: Message, place: LetterQuery, since: int | None) -> bool:
    """Is it a reply, or did somebody write to its sender here since that letter?"""
    if message.thread_id is not None or since is None:
        return message.thread_id is not None
    return bool(core.store.letters(replace(place, received_by=message.sender, after=since)))


def _earlier(core: Core, message: Message, query: LetterQuery, back: int) -> tuple[int | None, datetime] | None:
    """Return number and time of the letter `back` letters ago. One of the same batch has no number yet."""
    if back < 0:
        return None, message.created_at
    found = core.store.letters(replace(query, skip=back))
    return (found[0].number, found[0].message.created_at) if found else None


def _places(message: Message) -> tuple[LetterQuery | None, LetterQuery | None]:
    """Return where the answers of its sender are counted (the thread, if any) and where those of all senders are
    (the conversation, if any).
    """
    thread = conversation = None
    if message.thread_id is not None:
        thread = LetterQuery(replies_in=message.thread_id, newest=LOOK_BACK, order="newest", limit=1)
    name = conversation_of(message)
    if general_scope(name) is None:
        conversation = LetterQuery(conversation=name, newest=LOOK_BACK, order="newest", limit=1)
    return thread or conversation, conversation or thread


def _name(place: LetterQuery) -> str:
    return f"thread {place.replies_in}" if place.conversation is None else f"conversation {place.conversation}"


def _is_to_several(message: Message) -> bool:
    if len(message.recipients) != 1:
        return True
    address = message.recipients[0].address
    return is_broadcast(address) or address.startswith(AT)
