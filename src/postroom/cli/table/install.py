"""Rows of the command table for installing in agent hosts; the functions are in `postroom.cli.install`."""

from __future__ import annotations

from .shape import Command, Option

_AGENT = Option(
    "--agent",
    help="the agent name of all its sessions; by default each is named after its project's folder",
    metavar="NAME",
    complete="agents",
)
_PROJECT = Option("--project", help="for the working folder only, not for all projects", kind="flag")
_RULES = Option("--rules", help="add the rules text without asking: how to use mail, in a few lines", kind="flag")
_NO_RULES = Option("--no-rules", help="add no rules text, and do not ask", kind="flag")
_DRY = Option("--dry-run", help="print what would change, and change nothing", kind="flag")
_YES = Option("--yes", help="do not ask; without a terminal it is needed", kind="flag")
_CHECK = Option(
    "--check",
    help="only check what is in place, and whether the program that the hooks start still exists",
    kind="flag",
)

_ABOUT = (
    "Prints what would change, file by file, and asks before it writes; new files in a folder of its own are only named, and --dry-run"
    " prints them, too. {files} The whole path of this program is written, with"
    " --room and the name of --agent if you say them.\n\n"
    "What others wrote stays as it is, with its comments and its order. Called again it changes nothing, or only what is new;"
    " postroom uninstall {host} gives every file back as it was. A file that belongs to another user, may not be written or"
    " cannot be understood is left alone, with an error, and then nothing is written at all. Links of your own are followed and stay;"
    " with --project, none that leads out of the folder. Where the same hooks stand in a project, too, you are told. Needs no --as. {then}"
)
_FILES = {
    "claude": "Puts a plugin into the folder skills/postroom of ~/.claude (CLAUDE_CONFIG_DIR), or of .claude here with --project:"
    " hooks, the MCP server and prompts. Settings are not touched.",
    "codex": "Adds hooks to hooks.json and the MCP server to config.toml, in ~/.codex (CODEX_HOME), or in .codex here with --project.",
    "gemini": "Adds hooks and the MCP server to settings.json in ~/.gemini (GEMINI_CLI_HOME names the folder above), or in .gemini"
    " here with --project.",
}
_THEN = {
    "claude": "With --project, Claude Code loads it once you trust the folder.",
    "codex": "Codex runs no hook before you trusted it: it asks when it starts, or type /hooks there.",
    "gemini": "Gemini CLI starts servers only in folders that you trust.",
}
_RULES_FILE = {"claude": "CLAUDE.md", "codex": "AGENTS.md", "gemini": "GEMINI.md"}
_TITLE = {"claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI"}
_JSON = (
    ("host", "claude, codex or gemini"),
    ("place", "the folder of its configuration"),
    (
        "outcome",
        "{done}: done; {idle}: there was nothing to do; shown: a dry run; declined: the answer was no{checked}",
    ),
    ("changes", "of each file: path; action made, changed or removed; diff"),
    ("next", "what to do now, in sentences"),
)
_CHECKED = (
    "; with --check: in place, incomplete, absent, elsewhere (Claude Code has the plugin from a marketplace) or twice (from"
    " there, too)"
)
_REFUSED = (73, "a file cannot be written, or may not be touched; nothing was written")


def _install(host: str) -> Command:
    return Command(
        f"install {host}",
        f"let the sessions of {_TITLE[host]} get their mail: hooks, MCP server and a rules text",
        _AGENT, _PROJECT, _RULES, _NO_RULES, _DRY, _YES, _CHECK,
        about=_ABOUT.format(host=host, files=_FILES[host], then=_THEN[host])
        + f" The rules text goes to {_RULES_FILE[host]}.",
        examples=(
            (f"postroom install {host} --dry-run", "what would it do?"),
            (f"postroom install {host} --agent coder --project --no-rules --yes", "for this folder alone"),
            (f"postroom install {host} --check || true", "is all in place?"),
        ),
        json=(
            *((name, what.format(done="written", idle="unchanged", checked=_CHECKED)) for name, what in _JSON),
            ("programs", "with --check: of each program that the hooks start, its path and is it there?"),
        ),
        exits=((1, "the answer was no; with --check: not all is in place"), _REFUSED),
        function="install_host",
        looks=True,
    )  # fmt: skip


def _uninstall(host: str) -> Command:
    return Command(
        f"uninstall {host}",
        f"take out of {_TITLE[host]} what install put into it",
        _PROJECT, _DRY, _YES,
        about="Prints what would change and asks before it writes. Each file is given back as it was, to the byte where nobody"
        " else changed it since; else only what is ours is taken out. Files and folders that install made go. Needs no --as.",
        examples=((f"postroom uninstall {host} --dry-run", "what would it do?"),),
        json=tuple((name, what.format(done="removed", idle="absent", checked="")) for name, what in _JSON),
        exits=((1, "the answer was no"), _REFUSED),
        function="uninstall_host",
        looks=True,
    )  # fmt: skip


COMMANDS = {row.name: row for host in _TITLE for row in (_install(host), _uninstall(host))}


# -- the shim for agent-inbox

_FOLDER = Option("--folder", help="where; ~/.local/bin by default", metavar="DIR", complete="files")
_SHIM_DRY = Option("--dry-run", help="say what would be done, and do nothing", kind="flag")
_SHIM_JSON = (
    ("path", "the script"),
    ("outcome", "written, replaced, unchanged; removed, absent"),
    ("dry_run", "true when nothing was done"),
)

SHIM_COMMANDS = {
    "install agent-inbox-shim": Command(
        "install agent-inbox-shim",
        "put a command named agent-inbox on your PATH, for hosts that start one",
        _FOLDER,
        _SHIM_DRY,
        about="A small script with agent-inbox's modes: mcp (the default) is postroom mcp; mcp-proxy, or mcp with"
        " INBOX_SOCKET_PATH, is postroom mcp at that socket; ipc is postroom serve, which listens and writes inbox files"
        " where agent-inbox does, and honours its INBOX_* variables. A file that Postroom did not write is left as it is."
        " Needs no --as and no room.",
        examples=(
            ("postroom install agent-inbox-shim --dry-run", "what would it do?"),
            ("postroom install agent-inbox-shim --folder bin", "for one project"),
        ),
        json=(
            *_SHIM_JSON,
            ("on_path", "is the folder on your PATH?"),
            ("hidden_by", "another agent-inbox that comes first there, or null"),
        ),
        exits=((73, "it cannot be written, or there is a file that is not ours"),),
        function="install_shim",
        looks=True,
    ),
    "uninstall agent-inbox-shim": Command(
        "uninstall agent-inbox-shim",
        "take that command away again",
        _FOLDER,
        _SHIM_DRY,
        about="Removes the script if Postroom wrote it. Needs no --as and no room.",
        examples=(("postroom uninstall agent-inbox-shim", "from ~/.local/bin"),),
        json=_SHIM_JSON,
        exits=((73, "it cannot be removed, or it is not ours"),),
        function="uninstall_shim",
        looks=True,
    ),
}  # fmt: skip

COMMANDS |= SHIM_COMMANDS
