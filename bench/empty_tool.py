"""A server of the same SDK with one tool that does nothing: what sending by MCP over HTTP is compared with."""

from __future__ import annotations

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("empty")


@server.tool()
def send_message(to: str, body: str) -> dict[str, bool]:  # noqa: ARG001 - the same words as ours
    """Nothing."""
    return {"ok": True}


if __name__ == "__main__":
    app = server.streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
