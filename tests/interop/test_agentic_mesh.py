"""agentic-mesh's own stream and connection from npm, at our socket: MAP in lines, with its dotted names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import postroom
from tests.daemons import Daemon, until
from tests.interop.map_programs import HERE, Program
from tests.interop.packages import require

pytestmark = [pytest.mark.interop, pytest.mark.daemon]
PACKAGE = "agentic-mesh@0.0.5"


def require_mesh() -> Path:
    folder = require(PACKAGE)
    shutil.copyfile(HERE / "mesh_peer.mjs", folder / "mesh_peer.mjs")
    return folder


def test_its_agents_register_send_and_get_mail_by_lines(tmp_path: Path) -> None:
    folder = require_mesh()
    with Daemon(tmp_path) as daemon, postroom.open(daemon.room) as room:
        with Program(folder / "mesh_peer.mjs", str(daemon.socket), "mia") as mia:
            assert {"id": "mia"} == mia.line()
            mia.say(method="map/agents.list", params={})
            assert ["mia"] == [row["id"] for row in mia.line()["result"]["agents"]]
            mia.say(method="map/send", params={"to": {"agent": "ann"}, "payload": "Grüße 📬"})
            assert ["ann"] == mia.line()["result"]["delivered"]
            (letter,) = room.mailbox("ann").check()
            assert ("mia", "Grüße 📬") == (letter.sender, letter.text)
            room.mailbox("ann").send("mia", "hello")
            got = mia.line()
            assert ("map/message", "ann") == (got["method"], got["params"]["message"]["from"])
            until(lambda: not room.mailbox("mia").check(peek=True, unread_only=False))  # it answered our sign
            mia.say(method="map/no.such", params={})
            assert {"error": -32601} == mia.line()
        until(lambda: room.agent("mia").presence.left)
