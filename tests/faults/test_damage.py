"""Bytes of a small room flipped, its files cut: no wrong mail, no traceback, and what is readable is saved.

What a letter says and whose mailbox it lies in must be exactly right, or refused, or set aside. A letter that is
gone from the room without a word must be missed by the doctor, and he must see when its state, its priority or its
times to come are others.
"""

from __future__ import annotations

import logging
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import Struct
from msgspec.structs import replace

import postroom
from postroom.errors import PostroomError, Resync
from postroom.maintenance import AROUND
from postroom.model.codec import encode
from postroom.model.delivery import Delivery
from postroom.model.message import Message
from postroom.model.query import Found, LetterQuery, Query
from postroom.model.report import Level
from postroom.store.protocol import Store, all_names, known_names
from tests.conftest import LONG
from tests.faults.kinds import Kind, named
from tests.faults.planting import Opener
from tests.faults.quick import quick_folder
from tests.letters import ack, after, claim, held, letter, note, post

LARGEST = 76 * 1024
Doctor: TypeAlias = Callable[..., postroom.Diagnosis]
MATTERS = ("state", "priority", "kind", "due_at", "expires_at")  # for who is given a letter, and when
ODD = "another "
LOG_END = "end of the log"
HIDDEN = 3  # letters of a folder that one flipped byte may hide: those of one file
pytestmark = pytest.mark.costly


