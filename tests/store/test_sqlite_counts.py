"""The kept counts of waiting letters (L8, G10): right whatever is done, mended by the doctor, cheap to ask."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom import Level
from postroom.errors import QuotaFull
from postroom.model import delivery
from postroom.model.query import Query
from postroom.store.files.layouts.base import layout_named
from postroom.store.files.store import FileStore
from postroom.store.protocol import Move, Post, Posted, Store, Write, waiting_letters
from postroom.store.sqlite import writes as sqlite_writes
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.writes import WRONG
from tests.letters import BOOT, NOW, BootClock, ack, bury, forget, held, ids, letter, post, read, send
from tests.renaming import rename
from tests.store.helpers import database, opened

PLACES = pytest.mark.parametrize(("to", "limit"), [("bob", "quota"), ("bob@far", "outbox")])


@pytest.fixture(params=["sqlite", "chipset"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        made: Store = SqliteStore(tmp_path / "room.db", clock=BootClock(BOOT), durable=False)
    else:
        made = FileStore(tmp_path / "mail", layout_named(request.param), clock=BootClock(BOOT), durable=False)
    yield made
    made.close()


def look(store: Store, *, repair: bool = False) -> Level:
    """What the doctor says of the kept counts."""
    found = store.examine(repair=repair, full=False, progress=lambda _done, _of: None)
    return max(one.level for one in found if one.check == "counts")


# -- one floods, the others still get in (G10)


def limited(id: str, to: str, sender: str, limit: str, most: int) -> Post:
    return replace(post(letter(id, [to], sender=sender)), **{limit: most})


def flood(store: Store, to: str, limit: str) -> None:
    """One sender sends until it is refused, others follow; nothing is dropped, and room that gets free is used."""

    def sent(sender: str, most: int) -> list[str]:
        done: list[str] = []
        with suppress(QuotaFull):
            while len(done) < most:
                id = f"{sender}-{len(ids(store, Query()))}"
                store.commit([limited(id, to, sender, limit, 80)])
                done.append(id)
        return done

    first = sent("flooder", 100)
    assert len(first) == 40, "one takes more than half"
    others = [id for name in ("ann", "cleo", "dora") for id in sent(name, 1)]
    assert len(others) == 3, "the others are kept out"
    assert ids(store, Query(mailbox=to, order="age", states=delivery.OPEN)) == first + others, "mail is dropped"
    for id in first[:10]:
        before = held(store, id, to)
        store.commit(
            [Move(before, delivery.bury(before, delivery.Attempt(at=NOW, holder="b", reason="x")), "bury")]
        )
    assert len(sent("flooder", 100)) == 8, (
        "what gets free is not used"
    )  # 30 of its letters are left, and half of what the others leave is 38
    assert look(store) is Level.OK


@PLACES
def test_one_that_floods_leaves_room_for_everybody_else(store: Store, to: str, limit: str) -> None:
    flood(store, to, limit)


def _only_the_total(_sender: str, mailbox: str, waiting: tuple[int, int], limit: int, more: int = 1) -> None:
    if waiting[0] + more > limit:
        raise QuotaFull(f"{mailbox} is full")


BUGS: dict[str, tuple[str, Any]] = {
    "what was read is never counted out": ("COUNT_ONE", sqlite_writes.COUNT_ONE.replace("?3", "max(0, ?3)")),
    "new letters are not counted": ("COUNT_ONE", "SELECT ?1, ?2, ?3"),
    "the first to come may take everything": ("check_space", _only_the_total),
}


@PLACES
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_in_the_counts_is_found(
    store: Store, to: str, limit: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writes, *BUGS[bug])
    with pytest.raises(AssertionError, match=r"one takes more than half|what gets free is not used"):
        flood(store, to, limit)


class Dropping(SqliteStore):
    """Gives up the oldest letter to make room for a new one."""

    def commit(self, writes: Any) -> tuple[Posted, ...]:
        try:
            return super().commit(writes)
        except QuotaFull:
            oldest = self.find(Query(mailbox=writes[0].deliveries[0].mailbox, order="age", states=delivery.OPEN))[
                0
            ]
            gone = delivery.bury(oldest.delivery, delivery.Attempt(at=NOW, holder="b", reason="full"))
            super().commit([Move(oldest.delivery, gone, "bury")])
            return super().commit(writes)


@PLACES
def test_a_store_that_drops_mail_to_make_room_is_found(tmp_path: Path, to: str, limit: str) -> None:
    store = Dropping(tmp_path / "room.db", clock=BootClock(BOOT), durable=False)
    with pytest.raises(AssertionError, match="one takes more than half"):
        flood(store, to, limit)
    store.close()


# -- right after whatever is done


def test_the_counts_stay_right_whatever_is_done(store: Store) -> None:
    several: list[Write] = [post(letter(f"s{n}", ["bob", "cleo", "x@far"])) for n in range(9)]
    store.commit(several)
    store.commit([replace(post(letter("wide", ["n"])), copies=tuple(f"n{n}" for n in range(150)))])
    read(store, held(store, "s0"))
    found = [held(store, f"s{n}") for n in range(1, 6)]
    store.commit([Move(one, delivery.read(one, NOW), "read") for one in found])  # together
    dead = bury(store, held(store, "s6", "cleo"))
    store.commit([Move(dead, delivery.revive(dead), "revive")])
    dead = bury(store, held(store, "s6", "x@far"))
    store.commit([Move(dead, delivery.requeue(dead, NOW), "requeue")])
    for to in ("bob", "cleo"):
        ack(store, held(store, "s7", to))
    bury(store, held(store, "s7", "x@far"))
    store.commit(forget(store.get(["s7"])["s7"].message))
    with pytest.raises(Exception, match="r"):  # a commit that fails changes nothing
        store.commit([post(letter("never")), *forget(letter("nobody"))])
    assert look(store) is Level.OK
    found_all = store.find(Query(states=delivery.OPEN))
    for place in ("bob", "cleo", "x@far", "n", "n149"):
        waits = [one for one in found_all if one.delivery.mailbox == place and one.delivery.waits]
        assert waiting_letters(store, place, "ann") == (len(waits), len(waits))


def test_a_damaged_letter_that_is_set_aside_counts_no_more(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        for n in range(70):
            send(store, f"m{n}")
        with database(tmp_path / "room.db") as room:
            room.execute("UPDATE letters SET body = x'00' WHERE number IN (3, 69)")
        assert len(store.find(Query(mailbox="bob"))) == 68
        assert (waiting_letters(store, "bob", "ann"), look(store)) == ((68, 68), Level.OK)


def test_a_delivery_without_a_letter_counts_nowhere(tmp_path: Path) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        send(store, "m1")
        lost = held(store, "m1")
        with database(tmp_path / "room.db") as room:
            sqlite_writes.count_deliveries(room.execute, lost.number, 0, -1)
            room.execute("DELETE FROM letters")
        store.commit([Move(lost, delivery.read(lost, NOW), "read")])
        assert (waiting_letters(store, "bob", "ann"), look(store)) == ((0, 0), Level.OK)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE waiting SET letters = letters + 5 WHERE sender <> 0",
        "UPDATE waiting SET letters = 3 WHERE sender = 0",
        "DELETE FROM waiting",
        "INSERT INTO waiting VALUES ('nowhere', 1, 7)",
    ],
)
def test_the_doctor_finds_wrong_counts_and_counts_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "room.db"
    with opened(path, durable=False) as store:
        for n in range(70):
            send(store, f"m{n}", ["bob", "x@far"])
    with database(path) as room:
        room.execute(damage)
    with opened(path, durable=False) as store:
        assert (look(store), look(store, repair=True), look(store)) == (Level.ERROR, Level.ERROR, Level.OK)
        assert [waiting_letters(store, name, "ann") for name in ("bob", "y@far")] == [(70, 70)] * 2


def test_counts_go_with_a_backup_an_import_and_a_rename(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db", durability="process") as room:
        room.mailbox("ann").send_many([postroom.draft(["bob", "cleo"], "x") for _ in range(70)])
        room.mailbox("bob").check(5)
        rename(room, "bob", "bert")
        room.backup(tmp_path / "copy.db")
        lines = [*room.export()]
    with postroom.open(tmp_path / "other.db", durability="process") as other:
        other.load(lines)
    for name in ("room.db", "copy.db", "other.db"):
        with postroom.open(tmp_path / name) as copy:
            assert waiting_letters(copy.core.store, "bert", "ann") == (65, 65)
        with database(tmp_path / name) as room:
            assert room.execute(WRONG).get == 0


# -- what it costs


@PLACES
def test_a_send_looks_at_no_more_rows_in_a_full_inbox_than_in_an_empty_one(
    tmp_path: Path, to: str, limit: str
) -> None:
    with opened(tmp_path / "room.db", durable=False) as store:
        send(store, "first", [to])
        few = _steps(store, "few", to, limit)
        store.commit([post(letter(f"m{n}", [to], sender=f"s{n % 9}")) for n in range(3000)])
        done = [held(store, f"m{n}", to) for n in range(1000)]
        store.commit([Move(one, delivery.expire(one, NOW), "expire") for one in done])
        assert _steps(store, "many", to, limit) < few + 2000, "it looks at more rows"


def test_a_store_that_counts_for_each_send_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = "SELECT count(*) FROM deliveries WHERE mailbox = ? AND state = 1 AND seen = 0"
    monkeypatch.setattr(sqlite_writes, "waiting_at", lambda execute, place, _: (execute(count, (place,)).get, 0))
    with pytest.raises(AssertionError, match="it looks at more rows"):
        test_a_send_looks_at_no_more_rows_in_a_full_inbox_than_in_an_empty_one(tmp_path, "bob", "quota")


def _steps(store: SqliteStore, id: str, to: str, limit: str) -> int:
    """How many steps SQLite takes for a few sends, each with a look at the counts."""
    taken = 0

    def step() -> bool:
        nonlocal taken
        taken += 10
        return False

    database = store.connection().database
    database.set_progress_handler(step, 10)
    for n in range(4):
        store.commit([limited(f"{id}{n}", to, f"{id}{n}", limit, 2100)])
    database.set_progress_handler(None)
    return taken
