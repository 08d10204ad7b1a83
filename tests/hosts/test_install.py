"""Postroom put into a host and taken out: all or nothing, nothing of others, and back to the byte."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from postroom.errors import Refused
from postroom.hosts.install import plan as install_plan
from postroom.hosts.install.layouts import CODEX_MARK
from postroom.hosts.install.pieces import TomlTable
from postroom.hosts.install.plan import has_rules, install_state
from postroom.mcp.tools import TOOLS
from tests.cli.shell import PATIENCE
from tests.conftest import LONG

from .places import HOSTS, SETTINGS, Home

# -- back to the byte


def test_uninstall_gives_every_file_back_and_leaves_nothing(home: Home, host: str) -> None:
    home.put("other", "x")
    before = home.all()
    assert all(change.before is None for change in home.install(host))
    made = set(home.all()) - set(before)
    assert all((home.folder / path).stat().st_mode & 0o077 == 0 for path in made)
    home.uninstall(host)
    assert before == home.all()


@pytest.mark.parametrize("folder", [".claude", ".claude/skills", ".codex", ".gemini"])
def test_an_empty_folder_that_was_there_stays(home: Home, host: str, folder: str) -> None:
    (home.folder / folder).mkdir(parents=True)
    before = home.all()
    home.install(host)
    home.uninstall(host)
    assert before == home.all()


def test_a_folder_that_install_made_stays_with_what_others_put_into_it(home: Home, host: str) -> None:
    home.install(host)
    home.put(f".{host}/theirs", "x")
    home.uninstall(host)
    assert {f".{host}", f".{host}/theirs"} == home.all().keys()


def test_files_of_others_come_back_to_the_byte(theirs: Home, host: str) -> None:
    before = theirs.all()
    theirs.install(host)
    assert before != theirs.all()
    modes = {path: mode for path, (mode, _) in theirs.all().items()}
    assert {path: mode for path, (mode, _) in before.items()}.items() <= modes.items()
    theirs.uninstall(host)
    assert before == theirs.all()


def test_the_second_time_nothing_changes(theirs: Home, host: str) -> None:
    theirs.install(host)
    before = theirs.all()
    assert () == theirs.install(host) == theirs.plan(host, rules=False)
    assert before == theirs.all()
    assert () == (theirs.uninstall(host), theirs.uninstall(host))[1]


def test_a_newer_program_takes_the_place_of_an_older_one(theirs: Home, host: str) -> None:
    before = theirs.all()
    theirs.install(host, program=("/old/bin/postroom",), options=("--as", "ann"))
    theirs.install(host, program=("/new/python", "-P", "-m", "postroom"))
    assert "/old/" not in str(theirs.all()) and "/new/" in str(theirs.all()) and "'ann'" not in str(theirs.all())
    theirs.uninstall(host)
    assert before == theirs.all()


def test_rules_come_and_stay_only_as_wished(theirs: Home, host: str) -> None:
    theirs.install(host, rules=False)
    assert not has_rules(theirs.layout(host))
    (change,) = theirs.install(host, rules=True)
    assert change.path == theirs.layout(host).rules.path and has_rules(theirs.layout(host))
    before = theirs.all()
    theirs.install(host, rules=False)
    assert before == theirs.all()


# -- what others did in between


def test_what_others_added_meanwhile_stays(home: Home) -> None:
    home.put(".gemini/settings.json", SETTINGS)
    home.install("gemini")
    message = json.loads(re.sub(r" // mine", "", home.text(".gemini/settings.json")))
    message["hooks"]["BeforeAgent"].append({"hooks": [{"type": "command", "command": "lint"}]})
    message["hooks"]["BeforeAgent"][0]["hooks"].append({"type": "command", "command": "check"})
    message["later"] = 1
    home.put(".gemini/settings.json", json.dumps(message))
    assert () == home.install("gemini")
    home.uninstall("gemini")
    groups = [{"hooks": [{"type": "command", "command": word}]} for word in ("check", "lint")]
    theirs = {"mcpServers": {"git": {"command": "x"}}, "later": 1}
    wanted = {"theme": "x", "hooks": {"Other": [], "BeforeAgent": groups}, **theirs}
    assert wanted == json.loads(home.text(".gemini/settings.json"))


def test_hooks_that_were_half_removed_are_made_whole_again(home: Home) -> None:
    home.install("codex")
    whole = json.loads(home.text(".codex/hooks.json"))
    half = {"hooks": {"Stop": [{"matcher": "x", **deepcopy(whole["hooks"]["Stop"][0])}]}}
    half["hooks"]["Stop"][0]["hooks"][0]["command"] += " --edited"
    home.put(".codex/hooks.json", json.dumps(half))
    home.install("codex")
    assert whole == json.loads(home.text(".codex/hooks.json"))


def test_what_codex_wrote_behind_our_table_stays(home: Home) -> None:
    home.put(".codex/config.toml", 'model = "x"\n')
    home.install("codex")
    trusted = '\n[hooks.state]\n\n[hooks.state."/x/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n'
    home.put(".codex/config.toml", home.text(".codex/config.toml") + trusted)
    home.install("codex", program=("/new/postroom",))
    home.uninstall("codex")
    assert tomllib.loads('model = "x"\n' + trusted) == tomllib.loads(home.text(".codex/config.toml"))


def test_files_of_others_in_our_folder_stay(home: Home) -> None:
    home.install("claude")
    mine = home.put(".claude/skills/postroom/notes.md", "mine")
    home.uninstall("claude")
    assert [mine] == [path for path in (home.folder / ".claude").rglob("*") if path.is_file()]


def test_a_file_that_an_older_version_had_goes(home: Home) -> None:
    home.install("claude", with_server=True)
    server = home.folder / ".claude/skills/postroom/.mcp.json"
    assert server.exists()
    home.install("claude", with_server=False)
    assert not server.exists()
    home.install("codex", with_server=False)
    assert not (home.folder / ".codex/config.toml").exists()


def test_what_an_earlier_version_put_into_codex_is_taken_out(home: Home) -> None:
    """It wrote its mark on a line of its own."""
    home.put(".codex/config.toml", 'model = "x"\n')
    home.install("codex")
    older = home.text(".codex/config.toml").replace(
        f"{TomlTable.HEADER} {CODEX_MARK}", f"{CODEX_MARK}\n{TomlTable.HEADER}"
    )
    home.put(".codex/config.toml", older)
    assert () == home.install("codex") and CODEX_MARK in older
    home.install("codex", program=("/new/postroom",))
    assert 1 == home.text(".codex/config.toml").count(CODEX_MARK)
    home.put(".codex/config.toml", older)
    home.uninstall("codex")
    assert 'model = "x"\n' == home.text(".codex/config.toml")


def test_what_was_empty_before_is_gone_afterwards(home: Home) -> None:
    """Nobody notes what was there; an empty object or file says nothing to a host."""
    home.put(".gemini/settings.json", '{\n  "theme": "x",\n  "hooks": {}\n}\n')
    home.put(".gemini/GEMINI.md", "")
    home.install("gemini")
    home.uninstall("gemini")
    assert '{\n  "theme": "x"\n}\n' == home.text(".gemini/settings.json")
    assert ".gemini/GEMINI.md" not in home.all()


# -- what is left alone


def _link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def _folder_to_nowhere(path: Path) -> None:
    path.parent.rename(path.parent.with_name("real"))
    path.parent.symlink_to(path.parent.with_name("nowhere"))


def _of_another(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, 12345)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


UNFIT: dict[str, Callable[[Path], object]] = {
    "is a link": _link_to_nowhere,
    "belongs to another user": _of_another,
    "may not be written": lambda path: path.chmod(0o444),
    "is no UTF-8 text": lambda path: path.write_bytes(b"\xff"),
    "is not a regular file": _folder,
    "is longer": lambda path: path.write_bytes(b" " * (4 * 2**20 + 1)),
    "folder: is a link": _folder_to_nowhere,
}
FILES = {"claude": ".claude/CLAUDE.md", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}


@pytest.mark.parametrize("why", UNFIT)
def test_a_file_that_may_not_be_touched_is_refused_and_nothing_is_written(
    theirs: Home, host: str, why: str
) -> None:
    path = theirs.folder / FILES[host]
    UNFIT[why](path)
    before = theirs.all()
    is_rules = path.suffix == ".md" and "folder" not in why
    for verb in (theirs.install, *(() if is_rules else (theirs.uninstall,))):
        with pytest.raises(Refused, match=f"{why.rpartition(': ')[2]}.*nothing was written") as refused:
            verb(host)
        assert str(path.parent if "folder" in why else path) == refused.value.field
    assert before == theirs.all()


@pytest.mark.parametrize("why", [why for why in UNFIT if "folder" not in why])
def test_a_rules_file_that_may_not_be_touched_keeps_nobody_from_the_rest(
    theirs: Home, host: str, why: str
) -> None:
    UNFIT[why](Path(theirs.layout(host).rules.path))
    before = theirs.all()
    assert not has_rules(theirs.layout(host))
    assert theirs.install(host, rules=False)
    assert theirs.uninstall(host) and before == theirs.all()


@pytest.mark.parametrize(
    ("host", "path", "text"),
    [
        ("codex", ".codex/hooks.json", '{"hooks": {} // x\n}'),
        ("codex", ".codex/hooks.json", '{"hooks": []}'),
        ("codex", ".codex/config.toml", "a = "),
        ("codex", ".codex/config.toml", '[mcp_servers.postroom]\nurl = "https://x"\n'),
        ("gemini", ".gemini/settings.json", '{"a": 1,}'),
        ("gemini", ".gemini/settings.json", '{"mcpServers": {"postroom": {"command": "x"}}}'),
        ("claude", ".claude/skills/postroom/SKILL.md", "theirs"),
        ("claude", ".claude/skills/postroom/.claude-plugin/plugin.json", '{"name": "theirs"}'),
        ("claude", ".claude/skills/postroom/.claude-plugin/plugin.json", "{"),
        ("claude", ".claude/settings.json", '{"enabledPlugins": {"postroom@market": true}}'),
    ],
)
def test_a_file_that_says_something_else_is_refused_and_nothing_is_written(
    home: Home, host: str, path: str, text: str
) -> None:
    home.put(path, text)
    before = home.all()
    with pytest.raises(Refused, match="nothing was written"):
        home.install(host)
    assert before == home.all()


def test_a_project_gets_nothing_that_is_there_for_all_of_them(home: Home, host: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    home.install(host)
    with pytest.raises(Refused, match="for all projects already") as refused:
        home.install(host, project=str(project))
    assert [] == list(project.iterdir()) and str(home.folder / f".{host}") == refused.value.field
    home.uninstall(host)
    home.put(FILES["codex"], "a = ")  # what cannot be understood there is not in the way
    home.install(host, project=str(project))
    assert home.uninstall(host, project=str(project)) and [] == list(project.iterdir())


def test_a_folder_that_is_not_ours_is_left_alone_by_uninstall(home: Home) -> None:
    home.put(".claude/skills/postroom/hooks/hooks.json", "theirs")
    before = home.all()
    assert () == home.uninstall("claude")
    assert before == home.all()


def test_a_path_that_is_no_text_is_refused(home: Home, host: str) -> None:
    with pytest.raises(Refused, match="UTF-8"):
        home.install(host, program=("/x/\udcff/postroom",))
    assert {} == home.all()


def test_gemini_would_take_a_dollar_for_a_variable(home: Home) -> None:
    with pytest.raises(Refused, match="variable"):
        home.install("gemini", options=("--room", "/x/$HOME/room.db"))


def test_hosts_in_other_places_are_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        (home.folder / name).mkdir()
        monkeypatch.setenv(name, str(home.folder / name))
    for host in HOSTS:
        home.install(host)
    places = {"CLAUDE_CONFIG_DIR/skills", "CODEX_HOME/hooks.json", "GEMINI_CLI_HOME/.gemini/settings.json"}
    assert places <= home.all().keys() and not {".claude", ".codex", ".gemini"} & home.all().keys()
    for host in HOSTS:
        home.uninstall(host)
    project = home.folder / "work"
    project.mkdir()
    before = home.all()
    for host in HOSTS:
        home.install(host, project=str(project))
    made = {path for path in home.all().keys() - before.keys() if path.count("/") == 1}
    assert made == {
        f"work/{name}" for name in (".claude", ".codex", ".gemini", "CLAUDE.md", "AGENTS.md", "GEMINI.md")
    }
    for host in HOSTS:
        home.uninstall(host, project=str(project))
    assert before == home.all()


# -- crashes, and a disk that fails

CRASH = """
import os, sys
from pathlib import Path
from postroom.hosts.install import plan as install_plan
from tests.hosts.places import Home
home, host, steps, planted = Home(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]), sys.argv[4]
def counted(real):
    def step(*given, **named):
        global steps
        steps -= 1
        if steps < 0:
            os._exit(9)
        return real(*given, **named)
    return step
