"""One room on a PostgreSQL server, compared with one prepared insert of the same letter, on the same server.

The server is started here, with the durability it has by default. `bare` is one row by a prepared statement
through psycopg, in a transaction of its own: what the server can do at all.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from tests.postgres.server import HOW, Server, programs

import postroom
from postroom.mailbox import Mailbox, draft
from postroom.room import Room
from postroom.settings import Settings
from postroom.store.postgres.store import PostgresStore

from .measure import LETTER, Effort, Line, Turns, micros, per_second, ratio, take_turns, timed, typical
from .workers import Worker, now, start_together

TABLE = "CREATE TABLE IF NOT EXISTS bare (id text PRIMARY KEY, body bytea NOT NULL)"
INSERT = "INSERT INTO bare VALUES (%s, %b)"
WARM = 300
CROWDS = (8, 32)
MANY = 1000  # recipients of a broadcast
SNAPSHOT = 10.0  # seconds that an old snapshot is held; 25 in the full form


class Bare:
    """The least that keeps a letter."""

    def __init__(self, address: str) -> None:
        self._link = psycopg.connect(address.partition("?")[0], autocommit=True, prepare_threshold=0)
        self._next = 0
        self._name = f"{id(self)}-{time.monotonic_ns()}"
        self._body = LETTER.encode()

    def send(self) -> None:
        self._next += 1
        self._link.execute(INSERT, (f"{self._name}-{self._next}", self._body))

    def close(self) -> None:
        self._link.close()


def measure(effort: Effort, _folder: Path) -> Iterator[Line]:
    if programs() is None:
        print(f"no PostgreSQL here: {HOW}")
        return
    place = Path(
        tempfile.mkdtemp(dir="/var/tmp", prefix="postroom-bench-")
    )  # on a disk, and the server's user may enter
    place.chmod(0o755)
    server = Server(place).make().start()
    try:
        with psycopg.connect(server.address("x").partition("?")[0], autocommit=True) as link:
            link.execute(TABLE)
        yield from _alone(effort, server)
        yield from _crowds(effort, server)
        yield from _shared_mailbox(effort, server)
        yield from _broadcast(effort, server)
        yield from _wake(effort, server)
        yield from _snapshot(effort, server)
        yield from _growth(effort, server)
    finally:
        server.stop()
        shutil.rmtree(place)


def _room(server: Server, name: str) -> Room:
    return postroom.open(server.address(name))


def _alone(effort: Effort, server: Server) -> Iterator[Line]:
    room, bare = _room(server, "alone"), Bare(server.address("alone"))
    writer, reader = room.mailbox("writer"), room.mailbox("reader")
    for _ in range(WARM):
        writer.send("reader", LETTER)
        bare.send()
    reader.claim(WARM).ack()
    send: Callable[[], object] = lambda: writer.send("reader", LETTER)  # noqa: E731
    turns: Turns = {"ours": (send, effort.burst), "bare": (bare.send, effort.burst)}
    samples = take_turns(turns, effort.rounds)
    note = f"{micros(typical(samples, 'ours'))} / {micros(typical(samples, 'bare'))}"
    yield Line(
        name="send with notification, 1 client / bare", value=ratio(samples, "ours", "bare"), goal=1.8, note=note
    )
    reader.claim(10_000).ack()
    rounds = []
    for _ in range(effort.rounds):
        sent = effort.burst / sum(timed(send, effort.burst))
        one = effort.burst / sum(timed(lambda: _take(reader), effort.burst))
        timed(send, effort.burst)
        ten = effort.burst / sum(timed(lambda: reader.claim(10).ack(), effort.burst // 10))
        rounds.append((sent, one, ten))
    sent, one, ten = (median(column) for column in zip(*rounds, strict=True))
    yield Line(
        name="claim + ack one by one, rate / send rate",
        value=median(one / sent for sent, one, _ in rounds),
        goal=0.5,
        at_least=True,
        note=f"{per_second(one)} / {per_second(sent)}",
    )
    yield Line(
        name="claim(10) + one ack, rate / send rate",
        value=median(ten / sent for sent, _, ten in rounds),
        goal=3.0,
        at_least=True,
        note=per_second(ten),
    )
    bare.close()
    room.close()


def _take(reader: Mailbox) -> None:
    work = reader.claim()
    if work is not None:
        work.ack()


# -- many clients


def send_for(start: Callable[[], None], address: str, name: str, seconds: float) -> int:
    room = postroom.open(address)
    box = room.mailbox(name)
    for _ in range(20):
        box.send(f"{name}-to", LETTER)
    return _count(start, lambda: box.send(f"{name}-to", LETTER), seconds)


def bare_for(start: Callable[[], None], address: str, _name: str, seconds: float) -> int:
    bare = Bare(address)
    for _ in range(20):
        bare.send()
    return _count(start, bare.send, seconds)


def take_for(start: Callable[[], None], address: str, name: str, seconds: float) -> int:
    reader = postroom.open(address).mailbox(name)
    _take(reader)
    return _count(start, lambda: _take(reader), seconds)


def _count(start: Callable[[], None], act: Callable[[], object], seconds: float) -> int:
    start()
    end, done = now() + seconds, 0
    while now() < end:
        act()
        done += 1
    return done


def _together(job: Any, address: str, names: list[str], seconds: float) -> float:
    """What all of them did, per second."""
    workers = [Worker(job, address, name, seconds) for name in names]
    start_together(workers)
    return float(sum(worker.finish() for worker in workers)) / seconds


def _crowds(effort: Effort, server: Server) -> Iterator[Line]:
    for many in CROWDS:
        names = [f"w{number}" for number in range(many)]
        pairs = []
        for _ in range(effort.runs):
            bare = _together(bare_for, server.address("crowd"), names, effort.seconds)
            pairs.append((_together(send_for, server.address("crowd"), names, effort.seconds), bare))
        ours, bare = (median(column) for column in zip(*pairs, strict=True))
        yield Line(
            name=f"send, {many} clients, rate / bare of {many}",
            value=median(ours / bare for ours, bare in pairs),
            goal=0.5,
            at_least=True,
            note=f"{per_second(ours)} / {per_second(bare)}",
        )


def _shared_mailbox(effort: Effort, server: Server) -> Iterator[Line]:
    own = [f"own{number}" for number in range(8)]
    pairs = []
    with _room(server, "shared") as room:
        writer = room.mailbox("writer")
        for _ in range(effort.runs):
            need = int(1500 * effort.seconds)
            _fill(writer, own, need // 8 * 2)
            _fill(writer, ["common"], need)
            apart = _together(take_for, server.address("shared"), own, effort.seconds)
            pairs.append((_together(take_for, server.address("shared"), ["common"] * 8, effort.seconds), apart))
    common, apart = (median(column) for column in zip(*pairs, strict=True))
    yield Line(
        name="8 workers on one mailbox / on 8 mailboxes",
        value=median(one / other for one, other in pairs),
        goal=0.9,
        at_least=True,
        note=f"{per_second(common)} / {per_second(apart)}",
    )


def _fill(writer: Mailbox, names: list[str], each: int) -> None:
    drafts = [draft(name, LETTER) for name in names for _ in range(each)]
    for first in range(0, len(drafts), 500):
        writer.send_many(drafts[first : first + 500])


def _broadcast(effort: Effort, server: Server) -> Iterator[Line]:
    with _room(server, "wide") as room:
        writer, everyone = room.mailbox("writer"), [f"agent{number}" for number in range(MANY)]
        writer.send(everyone, LETTER)
        turns: Turns = {
            "all": (lambda: writer.send(everyone, LETTER), 2),
            "one": (lambda: writer.send("agent1", LETTER), 40),
        }
        samples = take_turns(turns, effort.rounds)
    yield Line(
        name=f"broadcast to {MANY:,} / one send",
        value=ratio(samples, "all", "one"),
        goal=20.0,
        note=f"{micros(typical(samples, 'all'))} / {micros(typical(samples, 'one'))}",
    )


def _wake(effort: Effort, server: Server) -> Iterator[Line]:
    """From the end of a send in one process until a waiter in another has the signal."""
    store, other = (PostgresStore(server.address("wake")) for _ in range(2))
    room = postroom.Room(other, Settings())
    writer, taken = room.mailbox("writer"), []
    watch = store.watch(["reader"])
    for _ in range(effort.burst):
        woken: list[float] = []

        def wait(woken: list[float] = woken) -> None:
            watch.wait(5.0)
            woken.append(now())

        waiter = threading.Thread(target=wait)
        waiter.start()
        writer.send("reader", LETTER)
        sent = now()
        waiter.join()
        taken.append(max(woken[0] - sent, 0.0))
    watch.close()
    store.close()
    other.close()
    taken.sort()
    yield Line(
        name="wake after send() returned",
        value=median(taken) * 1000,
        unit=" ms",
        goal=1.0,
        note=f"p99 {micros(taken[int(len(taken) * 0.99)])}",
    )


def _snapshot(effort: Effort, server: Server) -> Iterator[Line]:
    """Claims while somebody holds an old snapshot, compared with claims before."""
    held = 25.0 if effort.runs > 2 else SNAPSHOT
    with _room(server, "old") as room, psycopg.connect(server.address("x").partition("?")[0]) as other:
        writer, reader = room.mailbox("writer"), room.mailbox("reader")
        _fill(writer, ["reader"], int(1500 * held))
        before = timed(lambda: _take(reader), effort.burst)
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM pg_class LIMIT 1")
        end = now() + held
        done = 0
        while now() < end:
            _take(reader)
            done += 1
        after = timed(lambda: _take(reader), effort.burst)
        other.rollback()
    yield Line(
        name=f"claim + ack after {held:.0f} s beside an old snapshot / before",
        value=median(after) / median(before),
        goal=1.5,
        note=f"{micros(median(after))} / {micros(median(before))}, {done:,} letters meanwhile",
    )


def _growth(effort: Effort, server: Server) -> Iterator[Line]:
    """A look at the top 20 of 200 unread letters, in a small room and in a large one."""
    store = PostgresStore(server.address("grown"))
    room = postroom.Room(store, Settings())
    room.mailbox("writer").send("other", "x")
    _fill(room.mailbox("writer"), ["reader"], 200)
    reader = room.mailbox("reader")
    look: Callable[[], object] = lambda: reader.check(limit=20, peek=True)  # noqa: E731
    timed(look, effort.burst)
    small = timed(look, effort.burst)
    _grow(store, effort.largest)
    timed(look, effort.burst)
    large = timed(look, effort.burst)
    store.close()
    yield Line(
        name=f"check of 20 of 200 unread, among {effort.largest:,} letters / among 200",
        value=median(large) / median(small),
        goal=1.5,
        note=f"{micros(median(large))} / {micros(median(small))}",
    )


_COPY = """
INSERT INTO ROOM.letters SELECT l.number + n, l.id || n, l.sender, l.created_at, l.kind, l.scope, l.tags, l.thread,
       l.thread_tag, l.conversation, NULL, l.sum, l.body
FROM ROOM.letters l, generate_series(1000, 1000 + {many}) n WHERE l.id = '{id}'"""
_COPIES = """
INSERT INTO ROOM.deliveries (number, mailbox, kind, state, seen, rank, revision, attempts, delivered_at)
SELECT d.number + n, d.mailbox, d.kind, d.state, d.seen, d.rank, d.revision, d.attempts, d.delivered_at
FROM ROOM.deliveries d, generate_series(1000, 1000 + {many}) n WHERE d.number = {number}"""


def _grow(store: PostgresStore, many: int) -> None:
    """Make many letters by the server itself."""
    id, number = store.query(
        "SELECT id, number FROM ROOM.letters WHERE number = (SELECT min(number) FROM ROOM.letters)"
    )[0]
    with store.database.connection() as link:
        link.execute(store.database.sql(_COPY.format(many=many, id=id)))
        link.execute(store.database.sql(_COPIES.format(many=many, number=number)))
        link.execute("ANALYZE")
