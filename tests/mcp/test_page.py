"""The page about MCP is what the tables say, and what it tells hosts is understood."""

from __future__ import annotations

import json
import runpy
import tomllib

from postroom.cli.parse import parse
from tests.docs.pages import HOME, blocks

PAGE = HOME / "docs" / "mcp.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert runpy.run_path(str(HOME / "tools" / "mcp_page.py"))["page"]() == PAGE.read_text(encoding="utf-8")


def test_the_lines_for_hosts_start_our_command() -> None:
    read = {"json": json.loads, "toml": tomllib.loads}
    results = [read[block.language](block.code) for block in blocks(PAGE) if block.language in read]
    assert 3 == len(results)
    for config in results:
        (servers,) = config.values()
        assert "postroom" == servers["postroom"]["command"]
        call = parse(servers["postroom"]["args"])
        assert ("mcp", "coder") == (call.name, call.values["as"])
