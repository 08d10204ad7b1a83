"""The links to other systems as the room knows them: whether anybody serves it, which links are up, since when.

The process that serves a room with peers records both, so that every other process can say why a letter waits. It
writes when a link comes or goes, and every BEAT seconds that it still runs. Nothing here opens a connection.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ..model.codec import convert
from ..model.names import ANYWHERE, fold
from ..model.peer import Carried
from ..model.record import EVERYONE, LINK, SERVED
from ..policy.trust import routes_to
from .core import change_record, find_record, find_value, put_record, values_of
from .peers import all_peers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..model.peer import Peer
    from ..store.protocol import Write
    from .core import Core


BEAT = 30.0  # seconds between two records that the serving process still runs
SILENT = timedelta(seconds=3 * BEAT)  # after which it counts as gone


class LinkStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a link is up, and since when."""

    system: str
    since: datetime
    is_up: bool = False
    problem: str = ""  # why it is down


class Served(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sign of life of the process that serves the room."""

    since: datetime
    seen: datetime
    is_over: bool = False  # it ended in order


def record_links(core: Core, problems: Mapping[str, str | None], began: datetime) -> None:
    """Record that this process serves the room since it `began`, and the state of its links.

    `problems`: by system, why its link is down; None if it is up.
    """

    def plan() -> Sequence[Write]:
        now, held = core.now().wall, {record.key: record for record in core.store.records(LINK)}
        writes: list[Write] = []
        for system, problem in problems.items():
            record = held.pop(fold(system), None)
            before = None if record is None else convert(record.value, LinkStatus)
            is_same = before is not None and before.is_up == (problem is None)
            since = before.since if before is not None and is_same else now
            after = LinkStatus(system=system, since=since, is_up=problem is None, problem=problem or "")
            if after != before:
                writes.append(put_record(LINK, fold(system), after, record, durable=False))
        gone = [put_record(LINK, key, None, record, durable=False) for key, record in held.items()]
        sign = put_record(
            SERVED, EVERYONE, Served(since=began, seen=now), find_record(core, SERVED, EVERYONE), durable=False
        )
        return [*writes, *gone, sign]

    core.store.commit(plan)


def record_end(core: Core, began: datetime) -> None:
    """Record that this process serves the room no more."""
    ended = Served(since=began, seen=core.now().wall, is_over=True)
    change_record(core, SERVED, EVERYONE, Served, lambda _: ended, durable=False)


def carried(core: Core, systems: Iterable[str]) -> tuple[Carried, ...]:
    """Return for each system what carries mail there now or, if nothing does, why not and since when."""
    peers = all_peers(core)
    served, statuses = find_value(core, SERVED, EVERYONE, Served), values_of(core, LINK, LinkStatus)
    return tuple(_carried(core, peers, served, statuses, system) for system in systems)


def _carried(
    core: Core, peers: Mapping[str, Peer], served: Served | None, statuses: Mapping[str, LinkStatus], system: str
) -> Carried:
    if system == ANYWHERE:
        ways = [peer for peer in peers.values() if peer.trusted]
    else:
        ways = list(routes_to(peers, system, core.limits))
    if not ways:
        is_known = any(fold(peer.system) == fold(system) for peer in peers.values())
        reason = f"{system} is not trusted" if is_known else f"{system} is not a known system"
        return Carried(system=system, state="unknown", reason=reason)
    fetching = [peer for peer in ways if peer.is_mount and not peer.place]
    if fetching:  # it has mounted this room, and carries the mail both ways itself
        return Carried(system=system, state="up")
    if served is None or served.is_over or core.now().wall - served.seen > SILENT:
        since = None if served is None else served.seen
        return Carried(system=system, state="unserved", since=since, reason="nobody serves this room")
    known = [statuses[fold(peer.system)] for peer in ways if fold(peer.system) in statuses]
    up = next((one for one in known if one.is_up), None)
    if up is not None:
        return Carried(system=system, state="up", since=up.since)
    first = next(iter(known), None) or LinkStatus(system=ways[0].system, since=served.since)
    why = f": {first.problem}" if first.problem else ""
    return Carried(
        system=system, state="down", since=first.since, reason=f"the link to {first.system} is down{why}"
    )
