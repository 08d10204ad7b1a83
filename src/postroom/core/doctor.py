"""The doctor: checks of a room's health, from the store's own checks to leases, clock, backlog and peers.

It changes nothing unless it is asked to repair, and then only what is safe. The one thing it always does is a real
write and a real read: of a record of its own, which it removes again.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated

from .. import __version__
from ..errors import PostroomError
from ..model.agent import Warmth
from ..model.delivery import State
from ..model.query import LetterQuery, Query
from ..model.report import Diagnosis, Finding, Level, Progress, error, note, ok, warning
from ..model.values import check_progress
from ..policy.trust import no_route
from ..store.protocol import known_names
from .agents import registered_agents
from .authorize import Principal
from .core import Core, probe_store
from .deliveries import apply_timers, count_dead, is_process_gone
from .outbox import count_waiting
from .peers import all_peers
from .verb import LOCAL, Verb, verb

SLOW = 1.0  # seconds for one durable write
AHEAD = timedelta(minutes=5)  # a letter written later than this has a wrong clock behind it
MOST = 10  # names listed in one finding
MANY = 1000  # how many overdue deliveries are counted


@verb("doctor", Diagnosis, action="doctor", slow=True)
class Doctor(Verb, kw_only=True):
    """Return the room's health, with a real write and read. `known` are findings from before it was opened."""

    full: Annotated[bool, "look at every letter"] = False
    repair: Annotated[bool, LOCAL] = False
    progress: Annotated[Progress | None, LOCAL] = None
    known: Annotated[Sequence[Finding], LOCAL] = ()

    def run(self, core: Core, principal: Principal) -> Diagnosis:
        report = check_progress(self.progress)
        findings = list(self.known)
        findings.append(ok("versions", f"Postroom {__version__}, Python {platform.python_version()}"))
        reached = [0, 0]

        def report_store(done: int, total: int) -> None:
            reached[:] = [done, total]
            report(done, total + len(CHECKS))

        try:
            findings += core.store.examine(repair=self.repair, full=self.full, progress=report_store)
        except PostroomError as broken:
            findings.append(error("store", broken.message, broken.hint or ""))
        total = reached[1] + len(CHECKS)
        unsound = any(finding.check == "letters" and finding.level is Level.ERROR for finding in findings)
        for place, (name, check) in enumerate(CHECKS.items(), start=reached[1] + 1):
            if (
                unsound and not self.repair and name in READ_LETTERS
            ):  # reading a damaged letter would quarantine it
                findings.append(
                    note(name, "not looked at while letters are damaged", "repair=True sets them aside")
                )
                continue
            try:
                findings += check(core, principal, self.repair)
            except PostroomError as broken:  # a check that cannot be made is a finding too
                findings.append(error(name, broken.message, broken.hint or ""))
            report(place, total)
        return Diagnosis(findings=tuple(findings))


@verb("quarantined", list[str], under="quarantined", action="room", writes=False)
class ListQuarantined(Verb, kw_only=True):
    """Return the ids of letters that were found damaged on disk and set aside."""

    def run(self, core: Core, _principal: Principal) -> list[str]:
        return core.store.quarantined()


def _write_and_read(core: Core, _caller: Principal, _repair: bool) -> Iterator[Finding]:
    spent = probe_store(core)
    if spent > SLOW:
        yield warning("write and read", f"works, but a write took {spent:.1f} s", "is the disk busy or failing?")
    else:
        yield ok("write and read", f"a durable write took {spent * 1000:.1f} ms")


