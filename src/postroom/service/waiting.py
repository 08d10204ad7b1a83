"""Waiting: look, and if there is nothing, sleep until a bell rings or time itself brings something.

The watch is set before the second look, so nothing that arrives in between is slept through.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from .given import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .office import Office

T = TypeVar("T")
LONGEST_SLEEP = 60.0  # seconds; a bell is only a hint, so look now and then all the same


def wait_until(
    office: Office,
    mailboxes: Sequence[str],
    timeout: float,
    look: Callable[[], T | None],
    nap: Callable[[], float] = lambda: LONGEST_SLEEP,
) -> T | None:
    """What `look` finds, as soon as it finds something; None when the time is up. `nap`: after so many seconds
    another look is worth it, whatever the mailboxes' own timers say.
    """
    seconds = check_timeout(timeout)
    found = look()
    if found or seconds == 0:
        return found
    end = time.monotonic() + seconds
    watch = None
    try:
        watch = office.store.watch(mailboxes)
        while True:
            found = look()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            watch.wait(min(left, nap(), seconds_to_sleep(office, mailboxes)))
    finally:
        if watch is not None:
            watch.close()


def seconds_to_sleep(office: Office, mailboxes: Sequence[str]) -> float:
    """Until time itself brings something to one of these mailboxes."""
    timer = office.store.next_timer(office.now(), mailboxes)
    return LONGEST_SLEEP if timer is None else min(timer + 0.001, LONGEST_SLEEP)


def check_timeout(timeout: float) -> float:
    return check_seconds(timeout, "timeout")
