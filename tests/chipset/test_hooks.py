"""Hooks: one item for each agent, moved by compare-and-set, read whole by strangers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.chipset import Chipset, Status
from postroom.errors import IllegalMove, Invalid, NotAllowed, StaleRevision, StoreFailing, Unreadable
from tests.chipset.people import finish, running, start
from tests.conftest import LONG
from tests.daemons import until
from tests.rooms import FakeClock

ALPHA = "polecat-alpha"


def test_a_hook_goes_through_its_life(chipset: Chipset, state: Path, clock: FakeClock) -> None:
    assert chipset.hooks.get(ALPHA).status is Status.EMPTY
    chipset.hooks.set(ALPHA, "gt-abc12", "Auth", by="mayor")
    clock.advance(1)
    chipset.hooks.activate(ALPHA)
    clock.advance(1)
    chipset.hooks.touch(ALPHA)
    assert json.loads((state / "hooks" / f"{ALPHA}.json").read_text()) == {
        "agent_id": ALPHA,
        "status": "active",
        "work_item": {"bead_id": "gt-abc12", "title": "Auth", "assigned_at": "2030-01-01T12:00:00Z"},
        "last_activity": "2030-01-01T12:00:02Z",
    }
    chipset.hooks.complete(ALPHA)
    chipset.hooks.clear(ALPHA, by="mayor")
    cleared = json.loads((state / "hooks" / f"{ALPHA}.json").read_text())
    assert (cleared["status"], cleared["work_item"]) == ("empty", None)


def test_a_busy_hook_is_refused_and_named_with_what_is_on_it(chipset: Chipset) -> None:
    chipset.hooks.set(ALPHA, "gt-1", "Auth", by="mayor")
    with pytest.raises(IllegalMove, match=r"pending with 'gt-1' \(Auth\)"):
        chipset.hooks.set(ALPHA, "gt-2", by="mayor")
    assert chipset.hooks.get(ALPHA).item.bead_id == "gt-1"


def test_no_move_is_skipped_and_nobody_moves_for_another(chipset: Chipset) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="dispatcher")
    with pytest.raises(IllegalMove, match="pending → completed"):
        chipset.hooks.complete(ALPHA)
    with pytest.raises(NotAllowed, match="only the owner"):
        chipset.hooks.activate(ALPHA, by="mayor")
    chipset.hooks.activate(ALPHA)
    with pytest.raises(NotAllowed, match="the mayor, to reassign"):
        chipset.hooks.clear(ALPHA, by=ALPHA)
    with pytest.raises(IllegalMove):
        chipset.hooks.touch("polecat-beta")
    with pytest.raises(IllegalMove):
        chipset.hooks.clear("polecat-beta", by="mayor")
    with pytest.raises(IllegalMove, match="is empty"):
        _ = chipset.hooks.get("polecat-beta").item


def test_a_move_on_what_was_seen_is_refused_when_it_changed(chipset: Chipset) -> None:
    seen = chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    chipset.hooks.touch(ALPHA)  # in the same moment: it still counts as later
    with pytest.raises(StaleRevision):
        chipset.hooks.clear(ALPHA, by="mayor", expect=seen)
    assert chipset.hooks.clear(ALPHA, by="mayor", expect=chipset.hooks.get(ALPHA)).status is Status.EMPTY


def test_a_restart_is_one_write_and_a_new_assignment(chipset: Chipset, clock: FakeClock) -> None:
    first = chipset.hooks.set(ALPHA, "gt-1", "Auth", by="mayor")
    chipset.hooks.activate(ALPHA)
    clock.advance(5)
    again = chipset.hooks.restart(ALPHA, by="mayor")
    assert (again.status, again.item.bead_id, again.item.title) == (Status.PENDING, "gt-1", "Auth")
    assert again.item.assigned_at != first.item.assigned_at
    with pytest.raises(NotAllowed):
        chipset.hooks.restart(ALPHA, by=ALPHA)


def test_two_spellings_are_one_agent_and_no_name_is_a_path(chipset: Chipset, state: Path) -> None:
    chipset.hooks.set("Polecat-Alpha", "gt-1", by="mayor")
    assert chipset.hooks.get(ALPHA).status is Status.PENDING
    assert chipset.hooks.activate(ALPHA).status is Status.ACTIVE
    assert [path.name for path in (state / "hooks").iterdir()] == ["Polecat-Alpha.json"]
    for wrong in ("../mayor", "a/../b", "", ".hidden", "a\nb", "x" * 300):
        with pytest.raises(Invalid):
            chipset.hooks.set(wrong, "gt-1", by="mayor")
    for wrong in ("", "a\nb", "x" * 201, " x"):
        with pytest.raises(Invalid):
            chipset.hooks.set("beta", wrong, by="mayor")


def test_what_a_stranger_added_is_kept(chipset: Chipset, state: Path) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    path = state / "hooks" / f"{ALPHA}.json"
    fields = json.loads(path.read_text())
    fields["rig"], fields["work_item"]["convoy"] = "north", 7
    path.write_text(json.dumps(fields))
    chipset.hooks.activate(ALPHA)
    result = json.loads(path.read_text())
    assert (result["rig"], result["work_item"]["convoy"], result["status"]) == ("north", 7, "active")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"agent_id": "somebody-else", "status": "empty", "work_item": null}',
        '{"agent_id": "../x", "status": "empty", "work_item": null}',
        '{"agent_id": "polecat-alpha", "status": "asleep", "work_item": null}',
        '{"agent_id": "polecat-alpha", "status": ["empty"], "work_item": null}',
        '{"agent_id": "polecat-alpha", "status": "active", "work_item": null}',
        '{"agent_id": "polecat-alpha", "status": "empty", "work_item": {"bead_id": "x"}}',
        '{"agent_id": "polecat-alpha", "status": "active", "work_item": {"title": "x"}}',
        '{"agent_id": "polecat-alpha", "status": "active", "work_item": 7}',
    ],
)
def test_a_file_that_is_no_hook_is_reported_and_only_the_mayor_starts_over(
    chipset: Chipset, state: Path, content: str
) -> None:
    (state / "hooks").mkdir(parents=True)
    (state / "hooks" / f"{ALPHA}.json").write_text(content)
    chipset.hooks.set("polecat-beta", "gt-2", by="mayor")
    hooks, broken = chipset.hooks.all()
    assert ([hook.agent_id for hook in hooks], len(broken)) == (["polecat-beta"], 1)
    assert f"{ALPHA}.json" in broken[0].message
    with pytest.raises(Unreadable):
        chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    with pytest.raises(NotAllowed):
        chipset.hooks.clear(ALPHA, by=ALPHA)
    assert chipset.hooks.clear(ALPHA, by="mayor").status is Status.EMPTY
    (kept,) = (state / "hooks" / ".quarantine").iterdir()
    assert kept.read_text() == content


def test_links_are_not_followed(chipset: Chipset, state: Path, tmp_path: Path) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    target = tmp_path / "target.json"
    target.write_bytes((state / "hooks" / f"{ALPHA}.json").read_bytes())
    (state / "hooks" / f"{ALPHA}.json").unlink()
    (state / "hooks" / f"{ALPHA}.json").symlink_to(target)
    with pytest.raises(Unreadable, match="it is a link"):
        chipset.hooks.get(ALPHA)
    (state / "hooks").rename(tmp_path / "moved")
    (state / "hooks").symlink_to(tmp_path / "moved")
    assert chipset.hooks.all() == ([], [])
    with pytest.raises((Unreadable, StoreFailing)):
        chipset.hooks.set("polecat-beta", "gt-1", by="mayor")
    assert not (tmp_path / "moved" / "polecat-beta.json").exists()


def race(folder: Path, role: str) -> list[str]:
    """Four mayors set one hook in the same moment: what each of them says."""
    folder.mkdir(parents=True)
    mayors = [start(role, folder, f"mayor-{n}", f"gt-{n}") for n in range(4)]
    until(lambda: len(list(folder.glob("*-is-there"))) == 4)
    (folder / "go").touch()
    return finish(mayors)


def test_mayors_that_look_without_the_lock_are_found(state: Path) -> None:
    assert len([line for line in race(state, "careless") if line.startswith("won")]) > 1


def test_two_mayors_at_once_exactly_one_wins(state: Path) -> None:
    for round in range(10 if LONG else 2):
        folder = state / str(round)
        message = race(folder, "setter")
        won = [line.removeprefix("won: ") for line in message if line.startswith("won")]
        lost = [line for line in message if line.startswith("lost")]
        assert (len(won), len(lost)) == (1, 3)
        assert all(f"pending with '{won[0]}'" in line for line in lost)
        assert Chipset(folder).hooks.get(ALPHA).item.bead_id == won[0]


def test_a_stranger_always_reads_a_whole_file_while_many_write(state: Path) -> None:
    chipset = Chipset(state)
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    chipset.hooks.activate(ALPHA)
    touching = [start("toucher", state, "200") for _ in range(3)]
    path, seen = state / "hooks" / f"{ALPHA}.json", set()
    while any(process.poll() is None for process in touching):
        seen.add(json.loads(path.read_bytes())["last_activity"])
    finish(touching)
    assert len(seen) > 1
    assert [left.name for left in (state / "hooks").iterdir()] == [f"{ALPHA}.json"]


def test_a_writer_that_is_killed_leaves_a_whole_hook_and_no_lock(state: Path) -> None:
    chipset = Chipset(state)
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    for _ in range(10 if LONG else 3):
        before = chipset.hooks.get(ALPHA).last_activity
        toucher = start("toucher", state, "1000000")
        with running(toucher):
            until(lambda: chipset.hooks.get(ALPHA).last_activity != before)  # noqa: B023 - called at once
        assert chipset.hooks.touch(ALPHA).status is Status.PENDING
    assert [left.name for left in (state / "hooks").iterdir()] == [f"{ALPHA}.json"]
