"""What mail is: letters, deliveries, cards, records, and the tables that say how they may move.

Pure values. This room refuses to know files, clocks, randomness or policy: what a rule says is decided
above it in `policy`, where things are kept is decided beside it in `store`. Below it is only `errors`.
Values hold no cycles, so the frequent ones are kept from the garbage collector (`gc=False`).

Reading order: `message` (what is written), `delivery` (what moves), `task`, `thread`, `talk`, `card`, `record`,
`address` and `peer` (other systems), `webhook`, `target` and `signing` (who is called when mail waits), `query`,
`search` and `change` (how stores are asked), `words` (what text is made of), `names` and `values` (what may
enter), `codec` and `content` (JSON).
"""

from __future__ import annotations

from ..loading import on_demand

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from . import (
        address,
        book,
        card,
        change,
        codec,
        content,
        delivery,
        escalation,
        guard,
        handoff,
        hashing,
        health,
        message,
        names,
        parts,
        peer,
        query,
        record,
        ring,
        search,
        signing,
        stats,
        talk,
        target,
        task,
        template,
        thread,
        trace,
        values,
        webhook,
        words,
    )

__all__ = [
    "address",
    "book",
    "card",
    "change",
    "codec",
    "content",
    "delivery",
    "escalation",
    "guard",
    "handoff",
    "hashing",
    "health",
    "message",
    "names",
    "parts",
    "peer",
    "query",
    "record",
    "ring",
    "search",
    "signing",
    "stats",
    "talk",
    "target",
    "task",
    "template",
    "thread",
    "trace",
    "values",
    "webhook",
    "words",
]

__getattr__ = on_demand(__name__, __all__)
