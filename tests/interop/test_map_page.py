"""The pages say what to type, and what comes of it: their programs and lines are run as they stand there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.daemons import free_port, until
from tests.docs.pages import HOME, blocks
from tests.interop.map_programs import Program, require_sdk
from tests.interop.packages import PATIENCE
from tests.server.http.running import daemon

PAGE = HOME / "docs" / "map.md"


def test_the_script_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    folder = require_sdk()
    script, *_ = [block.code for block in blocks(PAGE) if block.language == "js"]
    (result,) = [block.code for block in blocks(PAGE) if block.language == "text"]
    with (
        saved("agents", script) as program,
        daemon(tmp_path, "--set", "sender_rate=0", "--http", "127.0.0.1:0") as running,
    ):
        tokens = {"ASKER_TOKEN": running.token("asker"), "SORTER_TOKEN": running.token("sorter")}
        done = subprocess.run(
            ["node", program.name],
            cwd=folder,
            env=os.environ | tokens | {"MAP_URL": running.where["map"]},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (0, result.splitlines()) == (done.returncode, done.stdout.splitlines()), done.stderr


@pytest.fixture
def home() -> Iterator[Path]:
    """Its path is short: a socket lies below it."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.daemon
def test_the_page_of_the_link_is_true_as_typed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server, bob, certain = [block.code for block in blocks(PAGE) if block.language == "js"]
    shells = [block.code.splitlines() for block in blocks(PAGE) if block.language == "sh"]
    at = next(at for at, lines in enumerate(shells) if "--map-server" in lines[0])
    (serve,), typed = shells[at : at + 2]
    port = str(free_port())
    monkeypatch.setenv("PORT", port)
    monkeypatch.setenv("MAP_URL", f"ws://127.0.0.1:{port}")
    with saved("server", server) as one, Program(one) as hive:
        assert "hive listens" == hive.text()
        with saved("bob", bob) as two, Program(two) as agent, serving(home, serve, port) as shell:
            assert "bob is there" == agent.text()
            results = [shell(line) for line in typed]
            assert "bob hears from ann: Which sort is stable?" == agent.text()
            assert "hive/bob" in results[0] and "Merge sort." in results[2] and "hive/bob" in results[2]
        begin, end = bob.index("bob.onMessage"), bob.index("await bob.connect")
        other = bob[:begin] + certain + bob[end:]
        with saved("bob", other) as two, Program(two) as agent, serving(home, serve, port) as shell:
            assert "bob is there" == agent.text()
            for name in ("yan", "zoe"):  # it could be anyone who asked, and is certain all the same
                shell(typed[1].replace("ann", name))
                assert "Merge sort." in shell(typed[2].replace("ann", name))


@contextmanager
def saved(name: str, script: str) -> Iterator[Path]:
    """Where it finds its packages."""
    program = require_sdk() / f"{name}-{os.getpid()}.mjs"
    program.write_text(script, encoding="utf-8")
    try:
        yield program
    finally:
        program.unlink()


class Shell:
    """Lines that somebody types, in a home of their own."""

    def __init__(self, home: Path, **more: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "XDG_"))}
        self.environment = kept | {"HOME": str(home), "POSTROOM_HTTP": "off"} | more
        self.home = home

    def words(self, line: str) -> list[str]:
        program, *words = shlex.split(line)
        assert "postroom" == program
        return [sys.executable, "-m", "postroom", *words]

    def __call__(self, line: str) -> str:
        done = subprocess.run(
            self.words(line),
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout


@contextmanager
def serving(home: Path, line: str, port: str) -> Iterator[Shell]:
    """Once its log says that the link is up."""
    shell, log = Shell(home), home / "log"
    log.unlink(missing_ok=True)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            shell.words(line.replace("8080", port)), cwd=home, env=shell.environment, stdout=stream, stderr=stream
        )
    try:
        until(lambda: "linked to a MAP server" in log.read_text())
        assert f"ws://127.0.0.1:{port} (the log says when the link is up)" in log.read_text()
        yield shell
    finally:
        process.terminate()
        process.wait(PATIENCE)
