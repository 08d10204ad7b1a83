"""A server of the comparison: on loopback, with a secret, not run by root, and gone when all is over."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

from .debian import libraries
from .peer import Missing

NOBODY = 65534
SECRET = secrets.token_hex(16)  # other users of this machine are kept out
_PATIENCE = 30.0  # seconds


class Server:
    """One running program. What it prints goes to a file beside its data."""

    def __init__(self, command: list[str], folder: Path, end: signal.Signals = signal.SIGTERM) -> None:
        self._end = end
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                unprivileged(command), cwd=folder, env=libraries(), stdout=log, stderr=log, start_new_session=True
            )
        self._log = folder / "log"
        atexit.register(self.stop)  # also when what comes next fails

    def wait_for(self, port: int) -> None:
        """Until it lets clients in."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.05)
        self.stop()
        result = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise Missing(f"it does not start: {result[-1] if result else 'and says nothing'}")

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(self._end)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run(command: list[str], folder: Path) -> None:
    """A program that prepares the data."""
    done = subprocess.run(
        unprivileged(command), cwd=folder, env=libraries(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        result = done.stderr.strip().splitlines()
        raise Missing(f"{Path(command[0]).name} fails: {result[-1] if result else done.returncode}")


def unprivileged(command: list[str]) -> list[str]:
    """PostgreSQL refuses to be run by root. Its new user may still pass the folders above the working tree."""
    if os.geteuid() != 0:
        return command
    drop = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    passing = "--inh-caps=+dac_override --ambient-caps=+dac_override --securebits=+no_setuid_fixup"
    return [*drop.split(), *passing.split(), *command]


def give(folder: Path) -> Path:
    """A folder that belongs to whoever runs the server."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
