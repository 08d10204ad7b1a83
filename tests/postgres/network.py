"""Other machines, as network namespaces of this one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import pytest
from msgspec import Struct


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@cache
def may_cut() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"postroom-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


needs_network = pytest.mark.skipif(not may_cut(), reason="only root may make a network: ip netns")


class Machine(Struct):
    """Another machine, and the wire to it."""

    name: str
    here: str  # our address, as it sees us
    there: str  # its own

    @property
    def command(self) -> list[str]:
        """What begins a command there."""
        return ["ip", "netns", "exec", self.name]

    def cut(self) -> None:
        ip("-n", self.name, "link", "set", "far", "down")

    def cut_answers(self) -> None:
        """Nothing that we send arrives there; what it sends arrives here."""
        ip("route", "add", "blackhole", f"{self.there}/32")

    def mend(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("route", "del", "blackhole", f"{self.there}/32")
        ip("-n", self.name, "link", "set", "far", "up")


@contextmanager
def machine() -> Iterator[Machine]:
    """Make a machine, and a wire to it."""
    name, net = f"pr{random.randrange(10**8)}", f"10.{random.randrange(200, 250)}.{random.randrange(250)}"
    made = Machine(name, f"{net}.1", f"{net}.2")
    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name)
        ip("addr", "add", f"{made.here}/24", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "addr", "add", f"{made.there}/24", "dev", "far")
        ip("-n", name, "link", "set", "lo", "up")
        made.mend()
        yield made
        made.mend()
    finally:
        ip("netns", "del", name)
