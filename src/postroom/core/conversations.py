"""Conversations as a caller may see them: what was said of them, and what their letters tell.

An agent sees a conversation it sits in, opened, or has a letter of, and in it only letters that it sent or
received. Any other is as if it were not there. The operator sees all. What is kept is in `model.talk`; the rest is
a fold.

Anybody can write a conversation's id on a letter, so that alone lets nobody in. In its circle are those who sit
in it, who opened it, and whoever one of these wrote to in it. Who is outside the circle of a conversation that was
opened sees its own letters there, and nothing else: no subject, no seats, no turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import IdTaken, IllegalMove, Invalid, LookAlike, Missing, NotAllowed, TooLarge
from ..model.codec import convert, to_plain
from ..model.delivery import ack, open_delivery
from ..model.message import DEFAULT_SCOPE, TURN_NOTE, Message, is_any, is_broadcast
from ..model.names import POSTMASTER, check_agent, check_id, check_scope, fold, meant
from ..model.query import LetterQuery, Query
from ..model.record import CONVERSATION, HAPPENED, Record
from ..model.thread import (
    ACTIVE,
    ENDS,
    THREAD,
    TYPES,
    Seat,
    Shape,
    Strand,
    Talk,
    TurnNote,
    fold_conversation,
    general_scope,
    seated,
    stepped,
    thread_of,
)
from ..model.values import check_label, check_line, check_object
from . import addressing, messages
from .authorize import authorize
from .compose import LONGEST_SUBJECT, Draft
from .core import find_record, put_record
from .names import resident, residents, seen_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ..store.protocol import Post, Put, Write
    from .authorize import Principal
    from .core import Core


MOST = 2**31  # conversations: all of them
PAGE = 500  # letters that are looked through in a moment
_NOBODY = "-"  # no name at all: whoever is nobody's agent sees nobody's letters, not even the postmaster's


class View(Struct, frozen=True, kw_only=True):
    """A conversation, as one caller may see it."""

    talk: Talk
    held: Record | None  # None: only its letters tell of it
    letters: tuple[Message, ...]  # the oldest first
    seats: tuple[Seat, ...]  # who is in it now: those who joined, and those of its letters
    strands: tuple[Strand, ...]  # threads that were opened, and those that replies made
    is_inside: bool = True  # is the caller of its circle? Else these are its own letters and what they tell

    @property
    def updated_at(self) -> datetime:
        last = self.letters[-1].created_at if self.letters else self.talk.updated_at
        return max(self.talk.updated_at, last)

    def seat(self, agent: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.agent == agent), None)


def party(principal: Principal) -> str | None:
    """Whose letters a caller sees; None: everybody's."""
    if principal.operator:
        return None
    return principal.agent or _NOBODY


def look(core: Core, caller: Principal, id: str) -> View:
    """The conversation, or Missing, whether it is absent or not this caller's."""
    authorize(caller, "talks", caller.agent)
    return view_of(core, party(caller), id)


def letters_of(core: Core, reader: str | None, id: str) -> list[Message]:
    """All letters of a conversation that are somebody's, as they were written; the oldest first."""
    query = LetterQuery(conversation=check_id(id, "conversation"), party=reader)
    return [letter.message for letter in core.store.letters(query)]


def view_of(core: Core, reader: str | None, id: str, known: Sequence[Message] | None = None) -> View:
    """The same, for who changes it, and asked before. `known`: its letters, for who has just read them."""
    checked = check_id(id, "conversation")
    held = find_record(core, CONVERSATION, checked)
    talk = None if held is None else convert(held.value, Talk)
    found = letters_of(core, reader, checked) if known is None else known
    letters = tuple(seen_by(core, letter, reader) for letter in found)
    inner = None if talk is None else _circle(core, talk, reader, found)
    is_inside = inner is None or reader is None or reader in inner
    if not letters and (talk is None or not is_inside):
        raise unknown(checked)
    if talk is None or not is_inside:
        talk, inner = told_by(letters), None
    return View(
        talk=talk,
        held=held,
        letters=letters,
        seats=_seats(core, talk, letters, inner),
        strands=_strands(talk, letters, everything=reader is None),
        is_inside=is_inside,
    )


