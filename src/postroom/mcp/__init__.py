"""Mail as an MCP server, over stdio and streamable HTTP, in the revisions 2026-07-28 and 2025-11-25.

It reaches mail by one function, `await call(verb, said)`: the same server works on an open room and over a
daemon's socket. It refuses to know how mail is kept and who may see it. Below it stand desk and wire; the official
SDK (`postroom[mcp]`) is loaded by the files that speak it, never by the tables.

| file | holds |
|---|---|
| `table.py`, `rows.py` | what a tool is; the ten tools as rows, without the SDK |
| `caller.py` | who asks, and the one function by which mail is reached |
| `letters.py` | letters, agents and tasks in the words of the design |
| `tools.py`, `work_tools.py` | one function per tool |
| `resources.py` | inboxes, threads and messages, to read and to watch |
| `prompts.py` | prompts, with what peers wrote inside the fence |
| `watching.py` | change notifications of both revisions |
| `shelf.py`, `mail.py` | what a server may offer; mail, as the SDK wants it |
| `server.py` | the server, made of shelves |
| `stdio.py`, `http.py` | the two ways in |
| `sessions.py` | how many sessions one caller may have |
| `sdk.py` | is the SDK there, and new enough? |
"""
