"""Conversations: view, open, join, leave, invite, close, and take a turn.

A conversation is computed from its letters. What letters cannot hold is stored in a small record
(`ConversationRecord`: subject, seats, status, opened threads), which changes by compare-and-set. Each change also
puts a record of the kind `happened` whose value is None: nothing is kept, but the key enters the numbered changes.
So a subscriber that resumes from a cursor learns what happened after it, and not only the present state.

An agent sees a conversation in which it has a seat, that it opened, or of which it has a letter, and in it only
letters that it sent or received. Any other conversation is Missing, as if it did not exist. The operator sees all.

Every agent can write the id of a conversation on a letter, so that alone makes nobody a member. Members are the
agents with a seat, the one that opened it, and each agent to which a member wrote in it. An agent that is no
member of an opened conversation sees its own letters there and nothing else: no subject, no seats, no turns.

A turn is a letter from one participant to all others. A participant that is alone writes to itself, and that
letter is done at once: it needs no attention, and it survives a restart like any other turn. (A letter without
recipients would count as settled, and the janitor would delete it.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import IdTaken, IllegalMove, Invalid, Missing, NotAllowed, TooLarge
from ..model.codec import convert, to_plain
from ..model.delivery import ack, open_delivery
from ..model.message import DEFAULT_SCOPE, TURN_NOTE, Message, is_any, is_broadcast
from ..model.names import POSTMASTER, check_agent, check_id, check_scope, fold, look_alike, meant
from ..model.query import LetterQuery, Query
from ..model.record import CONVERSATION, HAPPENED, Record
from ..model.thread import (
    ACTIVE,
    ENDS,
    THREAD,
    TYPES,
    ConversationRecord,
    Participant,
    Shape,
    ThreadRecord,
    TurnNote,
    after_action,
    conversation_of,
    fold_conversation,
    general_scope,
    thread_of,
    with_participant,
)
from ..model.values import check_label, check_line, check_object
from ..store.protocol import spelling_of
from . import addressing, messages
from .compose import LONGEST_SUBJECT, Draft
from .core import find_record, put_record
from .inbox import Messages
from .names import current_name, name_resolver, seen_by
from .verb import Verb, verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..store.protocol import Letter, Post, Write
    from .authorize import Principal
    from .core import Core


AT_ONCE = 100  # conversations that are found at once
LISTED = 50  # newest letters of one conversation that a list is made of
PAGE = 500  # letters that are read at once
MOST_STRANDS = 1000  # threads that were opened in one conversation
_NOBODY = "-"  # a reader without an agent: no agent has this name, so it sees no letters
_TAG_ID = re.compile(r"conv-[0-9a-f]{26}")  # the id of a conversation that a thread tag and scope make

ConversationEvent: TypeAlias = tuple[str, str]  # (what happened, the agent or thread)


class View(Struct, frozen=True, kw_only=True):
    """A conversation as one caller may see it."""

    talk: ConversationRecord
    held: Record | None  # None: there is no record, only letters
    letters: tuple[Message, ...]  # the oldest first
    seats: tuple[Participant, ...]  # the participants: agents that joined, senders and recipients of its letters
    strands: tuple[ThreadRecord, ...]  # threads that were opened, and those that replies made
    is_inside: bool = True  # False: the caller is no member, and this view is made from its own letters
    is_whole: bool = True  # False: it holds the first letter and the newest of many

    @property
    def updated_at(self) -> datetime:
        last = self.letters[-1].created_at if self.letters else self.talk.updated_at
        return max(self.talk.updated_at, last)

    def seat(self, agent: str) -> Participant | None:
        return next((seat for seat in self.seats if seat.agent == agent), None)


Step: TypeAlias = Callable[[View], tuple[ConversationRecord, list[ConversationEvent]]]


# Views: what a caller may see.


def reader_of(principal: Principal) -> str | None:
    """Return the mailbox whose letters a caller sees; None means all letters."""
    if principal.operator or principal.visit:
        return None
    return principal.agent or _NOBODY


class OwnVerb(Verb, kw_only=True):
    """A request about the conversations of the agent that is calling."""

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:
        return [principal.agent]


class ConversationVerb(OwnVerb, kw_only=True):
    """A request about one conversation, for the agent that is calling."""

    conversation: str


@verb("view_conversation", View, action="talks", writes=False, local=True)
class ViewConversation(ConversationVerb, kw_only=True):
    """Return a conversation as the caller may see it; Missing if there is none or the caller may not see it."""

    def run(self, core: Core, principal: Principal) -> View:
        return view_of(core, reader_of(principal), self.conversation)


@verb("view_conversations", Iterator, action="talks", writes=False, local=True)
class ViewConversations(OwnVerb, kw_only=True):
    """Yield the conversations that the caller may see, the most recently active first.

    Of a long conversation, a view holds the first letter and the newest.
    """

    scope: str | None = None
    after: str | None = None  # the id of the one from which to continue

    def run(self, core: Core, principal: Principal) -> Iterator[View]:
        reader = reader_of(principal)
        return _views(core, reader, _by_activity(core, reader, self.scope, self.after))


def _views(core: Core, reader: str | None, ids: Iterable[str]) -> Iterator[View]:
    for id in ids:
        query = LetterQuery(conversation=id, party=reader)
        found = core.store.letters(replace(query, order="newest", limit=LISTED))
        first = core.store.letters(replace(query, limit=1)) if len(found) == LISTED else []
        older = [letter for letter in first if letter.number < found[-1].number]
        letters = [letter.message for letter in (*older, *found[::-1])]
        try:
            yield view_of(core, reader, id, letters, is_whole=not older)
        except Missing:  # its last letter was deleted in the meantime
            continue


@verb("recent_letters", Messages, action="talks", writes=False, local=True)
class RecentLetters(OwnVerb, kw_only=True):
    """Return the last letters of all conversations, the newest first."""

    scope: str | None = None
    limit: int

    def run(self, core: Core, principal: Principal) -> Messages:
        reader = reader_of(principal)
        found = core.store.letters(LetterQuery(party=reader, scope=self.scope, order="newest", limit=self.limit))
        return Messages([seen_by(core, letter.message, reader) for letter in found])


def letters_of(core: Core, reader: str | None, id: str) -> list[Message]:
    """Return all letters of a conversation that `reader` sent or received, unredacted, the oldest first."""
    query = LetterQuery(conversation=check_id(id, "conversation"), party=reader)
    return [letter.message for letter in core.store.letters(query)]


def view_of(
    core: Core, reader: str | None, id: str, known: Sequence[Message] | None = None, *, is_whole: bool = True
) -> View:
    """Return a conversation as `reader` may see it, without authorisation.

    `known` holds its letters if the caller has just read them; `is_whole` says whether these are all of them.
    """
    checked = check_id(id, "conversation")
    held = find_record(core, CONVERSATION, checked)
    talk = None if held is None else convert(held.value, ConversationRecord)
    found = letters_of(core, reader, checked) if known is None else known
    letters = tuple(seen_by(core, letter, reader) for letter in found)
    members = None if talk is None else _members_seen(core, talk, found, has_all=reader is None and is_whole)
    is_inside = members is None or reader is None or reader in members
    # Absent and forbidden look the same: the error must not reveal that there is such a conversation (G8).
    if not letters and (talk is None or not is_inside):
        raise missing_conversation(checked)
    if talk is None or not is_inside:
        # No member, but it has letters: it sees what follows from these, and nothing of the record (G8).
        talk, members = talk_from_letters(letters), None
    return View(
        talk=talk,
        held=held,
        letters=letters,
        seats=_visible_seats(core, talk, letters, members),
        strands=_visible_strands(talk, letters, everything=reader is None),
        is_inside=is_inside,
        is_whole=is_whole,
    )


def is_notified(core: Core, principal: Principal, talk: ConversationRecord) -> bool:
    """Return whether this caller gets the events of a conversation now; an agent that left does not."""
    reader = reader_of(principal)
    seat = None if reader is None else talk.seat(reader)
    if reader is None or seat is not None:
        return seat is None or seat.left_at is None
    if reader == talk.created_by:
        return True
    has_letters = bool(core.store.letters(LetterQuery(conversation=talk.id, party=reader, limit=1)))
    return has_letters and reader in members_of(core, talk, until=reader)


def is_long(core: Core, id: str) -> bool:
    """Return whether a conversation has more than PAGE letters, so that a view of it is slow."""
    return bool(core.store.letters(LetterQuery(conversation=id, skip=PAGE, limit=1)))


def members_of(core: Core, talk: ConversationRecord, *, until: str | None = None) -> set[str]:
    """Return the members of a conversation; with `until`, stop as soon as this agent is found among them."""
    return _collect_members(core, talk, _pages(core, talk.id), until)


def _members_seen(core: Core, talk: ConversationRecord, letters: Sequence[Message], *, has_all: bool) -> set[str]:
    """Return the members that matter for a view of these letters; `has_all` says whether there are no others.

    Usually the letters name only agents with a seat; then the rest of the conversation need not be read.
    """
    if has_all:
        return _collect_members(core, talk, [letters])
    resolve, reached = name_resolver(core), _actual_recipients(core, letters)
    named = {resolve(letter.sender) for letter in letters}
    named = named.union(*(_addressees(letter, reached, resolve) for letter in letters))
    roots = _roots(talk)
    return roots if named <= roots else members_of(core, talk)


def _collect_members(
    core: Core, talk: ConversationRecord, pages: Iterable[Sequence[Message]], until: str | None = None
) -> set[str]:
    """Return the members of a conversation: an agent becomes one when a member that has not left writes to it."""
    members, resolve = _roots(talk), name_resolver(core)
    left = {seat.agent: seat.left_at for seat in talk.seats}
    for letters in pages:
        reached = _actual_recipients(core, letters)
        for letter in letters:
            sender = resolve(letter.sender)
            left_at = left.get(sender)
            # An agent that left can write no further agent into the conversation.
            if sender in members and (left_at is None or letter.created_at <= left_at):
                members |= _addressees(letter, reached, resolve)
        if until in members:
            break
    return members


def _pages(core: Core, id: str) -> Iterator[list[Message]]:
    """Yield all letters of a conversation in pages, so that few of them are in memory."""
    last = 0
    while found := core.store.letters(LetterQuery(conversation=id, after=last, limit=PAGE)):
        yield [letter.message for letter in found]
        last = found[-1].number


def _roots(talk: ConversationRecord) -> set[str]:
    return {talk.created_by, *(seat.agent for seat in talk.seats)}


def _addressees(letter: Message, reached: dict[str, list[str]], resolve: Callable[[str], str]) -> set[str]:
    named = [r.address for r in letter.recipients if not _is_group_address(r.address)]
    return {resolve(name) for name in (*named, *reached.get(letter.id, ()))}


def seat_in(core: Core, view: View, agent: str) -> Participant | None:
    """Return the seat of an agent, under its current name or a former one."""
    return view.seat(current_name(core, check_agent(agent, "agent_id")))


def missing_conversation(id: str) -> Missing:
    """Return the error for a conversation that does not exist or that the caller may not see."""
    return Missing(f"no conversation {id!r}", field="conversation")


def talk_from_letters(letters: Sequence[Message]) -> ConversationRecord:
    """Return the description of a conversation that has no record, made from its first letter."""
    fold = fold_conversation(letters[:1])
    return ConversationRecord(
        id=fold.id,
        scope=fold.scope,
        subject=fold.subject,
        created_at=fold.started_at,
        updated_at=fold.started_at,
        created_by=letters[0].sender,
    )


def _by_activity(core: Core, reader: str | None, scope: str | None, after: str | None) -> Iterator[str]:
    """Return the ids of the conversations that a reader may see; the last accepted letter comes first.

    A conversation whose record changed after its newest letter stands where it changed, any other where its newest
    letter stands. Letters are read in pages: a room may have very many conversations.
    """
    changed: dict[str, datetime] = {}
    for record in core.store.records(CONVERSATION):
        talk = convert(record.value, ConversationRecord)
        seen = reader is None or reader == talk.created_by or talk.seat(reader) is not None
        if seen and scope in {None, talk.scope}:
            newest = _newest_letter(core, reader, talk.id)
            if newest is None or newest.message.created_at < talk.updated_at:
                changed[talk.id] = talk.updated_at
    start = None if after is None or after in changed else _newest_letter(core, reader, after)
    if after is not None and after not in changed and start is None:
        raise Invalid(f"there is no conversation {after!a} to go on from", field="cursor")
    if after is None or not changed:
        return _merged(core, reader, scope, changed, start)
    # Letters stand by number and records by time, and times may be out of order: only a walk from the beginning
    # says which records came before.
    ids = _merged(core, reader, scope, changed, None)
    next((id for id in ids if id == after), None)  # go on behind it
    return ids


def _newest_letter(core: Core, reader: str | None, id: str) -> Letter | None:
    query = LetterQuery(conversation=check_id(id, "cursor"), party=reader, order="newest", limit=1)
    return next(iter(core.store.letters(query)), None)


def _merged(
    core: Core, reader: str | None, scope: str | None, changed: dict[str, datetime], start: Letter | None
) -> Iterator[str]:
    """Yield the conversations after the one with this newest letter, from both sources in order of time."""
    waiting = sorted((at, id) for id, at in changed.items())
    query = LetterQuery(newest_of="conversation", party=reader, scope=scope, limit=AT_ONCE)
    last, has_more = start, True
    while has_more:
        found = core.store.letters(replace(query, before=last and last.number))
        has_more = len(found) == AT_ONCE
        for last in found:
            while waiting and waiting[-1][0] > last.message.created_at:
                yield waiting.pop()[1]
            id = conversation_of(last.message)
            if id not in changed:
                yield id
    yield from (id for _, id in reversed(waiting))


def turn_in(view: View, letter: str) -> Message:
    """Return one letter of a conversation, or raise Missing."""
    for message in view.letters:
        if message.id == letter:
            return message
    raise missing_turn(letter)


def missing_turn(letter: str) -> Missing:
    """Return the error for a turn that is not in a conversation, or that the caller may not see."""
    return Missing(f"no turn {letter!r} in this conversation", field="turn")


def _visible_seats(
    core: Core, talk: ConversationRecord, letters: Sequence[Message], members: set[str] | None
) -> tuple[Participant, ...]:
    """Return the seats of agents that joined and have not left, then of senders and visible recipients.

    With `members`, only they get a seat from a letter.
    """
    seats = {seat.agent: seat for seat in talk.seats}
    resolve, reached = name_resolver(core), _actual_recipients(core, letters)
    for letter in letters:
        for name in (letter.sender, *_named_recipients(letter), *reached.get(letter.id, ())):
            agent = resolve(name)
            if agent not in seats and agent != POSTMASTER and (members is None or agent in members):
                seats[agent] = Participant(agent=agent, joined_at=letter.created_at)
    return tuple(seat for seat in seats.values() if seat.left_at is None)


def _named_recipients(letter: Message) -> list[str]:
    """Return the named recipients without those in bcc, which no other agent may see."""
    return [r.address for r in letter.recipients if r.kind != "bcc" and not _is_group_address(r.address)]


def _is_group_address(address: str) -> bool:
    return is_broadcast(address) or is_any(address)


def _actual_recipients(core: Core, letters: Sequence[Message]) -> dict[str, list[str]]:
    """Return the mailboxes that received letters to a scope or to `any:`, by letter id."""
    ids = tuple(x.id for x in letters if any(_is_group_address(r.address) for r in x.recipients))
    reached: dict[str, list[str]] = {}
    for found in core.store.find(Query(message_ids=ids, order="age")) if ids else ():
        if found.delivery.kind != "bcc":
            reached.setdefault(found.delivery.message_id, []).append(found.delivery.mailbox)
    return reached


def _visible_strands(
    talk: ConversationRecord, letters: Sequence[Message], *, everything: bool
) -> tuple[ThreadRecord, ...]:
    """Return the threads of which the caller sees a letter, the oldest first."""
    opened = {strand.id: strand for strand in talk.strands}
    by_id = {letter.id: letter for letter in letters}
    replied: dict[str, ThreadRecord] = {}
    used = set()
    for letter in letters:
        thread = thread_of(letter)
        if thread is None or not thread.startswith(THREAD):
            continue
        used.add(thread)
        if thread not in opened and thread not in replied:
            root = thread.removeprefix(THREAD)
            replied[thread] = ThreadRecord(
                id=thread,
                root=root,
                created_at=letter.created_at,
                created_by=letter.sender,
                subject=by_id[root].subject if root in by_id else "",
            )
    shown = [s for s in opened.values() if everything or s.root in by_id or s.id in used]
    return tuple(sorted([*replied.values(), *shown], key=lambda strand: strand.created_at))


# Turns: letters from one participant to all others of a conversation.


@verb("take_turn", Message, action="send", local=True)
class TakeTurn(ConversationVerb, kw_only=True):
    """Take a turn: send a letter that reaches all other participants or none."""

    conversation: str = ""  # a first turn needs none: it opens its conversation
    agent_id: str = ""
    body: list[Any]  # parts
    content_type: Any = "text"
    shape: Shape = "content"
    thread: Any = None
    reply_to: Any = None  # a letter's id
    source: Any = None
    visibility: Any = None
    metadata: Any = field(default_factory=dict)
    priority: Any = None
    subject: Any = None
    key: Any = None

    def owners(self, _core: Core, _principal: Principal) -> list[str | None]:
        self.agent_id = check_agent(self.agent_id, "participant_id")
        return [self.agent_id]

    def run(self, core: Core, principal: Principal) -> Message:
        id, name = self.conversation, self.agent_id
        view = self._view(core, principal)
        posts = [self.post(core, principal, view, name)]

        def plan() -> Sequence[Write]:
            nonlocal view
            if _revision(core, id) != (view.held.revision if view.held else 0):
                view = self._view(core, principal)
                # An agent joined or left between the look and the commit: address the turn again.
                posts[:] = [self.post(core, principal, view, name)]
            if view.held is None or view.talk.seat(name) is not None or view.seat(name) is not None:
                return posts
            # An agent that takes a turn without a seat gets one by that.
            talk, events = _with_seat(core, view, Guest(agent=name))
            return [*_writes(talk, view, events, core.now().wall), *posts]

        return messages.commit_posts(core, posts, plan)[0].message

    def _view(self, core: Core, principal: Principal) -> View:
        view = view_of(core, reader_of(principal), self.conversation)
        if not view.is_inside:
            raise missing_conversation(self.conversation)
        return view

    def post(self, core: Core, principal: Principal, view: View, participant: str) -> Post:
        """Return the post of the turn, ready to be committed, or raise the reason why not."""
        # A repeat is answered even if the conversation was closed since (G3).
        first = None if self.key is None else messages.sent_before(core, participant, self.key)
        if first is None:
            _check_open(view, participant, strict=not principal.operator)
            audience = _audience(view, participant, self.visibility)
        else:  # a repeated turn goes to the recipients of the first
            audience = [r.address for r in first.recipients if r.address != participant]
        parent = None if self.reply_to is None else turn_in(view, check_id(self.reply_to, "in_reply_to"))
        _check_strand(view, self.thread, "thread_id")
        is_named = general_scope(view.talk.id) is None  # letters without an id go to the catch-all of their scope
        draft = Draft(
            agent_id=participant,
            to=audience or (participant,),
            body=self.body,
            extra={TURN_NOTE: to_plain(self._note(core, parent))},
            metadata=self.metadata or {},
            scope=view.talk.scope,
            conversation_id=view.talk.id if is_named else None,
            priority=self.priority,
            subject=self.subject,
            key=self.key,
        )
        # To a recipient without the letter that is answered, the answer would count as a relay and cost a hop.
        if parent is not None and not addressing.without_copy(core, parent, [participant, *audience]):
            draft.in_reply_to = parent.id
        now = core.now().wall
        post = messages.prepare_authorised(core, principal, draft, now)
        if audience or not post.deliveries:
            return post
        # No other participant. The turn is kept in the participant's own mailbox, done already, so that it is
        # part of the conversation.
        done = ack(open_delivery(post.message, participant, "to", now), now, archive=True)
        return replace(post, deliveries=(done,), quota=None)

    def _note(self, core: Core, parent: Message | None) -> TurnNote:
        depth = core.limits.max_depth
        thread = self.thread
        if thread is None and parent is not None:
            thread = thread_of(parent) or f"{THREAD}{parent.id}"
        return TurnNote(
            content_type=check_label(self.content_type, "content_type"),
            shape=self.shape,
            thread=thread,
            reply_to=None if parent is None else parent.id,
            source=None if self.source is None else check_id(self.source, "source_message_id"),
            visibility=None if self.visibility is None else check_object(self.visibility, "visibility", depth),
        )


def _check_strand(view: View, thread: Any, name: str) -> None:
    """Raise Missing if the conversation has no such thread."""
    if thread is not None and check_id(thread, name) not in {strand.id for strand in view.strands}:
        raise Missing(f"no thread {thread!r} in this conversation", field="thread")


def _check_open(view: View, participant: str, *, strict: bool) -> None:
    """Raise an error unless the conversation is active and the participant has a seat.

    If not `strict`, an agent that never left may take a turn without a seat, and gets one by that.
    """
    if view.talk.status != ACTIVE:
        raise IllegalMove(f"the conversation is {view.talk.status}", field="conversation", hint="reopen it first")
    gone = view.talk.seat(participant)
    if view.seat(participant) is None and (strict or gone is not None):
        raise NotAllowed(f"{participant!r} is not in this conversation", field="participant", hint="join it first")


def _audience(view: View, participant: str, visibility: Any) -> list[str]:
    """Return the other participants, narrowed by the `visibility` of the turn."""
    others = [seat for seat in view.seats if seat.agent != participant]
    wanted = {"type": "all"} if visibility is None else visibility
    if not isinstance(wanted, dict):
        raise Invalid("must be an object", field="visibility")
    kind = wanted.get("type")
    if kind in ("all", "private"):
        return [seat.agent for seat in others if kind == "all"]
    if kind not in ("participants", "role"):
        raise Invalid(
            f"{str(kind)[:40]!a} is not a kind of visibility",
            field="visibility",
            hint="all, participants, role, private",
        )
    named = wanted.get("ids" if kind == "participants" else "roles")
    if not isinstance(named, list):
        raise Invalid("names no participants or roles", field="visibility", hint="a list under ids or roles")
    return [seat.agent for seat in others if (seat.agent if kind == "participants" else seat.role) in named]


# Changes: open, join, leave, invite, close, reopen, open a thread.


class Guest(Struct, frozen=True, kw_only=True):
    """An agent that is to get a seat in a conversation. Nothing in it is checked yet."""

    agent: Any
    role: Any = None
    permissions: Any = field(default_factory=dict)


@verb("open_conversation", View, action="join", local=True)
class OpenConversation(Verb, kw_only=True):
    """Open a conversation; with a first turn, both are one commit."""

    id: Any = None
    scope: Any = None
    subject: Any = None
    type: Any = None
    metadata: Any = None
    creator: str | None = None  # the agent that opens it and gets the first seat; by default the caller's
    parent: Any = None
    parent_turn: Any = None
    guests: tuple[Guest, ...] = ()
    first: TakeTurn | None = None

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:
        name = self.creator or principal.agent
        # The seat is for an agent the caller may act as, not for anyone it names (G8).
        self.creator = None if name is None else check_agent(name, "agent_id")
        return [self.creator]

    def run(self, core: Core, principal: Principal) -> View:
        creator, reader = self.creator, reader_of(principal)
        talk = self._talk(core, principal, creator)
        view = View(talk=talk, held=None, letters=(), seats=talk.seats, strands=())
        posts: list[Post] = []
        if self.first is not None:
            if creator is None:
                raise Invalid("is missing", field="participant_id", hint="the agent that takes the first turn")
            posts = [self.first.post(core, principal, view, creator)]

        def plan() -> Sequence[Write]:
            # Inside the commit: of two who open the same id, the second gets IdTaken.
            _check_free(core, reader, talk.id)
            events = [("created", creator or ""), *(("joined", seat.agent) for seat in talk.seats)]
            return [*_writes(talk, view, events, talk.created_at), *posts]

        messages.commit_posts(core, posts, plan)
        return view_of(core, reader, talk.id)

    def _talk(self, core: Core, principal: Principal, creator: str | None) -> ConversationRecord:
        """Return the record of the new conversation, with all its seats."""
        now = core.now().wall
        kind = TYPES[0] if self.type is None else self.type
        if kind not in TYPES:
            raise Invalid("is not a type of conversation", field="type", hint=", ".join(TYPES))
        id = f"conv-{core.ids.message()}" if self.id is None else check_id(self.id, "id")
        if general_scope(id) is not None:
            raise Invalid(f"{id!a} is the catch-all conversation of a scope, which cannot be opened", field="id")
        talk = ConversationRecord(
            id=id,
            scope=DEFAULT_SCOPE if self.scope is None else check_scope(self.scope, "scope"),
            created_at=now,
            updated_at=now,
            created_by=creator or "",
            subject="" if self.subject is None else check_line(self.subject, "subject", LONGEST_SUBJECT),
            type=kind,
            parent=self._parent(core, reader_of(principal)),
            parent_turn=None if self.parent_turn is None else check_id(self.parent_turn, "parent_turn_id"),
            metadata=check_object(self.metadata or {}, "metadata", core.limits.max_depth),
        )
        for guest in (*([Guest(agent=creator, role="initiator")] if creator else ()), *self.guests):
            if creator is not None and not principal.operator and guest.agent != creator:
                addressing.check_guard_at(core, creator, _guest_name(core, guest))
            talk, _ = _with_seat(core, View(talk=talk, held=None, letters=(), seats=talk.seats, strands=()), guest)
        return talk

    def _parent(self, core: Core, reader: str | None) -> str | None:
        if self.parent is None:
            return None
        try:
            return _view_to_change(core, reader, check_id(self.parent, "parent_conversation_id")).talk.id
        except Missing as absent:
            raise Missing(absent.message, field="parent_conversation") from None


def _check_free(core: Core, reader: str | None, id: str) -> None:
    """Raise IdTaken if other agents use this id: the opener of a conversation would get their turns.

    An id that a thread tag makes is refused too, unless the caller is a member of that conversation.
    """
    is_free = find_record(core, CONVERSATION, id) is None
    if is_free and reader is not None:
        letters = core.store.letters(LetterQuery(conversation=id, limit=1))
        if letters:
            is_free = reader in members_of(core, talk_from_letters([letters[0].message]), until=reader)
        else:
            is_free = _TAG_ID.fullmatch(id) is None
    if not is_free:  # the error does not show what others use it for (G8)
        raise IdTaken(
            "cannot be used for a new conversation", field="id", hint="leave it out, or choose another one"
        )


@verb("close_conversation", View, action="converse", local=True)
class CloseConversation(ConversationVerb, kw_only=True):
    """End a conversation, so that it takes no more turns. Closing twice is no error."""

    status: str = "completed"

    def run(self, core: Core, principal: Principal) -> View:
        if self.status not in ENDS:
            raise Invalid(f"{self.status!a} is not how a conversation ends", field="status", hint=", ".join(ENDS))
        return _set_status(core, principal, self.conversation, ENDS[self.status], self.status)


@verb("reopen_conversation", View, action="converse", local=True)
class ReopenConversation(ConversationVerb, kw_only=True):
    """Let a closed conversation take turns again."""

    def run(self, core: Core, principal: Principal) -> View:
        return _set_status(core, principal, self.conversation, "reopen", "reopened")


class SeatVerb(ConversationVerb, kw_only=True):
    """A request about the seat of an agent for which the caller acts."""

    agent_id: str

    def owners(self, _core: Core, _principal: Principal) -> list[str | None]:
        self.agent_id = check_agent(self.agent_id, "agent_id")
        return [self.agent_id]


@verb("join_conversation", View, action="join", local=True)
class JoinConversation(SeatVerb, kw_only=True):
    """Give the caller's agent a seat. Only a member can join; any other agent needs an invitation."""

    role: Any = None

    def run(self, core: Core, principal: Principal) -> View:
        guest = Guest(agent=self.agent_id, role=self.role)
        return _change(core, principal, self.conversation, lambda view: _with_seat(core, view, guest))


