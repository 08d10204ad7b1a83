"""Watching a mailbox (B2): a line or a program for each ring, tried again when it fails, ended when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import PATIENCE, PROGRAM, Shell, wait_until_asleep
from tests.daemons import until

SOON = ("--timeout", "0.5s")  # seconds after which nothing more is expected


@pytest.fixture
def quick(shell: Shell) -> Shell:
    """Where nobody waits for what may come together."""
    shell.environment |= {
        "POSTROOM_RING_GATHER": "0",
        "POSTROOM_RING_COOLDOWN": "0",
        "POSTROOM_BACKOFF_FIRST": "0.05",
    }
    return shell


@pytest.fixture
def began(quick: Shell) -> Shell:
    """Somebody watched before, by a program and by lines."""
    with quick.room() as room:
        for way in ("exec", "watch"):
            room.mailbox("bob").begin_rings(way)
    return quick


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def output_of(done_out: str) -> list[list[str]]:
    """The subjects of each ring."""
    return [[letter["subject"] for letter in json.loads(line)["letters"]] for line in done_out.splitlines()]


# -- lines


def test_each_ring_is_one_line(began: Shell) -> None:
    began.post("ann", "bob", "x", subject="Hello\N{RIGHT-TO-LEFT OVERRIDE}", id="m-1")
    began.post("ann", "bob", "x", subject="more", id="m-2")
    done = began.run("watch", "--as", "bob", *SOON)
    assert (0, "") == (done.code, done.err)
    assert "bob, 2 unread: ann: Hello\\u{202e} (m-1), and 1 more\n" == done.out


def test_rings_are_json_lines_for_a_program(began: Shell) -> None:
    began.post("ann", "bob", "x", subject="Hello", priority="urgent", id="m-1")
    done = began.run("watch", "--as", "bob", "--once", "--json")
    assert done.json == {
        "schema": 1,
        "command": "watch",
        "mailbox": "bob",
        "unread": 1,
        "letters": [{"id": "m-1", "from": "ann", "subject": "Hello", "priority": "urgent", "unproven": False}],
        "failed": None,
    }


def test_what_waits_already_counts_as_alerted_unless_one_asks_for_it(quick: Shell) -> None:
    quick.post("ann", "bob", "x", subject="old")
    done = quick.run("watch", "--as", "bob", *SOON)
    assert (1, "Nothing came.\n") == (done.code, done.out)
    assert "postroom: 1 unread already, which give no alert; with --backlog they do\n" == done.err
    assert [["old"]] == output_of(quick.run("watch", "--as", "bob", "--backlog", "--json", *SOON).out)
    assert 1 == quick.run("watch", "--as", "bob", "--backlog", *SOON).code  # it was told once


def test_a_line_that_nobody_could_read_is_reported_again(began: Shell) -> None:
    began.post("ann", "bob", "x", subject="Hello")
    reader, writer = os.pipe()
    os.close(reader)
    deaf = subprocess.run(
        [*PROGRAM, "watch", "--as", "bob", "--once"],
        stdout=writer,
        env=began.environment,
        cwd=began.home,
        timeout=PATIENCE,
        check=False,
    )
    os.close(writer)
    assert 141 == deaf.returncode
    assert [["Hello"]] == output_of(began.run("watch", "--as", "bob", "--once", "--json").out)


# -- programs


def test_a_program_hears_of_mail_on_its_input_and_never_in_its_arguments(began: Shell) -> None:
    began.post("ann", "bob", "a secret body", subject="$(touch hacked)", id="m-1")
    program = "cat >got; tr '\\0' ' ' </proc/$$/cmdline >argv; env >environment; echo seen"
    done = began.run("watch", "--as", "bob", "--once", "--exec", program, CLAUDE_CODE_MESSAGING_SOCKET="/x")
    assert (0, "seen\nbob, 1 unread: ann: $(touch hacked) (m-1)\n") == (done.code, done.out)
    assert lines(began.home / "got") == [
        {
            "mailbox": "bob",
            "unread": 1,
            "letters": [
                {"id": "m-1", "from": "ann", "subject": "$(touch hacked)", "priority": "normal", "unproven": False}
            ],
        }
    ]
    assert not (began.home / "hacked").exists()
    assert "hacked" not in (began.home / "argv").read_text(encoding="utf-8")
    environment = (began.home / "environment").read_text(encoding="utf-8")
    assert "POSTROOM_AGENT=bob\n" in environment
    assert f"POSTROOM_STORE={began.home}/room.db\n" in environment
    assert "CLAUDE_CODE" not in environment and "secret" not in environment


def test_the_output_of_a_program_does_not_mix_with_json(began: Shell) -> None:
    began.post("ann", "bob", "x")
    done = began.run("watch", "--as", "bob", "--once", "--exec", "echo noise", "--json")
    assert done.json["failed"] is None
    assert "noise\n" == done.err


def test_a_program_that_fails_is_tried_again_and_then_given_up(began: Shell) -> None:
    began.post("ann", "bob", "x", subject="Hello", id="m-1")
    failing = ("watch", "--as", "bob", "--exec", "echo x >>tries; exit 3", "--set", "ring_tries=3")
    done = began.run(*failing, *SOON, "--json")
    assert ["exit 3"] * 3 == [json.loads(line)["failed"] for line in done.out.splitlines()]
    assert 3 == len((began.home / "tries").read_text(encoding="utf-8").splitlines())
    (lost,) = began.json("rings")["rings"]
    assert ("bob", "exec", "m-1", 3, "exit 3") == (
        lost["mailbox"], lost["way"], lost["letter"]["id"], lost["tries"], lost["why"],
    )  # fmt: skip
    assert "| m-1 | bob | exec | ann | Hello | 3 |" in began.run("rings", "--as", "bob").out
    assert began.json("rings", "--as", "ann")["rings"] == []
    assert 0 == began.json("rings", "retry", "--way", "other")["retried"]
    assert 1 == began.json("rings", "retry", "m-1", "--as", "bob")["retried"]
    assert "No rings were given up.\n" == began.run("rings").out
    assert [["Hello"]] == output_of(began.run("watch", "--as", "bob", "--exec", "true", "--once", "--json").out)


def test_a_program_that_does_not_end_is_ended_with_all_it_started(began: Shell) -> None:
    began.post("ann", "bob", "x")
    slow = "echo $$ >pid; (trap '' TERM; echo x >started; exec sleep 600) & wait"
    done = began.run("watch", "--as", "bob", "--once", "--exec", slow, "--limit", "0.5s", "--json")
    assert (75, "it took longer than 0.5 s") == (done.code, done.json["failed"])
    group = int((began.home / "pid").read_text(encoding="utf-8"))
    until(lambda: not is_there(group))


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# -- several, and ends


@pytest.fixture
def watching(began: Shell) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        process = began.start("watch", "--as", "bob", *words)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_watch_ends_on_a_signal(
    began: Shell, watching: Callable[..., subprocess.Popen[bytes]], ends: signal.Signals
) -> None:
    process = watching("--exec", "cat >>got")
    began.post("ann", "bob", "x")
    until(lambda: lines(began.home / "got"))
    wait_until_asleep(process.pid)
    process.send_signal(ends)
    assert b"" == process.communicate(timeout=PATIENCE)[1]
    assert 0 == process.returncode


def test_a_program_that_was_cut_off_by_the_end_of_its_watch_runs_again(
    began: Shell, watching: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = watching("--exec", "cat >>got; sleep 600")
    began.post("ann", "bob", "x", subject="Hello")
    until(lambda: lines(began.home / "got"))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode
    assert [["Hello"]] == output_of(began.run("watch", "--as", "bob", "--exec", "true", "--once", "--json").out)


HASTY = "import os, postroom.cli.alerts as watch; watch.SPARE = 0.5; "  # seconds; else the next one waits for ten
DIES = "watch.run_program = lambda *_: os.kill(os.getpid(), 9); "
FORGETS = (
    "from postroom.mailbox import Mailbox; wait = Mailbox.wait_for_alert; "
    "Mailbox.wait_for_alert = lambda *said, within, **more: wait(*said, **more); "
)


def told_after_a_kill(began: Shell, planted: str, patience: str) -> list[list[str]]:
    """What the next watch tells of, after one that was killed when it had written down that it rings."""
    began.post("ann", "bob", "x", subject="Hello")
    words = ("watch", "--as", "bob", "--limit", "1s", "--exec")
    program = f"{HASTY}{planted}from postroom.cli.main import entry; entry()"
    order = [sys.executable, "-c", program, *words, "cat >>got; kill -9 $PPID"]
    ended = subprocess.run(
        order, cwd=began.home, env=began.environment, check=False, capture_output=True, timeout=PATIENCE
    )
    assert -signal.SIGKILL == ended.returncode, ended
    return output_of(began.run(*words, "true", "--once", "--timeout", patience, "--json").out)


@pytest.mark.parametrize("planted", [DIES, ""], ids=["before its program ran", "while its program ran"])
def test_a_ring_is_not_lost_with_the_watch_that_was_killed(began: Shell, planted: str) -> None:
    assert [["Hello"]] == told_after_a_kill(began, planted, f"{PATIENCE}s")


def test_a_watch_that_promises_nothing_is_found_out(began: Shell) -> None:
    assert [[]] == told_after_a_kill(began, DIES + FORGETS, "2.5s")


def test_two_who_watch_one_mailbox_do_not_ring_twice(
    began: Shell, watching: Callable[..., subprocess.Popen[bytes]]
) -> None:
    for _ in range(2):
        watching("--exec", "cat >>got")
    sent = []
    for number in range(5):
        sent.append(began.post("ann", "bob", str(number)))
        until(
            lambda: (
                len({letter["id"] for ring in lines(began.home / "got") for letter in ring["letters"]})
                == len(sent)
            )
        )
    assert sorted(sent) == sorted(letter["id"] for ring in lines(began.home / "got") for letter in ring["letters"])


def test_a_wrong_way_is_refused_before_a_room_is_made(shell: Shell) -> None:
    done = shell.run("watch", "--as", "bob", "--way", "two words", "--json")
    assert (65, "way") == (done.code, done.error["field"])
    assert not (shell.home / "room.db").exists()
