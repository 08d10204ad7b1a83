"""Does the room still take and give back what is written? Asked by whoever watches a running post room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StoreFailing
from .records import find_record, put_record

if TYPE_CHECKING:
    from .office import Office

PULSE = "pulse"  # a record that is written, read and removed; none is left behind


def beat(office: Office) -> None:
    """A real write and a real read, by the way that letters go. A record, not a letter: it rings nobody's bell and
    stays in nobody's history.
    """
    value = office.ids.token()
    office.store.commit([put_record(PULSE, PULSE, value, find_record(office, PULSE, PULSE))])
    found = find_record(office, PULSE, PULSE)
    if found is None or found.value != value:
        raise StoreFailing("what was written is not what is read", hint="do not trust this disk")
    office.store.commit([put_record(PULSE, PULSE, None, found)])
