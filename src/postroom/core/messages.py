"""Send letters: send, reply, forward, broadcast, hand off and unsend.

A letter reaches all its recipients or none. `prepare` turns a draft into a `Post` that the store can commit;
`commit_posts` commits one or several. Hops, trace, allow lists, quotas and the rate of answers are enforced here
on every path, so no surface can leave them out. Guards are checked and `any:` addresses resolved inside the commit
(`addressing`), because they depend on what other senders do at the same time.

The fields of a reply that the sender left out are taken from the letter it answers (`INHERITED`), whichever
surface it comes by.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, ValidationError
from msgspec.structs import asdict, replace

from ..core.task_index import cancel_unsent
from ..errors import IllegalMove, Invalid, PostroomError, TooLarge, UnknownAgent, UnknownMessage
from ..model import delivery as model_delivery
from ..model import message as model_message
from ..model import task as model_task
from ..model.codec import convert, to_plain
from ..model.delivery import UNSENT, State, open_delivery
from ..model.message import AUTOMATIC, Message, Priority, is_broadcast
from ..model.names import ANY, AT, BROADCAST, check_agent, check_id, check_scope, fold, meant, system_of
from ..model.peer import Carried
from ..model.query import LetterQuery, Query
from ..model.record import MEMBER, SPENT, pair_key
from ..model.thread import conversation_of, general_scope
from ..model.values import Brief, as_list
from ..policy import admission
from ..policy.admission import HOUR, MINUTE, check_expiry, is_within, too_crowded, too_fast
from ..store.protocol import FEW, Move, Post, first_sent, record_keys, vouched
from . import addressing, inbox, outbox, presentation, task_index
from . import names as core_names
from . import peers as core_peers
from .authorize import authorize
from .compose import (
    LONGEST_SUBJECT,
    Draft,
    LetterFields,
    as_parts,
    check_when,
    compose,
    encode_within_limit,
    letter_fields,
)
from .names import check_not_moved, is_sent_by
from .proof import is_person, sign_letter
from .task_index import has_moved, opened_by
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import RecipientKind
    from ..model.task import Step
    from ..store.protocol import Plan, Posted, Write
    from .authorize import Principal
    from .core import Core


class Receipt(Brief, frozen=True, gc=False, kw_only=True):
    """The result of sending a letter."""

    message: Message
    repeated: bool = False  # the same letter had been sent before, with the same key
    unknown: tuple[str, ...] = ()  # recipients that were never seen in this room: new mailboxes, or typing errors
    routed: tuple[str, ...] = ()  # agents that were chosen for `any:` addresses
    carried: tuple[Carried, ...] = ()  # for each other system it goes to: whether anything carries it now

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def thread(self) -> str:
        """The thread in which an answer will arrive: `wait(thread=receipt.thread)`."""
        return self.message.thread


class Receipts(Struct):
    """The results of sending several letters."""

    receipts: list[Receipt]


@verb("send", Receipt, action="send")
class Send(Draft, kw_only=True):
    """Send a letter to one or many."""

    def run(self, core: Core, principal: Principal) -> Receipt:
        return send_one(core, principal, self)


@verb("send_many", Receipts, action="send")
class SendMany(MailboxVerb, kw_only=True):
    """Send several letters in one commit: all or none."""

    drafts: Annotated[list[Any], "letters as objects: to, body and the fields of send"]

    def run(self, core: Core, principal: Principal) -> Receipts:
        drafts = own_drafts(self.agent_id, self.drafts)
        posts = _prepare_all_authorised(core, principal, drafts, core.now().wall)
        return Receipts(commit_posts(core, posts, posts))


def own_drafts(sender: str, drafts: Any) -> list[Draft]:
    """Return copies with this sender: a draft may be sent again, and from elsewhere."""
    if not isinstance(drafts, (list, tuple)):
        raise Invalid(f"must be a list of drafts, not {type(drafts).__name__}", field="drafts")
    own = []
    for place, one in enumerate(drafts):
        if isinstance(one, Draft):
            own.append(replace(one, agent_id=sender))
            continue
        if not isinstance(one, dict) or one.keys().isdisjoint({"to", "in_reply_to"}):
            raise Invalid("must be an object with at least `to` or `in_reply_to`", field=f"drafts[{place}]")
        fields = letter_fields({name: value for name, value in one.items() if name not in {"to", "body"}})
        own.append(Draft(agent_id=sender, to=one.get("to"), body=one.get("body"), **fields))
    return own


def send_one(core: Core, principal: Principal, draft: Draft) -> Receipt:
    """Send a letter whose sender is authorised."""
    post = prepare_authorised(core, principal, draft, core.clock.now().wall)
    return commit_posts(core, [post], [post])[0]


def prepare_all(core: Core, caller: Principal, drafts: Sequence[Draft], now: datetime) -> list[Post]:
    """Authorise the senders; return posts that are ready to be committed together.

    A sender is the one that the credential allows, never just the one that a draft names (G8).
    """
    for draft in drafts:
        authorize(caller, "send", check_agent(draft.agent_id, "sender"))
    return _prepare_all_authorised(core, caller, drafts, now)


def _prepare_all_authorised(
    core: Core, principal: Principal, drafts: Sequence[Draft], now: datetime
) -> list[Post]:
    """Return posts that are ready to be committed together; each counts towards the answer rate of the next."""
    if len(drafts) == 1:
        return [prepare_authorised(core, principal, drafts[0], now)]
    batch, posts = AnswerRates(), []
    try:
        for draft in drafts:
            post = prepare_authorised(core, principal, draft, now, batch)
            posts.append(post)
            batch.add(post.message)
    except PostroomError as error:
        if error.field is not None:  # name the letter
            error.field = f"drafts[{len(posts)}].{error.field}"
        if error.temporary:
            error.keys = tuple(_key_to_retry(core, draft) for draft in drafts)
        raise
    return posts


def commit_posts(
    core: Core, posts: Sequence[Post], writes: Sequence[Write] | Plan, step: Step | None = None
) -> list[Receipt]:
    """Commit `writes`, which end with these posts, and update the task index in the same commit.

    The letters count towards the rate of their senders, unless the commit fails (threat 7).
    """
    for post in posts:
        if post.message.task is not None:
            writes = partial(_with_task_index, core, writes, step)
            break
    counted: Mapping[str, int] = {}
    try:
        if core.limits.sender_rate:
            # The post of a letter that was sent before with the same key has no deliveries: it was counted then.
            senders = Counter(fold(post.message.sender) for post in posts if post.deliveries)
            core.rates.take(core.limits, senders, core.now().steady)
            counted = senders
        posted = core.store.commit(writes)
    except BaseException as error:
        core.rates.give_back(core.limits, counted)
        if isinstance(error, PostroomError) and error.temporary:
            error.keys = tuple(post.message.key or post.message.id for post in posts)
        raise
    receipts = []
    for place, post in enumerate(posts, len(posted) - len(posts)):  # bounces may come before them
        receipts.append(_receipt(core, post, posted[place]))
    return receipts


def _with_task_index(core: Core, writes: Sequence[Write] | Plan, step: Step | None) -> Sequence[Write]:
    return task_index.with_index(core, writes() if callable(writes) else writes, step)


def prepare_authorised(  # noqa: C901, PLR0912 - one list of checks, in order
    core: Core, principal: Principal, draft: Draft, now: datetime, batch: AnswerRates | None = None
) -> Post:
    """Check a draft and return the post that commits it.

    Everything is checked that does not need the commit lock, in the order in which errors are most useful. `batch`
    holds the letters that are sent with it. A temporary error carries the key with which to try again.
    """
    try:
        if draft.to is None:
            if draft.in_reply_to is None:
                hint = "an agent's name, a list of names, or in_reply_to for the sender of that letter"
                raise Invalid("no recipient is named", field="to", hint=hint)
            draft = _answer(core, draft, draft.in_reply_to, draft.body, "in_reply_to")
        message = compose(core, draft, now)
        if principal.token is not None and principal.agent is not None:
            # A token proves who wrote it. Readers see that as the verified origin (G8, G12).
            message = vouched(core.store, replace(message, proven=True))
        # Automatic mail causes no bounce and no answer, so an agent must not pass its own mail for it (G11).
        if message.kind in AUTOMATIC:
            raise Invalid(f"only Postroom itself writes a {message.kind!r}", field="kind")
        routes = core.limits.federation_strategy != "table"
        for recipient in message.recipients:
            if AT in recipient.address:
                routes = True
                message = outbox.normalize_recipients(core, core_peers.all_peers(core), message)
                break
        # A repeated key returns the first letter. It comes before all checks that may have changed since: expiry,
        # members of a scope, hops, rates.
        earlier = None if message.key is None else _first_derived_fields(core, message.sender, message.key)
        if earlier is not None:
            return _repeat(core, message, earlier, draft)
        if message.expires_at is not None:
            check_expiry(message.expires_at, now)
        named: list[tuple[str, RecipientKind]] = []
        members: list[str] = []
        scopes: list[str] = []
        for recipient in message.recipients:
            address = recipient.address
            if ":" in address and is_broadcast(address):
                scopes.append(address.removeprefix(BROADCAST))
            else:
                named.append((address, recipient.kind))
                routes = routes or address.startswith(ANY)
        if scopes or draft.exclude:
            named, members = _with_members(core, message, draft, named, scopes)
        if message.in_reply_to is not None:
            message = _with_parent_fields(core, message, [name for name, _ in named] + members, draft)
        if is_person(core, message.sender):
            message = sign_letter(core, principal, message)  # with every field that its proof covers
        # After the parent's thread is known: the rate counts per thread or conversation (G11). A letter that is
        # no reply and is in no named conversation has none.
        if message.thread_id or message.conversation_id or message.thread_tag:
            check_answer_rate(core, message, batch)
        due_at = None if draft.at is None else _due_at(message, draft.at, now)
        deliveries = []
        for name, kind in named:
            deliveries.append(open_delivery(message, name, kind, now, due_at))
        return Post(
            message=message,
            encoded=encode_within_limit(message, core.limits),
            deliveries=tuple(deliveries),
            copies=tuple(members),
            quota=core.limits.inbox_quota,
            outbox=core.limits.outbox_max_letters,
            known_only=core.limits.unknown == "refuse",
            admit=partial(addressing.resolve_post, core),  # called by the store inside the commit
            routes=routes,
        )
    except PostroomError as error:
        if error.temporary:
            error.keys = (_key_to_retry(core, draft),)
        raise


def _key_to_retry(core: Core, draft: Draft) -> str:
    """Return the key of a draft, or a new one: nothing was written yet, so any new key will do."""
    key = draft.key or draft.letter_id
    return key if isinstance(key, str) else core.ids.message()


def _due_at(message: Message, at: Any, now: datetime) -> datetime | None:
    """Return the time of a delayed delivery; None if the letter is due now."""
    due_at = check_when(at, "at", now)
    if due_at is None or due_at <= now:
        return None
    if message.expires_at is not None and message.expires_at <= due_at:
        hint = "let it expire later, or deliver it earlier"
        raise Invalid("is not after the time of its delivery (at)", field="expires", hint=hint)
    return due_at


def sent_before(core: Core, sender: str, key: str) -> Message | None:
    """Return the letter this sender sent with this key, or without a key under this id."""
    found = first_sent(core.store, sender, key)
    return None if found is None else found.message


def _first_derived_fields(core: Core, sender: str, key: str) -> dict[str, Any] | None:
    """Return the derived fields of the letter that used this key before, even if it has been deleted."""
    sent = sent_before(core, sender, key)
    if sent is not None and sent.sender != sender:  # renamed since: the store must find it by its id
        return derived_fields(sent) | {"sender": sent.sender, "id": sent.id}
    if sent is not None:
        return derived_fields(sent)
    spent = core.store.records(SPENT, pair_key(sender, key))
    return spent[0].value["way"] if spent else None


def _repeat(core: Core, message: Message, first: dict[str, Any], draft: Draft) -> Post:
    """Return the post of a letter whose key was used before, with the derived fields of the first one.

    The checks of the first are not repeated. The store compares the content and raises IdTaken if it differs.
    """
    fields = {
        "thread_tag": message.thread_tag or first["thread_tag"],
        "conversation_id": message.conversation_id or first["conversation_id"],
    }
    kept = {name: first[name] for name in first if name not in INHERITED or getattr(draft, name) is None}
    if "priority" in kept:
        kept["priority"] = Priority(kept["priority"])
    followed = replace(message, **(kept | fields | {"trace": tuple(first["trace"])}))
    return Post(message=followed, encoded=encode_within_limit(followed, core.limits), deliveries=())


# Drafts: replies, forwards, broadcasts and handoffs.

# Fields that a reply takes from the letter it answers, unless its sender sets them.
INHERITED = ("subject", "priority", "scope")


@verb("reply", Receipt, action="send", old_names={"message_id": "id"})
class Reply(LetterFields, kw_only=True):
    """Answer a letter that was sent or received here; thread, subject, scope, priority and callback are kept."""

    id: Annotated[str, "the letter's id"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    to_all: Annotated[bool, "to everyone who got it"] = False

    def run(self, core: Core, principal: Principal) -> Receipt:
        return send_one(core, principal, self.draft(core))

    def draft(self, core: Core) -> Draft:
        """Return the answer to the sender of the letter. `_inherited` adds the other fields."""
        return _answer(core, self, self.id, self.body, "id", to_all=self.to_all)


def _answer(core: Core, fields: LetterFields, id: Any, body: Any, field: str, *, to_all: bool = False) -> Draft:
    """Return the answer to a letter with these fields. `field` is the name under which the caller gave its id."""
    mailbox = fields.agent_id
    letter = addressing.routed_to(core, known_letter(core, mailbox, id, field))
    known = tuple(one for one in letter.recipients if outbox.may_exist(core, one.address))
    letter = replace(letter, recipients=known)  # a reply must not create mailboxes for names of other systems
    # An escalation is answered to all its recipients, so that the answer reaches every level it passed.
    names = core_names.names_of(core, mailbox)
    to, cc = _reply_recipients(letter, names, to_all=to_all or letter.kind == model_task.ESCALATION)
    return fields.drafted({"cc": cc, "callback": letter.callback}, to=to, body=body, in_reply_to=letter.id)


@verb("forward", Receipt, action="send", old_names={"message_id": "id"})
class Forward(LetterFields, kw_only=True):
    """Pass a letter on, after an optional body of one's own.

    It has one hop less, and cannot go back to an agent that the letter has passed.
    """

    id: Annotated[str, "the letter's id"]
    to: Annotated[Any, "a name, or a list of names"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None

    def run(self, core: Core, principal: Principal) -> Receipt:
        letter = known_letter(core, self.agent_id, self.id)
        usual: dict[str, Any] = {
            "subject": with_prefix("Fwd:", letter.subject),
            "kind": letter.kind,
            "priority": letter.priority,
            "scope": letter.scope,
            "context": letter.context,
            "attachments": letter.attachments,
            "tags": letter.tags,
            "metadata": letter.metadata | {"forwarded": {"id": letter.id, "sender": letter.sender}},
        }
        parts = [*as_parts(self.body), *letter.parts]
        draft = self.drafted(usual, to=self.to, body=parts, in_reply_to=letter.id, relays=True)
        return send_one(core, principal, draft)


@verb("broadcast", Receipt, action="send", wide=True)
class Broadcast(LetterFields, kw_only=True):
    """Send one letter to everyone registered in a scope except its sender."""

    scope: Annotated[str, "whose members get it"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    exclude: Annotated[list[Any] | None, "recipients to leave out"] = None

    def run(self, core: Core, principal: Principal) -> Receipt:
        team = check_scope(self.scope, "scope")
        usual = {"kind": "notification", "tags": ["broadcast", f"swarm:{team}"]}
        draft = self.drafted(usual, to=BROADCAST + team, scope=team, body=self.body, exclude=self.exclude)
        return send_one(core, principal, draft)


@verb("handoff", Receipt, action="send")
class HandOver(LetterFields, kw_only=True):
    """Hand work over, with all its context as data, a body that a model can read, and its files attached."""

    to: Annotated[Any, "a name, or a list of names"]
    handoff: Annotated[dict[str, Any], "work_completed, current_state, next_steps and so on"]

    def run(self, core: Core, principal: Principal) -> Receipt:
        handoff = _check_handoff(self.handoff)
        usual = {
            "kind": "handoff",
            "subject": "Handoff",
            "context": asdict(handoff),
            "attachments": handoff.files,
            "tags": ["handoff"],
        }
        body = presentation.handoff_text(self.agent_id, handoff)
        return send_one(core, principal, self.drafted(usual, to=self.to, body=body))


def _check_handoff(handoff: Any) -> model_message.Handoff:
    """Return a handoff that is given as a `Handoff` or, over a wire, as an object with its fields."""
    names = model_message.Handoff.__struct_fields__
    if isinstance(handoff, dict) and not handoff.keys() <= set(names):
        unknown = min(name for name in handoff if name not in names)
        raise Invalid("a handoff has no such field", field=f"handoff.{unknown}", hint=", ".join(names))
    if not isinstance(handoff, (dict, model_message.Handoff)):
        raise Invalid(f"must be a Handoff, not {type(handoff).__name__}", field="handoff")
    try:
        return convert(to_plain(handoff), model_message.Handoff)
    except (ValidationError, TypeError) as broken:
        raise Invalid(str(broken), field="handoff", hint="work_completed is required") from None


def known_letter(core: Core, mailbox: str, id: Any, field: str = "id") -> Message:
    """Return a letter that this mailbox sent or received; any other is unknown to it."""
    letter = core.store.get((check_id(id, field),)).get(id)
    if letter is not None and core_names.is_sent_by(core, letter.message, mailbox):
        return letter.message
    return core_names.seen_by(core, inbox.received(core, mailbox, id, field).message, mailbox)


def _reply_recipients(
    letter: Message, own: Sequence[str], *, to_all: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the `to` and `cc` of a reply: the sender, or the recipients of one's own letter.

    With `to_all` the other recipients follow. `own` holds all names of the agent that replies.
    """
    to = tuple(r.address for r in letter.recipients if r.kind == "to")
    cc = tuple(r.address for r in letter.recipients if r.kind == "cc")
    if letter.sender in own:
        return to or cc, cc if to_all else ()
    if not to_all:
        return (letter.sender,), ()
    return (letter.sender, *(a for a in to if a not in own)), tuple(a for a in cc if a not in own)


