"""The door of the package, and its page: formats, moves, types and ranges there are those of the code."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from postroom import chipset
from postroom.chipset import Hook, Mail, Note, Nudge, Patience, Status, WorkItem
from postroom.chipset.folder import RANGES
from postroom.chipset.hooks import MOVES
from postroom.chipset.mail import PRIORITIES
from postroom.chipset.mail import TYPES as LETTERS
from postroom.chipset.notes import TYPES as NUDGES
from tests.docs.pages import HOME, blocks, prose, section

PAGE = HOME / "docs" / "migrating.md"
NOW = datetime(2026, 3, 5, tzinfo=UTC)


def test_the_door_is_pinned() -> None:
    assert chipset.__all__ == """
        STATE Chipset Hook Mail Mayor Note Nudge Patience Round Status Witness WorkItem
        archive_old_mail check_mail mark_read send_mail unread
    """.split()  # fmt: skip
    assert all(hasattr(chipset, name) for name in chipset.__all__)


def test_the_formats_on_the_page_are_those_of_the_files() -> None:
    examples = [json.loads(block.code) for block in blocks(PAGE) if block.language == "json"]
    mail, nudge, hook, note = [example for example in examples if "hooks" not in example]
    item = WorkItem(bead_id="x", assigned_at=NOW)
    letter = Mail(
        sender="x",
        to="x",
        type="x",
        subject="x",
        body="x",
        timestamp="x",
        read=False,
        priority="low",
        filename="x",
    )
    assert list(mail) == sorted(letter.to_dict())
    assert list(nudge) == sorted(Nudge(sender="x", type="abort", message="", timestamp=NOW).to_dict())
    assert list(hook) == sorted(Hook(agent_id="x", status=Status.PENDING, work_item=item).to_dict())
    assert list(hook["work_item"]) == sorted(item.to_dict())
    assert list(note) == sorted(Note(bead="x").to_dict())


def test_the_moves_on_the_page_are_those_of_the_table() -> None:
    result = section(PAGE.read_text(encoding="utf-8"), "Hooks")
    for move in MOVES:
        assert f"| {move.before} → {move.after} | {move.words} |" in result
    assert result.count("→") == len(MOVES)


def test_the_page_names_every_type_and_priority() -> None:
    for word in (*LETTERS, *NUDGES, *PRIORITIES, chipset.STATE):
        assert f"`{word}`" in prose(PAGE)


def test_the_times_on_the_page_are_those_in_force() -> None:
    result, usual = prose(PAGE), Patience()
    assert (usual.stall_after, RANGES["stall_after"]) == (300, (60, 1800))
    assert "for 5 minutes (`--stall-after`, 1 to 30 minutes)" in result
    assert (usual.nudge_every, RANGES["nudge_every"]) == (120, (30, 600))
    assert "every 2 minutes (`--nudge-every`, 30 seconds to 10 minutes)" in result
    assert (usual.answer_within, usual.most_restarts, usual.pause) == (60, 3, 60)
    assert "within 60 seconds" in result and "at most three" in result and "60 seconds apart" in result