def hears(core: Core, principal: Principal, talk: Talk) -> bool:
    """Is this caller told what happens to a conversation now? Who left is not."""
    reader = party(principal)
    seat = None if reader is None else talk.seat(reader)
    if reader is None or seat is not None:
        return seat is None or seat.left_at is None
    if reader == talk.created_by:
        return True
    has_letters = bool(core.store.letters(LetterQuery(conversation=talk.id, party=reader, limit=1)))
    return has_letters and reader in circle(core, talk, until=reader)


def is_long(core: Core, id: str) -> bool:
    """Has it so many letters that to look through them takes more than a moment?"""
    return bool(core.store.letters(LetterQuery(conversation=id, skip=PAGE, limit=1)))


def founder(core: Core, id: str) -> str:
    """Who wrote the first letter of a conversation that nobody opened; nobody: there is none."""
    first = core.store.letters(LetterQuery(conversation=id, limit=1))
    return resident(core, first[0].message.sender) if first else ""


def circle(core: Core, talk: Talk, *, until: str | None = None) -> set[str]:
    """Who belongs to a conversation: its seats, who opened it, and whoever one of these wrote to in it. With
    `until` it ends as soon as this one is found.
    """
    return _drawn(core, talk, _pages(core, talk.id), until)


def _circle(core: Core, talk: Talk, reader: str | None, letters: Sequence[Message]) -> set[str]:
    """The same, as far as these letters of `reader` name anybody: mostly they name nobody who has no seat."""
    if reader is None:  # these are all of them
        return _drawn(core, talk, [letters])
    today, reached = residents(core), _reached(core, letters)
    named = {today(letter.sender) for letter in letters}
    named = named.union(*(_written_to(letter, reached, today) for letter in letters))
    roots = _roots(talk)
    return roots if named <= roots else circle(core, talk)


def _drawn(core: Core, talk: Talk, pages: Iterable[Sequence[Message]], until: str | None = None) -> set[str]:
    inner, today = _roots(talk), residents(core)
    left = {seat.agent: seat.left_at for seat in talk.seats}
    for letters in pages:
        reached = _reached(core, letters)
        for letter in letters:
            sender = today(letter.sender)
            gone = left.get(sender)
            if sender in inner and (gone is None or letter.created_at <= gone):
                inner |= _written_to(letter, reached, today)
        if until in inner:
            break
    return inner


def _pages(core: Core, id: str) -> Iterator[list[Message]]:
    """All letters of a conversation, and never many of them in memory."""
    last = 0
    while found := core.store.letters(LetterQuery(conversation=id, after=last, limit=PAGE)):
        yield [letter.message for letter in found]
        last = found[-1].number


def _roots(talk: Talk) -> set[str]:
    return {talk.created_by, *(seat.agent for seat in talk.seats)}


def _written_to(letter: Message, reached: dict[str, list[str]], today: Callable[[str], str]) -> set[str]:
    named = [r.address for r in letter.recipients if not _is_open(r.address)]
    return {today(name) for name in (*named, *reached.get(letter.id, ()))}


def seat_in(core: Core, view: View, agent: str) -> Seat | None:
    """Where somebody sits, whatever they were called when it was given to them."""
    return view.seat(resident(core, check_agent(agent, "agent_id")))


def unknown(id: str) -> Missing:
    return Missing(f"no conversation {id!r}", field="conversation")


def told_by(letters: Sequence[Message]) -> Talk:
    """What letters alone tell of their conversation."""
    fold = fold_conversation(letters[:1])  # all that is asked of it is said by the first
    return Talk(
        id=fold.id,
        scope=fold.scope,
        subject=fold.subject,
        created_at=fold.started_at,
        updated_at=fold.started_at,
        created_by=letters[0].sender,
    )


