"""Mail as an MCP server, over stdio and streamable HTTP, in the revisions 2026-07-28 and 2025-11-25.

Tools, resources and prompts are verbs, which the server of the room carries out like all verbs. The same handlers
work on an open room and over the socket of a running server, which is asked for them by name. The official SDK
(`postroom[mcp]`) is imported only by handlers, server and http.

    sdk         whether the SDK is installed, and new enough
    tools       what a tool is, the ten tools, and letters as models get them
    resources   inboxes, threads and messages, to read and to watch
    prompts     prompts, with text of other agents inside a fence
    handlers    tools, resources and prompts as the SDK wants them; notifications of changes
    server      stdio
    http        streamable HTTP, and its sessions
"""
