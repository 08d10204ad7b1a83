"""What is done to a conversation: open it, take a turn, join, leave, invite, close, reopen, open a thread.

A turn is a letter (`turning`). Everything else changes the small record beside the letters (`model.talk`),
compare-and-set. Each change leaves a notice in the numbered past: a record of the kind `happened` that is put and
never kept, whose key says what happened. So whoever resumes from a cursor learns what came after it, and not only
how things stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from .. import service
from ..errors import IdTaken, Invalid, LookAlike, Missing, NotAllowed, TooLarge
from ..model.codec import to_plain
from ..model.message import DEFAULT_SCOPE
from ..model.names import POSTMASTER, check_agent, check_id, check_scope, fold, meant
from ..model.query import LetterQuery
from ..model.record import CONVERSATION, HAPPENED
from ..model.talk import ENDS, THREAD, TYPES, Seat, Strand, Talk, seated, stepped
from ..model.thread import general_scope
from ..model.values import check_label, check_line, check_object
from .authorize import authorize
from .compose import LONGEST_SUBJECT
from .naming import resident
from .records import find_record, put_record
from .talks import View, circle, founder, letters_of, party, told_by, turn_in, unknown, view_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..store.base import Put, Write
    from .authorize import Principal
    from .office import Office
    from .turning import Saying

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


def create(office: Office, caller: Principal, opening: Opening, first: Saying | None = None) -> View:
    """Open a conversation; with `first`, its first turn is in the same commit."""
    authorize(caller, "converse", caller.agent)
    said = opening.creator or caller.agent
    creator = None if said is None else check_agent(said, "agent_id")
    authorize(caller, "join", creator)
    talk = _opened(office, caller, opening, creator)
    view = View(talk=talk, held=None, letters=(), seats=talk.seats, strands=())
    if first is not None and creator is None:
        raise Invalid("is missing", field="participant_id", hint="who speaks first?")
    posts = (
        [] if first is None or creator is None else [service.turning.letter(office, caller, view, creator, first)]
    )

    def plan() -> Sequence[Write]:
        _check_free(office, party(caller), talk.id)
        happened = [("created", creator or ""), *(("joined", seat.agent) for seat in talk.seats)]
        return [*_writes(talk, view, happened, talk.created_at), *posts]

    service.sending.commit_posts(office, posts, plan)
    return view_of(office, party(caller), talk.id)


def close(office: Office, caller: Principal, id: str, status: str = "completed") -> View:
    """No more turns. Again is no error."""
    if status not in ENDS:
        raise Invalid(f"{status!a} is not how a conversation ends", field="status", hint=", ".join(ENDS))
    return _moved(office, caller, id, ENDS[status], status)


def reopen(office: Office, caller: Principal, id: str) -> View:
    return _moved(office, caller, id, "reopen", "reopened")


def join(office: Office, caller: Principal, id: str, agent: str, role: Any = None) -> View:
    """Take a seat; one's own, and only where one may look in: whoever has no letter of it needs an invitation."""
    authorize(caller, "join", check_agent(agent, "agent_id"))
    return _sit(office, caller, id, Guest(agent=agent, role=role))


def invite(office: Office, caller: Principal, id: str, guest: Guest) -> View:
    """Give somebody a seat, at once: every later turn reaches them."""

    def step(view: View) -> tuple[Talk, list[Happening]]:
        _check_inside(caller, view)
        if caller.agent is not None:
            service.addressing.check_guard_at(office, caller.agent, _named(office, guest))
        return _with_seat(office, view, guest)

    return _change(office, caller, id, step)


def leave(office: Office, caller: Principal, id: str, agent: str) -> datetime:
    """Give up a seat; later turns do not come here. When it was given up."""
    name = check_agent(agent, "agent_id")
    authorize(caller, "join", name)
    now = office.now().wall
    left = now

    def step(view: View) -> tuple[Talk, list[Happening]]:
        nonlocal left
        seat = view.seat(name)
        if seat is None:
            gone = view.talk.seat(name)
            left = (gone.left_at if gone else None) or now
            return view.talk, []
        return seated(view.talk, replace(seat, left_at=now)), [("left", name)]

    _change(office, caller, id, step)
    return left