def conversations(core: Core, caller: Principal, scope: str | None, after: str | None) -> Iterator[View]:
    """Those a caller may see, the most recently active first; those behind `after`, the id of one of them."""
    authorize(caller, "talks", caller.agent)
    order = _by_activity(core, party(caller), scope)
    if after is not None:
        if after not in order:
            raise Invalid(f"there is no conversation {after!a} to go on from", field="cursor")
        del order[: order.index(after) + 1]
    for id in order:
        try:
            yield look(core, caller, id)
        except Missing:  # its last letter was deleted meanwhile
            continue


def _by_activity(core: Core, reader: str | None, scope: str | None) -> list[str]:
    active: dict[str, datetime] = {}
    for record in core.store.records(CONVERSATION):
        talk = convert(record.value, Talk)
        seen = reader is None or reader == talk.created_by or talk.seat(reader) is not None
        if seen and scope in {None, talk.scope}:
            active[talk.id] = talk.updated_at
    for id in [*active, *core.store.conversations(reader, scope, MOST)]:
        last = core.store.letters(LetterQuery(conversation=id, party=reader, order="newest", limit=1))
        for letter in last:
            spoken = letter.message.created_at
            active[id] = max(active.get(id, spoken), spoken)
    return sorted(active, key=lambda name: (active[name], name), reverse=True)


def recent(core: Core, caller: Principal, scope: str | None, limit: int) -> list[Message]:
    """The last letters of all conversations, the newest first."""
    authorize(caller, "talks", caller.agent)
    reader = party(caller)
    found = core.store.letters(LetterQuery(party=reader, scope=scope, order="newest", limit=limit))
    return [seen_by(core, letter.message, reader) for letter in found]


def turn_in(view: View, letter: str) -> Message:
    """One letter of a conversation, or Missing."""
    for message in view.letters:
        if message.id == letter:
            return message
    raise Missing(f"no turn {letter!r} in this conversation", field="turn")


def _seats(core: Core, talk: Talk, letters: Sequence[Message], inner: set[str] | None) -> tuple[Seat, ...]:
    """Who joined and has not left, then senders and visible recipients in order of appearance, of `inner`."""
    seats = {seat.agent: seat for seat in talk.seats}
    today, reached = residents(core), _reached(core, letters)
    for letter in letters:
        for name in (letter.sender, *_named_recipients(letter), *reached.get(letter.id, ())):
            now = today(name)
            if now not in seats and now != POSTMASTER and (inner is None or now in inner):
                seats[now] = Seat(agent=now, joined_at=letter.created_at)
    return tuple(seat for seat in seats.values() if seat.left_at is None)


def _named_recipients(letter: Message) -> list[str]:
    """Never those in bcc: nobody else may know of them."""
    return [r.address for r in letter.recipients if r.kind != "bcc" and not _is_open(r.address)]


def _is_open(address: str) -> bool:
    return is_broadcast(address) or is_any(address)


def _reached(core: Core, letters: Sequence[Message]) -> dict[str, list[str]]:
    """Who got the letters that do not say so: those to a scope, or to whoever can."""
    ids = tuple(x.id for x in letters if any(_is_open(r.address) for r in x.recipients))
    reached: dict[str, list[str]] = {}
    for found in core.store.find(Query(message_ids=ids, order="age")) if ids else ():
        if found.delivery.kind != "bcc":
            reached.setdefault(found.delivery.message_id, []).append(found.delivery.mailbox)
    return reached


