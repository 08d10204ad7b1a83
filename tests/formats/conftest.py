"""Every test that asks for a room runs once for each store."""

from __future__ import annotations

from tests.rooms import clock, house, kind, room

__all__ = ["clock", "house", "kind", "room"]
