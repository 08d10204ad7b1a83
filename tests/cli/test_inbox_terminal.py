"""The inbox and its terminal: it fits, what others wrote never gets loose, and the terminal is as before, however it
ends.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.cli.panes import Pane, planted
from tests.cli.shell import PROGRAM, Shell
from tests.cli.terminal import Terminal

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h", "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
# What others wrote is shown as it is; and a terminal that is not given back.
GULLIBLE = planted(
    "from postroom.core import presentation\npresentation._hidden = lambda: __import__('re').compile('(?!)')"
)
CARELESS = planted("from postroom.cli import screen\nscreen.LiveScreen._give_back = lambda self: None")


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (20, 5)])
def test_it_fits_terminals_of_every_size(shell: Shell, columns: int, lines: int) -> None:
    for number in range(30):
        shell.post("ann", "human", "some words " * 30 + "日本語" * 30, id=f"m-{number}", subject="日本語" * 30)
    with Pane(shell, "inbox", columns=columns, lines=lines) as pane:
        shown = pane.see("human: 30 wait", ">*").splitlines()
        assert len(shown) <= lines
        pane.keys("Enter")
        pane.see("From", gone=">*")
        pane.tmux("resize-window", "-x", str(columns + 7), "-y", str(lines + 3))
        pane.keys("G")
        assert len(pane.see("│ ").splitlines()) <= lines + 3


@pytest.mark.parametrize(("program", "is_harmless"), [(PROGRAM, True), (GULLIBLE, False)])
def test_nothing_that_others_write_gets_loose(shell: Shell, program: list[str], is_harmless: bool) -> None:
    nasty = "evil\x1b[31m\x1b]0;title\x07\x9b2J\u202egnp.exe\u2066\u200b\u2028" + "\u0301" * 500 + "日本語" * 400
    with shell.room() as room:
        room.mailbox("ann").send("human", nasty, subject="s\u202ex", tags=["\u200bt"], id="m-1")
        room.mailbox("bob").escalate(nasty, reason="blocked", ladder=["human"])
    terminal = Terminal(shell, "inbox", program=program, counted=False, lines=24, NO_COLOR="1")
    terminal.read_until("letter")
    terminal.type("\n")
    terminal.read_until("Priority")
    terminal.type("qjr")
    terminal.read_until("Your answer:")
    terminal.type("\x1b")
    terminal.read_until("Enter open")
    terminal.type("q")
    code, shown = terminal.finish()
    before, *_ = shown.partition(ENTER)
    assert "your key is in" in before, "which the person is told before the screen is drawn"
    shown = shown.removeprefix(before)
    assert (code, shown.startswith(ENTER), shown.endswith(LEAVE)) == (0, True, True)
    drawn = shown.removeprefix(ENTER).removesuffix(LEAVE)
    ours = {"\x1b[H", "\x1b[K", "\x1b[J", "\x1b[?25l", "\x1b[?25h"}  # never the whole screen: it would flicker
    used = {escape for escape in ESCAPES.findall(drawn) if not re.fullmatch(r"\x1b\[\d+;\d+H", escape)}
    plain = ESCAPES.sub("", drawn).replace("\r", "").replace("\n", "")
    assert (used <= ours and plain.isprintable()) is is_harmless


@pytest.mark.parametrize(
    ("number", "program", "is_whole"),
    [
        (signal.SIGINT, PROGRAM, True), (signal.SIGTERM, PROGRAM, True), (signal.SIGHUP, PROGRAM, True),
        (signal.SIGTERM, CARELESS, False),
    ],
)  # fmt: skip
def test_however_it_is_ended_the_terminal_is_as_before(
    shell: Shell, number: int, program: list[str], is_whole: bool
) -> None:
    shell.post("ann", "human", "Which one?", id="m-1")
    terminal = Terminal(shell, "inbox", program=program, counted=False)
    terminal.read_until("Which one?")
    terminal.type("r")
    terminal.read_until("\x1b[?25h")  # somebody writes there
    if number == signal.SIGINT:
        terminal.type("\x03")
    else:
        terminal.send(number)
    code, shown = terminal.finish()
    assert code == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in shown
    assert (shown.count(ENTER) == shown.count(LEAVE) == 1 and terminal.after == terminal.before) is is_whole


def test_ctrl_z_in_a_shell_and_in_the_editor(shell: Shell, tmp_path: Path) -> None:
    shell.post("ann", "human", "Which one?", id="m-1")
    program = tmp_path / "editor.sh"
    program.write_text('#!/bin/sh\necho at the editor\nkill -TSTP 0\nprintf resumed >"$1"\n', encoding="utf-8")
    program.chmod(0o755)
    start = shell.type("command -v postroom").out.strip()
    with Pane(shell, "--norc", "-i", program=["bash"], NO_COLOR="1", PS1="$ ", EDITOR=str(program)) as pane:
        pane.see("$")
        pane.keys(f"{start} inbox", "Enter")
        pane.see("human: 1 waits")
        assert [pane.state(name) for name in ("alternate_on", "wrap_flag")] == ["1", "0"]
        pane.keys("C-z")
        pane.see("Stopped")
        assert [pane.state(name) for name in ("alternate_on", "wrap_flag", "cursor_flag")] == ["0", "1", "1"]
        pane.keys("fg", "Enter")
        pane.see("human: 1 waits")
        pane.keys("e")
        pane.see("at the editor", "Stopped")
        pane.keys("fg", "Enter")
        pane.see("> resumed", "Enter sends it")
        pane.keys("Escape")
        pane.see("Kept")
        pane.keys("q")
        pane.see("Stopped")
        pane.keys("echo it is whole", "Enter")
        pane.see("\nit is whole")
        assert [pane.state(name) for name in ("alternate_on", "wrap_flag", "cursor_flag")] == ["0", "1", "1"]