def _strands(talk: Talk, letters: Sequence[Message], *, everything: bool) -> tuple[Strand, ...]:
    """Threads with a letter to be seen."""
    opened = {strand.id: strand for strand in talk.strands}
    by_id = {letter.id: letter for letter in letters}
    replied: dict[str, Strand] = {}
    used = set()
    for letter in letters:
        thread = thread_of(letter)
        if thread is None or not thread.startswith(THREAD):
            continue
        used.add(thread)
        if thread not in opened and thread not in replied:
            root = thread.removeprefix(THREAD)
            replied[thread] = Strand(
                id=thread,
                root=root,
                created_at=letter.created_at,
                created_by=letter.sender,
                subject=by_id[root].subject if root in by_id else "",
            )
    shown = [s for s in opened.values() if everything or s.root in by_id or s.id in used]
    return tuple(sorted([*replied.values(), *shown], key=lambda strand: strand.created_at))


# What is done to a conversation: open it, take a turn, join, leave, invite, close, reopen, open a thread.
#
# A turn is a letter (`turning`). Everything else changes the small record beside the letters (`model.talk`),
# compare-and-set. Each change leaves a notice in the numbered past: a record of the kind `happened` that is put
# and
# never kept, whose key says what happened. So whoever resumes from a cursor learns what came after it, and not
# only
# how things stand.

MOST_STRANDS = 1000  # threads somebody opened in one conversation
_OF_A_TAG = re.compile(r"conv-[0-9a-f]{26}")

Happening: TypeAlias = tuple[str, str]  # what happened, to or by whom
Step: TypeAlias = Callable[[View], tuple[Talk, list[Happening]]]


class Guest(Struct, frozen=True, kw_only=True):
    """Somebody who shall sit in a conversation. Nothing in it is checked yet."""

    agent: Any
    role: Any = None
    permissions: Any = field(default_factory=dict)


class Opening(Struct, frozen=True, kw_only=True):
    """What a caller says of a conversation to be opened. Nothing in it is checked yet."""

    id: Any = None
    scope: Any = None
    subject: Any = None
    type: Any = None
    metadata: Any = None
    creator: str | None = None  # who opens it, and sits in it
    parent: Any = None
    parent_turn: Any = None
    guests: tuple[Guest, ...] = ()


def create(core: Core, caller: Principal, opening: Opening, first: Saying | None = None) -> View:
    """Open a conversation; with `first`, its first turn is in the same commit."""
    authorize(caller, "converse", caller.agent)
    value = opening.creator or caller.agent
    creator = None if value is None else check_agent(value, "agent_id")
    authorize(caller, "join", creator)
    talk = _opened(core, caller, opening, creator)
    view = View(talk=talk, held=None, letters=(), seats=talk.seats, strands=())
    if first is not None and creator is None:
        raise Invalid("is missing", field="participant_id", hint="who speaks first?")
    posts = [] if first is None or creator is None else [letter(core, caller, view, creator, first)]

    def plan() -> Sequence[Write]:
        _check_free(core, party(caller), talk.id)
        happened = [("created", creator or ""), *(("joined", seat.agent) for seat in talk.seats)]
        return [*_writes(talk, view, happened, talk.created_at), *posts]

    messages.commit_posts(core, posts, plan)
    return view_of(core, party(caller), talk.id)


def close(core: Core, caller: Principal, id: str, status: str = "completed") -> View:
    """No more turns. Again is no error."""
    if status not in ENDS:
        raise Invalid(f"{status!a} is not how a conversation ends", field="status", hint=", ".join(ENDS))
    return _moved(core, caller, id, ENDS[status], status)


def reopen(core: Core, caller: Principal, id: str) -> View:
    return _moved(core, caller, id, "reopen", "reopened")


def join(core: Core, caller: Principal, id: str, agent: str, role: Any = None) -> View:
    """Take a seat; one's own, and only where one may look in: whoever has no letter of it needs an invitation."""
    authorize(caller, "join", check_agent(agent, "agent_id"))
    return _sit(core, caller, id, Guest(agent=agent, role=role))


