"""Where a nanobot says that a turn is over. It differs with its versions.

From 0.3.5 on the bus for messages does. Before, another does, which is shown to tools alone when they are made.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_SHOWN: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the bus for messages


def note(context: Any) -> None:
    """What a tool is shown when it is made."""
    bus, said_at = getattr(context, "bus", None), getattr(context, "runtime_events", None)
    if bus is not None and said_at is not None:
        _SHOWN[bus] = said_at


def said_at(bus: Any) -> Any | None:
    """Has `subscribe`. None: this nanobot does not say when a turn is over."""
    return bus if hasattr(bus, "subscribe") else _SHOWN.get(bus)
