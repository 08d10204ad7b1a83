"""The row of the command that hosts start for an agent. Its function stands in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

COMMANDS = {
    "mcp": Command(
        "mcp",
        "serve mail to an agent as an MCP server, over standard input and output",
        Option("--socket", help="ask the daemon behind this socket instead of opening the room; else POSTROOM_SOCKET, else INBOX_SOCKET_PATH",
               metavar="PATH", complete="files"),
        Option("--scope", help="the team of letters and agents that say nothing of one; else POSTROOM_SCOPE, else INBOX_SCOPE",
               metavar="NAME", complete="scopes"),
        Option("--config", help="start nothing; print what a host's configuration needs to start it", kind="flag"),
        about="Hosts such as Claude Code, Codex and Gemini CLI start it and talk to it; [the page about it](mcp.md) has the"
        " lines for each. It opens the room itself, or asks a daemon, and ends when the host hangs up. Needs the extra: pip install"
        ' "postroom[mcp]".\n\nWhoever is named by --as, POSTROOM_AGENT or INBOX_AGENT_ID, else the agent of the session whose host started it, is meant where a tool is not told who'
        " is calling. A daemon that knows callers by their tokens wants POSTROOM_AUTH_TOKEN. Nothing but JSON-RPC goes to standard output.",
        examples=(("postroom mcp --as coder --config", "what to put into a host's configuration"),),
        json=(
            ("name", "under which hosts list it"),
            ("command", "the program"),
            ("args", "its arguments"),
            ("env", "variables it needs"),
        ),
    ),
}  # fmt: skip