def invite(core: Core, caller: Principal, id: str, guest: Guest) -> View:
    """Give somebody a seat, at once: every later turn reaches them."""

    def step(view: View) -> tuple[Talk, list[Happening]]:
        _check_inside(caller, view)
        if caller.agent is not None:
            addressing.check_guard_at(core, caller.agent, _guest_name(core, guest))
        return _with_seat(core, view, guest)

    return _change(core, caller, id, step)


def leave(core: Core, caller: Principal, id: str, agent: str) -> datetime:
    """Give up a seat; later turns do not come here. When it was given up."""
    name = check_agent(agent, "agent_id")
    authorize(caller, "join", name)
    now = core.now().wall
    left = now

    def step(view: View) -> tuple[Talk, list[Happening]]:
        nonlocal left
        seat = view.seat(name)
        if seat is None:
            gone = view.talk.seat(name)
            left = (gone.left_at if gone else None) or now
            return view.talk, []
        return seated(view.talk, replace(seat, left_at=now)), [("left", name)]

    _change(core, caller, id, step)
    return left


def start_thread(
    core: Core, caller: Principal, id: str, root: str, *, parent: str | None = None, subject: Any = None
) -> Strand:
    """Open a thread at a turn (by its letter's id). The first one there is the one its replies belong to. A caller
    that is no agent may name a turn that is not there, as agent-inbox's programs do; an agent must see it.
    """
    words = "" if subject is None else check_line(subject, "subject", LONGEST_SUBJECT)
    made: list[Strand] = []

    def step(view: View) -> tuple[Talk, list[Happening]]:
        _check_inside(caller, view)
        check_id(root, "root_turn_id")
        if caller.agent is not None:
            turn_in(view, root)
        check_strand(view, parent, "parent_thread_id")
        if len(view.talk.strands) >= MOST_STRANDS:
            raise TooLarge(f"{MOST_STRANDS} threads were opened in it already", field="conversation")
        taken = {strand.id for strand in view.talk.strands}
        name = f"{THREAD}{root}"
        strand = Strand(
            id=name if name not in taken else f"{THREAD}{core.ids.message()}",
            root=root,
            created_at=core.now().wall,
            created_by=caller.agent or "",
            parent=parent,
            subject=words,
        )
        made[:] = [strand]
        return replace(view.talk, strands=(*view.talk.strands, strand)), [("threaded", strand.id)]

    _change(core, caller, id, step)
    return made[0]


def revision(core: Core, id: str) -> int:
    """Of what is kept beside the letters; 0: nothing."""
    held = find_record(core, CONVERSATION, id)
    return held.revision if held else 0


def _change(core: Core, caller: Principal, id: str, step: Step) -> View:
    """Look freely, then write; who was overtaken looks again inside the commit, and cannot lose."""
    authorize(caller, "converse", caller.agent)
    reader = party(caller)
    letters = letters_of(core, reader, id)  # once: there may be many
    view = _inside(core, reader, id, letters)

    def plan() -> Sequence[Write]:
        nonlocal view
        if revision(core, id) != (view.held.revision if view.held else 0):
            view = _inside(core, reader, id, letters)
        after, happened = step(view)
        return [] if after == view.talk else _writes(after, view, happened, core.now().wall)

    core.store.commit(plan)
    return view_of(core, reader, id, letters)


def _inside(core: Core, reader: str | None, id: str, letters: Sequence[Message] | None = None) -> View:
    """As who changes it sees it. Of one that only letters tell of, the first letter says who began it: whoever
    puts a record beside them does not own the conversation by that.
    """
    view = view_of(core, reader, id, letters)
    if view.held is None:
        view = replace(view, talk=replace(view.talk, created_by=founder(core, id)))
        is_inside = reader is None or reader in circle(core, view.talk, until=reader)
    else:
        is_inside = view.is_inside
    if not is_inside:
        raise unknown(id)
    return view


