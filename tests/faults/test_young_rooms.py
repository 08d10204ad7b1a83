"""Rooms whose letters still lie in the log: no damage to a file makes confirmed letters vanish in silence.

A room of 1, 50 or 500 letters is damaged while nobody has it open, or while a daemon serves it: bits are flipped,
files are cut short, emptied, or replaced. Each letter that was confirmed must then be readable, or the room must
refuse to open, or the doctor must report it. And whoever only looks writes nothing.
"""

from __future__ import annotations

import hashlib
import logging
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

import postroom
from postroom.cli.main import main as command
from postroom.errors import Damaged, PostroomError, StoreFailing
from postroom.maintenance import AROUND
from postroom.model.report import Level
from postroom.store import peek
from postroom.store.sqlite import note
from postroom.store.sqlite.lock import WriterLock
from tests.conftest import LONG
from tests.daemons import Daemon
from tests.faults.forgetful_daemon import forget
from tests.faults.quick import quick_folder

SIZES = (1, 50, 500)
FILES = ("room.db", "room.db-wal", "room.db.lock")
FLIPS, CUTS = (400, 100) if LONG else (12, 4)  # of each file
KEPT = ("room.db", "room.db-wal")  # what a look may not change
pytestmark = pytest.mark.costly


class Sample(Struct, frozen=True):
    """A room that nobody has open: its files, and the texts of the letters that were confirmed."""

    files: dict[str, bytes]
    letters: set[str]

    def lay_out(self, folder: Path, name: str = "", content: bytes = b"") -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for file, whole in self.files.items():
            (folder / file).write_bytes(content if file == name else whole)
            (folder / file).chmod(0o600)
        (folder / "room.db-shm").touch(mode=0o600)  # without it there is no quick look
        return folder / "room.db"


def text(number: int) -> str:
    return f"letter number {number}"


def make_sample(folder: Path, count: int) -> Sample:
    with postroom.open(folder / "room.db") as room:
        for number in range(count):
            room.mailbox("ann").send("bob", text(number))
    files = {name: (folder / name).read_bytes() for name in FILES}
    return Sample(files, set(map(text, range(count))))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Sample]:
    return cache(lambda count: make_sample(tmp_path_factory.mktemp("young"), count))


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made / "room"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# -- the audit


def readable(room: Path) -> set[str] | PostroomError:
    """The letters that a reader is shown, or why it is refused."""
    try:
        with postroom.open(room) as opened:
            return {letter.text for letter in opened.mailbox("bob").check(None, peek=True)}
    except PostroomError as refused:
        return refused


def sums(room: Path) -> dict[str, str]:
    found = {name: room.with_name(name) for name in KEPT}
    return {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in found.items() if p.exists()}


def is_reported(room: Path) -> bool:
    findings = postroom.doctor(room, full=True).findings
    return any(f.level >= Level.WARNING for f in findings if f.check not in AROUND)


def silent(room: Path, letters: set[str], damaged: str = "room.db-wal") -> list[str]:
    """What is wrong with how a damaged room behaves: letters that are gone without a word, looks that write."""
    before, wrong = sums(room), []
    if peek.is_surely_empty(str(room), "bob"):
        wrong.append("a quick look says that there is no unread mail")
    seen = readable(room)
    if isinstance(seen, PostroomError):
        if not seen.hint:
            wrong.append(f"refused without a hint: {seen}")
        if sums(room) != before:
            wrong.append("a look wrote into a damaged room")
    missing = set() if isinstance(seen, PostroomError) else letters - seen
    if missing and damaged != "room.db":  # in which a damaged letter is set aside
        wrong.append(f"{len(missing)} letters are gone, and the room opens")
    if (missing or isinstance(seen, PostroomError)) and not is_reported(room):
        wrong.append(f"{len(missing)} letters are gone, and the doctor says all is well")
    return wrong


def damages(sample: Sample, chance: random.Random) -> Iterator[tuple[str, str, bytes]]:
    """What was done, to which file, and what it holds then. In the log only what was written so far counts."""
    for name, whole in sample.files.items():
        used = len(whole.rstrip(b"\0"))
        places = [0, min(20, len(whole) - 1), *(chance.randrange(used) for _ in range(FLIPS))]
        for at in places:
            flipped = whole[at] ^ (1 << chance.randrange(8))
            yield f"{name} flipped at {at}", name, whole[:at] + bytes([flipped]) + whole[at + 1 :]
        for at in (0, *(chance.randrange(used) for _ in range(CUTS))):
            yield f"{name} cut at {at}", name, whole[:at]


