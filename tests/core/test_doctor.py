"""The doctor (B7): an intact room is healthy, what is wrong is found, and repairs are safe and told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import postroom
from postroom import Diagnosis, Finding, Level, Room, StoreFailing
from postroom.core import doctor
from postroom.core.core import PULSE
from postroom.model.record import Record
from postroom.settings import misspelt
from postroom.store.protocol import Put
from tests.rooms import FakeClock, RoomFactory, texts

pytestmark = pytest.mark.disk  # the doctor warns of rooms in memory


def found(diagnosis: Diagnosis, check: str) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.check == check]


def one(diagnosis: Diagnosis, check: str) -> Finding:
    (finding,) = found(diagnosis, check)
    return finding


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("POSTROOM_") and name != "POSTROOM_TEST_DISK"]:
        monkeypatch.delenv(name)


def test_an_intact_room_is_healthy_and_every_check_says_so(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    room.mailbox("bob").register()
    diagnosis = room.doctor(full=True)
    assert diagnosis.is_healthy
    assert not any(finding.repaired for finding in diagnosis.findings)
    assert {"versions", "write and read", "leases", "clock", "backlog", "durability"} <= {
        finding.check for finding in diagnosis.findings
    }


def test_a_doctor_changes_nothing_that_users_see(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", "x")
    before = (room.stats(), room.mailboxes(), factory.store.records(PULSE))
    room.doctor()
    room.doctor(repair=True)
    assert (room.stats(), room.mailboxes(), factory.store.records(PULSE)) == before
    assert texts(room.mailbox("bob").check()) == ["x"]


def test_what_a_killed_doctor_left_behind_is_removed(factory: RoomFactory) -> None:
    factory.store.commit([Put(record=Record(kind=PULSE, key=PULSE, value="x"))])
    factory.room().doctor()
    assert factory.store.records(PULSE) == []


def test_a_room_that_takes_no_writes_is_found(factory: RoomFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_writes: object) -> None:
        raise StoreFailing("the disk is full", hint="make space")

    room = factory.room()
    monkeypatch.setattr(type(factory.store), "commit", lambda _store, writes: refuse(writes))
    finding = one(room.doctor(), "write and read")
    assert (finding.level, finding.what, finding.hint) == (Level.ERROR, "the disk is full", "make space")


def test_a_room_that_forgets_what_was_written_is_found(
    factory: RoomFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = factory.room()
    monkeypatch.setattr(type(factory.store), "commit", lambda _store, _writes: ())
    assert one(room.doctor(), "write and read").level is Level.ERROR


def test_a_slow_disk_is_noticed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SLOW", 0.0)
    assert one(room.doctor(), "write and read").level is Level.WARNING


def test_stale_leases_are_found_and_offered_again_when_asked(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x")
    work = room.mailbox("bob").claim(lease=10, holder="somebody")
    assert work
    assert one(room.doctor(), "leases").level is Level.OK
    clock.advance(11)
    finding = one(room.doctor(), "leases")
    assert (finding.level, finding.repaired) == (Level.WARNING, False)
    assert "bob" in finding.what
    assert not room.doctor().is_healthy
    repaired = room.doctor(repair=True)
    assert one(repaired, "leases").repaired
    assert repaired.is_healthy
    assert one(room.doctor(), "leases").level is Level.OK
    assert room.mailbox("bob").claim()


def test_a_claim_of_a_process_that_is_gone_is_noted_and_left_alone(room: Room) -> None:
    room.mailbox("ann").send_many([postroom.draft("bob", str(n)) for n in range(4)])
    bob = room.mailbox("bob")
    gone = 2**22 + 1  # above the largest process id there is
    assert bob.claim(lease=100) and bob.claim(lease=100, holder=f"bob (process {gone})")
    assert bob.claim(lease=100, holder="bob (process 1)") and bob.claim(lease=100, holder="no process")
    diagnosis = room.doctor(repair=True)
    notes = [finding.what for finding in found(diagnosis, "leases") if finding.level is Level.NOTE]
    assert notes == [f"claims are held by processes that are gone: bob (process {gone})"]
    assert bob.claim() is None


def test_letters_from_the_future_are_noticed(room: Room, clock: FakeClock) -> None:
    clock.jump(3600)
    room.mailbox("ann").send("bob", "x")
    assert one(room.doctor(), "clock").level is Level.OK
    clock.jump(-3600)
    finding = one(room.doctor(), "clock")
    assert finding.level is Level.WARNING
    assert "future" in finding.what


def test_mail_that_nobody_will_read_is_noted(room: Room, clock: FakeClock) -> None:
    room.mailbox("bob").register()
    room.mailbox("ann").send(["bob", *(f"typo-{n:02}" for n in range(12))], "x")
    room.mailbox("typo-00").check()[0].reject("no")
    assert "bob" not in str(found(room.doctor(), "backlog"))
    clock.advance(100_000)
    results = [finding.what for finding in found(room.doctor(), "backlog")]
    assert results[0] == "mail waits for agents that are gone: bob"
    assert results[1].endswith("typo-10 and 1 more")
    assert results[2] == "1 dead letters lie at typo-00"
    assert room.doctor().is_healthy  # worth knowing, not wrong


def test_a_doctor_tells_how_far_it_is(room: Room) -> None:
    results: list[tuple[int, int]] = []
    room.doctor(progress=lambda *at: results.append(at))
    assert results == sorted(results)
    assert results[-1][0] == results[-1][1]
    assert len({total for _, total in results}) == 1


def test_a_misspelt_variable_is_noticed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_DURABILTY", "process")
    finding = one(room.doctor(), "settings")
    assert (finding.level, finding.hint) == (Level.WARNING, "did you mean POSTROOM_DURABILITY?")


def test_only_what_looks_like_a_setting_counts_as_misspelt() -> None:
    environment = {
        "POSTROOM_STORE": "x",
        "POSTROOM_AGENT": "x",
        "POSTROOM_LEESE": "1",
        "postroom_store": "x",
        "X": "y",
    }
    assert misspelt(environment) == {"POSTROOM_LEESE": "POSTROOM_LEASE", "postroom_store": "POSTROOM_STORE"}


def test_levels_and_findings_read_as_words() -> None:
    assert [str(level) for level in Level] == ["ok", "note", "warning", "error"]
    assert Diagnosis(findings=()).worst is Level.OK


# -- from outside


def test_a_room_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    diagnosis = postroom.doctor(tmp_path / "room.db")
    assert one(diagnosis, "room").level is Level.NOTE
    assert list(tmp_path.iterdir()) == []


def test_a_bad_address_or_setting_is_a_finding(tmp_path: Path) -> None:
    room = tmp_path / "room.db"
    for diagnosis in (postroom.doctor("nonsense"), postroom.doctor(leese=5), postroom.doctor(room, lease=-1)):
        assert one(diagnosis, "settings").level is Level.ERROR


def test_a_room_in_memory_is_examined_too() -> None:
    diagnosis = postroom.doctor("memory:")
    assert diagnosis.is_healthy
    assert one(diagnosis, "durability").level is Level.NOTE


def test_the_users_own_room_is_examined_without_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert str(tmp_path) in one(postroom.doctor(), "room").what
    postroom.open().close()
    assert postroom.doctor().is_healthy
