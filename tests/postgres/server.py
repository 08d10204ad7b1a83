"""A PostgreSQL server for the tests, started as a plain user in a folder of its own."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

HOW = "apt-get install postgresql-15"
QUICK = ("fsync=off", "synchronous_commit=on", "full_page_writes=off")  # where no power is cut
_USER = "postgres"


@cache
def programs() -> Path | None:
    """Return the folder of the server's programs, the newest that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return found[-1] if found else Path(on_path).parent if on_path else None


needs_server = pytest.mark.skipif(programs() is None, reason=f"no PostgreSQL here: {HOW}")


def as_user() -> list[str]:
    """Return what begins a command that must not run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Server:
    """One server; `folder` belongs to the user that it runs as."""

    def __init__(self, folder: Path, *settings: str, port: int = 0) -> None:
        self.folder, self.port = folder, port or free_port()
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def make(self) -> Server:
        """Make the server's files."""
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        options = ["-U", "postroom", "--auth=trust", "--encoding=UTF8", "--locale=C", "--data-checksums"]
        self.run("initdb", "-D", str(self.data), *options, *(["-N"] if "fsync=off" in self.settings else []))
        return self

    def run(self, program: str, *arguments: str, timeout: float = 60) -> str:
        folder = programs()
        assert folder is not None
        command = [*as_user(), str(folder / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd="/")
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self) -> Server:
        folder = programs()
        assert folder is not None
        settings = [f"-c{setting}" for setting in (*self.settings, "max_connections=200")]
        command = [*as_user(), str(folder / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-h", "127.0.0.1", "-k", str(self.folder), *settings], stdout=log, stderr=log, cwd="/"
            )
        self.wait()
        return self

    def wait(self, seconds: float = 60) -> None:
        """Return once the server takes connections."""
        folder = programs()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready = [str(folder / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast: ends all sessions
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """kill -9 of all its processes."""
        assert self._process is not None
        listed = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False).stdout
        for pid in [self.pid, *map(int, listed.split())]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait(60)
        self._process = None

    def address(self, schema: str) -> str:
        return f"postgresql://postroom@127.0.0.1:{self.port}/postgres?schema={schema}"


@cache
def shared(pid: int) -> Server:
    """Return the server of this process's tests; it loses mail in a power cut, and is fast."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-", dir=_short()))
    folder.chmod(0o755)
    server = Server(folder, *QUICK).make().start()

    def end() -> None:
        if os.getpid() == pid:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


def _short() -> str:
    """Return a folder for sockets, whose paths are short, that the server's user may enter."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"
