"""`MailboxManager`: the eight methods of the nanobot mailbox design, with its arguments and results, over a room.

Any number of processes and threads may open a manager over the same folder, also programs that are not ours. A
mail that `send` accepted is on stable storage; a file that is no mail never stops `poll`.

The loop guard is ours: `ttl` and `trace` of a mail are computed, whatever its sender wrote there. A mail that
names other agents in its `trace` is a relay, and so is an answer to an agent that does not have the letter. A
relay costs one hop and never goes back to an agent in the trace. An answer to an agent that has the letter is no
relay.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import room
from ..core import addressing, agents, compose, deliveries, folders, inbox, messages, names, task_index, work
from ..core.authorize import OWNER, phrase_of
from ..core.core import change_record, commit, find_record, find_value, put_record, values_of
from ..core.messages import check_answer_rate
from ..core.proof import check_person, is_person, sign_letter
from ..core.verb import perform
from ..errors import HopsSpent, IllegalMove, Invalid, LeaseLost, UnknownAgent, UnknownMessage, Unreadable
from ..model.agent import Heartbeat, Status
from ..model.delivery import State, open_delivery
from ..model.message import FIRST_HOPS, Recipient, same_name
from ..model.names import AT, POSTMASTER, check_agent, check_id, check_kind, check_party, fold
from ..model.query import Query
from ..model.record import BEAT, CARD
from ..model.task import TASK_UPDATE, answer
from ..model.values import check_count, check_label, check_object
from ..policy import admission
from ..policy.retry import latest_retry
from ..store.files import entries, letter_files
from ..store.files.layouts.base import OWN, Where, text_of, time_or_none
from ..store.files.layouts.nanobot import LAYOUT
from ..store.protocol import Post

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from ..core.core import Core
    from ..model.agent import Agent, Card
    from ..model.message import Message
    from ..model.query import Moment
    from ..store.protocol import Write


# -- the loop guard


def counted(core: Core, message: Message, to: str) -> Message:
    """Return the mail with its true hops and trace, or refuse it."""
    relayed = _relayed_letter(core, message, to)
    if relayed is None:
        return replace(message, hops=min(message.hops, FIRST_HOPS), trace=(message.sender,))
    targets = names.names_of(core, names.current_name(core, to))
    try:
        hops, trace = admission.relay(relayed, message.sender, targets, FIRST_HOPS)
    except HopsSpent as spent:
        spent.field = "ttl"
        raise
    return replace(message, hops=hops, trace=trace)


def letter_above(core: Core, message: Message) -> Message | None:
    """Return the letter that this one answers, if its sender has it."""
    if message.in_reply_to is None:
        return None
    try:
        return messages.known_letter(core, message.sender, message.in_reply_to)
    except UnknownMessage:
        return None


def _relayed_letter(core: Core, message: Message, to: str) -> Message | None:
    """Return the letter that is relayed, as the sender received it; None for a first mail or an answer."""
    parent = letter_above(core, message)
    if parent is not None:
        parent = addressing.routed_to(core, parent)
        return parent if addressing.without_copy(core, parent, [to]) else None
    others = tuple(agent for agent in message.trace if not same_name(agent, message.sender))
    is_answer = message.kind == TASK_UPDATE and any(same_name(agent, to) for agent in others)
    if not others or is_answer:
        return None
    # A sender that stands in the trace has already counted its own hop. The ttl cannot exceed what the hops in the
    # trace leave.
    hops = message.hops + (len(others) != len(message.trace))
    return replace(message, hops=min(hops, FIRST_HOPS + 1 - len(others)), trace=others)


# -- messages
#
# Files of other programs are read as they are. A message from a caller of ours that no reader of the file would
# understand is refused.

_HINT = "the message format is in docs/nanobot.md"
_LOST = {
    "task": "id, state, deadline, reason; the rest belongs in metadata",
    "content": 'parts of type text, data and file; any other type begins with "x-"',
    "trace": "names of agents",
}
_FILENAME = "_filename"  # added by `poll`: the file of the letter that was read, not of this one


def post_message(core: Core, sender: str, to: str, msg: dict[str, Any]) -> Post:
    """Return the letter, ready to be committed. Missing id, from, to and timestamp are filled into `msg`."""
    for name, field in ((sender, "from_id"), (to, "to_id")):
        if fold(name) == POSTMASTER:
            raise Invalid(f"{POSTMASTER!r} is reserved for the room itself", field=field)
    now = core.now().wall
    filled = _filled(core, sender, to, msg, now)
    # The caller's ttl and trace are only claims: the loop guard counts by what the room knows (G11).
    message = counted(core, _followed(core, _letter(core, sender, to, filled, now)), to)
    if is_person(core, sender):
        sign_letter(core, OWNER, message)  # here nobody signs: an answer is refused, another letter is unproven
    check_answer_rate(core, message)
    encoded = compose.encode_within_limit(message, core.limits)
    # Last: a message that is refused stays as the caller made it.
    msg.update({name: filled[name] for name in ("id", "from", "to", "timestamp")})
    return Post(
        message=message,
        encoded=encoded,
        deliveries=(open_delivery(message, to, "to", now),),
        quota=core.limits.inbox_quota,
        outbox=core.limits.outbox_max_letters,
        known_only=core.limits.unknown == "refuse",
        admit=partial(addressing.resolve_post, core),
        routes=AT in to,  # the commit checks that there is a route to that system
    )


def _filled(core: Core, sender: str, to: str, msg: Any, now: datetime) -> dict[str, Any]:
    fields = check_object(msg, "msg", core.limits.max_depth)
    filled = {name: value for name, value in fields.items() if value is not None and name != _FILENAME}
    for name, meant in (("from", sender), ("to", to)):
        if check_party(filled.get(name, meant), name) != meant:
            raise Invalid(f"is {filled[name]!a}, not {meant!a}", field=name)
        filled[name] = meant
    if "id" not in filled:
        filled["id"] = core.new_id(sender)
    filled.setdefault("timestamp", text_of(now))
    for name, check in _CHECKS.items():
        if name in filled and not check(filled[name]):
            raise Invalid("has the wrong type or value", field=name, hint=_HINT)
    check_id(filled["id"], "id")
    check_kind(filled.get("type", "message"), "type")
    if isinstance(filled.get("content"), str):  # readers of the files expect parts
        filled["content"] = {"parts": [{"type": "text", "text": filled["content"]}]}
    return filled


def _letter(core: Core, sender: str, to: str, values: dict[str, Any], now: datetime) -> Message:
    """Return the letter as a reader of its file would parse it. Fields that would be lost are refused."""
    metadata = {name: value for name, value in values.get("metadata", {}).items() if name != OWN}
    fields = values | {"metadata": metadata}
    where = Where(to, LAYOUT.places[0], "", now)
    raw = json.dumps(fields, ensure_ascii=False).encode()  # refuses what is not JSON: a caller may pass anything
    try:
        message = letter_files.parse_file(LAYOUT, raw, where, 2 * core.limits.max_message_bytes).message
    except Unreadable as wrong:
        raise Invalid(str(wrong), field="msg", hint=_HINT) from None
    written = LAYOUT.write(message, to)
    for name in ("task", "content", "trace"):
        if name in values and not _contains(written.get(name), values[name]):
            raise Invalid("would be changed or lost in the mail file", field=name, hint=_LOST[name])
    message = replace(message, kind=intern(message.kind), sender=sender, recipients=(Recipient(to),))
    if message.is_automatic:
        raise Invalid(f"only the room itself writes a {message.kind!r}", field="type")
    return message


def _followed(core: Core, message: Message) -> Message:
    """Return the message in the thread of the letter it answers, if its sender has that letter."""
    if message.in_reply_to is None:
        return _about_its_task(core, message)
    parent = letter_above(core, message)
    return message if parent is None else replace(message, thread_id=parent.thread)


def _about_its_task(core: Core, message: Message) -> Message:
    """Return an update that names only its task as an answer to the letter that opened the task."""
    if message.kind != TASK_UPDATE or message.task is None:
        return message
    found = [task for task in task_index.tasks_of(core, message.sender) if task.id == message.task.id]
    if len(found) != 1:
        return message
    return replace(message, in_reply_to=found[0].letter, thread_id=found[0].thread)


def _contains(written: Any, fields: Any) -> bool:
    """Return whether all these fields are in the written value; equal times may be spelt differently."""
    if isinstance(fields, dict) and isinstance(written, dict):
        return all(name in written and _contains(written[name], value) for name, value in fields.items())
    if isinstance(fields, list) and isinstance(written, (list, tuple)):
        return len(fields) == len(written) and all(map(_contains, written, fields))
    time = time_or_none(fields)
    return bool(written == fields) or (time is not None and time == time_or_none(written))


def _is_content(value: Any) -> bool:
    if isinstance(value, str):
        return True
    parts = value.get("parts", []) if isinstance(value, dict) else None
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _is_hops(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str),
    "timestamp": lambda value: time_or_none(value) is not None,
    "type": lambda value: isinstance(value, str),
    "ttl": _is_hops,
    "trace": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "task": lambda value: isinstance(value, dict),
    "content": _is_content,
    "callback": lambda value: isinstance(value, dict),
    "reply_to": lambda value: isinstance(value, str),
    "metadata": lambda value: isinstance(value, dict),
}


# -- cards and heartbeats
#
# `core.agents` decides which agents are online; these functions translate, and overwrite a card without asking.

_CARD_FIELDS = ("description", "capabilities", "allow_from", "max_concurrent_tasks")


def register(core: Core, name: str, card: Any) -> None:
    """Write a card, replacing any other, and a first heartbeat."""
    value = check_object(card, "card", core.limits.max_depth)
    if value.get("agent_id") not in {None, ""} and check_agent(value["agent_id"], "card.agent_id") != name:
        raise Invalid(f"is {value['agent_id']!a}, not {name!a}", field="card.agent_id")
    _check_no_person(core, name)
    moment = core.now()
    written, beat = _card(core, name, value, moment), _beat(value, moment)

    def plan() -> tuple[list[Write], None]:
        names.check_not_moved(core, name, "agent_id")
        # In one commit with its guard: between the two, the old allow list would judge mail for the new agent.
        held = find_record(core, CARD, name)
        writes = [
            put_record(CARD, name, written, held),
            *agents.membership_writes(core, name, written, held),
            *agents.allow_list_writes(core, name, written),
            put_record(BEAT, name, beat, find_record(core, BEAT, name), durable=False),
        ]
        return writes, None

    commit(core, plan)


def _check_no_person(core: Core, name: str) -> None:
    """Refuse to change who may write to a person, or whether they are there (G12)."""
    if is_person(core, name):
        check_person(core, OWNER, name, phrase_of("register"))


def update_status(core: Core, name: str, status: Any, current_tasks: Any) -> None:
    """Record a status, which counts as a heartbeat unless offline. Without `current_tasks` its tasks stay."""
    word = check_label(status, "status")
    if word == Status.OFFLINE:
        _check_no_person(core, name)
    tasks = None if current_tasks is None else agents.check_tasks(current_tasks)
    moment = core.now()

    def step(held: Heartbeat | None) -> Heartbeat:
        beat = held or agents.first_beat(moment)
        if word != Status.OFFLINE:
            beat = replace(beat, at=moment.wall, steady=moment.steady, boot=moment.boot)
        return _with_status(beat, word, tasks)

    change_record(core, BEAT, name, Heartbeat, step, durable=False)


def _entry(agent: Agent, beat: Heartbeat | None) -> dict[str, Any]:
    """Return an agent as the registry file shows it, as of now."""
    now = agent.presence
    is_online = now.status is not Status.OFFLINE
    status = Status.OFFLINE if beat is None else entries.status_word(beat, now.current_tasks, is_online=is_online)
    return entries.entry_of(agent.card, str(status), now.current_tasks, now.last_heartbeat)


def _card(core: Core, name: str, values: dict[str, Any], moment: Moment) -> Card:
    fields = {field: values[field] for field in _CARD_FIELDS if values.get(field) is not None}
    own = values.get(OWN)
    if isinstance(own, dict):
        fields |= {field: own[field] for field in entries.OURS if field in own and field != "principal"}
    unknown = {field: value for field, value in values.items() if field not in entries.FIELDS and field != OWN}
    card = agents.check_card(core, name, moment, fields | {"extra": unknown})
    if values.get("registered_at") is None:
        return card
    registered = time_or_none(values["registered_at"])
    if registered is None:
        raise Invalid(f"{values['registered_at']!a} is not a time", field="card.registered_at", hint="in ISO form")
    return replace(card, registered_at=registered)


def _beat(fields: dict[str, Any], moment: Moment) -> Heartbeat:
    tasks = agents.check_tasks(fields.get("current_tasks") or ())
    status = fields.get("status")
    word = Status.IDLE if status in {None, ""} else check_label(status, "card.status")
    return _with_status(agents.first_beat(moment), word, tasks)


def _with_status(beat: Heartbeat, status: str, tasks: tuple[str, ...] | None) -> Heartbeat:
    busy_with = beat.current_tasks if tasks is None else tasks
    left = status == Status.OFFLINE
    return replace(beat, current_tasks=busy_with, left=left, says=entries.own_status(status, busy_with))


# -- the manager

DEFAULT_ROOT = "~/.nanobot/mailboxes"
_FILE = re.compile(r"[^/\\\0.][^/\\\0]{0,250}\.msg\.json")


class MailboxManager:
    """The mailboxes of agents in a folder."""

    def __init__(self, mailboxes_root: str | os.PathLike[str] = DEFAULT_ROOT, **settings: Any) -> None:
        """Open the folder with the settings of a room, such as `durability="process"`."""
        self.root = Path(mailboxes_root).expanduser().absolute()
        self.room = room.open(f"files:{self.root}?layout=nanobot", **settings)
        self.core = self.room.core
        self._cards: dict[str, dict[str, Any]] = {}  # registered by this manager, to register again if they vanish

    # -- agents

    def register(self, agent_id: str, card: dict[str, Any]) -> None:
        """Write an agent's card, replacing any other, and create its folders. The agent is online from now on."""
        name = check_agent(agent_id, "agent_id")
        register(self.core, name, card)
        self._cards[name] = {**card}

    def heartbeat(self, agent_id: str) -> None:
        """Record a heartbeat. An agent without a card is registered, with the card last given to this manager."""
        name = check_agent(agent_id, "agent_id")
        if find_record(self.core, CARD, name) is None:
            register(self.core, name, self._cards.get(name, {}))
        else:
            perform(self.core, OWNER, agents.RecordHeartbeat(agent_id=name))

    def update_status(self, agent_id: str, status: str, current_tasks: list[str] | None = None) -> None:
        """Set the status: idle, busy, offline or a word of its own. Without `current_tasks` its tasks stay."""
        name = check_agent(agent_id, "agent_id")
        if find_record(self.core, CARD, name) is None:
            if status == Status.OFFLINE:
                return
            register(self.core, name, self._cards.get(name, {}))
        update_status(self.core, name, status, current_tasks)

    def list_online_agents(self) -> list[dict[str, Any]]:
        """Return all agents that are not offline, neither by their status nor by missing heartbeats."""
        beats = values_of(self.core, BEAT, Heartbeat)
        shown = [_entry(agent, beats.get(agent.card.id)) for agent in agents.registered_agents(self.core)]
        return [one for one in shown if one["status"] != Status.OFFLINE]

    def get_agent(self, agent_id: str) -> dict[str, Any] | None:
        """Return one agent as the registry file shows it, or None."""
        name = check_party(agent_id, "agent_id")
        try:
            agent = perform(self.core, OWNER, agents.GetAgent(name=name))
        except UnknownAgent:
            return None
        return _entry(agent, find_value(self.core, BEAT, name, Heartbeat))

    # -- mail

    def send(self, from_id: str, to_id: str, msg: dict[str, Any]) -> None:
        """Send a mail to an agent. It is on stable storage when this returns.

        Missing id, from, to and timestamp are filled in, in `msg` too.
        """
        sender, to = check_agent(from_id, "from_id"), check_party(to_id, "to_id")
        post = post_message(self.core, sender, to, msg)
        messages.commit_posts(self.core, [post], [post], answer)

    def poll(self, agent_id: str, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the mails of an inbox in the order of arrival, as they stand in their files, with `_filename`.

        Nothing is consumed: a mail that is not marked as processed comes again. `limit` returns only the first
        ones.
        """
        name = check_agent(agent_id, "agent_id")
        moment = self.core.now()
        query = Query(
            mailbox=name,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            due_most=latest_retry(moment.wall, self.core.limits),
            order="age",
            limit=None if limit is None else check_count(limit, "limit"),
        )
        found = deliveries.find_letters(self.core, query)
        return [fields | {"_filename": file} for _, file, fields in folders.file_contents(self.core, found)]

    def mark_processed(self, agent_id: str, filename: str) -> None:
        """Move a mail to `processed/`. A mail that is no longer in the inbox is left alone."""
        name = check_agent(agent_id, "agent_id")
        # The name becomes part of a path, and comes from a program that a model may have written.
        if not isinstance(filename, str) or not _FILE.fullmatch(filename):
            raise Invalid(
                f"{filename!a} is not a mail's file name", field="filename", hint="use a _filename from poll"
            )
        id = folders.id_in_file(self.core, name, "inbox", filename)
        if id is None:
            return
        with suppress(UnknownMessage, IllegalMove):  # another process was quicker
            held = inbox.received(self.core, name, id)
            if held.delivery.state is State.CLAIMED:
                raise LeaseLost(f"{filename} is held by another worker", field="filename")
            perform(self.core, OWNER, work.Ack(agent_id=name, ids=id, held=[held]))

    # -- closing

    def close(self) -> None:
        """Close the files. A manager that is used again opens them again."""
        self.room.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
