"""Ask: send a request, wait for its answer, and acknowledge that.

The request has a key. The same key again sends nothing: it waits on for the answer to the first request, or
returns the answer that has come. So a call whose own result was lost may be repeated, over a wire too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from ..errors import LeaseLost, Undeliverable
from ..model.delivery import State
from ..model.message import BOUNCE, Message
from ..model.query import Found, Query
from . import messages, work
from .compose import RequestFields
from .deliveries import apply_timers
from .proof import is_unproven
from .verb import LOCAL, LONGEST_WAIT, verb

if TYPE_CHECKING:
    from .authorize import Principal
    from .core import Core

_ARRIVED = (State.UNREAD, State.CLAIMED, State.DONE)


class Answer(Struct):
    """The answer to a request, which is acknowledged; None if there is none yet."""

    letter: Found | None
    id: str  # of the request
    thread: str
    key: str  # the same key again waits on for the answer


@verb("ask", Answer, action="send", also="wait", waits=True)
class Ask(RequestFields, kw_only=True):
    """Send a request and wait for its answer; the same key again sends nothing and waits on.

    The answer is the first letter that replies to the request. It is acknowledged. If the request comes back from
    all its recipients, the error is Undeliverable, with the reason.
    """

    to: Annotated[Any, "a name, or a list of names"]
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    timeout: Annotated[float, f"how long to wait, in seconds; over a wire {LONGEST_WAIT:g} at most"] = 30.0
    sent: Annotated[Message | None, LOCAL] = None  # the request, once it was sent

    def run(self, core: Core, principal: Principal) -> Answer:
        self.key = core.ids.message() if self.key is None else self.key
        if self.sent is None:
            draft = self.drafted(to=self.to, body=self.body, kind="request")
            self.sent = messages.send_one(core, principal, draft).message
        request = self.sent
        apply_timers(core, core.now(), (self.agent_id,))
        replies = [found for found in self._thread(core, request) if found.message.in_reply_to == request.id]
        # In a person's name, only the person answers (G12).
        answers = [one for one in replies if not one.message.is_automatic and not is_unproven(core, one.message)]
        bounces = [found for found in replies if found.message.kind == BOUNCE]
        if answers:
            return Answer(
                self._acknowledged(core, principal, answers[:1])[0], request.id, request.thread, self.key
            )
        if bounces and len(bounces) >= len(core.store.find(Query(message_ids=(request.id,)))):
            self._acknowledged(core, principal, bounces)
            raise _undeliverable(bounces[0].message)
        return Answer(None, request.id, request.thread, self.key)

    def is_empty(self, result: Answer) -> bool:
        return result.letter is None

    def _thread(self, core: Core, request: Message) -> list[Found]:
        query = Query(mailbox=self.agent_id, thread=request.thread, states=_ARRIVED, shown_only=True, order="age")
        return core.store.find(query)

    def _acknowledged(self, core: Core, principal: Principal, found: list[Found]) -> list[Found]:
        """Acknowledge letters that are open; one that another worker of this mailbox has claimed stays its own."""
        open_letters = [one.message.id for one in found if one.delivery.state is State.UNREAD]
        if open_letters and not (self.sent and is_unproven(core, self.sent)):
            with suppress(LeaseLost):
                return work.Ack(agent_id=self.agent_id, ids=open_letters).run(core, principal).letters
        return found


def _undeliverable(bounce: Message) -> Undeliverable:
    facts: dict[str, Any] = next((part["data"] for part in bounce.parts if part.type == "data"), {})
    return Undeliverable(
        f"{facts.get('mailbox', 'the recipient')} did not take the request: {facts.get('reason')}"
    )
