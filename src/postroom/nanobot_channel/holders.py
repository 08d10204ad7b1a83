"""Whose claims may be taken over. A gateway signs its claims so that its successor knows them for dead.

A process is known by its number, by when it began, and by the namespace in which the number counts: numbers are
used again, and in a container the first process is always number 1. Of another namespace nothing is known; there
the lease decides.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .. import service
from ..model.delivery import State
from ..model.query import Query

if TYPE_CHECKING:
    from ..mailbox import Mailbox

_SIGNED = re.compile(r"gateway of \S+ \[(?P<place>[^ \]]*) (?P<began>[^ \]]*)\] \(process (?P<pid>\d+)\)")
_NO_MORE = ("Z", "X")  # it has ended, and whoever started it has not asked how


def free_dead_claims(mailbox: Mailbox) -> int:
    """Give back what is held by gateways of this agent that are certainly no more; how many letters it was."""
    office = mailbox._office
    held = office.store.find(Query(mailbox=mailbox.name, states=(State.CLAIMED,)))
    dead = [found for found in held if found.delivery.lease and is_dead(found.delivery.lease.holder)]
    if dead:
        service.holding.release(office, mailbox._caller, mailbox.name, dead)
    return len(dead)


def signature(agent: str) -> str:
    """How this process signs a claim."""
    pid = os.getpid()
    return f"gateway of {agent} [{_place()} {_began(pid)}] (process {pid})"


def is_dead(holder: str) -> bool:
    """Is it certain that the gateway that signed this is no more?"""
    signed = _SIGNED.fullmatch(holder)
    if signed is None or signed["place"] != _place() or not signed["place"]:
        return False
    return _began(int(signed["pid"])) != signed["began"]


@cache
def _place() -> str:
    """The namespace of our process numbers; empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return f"{Path('/proc/self/ns/pid').stat().st_ino}@{boot}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """When a process began, in the kernel's own count; `gone` if there is none, or none but its name on a list."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    state, *more = stat.rpartition(")")[2].split()
    return "gone" if state in _NO_MORE else more[18]
