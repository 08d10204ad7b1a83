"""The waiter of a session: one at a time, ended in time, awake as long as its session is, wherever the mail lies.

Where something could go wrong quietly, the same run is made with that bug planted, and must come out otherwise.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.hosts.recipes import RECIPES
from postroom.hosts.waiter import SILENCE
from tests.daemons import Daemon, until
from tests.hosts.hosting import Host, Place, name_of

NO_LOCK = "import postroom.own_file as o; o.LockFile.take = lambda self: None"
BLIND = """
import postroom.hosts.hooks as h, postroom.hosts.waiter as w
h.end_with_host = lambda session: None
"""
TWO_PLACES = """
import postroom.hosts.hooks as h, postroom.hosts.waiter as w
h.end_waiter = lambda session: None
w._current = lambda session, find=w.find: find(session.host, session.id)
"""
BUSY_AT_FIRST = """
import postroom.hosts.waiter as w
from postroom.hosts.sources import RoomSource
from postroom.errors import StoreBusy
def wait(*said, _wait=RoomSource.wait_for_alert, _busy=iter([True, True, False]), _error=StoreBusy, **more):
    if next(_busy, False): raise _error("another program holds the room")
    return _wait(*said, **more)
RoomSource.wait_for_alert, w.AGAIN = wait, 0.05
"""


@pytest.fixture
def host(place: Place) -> Iterator[Host]:
    with Host(place) as host:
        yield host


def waiting(host: Host, many: int) -> None:
    host.start()
    for _ in range(3):
        host.stop()
    host.wait_for_armed(many)


def test_a_session_has_one_waiter_however_many_turns_end(host: Host) -> None:
    waiting(host, 1)
    until(lambda: len(host.waiters()) <= 1)  # the others found the place taken
    assert (1, [0, 0, 0]) == (host.armed(), host.ends)


def test_without_the_lock_every_turn_leaves_another_waiter(place: Place) -> None:
    with Host(place, bug=NO_LOCK) as host:
        waiting(host, 4)


def waiters_after_an_interruption(host: Host) -> int:
    """How many wait after a session was woken and its turn broke off: then there is no end of a turn."""
    host.start()
    host.wait_for_armed(1)
    host.place.post("shop", "Are you there?")
    host.wait_for_rings(1)
    host.prompt("<task-notification>Postroom: new mail")
    return len(host.waiters())


def test_a_session_whose_woken_turn_was_interrupted_is_woken_again(host: Host) -> None:
    assert 1 == waiters_after_an_interruption(host)
    host.wait_for_armed(1)
    (file,) = (host.place.home / ".local/state/postroom/sessions").glob("claude-*.json")
    os.utime(file, (time.time() - SILENCE - 10,) * 2)
    host.place.post("shop", "And now?")
    host.wait_for_rings(2)


def test_a_waiter_that_is_armed_only_by_ends_of_turns_leaves_it_asleep(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = RECIPES["claude"]._replace(waits=("SessionStart", "Stop"))
    monkeypatch.setitem(RECIPES, "claude", once)
    assert 0 == waiters_after_an_interruption(host)


def test_a_waiter_ends_with_its_session(host: Host) -> None:
    host.start()
    host.wait_for_armed(1)
    (pid,) = host.waiters()
    host.end()
    wait_until_gone(pid)
    with host.place.room() as room:
        assert room.agent("shop").presence.left


def test_a_waiter_ends_with_its_host_whatever_ended_that(place: Place) -> None:
    with Host(place) as host:
        host.start()
        host.wait_for_armed(1)
        (pid,) = host.waiters()
        host.die()
        wait_until_gone(pid)


def test_a_waiter_that_does_not_watch_its_host_stays_behind(place: Place) -> None:
    """Until there is something to ring for: then it looks whether anybody is there."""
    with Host(place, bug=BLIND) as host:
        host.start()
        (pid,) = host.waiters()
        wait_until_noted(place, pid)
        host.die()
        time.sleep(0.3)  # a hundred times as long as the other one takes
        assert is_there(pid)
        place.post("shop", "Are you there?")
        wait_until_gone(pid)


def test_a_waiter_outlasts_a_process_that_holds_the_room_for_long(place: Place) -> None:
    with Host(place, bug=BUSY_AT_FIRST) as host:
        host.start()
        host.wait_for_armed(1)
        place.post("shop", "Are you there?")
        host.wait_for_rings(1)


def test_a_waiter_without_patience_leaves_its_session_asleep(place: Place) -> None:
    with Host(place, bug=f"{BUSY_AT_FIRST}w.Busy = KeyError") as host:
        host.start()
        with pytest.raises(AssertionError, match="another program holds the room"):
            host.wait_for_rings(1)


def resumed_beside_itself(host: Host, other: Host) -> list[int]:
    """How often each process is woken: the one in which a session was, and the one in which it goes on."""
    host.start()
    host.wait_for_armed(1)
    other.session = host.session
    other.start("resume")
    host.place.post("shop", "Are you there?")
    until(lambda: host.hear() + other.hear())
    return [host.hear(), other.hear()]


def test_a_session_that_is_resumed_beside_itself_is_woken_where_it_goes_on(place: Place) -> None:
    with Host(place) as host, Host(place) as other:
        assert [0, 1] == resumed_beside_itself(host, other)
        other.prompt()
        other.stop()
        other.wait_for_armed(1)
        host.end()  # not the session: that is over there
        assert (1, "shop") == (other.armed(), name_of(other))
        with place.room() as room:
            assert not room.agent("shop").presence.left


def test_a_waiter_that_nobody_ends_wakes_the_process_in_which_a_session_was(place: Place) -> None:
    with Host(place, bug=TWO_PLACES) as host, Host(place, bug=TWO_PLACES) as other:
        assert [1, 0] == resumed_beside_itself(host, other)


def test_a_waiter_looks_at_its_session_even_if_no_mail_comes(place: Place) -> None:
    """Where the system does not tell when a host ends."""
    with Host(place, bug=f"{BLIND}w.BEAT = 0.1") as host:
        host.start()
        (pid,) = host.waiters()
        wait_until_noted(place, pid)
        host.die()
        wait_until_gone(pid)


@pytest.mark.daemon
def test_a_session_behind_a_daemon_is_woken_by_the_same_rules(place: Place) -> None:
    room = place.environment.pop("POSTROOM_STORE")
    words = ("--room", room, "--http", "off")
    with Daemon(place.home, *words) as daemon:
        place.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        place.post("shop", "Old.", priority="low")
        with Host(place) as host:
            assert "Old." in host.start()
            host.prompt()
            place.post("shop", "In a turn.", subject="First", id="m-1")
            host.wait_for_armed(1)
            assert 0 == host.hear()
            assert "In a turn." in host.tools() and "" == host.stop()
            place.post("shop", "And now?", subject="Second", id="m-2")
            host.wait_for_rings(1)
            assert host.rings[0].startswith("Postroom: new mail for shop; 1 letter unread.\n")
            assert '- from ann (unverified): "Second" (id m-2)\n' in host.rings[0]
            assert "And now?" in host.prompt("<task-notification>") and "" == host.stop()
            host.wait_for_armed(1)
            assert 1 == host.hear()
    assert ["rung", "shown"] == facts(place, "m-2") and ["shown"] == facts(place, "m-1")


@pytest.mark.daemon
def test_a_daemon_that_was_away_is_asked_again(place: Place) -> None:
    words = ("--room", place.environment.pop("POSTROOM_STORE"), "--http", "off")
    with Daemon(place.home, *words) as daemon:
        place.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        with Host(place, bug="import postroom.hosts.sources as s; s.LOOK_EVERY = 0.2") as host:
            host.start()
            host.wait_for_armed(1)
            daemon.stop(signal.SIGKILL)
            place.post("shop", "Are you there?")
            with Daemon(place.home, *words):
                host.wait_for_rings(1)


def told_without_its_daemon(place: Place, bug: str = "") -> str:
    """What a session is told after its daemon ended. The room was named, too."""
    words = ("--room", place.environment["POSTROOM_STORE"], "--http", "off")
    with Daemon(place.home, *words) as daemon:
        place.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        with Host(place, bug=bug) as host:
            host.call("SessionStart", source="startup")
            daemon.stop(signal.SIGTERM)
            place.post("shop", "Are you there?")
            text: str = host._say({"hook": host._words(), "stdin": host._said("UserPromptSubmit")})["out"]
            return text


@pytest.mark.daemon
def test_a_session_whose_daemon_ended_finds_its_mail_in_the_room(place: Place) -> None:
    assert "Are you there?" in told_without_its_daemon(place)


@pytest.mark.daemon
def test_a_hook_that_asks_nobody_but_its_daemon_finds_none(place: Place) -> None:
    stubborn = "import postroom.hosts.sources as s; s.daemon_answers = lambda *_, **__: True"
    assert "" == told_without_its_daemon(place, stubborn)


def facts(place: Place, id: str) -> list[str]:
    """What is known of a letter, besides how it was stored."""
    with place.room() as room:
        (stop,) = room.trace(id).stops
        return ["rung"] * len(stop.rings) + ["shown"] * len(stop.sights)


def test_a_session_that_nobody_attends_has_no_waiter(place: Place) -> None:
    """`claude -p` would wait for it before it begins."""
    place.environment["CLAUDE_CODE_ENTRYPOINT"] = "sdk-cli"
    with Host(place) as host:
        host.start()
        host.stop()
        until(lambda: not host.waiters())
        assert ([], [0, 0]) == (host.rings, host.ends)


def wait_until_noted(place: Place, pid: int) -> None:
    """Until the waiter has written down that it is the one."""
    notes = place.home / ".local/state/postroom/sessions"
    until(lambda: any(path.read_text("utf-8").startswith(f"{pid} ") for path in notes.glob("*.waiter")))


def wait_until_gone(pid: int) -> None:
    until(lambda: not is_there(pid))


def is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    return False
