"""`postroom chipset …` and `postroom witness`, as they are typed."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.chipset import Chipset
from tests.cli.shell import PATIENCE, Shell
from tests.rooms import FakeClock

ALPHA = "polecat-alpha"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, measured=True, durable=False)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An item that was put on a hook long ago."""
    state, clock = tmp_path / ".chipset" / "state", FakeClock()
    clock.jump(-timedelta(days=5000).total_seconds())
    with Chipset(state, clock=clock) as chipset:
        chipset.mayor().dispatch(ALPHA, "gt-1")
    return state


def test_a_days_work_without_python(shell: Shell, tmp_path: Path) -> None:
    room = ("--room", f"files:{tmp_path / '.chipset' / 'state'}?layout=chipset")
    set_up = shell.json("chipset", "dispatch", ALPHA, "gt-1", "--title", "Auth", "--body", "As in the plan.")
    assert (set_up["hook"]["status"], set_up["hook"]["work_item"]["bead_id"]) == ("pending", "gt-1")
    result = shell.json("chipset", "check", "--as", ALPHA)
    assert (result["hook"], result["nudge"], result["note"]) == (set_up["hook"], None, None)
    (assignment,) = shell.json("check", "--as", ALPHA, *room)["letters"]
    assert (assignment["kind"], assignment["sender"]) == ("work_assignment", "mayor")
    assert shell.json("chipset", "activate", "--as", ALPHA)["hook"]["status"] == "active"
    before = shell.json("chipset", "hooks")["hooks"][0]["last_activity"]
    assert shell.json("chipset", "touch", "--as", ALPHA)["hook"]["last_activity"] > before
    assert (
        shell.json("chipset", "report", "--as", ALPHA, "--body", "On branch auth.")["hook"]["status"]
        == "completed"
    )
    (report,) = shell.json("check", "--as", "mayor", *room)["letters"]
    assert (report["kind"], report["sender"]) == ("completion_report", ALPHA)
    assert shell.json("chipset", "accept", ALPHA)["hook"]["status"] == "empty"


def test_a_nudge_is_answered_and_a_note_is_left_without_python(shell: Shell, state: Path) -> None:
    shell.json("chipset", "nudge", ALPHA, "--as", "mayor", "--type", "sync_request", "--body", "Where are you?")
    nudge = shell.json("chipset", "check", "--as", ALPHA)["nudge"]
    assert (nudge["from"], nudge["type"], nudge["message"]) == ("mayor", "sync_request", "Where are you?")
    shown = shell.run("chipset", "check", "--as", ALPHA).out
    assert f"{ALPHA}: pending, gt-1" in shown and "Nudge from mayor, sync_request: Where are you?" in shown
    assert shell.json("chipset", "answer", "--as", ALPHA, "--body", "Here.")["nudge"]["type"] == "nudge_response"
    assert shell.json("chipset", "check", "--as", ALPHA)["nudge"] is None
    assert (
        shell.run("chipset", "answer", "--as", ALPHA).code
        == shell.run("chipset", "handle", "--as", ALPHA).code
        == 1
    )
    assert shell.json("chipset", "handle", "--as", "mayor")["nudge"]["message"] == "Here."
    message = (
        "--bead",
        "gt-1",
        "--summary",
        "Half done.",
        "--remaining",
        "tests",
        "--remaining",
        "docs",
        "--session",
        "s-1",
    )
    left = shell.json("chipset", "note", "--as", ALPHA, *message)["note"]
    assert (left["remaining"], left["session_outgoing"]) == (["tests", "docs"], "s-1")
    assert shell.json("chipset", "notes", ALPHA, "--as", "mayor")["notes"] == [left]
    assert "left to do: tests, docs" in shell.run("chipset", "check", "--as", ALPHA).out


