"""Every error of Postroom ends with a code of sysexits, the one the reference names."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from postroom import errors
from postroom.cli.errors import EXITS, MEANINGS, exit_code
from tests.cli.shell import PATIENCE, PROGRAM, Shell, wait_until_asleep
from tests.daemons import until

EXPECTED = {
    "PostroomError": 70, "Invalid": 65, "LookAlike": 65, "TooLarge": 65, "BadStore": 78, "Refused": 77,
    "NotAllowed": 77, "LoopDetected": 77, "HopsSpent": 77, "DeadlinePassed": 77, "IllegalMove": 77, "Busy": 75,
    "QuotaFull": 75, "StoreBusy": 75, "StoreFailing": 74, "TooFast": 75, "Missing": 67, "UnknownAgent": 67,
    "UnknownMessage": 67, "Conflict": 69, "LeaseLost": 69, "StaleRevision": 75, "IdTaken": 69, "NameTaken": 69,
    "Resync": 69, "Damaged": 70, "Unreadable": 70, "SchemaTooNew": 78,
}  # fmt: skip
TREE = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, errors.PostroomError)]


def test_every_error_has_its_code() -> None:
    assert EXPECTED == {error.__name__: exit_code(error()) for error in TREE if error.__name__ in EXPECTED}
    for error in TREE:  # also those that come later: temporary ones can be tried again by a script that knows 75
        if error.temporary:
            assert exit_code(error()) in {74, 75}


def test_every_code_has_a_meaning_that_help_tells() -> None:
    codes = [code for code, _ in MEANINGS]
    assert set(EXITS.values()) <= set(codes)
    assert sorted(codes) == codes


def output_of(shell: Shell, *words: str, stdin: str = "") -> tuple[int, str, str]:
    done = shell.run(*words, "--json", stdin=stdin)
    assert done.out == ""
    return done.code, done.error["name"], done.error["field"] or ""


def test_mistakes_of_each_kind_end_with_their_code(shell: Shell) -> None:
    shell.post("ann", "bob", "x", id="m-1")
    assert output_of(shell, "check") == (64, "Usage", "--as")
    assert output_of(shell, "send", "bob", "--as", "ann", "--body", "x", "--priority", "much") == (
        64,
        "Usage",
        "--priority",
    )
    assert output_of(shell, "send", "no one", "--as", "ann", "--body", "x") == (65, "Invalid", "to")
    assert output_of(shell, "send", "Bob", "--as", "ann", "--body", "x")[:2] == (65, "LookAlike")
    assert output_of(shell, "handoff", "bob", "--as", "ann", "--from-file", "nothing.json") == (
        66,
        "NoInput",
        "--from-file",
    )
    assert output_of(shell, "read", "m-1", "--as", "carol") == (67, "UnknownMessage", "id")
    assert output_of(shell, "send", "bob", "--as", "ann", "--body", "y", "--letter-id", "m-1")[:2] == (
        69,
        "IdTaken",
    )
    assert output_of(shell, "init", "no/such/folder") == (73, "CannotCreate", "FOLDER")
    assert output_of(shell, "forward", "m-1", "ann", "--as", "bob")[:2] == (77, "LoopDetected")
    assert output_of(shell, "check", "--as", "bob", "--room", "carrier:pigeon") == (78, "BadStore", "store")
    assert output_of(shell, "check", "--as", "bob", "--set", "lease=soon") == (78, "Misconfigured", "lease")


def test_a_held_room_is_reported_as_temporary_with_the_key_to_try_again(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(shell.home / "room.db.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        busy = shell.run("send", "bob", "--as", "ann", "--body", "y", "--set", "busy_timeout=0.05", "--json")
        process.stdin.close()
    assert (busy.code, busy.error["name"], busy.error["temporary"]) == (75, "StoreBusy", True)


def test_an_answer_that_comes_too_soon_says_when_to_send_it_again_and_with_which_key(shell: Shell) -> None:
    root = shell.json("send", "bob", "--as", "ann", "--body", "q")["id"]
    words = ("reply", root, "--as", "bob", "--body", "a", "--set", "thread_rate=1", "--json")
    assert 0 == shell.run(*words).code
    refused = shell.run(*words)
    assert (75, "TooFast", True) == (refused.code, refused.error["name"], bool(refused.error["key"]))
    assert 0 < refused.error["retry_after"] <= 60
    assert shell.run("read", "none", "--as", "bob", "--json").error["retry_after"] is None


def test_a_reader_that_leaves_is_no_noise(shell: Shell) -> None:
    shell.json("send", "bob", "--as", "ann", "--body", "x" * 100_000)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "check", "--as", "bob", "--peek"], stdout=writing, stderr=subprocess.PIPE, env=shell.environment,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (141, b"") == (done.returncode, done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_the_answer_is_reported(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "check", "--as", "bob", "--peek"], stdout=full, stderr=subprocess.PIPE,
            env=shell.environment, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert (74, b"postroom: No space left on device\n") == (done.returncode, done.stderr)


def test_who_closed_our_output_hears_nothing_and_gets_the_right_code(shell: Shell) -> None:
    send = "postroom send bob --as ann --body x"
    for script, code in (
        (f"{send} >&-", 0), (f"{send} --json >&- 2>&-", 0), (f"{send} <&- >&- 2>&-", 0), ("postroom check --peek --as bob >&-", 0),
        ("postroom check --as nobody >&-", 0), ("postroom stats >&-", 0), ("postroom rooms export >&-", 0),
        ("postroom rooms export out.jsonl 2>&-", 0), ("postroom read m-1 --as bob 2>&-", 67), ("postroom nothing 2>&- >&-", 64),
        ("postroom check --as 'a b' --json 2>&-", 65), ("postroom top --once >&-", 0), ("postroom help >&-", 0),
        ("EDITOR=true postroom send bob --as ann <&-", 64),
    ):  # fmt: skip
        done = shell.type(script)
        assert (done.code, "Traceback" in done.err) == (code, False), (script, done)
    assert shell.json("counts", "--as", "bob")["total"] == 3
    assert shell.run("doctor").code in {0, 1}


# -- Ctrl-C


def wait_until_it_sleeps(process: subprocess.Popen[bytes], shell: Shell) -> None:
    """Wait until a reader watches its signal file."""
    until(lambda: list(shell.home.glob("room.db.bells/*")) or process.poll() is not None)
    assert process.poll() is None
    wait_until_asleep(process.pid)


def test_ctrl_c_while_waiting_ends_cleanly(shell: Shell) -> None:
    shell.json("register", "--as", "bob")
    process = shell.start("wait", "--as", "bob", "--timeout", "60")
    wait_until_it_sleeps(process, shell)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (130, b"", b"postroom: interrupted\n") == (process.returncode, out, err)


def test_ctrl_c_gives_the_letter_of_a_running_program_back(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    mark = shell.home / "begun"
    program = f"import time; open({str(mark)!r}, 'w').close(); time.sleep(60)"
    process = shell.start("work", "--as", "bob", "--", sys.executable, "-c", program)
    until(lambda: mark.exists() or process.poll() is not None)
    assert process.poll() is None
    wait_until_asleep(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    (letter,) = shell.json("check", "--as", "bob", "--all")["letters"]
    assert (letter["delivery"]["state"], letter["delivery"]["attempts"]) == ("unread", 0)


def test_ctrl_c_at_any_moment_of_a_send_leaves_a_whole_letter_or_none(shell: Shell) -> None:
    """Before our first line Python itself may be interrupted, and says so in its own way; after it nothing is half
    done, nothing is torn, and the next one gets in.
    """
    shell.post("ann", "bob", "first")
    ends = set()
    for step in range(14):
        process = shell.start("send", "bob", "--as", "ann", "--body", "x", "--key", f"k-{step}")
        try:
            process.wait(timeout=0.02 * (step + 1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        ends.add(process.returncode)
        assert b"in _run" not in err, err.decode()
    assert ends <= {0, 1, 130, -signal.SIGINT}
    for step in range(14):  # every key can be sent (again), and no letter is there twice
        shell.post("ann", "bob", "x", key=f"k-{step}")
    assert shell.json("counts", "--as", "bob")["total"] == 15