def start_thread(
    office: Office, caller: Principal, id: str, root: str, *, parent: str | None = None, subject: Any = None
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
        service.turning.check_strand(view, parent, "parent_thread_id")
        if len(view.talk.strands) >= MOST_STRANDS:
            raise TooLarge(f"{MOST_STRANDS} threads were opened in it already", field="conversation")
        taken = {strand.id for strand in view.talk.strands}
        name = f"{THREAD}{root}"
        strand = Strand(
            id=name if name not in taken else f"{THREAD}{office.ids.message()}",
            root=root,
            created_at=office.now().wall,
            created_by=caller.agent or "",
            parent=parent,
            subject=words,
        )
        made[:] = [strand]
        return replace(view.talk, strands=(*view.talk.strands, strand)), [("threaded", strand.id)]

    _change(office, caller, id, step)
    return made[0]


def revision(office: Office, id: str) -> int:
    """Of what is kept beside the letters; 0: nothing."""
    held = find_record(office, CONVERSATION, id)
    return held.revision if held else 0


def _change(office: Office, caller: Principal, id: str, step: Step) -> View:
    """Look freely, then write; who was overtaken looks again inside the commit, and cannot lose."""
    authorize(caller, "converse", caller.agent)
    reader = party(caller)
    letters = letters_of(office, reader, id)  # once: there may be many
    view = _inside(office, reader, id, letters)

    def plan() -> Sequence[Write]:
        nonlocal view
        if revision(office, id) != (view.held.revision if view.held else 0):
            view = _inside(office, reader, id, letters)
        after, happened = step(view)
        return [] if after == view.talk else _writes(after, view, happened, office.now().wall)

    office.store.commit(plan)
    return view_of(office, reader, id, letters)


def _inside(office: Office, reader: str | None, id: str, letters: Sequence[Message] | None = None) -> View:
    """As who changes it sees it. Of one that only letters tell of, the first letter says who began it: whoever
    puts a record beside them does not own the conversation by that.
    """
    view = view_of(office, reader, id, letters)
    if view.held is None:
        view = replace(view, talk=replace(view.talk, created_by=founder(office, id)))
        is_inside = reader is None or reader in circle(office, view.talk, until=reader)
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


def _moved(office: Office, caller: Principal, id: str, action: str, happened: str) -> View:
    def step(view: View) -> tuple[Talk, list[Happening]]:
        _check_inside(caller, view)
        after = stepped(view.talk, action, office.now().wall)
        return after, [(happened, caller.agent or "")]

    return _change(office, caller, id, step)


def _check_inside(principal: Principal, view: View) -> None:
    """An agent that may look in, but has no seat, changes nothing."""
    if not principal.operator and (principal.agent is None or view.seat(principal.agent) is None):
        raise NotAllowed("is not in this conversation", field="participant", hint="join it first")


def seating(office: Office, view: View, agent: str) -> list[Write]:
    """What gives somebody a seat who speaks without one, beside what they say."""
    talk, happened = _with_seat(office, view, Guest(agent=agent))
    return _writes(talk, view, happened, office.now().wall)


def _sit(office: Office, caller: Principal, id: str, guest: Guest) -> View:
    return _change(office, caller, id, lambda view: _with_seat(office, view, guest))


def _with_seat(office: Office, view: View, guest: Guest) -> tuple[Talk, list[Happening]]:
    now = office.now().wall
    seat = _seat(office, guest, now)
    held = view.talk.seat(seat.agent)
    if held is not None and held.left_at is None:
        same = replace(held, role=seat.role or held.role, permissions=seat.permissions or held.permissions)
        return seated(view.talk, same), []
    for other in view.seats:
        if fold(other.agent) == fold(seat.agent) and other.agent != seat.agent:
            raise _look_alike(seat.agent, other.agent)
    talk = seated(view.talk, seat)
    if len(talk.seats) > office.limits.max_recipients:
        raise TooLarge(f"more than {office.limits.max_recipients} participants", field="agent_id")
    return talk, [("joined", seat.agent)]


def _seat(office: Office, guest: Guest, now: datetime) -> Seat:
    agent = resident(office, _named(office, guest))
    if fold(agent) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} takes no mail", field="agent_id")
    spelt = office.store.spelling(agent)
    if spelt not in {None, agent}:
        raise _look_alike(agent, spelt or "")
    role = "" if guest.role is None else check_label(guest.role, "role")
    permissions = check_object(guest.permissions or {}, "permissions", office.limits.max_depth)
    return Seat(agent=agent, joined_at=now, role=role, permissions=permissions)


