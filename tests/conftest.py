"""How hard the tests look: a quick look by default, a long one with POSTROOM_TEST_LONG=1."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from postroom.environment import HOST_MARKS, HOSTS_OWN

# Started in the background, a shell lets its programs ignore Ctrl-C, and theirs too; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and so does nohup with a terminal that is closed

for name in [one for one in os.environ if one.startswith(HOSTS_OWN) or one in HOST_MARKS]:
    del os.environ[name]  # the tests may be run by an agent, and a person in them is none

LONG = os.environ.get("POSTROOM_TEST_LONG") == "1"
takes_long = pytest.mark.skipif(
    not (LONG or os.environ.get("POSTROOM_INTEROP")), reason="takes long: make test-long, make interop"
)

# No deadline: the machine is shared, and a slow moment is no bug. What decides whether a change lands tries the
# same examples each time; the long form looks for new ones.
settings.register_profile("quick", deadline=None, max_examples=20, stateful_step_count=30, derandomize=True)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=2000,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("long" if LONG else "quick")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On a disk for tests that need one, though the others may have their rooms in memory."""
    disk = os.environ.get("POSTROOM_TEST_DISK")
    if disk is None or request.node.get_closest_marker("disk") is None:
        return tmp_path
    folder = Path(disk) / tmp_path.relative_to(tmp_path_factory.getbasetemp().parent)
    folder.mkdir(parents=True)
    return folder


OF_FILES = ("nanobot", "chipset", "swarm", "files")  # layouts, and the folders of tests about them
OF_DAEMON = ("server", "mcp", "map", "interop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of rooms in folders of files, of what runs as a server and of several of those are steps of their own:
    `-m files`.
    """
    for item in items:
        about = {*item.path.relative_to(item.config.rootpath).parts, *_stores_of(item)}
        if "store" in about:
            item.add_marker("disk")  # what the stores do on a disk is tested on one
        if "dashboard" in about:
            item.add_marker("browser")
        elif any("postgres" in one.lower() for one in about):
            item.add_marker("postgres")
        elif "federation" in about:
            item.add_marker("federation")
        elif "channel" in about:
            continue  # of nanobot's gateway: steps of its own
        elif about & {*OF_FILES}:
            item.add_marker("files")
        elif about & {*OF_DAEMON}:
            item.add_marker("daemon")


def _stores_of(item: pytest.Item) -> list[str]:
    """The names of the stores that a test is run with."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    machine = item.nodeid.partition("::Test")[2].partition("Room::")[0]
    return [machine.lower(), *(str(getattr(value, "name", value)) for value in params)]
