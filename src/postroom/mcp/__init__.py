"""Mail as an MCP server, over stdio and streamable HTTP, in the revisions 2026-07-28 and 2025-11-25.

It reaches mail by one function, `await call(verb, params)`: the same server works on an open room and over the
socket of a running server. The official SDK (`postroom[mcp]`) is imported only by resources, mail, server and
http.

    sdk         whether the SDK is installed, and new enough
    tools       what a tool is, the ten tools, and letters as models get them
    resources   inboxes, threads and messages, to read and to watch
    prompts     prompts, with text of other agents inside a fence
    mail        tools, resources and prompts as the SDK wants them
    server      the server, and stdio
    http        streamable HTTP, and its sessions
"""
