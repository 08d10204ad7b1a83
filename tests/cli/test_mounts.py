"""postroom mount and unmount."""

from __future__ import annotations

from pathlib import Path

import postroom
from postroom.core import peers
from postroom.federation.mounts import introduce
from tests.cli.shell import Desk

PLACE = "files:mail?layout=nanobot"


def test_a_folder_is_mounted_listed_and_unmounted(desk: Desk) -> None:
    (desk.home / "mail").mkdir()
    result = desk.json("mount", PLACE, "--as", "nanobot")
    place = f"files:{desk.home / 'mail'}?layout=nanobot"
    assert ("nanobot", place, True, None) == (
        result["peer"]["system"], result["peer"]["place"], result["peer"]["is_mount"], result["socket"]
    )  # fmt: skip
    assert [place] == [peer["place"] for peer in desk.json("peers", "list")["peers"]]
    assert {"removed": "nanobot", "told": True}.items() <= desk.json("unmount", "nanobot").items()
    assert [] == desk.json("peers", "list")["peers"]


def test_a_mount_that_nobody_serves_says_so(desk: Desk) -> None:
    (desk.home / "mail").mkdir()
    done = desk.run("mount", PLACE, "--as", "nanobot")
    assert (0, True) == (done.code, "nobody serves this room" in done.out)


def test_what_is_no_folder_or_no_mount_is_refused_and_nothing_is_made(desk: Desk) -> None:
    assert 67 == desk.run("mount", PLACE, "--as", "nanobot").code
    assert not Path(desk.home / "mail").exists()
    assert 67 == desk.run("unmount", "nanobot").code
    (desk.home / "mail").mkdir()
    wrong = desk.run("mount", "files:mail?layout=pigeons", "--as", "nanobot")
    assert (78, True) == (wrong.code, "layout" in wrong.err)


def test_what_stood_for_us_in_the_folder_is_gone_after_unmount(desk: Desk) -> None:
    (desk.home / "mail").mkdir()
    ours = desk.json("mount", PLACE, "--as", "nanobot")["system"]
    with postroom.open(f"files:{desk.home / 'mail'}?layout=nanobot") as there:
        introduce(there, "nanobot", ours)
        assert peers.peer(there._core, ours) is not None
        desk.json("unmount", "nanobot")
        assert peers.peer(there._core, ours) is None