def test_a_stalled_agents_item_is_given_to_another_and_taken_off(shell: Shell, state: Path) -> None:
    value = shell.json("chipset", "reassign", ALPHA, "polecat-beta")["hook"]
    assert (value["agent_id"], value["status"]) == ("polecat-beta", "pending")
    assert shell.run("chipset", "reassign", "polecat-beta", ALPHA).code == 75  # within the pause
    assert shell.json("chipset", "remind", "polecat-beta")["hook"] == value
    assert shell.json("chipset", "clear", "polecat-beta")["hook"]["work_item"] is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("dispatch", ALPHA, "gt-2"), 77),  # it is busy
        (("dispatch", "polecat-beta", "gt-2", "--as", "polecat-beta"), 77),  # no mayor
        (("touch", "--as", "polecat-beta"), 77),
        (("report", "--as", ALPHA), 77),  # nobody took it up
        (("accept", ALPHA), 77),
        (("nudge", "../x", "--as", "mayor"), 65),
        (("note", "--as", "../x", "--bead", "b", "--summary", "s"), 65),
        (("dispatch", ALPHA), 64),
        (("check",), 64),
        (("activate", "--as", ALPHA, "--state", "nowhere"), 66),
    ],
)
def test_what_may_not_be_is_refused_with_its_code(
    shell: Shell, state: Path, words: tuple[str, ...], code: int
) -> None:
    before = json.loads((state / "hooks" / f"{ALPHA}.json").read_text())
    refused = shell.run("chipset", *words, "--json")
    assert (refused.code, "Traceback" in refused.err) == (code, False), refused
    assert json.loads((state / "hooks" / f"{ALPHA}.json").read_text()) == before
    assert not (shell.home / "nowhere").exists()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("dispatch", "a b", "gt-2"), "AGENT"),
        (("dispatch", "polecat-beta", " "), "BEAD"),
        (("dispatch", "polecat-beta", "gt-2", "--title", "a\nb"), "--title"),
        (("dispatch", "polecat-beta", "gt-2", "--as", "polecat-beta"), "--as"),
        (("remind", ALPHA, "--as", "a b"), "--as"),
        (("clear", ALPHA, "--as", "polecat-beta"), "--as"),
        (("reassign", ALPHA, "a b"), "TO"),
        (("nudge", ALPHA, "--as", "a b"), "--as"),
        (("nudge", "a b", "--as", "mayor"), "AGENT"),
        (("check", "--as", "a b"), "--as"),
        (("notes", "--as", "a b"), "--as"),
        (("notes", "a b", "--as", "mayor"), "AGENT"),
        (("touch", "--as", "polecat-beta"), "--as"),
        (("note", "--as", ALPHA, "--bead", " ", "--summary", "s"), "--bead"),
        (("note", "--as", ALPHA, "--bead", "b", "--summary", "s", "--last-commit", "a\nb"), "--last-commit"),
        (("note", "--as", ALPHA, "--bead", "b", "--summary", "s", "--session", "a\nb"), "--session"),
    ],
)
def test_a_refusal_names_what_was_typed(shell: Shell, state: Path, words: tuple[str, ...], field: str) -> None:
    assert field == shell.run("chipset", *words, "--json").error["field"]


def test_a_busy_agent_that_is_to_get_an_item_is_named_as_it_was_typed(shell: Shell, state: Path) -> None:
    shell.json("chipset", "dispatch", "polecat-beta", "gt-2")
    refused = shell.run("chipset", "reassign", ALPHA, "polecat-beta", "--json")
    assert (77, "TO") == (refused.code, refused.error["field"])


def test_nudge_and_answer_name_their_recipient_and_an_answer_is_not_answered(shell: Shell, state: Path) -> None:
    request = ("chipset", "nudge", ALPHA, "--as", "mayor", "--body", "Where are you?")
    assert f"Nudge to {ALPHA}, health_check: Where are you?\n" == shell.run(*request).out
    assert ALPHA == shell.json(*request)["to"]
    answered = shell.run("chipset", "answer", "--as", ALPHA, "--body", "Here.")
    assert (0, "Answer to mayor: Here.\n") == (answered.code, answered.out)
    refused = shell.run("chipset", "answer", "--as", "mayor", "--body", "Thanks.")
    assert (77, True) == (refused.code, "postroom chipset handle" in refused.err)
    assert shell.json("chipset", "check", "--as", ALPHA)["nudge"] is None
    assert f"Answer from {ALPHA}: Here.\n" in shell.run("chipset", "check", "--as", "mayor").out
    assert "Here." == shell.json("chipset", "handle", "--as", "mayor")["nudge"]["message"]
    assert None is shell.run("chipset", "answer", "--as", ALPHA, "--json").json["to"]


