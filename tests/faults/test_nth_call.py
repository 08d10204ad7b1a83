"""A process is killed, or a disk fails, at the n-th call of one kind, for n = 1, 2, … until the run survives.

The long form tries every n. The short form tries every sync, rename and unlink, and of the many writes a sample,
evenly spread from the first to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

import postroom
from postroom.model.report import Level
from postroom.store.protocol import Store, first_sent
from tests.conftest import LONG
from tests.faults import audit, files_room, injection
from tests.faults.injection import CALLS, EIO, ENOSPC, KILL, SYNCS, Call, Run, believed, needs_strace
from tests.faults.kinds import Kind, named
from tests.faults.ledger import lines, lines_with
from tests.faults.session import BRISK, COPY, STEADY, WHO
from tests.faults.storm_worker import CROWD, DESK, MEMBERS, room_over, text_of

pytestmark = [needs_strace, pytest.mark.costly]

KILLED = -9


def complaints(folder: Path, kind: Kind, ended: Run) -> list[str]:
    """What is wrong with the room that a fault left behind; the room is used again while we look."""
    store = kind.open(folder)
    try:
        return [
            *held_against_ledger(folder, store),
            *illness(store),
            *use_again(folder, store),
            *held_against_ledger(folder, store),
            *believed([call for call in ended.calls if not call.path.endswith(kind.promises_nothing)]),
            *uncopied(folder, kind),
        ]
    finally:
        store.close()


def held_against_ledger(folder: Path, store: Store) -> list[str]:
    written = lines(folder)
    return [*audit.audit(store, written, text_of), *audit.unanswered(store, DESK), *audit.unbounced(store)]


def illness(store: Store) -> list[str]:
    found = store.examine(repair=False, full=True, progress=lambda _done, _all: None)
    return [f"ill: {each.check}: {each.what}" for each in found if each.level > Level.WARNING]


def uncopied(folder: Path, kind: Kind) -> list[str]:
    """Letters that were sent before a copy was made, and that it does not hold."""
    written = lines(folder)
    words = [line[1] for line in written]
    if "copied" not in words:
        return []
    if not (folder / COPY).exists():
        return ["uncopied: there is no copy"]
    with postroom.open(kind.address_of(folder / COPY), durability="process") as copy:
        room = audit.Room(copy.core.store)
    return [
        f"uncopied: {key}"
        for (key,) in lines_with(written[: words.index("copied")], "sent")
        if key not in room.by_key
    ]


def use_again(folder: Path, store: Store) -> list[str]:
    """Send again whatever was tried, with its key: nobody gets anything twice, and what was lost arrives now."""
    box = room_over(store).mailbox(WHO)
    wrong = []
    for key, *to in lines_with(lines(folder), "try"):
        first = first_sent(store, WHO, key)
        is_broadcast = tuple(to) == MEMBERS
        text = text_of(key)
        receipt = box.broadcast(CROWD, text, key=key) if is_broadcast else box.send(to, text, key=key)
        if receipt.repeated != (first is not None):
            wrong.append(f"sent again: {key}, repeated {receipt.repeated}")
    return wrong


def untold(folder: Path, ended: Run) -> list[str]:
    """A sync that failed before anything was promised must have failed something, unless it promised nothing."""
    failed = [call for call in ended.calls if call.failed and call.name in SYNCS and not is_no_promise(call)]
    return [] if lines_with(lines(folder), "failed") else [f"untold: {call.text}" for call in failed]


def is_no_promise(call: Call) -> bool:
    """A folder that is synced by fdatasync: that is a library, which looks away, and the store syncs it once more.
    In a mail folder, a file for which a full disk had no room: what sends nothing is then written anew, and not
    only synced again. And the registry there: it shows what is safe elsewhere, and is shown again later.
    """
    path = Path(call.path)
    if path.is_dir():
        return call.name == "fdatasync"
    is_registry = path.parent.name == files_room.FOLDER and path.suffix == ".tmp"
    return is_registry or (files_room.FOLDER in path.parts and "ENOSPC" in call.text)


def never(ended: Run, kind: Kind) -> list[str]:
    """Calls of which there were none: a fault at them would test nothing."""
    return [call for call in kind.calls if not ended.count(call)]


def skip_unless_used(kind: Kind, call: str) -> None:
    if call not in kind.calls:
        pytest.skip(f"{kind.name} never calls {call}")


def sample(count: int, most: int) -> list[int]:
    """Which calls: all of them, or some from the first to the last."""
    if LONG or count <= most:
        return list(range(1, count + 1))
    if most == 1:
        return [count]
    return sorted({1 + round(place * (count - 1) / (most - 1)) for place in range(most)})


def few(kind: Kind, most: int) -> int:
    return max(1, round(kind.share * most))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind, str], Run]:
    """Run the session without a fault."""

    @cache
    def run(name: str, pace: str) -> Run:
        ended = injection.run(tmp_path_factory.mktemp("session") / "whole", named(name), pace=pace)
        assert ended.is_untouched, ended.errors
        assert [] == never(ended, named(name))
        return ended

    return lambda kind, pace: run(kind.name, pace)


Whole = Callable[[Kind, str], Run]
# The call, and at how many places it fails in the short form. At a brisk pace the log is emptied on the way.
KILLS = [
    ("fsync", 4),
    ("fdatasync", 7),
    ("pwrite64", 9),
    ("write", 9),
    ("rename", 3),
    ("renameat2", 5),
    ("unlink", 4),
]
ERRORS = [
    *[("fsync", EIO, STEADY, 5), ("fdatasync", EIO, STEADY, 8), ("fdatasync", ENOSPC, STEADY, 3)],
    *[("fdatasync", EIO, BRISK, 5), ("pwrite64", EIO, BRISK, 6), ("pwrite64", ENOSPC, BRISK, 6)],
    *[("write", EIO, STEADY, 6), ("write", ENOSPC, STEADY, 6)],
    *[("rename", EIO, STEADY, 3), ("renameat2", EIO, STEADY, 5), ("unlink", EIO, STEADY, 4)],
]
if LONG:
    ERRORS = [(call, fault, pace, 0) for call in CALLS for fault in (EIO, ENOSPC) for pace in (STEADY, BRISK)]


@pytest.mark.parametrize(("call", "most"), KILLS)
def test_a_kill_at_any_call_breaks_no_promise(
    kind: Kind, tmp_path: Path, whole: Whole, call: str, most: int
) -> None:
    skip_unless_used(kind, call)
    count = whole(kind, BRISK).count(call)
    for nth in sample(count - kind.slack.get(call, 0), few(kind, most)):
        ended = injection.run(tmp_path / str(nth), kind, KILL, call, nth, pace=BRISK)
        assert KILLED == ended.code
        assert [] == complaints(tmp_path / str(nth), kind, ended), f"killed at {call} number {nth}"
    survived = injection.run(
        tmp_path / "survived", kind, KILL, call, count + 1 + kind.slack.get(call, 0), pace=BRISK
    )
    assert survived.is_untouched, "the session is not the same every time"


@pytest.mark.parametrize(("call", "fault", "pace", "most"), ERRORS)
def test_an_error_at_any_call_breaks_no_promise(
    kind: Kind, tmp_path: Path, whole: Whole, call: str, fault: str, pace: str, most: int
) -> None:
    skip_unless_used(kind, call)
    for nth in sample(whole(kind, pace).count(call) - kind.slack.get(call, 0), few(kind, most)):
        folder = tmp_path / str(nth)
        ended = injection.run(folder, kind, fault, call, nth, pace=pace)
        assert (0, 1) == (ended.code, sum(each.failed for each in ended.calls)), ended.errors
        found = complaints(folder, kind, ended)
        if pace == STEADY:  # else it may have been the sync of a checkpoint, which promises nothing
            found += untold(folder, ended)
        assert [] == found, f"{fault} at {call} number {nth}"


# -- twins


def test_a_session_without_a_certain_call_is_noticed(kind: Kind, whole: Whole) -> None:
    ended = whole(kind, STEADY)
    others = tuple(call for call in ended.calls if not call.is_one("rename"))
    assert ["rename"] == never(replace(ended, calls=others), kind)


def test_the_audit_finds_a_store_that_promises_too_early(kind: Kind, tmp_path: Path, whole: Whole) -> None:
    last = whole(kind, STEADY).count(kind.sync) - 1
    ended = injection.run(tmp_path / "it", kind, KILL, kind.sync, last, bug="early")
    assert any(each.startswith("lost: ") for each in complaints(tmp_path / "it", kind, ended))


def test_the_audit_finds_a_store_without_transactions(kind: Kind, tmp_path: Path) -> None:
    """Somewhere between the first and the last write of a broadcast a kill must tear it."""
    calls = injection.run(tmp_path / "whole", kind, bug="loose").calls
    writes = injection.places(calls, kind.write, f'"try","{WHO}:2"', f'"sent","{WHO}:2"')
    found: list[str] = []
    for nth in writes[::-4]:
        ended = injection.run(tmp_path / str(nth), kind, KILL, kind.write, nth, bug="loose")
        found = complaints(tmp_path / str(nth), kind, ended)
        if any(each.startswith("half: ") for each in found):
            return
    pytest.fail(f"{writes}: {found}")


@pytest.mark.parametrize(("bug", "complaint"), [("swallowing", "untold: "), ("retrying", "believed: ")])
def test_the_audit_finds_a_store_that_does_not_mind_a_failed_sync(
    kind: Kind, tmp_path: Path, whole: Whole, bug: str, complaint: str
) -> None:
    last = whole(kind, STEADY).count(kind.sync)
    ended = injection.run(tmp_path / "it", kind, EIO, kind.sync, last, bug=bug)
    found = [*complaints(tmp_path / "it", kind, ended), *untold(tmp_path / "it", ended)]
    assert any(each.startswith(complaint) for each in found)


@pytest.mark.parametrize("fault", [EIO, ENOSPC])
def test_the_audit_finds_a_store_that_shrugs_at_a_folder_it_could_not_sync(
    kind: Kind, tmp_path: Path, whole: Whole, fault: str
) -> None:
    last = whole(kind, STEADY).count("fsync")
    for nth in (1, last):
        ended = injection.run(tmp_path / str(nth), kind, fault, "fsync", nth, bug="shrugging")
        assert any(each.startswith("untold: ") for each in untold(tmp_path / str(nth), ended))


@pytest.mark.parametrize("fault", [EIO, ENOSPC])
def test_the_audit_finds_a_store_that_pretends_to_have_written(
    kind: Kind, tmp_path: Path, whole: Whole, fault: str
) -> None:
    calls = whole(kind, STEADY).calls
    writes = [call for call in calls if call.name == kind.write]
    between = injection.places(calls, kind.write, f'"try","{WHO}:3"', f'"sent","{WHO}:3"')
    last = [call.path for call in writes if not call.path.endswith(".lock")][-1]
    in_the_room = [place for place in between if writes[place - 1].path == last]
    nth = [*in_the_room, *between][0]
    ended = injection.run(tmp_path / "it", kind, fault, kind.write, nth, bug="pretending")
    assert f"lost: {WHO}:3" in complaints(tmp_path / "it", kind, ended)


@pytest.mark.parametrize("fault", [EIO, ENOSPC])
def test_the_audit_finds_a_copy_that_never_got_its_name(
    kind: Kind, tmp_path: Path, whole: Whole, fault: str
) -> None:
    nth = injection.places(whole(kind, STEADY).calls, "rename", '"dead"', '"copied"')[-1]
    ended = injection.run(tmp_path / "it", kind, fault, "rename", nth, bug="misnaming")
    assert f"uncopied: {WHO}:0" in complaints(tmp_path / "it", kind, ended)