def _leases(core: Core, _caller: Principal, repair: bool) -> Iterator[Finding]:
    """Check for leases that have run out, and for leases of processes that are gone."""
    moment = core.now()
    overdue = core.store.overdue(moment, None, MANY).found
    stale = [found for found in overdue if found.delivery.state is State.CLAIMED]
    text = f"{len(stale)}{'+' if len(overdue) == MANY else ''} claims have run out"
    if stale and repair:
        back = apply_timers(core, moment, None).get("lapse", 0)
        yield warning("leases", f"{text}; {back} letters are offered again", repaired=True)
    elif stale:
        names = sorted({found.delivery.mailbox for found in stale})[:MOST]
        hint = "repair=True or room.sweep() offers them again; so does the next claim in that mailbox"
        yield warning("leases", f"{text} at {', '.join(names)}", hint)
    else:
        yield ok("leases", "no claim is overdue")
    running = core.store.find(Query(states=(State.CLAIMED,), order="age", limit=MANY))
    gone = sorted(
        {f.delivery.lease.holder for f in running if f.delivery.lease and is_process_gone(f.delivery.lease.holder)}
    )
    if gone and not stale:
        hint = "their letters come back when the leases run out; this may be a process of another container"
        yield note("leases", f"claims are held by processes that are gone: {', '.join(gone[:MOST])}", hint)


def _clock(core: Core, _caller: Principal, _repair: bool) -> Iterator[Finding]:
    now = core.now().wall
    newest = core.store.letters(LetterQuery(order="newest", limit=100))
    # Two clocks, or one that was set back: order and leases are safe (G7), expiry is not.
    future = [letter.message for letter in newest if letter.message.created_at > now + AHEAD]
    if future:
        latest = max(message.created_at for message in future)
        hint = "set the clock; order and leases do not depend on it, expiry and retention do"
        yield warning(
            "clock",
            f"letters are dated in the future, up to {latest.isoformat()}; this clock shows {now.isoformat()}",
            hint,
        )
    else:
        yield ok("clock", f"{now.isoformat(timespec='seconds')}")


def _backlog(core: Core, _caller: Principal, _repair: bool) -> Iterator[Finding]:
    tallies = {tally.mailbox: tally for tally in core.store.count(Query(), by="state")}
    present = {agent.card.id: agent.presence.warmth for agent in registered_agents(core, gone=True)}
    waiting = {name for name, tally in tallies.items() if tally.backlog}
    gone = sorted(name for name in waiting if present.get(name) in {Warmth.GONE, Warmth.EXPIRED})
    strangers = sorted(waiting - set(known_names(core.store)))
    dead = {name: count_dead(core, name) for name, tally in tallies.items() if tally.dead}
    dead = {name: many for name, many in sorted(dead.items()) if many}
    if gone:
        yield note(
            "backlog", f"mail waits for agents that are gone: {_few(gone)}", "start them, or read it yourself"
        )
    if strangers:
        hint = "a typing error, or an agent that has not started yet"
        yield note("backlog", f"mail waits for names of no known agent: {_few(strangers)}", hint)
    if dead:
        many = sum(dead.values())
        yield note(
            "backlog",
            f"{many} dead letters lie at {_few(list(dead))}",
            "look at them with dead(), revive or purge",
        )
    if not (gone or strangers or dead):
        yield ok("backlog", f"{sum(tally.backlog for tally in tallies.values())} letters are open")


def _peers(core: Core, _caller: Principal, _repair: bool) -> Iterator[Finding]:
    """Check certificates and routes; silent in a room without peers and without mail for any."""
    known = all_peers(core)
    for peer in known.values():
        if peer.alert:
            text = f"{peer.system} came with another certificate, {peer.alert}, and was refused"
            hint = f"if its operator changed it: postroom peers trust {peer.system}; else this is another machine"
            yield warning("peers", text, hint)
    _, stranded = count_waiting(core)
    for system, many in stranded.items():
        hint = f"{no_route(known, system).hint}; what waits for longer than outbox_max_age is dead"
        waiting = "a letter waits" if many == 1 else f"{many} letters wait"
        yield warning("peers", f"{waiting} for {system}, to which there is no route", hint)
    if known and not stranded and not any(peer.alert for peer in known.values()):
        yield ok("peers", f"{len(known)} other systems are known: {_few(list(known))}")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


Check = Callable[[Core, Principal, bool], Iterator[Finding]]
READ_LETTERS = frozenset({"leases", "clock"})  # checks that read letters
CHECKS: dict[str, Check] = {
    "write and read": _write_and_read,
    "leases": _leases,
    "clock": _clock,
    "backlog": _backlog,
    "peers": _peers,
}