def test_one_look_nudges_and_says_so(shell: Shell, state: Path) -> None:
    result = shell.json("witness", "--once")
    assert (result["watched"], result["stalled"], result["nudged"], result["escalated"]) == (
        [ALPHA],
        [ALPHA],
        [ALPHA],
        [],
    )
    assert json.loads((state / "nudge" / ALPHA / "latest.json").read_text())["from"] == "witness"
    shown = shell.run("witness", "--once")
    assert (shown.code, shown.out, shown.err) == (0, "1 at work, 1 stalled.\n", "")


def test_it_goes_on_until_it_is_stopped_and_tells_the_mayor(shell: Shell, state: Path) -> None:
    watching = shell.start("witness", "--json", "--every", "0.1", "--answer-within", "1s", "--mayor", "boss")
    assert watching.stdout
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    watching.send_signal(signal.SIGINT)
    assert watching.wait(PATIENCE) == 130
    watching.communicate()
    assert (first["nudged"], second["escalated"]) == ([ALPHA], [ALPHA])
    with Chipset(state) as chipset:
        assert [mail.sender for mail in chipset.mail.check_mail("boss")] == ["witness"]


def test_the_state_folder_is_named_by_the_room_or_by_itself(shell: Shell, state: Path, tmp_path: Path) -> None:
    state.rename(tmp_path / "elsewhere")
    assert shell.json("witness", "--once")["watched"] == []
    assert shell.json("witness", "--once", "--state", "elsewhere")["watched"] == [ALPHA]
    address = f"files:{tmp_path / 'elsewhere'}?layout=chipset"
    assert shell.json("witness", "--once", "--room", address, "--as", "argus")["watched"] == [ALPHA]
    refused = shell.run("witness", "--once", "--state", "nowhere", "--json")
    assert (refused.code, refused.error["field"]) == (66, "--state")
    assert not (tmp_path / "nowhere").exists()


def test_its_letters_go_into_the_room_that_is_named(shell: Shell, state: Path, tmp_path: Path) -> None:
    shell.json("register", "--as", "mayor")
    room = str(tmp_path / "room.db")
    message = ("--answer-within", "1s", "--every", "0.1", "--room", room)
    watching = shell.start("witness", "--json", *message)
    assert watching.stdout
    seen = [json.loads(watching.stdout.readline()) for _ in range(2)]
    watching.terminate()
    watching.communicate()
    assert seen[1]["escalated"] == [ALPHA]
    assert [letter["kind"] for letter in shell.json("check", "--as", "mayor")["letters"]] == ["health_escalation"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--stall-after", "59s"), "--stall-after"),
        (("--nudge-every", "11m"), "--nudge-every"),
        (("--answer-within", "0"), "--answer-within"),
        (("--answer-of", "polecat-alpha=11m"), "--answer-within"),
        (("--answer-of", "../x=1m"), "--answer-of"),
        (("--answer-of", "polecat-alpha=soon"), "--answer-of"),
        (("--every", "11m"), "--every"),
        (("--mayor", "../x"), "--mayor"),
    ],
)
def test_what_is_out_of_range_is_refused(shell: Shell, words: tuple[str, str], field: str) -> None:
    refused = shell.run("witness", "--once", "--json", *words)
    assert (refused.code, refused.error["field"]) == (65, field)
    assert not (shell.home / ".chipset").exists()


def test_a_hook_that_cannot_be_read_is_reported_harmlessly(shell: Shell, state: Path) -> None:
    (state / "hooks" / "evil\x1b[31m.json").write_text("{")
    shown = shell.run("witness", "--once")
    assert "Cannot be read" in shown.out and "\x1b" not in shown.out