@verb("invite", View, action="converse", local=True)
class Invite(ConversationVerb, kw_only=True):
    """Give another agent a seat at once: every later turn reaches it."""

    guest: Guest

    def run(self, core: Core, principal: Principal) -> View:
        def step(view: View) -> tuple[ConversationRecord, list[ConversationEvent]]:
            _check_participant(principal, view)
            if principal.agent is not None:
                # A seat brings every later turn into the guest's inbox, so its allow list is asked now.
                addressing.check_guard_at(core, principal.agent, _guest_name(core, self.guest))
            return _with_seat(core, view, self.guest)

        return _change(core, principal, self.conversation, step)


class LeftAt(Struct):
    """When a seat was given up."""

    at: datetime


@verb("leave_conversation", LeftAt, action="converse", local=True)
class LeaveConversation(SeatVerb, kw_only=True):
    """Give up a seat, so that later turns do not reach this agent. Leaving twice is no error."""

    def run(self, core: Core, principal: Principal) -> LeftAt:
        name, now = self.agent_id, core.now().wall

        def step(view: View) -> tuple[ConversationRecord, list[ConversationEvent]]:
            seat = view.seat(name)
            if seat is None:
                return view.talk, []
            return with_participant(view.talk, replace(seat, left_at=now)), [("left", name)]

        gone = _change(core, principal, self.conversation, step).talk.seat(name)
        return LeftAt((gone.left_at if gone else None) or now)


