"""postroom mount and unmount."""

from __future__ import annotations

from pathlib import Path

import postroom
from postroom.core import peers
from postroom.federation.mounts import introduce
from tests.cli.shell import Shell

PLACE = "files:mail?layout=nanobot"


def test_a_folder_is_mounted_listed_and_unmounted(shell: Shell) -> None:
    (shell.home / "mail").mkdir()
    result = shell.json("mount", PLACE, "--as", "nanobot")
    place = f"files:{shell.home / 'mail'}?layout=nanobot"
    assert ("nanobot", place, True, None) == (
        result["peer"]["system"], result["peer"]["place"], result["peer"]["is_mount"], result["socket"]
    )  # fmt: skip
    assert [place] == [peer["place"] for peer in shell.json("peers", "list")["peers"]]
    assert {"removed": "nanobot", "told": True}.items() <= shell.json("unmount", "nanobot").items()
    assert [] == shell.json("peers", "list")["peers"]


def test_a_mount_that_nobody_serves_says_so(shell: Shell) -> None:
    (shell.home / "mail").mkdir()
    done = shell.run("mount", PLACE, "--as", "nanobot")
    assert (0, True) == (done.code, "nobody serves this room" in done.out)


def test_what_is_no_folder_or_no_mount_is_refused_and_nothing_is_made(shell: Shell) -> None:
    assert 67 == shell.run("mount", PLACE, "--as", "nanobot").code
    assert not Path(shell.home / "mail").exists()
    assert 67 == shell.run("unmount", "nanobot").code
    (shell.home / "mail").mkdir()
    wrong = shell.run("mount", "files:mail?layout=pigeons", "--as", "nanobot")
    assert (78, True) == (wrong.code, "layout" in wrong.err)


def test_what_stood_for_us_in_the_folder_is_gone_after_unmount(shell: Shell) -> None:
    (shell.home / "mail").mkdir()
    ours = shell.json("mount", PLACE, "--as", "nanobot")["system"]
    with postroom.open(f"files:{shell.home / 'mail'}?layout=nanobot") as there:
        introduce(there.core, "nanobot", ours)
        assert peers.peer(there.core, ours) is not None
        shell.json("unmount", "nanobot")
        assert peers.peer(there.core, ours) is None
