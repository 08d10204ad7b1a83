"""Give every test of the command line a shell of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell

# Where the lines of each command are counted as covered. The other files run the same commands, at other terminals
# and with other words, without that weight.
MEASURED = {
    "test_commands",
    "test_mail_management",
    "test_finding",
    "test_health",
    "test_hook",
    "test_inbox",
    "test_installing",
    "test_setup",
    "test_swarm",
    "test_tasks",
    "test_top",
    "test_webhooks",
}
# Where a command waits for the disk, as it does by default. No power is cut in the other files.
DURABLE = {"test_health", "test_exits", "test_new_room", "test_weight"}
# Where each command is a Python of its own, which loads what it needs. So is every example of every command, and
# whatever runs in a terminal or is stopped from outside.
COLD = {"test_exits", "test_project", "test_weight"}


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    file = request.module.__name__.rpartition(".")[2]
    return Shell(tmp_path, measured=file in MEASURED, durable=file in DURABLE, warm=file not in COLD)
