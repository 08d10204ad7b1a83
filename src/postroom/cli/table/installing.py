"""The rows of the commands that install. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import Command, Option

_FOLDER = Option("--folder", help="where; ~/.local/bin by default", metavar="DIR", complete="files")
_DRY = Option("--dry-run", help="say what would be done, and do nothing", kind="flag")
_JSON = (
    ("path", "the script"),
    ("outcome", "written, replaced, unchanged; removed, absent"),
    ("dry_run", "true when nothing was done"),
)

COMMANDS = {
    "install agent-inbox-shim": Command(
        "install agent-inbox-shim",
        "put a command named agent-inbox on your PATH, for hosts that start one",
        _FOLDER,
        _DRY,
        about="A small script with agent-inbox's modes: mcp (the default) is postroom mcp; mcp-proxy, or mcp with"
        " INBOX_SOCKET_PATH, is postroom mcp at that socket; ipc is postroom serve, which listens and writes inbox files"
        " where agent-inbox does, and honours its INBOX_* variables. A file that Postroom did not write is left as it is."
        " Needs no --as and no room.",
        examples=(
            ("postroom install agent-inbox-shim --dry-run", "what would it do?"),
            ("postroom install agent-inbox-shim --folder bin", "for one project"),
        ),
        json=(
            *_JSON,
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
        _DRY,
        about="Removes the script if Postroom wrote it. Needs no --as and no room.",
        examples=(("postroom uninstall agent-inbox-shim", "from ~/.local/bin"),),
        json=_JSON,
        exits=((73, "it cannot be removed, or it is not ours"),),
        function="uninstall_shim",
        looks=True,
    ),
}  # fmt: skip