def _writes(talk: Talk, before: View, happened: Sequence[Happening], now: datetime) -> list[Write]:
    talk = replace(talk, updated_at=max(now, talk.updated_at))
    put = put_record(CONVERSATION, talk.id, to_plain(talk), before.held)
    return [put, *(_notice(talk.id, *one, now) for one in happened)]


def _notice(id: str, what: str, whom: str, now: datetime) -> Put:
    """A line in the numbered past. There is nothing to keep: the key says it all."""
    return put_record(HAPPENED, f"{id} {what} {whom or '-'} {now.isoformat()}", None, None)


def _moved(core: Core, caller: Principal, id: str, action: str, happened: str) -> View:
    def step(view: View) -> tuple[Talk, list[Happening]]:
        _check_inside(caller, view)
        after = stepped(view.talk, action, core.now().wall)
        return after, [(happened, caller.agent or "")]

    return _change(core, caller, id, step)


def _check_inside(principal: Principal, view: View) -> None:
    """An agent that may look in, but has no seat, changes nothing."""
    if not principal.operator and (principal.agent is None or view.seat(principal.agent) is None):
        raise NotAllowed("is not in this conversation", field="participant", hint="join it first")


def seating(core: Core, view: View, agent: str) -> list[Write]:
    """What gives somebody a seat who speaks without one, beside what they say."""
    talk, happened = _with_seat(core, view, Guest(agent=agent))
    return _writes(talk, view, happened, core.now().wall)


def _sit(core: Core, caller: Principal, id: str, guest: Guest) -> View:
    return _change(core, caller, id, lambda view: _with_seat(core, view, guest))


def _with_seat(core: Core, view: View, guest: Guest) -> tuple[Talk, list[Happening]]:
    now = core.now().wall
    seat = _seat(core, guest, now)
    held = view.talk.seat(seat.agent)
    if held is not None and held.left_at is None:
        same = replace(held, role=seat.role or held.role, permissions=seat.permissions or held.permissions)
        return seated(view.talk, same), []
    for other in view.seats:
        if fold(other.agent) == fold(seat.agent) and other.agent != seat.agent:
            raise _look_alike(seat.agent, other.agent)
    talk = seated(view.talk, seat)
    if len(talk.seats) > core.limits.max_recipients:
        raise TooLarge(f"more than {core.limits.max_recipients} participants", field="agent_id")
    return talk, [("joined", seat.agent)]


def _seat(core: Core, guest: Guest, now: datetime) -> Seat:
    agent = resident(core, _guest_name(core, guest))
    if fold(agent) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} takes no mail", field="agent_id")
    spelt = core.store.spelling(agent)
    if spelt not in {None, agent}:
        raise _look_alike(agent, spelt or "")
    role = "" if guest.role is None else check_label(guest.role, "role")
    permissions = check_object(guest.permissions or {}, "permissions", core.limits.max_depth)
    return Seat(agent=agent, joined_at=now, role=role, permissions=permissions)


def _guest_name(core: Core, guest: Guest) -> str:
    return meant(check_agent(guest.agent, "agent_id"), core.limits.human)


def _look_alike(name: str, held: str) -> LookAlike:
    return LookAlike(f"{name!r} reads like {held!r}", field="agent_id", hint=f"write {held!r}")


def _opened(core: Core, caller: Principal, opening: Opening, creator: str | None) -> Talk:
    now = core.now().wall
    kind = TYPES[0] if opening.type is None else opening.type
    if kind not in TYPES:
        raise Invalid("is not a type of conversation", field="type", hint=", ".join(TYPES))
    talk = Talk(
        id=_new_id(core, opening.id),
        scope=DEFAULT_SCOPE if opening.scope is None else check_scope(opening.scope, "scope"),
        created_at=now,
        updated_at=now,
        created_by=creator or "",
        subject="" if opening.subject is None else check_line(opening.subject, "subject", LONGEST_SUBJECT),
        type=kind,
        parent=_parent(core, party(caller), opening.parent),
        parent_turn=None if opening.parent_turn is None else check_id(opening.parent_turn, "parent_turn_id"),
        metadata=check_object(opening.metadata or {}, "metadata", core.limits.max_depth),
    )
    guests = [*([Guest(agent=creator, role="initiator")] if creator else []), *opening.guests]
    for guest in guests:
        if creator is not None and not caller.operator and guest.agent != creator:
            addressing.check_guard_at(core, creator, _guest_name(core, guest))
        view = View(talk=talk, held=None, letters=(), seats=talk.seats, strands=())
        talk, _ = _with_seat(core, view, guest)
    return talk


