"""The doctor, the numbers and the life of a letter, as commands."""

from __future__ import annotations

import os
import re
import shlex
import stat

import apsw
import pytest

import postroom
from postroom import BadStore
from tests.cli.shell import Shell
from tests.cli.terminal import show
from tests.store.helpers import empty_log

pytestmark = pytest.mark.disk  # the doctor warns of rooms in memory

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def busy(shell: Shell) -> Shell:
    with shell.room() as room:
        room.mailbox("ann").send(["bob", "carol"], "x", id="m-1", subject="Hi", priority="high")
        room.mailbox("bob").reply("m-1", "y", id="m-2")
        room.mailbox("carol").read("m-1").reject("not mine")
        room.mailbox("dan").register()
    return shell


# -- doctor


def test_a_healthy_room_ends_with_0_and_says_what_durability_means(busy: Shell) -> None:
    busy.home.chmod(0o700)
    result = busy.json("doctor", "--full")
    assert (result["healthy"], result["worst"], result["durability"]) == (True, "note", "power")
    checks = {found["check"]: found for found in result["findings"]}
    assert {
        "versions",
        "permissions",
        "integrity",
        "letters",
        "write and read",
        "leases",
        "clock",
    } <= checks.keys()
    assert "survives" in checks["durability"]["what"]
    assert set(result["findings"][0]) == {"check", "level", "what", "hint", "repaired"}
    shown = busy.run("doctor")
    assert (0, "") == (shown.code, shown.err)
    assert "The room is healthy." in shown.out
    weaker = busy.json("doctor", "--set", "durability=process")
    assert (weaker["durability"], weaker["healthy"]) == ("process", True)


def test_findings_are_grouped_and_the_worst_comes_last(busy: Shell) -> None:
    (busy.home / "room.db").chmod(0o644)
    code, shown = show(busy, "doctor")
    assert code == 1
    assert "\x1b[32m✓" in shown and "\x1b[33m!" in shown
    plain = ESCAPES.sub("", shown)
    assert plain.index("Fine") < plain.index("Worth knowing") < plain.index("Warnings")
    assert "→ postroom doctor --repair closes them" in plain
    assert plain.rstrip().endswith("1 warning left.\npostroom doctor --repair mends what is safe.")


def test_what_is_safe_is_repaired_and_then_all_is_well(busy: Shell) -> None:
    (busy.home / "room.db").chmod(0o644)
    assert busy.run("doctor").code == 1
    mended = busy.run("doctor", "--repair")
    assert (mended.code, "## Mended" in mended.out) == (0, True)
    assert stat.S_IMODE((busy.home / "room.db").stat().st_mode) == 0o600
    assert busy.run("doctor").code == 0


def test_errors_that_are_left_end_with_70(busy: Shell) -> None:
    damage(busy, "m-2")
    shown = busy.run("doctor")
    assert (shown.code, "1 error left" in shown.out) == (70, True)
    damage(busy, "m-1")
    broken = busy.run("doctor", "--json")
    assert (broken.code, broken.json["worst"], broken.json["healthy"]) == (70, "error", False)
    (found,) = [f for f in broken.json["findings"] if f["level"] == "error"]
    assert (found["check"], found["hint"]) == ("letters", "postroom doctor --repair sets them aside")


def damage(shell: Shell, id: str) -> None:
    database = apsw.Connection(str(shell.home / "room.db"))
    database.execute("UPDATE letters SET sum = sum + 1 WHERE id = ?", (id,))
    database.close()


