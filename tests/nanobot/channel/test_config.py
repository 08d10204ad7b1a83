"""The section of nanobot's config: both spellings, the designed defaults, clear refusals."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Invalid
from postroom.nanobot.channel.config import default_config, parse
from postroom.nanobot.channel.toolbox import TOOLS
from tests.daemons import PATIENCE

PAGE = Path(__file__).parents[3] / "docs" / "nanobot.md"
DESIGNED = {
    "enabled": False,
    "agentId": "",
    "description": "",
    "capabilities": [],
    "allowFrom": ["*"],
    "maxConcurrentTasks": 3,
    "pollInterval": 5.0,
    "mailboxesRoot": "~/.nanobot/mailboxes",
}
ON = {"enabled": True, "agentId": "coder"}
OURS = {"store": "", "mailsPerMinute": 60, "automaticMails": 10, "automaticPerHour": 100}


def test_the_defaults_are_the_designed_ones_and_parse_again() -> None:
    assert DESIGNED | OURS == default_config()
    assert parse({}) == parse(default_config())


def test_both_spellings_say_the_same() -> None:
    camel = {
        "enabled": True,
        "agentId": "coder",
        "maxConcurrentTasks": 7,
        "allowFrom": ["anna"],
        "pollInterval": 1,
    }
    snake = {
        "enabled": True,
        "agent_id": "coder",
        "max_concurrent_tasks": 7,
        "allow_from": ["anna"],
        "poll_interval": 1,
    }
    assert parse(camel) == parse(snake)
    assert ("coder", 7, ("anna",), 1.0) == (
        parse(camel).agent_id,
        parse(camel).max_concurrent_tasks,
        parse(camel).allow_from,
        parse(camel).poll_interval,
    )


def test_keys_that_nanobot_reads_itself_are_let_through() -> None:
    section = {"sendProgress": True, "send_tool_hints": False, "showReasoning": True, "streaming": False}
    assert parse({}) == parse(section)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"allowForm": ["anna"]}, "channels.mailbox.allowForm: is not a setting .*did you mean allowFrom"),
        ({"colour": 1}, "channels.mailbox.colour.*known: enabled, agentId"),
        ({"enabled": True}, "channels.mailbox.agentId: is empty"),
        ({"enabled": True, "agentId": "../x"}, "channels.mailbox.agentId"),
        ({"agentId": "_registry.json"}, "channels.mailbox.agentId"),
        ({"agentId": "ceo"}, "channels.mailbox.agentId: 'ceo' is a name of the human"),
        ({"agentId": "User"}, "channels.mailbox.agentId: 'User' is a name of the human"),
        ({"agentId": "Human"}, "channels.mailbox.agentId: 'Human' is a name of the human"),
        ({"allowFrom": ["a b"]}, "channels.mailbox.allowFrom"),
        ({"allowFrom": "anna"}, "channels.mailbox.allowFrom"),
        ({"capabilities": ["python", "a\nb"]}, "channels.mailbox.capabilities: holds the control character"),
        ({"capabilities": [""]}, "channels.mailbox.capabilities: '' is empty"),
        ({"capabilities": ["x" * 1000]}, "channels.mailbox.capabilities"),
        ({"description": "a\0b"}, "channels.mailbox.description: .*NUL"),
        ({"description": "\ud800"}, "channels.mailbox.description"),
        ({"description": "x" * 10_001}, "channels.mailbox.description"),
        ({"maxConcurrentTasks": -1}, "channels.mailbox.maxConcurrentTasks"),
        ({"pollInterval": 0}, "channels.mailbox.pollInterval"),
        ({"pollInterval": 1e-9}, "channels.mailbox.pollInterval"),
        ({"agentId": "Postmaster"}, "channels.mailbox.agentId: 'postmaster' is reserved for the room itself"),
        (
            ON | {"mailboxesRoot": "~nobodyhere/x"},
            "channels.mailbox.mailboxesRoot: .*~nobodyhere/x.* names no file",
        ),
        (ON | {"mailboxesRoot": "/tmp/a?b"}, "channels.mailbox.mailboxesRoot: .*remove the \\?"),
        (ON | {"mailboxesRoot": __file__}, "channels.mailbox.mailboxesRoot: .*is not a folder"),
        (ON | {"mailboxesRoot": f"{__file__}/x"}, "channels.mailbox.mailboxesRoot: .*is not a folder"),
        (ON | {"store": "nonsense:"}, "channels.mailbox.store: .*names no store.*sqlite:"),
        (ON | {"store": "files:/tmp/x"}, "channels.mailbox.store: .*names no layout"),
        ({"agent__id": "anna"}, "channels.mailbox.agent__id: is not a setting .*did you mean agentId"),
        ({"enabled_": True}, "channels.mailbox.enabled_: is not a setting .*did you mean enabled"),
        ({"allow_form": ["anna"]}, "channels.mailbox.allow_form: is not a setting .*did you mean allowFrom"),
        ({"agentId": "anna", "agent_id": "bert"}, "both spellings"),
        ([], "channels.mailbox: must be an object"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(section: Any, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        parse(section)


def test_the_room_is_the_folder_or_any_other_store() -> None:
    root = Path("~/.nanobot/mailboxes").expanduser()
    assert f"files:{root}?layout=nanobot" == parse({}).address
    assert "sqlite:/tmp/room.db" == parse({"store": "sqlite:/tmp/room.db"}).address


def blocks_of_the_page() -> list[str]:
    return re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_sections_on_the_page_are_sound() -> None:
    agents = [parse(json.loads(block)["channels"]["mailbox"]).agent_id for block in blocks_of_the_page()]
    assert ["researcher", "coder"] == agents


LOAD = """
import json, sys
from pathlib import Path
from nanobot.config.loader import load_config
config = load_config(Path(sys.argv[1]))
said = config.agents.defaults
print(json.dumps([said.provider, said.model, config.get_provider(said.model).api_key, str(config.workspace_path)]))
"""


@pytest.mark.nanobot
def test_the_configs_on_the_page_are_whole_for_nanobot(python: Path, tmp_path: Path) -> None:
    """Each by itself says which provider, model and key there are, and two agents share no workspace."""
    results = []
    for block in blocks_of_the_page():
        (tmp_path / "config.json").write_text(block, encoding="utf-8")
        command = [str(python), "-c", LOAD, str(tmp_path / "config.json")]
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=home, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert 0 == done.returncode, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    model = ["openrouter", "anthropic/claude-sonnet-4.5", "sk-or-v1-YOUR-KEY"]
    assert [model, model] == [message[:-1] for message in results]
    assert [f"{tmp_path}/.nanobot/workspace", f"{tmp_path}/coder/workspace"] == [
        message[-1] for message in results
    ]


def test_the_page_names_every_key_and_every_tool_with_its_default() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for key, default in default_config().items():
        shown = default if isinstance(default, str) and default else json.dumps(default)
        assert f"| `{key}` | `{shown}` |" in page
    assert all(f"`{row.name}`" in page for row in TOOLS)