@verb("start_thread", ThreadRecord, action="converse", local=True)
class StartThread(ConversationVerb, kw_only=True):
    """Open a thread at a turn, which is named by the id of its letter.

    The first thread at a turn is the one to which its replies belong. A caller that is no agent may name a turn
    that does not exist, as programs for agent-inbox do; an agent must see it.
    """

    root: str
    parent: str | None = None
    subject: Any = None

    def run(self, core: Core, principal: Principal) -> ThreadRecord:
        root = self.root
        words = "" if self.subject is None else check_line(self.subject, "subject", LONGEST_SUBJECT)
        made: list[ThreadRecord] = []

        def step(view: View) -> tuple[ConversationRecord, list[ConversationEvent]]:
            _check_participant(principal, view)
            check_id(root, "root_turn_id")
            if principal.agent is not None:
                turn_in(view, root)
            _check_strand(view, self.parent, "parent_thread_id")
            if len(view.talk.strands) >= MOST_STRANDS:
                raise TooLarge(f"{MOST_STRANDS} threads were opened in it already", field="conversation")
            name = f"{THREAD}{root}"
            if name in {strand.id for strand in view.talk.strands}:
                name = f"{THREAD}{core.ids.message()}"
            strand = ThreadRecord(
                id=name,
                root=root,
                created_at=core.now().wall,
                created_by=principal.agent or "",
                parent=self.parent,
                subject=words,
            )
            made[:] = [strand]
            return replace(view.talk, strands=(*view.talk.strands, strand)), [("threaded", strand.id)]

        _change(core, principal, self.conversation, step)
        return made[0]