def _named(office: Office, guest: Guest) -> str:
    return meant(check_agent(guest.agent, "agent_id"), office.limits.human)


def _look_alike(name: str, held: str) -> LookAlike:
    return LookAlike(f"{name!r} reads like {held!r}", field="agent_id", hint=f"write {held!r}")


def _opened(office: Office, caller: Principal, opening: Opening, creator: str | None) -> Talk:
    now = office.now().wall
    kind = TYPES[0] if opening.type is None else opening.type
    if kind not in TYPES:
        raise Invalid("is not a type of conversation", field="type", hint=", ".join(TYPES))
    talk = Talk(
        id=_new_id(office, opening.id),
        scope=DEFAULT_SCOPE if opening.scope is None else check_scope(opening.scope, "scope"),
        created_at=now,
        updated_at=now,
        created_by=creator or "",
        subject="" if opening.subject is None else check_line(opening.subject, "subject", LONGEST_SUBJECT),
        type=kind,
        parent=_parent(office, party(caller), opening.parent),
        parent_turn=None if opening.parent_turn is None else check_id(opening.parent_turn, "parent_turn_id"),
        metadata=check_object(opening.metadata or {}, "metadata", office.limits.max_depth),
    )
    guests = [*([Guest(agent=creator, role="initiator")] if creator else []), *opening.guests]
    for guest in guests:
        if creator is not None and not caller.operator and guest.agent != creator:
            service.addressing.check_guard_at(office, creator, _named(office, guest))
        view = View(talk=talk, held=None, letters=(), seats=talk.seats, strands=())
        talk, _ = _with_seat(office, view, guest)
    return talk


def _new_id(office: Office, said: Any) -> str:
    id = f"conv-{office.ids.message()}" if said is None else check_id(said, "id")
    if general_scope(id) is not None:
        raise Invalid(f"{id!a} is a scope's catch-all, which needs no opening", field="id")
    return id


def _parent(office: Office, reader: str | None, said: Any) -> str | None:
    if said is None:
        return None
    try:
        return _inside(office, reader, check_id(said, "parent_conversation_id")).talk.id
    except Missing as absent:
        raise Missing(absent.message, field="parent_conversation") from None


def _check_free(office: Office, reader: str | None, id: str) -> None:
    """Nobody opens a conversation that others are in: its opener would get their turns."""
    if find_record(office, CONVERSATION, id) is not None:
        raise _unusable()
    if reader is None:
        return
    letters = office.store.letters(LetterQuery(conversation=id, limit=1))
    own = bool(letters) and reader in circle(office, told_by([letters[0].message]), until=reader)
    if (letters and not own) or (not own and _OF_A_TAG.fullmatch(id)):
        raise _unusable()


def _unusable() -> IdTaken:
    """The same words whether others have a conversation with this id or it is kept for a tag of theirs (G8)."""
    return IdTaken("cannot be used for a new conversation", field="id", hint="leave it out, or choose another one")
