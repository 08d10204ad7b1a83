"""Environments with a real nanobot and Postroom installed beside it, and gateways in them.

By default the newest version that is known, and one test with each of the others; with POSTROOM_INTEROP=1 all
tests with all of them.
"""

from __future__ import annotations

import fcntl
import os
import runpy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from .gateways import Gateway
from .models import Model, Script

NANOBOT = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "nanobot.py"))
VERSIONS: tuple[str, ...] = NANOBOT["VERSIONS"]
NEWEST = VERSIONS[-1]
MANIFEST = """\
from nanobot.channels.plugin import ChannelPlugin

PLUGIN = ChannelPlugin(name="person", display_name="Person", runtime=f"{__package__}.runtime:PersonChannel")
"""
SECTIONS: dict[str, dict[str, Any]] = {  # of agents that are not as usual
    "picky": {"allowFrom": ["coder"]},
    "slow": {"mailsPerMinute": 3},
    "chatty": {"automaticMails": 3},
    "narrow": {"allowFrom": ["researcher"], "capabilities": ["python"], "maxConcurrentTasks": 1},
}
Open = Callable[..., Gateway]


def tried_versions() -> tuple[str, ...]:
    return VERSIONS if os.environ.get("POSTROOM_INTEROP") else (NEWEST,)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all processes of a run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "nanobot-environments"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", params=tried_versions())
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def python(version: str, shared_folder: Path) -> Path:
    """The interpreter of an environment with this nanobot, Postroom and a person's channel."""
    with open(shared_folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared_folder / version
        if not (folder / ".ready").exists():
            made = NANOBOT["environment"](version, folder)
            NANOBOT["install"](made, *map(str, built_wheels(shared_folder)))
            add_person(folder)
            (folder / ".ready").touch()
        return folder / "bin" / "python"


def wheels_once(folder: Path) -> list[Path]:
    """Our wheels, built by the first of the run's processes that wants them: Postroom's is the first."""
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built_wheels(folder)


def built_wheels(folder: Path) -> list[Path]:
    wheels: list[Path] = sorted(folder.glob("*.whl")) or NANOBOT["wheels"](folder)
    return wheels


def add_person(environment: Path) -> None:
    """The test's own channel, where new versions look for channels, and where old ones do."""
    packages = next(environment.glob("lib/python*/site-packages"))
    folder = packages / "nanobot" / "channels" / "person"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "manifest.py").write_text(MANIFEST, encoding="utf-8")
    (folder / "runtime.py").write_bytes((Path(__file__).parent / "person.py").read_bytes())
    info = packages / "person-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: person\nVersion: 0\n", encoding="utf-8")
    entry = "[nanobot.channels]\nperson = nanobot.channels.person.runtime:PersonChannel\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


class GatewayPool:
    """Gateways over one folder that stay for many tests, for they take seconds to start. Tests give scripts."""

    def __init__(self, open_gateway: Open) -> None:
        self._open = open_gateway
        self._known: dict[str, Gateway] = {}

    def __call__(self, agent: str, script: Script) -> Gateway:
        if agent not in self._known:
            self._known[agent] = self._open(agent, script, start=False, **SECTIONS.get(agent, {}))
            self._known[agent].launch()
        known = self._known[agent]
        known.model.script = script
        known.model.broken = False
        known.model.origin.clear()
        known.wait_until_up()
        return known


@pytest.fixture(scope="session")
def gateway_pool(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayPool]:
    with gateways_at(python, tmp_path_factory.mktemp("gateways")) as open_gateway:
        made = GatewayPool(open_gateway)
        yield made


@pytest.fixture
def gateway(python: Path, tmp_path: Path) -> Iterator[Open]:
    """Makes gateways that are started already, all over one folder of mailboxes, each with a model of its own."""
    with gateways_at(python, tmp_path) as open_gateway:
        yield open_gateway


@contextmanager
def gateways_at(python: Path, folder: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_gateway(
            agent: str, script: Script, *, home: str = "", start: bool = True, **section: Any
        ) -> Gateway:
            model = stack.enter_context(Model(script))
            made = Gateway(python, folder / (home or agent), folder / "mailboxes", agent, model, **section)
            stack.callback(made.end)
            return made.start() if start else made

        yield open_gateway
