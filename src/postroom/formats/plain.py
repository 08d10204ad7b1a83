"""The codec of our own JSON, in which every field is always present."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ..model.codec import to_plain
from ..model.delivery import forwarded_to
from ..model.message import Message, Template
from ..model.query import Found, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.agents import Agents
    from ..core.messages import Receipt
    from ..core.tasks import FoundTask
    from ..core.tokens import Token
    from ..core.waiting import Entry
    from ..core.work import Claimed, Revived, Settled
    from ..letter import Letter
    from ..model.agent import Agent
    from ..model.alert import Rung
    from ..model.delivery import Delivery
    from ..model.report import Diagnosis, Stats, Stop, Trace
    from ..model.task import Escalation
    from ..task import Task


def plain(value: Any) -> Any:
    """Return any value that a verb returns as JSON."""
    encode = encoders().get(type(value))
    if encode is not None:
        return encode(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return to_plain(value)


def result_names(result: Any) -> tuple[str, ...]:
    """Return the fields of the JSON of a verb's result."""
    names: tuple[str, ...] = _RESULT_NAMES.get(result.__name__) or result.__struct_fields__
    return names


def plain_found(found: Found) -> dict[str, Any]:
    """Return a letter with its delivery, as the owner of the mailbox may see it."""
    message = found.message.seen_by(found.delivery.mailbox)
    return plain_message(message) | {"delivery": plain_delivery(found.delivery)}


def plain_claimed(claimed: Claimed) -> dict[str, Any]:
    """Return claimed letters, each with the token that proves who holds it (G5)."""
    letters = []
    for found in claimed.letters:
        lease = found.delivery.lease
        token = lease.token if lease else None
        letters.append(plain_found(found) | {"token": token, "lease_seconds": claimed.lease})
    return {"letters": letters}


def plain_letter(letter: Letter) -> dict[str, Any]:
    """Return a letter with its delivery."""
    return plain_message(letter.message) | {"delivery": plain_delivery(letter.delivery)}


def plain_message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(message))
    plain["priority"] = message.priority.name.lower()
    plain["task"] = None if message.task is None else to_plain(asdict(message.task))
    return plain | {"text": message.text, "thread": message.thread}