def _revision(core: Core, id: str) -> int:
    """Return the revision of a conversation's record; 0 if there is none."""
    held = find_record(core, CONVERSATION, id)
    return held.revision if held else 0


def _change(core: Core, principal: Principal, id: str, step: Step) -> View:
    """Apply `step` to a conversation in one commit and return the new view.

    The letters are read before the commit, because there may be many. If the record changed in between, the view
    is computed again inside the commit.
    """
    reader = reader_of(principal)
    letters = letters_of(core, reader, id)
    view = _view_to_change(core, reader, id, letters)

    def plan() -> Sequence[Write]:
        nonlocal view
        # Letters may grow meanwhile, and that does no harm; only the record decides who has a seat.
        if _revision(core, id) != (view.held.revision if view.held else 0):
            view = _view_to_change(core, reader, id, letters)
        after, events = step(view)
        return [] if after == view.talk else _writes(after, view, events, core.now().wall)

    core.store.commit(plan)
    return view_of(core, reader, id, letters)


def _view_to_change(core: Core, reader: str | None, id: str, letters: Sequence[Message] | None = None) -> View:
    """Return the view of a member that may change the conversation, or raise Missing.

    If there is no record yet, the sender of the first letter counts as the opener: an agent that adds the record
    does not own the conversation by that.
    """
    view = view_of(core, reader, id, letters)
    is_inside = view.is_inside
    if view.held is None:
        first = core.store.letters(LetterQuery(conversation=id, limit=1))
        opener = current_name(core, first[0].message.sender) if first else ""
        view = replace(view, talk=replace(view.talk, created_by=opener))
        is_inside = reader is None or reader in members_of(core, view.talk, until=reader)
    if not is_inside:
        raise missing_conversation(id)
    return view


