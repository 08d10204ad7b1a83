"""Sessions beside others: hooks that a host calls at once, several sessions of one process, agents of other
programs; and a session without a folder. Two hooks are called for one moment where Postroom was put in place
twice, or tools were used at once.

Each run is made with a bug planted, too, and must come out otherwise.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from postroom.hosts import sessions
from postroom.hosts.sessions import Session, keep
from postroom.own_file import LockFile
from tests.daemons import Daemon
from tests.hosts.hosting import Host, Place, name_of

# Two hooks at the end of one turn: each has found its session before either of them may do anything.
MEETING = """
import multiprocessing, postroom.hosts.hooks as h
both, source_of = multiprocessing.Barrier(2), h.source_of
def meet(access, *args, **kwargs):
    if access.call.host_input["hook_event_name"] == "Stop":
        both.wait(60)
    return source_of(access, *args, **kwargs)
h.source_of = meet
"""
FORGETFUL = "import postroom.hosts.hooks as h; h.SessionHook._catch_up = lambda *_: None"
AROUND = "from postroom.cli.context import Context as C; C.session = property(C.session.func, lambda *_: None)"


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    session = Session(host="claude", id="1", agent="coder")
    keep(session)
    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda file, how: flock(file, how | fcntl.LOCK_NB))
    return session


def is_alone(session: Session) -> bool:
    """Does whoever comes after a second start of the same session wait for the hook of the first?"""
    with session.in_turn():
        keep(session)
        try:
            with session.in_turn():
                return False
        except BlockingIOError:
            return True


def test_a_start_beside_another_hook_waits_for_it(noted: Session) -> None:
    assert is_alone(noted)


def test_a_lock_on_a_note_that_is_replaced_keeps_nobody_out(
    noted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LockFile", lambda _: LockFile(noted.path))
    assert not is_alone(noted)


def held_twice(place: Place, bug: str) -> tuple[int, str, int]:
    """Of two hooks at the end of one turn: how many held it up; and how the session stands then."""
    with Host(place, bug=bug) as host:
        host.start()
        host.prompt()
        place.post("shop", "Now!", priority="urgent")
        results = [one["out"] for one in host.at_once("stop", 2)]
        found = json.loads(next(place.home.rglob(f"claude-{host.session}.json")).read_text(encoding="utf-8"))
    return sum("Now!" in out for out in results), found["turn"], found["holds"]


def test_an_end_of_a_turn_that_another_hook_held_up_counts_and_is_none(place: Place) -> None:
    assert (1, "busy", 1) == held_twice(place, MEETING)


def test_a_hook_that_does_not_look_again_forgets_what_the_other_held_up(place: Place) -> None:
    assert (1, "idle", 0) == held_twice(place, MEETING + FORGETFUL)


# -- several sessions of one process


def rooms_of_two(place: Place, bug: str = "") -> list[str]:
    """The rooms of two sessions of one process, each in a project with a room of its own."""
    del place.environment["POSTROOM_STORE"]
    folders = [place.home / name for name in ("one", "two")]
    for folder in folders:
        (folder / ".postroom").mkdir(parents=True)
        (folder / ".postroom" / "room.db").touch()
    with Host(place, "codex", bug=bug) as host:
        return [_room_of_one_more(host, folder) for folder in folders]


def _room_of_one_more(host: Host, folder: Path) -> str:
    host.session = str(uuid.uuid4())
    host.call("SessionStart", source="startup", cwd=str(folder))
    note: dict[str, Any] = json.loads(
        next(host.place.home.rglob(f"codex-{host.session}.json")).read_text(encoding="utf-8")
    )
    return str(Path(note["room"]).relative_to(host.place.home))


def test_each_session_of_a_server_has_the_room_of_its_own_project(place: Place) -> None:
    assert ["one/.postroom/room.db", "two/.postroom/room.db"] == rooms_of_two(place)


def test_a_hook_that_takes_itself_for_a_child_of_another_session_gets_its_room(place: Place) -> None:
    assert ["one/.postroom/room.db"] * 2 == rooms_of_two(place, AROUND)


def told_without_a_folder(place: Place, bug: str = "") -> str:
    """What a session is told whose working folder was deleted before it began."""
    with Host(place, "codex", bug=bug) as host:
        place.project.rmdir()
        host._say({"hook": host._words(), "stdin": host._said("SessionStart", source="startup")})
        place.post("shop", "Still there?")
        text: str = host._say({"hook": host._words(), "stdin": host._said("UserPromptSubmit")})["out"]
        return text


def test_a_session_whose_folder_is_gone_gets_its_mail(place: Place) -> None:
    assert "Still there?" in told_without_a_folder(place)


def test_a_hook_that_insists_on_a_folder_tells_it_nothing(place: Place) -> None:
    insists = "import os, postroom.hosts.hooks as h; h.SessionHook._folder = lambda _: os.getcwd()"
    assert "" == told_without_a_folder(place, insists)


# -- agents of other programs


def beside_another(place: Place, bug: str = "", **card: Any) -> tuple[str, str]:
    """What a session is called, and told, in a folder called like a live agent that has mail."""
    with place.room() as room:
        room.mailbox("shop").register(**card)
        room.mailbox("shop").heartbeat()
    place.post("shop", "For another.")
    with Host(place, bug=bug) as host:
        result = host.start()
        return name_of(host), result


def test_a_session_is_not_taken_for_an_agent_that_another_program_runs(place: Place) -> None:
    assert ("shop-2", "") == beside_another(place, program="nanobot")


@pytest.mark.daemon
def test_neither_behind_a_daemon(place: Place) -> None:
    words = ("--room", place.environment.pop("POSTROOM_STORE"), "--http", "off")
    with Daemon(place.home, *words) as daemon:
        place.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        assert ("shop-2", "") == beside_another(place, program="nanobot")


@pytest.mark.parametrize("program", ["", "codex"])
def test_who_was_registered_by_hand_or_by_a_session_is_the_sessions(place: Place, program: str) -> None:
    name, result = beside_another(place, program=program)
    assert "shop" == name and "For another." in result


def test_a_hook_that_asks_nobody_takes_anothers_mail(place: Place) -> None:
    name, result = beside_another(
        place, "import postroom.hosts.hooks as h; h.program_of = lambda *_: ''", program="x"
    )
    assert "shop" == name and "For another." in result
