"""Whole sessions of scripted hosts: busy, idle, resumed, cleared, side by side; and how often each is rung.

Where something could go wrong quietly, the same run is made with that bug planted, and must come out otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import pytest

import postroom
from postroom.hosts.waiter import SILENCE
from tests.hosts.hosting import PROGRAM, Host, Place, name_of

NO_COUNT = "import postroom.hosts.text as t; t.MOST_HELD_STOPS = 99"
NO_MANNERS = "import postroom.hosts.waiter as w; w.BUSY = 'never'"
NO_MARKS = "from postroom.hosts.sources import VerbSource as V; V.show = lambda *a: None"
TOO_LATE = "import os; from postroom.hosts.sources import VerbSource as V; V.show = lambda *a: os._exit(0)"
LOCKED = """
def mark(*_): raise PermissionError(13, "Permission denied")
import postroom.hosts.sessions as s; s.Session.mark = mark
"""
SLOW = "import time; from postroom.hosts.sources import VerbSource as V; f = V.show; \
V.show = lambda *a: (time.sleep(0.3), f(*a))[1]"


@pytest.fixture
def host(place: Place) -> Iterator[Host]:
    with Host(place) as host:
        yield host


# -- busy and idle


def busy_run(host: Host) -> list[int]:
    """How often a session was rung: after mail came in a turn, and at the end of that turn."""
    host.start()
    host.wait_for_armed(1)
    host.prompt()
    host.place.post("shop", "Which sort?", priority="urgent", subject="Sorting")
    assert "Which sort?" in host.tools()
    rung = host.hear()
    assert "" == host.tools() == host.stop()
    return [rung, host.hear()]


def test_a_busy_session_is_shown_its_mail_between_tools_and_is_not_rung(host: Host) -> None:
    assert [0, 0] == busy_run(host)


def test_a_waiter_that_ignores_turns_alerts_in_the_middle_of_one(place: Place) -> None:
    with Host(place, bug=NO_MANNERS) as host:
        host.start()
        host.prompt()
        place.post("shop", "Which sort?", priority="urgent")
        host.wait_for_rings(1)


def test_an_idle_session_is_rung_once_for_what_comes_together_and_then_reads_it(host: Host) -> None:
    host.start()
    host.prompt()
    host.stop()
    with host.place.room() as room:
        drafts = [postroom.draft("shop", f"Body {n}", subject=f"Letter {n}", id=f"m-{n}") for n in range(3)]
        room.mailbox("ann").send_many(drafts)
    host.wait_for_rings(1)
    (ring,) = host.rings
    assert ring.startswith("Postroom: new mail for shop; 3 letters unread.\n")
    assert '- from ann (unverified): "Letter 0" (id m-0)\n' in ring and '"Letter 2" (id m-2)' in ring
    assert "Body" not in ring
    woken = host.prompt(
        f"<task-notification>\n<summary>Stop hook feedback</summary>\n</task-notification>\n{ring}"
    )
    assert 3 == woken.count("\nBody ")
    assert "" == host.stop()
    host.wait_for_armed(1)
    assert 1 == host.hear()


def test_mail_that_came_in_a_turn_without_tools_rings_when_the_turn_is_over(host: Host) -> None:
    host.start()
    host.prompt()
    host.place.post("shop", "No hurry.")
    assert "" == host.stop()  # nothing in it asks for the turn to go on
    host.wait_for_rings(1)


def test_a_turn_of_which_nothing_was_heard_for_two_minutes_may_be_over(host: Host) -> None:
    host.start()
    host.prompt()
    (file,) = (host.place.home / ".local/state/postroom/sessions").glob("claude-*.json")
    os.utime(file, (time.time() - SILENCE - 10,) * 2)
    host.place.post("shop", "Are you there?")
    host.wait_for_rings(1)


def test_a_clock_that_was_set_back_silences_nobody(host: Host) -> None:
    host.start()
    host.prompt()
    (file,) = (host.place.home / ".local/state/postroom/sessions").glob("claude-*.json")
    os.utime(file, (time.time() + 86_400,) * 2)
    host.place.post("shop", "Are you there?")
    host.wait_for_rings(1)


def test_mail_that_waited_when_a_session_began_rings_nobody(host: Host) -> None:
    for n in range(12):
        host.place.post("shop", "x" * 2000, subject=f"{n}")
    first = host.start()
    assert "more not shown here" in first
    host.wait_for_armed(1)
    host.prompt()
    host.end()
    host.session += "-2"
    host.start("clear")
    host.wait_for_armed(1)
    assert 0 == host.hear()


# -- the end of a turn


def held(host: Host, turns: int) -> int:
    """How many ends of a turn were held up, one after the other, while new urgent mail came in each."""
    found = 0
    for _ in range(turns):
        host.place.post("shop", "Now!", priority="urgent")
        found += bool(host.hook("stop"))
    return found


def test_a_turn_is_held_up_three_times_in_a_row_until_a_person_writes(host: Host) -> None:
    host.start()
    host.prompt()
    assert 3 == held(host, 5)
    host.prompt("<task-notification>\n<summary>x</summary>\n</task-notification>")
    assert 0 == held(host, 1)
    host.prompt()
    assert 1 == held(host, 1)


def test_a_host_that_does_not_count_is_held_up_for_ever(place: Place) -> None:
    with Host(place, bug=NO_COUNT) as host:
        host.start()
        assert 5 == held(host, 5)


@pytest.mark.parametrize(("bug", "many"), [(TOO_LATE, 3), (f"{TOO_LATE}; {NO_COUNT}", 5)], ids=["", "uncounted"])
def test_a_turn_that_was_held_up_counts_even_if_what_was_shown_could_not_be_marked(
    place: Place, bug: str, many: int
) -> None:
    """The room may be busy for longer than a hook may take."""
    with Host(place, bug=bug) as host:
        host.start()
        assert many == held(host, 5)


def test_a_session_goes_on_where_its_note_cannot_be_written(place: Place) -> None:
    with Host(place, bug=LOCKED) as host:
        for event in ("SessionStart", "Stop"):  # the second is quick
            done = host._say({"hook": host._words(), "stdin": host._said(event)})
            assert (0, "postroom: no mail could be shown: [Errno 13] Permission denied\n") == (
                done["code"],
                done["err"],
            )


def test_a_turn_is_held_up_for_what_asks_for_it_and_for_nothing_else(host: Host) -> None:
    host.start()
    with host.place.room() as room:
        ann, shop = room.mailbox("ann"), room.mailbox("shop")
        ann.send("shop", "For your information.")
        assert "" == host.hook("stop")
        ann.give_task("shop", "Review sort.py")
        assert "Review sort.py" in host.hook("stop")
        assert "" == host.hook("stop")  # it was shown
        mine = shop.give_task("ann", "Look at it")
        ann.task(mine.id).accept()
        host.prompt()
        assert "" == host.hook("stop")  # that is good news, and no question
        ann.task(mine.id).start()
        ann.task(mine.id).ask("Which file?")
        assert "Which file?" in host.hook("stop")
        host.prompt()
        ann.send("shop", "High", priority="high")
        assert "High" in host.hook("stop")


def test_a_task_is_not_left_behind_many_letters_that_ask_for_nothing(host: Host) -> None:
    host.start()
    with host.place.room() as room:
        ann = room.mailbox("ann")
        ann.send_many([postroom.draft("shop", f"News {n}") for n in range(25)])
        assert "" == host.hook("stop")
        ann.give_task("shop", "Review sort.py")
        message = host.hook("stop")
        assert "26 new letters" in message and message.index("Review sort.py") < message.index("News 0")


def shown(host: Host) -> int:
    host.start()
    host.place.post("shop", "Which sort?")
    return sum(
        "Which sort?" in message for message in (host.prompt(), host.tools(), host.hook("stop"), host.prompt())
    )


def test_a_letter_is_shown_once(host: Host) -> None:
    assert 1 == shown(host)


def test_where_nothing_is_marked_a_letter_is_shown_again_and_again(place: Place) -> None:
    with Host(place, bug=NO_MARKS) as host:
        assert shown(host) > 1


def shown_at_once(host: Host) -> int:
    """How many of four hooks that were called at once showed the one letter."""
    host.start()
    host.wait_for_armed(1)
    host.prompt()
    host.place.post("shop", "Which sort?")
    results = [one["out"] for one in host.at_once("tools", 4)]
    return sum("Which sort?" in out for out in results)


def test_hooks_that_are_called_at_once_show_a_letter_once(place: Place) -> None:
    with Host(place, bug=SLOW) as host:
        assert 1 == shown_at_once(host)


def test_out_of_turn_each_of_them_shows_it(place: Place) -> None:
    with Host(place, bug=f"{SLOW}; import fcntl; fcntl.flock = lambda file, how: None") as host:
        assert shown_at_once(host) > 1


# -- who is who


def test_sessions_side_by_side_have_names_of_their_own_and_keep_them(place: Place) -> None:
    with Host(place) as first, Host(place) as second, Host(place, "gemini") as third:
        names = []
        for host in (first, second, third):
            host.start()
            names.append(name_of(host))
        assert ["shop", "shop-2", "shop-3"] == names
        place.post("shop-2", "For the second.")
        assert "" == first.prompt() == third.prompt()
        assert "For the second." in second.prompt()
        first.end()
        second.end("clear")
        second.session = f"{second.session}-cleared"
        second.start("clear")
        assert "shop-2" == name_of(second)
        with Host(place) as fourth:
            fourth.start()
            assert "shop" == name_of(fourth)


def test_a_session_that_is_resumed_keeps_its_name_and_hears_again_what_is_not_done(place: Place) -> None:
    with Host(place) as other, Host(place) as host:
        other.start()
        host.start()
        place.post("shop-2", "Which sort?", subject="Sorting", id="m-1")
        assert "Which sort?" in host.prompt()
        host.end()
        other.end()
        with Host(place) as again:
            again.session = host.session
            result = again.start("resume")
            assert '- from ann (unverified): "Sorting" (id m-1)\n' in result and "Which sort?" not in result
            assert "shop-2" == name_of(again)


def test_who_is_named_is_called_so_and_two_may_share_a_name(place: Place) -> None:
    with Host(place, "claude", "--as", "coder") as first, Host(place, "claude", "--as", "coder") as second:
        first.start()
        second.start()
        assert ["coder", "coder"] == [name_of(first), name_of(second)]
        first.end()
        with place.room() as room:
            assert not room.agent("coder").presence.left  # the other one is still there
        second.end()
        with place.room() as room:
            assert room.agent("coder").presence.left


def test_a_plugin_that_was_enabled_in_the_middle_of_a_session_begins_there(host: Host) -> None:
    host.place.post("shop", "Which sort?")
    assert "Which sort?" in host.tools()
    assert "shop" == name_of(host)


def test_what_is_typed_in_a_hosts_shell_is_the_sessions(host: Host) -> None:
    del host.place.environment["POSTROOM_STORE"]
    with Host(host.place) as inside:
        inside.start()
        typed = inside.run("sh", "-c", f"cd /; {' '.join(PROGRAM)} send bob --body hi")
        assert 0 == typed["code"], typed
        found = inside.run(*PROGRAM, "sent", "--json")
        assert ["shop"] == [letter["sender"] for letter in json.loads(found["out"])["letters"]]
        inside.end()
        assert 64 == inside.run(*PROGRAM, "sent")["code"]


# A client that writes a letter by an MCP server, which nobody told who it is.
_CLIENT = """
import json, subprocess, sys
server = subprocess.Popen([sys.executable, "-m", "postroom", "mcp"], stdin=-1, stdout=-1, text=True)
def say(**said):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **said}) + chr(10))
    server.stdin.flush()
client = {"name": "tests", "version": "1"}
say(id=1, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
server.stdout.readline()
say(method="notifications/initialized")
say(id=2, method="tools/call", params={"name": "send_message", "arguments": {"to": ["ann"], "body": "hi"}})
print(server.stdout.readline())
server.stdin.close()
server.wait()
"""


@pytest.mark.daemon
def test_the_mcp_server_of_a_session_speaks_for_its_agent(host: Host) -> None:
    host.start()
    result = host.run("env", "-u", "PYTHONPYCACHEPREFIX", sys.executable, "-c", _CLIENT)  # the SDK is large
    assert not json.loads(result["out"])["result"].get("isError"), result
    with host.place.room() as room:
        assert ["shop"] == [letter.sender for letter in room.mailbox("ann").check()]