def _writes(
    talk: ConversationRecord, before: View, events: Sequence[ConversationEvent], now: datetime
) -> list[Write]:
    """Return the writes of a changed conversation: its record, and a key for each event."""
    talk = replace(talk, updated_at=max(now, talk.updated_at))
    put = put_record(CONVERSATION, talk.id, talk, before.held)
    keys = [f"{talk.id} {kind} {subject or '-'} {now.isoformat()}" for kind, subject in events]
    return [put, *(put_record(HAPPENED, key, None, None) for key in keys)]


def _set_status(core: Core, principal: Principal, id: str, action: str, event: str) -> View:
    def step(view: View) -> tuple[ConversationRecord, list[ConversationEvent]]:
        _check_participant(principal, view)
        return after_action(view.talk, action, core.now().wall), [(event, principal.agent or "")]

    return _change(core, principal, id, step)


def _check_participant(principal: Principal, view: View) -> None:
    """Raise NotAllowed for an agent that may see the conversation but has no seat."""
    if not principal.operator and (principal.agent is None or view.seat(principal.agent) is None):
        raise NotAllowed("is not in this conversation", field="participant", hint="join it first")


def _with_seat(core: Core, view: View, guest: Guest) -> tuple[ConversationRecord, list[ConversationEvent]]:
    agent = current_name(core, _guest_name(core, guest))
    if fold(agent) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} takes no mail", field="agent_id")
    spelt = spelling_of(core.store, agent)
    alike = [one.agent for one in view.seats if fold(one.agent) == fold(agent) and one.agent != agent]
    if spelt not in {None, agent}:
        alike.insert(0, spelt or "")
    role = "" if guest.role is None else check_label(guest.role, "role")
    permissions = check_object(guest.permissions or {}, "permissions", core.limits.max_depth)
    held = view.talk.seat(agent)
    if held is not None and held.left_at is None:
        same = replace(held, role=role or held.role, permissions=permissions or held.permissions)
        return with_participant(view.talk, same), []
    if alike:
        raise look_alike(agent, alike[0], "agent_id")
    seat = Participant(agent=agent, joined_at=core.now().wall, role=role, permissions=permissions)
    talk = with_participant(view.talk, seat)
    if len(talk.seats) > core.limits.max_recipients:
        raise TooLarge(f"more than {core.limits.max_recipients} participants", field="agent_id")
    return talk, [("joined", agent)]


def _guest_name(core: Core, guest: Guest) -> str:
    return meant(check_agent(guest.agent, "agent_id"), core.limits.human)