def _with_parent_fields(core: Core, message: Message, mailboxes: Sequence[str], draft: Draft) -> Message:
    """Return the message with thread, conversation, hops and trace of the letter it answers or passes on.

    A recipient that does not have the parent letter makes this a relay: it costs a hop and is checked for loops.
    An answer also inherits fields.
    """
    parent = addressing.routed_to(core, known_letter(core, message.sender, message.in_reply_to, "in_reply_to"))
    targets = [recipient.address for recipient in message.recipients]
    passed_to = targets if draft.relays else addressing.without_copy(core, parent, targets)
    hops, trace = message.hops, message.trace
    if passed_to:
        reached = mailboxes if any(map(is_broadcast, passed_to)) else passed_to
        if len(reached) <= FEW:  # a renamed agent is found in the trace by its former names
            reached = [
                was for name in reached for was in core_names.names_of(core, core_names.current_name(core, name))
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
    """Return the fields that a letter takes from its parent because its sender did not set them.

    A letter whose recipients all lack the parent is no answer: it keeps the scope, but not subject and priority.
    """
    if draft.relays:
        return {}
    had: dict[str, Any] = {"scope": parent.scope}
    if is_answer:
        had |= {"subject": with_prefix("Re:", parent.subject), "priority": parent.priority}
    return {name: value for name, value in had.items() if getattr(draft, name) is None}


def _with_members(
    core: Core, message: Message, draft: Draft, named: list[tuple[str, RecipientKind]], scopes: list[str]
) -> tuple[list[tuple[str, RecipientKind]], list[str]]:
    """Return the named mailboxes with their kind, and scope members, who get a copy of the first delivery."""
    if not scopes:
        raise Invalid("only a broadcast can exclude agents", field="exclude")
    human = core.limits.human
    excluded = [meant(check_agent(name, "exclude"), human) for name in as_list(draft.exclude or (), "exclude")]
    # Named recipients have their own delivery already: nobody gets a letter twice.
    left_out = {fold(name) for name in (message.sender, *excluded, *(name for name, _ in named))}
    members = [name for scope in scopes for name in record_keys(core.store, MEMBER + scope)]
    members = [name for name in dict.fromkeys(members) if fold(name) not in left_out]
    if not members and not named:
        raise UnknownAgent(
            f"no other agent is in {', '.join(scopes)!r}", field="to", hint="register agents with this scope"
        )
    if len(named) + len(members) > core.limits.max_recipients:
        raise TooLarge(f"more than {core.limits.max_recipients} recipients", field="to")
    # The store copies the first delivery for all members, so that one must be of kind `to`.
    if not named or named[0][1] != "to":
        first: list[tuple[str, RecipientKind]] = [(name, "to") for name in members[:1]]
        named = first + named
        members = members[1:]
    return named, members


def _receipt(core: Core, post: Post, posted: Posted) -> Receipt:
    message, written = post.message, posted.written
    if posted.repeated:
        first = core.store.get((posted.message_id,)).get(posted.message_id)
        kept = replace(message, id=posted.message_id) if first is None else first.message
        return Receipt(message=kept, repeated=True)
    systems: dict[str, None] = {}
    for delivery in (written or post).deliveries:
        if AT in delivery.mailbox:
            systems[system_of(delivery.mailbox)] = None
    carried: tuple[Carried, ...] = ()
    if systems:
        carried = outbox.carried(core, systems)
    routed = () if written is None else addressing.routed_by(post, written)
    return Receipt(message=message, unknown=posted.unknown, routed=routed, carried=carried)


def with_prefix(prefix: str, subject: str) -> str:
    """Return the subject with a prefix such as `Re:`, which is never repeated."""
    if not subject or subject.lower().startswith(prefix.lower()):
        return subject
    return f"{prefix} {subject}"[:LONGEST_SUBJECT]


def derived_fields(message: Message) -> dict[str, Any]:
    """Return the fields that a letter may have from the one it answers.

    They are needed to compare a repeated send with the first one, so they outlive a deleted letter.
    """
    inherited = {} if message.in_reply_to is None else {n: getattr(message, n) for n in INHERITED}
    return inherited | {
        "thread_id": message.thread_id,
        "thread_tag": message.thread_tag,
        "conversation_id": message.conversation_id,
        "hops": message.hops,
        "trace": message.trace,
    }


# Unsend: take a letter back before any recipient has begun to work on it, from all recipients or from none.

_MAX_NAMED = 3  # recipients that a refusal names


class OneMessage(Struct):
    """A letter without its deliveries."""

    letter: Message


@verb("unsend", OneMessage, action="unsend", old_names={"message_id": "id"})
class Unsend(MailboxVerb, kw_only=True):
    """Take a letter back from all its recipients while none of them has claimed it. Twice is the same as once.

    Its deliveries become dead with the reason "unsent" and cannot be revived; a recipient that had not read it
    never sees it. A task that it opened is canceled.
    """

    id: Annotated[str, "the letter's id"]

    def run(self, core: Core, _principal: Principal) -> OneMessage:
        check_not_moved(core, self.agent_id, "mailbox")
        letter = core.store.get((check_id(self.id, "id"),)).get(self.id)
        if letter is None or not is_sent_by(core, letter.message, self.agent_id):
            raise UnknownMessage(f"no letter {self.id!r} was sent by {self.agent_id!r}", field="id")
        now = core.now().wall

        def plan() -> Sequence[Write]:
            found = [f.delivery for f in core.store.find(Query(message_ids=(self.id,), order="age"))]
            # A second call changes nothing, and is no error: the answer of the first may have been lost.
            if all(delivery.state is State.DEAD and delivery.reason == UNSENT for delivery in found):
                return []
            _check_untouched(found)  # inside the commit: a recipient may claim the letter at this moment
            _check_task(core, letter.message)
            seen = any(delivery.kind == "to" and delivery.read_at is not None for delivery in found)
            taken_back = [Move(delivery, model_delivery.unsend(delivery, now), "unsend") for delivery in found]
            return [*taken_back, *cancel_unsent(core, letter.message, now, seen=seen)]

        core.store.commit(plan)
        return OneMessage(letter.message)


def _check_untouched(deliveries: Sequence[Delivery]) -> None:
    """Raise IllegalMove, naming the recipients, if any recipient has claimed or settled the letter.

    A claim that was released does not count. A failed attempt does, unless it was one to send the letter to
    another system.
    """
    taken = [
        d
        for d in deliveries
        if d.state not in {State.QUEUED, State.UNREAD} or (d.attempts > 0 and d.state is not State.QUEUED)
    ]
    if taken:
        holders = [f"{d.mailbox} ({_what_happened(d)})" for d in taken[:_MAX_NAMED]]
        more = f" and {len(taken) - _MAX_NAMED} more" if len(taken) > _MAX_NAMED else ""
        raise IllegalMove(f"too late to unsend: {', '.join(holders)}{more}", field="id", hint="send a correction")


def _check_task(core: Core, message: Message) -> None:
    """Raise IllegalMove if the receiver has accepted the task, or if the letter is a later step of a task.

    A receiver may accept a task without settling its letter, so the deliveries alone do not show it.
    """
    task = opened_by(core, message)
    if task is not None and task.is_active:
        text = f"too late to unsend: {task.receiver} has accepted the task"
        raise IllegalMove(text, field="id", hint="cancel the task")
    if has_moved(core, message):
        raise IllegalMove("a step of a task cannot be taken back", field="id", hint="send a correction")


def _what_happened(delivery: Delivery) -> str:
    if delivery.has_left and delivery.reason:
        return delivery.reason
    return str(delivery.state) if delivery.state is not State.UNREAD else "tried it before"


# The rate of answers in one thread or conversation, by whatever surface or link they come (G11).
#
# An answer is a reply, or a letter in a conversation (by its id, or by thread tag and scope) in which another
# agent has written to its sender since. So the rate does not limit a producer that fills a work queue under one
# tag, nor the catch-all conversation of a scope. One sender may write `thread_rate` answers in a minute. All
# senders together may write `thread_hourly` answers to several recipients in an hour; the count starts again when
# a person writes. Answers to several recipients multiply: agents that answer everything to everyone stop only if
# they share one limit whose window is long enough to work through what they received.

LOOK_BACK = 4096  # letters: the cost of a send must not grow with the length of a conversation


class AnswerRates:
    """The letters of one commit that were checked so far; each next letter counts them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, message: Message) -> None:
        own, shared = _rate_queries(message)
        if own is not None and shared is not None:
            self._counts[message.sender, _rate_key(own)] += 1
            if _is_to_several(message):
                self._counts["", _rate_key(shared)] += 1

    def count(self, sender: str, place: LetterQuery) -> int:
        return self._counts[sender, _rate_key(place)]


def check_answer_rate(core: Core, message: Message, batch: AnswerRates | None = None) -> None:
    """Raise TooFast if this letter is one answer too many.

    `batch` holds the letters that are committed with it. A letter that is no reply and is in no named conversation
    needs no query.
    """
    own, shared = _rate_queries(message)
    if own is None or shared is None:
        return
    batch = batch or AnswerRates()
    _check_sender_rate(core, message, own, batch)
    if _is_to_several(message) and message.proof is None:
        _check_group_rate(core, message, shared, batch)


def _check_sender_rate(core: Core, message: Message, place: LetterQuery, batch: AnswerRates) -> None:
    rate, now = core.limits.thread_rate, message.created_at
    back = rate - 1 - batch.count(message.sender, place)
    earlier = _earlier_letter(core, message, replace(place, sender=message.sender), back) if rate else None
    if earlier is None or not is_within(MINUTE, earlier[1], now):
        return
    if _is_answer(core, message, place, earlier[0]):
        raise too_fast(_rate_key(place), rate, earlier[1], now)


def _check_group_rate(core: Core, message: Message, place: LetterQuery, batch: AnswerRates) -> None:
    rate, now = core.limits.thread_hourly, message.created_at
    several, back = replace(place, to_several=True), rate - 1 - batch.count("", place)
    earlier = _earlier_letter(core, message, several, back) if rate else None
    if earlier is None or not is_within(HOUR, earlier[1], now):
        return
    since = 0 if earlier[0] is None else earlier[0] - 1  # minus one: that letter may be the person's own
    letters = core.store.letters(replace(place, sender=core.limits.human, after=since))
    person = next((letter for letter in letters if letter.message.proof is not None), None)
    # A person wrote meanwhile: agents may go on, and count from there (G11).
    if person is not None:
        earlier = _earlier_letter(core, message, replace(several, after=person.number), back)
    if earlier is not None and _is_answer(core, message, place, earlier[0]):
        raise too_crowded(_rate_key(place), rate, earlier[1], now)


def _is_answer(core: Core, message: Message, place: LetterQuery, since: int | None) -> bool:
    """Return whether it is a reply, or whether another agent wrote to its sender here since letter `since`."""
    if message.thread_id is not None or since is None:
        return message.thread_id is not None
    return bool(core.store.letters(replace(place, received_by=message.sender, after=since)))


def _earlier_letter(
    core: Core, message: Message, query: LetterQuery, back: int
) -> tuple[int | None, datetime] | None:
    """Return number and time of the letter `back` letters ago. A letter of the same batch has no number yet."""
    if back < 0:
        return None, message.created_at
    found = core.store.letters(replace(query, skip=back))
    return (found[0].number, found[0].message.created_at) if found else None


def _rate_queries(message: Message) -> tuple[LetterQuery | None, LetterQuery | None]:
    """Return the query that counts the answers of its sender and the one that counts those of all senders.

    The first prefers the thread, the second the conversation; both are None if the message is in neither.
    """
    thread = conversation = None
    if message.thread_id is not None:
        thread = LetterQuery(replies_in=message.thread_id, newest=LOOK_BACK, order="newest", limit=1)
    name = conversation_of(message)
    if general_scope(name) is None:
        conversation = LetterQuery(conversation=name, newest=LOOK_BACK, order="newest", limit=1)
    return thread or conversation, conversation or thread


def _rate_key(place: LetterQuery) -> str:
    return f"thread {place.replies_in}" if place.conversation is None else f"conversation {place.conversation}"


def _is_to_several(message: Message) -> bool:
    if len(message.recipients) != 1:
        return True
    address = message.recipients[0].address
    return is_broadcast(address) or address.startswith(AT)
