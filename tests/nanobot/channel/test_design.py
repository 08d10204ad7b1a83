"""The names of the design in a process with the real nanobot: its tests of the channel, as real nanobot allows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .gateways import PATIENCE
from .test_config import DESIGNED

pytestmark = pytest.mark.nanobot
SCRIPT = Path(__file__).parent / "designed.py"


def test_programs_written_against_the_design_find_its_names_fields_and_rules(python: Path, tmp_path: Path) -> None:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("POSTROOM_", "COV", "PYTEST"))}
    (tmp_path / ".nanobot").mkdir()
    reached = json.dumps({"channels": {"feishu": {"enabled": True}}})
    (tmp_path / ".nanobot" / "config.json").write_text(reached, encoding="utf-8")
    command = [str(python), str(SCRIPT), str(tmp_path / "mailboxes")]
    environment = kept | {"HOME": str(tmp_path), "PYTHONPATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert 0 == done.returncode, done.stderr[-4000:]
    saw: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert DESIGNED == saw["defaults"]
    assert (["mailbox", "Mailbox"], {"description": "codes", "status": "idle"}) == (saw["called"], saw["card"])
    assert ["mailbox", "researcher", "researcher", True] == saw["inbound"]
    assert {
        "mailbox_type": "message",
        "mailbox_task": None,
        "mailbox_parts": [{"type": "text", "text": "hello"}],
        "mailbox_ttl": 3,
        "mailbox_trace": ["researcher"],
        "reply_to": None,
    } == saw["metadata"]
    assert ([1, 0], [0, 1]) == (saw["while it runs"], saw["when it is over"])
    assert "feishu" == saw["answer"]["callback"]["channel"] and ["coder"] == saw["answer"]["trace"]
    assert "unauthorized" in saw["stranger"]
    assert {"from": "coder", "to": "researcher", "type": "message", "ttl": 3, "trace": ["coder"]} == saw["plain"]
    assert ([1, 2, 3], ["task", "task_7", False]) == (saw["lowered"], saw["task"])
    assert "mailbox_ttl is 9, and is sent as 3" in done.stderr
    assert ["coder", 2, ["coder"]] == saw["send_message"] and ["LoopDetected", "HopsSpent"] == saw["refused"]
    assert ["system", "feishu:user_123", "feishu:user_123", True] == saw["told"]
    assert "offline" == saw["status"]