def _new_id(core: Core, value: Any) -> str:
    id = f"conv-{core.ids.message()}" if value is None else check_id(value, "id")
    if general_scope(id) is not None:
        raise Invalid(f"{id!a} is a scope's catch-all, which needs no opening", field="id")
    return id


def _parent(core: Core, reader: str | None, value: Any) -> str | None:
    if value is None:
        return None
    try:
        return _inside(core, reader, check_id(value, "parent_conversation_id")).talk.id
    except Missing as absent:
        raise Missing(absent.message, field="parent_conversation") from None


def _check_free(core: Core, reader: str | None, id: str) -> None:
    """Nobody opens a conversation that others are in: its opener would get their turns."""
    if find_record(core, CONVERSATION, id) is not None:
        raise _unusable()
    if reader is None:
        return
    letters = core.store.letters(LetterQuery(conversation=id, limit=1))
    own = bool(letters) and reader in circle(core, told_by([letters[0].message]), until=reader)
    if (letters and not own) or (not own and _OF_A_TAG.fullmatch(id)):
        raise _unusable()


def _unusable() -> IdTaken:
    """The same words whether others have a conversation with this id or it is kept for a tag of theirs (G8)."""
    return IdTaken("cannot be used for a new conversation", field="id", hint="leave it out, or choose another one")


# A turn: a letter from one participant to all others of a conversation, in one commit.
#
# Who is alone in a conversation writes to itself, and the letter is done at once: it disturbs nobody, and is a
# turn
# like any other after a restart. A letter without recipients would be settled before it was sent, for the
# janitor.


class Saying(Struct, frozen=True, kw_only=True):
    """What somebody says in a conversation. Nothing in it is checked yet."""

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


def turn(core: Core, caller: Principal, id: str, participant: str, saying: Saying) -> Message:
    """Say something. It reaches everybody else in the conversation, or nobody."""
    name = check_agent(participant, "participant_id")
    authorize(caller, "send", name)
    view = _heard(core, caller, id)
    posts = [letter(core, caller, view, name, saying)]

    def plan() -> Sequence[Write]:
        nonlocal view
        if revision(core, id) != (view.held.revision if view.held else 0):
            view = _heard(core, caller, id)
            posts[:] = [letter(core, caller, view, name, saying)]
        if view.held is None or view.talk.seat(name) is not None or view.seat(name) is not None:
            return posts
        return [*seating(core, view, name), *posts]

    return messages.commit_posts(core, posts, plan)[0].message


def _heard(core: Core, caller: Principal, id: str) -> View:
    """The conversation of somebody who may speak, or Missing: a letter of one's own lets nobody in."""
    authorize(caller, "converse", caller.agent)
    view = view_of(core, party(caller), id)
    if not view.is_inside:
        raise unknown(id)
    return view


