"""`/metrics`: numbers of the room and the server, in the format of Prometheus. Only operators may read them: they
tell how much mail there is.
"""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.authorize import OWNER
from ..core.stats import RoomStats
from ..core.verb import perform
from .flow import resident
from .http import Reply, error_reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..core.authorize import Principal
    from ..model.report import Stats
    from .executor import Counters, Executor


TYPE = b"text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[dict[str, str], float]


async def metrics(executor: Executor, caller: Principal) -> Reply:
    if not caller.operator:
        return error_reply(403, "/metrics needs an operator's token: postroom tokens create, without --agent")
    stats = await executor.run_slow(partial(perform, executor.core, OWNER, RoomStats()))
    links = [] if executor.links is None else executor.links.describe()
    lines = [*_room_lines(stats), *server_lines(executor.counters), *link_lines(links), *_process_lines()]
    return Reply(200, ("\n".join(lines) + "\n").encode(), type=TYPE)


def _room_lines(stats: Stats) -> Iterator[str]:
    yield from _one("letters", "gauge", "letters in the room", stats.letters)
    states = [({"state": state.value}, many) for state, many in stats.states.items()]
    yield from _family("deliveries", "gauge", "deliveries by state; unread is in the inbox, read or not", states)
    unread = [({"priority": priority.name.lower()}, many) for priority, many in stats.unread.items()]
    yield from _family("unread", "gauge", "letters that nobody has read, by priority", unread)
    yield from _one("agents", "gauge", "registered agents", stats.agents)
    yield from _one("quarantined", "gauge", "letters that were found damaged", stats.quarantined)


def server_lines(counters: Counters) -> Iterator[str]:
    calls = [({"method": method, "outcome": outcome}, n) for (method, outcome), n in counters.calls.items()]
    yield from _family("calls_total", "counter", "calls by method and outcome", calls)
    seconds = [({"method": method}, spent) for method, spent in counters.seconds.items()]
    about = "seconds from a call's arrival to its answer; waiting for mail included"
    yield from _family("call_seconds_total", "counter", about, seconds)
    about = "batches of calls; each was made safe by one sync at most"
    yield from _one("batches_total", "counter", about, counters.batches)
    yield from _one("batched_calls_total", "counter", "calls in those batches", counters.batched)
    by_transport = [({"rim": transport}, count()) for transport, count in counters.connections.items()]
    yield from _family("connections", "gauge", "open connections", by_transport)
    if counters.rings:
        rings = [({"webhook": webhook, "outcome": outcome}, n) for (webhook, outcome), n in counters.rings.items()]
        yield from _family("webhook_calls_total", "counter", "calls of webhooks, and what came of them", rings)
    yield from _one("subscribers", "gauge", "subscriptions to what happens", counters.subscribers())
    yield from _one("uptime_seconds", "gauge", "since the post room opened", counters.uptime)
    yield from _family("info", "gauge", "which version it is", [({"version": __version__}, 1)])


def link_lines(links: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not links:
        return
    up = [({"system": link["system"], "state": link["state"]}, 1) for link in links]
    yield from _family("links", "gauge", "links to other systems, and how each is", up)
    for way, about in (("sent", "letters that another system keeps"), ("taken", "letters from another system")):
        results = [({"system": link["system"]}, link[way]) for link in links]
        yield from _family(f"federation_{way}_total", "counter", about, results)


def _process_lines() -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield from _family("process_cpu_seconds_total", "counter", "of this process", [({}, time.process_time())], "")
    memory = resident()
    if memory is not None:
        yield from _family("process_resident_memory_bytes", "gauge", "of this process", [({}, memory)], "")
    yield from _one("page_faults_total", "counter", "pages that had to be read from disk", used.ru_majflt)


def _one(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    return _family(name, kind, about, [({}, value)])


def _family(
    name: str, kind: str, about: str, samples: Iterable[Sample], prefix: str = "postroom_"
) -> Iterator[str]:
    yield f"# HELP {prefix}{name} {about}"
    yield f"# TYPE {prefix}{name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{prefix}{name}{{{inside}}} {value:.17g}" if inside else f"{prefix}{name} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