def audit(sample: Sample, folder: Path) -> list[str]:
    wrong = []
    for what, name, content in damages(sample, random.Random(7)):
        room = sample.lay_out(folder, name, content)
        wrong += [f"{what}: {each}" for each in silent(room, sample.letters, name)]
    return wrong


# -- rooms that nobody has open


@pytest.mark.parametrize("count", SIZES)
def test_no_damage_to_a_closed_room_hides_a_letter(
    samples: Callable[[int], Sample], folder: Path, count: int
) -> None:
    assert [] == audit(samples(count), folder)


def test_the_audit_finds_a_room_that_notes_nothing(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WriterLock, "note", forget)
    wrong = audit(make_sample(tmp_path, 50), folder)
    for way in ("flipped", "cut"):
        for what in ("the room opens", "a quick look says"):
            assert any(f"room.db-wal {way}" in each and what in each for each in wrong)


@pytest.mark.parametrize("name", KEPT)
def test_a_room_whose_file_was_emptied_says_so_and_what_to_do(
    samples: Callable[[int], Sample], folder: Path, name: str
) -> None:
    room = samples(50).lay_out(folder, name)
    refused = readable(room)
    assert isinstance(refused, Damaged)
    assert "postroom doctor --repair" in str(refused)


def test_letters_before_a_flipped_bit_are_saved_and_restored(
    samples: Callable[[int], Sample], folder: Path
) -> None:
    sample = samples(50)
    log = sample.files["room.db-wal"]
    at = log.index(text(20).encode())
    room = sample.lay_out(folder, "room.db-wal", log[:at] + b"L" + log[at + 1 :])
    findings = " ".join(found.what for found in postroom.doctor(room, repair=True).findings)
    assert "20 letters" in findings and "were confirmed and are missing" in findings
    report = postroom.restore(f"{room}.salvaged", room, overwrite=True)
    assert set(map(text, range(20))) == readable(room)
    assert Path(f"{report.kept}-wal").stat().st_size  # the damaged log is kept, too


def test_a_room_is_opened_without_its_lock_file_and_when_its_log_was_checkpointed_by_another_program(
    samples: Callable[[int], Sample], folder: Path
) -> None:
    sample = samples(50)
    room = sample.lay_out(folder)
    (folder / "room.db.lock").unlink()
    assert sample.letters == readable(room)
    room = sample.lay_out(folder)
    other = sqlite3.connect(room)
    assert (50,) == other.execute("SELECT count(*) FROM letters").fetchone()
    other.close()  # which deletes the log
    assert not (folder / "room.db-wal").exists()
    assert sample.letters == readable(room)


def test_a_new_room_has_its_tables_in_its_file_before_the_first_letter(folder: Path) -> None:
    folder.mkdir()
    with postroom.open(folder / "room.db"):
        pass
    (folder / "room.db-wal").write_bytes(b"")
    assert set() == readable(folder / "room.db")
    assert b"CREATE TABLE letters" in (folder / "room.db").read_bytes()


def test_after_a_room_was_removed_a_new_one_begins(samples: Callable[[int], Sample], folder: Path) -> None:
    room = samples(1).lay_out(folder)
    room.unlink()
    assert isinstance(readable(room), Damaged)  # its log still holds a letter
    (folder / "room.db-wal").unlink()
    assert set() == readable(room)


# -- looking


@pytest.mark.parametrize("state", ["missing", "empty", "damaged"])
def test_a_reader_writes_nothing(
    samples: Callable[[int], Sample],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
) -> None:
    sample = samples(1)
    log = sample.files["room.db-wal"]
    at = log.index(text(0).encode())
    room = sample.lay_out(folder, "room.db-wal", log[:at] + b"L" + log[at + 1 :])
    if state != "damaged":
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    if state == "empty":
        room.touch(mode=0o600)
    before = sums(room)
    monkeypatch.setenv("POSTROOM_STORE", str(room))
    monkeypatch.setenv("POSTROOM_AGENT", "bob")
    for words in LOOKS:
        code = 0
        try:
            code = command([*words]) or 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        message = capsys.readouterr()
        assert before == sums(room), words
        if state == "damaged":
            assert "No unread" not in message.out, words
            assert code or words[0] == "hook" or "damaged" in message.out + message.err, words


