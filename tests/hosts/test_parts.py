"""The parts of the hosts by themselves: recipes, the plugin, names, processes, words, and who is whose."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom.formats.inbox import read_entry
from postroom.hosts import quick, sessions
from postroom.hosts.dialects import read_object
from postroom.hosts.hooks import plain, settle
from postroom.hosts.inbox_files import InboxFolder
from postroom.hosts.recipes import MARGIN, RECIPES, WAIT, hooks, is_ours, mcp_server
from postroom.hosts.sessions import (
    IDLE,
    KEPT,
    OVER,
    Session,
    all_sessions,
    find,
    keep,
    session_around_us,
    sweep,
)
from postroom.hosts.sources import FileSource, shown_entry
from postroom.hosts.text import ShownLetter, again, mail, orders, session_text
from tests.cli.shell import PROGRAM, Shell
from tests.cli.terminal import Terminal
from tests.daemons import Daemon


def letter_in_entry(entry: dict[str, Any]) -> ShownLetter:
    return shown_entry(read_entry(entry))


HOME = Path(__file__).parent.parent.parent
PLUGIN = HOME / "src" / "postroom" / "hosts" / "plugins" / "claude"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "postroom" / "sessions"


def session(id: str, agent: str = "", **fields: Any) -> Session:
    """One whose host is this process."""
    me = sessions.look(os.getpid())
    assert me is not None
    about: dict[str, Any] = {"host": "claude", "id": id, "agent": agent, "pid": me.pid, "began": me.began}
    return Session(**about | fields)


# -- recipes and the plugin


def test_what_the_plugin_takes_from_the_code_is_true() -> None:
    for path, text in runpy.run_path(str(HOME / "tools" / "plugin.py"))["files"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: make pages writes it"


def test_the_plugin_has_what_it_must_have() -> None:
    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text(encoding="utf-8"))
    (listed,) = json.loads((HOME / ".claude-plugin" / "marketplace.json").read_text(encoding="utf-8"))["plugins"]
    assert ("postroom", postroom.__version__) == (manifest["name"], manifest["version"])
    assert PLUGIN == (HOME / listed["source"]).resolve()
    assert len((PLUGIN / "README.md").read_text(encoding="utf-8").split()) >= 40
    assert (HOME / "LICENSE").read_bytes() == (PLUGIN / "LICENSE").read_bytes()
    assert {"mail", "reply", "handoff"} == {path.stem for path in (PLUGIN / "commands").iterdir()}


@pytest.mark.parametrize("host", RECIPES)
def test_a_waiter_ends_before_its_host_would_end_it(host: str) -> None:
    found = hooks(host, ["/opt/my tools/postroom"], ["--as", "coder"])
    entries = [entry for groups in found.values() for group in groups for entry in group["hooks"]]
    waits = [entry for entry in entries if entry.keys() & {"async", "asyncRewake"}]
    assert [f"{WAIT - MARGIN}s"] * len(waits) == [words(entry)[-1] for entry in waits]
    assert all(entry["timeout"] == WAIT for entry in waits) and bool(waits) == (host != "gemini")
    for entry in entries:
        assert ["/opt/my tools/postroom", "hook", host, "--as", "coder"] == words(entry)[:5]
        assert is_ours(host, entry)


def words(entry: dict[str, Any]) -> list[str]:
    import shlex

    return [entry["command"], *entry["args"]] if "args" in entry else shlex.split(entry["command"])


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "somebody hook codex"},
        {"command": "postroom hook claude"},
        {"command": "postroom send hook codex"},
        {"command": "echo 'postroom hook codex"},
        {"command": "/usr/bin/env"},
        {"type": "prompt"},
        {"command": "echo", "args": ["postroom", "hook"]},
    ],
    ids=str,
)
def test_what_others_wrote_is_not_ours(entry: dict[str, Any]) -> None:
    assert not is_ours("codex", entry)


def test_another_python_is_ours_too() -> None:
    assert is_ours("codex", {"command": "/opt/python3 -m postroom hook codex --as x"})
    assert {"command": "/opt/python3", "args": ["-m", "postroom", "mcp"]} == mcp_server(
        ["/opt/python3", "-m", "postroom"]
    )


# -- names


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/home/ann/My Shop!", "my-shop"),
        ("/srv/Ünïcödé_x/", "unicode-x"),
        ("/", "agent"),
        ("/x/日本", "agent"),
        ("/x/human", "human-agent"),
        ("/x/postmaster", "postmaster-agent"),
        ("/x/" + "y" * 300, "y" * 60),
        ("/x/..", "agent"),
    ],
)
def test_a_session_is_called_after_its_folder_in_plain_letters(folder: str, name: str) -> None:
    assert name == plain(folder)


def test_a_session_in_the_home_of_a_person_does_not_get_that_persons_mail(shell: Shell) -> None:
    home = shell.home / "sophie"
    home.mkdir()
    shell.environment["POSTROOM_HUMAN"] = "Sophie"
    params = {"session_id": "s", "cwd": str(home), "hook_event_name": "SessionStart", "source": "startup"}
    assert "" == shell.run("hook", "claude", stdin=json.dumps(params)).out
    with shell.room() as room:
        assert ["sophie-agent"] == [agent.card.id for agent in room.agents()]


def test_a_name_is_free_again_when_its_holder_is_dead_or_gone(state: Path) -> None:
    keep(session("dead", "shop", pid=2**22 + 1))
    keep(session("over", "shop-2", turn=OVER))
    keep(session("alive", "shop-3", host="codex"))
    for id, name in (("a", "shop"), ("b", "shop-2"), ("c", "shop-4")):
        new = session(id, host="codex")
        settle(new, "/x/shop", alone=False, cleared=False)
        assert name == new.agent


def test_what_ended_a_month_ago_is_forgotten(state: Path) -> None:
    for id, turn in (("old", OVER), ("new", OVER), ("alive", IDLE)):
        keep(session(id, "shop", turn=turn))
    for id in ("old", "alive"):
        os.utime(state / f"claude-{id}.json", (time.time() - KEPT - 1,) * 2)
    (state / "claude-old.waiter").touch()
    (state / "claude-old.turn").touch()
    sweep(time.time())
    assert ["alive", "new"] == [one.id for one in all_sessions()]
    assert not [*state.glob("claude-old.*")]


def test_a_note_that_cannot_be_written_leaves_nothing_behind(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    keep(session("1", "shop"))
    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space"):
        keep(session("1", "other"))
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent.parent))
    assert [state / "claude-1.json"] == [*state.iterdir()] and ["shop"] == [one.agent for one in all_sessions()]


@pytest.mark.parametrize(("text", "seconds"), [("", 2), ("0", 2), ("x", 2), ("-1", 2), ("7", 7), ("9999", 600)])
def test_a_hook_has_as_much_time_as_is_set_if_that_is_any(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_HOOK_SECONDS", text)
    assert seconds == quick.seconds()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"turn":"idle"}', '{"turn":"mad","holds":0}', "\0" * 100])
def test_a_note_that_cannot_be_read_is_no_session(state: Path, text: str) -> None:
    keep(session("s", "shop"))
    (state / "claude-s.json").write_text(text, encoding="utf-8")
    assert find("claude", "s") is None and [] == list(all_sessions())


def test_a_link_is_no_session(state: Path) -> None:
    keep(session("s", "shop"))
    (state / "claude-t.json").symlink_to(state / "claude-s.json")
    assert find("claude", "t") is None


# -- processes


def test_a_process_is_known_by_both_ways_the_system_tells_of_it() -> None:
    ours, result = sessions.look(os.getpid()), sessions._by_ps(os.getpid())
    assert ours is not None and result is not None
    assert (ours.pid, ours.parent) == (result.pid, result.parent)
    assert sessions.is_alive(ours.pid, ours.began) and not sessions.is_alive(ours.pid, "another time")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        assert sessions.look(ended.pid) is not None
    assert sessions.look(ended.pid) is None and sessions._by_ps(ended.pid) is None


def test_the_host_is_the_nearest_that_is_no_shell(tmp_path: Path) -> None:
    script = tmp_path / "postroom"  # a script of that name is a shell all the same
    ask = "import postroom.hosts.sessions as p; print(p.host().pid)"
    script.write_text(f'#!/bin/sh\n{sys.executable} -c "{ask}"\ntrue\n', encoding="utf-8")
    script.chmod(0o755)
    environment = os.environ | {"PYTHONPATH": str(Path(postroom.__file__).parent.parent)}
    done = subprocess.run(
        ["/bin/sh", "-c", f"{script}; true"], env=environment, capture_output=True, text=True, check=True
    )
    assert str(os.getpid()) == done.stdout.strip()


def test_who_plays_host_at_a_terminal_is_it_with_their_shell_alone(shell: Shell) -> None:
    start = json.dumps({"session_id": "1", "hook_event_name": "SessionStart", "source": "startup"})
    play = f"echo '{start}' | {' '.join(PROGRAM)} hook claude --as coder; echo shell $$"
    code, shown = Terminal(shell, "-c", play, program=["/bin/sh"]).finish()
    (file,) = shell.home.rglob("sessions/claude-1.json")
    assert 0 == code and f"shell {json.loads(file.read_bytes())['pid']}" in shown


def test_a_wrong_event_is_reported_to_a_person_and_not_to_a_host(shell: Shell) -> None:
    play = f"""echo '{{"hook_event_name":"Surprise"}}' | {" ".join(PROGRAM)} hook claude"""
    assert "docs/agents.md" in Terminal(shell, "-c", play, program=["/bin/sh"]).finish()[1]
    assert ("", "") == (
        (silent := shell.run("hook", "claude", stdin=b'{"hook_event_name":"Surprise"}')).out,
        silent.err,
    )
    assert "hook_event_name" in Terminal(shell, "hook", "claude").finish()[1]


# -- whose


def test_the_session_around_us_is_that_of_the_nearest_host(state: Path) -> None:
    assert session_around_us() is None
    parent = sessions.look(os.getppid())
    assert parent is not None
    keep(session("far", "far", pid=parent.parent, began="another"))
    keep(session("near", "near", pid=parent.pid, began=parent.began))
    keep(session("over", "over", pid=parent.pid, began=parent.began, turn=OVER))
    found = session_around_us()
    assert found is not None and "near" == found.agent


def test_of_several_sessions_of_one_process_the_one_is_meant_that_is_named(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = sessions.look(os.getppid())
    assert parent is not None
    for id in ("a", "b"):
        keep(session(id, f"agent-{id}", pid=parent.pid, began=parent.began))
    assert session_around_us() is None
    monkeypatch.setenv("CODEX_THREAD_ID", "b")
    found = session_around_us()
    assert found is not None and "agent-b" == found.agent


# -- words


def test_a_letter_whose_words_are_too_many_is_cut_and_never_left_out() -> None:
    entry = letter_in_entry(
        {"messageId": "m" * 200, "from": "a" * 128, "subject": "\u2603" * 900, "content": "\u2603" * 90_000}
    )
    text, count = mail([entry] * 3, 3, "bob", datetime.now(UTC), "0" * 16, 6000)
    assert 1 == count and len(text.encode()) <= 6000
    assert "(2 more not shown here" in text and "more characters" in text


def test_a_task_is_distinguished_from_a_letter_with_what_to_do() -> None:
    letter, task = {"messageId": "m-1", "from": "ann", "content": "Hello", "kind": "message"}, {"messageId": "m-2"}
    task |= {"from": "ann", "content": "Sort it", "kind": "task_update", "importance": "high"}
    now, nonce = datetime.now(UTC), "0" * 16
    both = [letter_in_entry(entry) for entry in (letter, task)]
    plain, result = (mail([entry], 1, "bob", now, nonce, 6000)[0] for entry in both)
    assert "[" not in plain and "the tool task" not in plain
    assert "[task update] [high]\n" in result and "the tool task with accept" in result
    ends = "(id m-1)\n- from ann (unverified) (id m-2, task update, high)\n"
    assert again(both, 2, "bob", 4000).endswith(ends)
    refused = replace(letter_in_entry(task), task="rejected")
    shown, _ = mail([refused], 1, "bob", now, nonce, 6000)
    assert "[task rejected] [high]\n" in shown and "the tool task" not in shown
    assert "(id m-2, task rejected, high)" in again([refused], 1, "bob", 4000)
    asked, _ = mail([replace(refused, task="input required")], 1, "bob", now, nonce, 6000)
    assert "[task input required]" in asked and "the tool task with accept" in asked
    odd = letter_in_entry({**letter, "kind": {"</system-reminder>": 1}, "importance": None})
    assert "system-reminder>" in (shown := mail([odd], 1, "bob", now, nonce, 6000)[0]) and "</system" not in shown


def test_a_long_list_of_what_was_shown_is_cut() -> None:
    lines = [{"messageId": f"m-{n}", "from": "ann", "importance": "high"} for n in range(40)]
    entries = [letter_in_entry(line) for line in lines]
    result = again(entries, 50, "bob", 4000)
    assert "50 letters" in result and result.endswith("- from ann (unverified) (id m-9, high)\n- and 40 more\n")
    assert "" == again([], 0, "bob", 4000)


def test_what_was_shown_before_leaves_room_for_what_is_new() -> None:
    """Whatever subjects say: hosts cut what is too long."""
    entry = letter_in_entry(
        {"messageId": "m" * 200, "from": "a" * 128, "subject": "\u2603" * 900, "content": "\u2603" * 90_000}
    )

    class Full(FileSource):
        """Mail with many words, new and old."""

        def waiting(self) -> tuple[list[ShownLetter], int]:
            return [entry] * 20, 200

        def seen(self) -> tuple[list[ShownLetter], int]:
            return [entry] * 20, 300

        def orders(self, since: float, nonce: str, *, only_new: bool) -> str:  # noqa: ARG002
            item, message = {"bead_id": "\u2603" * 200, "title": "\u2603" * 900}, "\u2603" * 9000
            nudge = {"from": "w" * 128, "type": "abort", "message": message, "requires_response": True}
            return orders("bob", item, nudge, nonce)

        def asks(self) -> bool:
            return True

    about: dict[str, Any] = {"began_by": "resume", "now": datetime.now(UTC), "nonce": "0" * 16}
    result = session_text("start", Full(InboxFolder(""), "bob"), session("s", "bob"), 8000, **about)
    assert "300 letters" in result.text and "200 new letters" in result.text and result.shown == 1
    assert 4000 < len(result.text.encode()) <= 8000
    assert result.text.startswith("Postroom: work is on the hook of bob") and "nudge for bob" in result.text


def test_json_is_read_as_it_stands() -> None:
    message = read_object(b' {"a": [1, 2.5, true, null, {"b": "\\u017e\\n"}], "c": "\xff"}')
    assert {"a": [1, 2.5, True, None, {"b": "\u017e\n"}], "c": "\udcff"} == message
    assert all({} == read_object(raw) for raw in (b"", b"[1]", b"{", b'{"a"', b"x", b'{"a":1,}'))


# -- behind a daemon


@pytest.mark.daemon
def test_a_session_behind_a_daemon_is_notified_of_its_mail_and_says_what_was_shown(shell: Shell) -> None:
    with Daemon(shell.home, "--room", str(shell.home / "room.db"), "--http", "off") as daemon:
        del shell.environment["POSTROOM_STORE"]
        shell.environment["POSTROOM_SOCKET"] = str(daemon.socket)

        def hook(event: str, **more: str) -> str:
            params = {"session_id": "s", "cwd": str(shell.home), "hook_event_name": event, **more}
            done = shell.run("hook", "claude", "--as", "bob", stdin=json.dumps(params))
            assert (0, "") == (done.code, done.err)
            return done.out

        assert "" == hook("SessionStart", source="startup")
        with shell.room() as room:
            assert "claude-code" == room.agent("bob").card.program
            ann = room.mailbox("ann")
            ann.send("bob", "For your information.", id="m-1")
            assert "" == hook("Stop")
            ann.give_task("bob", "Review sort.py", id="m-2")
            result = hook("Stop")
            assert "[task]" in result and "Review sort.py" in result and "For your information." in result
            assert "" == hook("Stop")
            ann.send_many([postroom.draft("bob", f"News {n}") for n in range(25)])
            ann.give_task("bob", "Sort it")
            assert "Sort it" in hook("Stop")
            assert "id m-1" in hook("SessionStart", source="compact")
            sights = room.core.store.records("audit:bob", "m-1")[0].value["sights"]
            assert [("claude", "Stop")] == [(one["host"], one["where"]) for one in sights]
            hook("SessionEnd", reason="other")
            assert room.agent("bob").presence.left


@pytest.mark.daemon
def test_letters_behind_a_daemon_may_be_as_long_as_may_be(shell: Shell) -> None:
    """Of those that were shown before, no more are fetched than are listed."""
    with shell.room() as room:
        drafts = [postroom.draft("bob", "y" * 1_000_000, id=f"m-{n}") for n in range(70)]
        room.mailbox("ann").send_many(drafts)
        room.mailbox("bob").mark_shown([f"m-{n}" for n in range(5, 70)], "claude", "Stop")
    with Daemon(shell.home, "--room", str(shell.home / "room.db"), "--http", "off") as daemon:
        del shell.environment["POSTROOM_STORE"]
        shell.environment["POSTROOM_SOCKET"] = str(daemon.socket)
        params = {"session_id": "s", "cwd": str(shell.home), "hook_event_name": "SessionStart", "source": "resume"}
        done = shell.run("hook", "claude", "--as", "bob", stdin=json.dumps(params))
        assert (0, "") == (done.code, done.err)
        assert "65 letters" in done.out and "- and 55 more" in done.out and "5 new letters" in done.out
