"""`postroom install claude|codex|gemini`: shows what would change, asks, and says what to do next."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.shell import PROGRAM, Desk
from tests.cli.terminal import Terminal

HOSTS = ("claude", "codex", "gemini")
RULES = {"claude": ".claude/CLAUDE.md", "codex": ".codex/AGENTS.md", "gemini": ".gemini/GEMINI.md"}


def files(desk: Desk) -> dict[str, bytes]:
    """What hosts would see."""
    folders = [desk.home / f".{host}" for host in HOSTS]
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_shows_it_and_writes_nothing(desk: Desk, host: str) -> None:
    shown = desk.run("install", host, "--dry-run", "--rules")
    assert (0, "", {}) == (shown.code, shown.err, files(desk))
    assert f"+++ {desk.home}/{RULES[host]}\n" in shown.out and PROGRAM[0] in shown.out
    assert shown.out.startswith("Would make") and f"Would make: {desk.home}/{RULES[host]}\n" in shown.out
    result = desk.json("install", host, "--dry-run")
    assert ("shown", {"made"}) == (result["outcome"], {change["action"] for change in result["changes"]})
    assert not any(RULES[host] in change["path"] for change in result["changes"])


@pytest.mark.parametrize("host", HOSTS)
def test_it_is_put_in_and_taken_out(desk: Desk, host: str) -> None:
    done = desk.json("install", host, "--yes", "--rules")
    assert "written" == done["outcome"] and done["next"]
    assert {change["path"] for change in done["changes"]} == set(files(desk))
    assert "unchanged" == desk.json("install", host, "--yes")["outcome"]
    checked = desk.json("install", host, "--check")
    assert "in place" == checked["outcome"]
    assert [{"path": PROGRAM[0], "there": True}] == checked["programs"]
    assert "removed" == desk.json("uninstall", host, "--yes")["outcome"]
    assert {} == files(desk) and "absent" == desk.json("uninstall", host, "--yes")["outcome"]


def test_whom_it_is_for_stands_in_every_call(desk: Desk) -> None:
    desk.json("install", "codex", "--yes", "--agent", "coder", "--room", "rooms/a b.db")
    hooks = json.loads((desk.home / ".codex" / "hooks.json").read_bytes())["hooks"]
    commands = [handler["command"] for groups in hooks.values() for handler in groups[0]["hooks"]]
    for command in [*commands, (desk.home / ".codex" / "config.toml").read_text(encoding="utf-8")]:
        assert "coder" in command and f"{desk.home}/rooms/a b.db" in command
    refused = desk.run("install", "codex", "--agent", "../x", "--yes", "--json")
    assert (65, "--agent") == (refused.code, refused.error["field"])
    for words in (["--as", "ann"], ["--rules", "--no-rules"]):
        assert 64 == desk.run("install", "codex", "--yes", *words).code


def test_a_project_has_files_of_its_own(desk: Desk) -> None:
    work = desk.home / "work"
    work.mkdir()
    desk.json("install", "gemini", "--yes")
    twice = desk.type("cd work && postroom install gemini --project --yes --json")
    assert 73 == twice.code and "for all projects already" in twice.error["message"]
    desk.json("uninstall", "gemini", "--yes")
    before = files(desk)
    done = desk.type("cd work && postroom install gemini --project --rules --yes --json")
    assert 0 == done.code, done.err
    assert {f"{work}/.gemini/settings.json", f"{work}/GEMINI.md"} == {one["path"] for one in done.json["changes"]}
    assert 0 == desk.type("cd work && postroom uninstall gemini --project --yes").code
    assert before == files(desk) and [] == list(work.iterdir())


# -- who is asked


def test_where_nobody_can_be_asked_it_must_be_said_beforehand(desk: Desk) -> None:
    for words in (["install", "codex"], ["install", "codex", "--json"]):
        refused = desk.run(*words)
        assert 64 == refused.code and "--yes" in refused.err and "--dry-run" in refused.err
    assert {} == files(desk)
    desk.json("install", "codex", "--yes")
    assert 64 == desk.run("uninstall", "codex").code
    assert files(desk)


@pytest.mark.parametrize("host", HOSTS)
def test_a_person_is_asked_first_for_this_then_for_the_rules(desk: Desk, host: str) -> None:
    terminal = Terminal(desk, "install", host)
    terminal.read_until("Write this? [y/N]")
    assert {} == files(desk)
    assert re.match(
        rf"Would make(, in|:) {desk.home}/", terminal.shown.decode()
    )  # first which files, then the diff
    terminal.type("y\n")
    terminal.read_until("rules, too? [y/N]")
    assert {} == files(desk) and "+## Mail from other agents" in terminal.shown.decode()
    terminal.type("n\n")
    code, shown = terminal.finish()
    assert 0 == code and "Made" in shown and not (desk.home / RULES[host]).exists()
    again = Terminal(desk, "uninstall", host)
    again.read_until("Take this out? [y/N]")
    again.type("y\n")
    assert 0 == again.finish()[0] and {} == files(desk)


def test_whoever_is_asked_reads_of_files_that_are_ours_alone_in_a_line(desk: Desk) -> None:
    terminal = Terminal(desk, "install", "claude")
    terminal.read_until("Write this? [y/N]")
    shown = terminal.shown.decode()
    assert "hooks/hooks.json" in shown and PROGRAM[0] in shown and len(shown.splitlines()) < 10
    terminal.type("n\n")
    terminal.finish()
    (desk.home / ".claude").mkdir()
    (desk.home / ".claude" / "CLAUDE.md").write_text("Mine.\n", encoding="utf-8")
    done = desk.run("install", "claude", "--yes", "--rules").out
    assert "\n Mine.\n" in done and "+## Mail from other agents" in done and "+{" not in done
    hooks = desk.home / ".claude" / "skills" / "postroom" / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text(encoding="utf-8").replace("604770s", "60s"), encoding="utf-8")
    assert '-              "60s"' in desk.run("install", "claude", "--yes").out


def test_for_everything_after_a_project_is_told_before_it_is_asked(desk: Desk) -> None:
    (desk.home / "work").mkdir()
    assert 0 == desk.type("cd work && postroom install claude --project --yes").code
    text = f"{desk.home}/work has Postroom too: in that folder type postroom uninstall claude --project."
    assert [text] == [line for line in desk.json("install", "claude", "--dry-run")["next"] if "too:" in line]
    shown = desk.run("install", "claude", "--yes", "--no-rules").out
    assert 1 == shown.count(text) and shown.index(text) < shown.index("Made")
    assert text in desk.run("install", "claude", "--check").out


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "yellow\n"])
def test_whatever_is_not_yes_is_no(desk: Desk, answer: str) -> None:
    terminal = Terminal(desk, "install", "codex", "--rules")
    terminal.read_until("Write this? [y/N]")
    terminal.type(answer)
    code, shown = terminal.finish()
    assert (1, {}) == (code, files(desk)) and "Nothing was written." in shown


def test_ctrl_c_writes_nothing(desk: Desk) -> None:
    terminal = Terminal(desk, "install", "codex", counted=False)
    terminal.read_until("Write this? [y/N]")
    terminal.interrupt()
    assert (130, {}) == (terminal.finish()[0], files(desk))


@pytest.mark.parametrize(("words", "is_told"), [([], True), (["--no-rules"], False), (["--rules"], False)])
def test_who_is_not_asked_hears_that_the_rules_were_not_added(desk: Desk, words: list[str], is_told: bool) -> None:
    done = desk.run("install", "codex", "--yes", *words)
    assert 0 == done.code and is_told == ("--rules adds it" in done.out)


# -- what goes wrong


def test_a_plugin_from_a_marketplace_is_found_in_place(desk: Desk) -> None:
    desk.json("install", "claude", "--yes")
    settings = desk.home / ".claude" / "settings.json"
    settings.write_text('{"enabledPlugins": {"postroom@postroom": true}}', encoding="utf-8")
    twice = desk.run("install", "claude", "--check")
    assert 1 == twice.code and "twice" in twice.out and "claude plugin uninstall postroom@postroom" in twice.out
    desk.json("uninstall", "claude", "--yes")
    alone = desk.run("install", "claude", "--check")
    assert "from a marketplace" in alone.out and "puts it in place" not in alone.out


def test_what_may_not_be_touched_is_told_with_its_path(desk: Desk) -> None:
    (desk.home / ".codex").mkdir()
    (desk.home / ".codex" / "config.toml").symlink_to(desk.home / "elsewhere")
    refused = desk.run("install", "codex", "--yes", "--json")
    assert (73, f"{desk.home}/.codex/config.toml") == (refused.code, refused.error["field"])
    assert "is a link" in refused.error["message"] and {} == files(desk)
    for words in (
        ["uninstall", "codex", "--yes"],
        ["install", "codex", "--check"],
        ["install", "codex", "--dry-run"],
    ):
        assert 73 == desk.run(*words).code


def test_a_rules_file_that_may_not_be_touched_keeps_nobody_from_the_rest(desk: Desk) -> None:
    (desk.home / ".codex").mkdir()
    (desk.home / ".codex" / "AGENTS.md").write_bytes(b"\xff")
    refused = desk.run("install", "codex", "--rules", "--yes", "--json")
    assert (73, f"{desk.home}/.codex/AGENTS.md") == (refused.code, refused.error["field"])
    terminal = Terminal(desk, "install", "codex")
    terminal.read_until("Write this? [y/N]")
    terminal.type("y\n")
    code, message = terminal.finish()
    assert 0 == code and "no rules text is offered" in message and "is no UTF-8 text" in message
    assert {"hooks.json", "config.toml", "AGENTS.md"} == {path.name for path in (desk.home / ".codex").iterdir()}
    assert "removed" == desk.json("uninstall", "codex", "--yes")["outcome"]


def test_hostile_files_are_shown_harmlessly(desk: Desk) -> None:
    (desk.home / ".gemini").mkdir()
    (desk.home / ".gemini" / "settings.json").write_bytes('{"\u202e": "\u009b31m", "a": {}}'.encode())
    shown = desk.run("install", "gemini", "--dry-run")
    assert 0 == shown.code and "\\u{202e}" in shown.out and "\u009b" not in shown.out


def test_a_program_that_is_gone_is_told(desk: Desk) -> None:
    desk.json("install", "gemini", "--yes")
    settings = desk.home / ".gemini" / "settings.json"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace(PROGRAM[0], "/gone/postroom"), encoding="utf-8"
    )
    checked = desk.run("install", "gemini", "--check")
    assert 1 == checked.code and "/gone/postroom is not there any more" in checked.out
    assert "postroom install gemini" in checked.out
    desk.json("install", "gemini", "--yes")
    assert 0 == desk.run("install", "gemini", "--check").code
    shutil.rmtree(settings.parent)
    absent = desk.run("install", "gemini", "--check", "--json")
    assert (1, "absent") == (absent.code, absent.json["outcome"])
    assert f"Nothing of Postroom is in {desk.home}/.gemini." in desk.run("uninstall", "gemini").out


def test_without_the_sdk_the_server_is_left_out_and_that_is_told(desk: Desk, tmp_path: Path) -> None:
    blind = tmp_path / "blind"
    blind.mkdir()
    hide = "import sys\nsys.modules['mcp'] = sys.modules['mcp_types'] = None\n"
    (blind / "sitecustomize.py").write_text(hide, encoding="utf-8")
    desk.warm = False
    path = f"{blind}:{desk.environment['PYTHONPATH']}"
    done = desk.run("install", "codex", "--yes", "--json", PYTHONPATH=path)
    assert 0 == done.code, done.err
    assert any("pip install" in line for line in done.json["next"])
    for words in (["--check"], ["--dry-run", "--agent", "coder"]):
        assert "The MCP server is left out" in desk.run("install", "codex", *words, PYTHONPATH=path).out
    assert not (desk.home / ".codex" / "config.toml").exists() and (desk.home / ".codex" / "hooks.json").exists()
    (blind / "nanobot").mkdir()
    (blind / "nanobot" / "__init__.py").touch()
    beside_nanobot = desk.run("install", "claude", "--dry-run", PYTHONPATH=path).out
    assert "conflicts with it: use an environment of its own" in beside_nanobot
