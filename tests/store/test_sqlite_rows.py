"""A move writes the columns it changes, and no others."""

from __future__ import annotations

import pytest

from postroom.model import delivery
from postroom.model.delivery import Delivery, open_delivery
from postroom.store.sqlite.rows import CHANGED, COLUMNS, delivery_row
from tests.letters import NOW, after, lease, letter

UNREAD = open_delivery(letter("m1"), "bob", "to", NOW)
LATER = delivery.retry(
    delivery.claim(UNREAD, lease()), delivery.Attempt(at=NOW, holder="bob", reason="no"), after(9)
)
CLAIMED = delivery.claim(LATER, lease())
STEPS = [
    ("read", UNREAD, delivery.read(UNREAD, NOW)),
    ("read", CLAIMED, delivery.read(CLAIMED, NOW)),
    ("claim", UNREAD, delivery.claim(UNREAD, lease())),
    ("claim", LATER, CLAIMED),
    ("ack", UNREAD, delivery.ack(UNREAD, NOW, archive=True)),
    ("ack", LATER, delivery.ack(LATER, NOW, archive=False)),
    ("ack", CLAIMED, delivery.ack(CLAIMED, NOW, archive=True)),
]


@pytest.mark.parametrize(("action", "before", "now"), STEPS)
def test_a_frequent_move_changes_only_its_own_columns(action: str, before: Delivery, now: Delivery) -> None:
    old, new = delivery_row(before, 1, 2), delivery_row(now, 1, 2)
    changed = {column for column, was, is_ in zip(COLUMNS, old, new, strict=True) if was != is_}
    columns, values = CHANGED[action]

    assert changed <= set(columns)
    assert dict(zip(columns, values(now), strict=True)).items() <= dict(zip(COLUMNS, new, strict=True)).items()


def test_every_frequent_move_is_tried() -> None:
    assert {action for action, *_ in STEPS} == set(CHANGED)
