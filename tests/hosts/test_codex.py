"""Codex is woken by `codex queue`: one message for a ring, by a child that knows nothing of other sessions. What
does not get through is known for a ring that failed.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.hosts import sessions
from tests.daemons import until
from tests.hosts.hosting import Host, Place

# A Codex that writes down how it was called.
_CODEX = """#!{python}
import json, os, sys
told = {{"words": sys.argv[1:], "claude": [name for name in os.environ if name.startswith("CLAUDE")]}}
with open({log}, "a") as log:
    log.write(json.dumps(told) + chr(10))
sys.exit({code})
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.environment |= {"CLAUDE_CODE_MESSAGING_SOCKET": "/tmp/of-another-session", "CLAUDECODE": "1"}
    place.environment["PATH"] = f"{tmp_path}{os.pathsep}/nowhere"
    return place


@pytest.fixture
def host(place: Place) -> Iterator[Host]:
    with Host(place, "codex") as host:
        yield host


def install(place: Place, code: int = 0) -> None:
    program = place.home / "codex"
    text = _CODEX.format(python=sys.executable, log=repr(str(place.home / "log")), code=code)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)


def queued(place: Place) -> list[dict[str, Any]]:
    log = place.home / "log"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def rings(place: Place) -> list[dict[str, Any]]:
    """What the audit says of the rings for the one letter."""
    with place.room() as room:
        records = room.core.store.records("audit:shop")
        return [ring for record in records for ring in record.value.get("rings", [])]


def first_call(host: Host) -> dict[str, Any]:
    """How Codex is called for a letter."""
    install(host.place)
    host.start()
    assert "" == host.prompt() == host.tools() == host.stop()
    host.place.post("shop", "Which sort?", subject="Sorting", id="m-1")
    until(lambda: queued(host.place))
    (result,) = queued(host.place)
    return result


def test_the_arguments_of_programs_hold_no_word_of_a_letter(host: Host) -> None:
    message = first_call(host)["words"][4]
    assert "m-1" in message and not any(word in message for word in ("Sorting", "Which", "ann"))


def test_a_ring_as_for_others_would_show_its_sender_and_subject(place: Place) -> None:
    bug = "import postroom.hosts.hooks as h; h.ring_in_public = h.ring"
    with Host(place, "codex", bug=bug) as host:
        message = first_call(host)["words"][4]
    assert "ann" in message and "Sorting" in message


def test_an_idle_session_gets_one_message_for_one_ring_and_goes_on_waiting(place: Place, host: Host) -> None:
    result = first_call(host)
    assert ["queue", "--thread", host.session, "--message"] == result["words"][:4]
    assert result["words"][4].startswith("Postroom: new mail for shop; 1 letter unread.\n- id m-1\n")
    assert [] == result["claude"]
    assert "Which sort?" in host.prompt(result["words"][4])
    assert "" == host.stop()
    place.post("shop", "And which is fast?")
    until(lambda: len(queued(place)) == 2)
    host.wait_for_armed(1)


def test_a_ring_that_codex_refuses_is_known_and_tried_again_later(place: Place, host: Host) -> None:
    install(place, code=3)
    host.start()
    place.post("shop", "Which sort?")
    until(lambda: any(ring.get("outcome") == "failed" for ring in rings(place)))
    assert "codex queue ended with 3" in rings(place)[0]["why"]
    assert 1 == len(queued(place))


def test_a_codex_that_hangs_is_ended_with_all_that_it_started(place: Place) -> None:
    program, log = place.home / "codex", place.home / "pid"
    program.write_text(f"#!/bin/sh\n/bin/sleep 300 & echo $! > {log}\nwait\n", encoding="utf-8")
    program.chmod(0o755)
    with Host(place, "codex", bug="import postroom.hosts.waiter as q; q.SECONDS = 0.5") as host:
        host.start()
        place.post("shop", "Which sort?")
        until(lambda: any(ring.get("outcome") == "failed" for ring in rings(place)))
        assert "codex queue did not end in 0.5 s" == rings(place)[0]["why"]
        until(lambda: sessions.look(int(log.read_text("utf-8"))) is None)


def test_without_codex_a_ring_fails_and_says_why(place: Place, host: Host) -> None:
    host.start()
    place.post("shop", "Which sort?")
    until(lambda: any(ring.get("outcome") == "failed" for ring in rings(place)))
    assert "codex is not on the PATH" == rings(place)[0]["why"]


def test_many_sessions_of_one_process_have_names_of_their_own(place: Place, host: Host) -> None:
    """Its server runs them all. What is started there is the session's whose id it is told."""
    first = host.session
    host.start()
    host.session = f"{first}-2"
    host.start()
    notes = (place.home / ".local/state/postroom/sessions").glob("codex-*.json")
    assert ["shop", "shop-2"] == sorted(json.loads(path.read_text("utf-8"))["agent"] for path in notes)
    words = f"PATH=/usr/bin:/bin CODEX_THREAD_ID={first} {shlex.quote(sys.executable)} -m postroom sent --json"
    assert "shop" == json.loads(host.run("/bin/sh", "-c", words)["out"])["mailbox"]
    assert 64 == host.run(sys.executable, "-m", "postroom", "sent")["code"]  # which of them?