class Sample(Struct, frozen=True):
    """A small room: its files, and all that is true of it."""

    kind: Kind
    files: dict[str, bytes]
    letters: dict[str, Message]
    deliveries: dict[tuple[str, str], Delivery]  # by letter and mailbox
    before: Delivery  # the last that moved, as it was before

    def lay_out(self, folder: Path, name: str = "", content: bytes = b"") -> Path:
        """The room in a folder of its own, one file changed."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for file, whole in self.files.items():
            place = folder / file
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.write_bytes(content if file == name else whole)
            place.chmod(0o600)
        return folder


class Damage(Struct, frozen=True):
    name: str
    at: int
    content: bytes
    is_cut: bool


def flips(sample: Sample, places: list[tuple[str, int]], chance: random.Random) -> Iterator[Damage]:
    for name, at in places:
        whole = sample.files[name]
        flipped = bytes([whole[at] ^ (1 << chance.randrange(8))])
        yield Damage(name, at, whole[:at] + flipped + whole[at + 1 :], is_cut=False)


def cuts(sample: Sample, places: list[tuple[str, int]]) -> Iterator[Damage]:
    for name, at in places:
        yield Damage(name, at, sample.files[name][:at], is_cut=True)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sample]:
    return cache(lambda name: make_sample(named(name), tmp_path_factory.mktemp("sample")))


@pytest.fixture
def sample(kind: Kind, samples: Callable[[str], Sample]) -> Sample:
    return samples(kind.name)


def make_sample(kind: Kind, folder: Path) -> Sample:
    """Letters that were written first and last, some of them done or held, and a record."""

    def fill_first() -> None:
        store = kind.open(folder)
        for n in range(8):
            to = ["bob", "cleo"] if n % 2 else ["bob"]
            expires_at = after(1e9) if n == 5 else None
            message = letter(f"m{n}", to, subject=f"letter {n} {'x' * 60}", expires_at=expires_at)
            store.commit([post(message, due_at=after(1e8) if n == 6 else None)])
        store.commit([note({"value": 1})])
        ack(store, claim(store, held(store, "m0")))
        store.close()

    def fill_last() -> None:
        store = kind.open(folder)
        for n in range(8, 12):
            store.commit([post(letter(f"m{n}", ["bob"], subject=f"letter {n} {'y' * 60}"))])
        before.append(held(store, "m1"))
        claim(store, before[0])
        found.extend(store.find(Query(order="age")))
        store.close()

    before: list[Delivery] = []
    found: list[Found] = []
    kind.fill_small(folder, fill_first, fill_last)
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(kind.derived)
    }
    letters = {each.message.id: each.message for each in found}
    deliveries = {(each.message.id, each.delivery.mailbox): each.delivery for each in found}
    return Sample(kind, files, letters, deliveries, before[0])


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made / "room"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each damaged letter is logged; thousands of them say nothing new."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# -- the audit


def look(open_store: Opener, folder: Path, sample: Sample) -> tuple[set[str] | None, list[str]]:
    """The letters that can be read, None if the room refuses; and all that is wrong."""
    try:
        store = open_store(folder)
    except PostroomError as refused:
        return None, complaints_about(refused)
    try:
        return read_all(store, sample)
    except PostroomError as refused:
        return None, complaints_about(refused)
    finally:
        store.close()


def complaints_about(refused: PostroomError) -> list[str]:
    return [] if refused.hint else [f"refused without a hint: {refused}"]


def read_all(store: Store, sample: Sample) -> tuple[set[str], list[str]]:
    """Everything a reader can ask for."""
    wrong = []
    found = store.find(Query(order="age")) + [
        each for box in ("bob", "cleo") for each in store.find(Query(mailbox=box, order="priority", limit=100))
    ]
    for each in found:
        if each.message != sample.letters.get(each.message.id):
            wrong.append(f"wrong letter: {each.message.id}")
        else:
            wrong += odd(each.delivery, sample)
    letters = [each.message for each in store.letters(LetterQuery())]
    wrong += [f"wrong letter: {message.id}" for message in letters if message != sample.letters.get(message.id)]
    store.records("note")
    all_names(store)
    known_names(store)
    store.count(Query(), by="state")
    with suppress(Resync):
        store.changes(replace(store.cursor(), number=0), 100)
    set_aside = set(store.quarantined())
    return {each.message.id for each in found} | set_aside, wrong


def odd(found: Delivery, sample: Sample) -> Iterator[str]:
    """What is wrong with a delivery. No sum covers its state: if the doctor sees it, that is enough."""
    true = sample.deliveries.get((found.message_id, found.mailbox.lower()))  # however it is spelt
    if true is None:
        yield f"in the mailbox of another: {found.message_id}"
    else:
        others = [name for name in MATTERS if getattr(found, name) != getattr(true, name)]
        yield from (f"{ODD}{name} of {found.message_id}" for name in others)


def never_written(complaint: str, damage: Damage, sample: Sample) -> bool:
    """Does it look as if the last commit had never been made? It is a claim, of which no note is made: that may be
    true of a log's end.
    """
    return (
        damage.name.endswith(sample.kind.open_ended) and complaint == f"{ODD}state of {sample.before.message_id}"
    )


def findings(address: str, *, repair: bool, doctor: Doctor = postroom.doctor) -> list[str]:
    """What the doctor says of the room itself, not of its place or its mail."""
    findings = doctor(address, full=True, repair=repair).findings
    inside = [f for f in findings if f.check not in AROUND]
    return [f.what for f in inside if f.level > (Level.NOTE if f.check == LOG_END else Level.WARNING)]


def saved(folder: Path, sample: Sample) -> tuple[set[str], list[str]]:
    """What the salvage holds, and what is wrong with that."""
    copy = sample.kind.salvage(folder)
    if not copy.exists():
        return set(), []
    with postroom.open(sample.kind.address_of(copy), durability="process") as room:
        return read_all(room.core.store, sample)


def audit(
    open_store: Opener, sample: Sample, damage: Damage, folder: Path, doctor: Doctor = postroom.doctor
) -> list[str]:
    """All that is wrong with how a damaged room behaves."""
    try:
        wrong = _wrong(open_store, sample, damage, folder, doctor)
    except Exception as surprise:
        wrong = [f"{surprise!r} in {traceback.extract_tb(surprise.__traceback__)[-2]}"]
    return [f"{damage.name} at {damage.at}{' cut' if damage.is_cut else ''}: {each}" for each in wrong]


def _wrong(open_store: Opener, sample: Sample, damage: Damage, folder: Path, doctor: Doctor) -> list[str]:
    sample.lay_out(folder, damage.name, damage.content)
    seen, wrong = look(open_store, folder, sample)
    strange = {each for each in wrong if each.startswith(ODD) and not never_written(each, damage, sample)}
    wrong = [each for each in wrong if not each.startswith(ODD)]
    if seen is not None and seen >= sample.letters.keys() and not strange:
        return wrong
    sample.lay_out(folder, damage.name, damage.content)  # as if the doctor were the first to see it
    if not findings(sample.kind.address(folder), repair=True, doctor=doctor):
        missing = sample.letters.keys() - (seen or set())
        wrong += [*strange, *(["letters are missing"] if missing else []), "the doctor says all is well"]
    return wrong + [each for each in unsaved(sample, damage, folder) if not each.startswith(ODD)]


def unsaved(sample: Sample, damage: Damage, folder: Path) -> list[str]:
    """Letters that can be read, but that neither the repaired room nor the salvage can show."""
    readable, hidden = to_be_saved(sample, damage, folder.with_name("looked up"))
    copied, wrong = saved(folder, sample)
    left, more = look(sample.kind.open, folder, sample)
    missing = readable - copied - (left or set())
    return wrong + more + ([f"not saved: {sorted(missing)}"] if len(missing) > hidden else [])


def to_be_saved(sample: Sample, damage: Damage, folder: Path) -> tuple[set[str], int]:
    """The letters that a look-up finds, or whose bytes are all there; and how many of them may be hidden."""
    if sample.kind.bodies is not None:
        sample.lay_out(folder, damage.name, damage.content)
        whole = sample.kind.bodies(folder / sample.kind.file)
        return {id for id, message in sample.letters.items() if encode(message) in whole}, 0
    contents = [damage.content if name == damage.name else whole for name, whole in sample.files.items()]
    readable = {id for id, message in sample.letters.items() if any(encode(message) in c for c in contents)}
    return readable, HIDDEN if held_in(sample, damage.name) else 0


def held_in(sample: Sample, name: str) -> int:
    """How many letters this file holds."""
    return sum(encode(message) in sample.files[name] for message in sample.letters.values())


# -- the tests


def places(sample: Sample, count: int, chance: random.Random) -> list[tuple[str, int]]:
    """Where to damage it: everywhere in the long form."""
    every = [(name, at) for name, content in sample.files.items() for at in range(len(content))]
    return every if LONG else chance.sample(every, count)


def test_the_sample_is_small_and_whole(kind: Kind, sample: Sample, folder: Path) -> None:
    assert sum(map(len, sample.files.values())) <= LARGEST
    assert look(kind.open, sample.lay_out(folder), sample) == (set(sample.letters), [])
    assert findings(kind.address(folder), repair=False) == []


@pytest.mark.parametrize("way", ["flipped", "cut"])
def test_no_damage_makes_wrong_mail_and_all_that_is_readable_is_saved(
    kind: Kind, sample: Sample, folder: Path, way: str
) -> None:
    chance = random.Random(4)
    chosen = places(sample, kind.damages, chance)
    damages = flips(sample, chosen, chance) if way == "flipped" else cuts(sample, chosen)
    wrong = [each for damage in damages for each in audit(kind.open, sample, damage, folder)]

    assert wrong == []


def test_the_audit_finds_a_store_that_does_not_look_at_its_sums(kind: Kind, sample: Sample, folder: Path) -> None:
    name, content = next((n, c) for n, c in sample.files.items() if b"letter 3 x" in c)
    at = content.index(b"letter 3 x")
    damage = Damage(name, at, content[:at] + b"L" + content[at + 1 :], is_cut=False)

    assert audit(kind.open, sample, damage, folder) == []
    wrong = audit(kind.with_bug("trusting"), sample, damage, folder)
    assert any("wrong letter: m3" in each for each in wrong)


def blind_doctor(address: str, **how: Any) -> postroom.Diagnosis:
    """Mends, and tells nobody what was wrong."""
    postroom.doctor(address, **how)
    return postroom.Diagnosis(findings=())


def idle_doctor(address: str, *, full: bool, repair: bool) -> postroom.Diagnosis:
    """Tells what is wrong, and saves nothing."""
    return postroom.doctor(address, full=full, repair=False)


@pytest.mark.parametrize(
    ("doctor", "finds", "at_letter"),
    [
        (blind_doctor, "the doctor says all is well", b"letter 3 x"),
        (idle_doctor, "not saved: ", b"letter 10 y"),  # one of the last, so that there are some left to save
    ],
)
def test_the_audit_finds_a_doctor_who_does_not_see_or_save_what_a_cut_left(
    kind: Kind, sample: Sample, folder: Path, doctor: Doctor, finds: str, at_letter: bytes
) -> None:
    name, content = next((n, c) for n, c in sample.files.items() if at_letter in c)
    at = content.index(at_letter) // 512 * 512
    damage = Damage(name, at, content[:at], is_cut=True)

    assert audit(kind.open, sample, damage, folder) == []
    found = any(finds in each for each in audit(kind.open, sample, damage, folder, doctor))
    assert found == (doctor is blind_doctor or not kind.heals)