def test_a_room_that_does_not_open_is_examined_all_the_same(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    shell.json("backup", "copy.db")  # whole, in one file
    head = (shell.home / "copy.db").read_bytes()[:100]
    for path in shell.home.glob("room.db*"):
        path.unlink() if path.is_file() else path.rmdir()
    (shell.home / "room.db").write_bytes(head + b"no tables any more" * 1000)
    result = shell.run("doctor", "--json")
    assert (result.code, result.err, result.json["worst"]) == (70, "", "error")
    assert {"room", "permissions", "space"} <= {found["check"] for found in result.json["findings"]}


def test_where_there_is_no_room_none_is_made(shell: Shell) -> None:
    result = shell.run("doctor")
    assert (result.code, "there is no room" in result.out) == (0, True)
    assert not (shell.home / "room.db").exists()


def test_a_name_that_no_file_can_have_is_reported_as_it_was_typed(shell: Shell) -> None:
    name = os.fspath(shell.home / ("x" * 300))
    done = shell.run("doctor", "--room", name)
    assert done.code == 78
    assert done.err.startswith("postroom: --room: ") and "File name too long" in done.err.replace("\n", " ")
    with pytest.raises(BadStore) as refused:
        postroom.doctor(name)
    assert refused.value.field == "store"


def test_a_wrong_setting_is_a_finding(shell: Shell) -> None:
    result = shell.run("doctor", "--set", "lease=soon", "--json")
    assert (result.code, result.json["durability"]) == (70, None)
    assert result.json["findings"][0]["check"] == "settings"


def test_the_doctor_shows_how_far_it_is(busy: Shell) -> None:
    assert "doctor [" in show(busy, "doctor")[1]
    assert "doctor [" not in show(busy, "doctor", "--json")[1]


# -- stats


def test_the_owner_sees_the_room_in_numbers(busy: Shell) -> None:
    result = busy.json("stats")
    room = result["room"]
    assert (result["mailbox"], room["letters"], room["deliveries"], room["agents"]) == (None, 3, 4, 1)
    assert (room["states"]["dead"], room["unread"]["high"], room["quarantined"]) == (1, 2, 0)
    assert [(box["mailbox"], box["backlog"], box["dead"]) for box in room["mailboxes"]] == [
        ("ann", 2, 0), ("bob", 1, 0), ("carol", 0, 1),
    ]  # fmt: skip
    shown = busy.run("stats")
    assert "- Letters: 3" in shown.out and "| bob | 1 | 1 |" in shown.out


def test_what_was_read_and_waits_is_never_counted_as_unread(busy: Shell) -> None:
    busy.run("read", "m-1", "--as", "bob")
    shown = busy.run("stats").out
    assert "3 in inboxes" in shown and "- Never read: 2:" in shown and "- Read, not settled: 1" in shown
    assert "unread" not in shown.lower()
    own = busy.run("stats", "--as", "bob").out
    assert "- Never read: 0\n- Read, not settled: 1\n" in own and "unread" not in own.lower()
    assert "| bob | read |" in busy.run("trace", "m-1").out


def test_an_agent_sees_its_own_mailbox_unless_it_asks_for_all(busy: Shell) -> None:
    result = busy.json("stats", "--as", "bob")
    assert (result["room"], result["mailbox"]["mailbox"], result["mailbox"]["total_unread"]) == (None, "bob", 1)
    assert result["mailbox"]["unread"]["high"] == 1
    assert busy.run("stats", POSTROOM_AGENT="carol").out.startswith("- Mailbox: carol\n")
    assert busy.json("stats", "--as", "bob", "--all")["mailbox"] is None
    assert busy.json("stats", "--as", "nobody-yet")["mailbox"]["backlog"] == 0


# -- trace


def test_the_life_of_a_letter(busy: Shell) -> None:
    result = busy.json("trace", "m-1")
    assert (result["letter"]["id"], result["letter"]["priority"], result["number"]) == ("m-1", "high", 1)
    assert [(s["mailbox"], s["state"], s["reason"]) for s in result["stops"]] == [
        ("bob", "unread", None), ("carol", "dead", "not mine"),
    ]  # fmt: skip
    assert [letter["id"] for letter in result["replies"]] == ["m-2"]
    assert (len(result["bounces"]), result["relays"]) == (1, [])
    shown = busy.run("trace", "m-1").out
    for word in ("- Subject: Hi", "not mine", "| m-2 | answer | bob |", "| bounce |"):
        assert word in shown


def test_the_trace_of_a_letter_shows_its_alerts(busy: Shell) -> None:
    assert "| WHAT | HOW |" not in busy.run("trace", "m-1").out
    with postroom.open(busy.home / "room.db", ring_gather=0) as room:
        bob = room.mailbox("bob")
        bob.begin_rings("exec", backlog=True)
        assert bob.try_ring("exec")
        bob.ring_failed("exec", "m-1", "exit 3")
        bob.mark_shown("m-1", "claude", "SessionStart")
    (stop,) = busy.json("trace", "m-1", "--as", "bob")["stops"]
    assert ("exec", "failed", "exit 3") == tuple(stop["rings"][0][name] for name in ("way", "outcome", "why"))
    assert ("claude", "SessionStart") == (stop["sights"][0]["host"], stop["sights"][0]["where"])
    shown = busy.run("trace", "m-1").out
    lines = [line for line in shown.splitlines() if line.startswith("| bob |")][1:]
    assert ["stored", "ring failed", "shown"] == [line.split(" | ")[2] for line in lines]
    assert "exec: exit 3" in lines[1] and "claude, SessionStart" in lines[2]
    claude, by_exec = busy.json("stats")["room"]["rates"]
    assert ("claude", 1, 0, 1) == (claude["name"], claude["letters"], claude["rung"], claude["shown"])
    assert ("exec", 1, 0, 0) == (by_exec["name"], by_exec["letters"], by_exec["rung"], by_exec["acknowledged"])
    assert "| claude | 1 | 0 | 1 | 0 |" in busy.run("stats").out


def test_an_agent_sees_its_own_part_alone(busy: Shell) -> None:
    assert [stop["mailbox"] for stop in busy.json("trace", "m-1", "--as", "bob")["stops"]] == ["bob"]
    assert len(busy.json("trace", "m-1", "--as", "ann")["stops"]) == 2
    refused = busy.run("trace", "m-1", "--as", "stranger", "--json")
    assert (refused.code, refused.error["field"]) == (67, "id")
    assert busy.run("trace", "m-9").code == 67
    assert len(busy.json("trace", "m-1", "--as", "bob", "--all")["stops"]) == 2


def test_a_token_is_never_shown(busy: Shell) -> None:
    with busy.room() as room:
        held = room.mailbox("bob").claim()
        assert held and held.delivery.lease
        token = held.delivery.lease.token
        for command in (["trace", "m-1"], ["trace", "m-1", "--as", "bob"], ["stats"], ["top", "--once"]):
            assert token not in busy.run(*command, "--json").out


def test_tries_are_reported(busy: Shell) -> None:
    with busy.room() as room:
        work = room.mailbox("bob").claim()
        assert work
        work.fail("no luck")
    shown = busy.run("trace", "m-1").out
    assert "| MAILBOX | WHEN | HOLDER | REASON |" in shown and "no luck" in shown


def test_a_room_that_cannot_be_mended_is_saved_and_its_hint_can_be_typed(shell: Shell) -> None:
    path = shell.home / "room.db"
    with shell.room() as room:
        for number in range(60):
            room.mailbox("ann").send("bob", f"letter {number} {'x' * 300}")
    empty_log(path)
    content = path.read_bytes()
    at = content.index(b"letter 30 ") // 4096 * 4096
    path.write_bytes(content[:at] + os.urandom(4096) + content[at + 4096 :])
    assert shell.run("doctor").out.endswith("postroom doctor --repair mends what is safe.\n")
    result = shell.run("doctor", "--repair")
    assert result.code == 70
    assert result.out.splitlines()[-1].startswith("Nothing more can be mended in its place; salvage says")
    (salvage,) = [f for f in shell.run("doctor", "--repair", "--json").json["findings"] if f["check"] == "salvage"]
    command = salvage["hint"].removesuffix(" makes it the room")
    assert command == f"postroom rooms restore {path}.salvaged --room {path} --force"
    assert shell.run(*shlex.split(command)[1:]).code == 0
    assert len(shell.json("check", "--as", "bob", "-n", "100")["letters"]) > 40


def test_when_a_letter_is_due_and_when_it_expires_is_reported(shell: Shell) -> None:
    shell.post("ann", "bob", "x", id="m-1", at=3600.0, expires=7200.0)
    shown = shell.run("trace", "m-1").out
    assert "- Due: in 60 min (" in shown and "- Expires: in 2 h (" in shown
    shell.post("ann", "bob", "x", id="m-2")
    assert "Due" not in (shown := shell.run("trace", "m-2").out) and "Expires" not in shown