LOOKS = (
    ("check", "--peek"),
    ("counts",),
    ("digest",),
    ("inbox", "--json"),
    ("doctor",),
    ("search", "letter"),
    ("stats",),
    ("agents",),
)


# -- rooms that a daemon serves


class Served(Struct):
    """A room behind a daemon, and which letters were confirmed."""

    daemon: Daemon
    letters: set[str]

    def send(self) -> str:
        """What came of one more letter."""
        message = text(len(self.letters))
        try:
            self.daemon.client.ask("send", {"agent_id": "ann", "to": "bob", "body": message})
        except PostroomError as refused:
            return type(refused).__name__
        self.letters.add(message)
        return "sent"


def empty(room: Path) -> None:
    with room.with_name("room.db-wal").open("r+b") as log:
        log.truncate(0)


def cut(room: Path) -> None:
    with room.with_name("room.db-wal").open("r+b") as log:
        log.truncate(6000)


def replace(room: Path) -> None:
    log = room.with_name("room.db-wal")
    log.unlink()
    log.touch(mode=0o600)


def zero(room: Path) -> None:
    log = room.with_name("room.db-wal")
    with log.open("r+b") as file:
        file.write(bytes(log.stat().st_size))


HARM: dict[str, Callable[[Path], None]] = {"emptied": empty, "cut": cut, "replaced": replace, "zeroed": zero}


def harmed(folder: Path, count: int, harm: Callable[[Path], None], program: str = "postroom") -> list[str]:
    """What is wrong once the log of a served room was harmed and the daemon has ended."""
    folder.mkdir(mode=0o700)
    options = ("--http", "off", "--set", "durability=power")
    with Daemon(folder, *options, program=(program,)) as daemon:
        served = Served(daemon, set())
        assert {"sent"} == {served.send() for _ in range(count)}
        harm(daemon.room)
        answers = [served.send() for _ in range(5)]
        assert daemon.process.poll() is None
        daemon.stop()
    wrong = silent(daemon.room, served.letters)
    return [*wrong, "a letter was taken"] if "sent" in answers else wrong


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("way", HARM)
def test_a_daemon_whose_log_is_harmed_loses_no_letter_in_silence(folder: Path, count: int, way: str) -> None:
    if count > 50 and way != "emptied" and not LONG:
        pytest.skip("the long form does it")
    assert [] == harmed(folder, count, HARM[way])


def test_the_audit_finds_a_daemon_that_notes_nothing(folder: Path) -> None:
    assert harmed(folder, 50, empty, program="tests.faults.forgetful_daemon")


# -- the index of the log


def test_an_index_of_the_log_that_is_cut_short_is_an_error_and_not_the_end_of_a_daemon(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with Daemon(folder, "--http", "off", "--set", "durability=power") as daemon:
        served = Served(daemon, set())
        for _ in range(3):
            assert "sent" == served.send()
            with (folder / "room.db-shm").open("r+b") as index:
                index.truncate(0)
            # The thread of the daemon that looks first is told, and mends it: the writer, or one that reads.
            assert served.send() in {StoreFailing.__name__, "sent"}
            assert "sent" == served.send()
        assert daemon.process.poll() is None
        daemon.stop()
    assert served.letters == readable(daemon.room)


def test_a_closed_room_whose_index_of_the_log_is_cut_short_opens(
    samples: Callable[[int], Sample], folder: Path
) -> None:
    for size in (0, 1, 4096):
        room = samples(50).lay_out(folder)
        (folder / "room.db-shm").write_bytes(bytes(size))
        assert samples(50).letters == readable(room)


# -- the note


def test_a_note_is_read_as_it_was_written_and_promises_nothing_once_it_is_damaged() -> None:
    written = note.pack((7, 4128, b"saltsalt"))
    assert (7, 4128, b"saltsalt") == note.unpack(written)
    for at in range(len(written)):
        assert note.NOTHING is note.unpack(written[:at] + bytes([written[at] ^ 4]) + written[at + 1 :])
        assert note.NOTHING is note.unpack(written[:at])
    assert note.NOTHING is note.unpack(bytes(note.LENGTH))