def plain_delivery(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery without the lease token, which only the claiming agent gets, once."""
    plain: dict[str, Any] = to_plain(asdict(delivery))
    # The token proves who holds the letter (G5): a reader of the listing could settle it.
    del plain["lease"], plain["priority"], plain["message_id"]
    holder = delivery.lease.holder if delivery.lease else None
    return plain | {"holder": holder, "forwarded": plain_forwarded(delivery)}


def plain_forwarded(at: Delivery | Stop) -> dict[str, Any] | None:
    """Return where a letter went on to, and since when; None if it ends here."""
    where = forwarded_to(at)
    return None if where is None else {"where": where, "since": to_plain(at.acked_at)}


def plain_settled(settled: Settled) -> dict[str, Any]:
    receipts = [plain_receipt(receipt) for receipt in settled.receipts]
    return {"letters": [plain_move(found) for found in settled.letters], "receipts": receipts}


def plain_revived(revived: Revived) -> dict[str, Any]:
    return {"letters": [plain_move(found) for found in revived.letters]}


def plain_move(letter: Letter | Found) -> dict[str, Any]:
    """Return the state of a letter after it was settled."""
    delivery = letter.delivery
    return {
        "id": delivery.message_id,
        "state": str(delivery.state),
        "attempts": delivery.attempts,
        "reason": delivery.reason,
        "due_at": to_plain(delivery.due_at),
    }


def plain_receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "thread": receipt.thread,
        "repeated": receipt.repeated,
        "unknown": list(receipt.unknown),
        "routed": list(receipt.routed),
        "carried": [to_plain(asdict(one)) for one in receipt.carried],
        "letter": plain_message(receipt.message),
    }


def plain_task(task: Task | FoundTask) -> dict[str, Any]:
    standing: dict[str, Any] = to_plain(asdict(task.standing))
    # Outside, a task is named by the letter that opened it; the name in its letters is `called`.
    called, id = standing.pop("id"), standing.pop("letter")
    return {"id": id, "called": called, **standing, "is_final": task.standing.is_final, "session": task.session}


def plain_escalation(one: Escalation) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(one))
    return plain | {"priority": one.priority.name.lower(), "waits_for": one.waits_for}


def plain_entry(entry: Entry) -> dict[str, Any]:
    """Return something that waits for an agent; `from` is a keyword of Python and no name of a field there."""
    names = ("from" if name == "sender" else name for name in entry.__struct_fields__)
    values = (to_plain(getattr(entry, name)) for name in entry.__struct_fields__)
    return dict(zip(names, values, strict=True)) | {"priority": entry.priority.name.lower()}


def plain_rung(rung: Rung) -> dict[str, Any]:
    letters = [asdict(one) | {"priority": one.priority.name.lower()} for one in rung.letters]
    return asdict(rung) | {"letters": letters}


def plain_template(template: Template) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(template))
    return plain | {"priority": template.priority.name.lower(), "places": list(template.places)}


def plain_token(token: Token) -> dict[str, Any]:
    """Return a token without the hash of its secret."""
    plain: dict[str, Any] = to_plain(asdict(token))
    del plain["hash"]
    return plain


def plain_agent(agent: Agent) -> dict[str, Any]:
    card = to_plain(asdict(agent.card))
    if not agent.registered:
        card["registered_at"] = None
    return {"card": card, "presence": to_plain(asdict(agent.presence)), "registered": agent.registered}


def plain_agents(found: Agents) -> dict[str, Any]:
    """Return agents; those of other systems only if they were asked for."""
    from .inbox import far_agent_record  # noqa: PLC0415 - for a server

    here = {"agents": [plain_agent(agent) for agent in found.agents]}
    if found.elsewhere is None:
        return here
    return here | {"elsewhere": [far_agent_record(*one) for one in found.elsewhere]}


def plain_stats(stats: Stats) -> dict[str, Any]:
    return {
        "letters": stats.letters,
        "deliveries": stats.deliveries,
        "states": {str(state): count for state, count in stats.states.items()},
        "unread": {priority.name.lower(): count for priority, count in stats.unread.items()},
        "oldest_unread_at": to_plain(stats.oldest_unread_at),
        "agents": stats.agents,
        "quarantined": stats.quarantined,
        "mailboxes": [plain_tally(tally) for tally in stats.mailboxes],
        "rates": [asdict(rate) for rate in stats.rates],
    }


def plain_tally(tally: Tally) -> dict[str, Any]:
    plain = {name: to_plain(getattr(tally, name)) for name in tally.__struct_fields__ if name != "unread"}
    unread = {priority.name.lower(): count for priority, count in tally.unread.items()}
    return plain | {"unread": unread, "total_unread": tally.total_unread, "backlog": tally.backlog}


def plain_diagnosis(found: Diagnosis) -> dict[str, Any]:
    findings = [asdict(finding) | {"level": str(finding.level)} for finding in found.findings]
    return {"healthy": found.is_healthy, "worst": str(found.worst), "findings": findings}


def plain_trace(trace: Trace) -> dict[str, Any]:
    return {
        "letter": plain_message(trace.message),
        "number": trace.number,
        "stops": [_plain_stop(stop) for stop in trace.stops],
        "replies": [plain_message(message) for message in trace.replies],
        "relays": [plain_message(message) for message in trace.relays],
        "bounces": [plain_message(message) for message in trace.bounces],
    }


def _plain_stop(stop: Stop) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(asdict(stop))
    lists = ("history", "rings", "sights")
    plain["forwarded"] = plain_forwarded(stop)
    return plain | {name: [to_plain(asdict(one)) for one in getattr(stop, name)] for name in lists}


@cache
def encoders() -> dict[type, Callable[[Any], Any]]:
    """Return the types of values with JSON of their own. Made on first use: a command that sends loads none."""
    from ..core.agents import Agents  # noqa: PLC0415
    from ..core.messages import Receipt  # noqa: PLC0415
    from ..core.tasks import FoundTask, Moved  # noqa: PLC0415
    from ..core.tokens import Token  # noqa: PLC0415
    from ..core.waiting import Entry  # noqa: PLC0415
    from ..core.work import Claimed, Revived, Settled  # noqa: PLC0415
    from ..model.agent import Agent  # noqa: PLC0415
    from ..model.alert import Rung  # noqa: PLC0415
    from ..model.peer import Peer  # noqa: PLC0415
    from ..model.peer import shown as shown_peer  # noqa: PLC0415
    from ..model.record import Change, Cursor  # noqa: PLC0415
    from ..model.report import Diagnosis, Stats, Trace  # noqa: PLC0415
    from ..model.task import Escalation  # noqa: PLC0415
    from ..model.webhook import Webhook, shown  # noqa: PLC0415

    return {
        Agent: plain_agent,
        Agents: plain_agents,
        Change: to_plain,
        Cursor: str,
        Diagnosis: plain_diagnosis,
        Stats: plain_stats,
        Claimed: plain_claimed,
        Entry: plain_entry,
        Escalation: plain_escalation,
        Found: plain_found,
        FoundTask: plain_task,
        Message: plain_message,
        Moved: lambda moved: {"task": plain_task(moved.task), "receipt": plain_receipt(moved.receipt)},
        Peer: lambda peer: to_plain(shown_peer(peer)),
        Receipt: plain_receipt,
        Revived: plain_revived,
        Rung: plain_rung,
        Settled: plain_settled,
        Tally: plain_tally,
        Template: plain_template,
        Token: plain_token,
        Trace: plain_trace,
        Webhook: lambda webhook: to_plain(shown(webhook)),
    }


# Fields of the JSON of results that have other names than the fields of the type.
_RESULT_NAMES = {
    "Moved": ("task", "receipt"),
    "Receipt": ("id", "thread", "repeated", "unknown", "routed", "carried", "letter"),
    "Tally": (*Tally.__struct_fields__, "total_unread", "backlog"),
    "Diagnosis": ("healthy", "worst", "findings"),
    "Trace": ("letter", "number", "stops", "replies", "relays", "bounces"),
}
