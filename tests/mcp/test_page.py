"""What the page about MCP tells hosts to start is understood."""

from __future__ import annotations

import json
import tomllib

from postroom.cli.parse import parse
from tests.docs.pages import HOME, blocks

PAGE = HOME / "docs" / "mcp.md"


def test_the_lines_for_hosts_start_our_command() -> None:
    read = {"json": json.loads, "toml": tomllib.loads}
    results = [read[block.language](block.code) for block in blocks(PAGE) if block.language in read]
    assert 3 == len(results)
    for config in results:
        (servers,) = config.values()
        assert "postroom" == servers["postroom"]["command"]
        call = parse(servers["postroom"]["args"])
        assert ("mcp", "coder") == (call.name, call.values["as"])
