"""A PostgreSQL server for the tests, started as a plain user in a folder of its own."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.daemons import free_port, until

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


def give(folder: Path) -> None:
    """Give a folder to the server's user."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(_USER)
        os.chown(folder, user.pw_uid, user.pw_gid)


def _lives(pid: int) -> bool:
    """Return whether the process still has its memory."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Server:
    """One server; `folder` belongs to the user that it runs as."""

    def __init__(self, folder: Path, *settings: str, port: int = 0, listen: str = "127.0.0.1") -> None:
        self.folder, self.port = folder, port or free_port()
        self.settings = settings
        self.listen = listen
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def make(self) -> Server:
        """Make the server's files."""
        give(self.folder)
        options = ["-U", "postroom", "--auth=trust", "--encoding=UTF8", "--locale=C", "--data-checksums"]
        self.run("initdb", "-D", str(self.data), *options, *(["-N"] if "fsync=off" in self.settings else []))
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")
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
                [*command, "-h", self.listen, "-k", str(self.folder), *settings], stdout=log, stderr=log, cwd="/"
            )
        self.wait()
        return self

    def wait(self, seconds: float = 60) -> None:
        """Return once the server takes connections."""
        folder = programs()
        assert folder is not None
        ready = [str(folder / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]

        def answers() -> bool:
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
            return subprocess.run(ready, check=False).returncode == 0

        until(answers, seconds)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast: ends all sessions
            self._process.wait(60)
            self._process = None

    def hold_log(self) -> None:
        """Stop the process that writes out commits for which nobody waits."""
        with self.connect() as link:
            found = link.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").fetchone()
        assert found is not None
        os.kill(found[0], signal.SIGSTOP)

    def kill(self) -> None:
        """Kill all its processes at once (-9)."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGSTOP)  # it starts no process that is not listed
        listed = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False).stdout
        for pid in [self.pid, *map(int, listed.split())]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None
        until(lambda: not any(_lives(pid) for pid in map(int, listed.split())))

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as whoever runs the server, beside all rooms."""
        return psycopg.connect(self.address("x").partition("?")[0], autocommit=True)

    def address(self, schema: str) -> str:
        return f"postgresql://postroom@127.0.0.1:{self.port}/postgres?schema={schema}"

    def standby(self, folder: Path, name: str) -> Server:
        """Make and start a synchronous standby of this server."""
        give(folder)
        source = f"host=127.0.0.1 port={self.port} user=postroom"
        taken = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postroom", "-D", str(folder / "data")]
        self.run("pg_basebackup", *taken, "-X", "stream", "-C", "-S", name)
        with (folder / "data" / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"primary_conninfo = '{source} application_name={name}'\nprimary_slot_name = '{name}'\n"
            )
        (folder / "data" / "standby.signal").touch()
        standby = Server(folder, *self.settings).start()
        with self.connect() as link:
            link.execute(f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 ({name})'")
            link.execute("SELECT pg_reload_conf()")
            synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: link.execute(synchronous).fetchone() == (1,), 60)
        return standby

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "promote", "-w")


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


def address_in(folder: Path) -> str:
    """Return the address of the room that stands for a folder, on the server of this process's tests."""
    room = f"room_{blake2b(os.fsencode(folder), digest_size=8).hexdigest()}"
    return shared(os.getpid()).address(room)


def _short() -> str:
    """Return a folder for sockets, whose paths are short, that the server's user may enter."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"
