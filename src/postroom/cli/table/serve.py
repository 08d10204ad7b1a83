"""Rows of the command table for the server, its tokens, and MCP; the functions are in `postroom.cli.serve`."""

from __future__ import annotations

from .shape import Command, Option

ABOUT = "id, agent (null for an operator's), scopes, note, created_at, revoked_at"

COMMANDS = {
    "serve": Command(
        "serve",
        "open the post room for programs that are not Python: a socket, HTTP, WebSocket, MCP, MAP",
        Option("--socket", help="where to listen; beside the room by default", many=True, metavar="PATH",
               complete="files"),
        Option("--http", help="address and port, or off; 127.0.0.1:4650 by default", metavar="HOST:PORT"),
        Option("--http-name", help="a name by which HTTP is called besides its address, with a port where one is forwarded",
               many=True, metavar="NAME"),
        Option("--tls-cert", help="a certificate, to be reached from outside", metavar="FILE", complete="files"),
        Option("--tls-key", help="its key", metavar="FILE", complete="files"),
        Option("--map", help="who may connect by MAP: with a token (by default), anybody on this machine (open), nobody"
               " (off)", kind="word", choices=("token", "open", "off")),
        Option("--inboxes", help="write inbox.jsonl files into this folder", metavar="FOLDER", complete="files"),
        Option("--map-server", help="link the room to a MAP server", metavar="URL"),
        Option("--map-scope", help="the scope in which our agents are there", metavar="NAME"),
        Option("--map-name", help="the name of the link's own agent there; the room's by default", metavar="NAME"),
        Option("--map-expose", help="which of our agents are shown there: all (the default), none, or names with commas", metavar="NAMES"),
        Option("--peers", help="a file with the other systems that are peers of this room, or off; by default peers.toml beside the config"
               " file, for your own room alone", metavar="FILE", complete="files"),
        Option("--log-level", help="the lowest level that is logged; info by default", kind="word",
               choices=("debug", "info", "warning", "error")),
        about="Serves until it is stopped by Ctrl-C, SIGTERM or SIGHUP, and runs the maintenance of the room"
        " meanwhile. There is one daemon per room and socket; a second one is refused with a hint at the first."
        " The socket is for you alone. HTTP and WebSocket need a token (postroom token create), on this machine"
        " too. The log goes to stderr.\n\nINBOX_SOCKET_PATH, INBOX_HTTP_PORT, INBOX_SQLITE_PATH and INBOX_DIR are"
        " honoured; POSTROOM_SOCKET, POSTROOM_HTTP, POSTROOM_STORE, POSTROOM_INBOXES and the options take"
        " precedence. INBOX_MAP_ENABLED, INBOX_MAP_SERVER, INBOX_MAP_SCOPE and INBOX_MAP_SYSTEM_ID likewise;"
        " POSTROOM_MAP_TOKEN is shown to the server (POSTROOM_MAP_METHOD: bearer or api-key).",
        examples=(
            ("postroom serve", "the room of this project, or your own"),
            ("postroom serve --socket ~/.claude/agent-inbox/inbox.sock --http off", "in the place of agent-inbox"),
        ),
        json=(
            ("pid", "of the daemon"),
            ("room", "its address"),
            ("sockets", "where it listens"),
            ("http", "the URL, or null"),
            ("mcp", "the URL of the MCP server, or null"),
            ("map", "the URL of the MAP server, or null"),
            ("inboxes", "the folder of inbox.jsonl files, or null"),
            ("map_link", "the URL of the MAP server, or null"),
        ),
        exits=((69, "another daemon serves this room or this socket"),),
    ),
    "token create": Command(
        "token create",
        "make a token; it is shown once",
        Option("--agent", help="the agent that uses it; without this, it is an operator's token", metavar="NAME", complete="agents"),
        Option("--scope", help="what it is good for: read, send, work, manage; all by default. operator, which is everything, is for a"
               " token without --agent", many=True, metavar="WORD"),
        Option("--note", help="a note for people, such as the user of the token", metavar="TEXT"),
        about="Only a hash of it is kept. From now on the agent is sealed: over the socket, nobody acts for it without"
        " a token, and callers without a token act as the one agent they name and cannot manage the room. The"
        " library and these commands, which open the room itself, are not affected.",
        examples=(
            ("postroom token create --agent coder", "for everything that is coder's"),
            ("postroom token create --scope operator", "for everything"),
        ),
        json=(("token", "the token itself, told only now"), ("about", ABOUT)),
    ),
    "token list": Command(
        "token list",
        "list all tokens, without their secrets",
        examples=(("postroom token list", "who may call"),),
        json=(("tokens", ABOUT),),
        looks=True,
    ),
    "token revoke": Command(
        "token revoke",
        "revoke a token at once",
        Option("ID", help="as token list shows it", required=True),
        about="Its agent stays sealed: over the socket, nobody acts for it without another token, until token unseal.",
        examples=(('postroom token revoke "$TOKEN_ID"', "it leaked"),),
        json=(("about", ABOUT),),
        exits=((67, "there is no such token"),),
        looks=True,
    ),
    "token unseal": Command(
        "token unseal",
        "let callers of the socket act for an agent without a token again",
        Option("--agent", help="the agent that was given a token", required=True, metavar="NAME", complete="agents"),
        about="Its tokens stay valid; token revoke ends them. Unsealing twice is no error.",
        examples=(("postroom token unseal --agent coder", "it needs no token any more"),),
        json=(("agent", "who it is"), ("sealed", "the agents that still are")),
        looks=True,
    ),
}  # fmt: skip


# -- the MCP server

MCP_COMMANDS = {
    "mcp": Command(
        "mcp",
        "serve mail to an agent as an MCP server, over standard input and output",
        Option("--socket", help="ask the daemon behind this socket instead of opening the room; else POSTROOM_SOCKET, else INBOX_SOCKET_PATH",
               metavar="PATH", complete="files"),
        Option("--scope", help="the team of letters and agents that say nothing of one; else POSTROOM_SCOPE, else INBOX_SCOPE",
               metavar="NAME", complete="scopes"),
        Option("--config", help="start nothing; print what a host's configuration needs to start it", kind="flag"),
        about="Hosts such as Claude Code, Codex and Gemini CLI start it and talk to it; [the page about it](mcp.md)"
        " has the lines for each. It opens the room itself, or asks a daemon, and ends when the host hangs up."
        ' Needs the extra: pip install "postroom[mcp]".\n\nA tool that is not told who is calling acts as the'
        " agent of --as, POSTROOM_AGENT or INBOX_AGENT_ID, else as the agent of the session whose host started"
        " the server. A daemon that requires tokens needs POSTROOM_AUTH_TOKEN. Nothing but JSON-RPC goes to"
        " standard output.",
        examples=(("postroom mcp --as coder --config", "what to put into a host's configuration"),),
        json=(
            ("name", "under which hosts list it"),
            ("command", "the program"),
            ("args", "its arguments"),
            ("env", "variables it needs"),
        ),
    ),
}  # fmt: skip

COMMANDS |= MCP_COMMANDS
