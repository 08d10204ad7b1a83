"""Times as the chipset writes them: ISO in UTC inside files, with dashes for colons in their names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

TICK = timedelta(microseconds=1)  # by so much is a time later than one that must come before it


def text_of(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_in(value: Any) -> datetime | None:
    """A time that somebody wrote, of any zone; one without a zone is UTC. None if it is no time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def name_of(time: datetime) -> str:
    """As the beginning of a file's name: always as long, so that names sort by time."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H-%M-%S.%f}Z"


def time_in_name(name: str) -> datetime | None:
    """Back again, from a name that begins so."""
    day, _, rest = name.removesuffix(".json").partition("T")
    clock = rest.partition("Z")[0].replace("-", ":")
    return time_in(f"{day}T{clock}Z")


def after(time: datetime, last: datetime | None) -> datetime:
    """This time, or the next possible one where it is not later than the last: clocks are set back."""
    try:
        return time if last is None or time > last else last + TICK
    except OverflowError:  # a stranger's, at the end of all days
        return time
