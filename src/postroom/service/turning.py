"""A turn: a letter from one participant to all others of a conversation, in one commit.

Who is alone in a conversation writes to itself, and the letter is done at once: it disturbs nobody, and is a turn
like any other after a restart. A letter without recipients would be settled before it was sent, for the janitor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from .. import service
from ..errors import IllegalMove, Invalid, Missing, NotAllowed
from ..model.codec import to_plain
from ..model.delivery import ack, open_delivery
from ..model.message import TURN_NOTE
from ..model.names import check_agent, check_id
from ..model.talk import ACTIVE, THREAD, Shape, TurnNote, thread_of
from ..model.thread import general_scope
from ..model.values import check_label, check_object
from .authorize import authorize
from .compose import Draft
from .talks import party, turn_in, unknown, view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.message import Message
    from ..model.talk import Seat
    from ..store.base import Post, Write
    from .authorize import Principal
    from .office import Office
    from .talks import View


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


def turn(office: Office, caller: Principal, id: str, participant: str, saying: Saying) -> Message:
    """Say something. It reaches everybody else in the conversation, or nobody."""
    name = check_agent(participant, "participant_id")
    authorize(caller, "send", name)
    view = _heard(office, caller, id)
    posts = [letter(office, caller, view, name, saying)]

    def plan() -> Sequence[Write]:
        nonlocal view
        if service.conversing.revision(office, id) != (view.held.revision if view.held else 0):
            view = _heard(office, caller, id)
            posts[:] = [letter(office, caller, view, name, saying)]
        if view.held is None or view.talk.seat(name) is not None or view.seat(name) is not None:
            return posts
        return [*service.conversing.seating(office, view, name), *posts]

    return service.sending.commit_posts(office, posts, plan)[0].message


def _heard(office: Office, caller: Principal, id: str) -> View:
    """The conversation of somebody who may speak, or Missing: a letter of one's own lets nobody in."""
    authorize(caller, "converse", caller.agent)
    view = view_of(office, party(caller), id)
    if not view.is_inside:
        raise unknown(id)
    return view


def letter(office: Office, caller: Principal, view: View, participant: str, saying: Saying) -> Post:
    """The letter that a turn is, ready to be committed, or the reason why not."""
    said = None if saying.key is None else office.store.sent(participant, saying.key)
    if said is None:
        _check_open(view, participant, strict=not caller.operator)
        audience = _audience(view, participant, saying.visibility)
    else:  # once more, with a key: it goes to whom it went
        audience = [r.address for r in said.message.recipients if r.address != participant]
    parent = None if saying.reply_to is None else turn_in(view, check_id(saying.reply_to, "in_reply_to"))
    check_strand(view, saying.thread, "thread_id")
    draft = Draft(
        sender=participant,
        to=audience or (participant,),
        body=saying.body,
        extra={TURN_NOTE: to_plain(_note(office, saying, parent))},
        metadata=saying.metadata or {},
        scope=view.talk.scope,
        **_fields(view, saying),
    )
    if parent is not None and _is_known(office, parent, participant, audience):
        draft = draft.but(in_reply_to=parent.id)
    now = office.now().wall
    post = service.sending.prepare(office, caller, draft, now)
    if audience or not post.deliveries:
        return post
    done = ack(open_delivery(post.message, participant, "to", now), now, archive=True)
    return replace(post, deliveries=(done,), quota=None)


def check_strand(view: View, thread: Any, name: str) -> None:
    if thread is not None and check_id(thread, name) not in {strand.id for strand in view.strands}:
        raise Missing(f"no thread {thread!r} in this conversation", field="thread")


def _fields(view: View, saying: Saying) -> dict[str, Any]:
    """Those of a letter that are said only where there is something to say."""
    said = {"priority": saying.priority, "subject": saying.subject, "key": saying.key}
    fields = {name: value for name, value in said.items() if value is not None}
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


def _note(office: Office, saying: Saying, parent: Message | None) -> TurnNote:
    depth = office.limits.max_depth
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


def _is_known(office: Office, parent: Message, participant: str, audience: Sequence[str]) -> bool:
    """Has everybody the letter that is answered? Else the answer would count as passing it on."""
    return not service.addressing.without_it(office, parent, [participant, *audience])
