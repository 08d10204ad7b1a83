"""`postroom swarm install`: the file that programs of agent-swarm import, and nobody else's file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from postroom.swarm.install import CONTENT
from tests.cli.shell import Shell
from tests.cli.terminal import show


def test_the_file_is_written_once_and_its_names_are_found(shell: Shell) -> None:
    path = shell.home / "shared" / "agent_mailbox.py"
    assert {"path": "shared/agent_mailbox.py", "outcome": "written"}.items() <= shell.json(
        "swarm", "install"
    ).items()
    assert CONTENT == path.read_text(encoding="utf-8")
    assert "unchanged" == shell.json("swarm", "install")["outcome"]
    code = "import shared.agent_mailbox as it; print(it.send_message('a', 'b', 's', 'x').to_agent, *it.__all__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shell.home,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"b", "MailboxManager", "HandoffContext", "check_my_mailbox"} <= set(found.stdout.split())
    assert not (shell.home / "room.db").exists()


def test_a_file_of_another_program_is_left_alone_unless_forced(shell: Shell) -> None:
    folder = shell.home / "lib"
    folder.mkdir()
    (folder / "agent_mailbox.py").write_text("theirs = 1\n", encoding="utf-8")
    refused = shell.run("swarm", "install", "lib", "--json")
    assert (73, "FOLDER") == (refused.code, refused.error["field"]) and "--force" in refused.error["hint"]
    assert "theirs = 1\n" == (folder / "agent_mailbox.py").read_text(encoding="utf-8")
    assert "replaced" == shell.json("swarm", "install", "lib", "--force")["outcome"]
    assert CONTENT == (folder / "agent_mailbox.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [(), ("--force",)])
def test_what_is_no_file_is_never_replaced(shell: Shell, more: tuple[str, ...]) -> None:
    (shell.home / "shared" / "agent_mailbox.py").mkdir(parents=True)
    assert 73 == shell.run("swarm", "install", *more).code
    assert ["agent_mailbox.py"] == [each.name for each in (shell.home / "shared").iterdir()]


def test_a_folder_that_cannot_be_made_is_reported(shell: Shell) -> None:
    (shell.home / "file").write_text("", encoding="utf-8")
    assert 73 == shell.run("swarm", "install", "file/below").code == shell.run("swarm", "install", "file").code


def test_a_room_has_no_place_here(shell: Shell) -> None:
    assert 64 == shell.run("swarm", "install", "--room", "other.db").code
    assert not (shell.home / "shared").exists()


def test_a_person_is_shown_where_it_is(shell: Shell) -> None:
    code, shown = show(shell, "swarm", "install")
    assert (0, True) == (code, "Written: shared/agent_mailbox.py" in shown)
    assert "Written: shared/__init__.py" in shown


def test_the_package_exports_the_names(shell: Shell) -> None:
    result = shell.json("swarm", "install")
    assert ("shared/__init__.py", "written") == (result["package"], result["export"])
    code = "from shared import send_message; print(send_message('a', 'b', 's', 'x').to_agent)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=shell.home, env=shell.environment, stdout=-1, check=True
    )
    assert b"b\n" == found.stdout
    assert "unchanged" == shell.json("swarm", "install")["export"]
    assert "skipped" == shell.json("swarm", "install", ".")["export"]