if planted:
    def torn(change, drafts):
        Path(change.path).write_bytes(b"")
        os.replace(drafts[change.path], change.path)
    install_plan._apply = torn
for name in ("replace", "unlink", "mkdir", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
home.install(host)
"""


def crash(home: Home, host: str, steps: int, *, planted: bool = False) -> bool:
    """Install, and be killed before so many steps are done. Was it?"""
    words = [sys.executable, "-c", CRASH, str(home.folder.parent), host, str(steps), "planted" if planted else ""]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (Path(install_plan.__file__).parents[3], "."))),
    }
    done = subprocess.run(words, env=environment, cwd=Path(__file__).parents[2], timeout=PATIENCE, check=False)
    assert done.returncode in {0, 9}
    return done.returncode == 9


def contents(home: Home) -> dict[str, bytes | None]:
    """Without what was laid ready and not put in place."""
    return {path: content for path, (_, content) in home.all().items() if not path.endswith(".postroom")}


def assert_old_or_new(
    found: dict[str, bytes | None], old: dict[str, bytes | None], new: dict[str, bytes | None]
) -> None:
    assert found.keys() <= new.keys()
    for path, content in found.items():
        assert content in {old.get(path, new[path]), new[path]}, path
    assert old.keys() <= found.keys()


@pytest.mark.parametrize("host", ["codex"])
def test_who_is_killed_leaves_each_file_old_or_new_and_the_next_call_goes_on(theirs: Home, host: str) -> None:
    old = contents(theirs)
    theirs.install(host)
    new = contents(theirs)
    theirs.uninstall(host)
    steps = 0
    while crash(theirs, host, steps):
        assert_old_or_new(contents(theirs), old, new)
        theirs.install(host)
        assert new == contents(theirs)
        theirs.uninstall(host)
        assert old == {path: content for path, (_, content) in theirs.all().items()}
        steps += 1 if LONG else 3
    assert steps > 9


@pytest.mark.parametrize("host", ["codex"])
def test_a_writer_that_tears_files_would_be_caught(theirs: Home, host: str) -> None:
    old = contents(theirs)
    theirs.install(host)
    new = contents(theirs)
    theirs.uninstall(host)
    torn = 0
    for steps in range(40):
        if not crash(theirs, host, steps, planted=True):
            break
        try:
            assert_old_or_new(contents(theirs), old, new)
        except AssertionError:
            torn += 1
            break
        theirs.uninstall(host)
    assert torn


def fail_while_writing(home: Home, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the last draft is laid ready."""
    last = home.plan(host)[-1].path
    real = install_plan._write_draft

    def full(path: str, text: str, mode: int) -> str:
        if path == last:
            raise OSError(28, "No space left on device")
        return real(path, text, mode)

    monkeypatch.setattr(install_plan, "_write_draft", full)
    with pytest.raises(OSError, match="No space"):
        home.install(host)


def test_where_the_disk_is_full_nothing_changes(theirs: Home, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = theirs.all()
    fail_while_writing(theirs, host, monkeypatch)
    assert before == theirs.all()


def test_a_writer_without_drafts_is_found_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = install_plan._write_draft

    def at_once(path: str, text: str, mode: int) -> str:
        Path(path).write_text(text, encoding="utf-8")
        return real(path, text, mode)

    before = home.all()
    monkeypatch.setattr(install_plan, "_write_draft", at_once)
    fail_while_writing(home, "codex", monkeypatch)
    monkeypatch.undo()
    assert before != home.all()


def test_what_changed_since_it_was_shown_is_not_overwritten(theirs: Home, host: str) -> None:
    layout, plan = theirs.layout(host), theirs.plan(host)
    path = theirs.folder / FILES[host]
    path.write_bytes(b"{}\n")
    before = theirs.all()
    with pytest.raises(Refused, match="changed meanwhile"):
        install_plan.carry_out(plan, layout)
    assert before == theirs.all()


def test_what_appeared_since_it_was_shown_is_not_overwritten(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, plan = home.layout("codex"), home.plan("codex")
    real = install_plan._write_draft

    def late(path: str, text: str, mode: int) -> str:
        draft = real(path, text, mode)
        if path.endswith("AGENTS.md"):
            Path(path).write_text("theirs", encoding="utf-8")
        return draft

    monkeypatch.setattr(install_plan, "_write_draft", late)
    with pytest.raises(Refused, match="changed meanwhile"):
        install_plan.carry_out(plan, layout)
    assert {".codex", ".codex/AGENTS.md"} == home.all().keys() and "theirs" == home.text(".codex/AGENTS.md")


# -- what is told


def test_a_diff_says_what_will_be_written(theirs: Home, host: str) -> None:
    plan = theirs.plan(host)
    result = install_plan.diff(plan)
    for change in plan:
        assert f"+++ {change.path}\n" in result
        assert ("--- /dev/null\n" if change.before is None else f"--- {change.path}\n") in result
    patched = theirs.folder.parent / "patched"
    subprocess.run(["cp", "-a", str(theirs.folder), str(patched)], check=True)
    moved = result.replace(str(theirs.folder), str(patched)).encode()
    done = subprocess.run(["patch", "-p0", "--quiet"], input=moved, cwd="/", capture_output=True, check=False)
    assert 0 == done.returncode, done.stderr
    theirs.install(host)
    assert {path: content for path, (_, content) in theirs.all().items()} == contents(_moved(patched))


def _moved(folder: Path) -> Home:
    other = Home.__new__(Home)
    other.folder = folder
    return other


def test_the_status_shows_what_is_installed_and_whether_it_can_be_started(
    home: Home, host: str, tmp_path: Path
) -> None:
    assert (False, False, ()) == install_state(home.layout(host))
    home.install(host, rules=False)
    found = install_state(home.layout(host, program=("/elsewhere/postroom",)))
    assert (True, True, ("/opt/mail/bin/postroom",)) == found
    first = next(path for path in home.layout(host).pieces if Path(path.path).exists())
    Path(first.path).unlink()
    assert not install_state(home.layout(host)).is_all


@pytest.mark.parametrize("name", HOSTS)
def test_rules_are_short_and_name_what_is_there(home: Home, name: str) -> None:
    home.install(name)
    text = Path(home.layout(name).rules.path).read_text(encoding="utf-8")
    rules = text.partition("-->\n")[2].rpartition("<!--")[0]
    assert 300 < len(rules) < 1000
    tools = {"check_inbox", "read_thread", "send_message", "ack", "search_mail", "list_agents", "task", "claim"}
    assert tools <= TOOLS.keys() and all(f"`{tool}`" in rules for tool in tools)
    assert "data" in rules and "poll" in rules
