"""The quick start of docs/postgresql.md, as it stands there, by two machines and a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import HOME, blocks
from tests.postgres.network import machine, needs_network
from tests.postgres.server import QUICK, Server, needs_server

pytestmark = [needs_server, needs_network]

PAGE = HOME / "docs" / "postgresql.md"
PATIENCE = 120.0  # seconds


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for the whole network, which asks agents for their password."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-", dir="/var/tmp"))
    folder.chmod(0o755)
    server = Server(folder, *QUICK, listen="*").make()
    rules = server.data / "pg_hba.conf"
    rules.write_text("host all agents all scram-sha-256\n" + rules.read_text())
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


def test_two_machines_share_a_room_as_the_page_tells(server: Server, tmp_path: Path) -> None:
    (make, *_) = [block.code for block in blocks(PAGE) if block.language == "sql"]
    setup, send, wait, *_ = [block.code for block in blocks(PAGE) if block.language == "sh"]
    with server.connect() as link:
        for statement in make.split(";\n"):
            link.execute(statement)
    install, *rest = setup.splitlines()
    assert install == "pip install 'postroom[postgres]'"
    with machine() as one, machine() as other:
        program = f"export PATH={Path(sys.executable).parent}:$PATH\n"
        answers = []
        for at, command in ((one, send), (other, wait)):
            home = tmp_path / at.name
            home.mkdir()
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "PG"))}
            environment = kept | {"HOME": str(home), "PGSERVER": at.here, "PGPORT": str(server.port)}
            script = program + "\n".join(rest) + "\n" + command
            done = subprocess.run(
                [*at.command, "sh", "-ec", script],
                env=environment,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert "SECRET" not in done.stdout + done.stderr
            answers.append(done.stdout)
    assert "Hello from the first machine" in answers[1]
