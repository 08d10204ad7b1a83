"""`postroom install claude|codex|gemini`: shows what would change, asks, and says what to do next."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.shell import PROGRAM, Shell
from tests.cli.terminal import Terminal

HOSTS = ("claude", "codex", "gemini")
RULES = {"claude": ".claude/CLAUDE.md", "codex": ".codex/AGENTS.md", "gemini": ".gemini/GEMINI.md"}


def files(shell: Shell) -> dict[str, bytes]:
    """What hosts would see."""
    folders = [shell.home / f".{host}" for host in HOSTS]
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_shows_it_and_writes_nothing(shell: Shell, host: str) -> None:
    shown = shell.run("install", host, "--dry-run", "--rules")
    assert (0, "", {}) == (shown.code, shown.err, files(shell))
    assert f"+++ {shell.home}/{RULES[host]}\n" in shown.out and PROGRAM[0] in shown.out
    assert shown.out.startswith("Would make") and f"Would make: {shell.home}/{RULES[host]}\n" in shown.out
    result = shell.json("install", host, "--dry-run")
    assert ("shown", {"made"}) == (result["outcome"], {change["action"] for change in result["changes"]})
    assert not any(RULES[host] in change["path"] for change in result["changes"])


@pytest.mark.parametrize("host", HOSTS)
def test_it_is_put_in_and_taken_out(shell: Shell, host: str) -> None:
    done = shell.json("install", host, "--yes", "--rules")
    assert "written" == done["outcome"] and done["next"]
    assert {change["path"] for change in done["changes"]} == set(files(shell))
    assert "unchanged" == shell.json("install", host, "--yes")["outcome"]
    checked = shell.json("install", host, "--check")
    assert "in place" == checked["outcome"]
    assert [{"path": PROGRAM[0], "there": True}] == checked["programs"]
    assert "removed" == shell.json("uninstall", host, "--yes")["outcome"]
    assert {} == files(shell) and "absent" == shell.json("uninstall", host, "--yes")["outcome"]


def test_every_hook_command_names_agent_and_room(shell: Shell) -> None:
    shell.json("install", "codex", "--yes", "--agent", "coder", "--room", "rooms/a b.db")
    hooks = json.loads((shell.home / ".codex" / "hooks.json").read_bytes())["hooks"]
    commands = [handler["command"] for groups in hooks.values() for handler in groups[0]["hooks"]]
    for command in [*commands, (shell.home / ".codex" / "config.toml").read_text(encoding="utf-8")]:
        assert "coder" in command and f"{shell.home}/rooms/a b.db" in command
    refused = shell.run("install", "codex", "--agent", "../x", "--yes", "--json")
    assert (65, "--agent") == (refused.code, refused.error["field"])
    for words in (["--as", "ann"], ["--rules", "--no-rules"]):
        assert 64 == shell.run("install", "codex", "--yes", *words).code


def test_a_project_has_files_of_its_own(shell: Shell) -> None:
    work = shell.home / "work"
    work.mkdir()
    shell.json("install", "gemini", "--yes")
    twice = shell.type("cd work && postroom install gemini --project --yes --json")
    assert 73 == twice.code and "for all projects already" in twice.error["message"]
    shell.json("uninstall", "gemini", "--yes")
    before = files(shell)
    done = shell.type("cd work && postroom install gemini --project --rules --yes --json")
    assert 0 == done.code, done.err
    made = {f"{work}/.gemini/settings.json", f"{work}/.gemini/.made-by-postroom", f"{work}/GEMINI.md"}
    assert made == {one["path"] for one in done.json["changes"]}
    assert 0 == shell.type("cd work && postroom uninstall gemini --project --yes").code
    assert before == files(shell) and [] == list(work.iterdir())


# -- who is asked


def test_where_nobody_can_be_asked_it_must_be_said_beforehand(shell: Shell) -> None:
    for words in (["install", "codex"], ["install", "codex", "--json"]):
        refused = shell.run(*words)
        assert 64 == refused.code and "--yes" in refused.err and "--dry-run" in refused.err
    assert {} == files(shell)
    shell.json("install", "codex", "--yes")
    assert 64 == shell.run("uninstall", "codex").code
    assert files(shell)


@pytest.mark.parametrize("host", HOSTS)
def test_a_person_is_asked_first_for_this_then_for_the_rules(shell: Shell, host: str) -> None:
    terminal = Terminal(shell, "install", host)
    terminal.read_until("Write this? [y/N]")
    assert {} == files(shell)
    assert re.match(
        rf"Would make(, in|:) {shell.home}/", terminal.shown.decode()
    )  # first which files, then the diff
    terminal.type("y\n")
    terminal.read_until("rules, too? [y/N]")
    assert {} == files(shell) and "+## Mail from other agents" in terminal.shown.decode()
    terminal.type("n\n")
    code, shown = terminal.finish()
    assert 0 == code and "Made" in shown and not (shell.home / RULES[host]).exists()
    again = Terminal(shell, "uninstall", host)
    again.read_until("Take this out? [y/N]")
    again.type("y\n")
    assert 0 == again.finish()[0] and {} == files(shell)


def test_the_question_names_files_that_are_ours_alone_in_a_line(shell: Shell) -> None:
    terminal = Terminal(shell, "install", "claude")
    terminal.read_until("Write this? [y/N]")
    shown = terminal.shown.decode()
    assert "hooks/hooks.json" in shown and PROGRAM[0] in shown and len(shown.splitlines()) < 10
    terminal.type("n\n")
    terminal.finish()
    (shell.home / ".claude").mkdir()
    (shell.home / ".claude" / "CLAUDE.md").write_text("Mine.\n", encoding="utf-8")
    done = shell.run("install", "claude", "--yes", "--rules").out
    assert "\n Mine.\n" in done and "+## Mail from other agents" in done and "+{" not in done
    hooks = shell.home / ".claude" / "skills" / "postroom" / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text(encoding="utf-8").replace("604770s", "60s"), encoding="utf-8")
    assert '-              "60s"' in shell.run("install", "claude", "--yes").out


def test_for_everything_after_the_project_here_is_shown_before_the_question(shell: Shell) -> None:
    (shell.home / "work").mkdir()
    assert 0 == shell.type("cd work && postroom install claude --project --yes").code
    text = f"{shell.home}/work has Postroom too: in that folder type postroom uninstall claude --project."
    shown = shell.type("cd work && postroom install claude --yes --no-rules").out
    assert 1 == shown.count(text) and shown.index(text) < shown.index("Made")
    assert text in shell.type("cd work && postroom install claude --check").out


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "yellow\n"])
def test_whatever_is_not_yes_is_no(shell: Shell, answer: str) -> None:
    terminal = Terminal(shell, "install", "codex", "--rules")
    terminal.read_until("Write this? [y/N]")
    terminal.type(answer)
    code, shown = terminal.finish()
    assert (1, {}) == (code, files(shell)) and "Nothing was written." in shown


def test_ctrl_c_writes_nothing(shell: Shell) -> None:
    terminal = Terminal(shell, "install", "codex", counted=False)
    terminal.read_until("Write this? [y/N]")
    terminal.interrupt()
    assert (130, {}) == (terminal.finish()[0], files(shell))


@pytest.mark.parametrize(("words", "is_told"), [([], True), (["--no-rules"], False), (["--rules"], False)])
def test_who_is_not_asked_hears_that_the_rules_were_not_added(
    shell: Shell, words: list[str], is_told: bool
) -> None:
    done = shell.run("install", "codex", "--yes", *words)
    assert 0 == done.code and is_told == ("--rules adds it" in done.out)


# -- what goes wrong


def test_a_plugin_from_a_marketplace_is_found_in_place(shell: Shell) -> None:
    shell.json("install", "claude", "--yes")
    settings = shell.home / ".claude" / "settings.json"
    settings.write_text('{"enabledPlugins": {"postroom@postroom": true}}', encoding="utf-8")
    twice = shell.run("install", "claude", "--check")
    assert 1 == twice.code and "twice" in twice.out and "claude plugin uninstall postroom@postroom" in twice.out
    shell.json("uninstall", "claude", "--yes")
    alone = shell.run("install", "claude", "--check")
    assert "from a marketplace" in alone.out and "puts it in place" not in alone.out


def test_what_may_not_be_touched_is_reported_with_its_path(shell: Shell) -> None:
    (shell.home / ".codex").mkdir()
    (shell.home / ".codex" / "config.toml").symlink_to(shell.home / "elsewhere")
    refused = shell.run("install", "codex", "--yes", "--json")
    assert (73, f"{shell.home}/.codex/config.toml") == (refused.code, refused.error["field"])
    assert "is a link" in refused.error["message"] and {} == files(shell)
    for words in (
        ["uninstall", "codex", "--yes"],
        ["install", "codex", "--check"],
        ["install", "codex", "--dry-run"],
    ):
        assert 73 == shell.run(*words).code


def test_a_rules_file_that_may_not_be_touched_keeps_nobody_from_the_rest(shell: Shell) -> None:
    (shell.home / ".codex").mkdir()
    (shell.home / ".codex" / "AGENTS.md").write_bytes(b"\xff")
    refused = shell.run("install", "codex", "--rules", "--yes", "--json")
    assert (73, f"{shell.home}/.codex/AGENTS.md") == (refused.code, refused.error["field"])
    terminal = Terminal(shell, "install", "codex")
    terminal.read_until("Write this? [y/N]")
    terminal.type("y\n")
    code, message = terminal.finish()
    assert 0 == code and "no rules text is offered" in message and "is no UTF-8 text" in message
    assert {"hooks.json", "config.toml", "AGENTS.md"} == {path.name for path in (shell.home / ".codex").iterdir()}
    assert "removed" == shell.json("uninstall", "codex", "--yes")["outcome"]


def test_hostile_files_are_shown_harmlessly(shell: Shell) -> None:
    (shell.home / ".gemini").mkdir()
    (shell.home / ".gemini" / "settings.json").write_bytes('{"\u202e": "\u009b31m", "a": {}}'.encode())
    shown = shell.run("install", "gemini", "--dry-run")
    assert 0 == shown.code and "\\u{202e}" in shown.out and "\u009b" not in shown.out


def test_a_program_that_is_gone_is_reported(shell: Shell) -> None:
    shell.json("install", "gemini", "--yes")
    settings = shell.home / ".gemini" / "settings.json"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace(PROGRAM[0], "/gone/postroom"), encoding="utf-8"
    )
    checked = shell.run("install", "gemini", "--check")
    assert 1 == checked.code and "/gone/postroom is not there any more" in checked.out
    assert "postroom install gemini" in checked.out
    shell.json("install", "gemini", "--yes")
    assert 0 == shell.run("install", "gemini", "--check").code
    shutil.rmtree(settings.parent)
    absent = shell.run("install", "gemini", "--check", "--json")
    assert (1, "absent") == (absent.code, absent.json["outcome"])
    assert f"Nothing of Postroom is in {shell.home}/.gemini." in shell.run("uninstall", "gemini").out


def test_without_the_sdk_the_server_is_left_out_and_that_is_reported(shell: Shell, tmp_path: Path) -> None:
    blind = tmp_path / "blind"
    blind.mkdir()
    hide = "import sys\nsys.modules['mcp'] = sys.modules['mcp_types'] = None\n"
    (blind / "sitecustomize.py").write_text(hide, encoding="utf-8")
    shell.warm = False
    path = f"{blind}:{shell.environment['PYTHONPATH']}"
    done = shell.run("install", "codex", "--yes", "--json", PYTHONPATH=path)
    assert 0 == done.code, done.err
    assert any("pip install" in line for line in done.json["next"])
    for words in (["--check"], ["--dry-run", "--agent", "coder"]):
        assert "The MCP server is left out" in shell.run("install", "codex", *words, PYTHONPATH=path).out
    assert not (shell.home / ".codex" / "config.toml").exists() and (shell.home / ".codex" / "hooks.json").exists()
    (blind / "nanobot").mkdir()
    (blind / "nanobot" / "__init__.py").touch()
    beside_nanobot = shell.run("install", "claude", "--dry-run", PYTHONPATH=path).out
    assert "conflicts with it: use an environment of its own" in beside_nanobot
