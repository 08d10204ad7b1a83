"""What a person does with what waits, as one table, and the verb that does one of them.

The terminal inbox and the dashboard show the same keys and words, and both perform `act`: once, by its key, and
only while the entry still waits as it was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from ..errors import Conflict, IdTaken, IllegalMove, Invalid
from ..model.delivery import State
from ..model.names import check_id
from ..model.query import Query
from ..model.task import TaskState
from ..model.values import check_label, check_text, in_quotes
from ..store.protocol import first_sent
from .inbox import Read
from .messages import Reply, Send, Unsend
from .proof import is_unproven
from .tasks import STEPS, TaskStep
from .verb import MailboxVerb, Verb, perform, verb
from .waiting_list import Waiting
from .work import Ack

if TYPE_CHECKING:
    from ..model.message import Message
    from .authorize import Principal
    from .core import Core
    from .waiting_list import Entry


class Action(Struct, frozen=True):
    """One action on an entry, and its key."""

    key: str
    name: str
    asks: str = ""  # the question for words; empty where the action takes none
    optional: bool = False  # whether the words may be left out


APPROVE = Action("a", "approve", "Words, if you like:", optional=True)
DECLINE = Action("d", "decline", "Why?")
REPLY = Action("r", "reply", "Your answer:")
ANSWER = Action("r", "answer", "Your answer:")
ACCEPT = Action("a", "accept", "Words, if you like:", optional=True)
REJECT = Action("d", "reject", "Why?")
COMPLETE = Action("c", "complete", "The result, if there is one:", optional=True)
FAIL = Action("d", "give up", "Why?")
WRITE = Action("r", "write", "Your letter:")
DONE = Action("x", "done")
COMPOSE = Action("w", "compose", "To whom, then your words: NAME TEXT")
UNSEND = Action("u", "take back")

SENT, SEEN, TAKEN_BACK = "sent", "seen", "taken back"  # states of a letter that was sent

# What each key is for.
KEYS = {
    "a": "approve what is asked; accept a task",
    "d": "decline it, reject a task, give one up; you say why",
    "r": "answer in your own words; to a task: write to who gave it",
    "c": "a task is complete; your words are its result",
    "x": "done with a letter or news; an unread one asks once more",
    "e": "answer in $VISUAL or $EDITOR; of a task you took on: its result",
    "w": "write a new letter: a name, then your words",
    "u": "take a letter back that you sent, while nobody has worked on it",
}

# Kind of an entry (of a task, with its state) -> its actions.
OFFERED: dict[str, tuple[Action, ...]] = {
    "escalation": (APPROVE, DECLINE, REPLY),
    "question": (ANSWER,),
    f"task {TaskState.PENDING}": (ACCEPT, REJECT, WRITE),
    f"task {TaskState.ACCEPTED}": (COMPLETE, REJECT, WRITE),
    f"task {TaskState.WORKING}": (COMPLETE, FAIL, WRITE),
    "letter": (REPLY, DONE),
    "news": (DONE,),
    f"sent {SENT}": (UNSEND,),
    f"sent {SEEN}": (UNSEND,),
    "new": (COMPOSE,),
}
GONE = "It no longer waits for you."

# What each action has done, for the person; {} is whom the entry is from.
RESULTS = {
    APPROVE: "Approved; {} is notified.",
    DECLINE: "Declined; {} is notified.",
    REPLY: "Answered {}.",
    ANSWER: "Answered {}.",
    ACCEPT: "Accepted; {} is notified. It waits here until it is complete.",
    REJECT: "Rejected; {} gets the reason.",
    COMPLETE: "Complete; {} has the result.",
    FAIL: "Given up; {} gets the reason.",
    WRITE: "Written to {}.",
    DONE: "Done with it.",
    COMPOSE: "Sent to {}.",
    UNSEND: "Taken back from {}.",
}
_BY_NAME = {action.name: action for action in RESULTS}
_WORDS_BEFORE = {APPROVE: "approved", DECLINE: "declined"}  # the answer begins with this word
_STEPS = {ANSWER: "answer", ACCEPT: "accept", REJECT: "reject", COMPLETE: "complete", FAIL: "fail"}  # of a task


def offered(what: str, state: str | None) -> tuple[Action, ...]:
    """Return the actions on an entry of this kind."""
    return OFFERED.get(f"{what} {state}" if what in {"task", "sent"} else what, ())


def _text(action: Action, words: str) -> str:
    """Return the text of an answer."""
    return ": ".join(piece for piece in (_WORDS_BEFORE.get(action, ""), words) if piece)


class ActionTable(Struct):
    """All actions: by the kind of an entry, and what each key is for."""

    offered: dict[str, list[Action]]
    keys: dict[str, str]
    gone: str  # what a person reads where an entry no longer waits


@verb("actions", ActionTable, action="agents", writes=False)
class ListActions(Verb, kw_only=True):
    """Return what can be done with each kind of entry of the inbox, and by which keys."""

    def run(self, _core: Core, _principal: Principal) -> ActionTable:
        return ActionTable({kind: list(some) for kind, some in OFFERED.items()}, KEYS, GONE)


class Acted(Struct):
    """What was done, in words for the person."""

    letter: str
    action: str
    done: str
    repeated: bool = False  # an earlier call with this key has done it


@verb("act", Acted, action="waiting")
class Act(MailboxVerb, kw_only=True):
    """Do with what waits what the inbox offers: approve, decline, answer, accept, complete, settle.

    It is refused with Conflict where the entry no longer waits as it was seen: another process was quicker.
    """

    action: Annotated[str, ", ".join(_BY_NAME)]
    letter: Annotated[str, "the id of the entry's letter, as `waiting` names it; none to compose"] = ""
    words: Annotated[str, "the answer, the reason, the result; to compose: a name, then the text"] = ""
    state: Annotated[str | None, "the state of the task as it was seen"] = None
    key: Annotated[str | None, "said again with the same key, nothing is sent twice"] = None

    def run(self, core: Core, principal: Principal) -> Acted:
        action, words = self._checked()
        repeated = self.key is not None and self._was_done(core, action, words)
        if repeated and action is not COMPOSE:
            return Acted(self.letter, action.name, RESULTS[action].format("the sender"), repeated=True)
        if action is COMPOSE:
            return Acted(self.letter, action.name, self._compose(core, principal, words), repeated)
        if action is UNSEND:
            receivers = self._unsend(core, principal)
            return Acted(self.letter, action.name, RESULTS[action].format(receivers))
        entry = self._waiting(core, principal)
        if action not in offered(entry.what, entry.state):
            names = ", ".join(one.name for one in offered(entry.what, entry.state))
            raise Invalid(f"{action.name} is nothing that can be done with it", field="action", hint=names)
        try:
            self._do(core, principal, action, entry, words)
        except IllegalMove:  # another process was quicker
            self._waiting(core, principal)
            raise
        return Acted(self.letter, action.name, RESULTS[action].format(entry.sender))

    def _checked(self) -> tuple[Action, str]:
        """Return the action and its words."""
        action = _BY_NAME.get(self.action)
        if action is None:
            raise Invalid(f"{in_quotes(self.action)} is no action", field="action", hint=", ".join(_BY_NAME))
        words = check_text(self.words, "words").strip()
        if words and not action.asks:
            raise Invalid(f"{action.name} takes no words", field="words")
        if action.asks and not words and not action.optional:
            raise Invalid("are missing", field="words", hint=action.asks)
        if self.key is not None:
            check_label(self.key, "key", 200)
        if action is not COMPOSE:
            check_id(self.letter, "letter")
        return action, words

    def _was_done(self, core: Core, action: Action, words: str) -> bool:
        """Return whether an earlier call with this key did it; raise IdTaken if it sent something else."""
        if not action.asks:
            state = State.DONE if action is DONE else State.DEAD
            place = None if action is UNSEND else self.agent_id
            return bool(
                core.store.find(Query(mailbox=place, message_ids=(self.letter,), states=(state,), limit=1))
            )
        first = first_sent(core.store, self.agent_id, self.key or "")
        if first is None:
            return False
        sent = first.message
        if is_unproven(core, sent):
            raise IdTaken("An unproven letter in your name has used this key. Nothing was done.", field="key")
        if action is not COMPOSE and not self._is_answer(
            core, action, words, sent
        ):  # `Send` itself compares a new one
            raise IdTaken(f"Your earlier words were sent: {in_quotes(sent.text)}. These were not.", field="key")
        return True

    def _is_answer(self, core: Core, action: Action, words: str, sent: Message) -> bool:
        """Return whether this letter is what this action with these words sends about the entry."""
        about = core.store.get((self.letter,)).get(self.letter)
        opening = (
            None if about is None else about.message.in_reply_to
        )  # a step answers the letter that opened its task
        state = STEPS[_STEPS[action]][0] if action in _STEPS else None
        of_task = {self.letter} if state is None else {self.letter, opening}
        text = words or str(state) if state else _text(action, words)
        moved = None if sent.task is None else sent.task.state
        return (sent.in_reply_to in of_task, sent.text, moved) == (True, text, state)

    def _waiting(self, core: Core, principal: Principal) -> Entry:
        """Return the entry as it waits now; raise Conflict where it does not, or not as it was seen."""
        entry = Waiting(agent_id=self.agent_id, opened=True).find(core, principal, self.letter)
        if entry is None:
            raise Conflict(f"{GONE} Nothing was done.")
        if self.state is not None and entry.state != self.state:
            raise Conflict(f"The task is {entry.state} by now. Nothing was done.")
        return entry

    def _do(self, core: Core, principal: Principal, action: Action, entry: Entry, words: str) -> None:
        mailbox = self.agent_id
        if action in _STEPS:
            step = TaskStep(agent_id=mailbox, id=entry.id, step=_STEPS[action], key=self.key)
            setattr(step, STEPS[step.step][1], words or None)  # its body or its reason
            perform(core, principal, step)
        elif action is WRITE:
            perform(core, principal, Reply(agent_id=mailbox, id=self.letter, body=words, key=self.key))
        elif action is DONE:
            perform(core, principal, Ack(agent_id=mailbox, ids=[self.letter]))
        else:
            held = perform(core, principal, Read(agent_id=mailbox, id=self.letter)).letter
            # It is read first, so that the commit refuses a second answer by the revision that was read.
            self._waiting(core, principal)
            answer = Reply(agent_id=mailbox, id=self.letter, body=_text(action, words), key=self.key).draft(core)
            perform(core, principal, Ack(agent_id=mailbox, ids=[self.letter], held=[held], drafts=[answer]))

    def _compose(self, core: Core, principal: Principal, words: str) -> str:
        """Send a new letter: the first word names who gets it. Return what was done."""
        to, *text = words.split(maxsplit=1)
        if not text:
            raise Invalid("there is a name, and no words", field="words", hint="NAME TEXT")
        receipt = perform(core, principal, Send(agent_id=self.agent_id, to=to, body=text[0], key=self.key))
        unseen = f" No agent named {to} has been seen here yet. The letter will wait." if receipt.unknown else ""
        return RESULTS[COMPOSE].format(to) + unseen

    def _unsend(self, core: Core, principal: Principal) -> str:
        letter = perform(core, principal, Unsend(agent_id=self.agent_id, id=self.letter)).letter
        return ", ".join(one.address for one in letter.recipients)
