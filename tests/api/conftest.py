"""Every test that asks for a room runs once for each store."""

from __future__ import annotations

from tests.rooms import clock, factory, kind, room

__all__ = ["clock", "factory", "kind", "room"]