def letter(core: Core, caller: Principal, view: View, participant: str, saying: Saying) -> Post:
    """The letter that a turn is, ready to be committed, or the reason why not."""
    value = None if saying.key is None else core.store.sent(participant, saying.key)
    if value is None:
        _check_open(view, participant, strict=not caller.operator)
        audience = _audience(view, participant, saying.visibility)
    else:  # once more, with a key: it goes to whom it went
        audience = [r.address for r in value.message.recipients if r.address != participant]
    parent = None if saying.reply_to is None else turn_in(view, check_id(saying.reply_to, "in_reply_to"))
    check_strand(view, saying.thread, "thread_id")
    draft = Draft(
        sender=participant,
        to=audience or (participant,),
        body=saying.body,
        extra={TURN_NOTE: to_plain(_note(core, saying, parent))},
        metadata=saying.metadata or {},
        scope=view.talk.scope,
        **_fields(view, saying),
    )
    if parent is not None and _is_known(core, parent, participant, audience):
        draft = draft.but(in_reply_to=parent.id)
    now = core.now().wall
    post = messages.prepare(core, caller, draft, now)
    if audience or not post.deliveries:
        return post
    done = ack(open_delivery(post.message, participant, "to", now), now, archive=True)
    return replace(post, deliveries=(done,), quota=None)


def check_strand(view: View, thread: Any, name: str) -> None:
    if thread is not None and check_id(thread, name) not in {strand.id for strand in view.strands}:
        raise Missing(f"no thread {thread!r} in this conversation", field="thread")


def _fields(view: View, saying: Saying) -> dict[str, Any]:
    """Those of a letter that are said only where there is something to say."""
    values = {"priority": saying.priority, "subject": saying.subject, "key": saying.key}
    fields = {name: value for name, value in values.items() if value is not None}
    if general_scope(view.talk.id) is None:  # a scope's catch-all is where letters go that say nothing
        fields["conversation_id"] = view.talk.id
    return fields


def _check_open(view: View, participant: str, *, strict: bool) -> None:
    """Not strict: whoever never left may speak, and is in it from then on."""
    if view.talk.status != ACTIVE:
        raise IllegalMove(f"the conversation is {view.talk.status}", field="conversation", hint="reopen it first")
    gone = view.talk.seat(participant)
    if view.seat(participant) is None and (strict or gone is not None):
        raise NotAllowed(f"{participant!r} is not in this conversation", field="participant", hint="join it first")


def _note(core: Core, saying: Saying, parent: Message | None) -> TurnNote:
    depth = core.limits.max_depth
    thread = saying.thread
    if thread is None and parent is not None:
        thread = thread_of(parent) or f"{THREAD}{parent.id}"
    return TurnNote(
        content_type=check_label(saying.content_type, "content_type"),
        shape=saying.shape,
        thread=thread,
        reply_to=None if parent is None else parent.id,
        source=None if saying.source is None else check_id(saying.source, "source_message_id"),
        visibility=None if saying.visibility is None else check_object(saying.visibility, "visibility", depth),
    )


def _audience(view: View, participant: str, visibility: Any) -> list[str]:
    """Everybody else; where its speaker says for whom it is, those alone."""
    others = [seat for seat in view.seats if seat.agent != participant]
    if visibility is None:
        return [seat.agent for seat in others]
    if not isinstance(visibility, dict):
        raise Invalid("must be an object", field="visibility")
    return [seat.agent for seat in others if _is_for(seat, visibility)]


def _is_for(seat: Seat, visibility: dict[str, Any]) -> bool:
    kind = visibility.get("type")
    if kind in {"participants", "role"}:
        named = visibility.get("ids" if kind == "participants" else "roles")
        if not isinstance(named, list):
            raise Invalid("does not say for whom", field="visibility", hint="ids or roles, a list")
        return (seat.agent if kind == "participants" else seat.role) in named
    if kind not in {"all", "private"}:
        raise Invalid(
            f"{str(kind)[:40]!a} is not for anybody", field="visibility", hint="all, participants, role, private"
        )
    return bool(kind == "all")


def _is_known(core: Core, parent: Message, participant: str, audience: Sequence[str]) -> bool:
    """Has everybody the letter that is answered? Else the answer would count as passing it on."""
    return not addressing.without_it(core, parent, [participant, *audience])
