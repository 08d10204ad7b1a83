"""Small named things with a revision: find one, write it as it was found. For plans, so nobody is in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.record import Record
from ..store.base import Put

if TYPE_CHECKING:
    from .office import Office


def find_record(office: Office, kind: str, key: str) -> Record | None:
    found = office.store.records(kind, key)
    return found[0] if found else None


def put_record(kind: str, key: str, value: Any, held: Record | None, *, durable: bool = True) -> Put:
    """Write a value in the place of `held`; None removes it."""
    revision = held.revision if held else 0
    return Put(record=Record(kind=kind, key=key, value=value, revision=revision), durable=durable)
