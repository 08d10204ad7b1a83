"""A room held against its ledger. Every broken promise is one complaint; no complaints, no broken promise.

The words of the ledger:

    try    key, to, ...       about to send this letter to these mailboxes
    sent   key                the room took it
    ask    number             about to claim something
    got    number, id, box    that claim was given this letter
    done   id, box            the room took the ack
"""

from __future__ import annotations

from postroom.model.query import Query
from postroom.store.base import Store
from tests.faults.ledger import Line, said


def audit(store: Store, written: list[Line]) -> list[str]:
    """All that is wrong."""
    there = {found.message.key for found in store.find(Query(order="age"))}
    return [f"lost: {key}" for (key,) in said(written, "sent") if key not in there]
