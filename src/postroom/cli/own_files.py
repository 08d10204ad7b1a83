"""The commands that write a file for another program: the shim of agent-inbox, systemd's unit, agent-swarm's module.

Each such file bears a mark of ours; one without it is another program's, and stays as it is.
"""

from __future__ import annotations

import os
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import own_file
from ..app import unit
from ..app.options import OFF
from ..environment import environment, variable, whole_path
from ..errors import Refused
from ..nanobot.channel.doctor import diagnose
from ..settings import chosen_settings
from ..store.address import absolute
from ..swarm import install as swarm_files
from .command import Option, command, command_of
from .context import program
from .errors import CannotCreate, cannot_write
from .health import diagnosed, diagnosis, end_of
from .output import record, says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answer import Answer
    from .context import Context


_DRY = Option("--dry-run", help="only show what would be done", kind="flag")


def put(
    path: str,
    mark: str,
    text: str | None,
    mode: int,
    field: str,
    hint: str,
    *,
    dry: bool,
    force: bool = False,
    folders: int = 0o777,
) -> str:
    """Write a file that bears our mark, or remove it where there is no text. Return what was done, or would be.

    `folders` is the mode of the folders that are made for it.
    """
    before = own_file.held(path, mark)
    if before == "" and not force:
        raise CannotCreate(f"{path} is there and was not written by Postroom", field=field, hint=hint)
    gone = "absent" if before is None else "removed"
    outcome = gone if text is None else own_file.outcome(before, text)
    try:
        if outcome == "removed" and not dry:
            Path(path).unlink()
        elif text is not None and not dry:
            for folder in reversed(Path(path).parents):
                folder.mkdir(mode=folders, exist_ok=True)
            # A new file never replaces one that appears meanwhile.
            own_file.write(path, before, text, mode, os.link if before is None else os.replace)
    except OSError as broken:
        raise cannot_write(path, broken, field) from None
    return outcome


_WOULD = {
    "written": "Would write",
    "replaced": "Would replace",
    "removed": "Would remove",
    "unchanged": "There already",
    "absent": "Not there",
}


_DID = {outcome: outcome.capitalize() for outcome in (*_WOULD, "extended", "missing", "there")}


# -- the command agent-inbox, for hosts that start a program of that name

_FOLDER = Option("--folder", help="where; ~/.local/bin by default", metavar="DIR", complete="files")
NAME = "agent-inbox"
FOLDER = "~/.local/bin"
MARK = "# Written by `postroom install agent-inbox-shim`."
_SCRIPT = f"""#!/bin/sh
{MARK} It may be written anew: change nothing here.
home="$HOME/.claude/agent-inbox"
socket="${{POSTROOM_SOCKET:-${{INBOX_SOCKET_PATH:-}}}}"
case "${{1:-mcp}}" in
mcp)
  if [ -n "$socket" ]; then exec PROGRAM mcp --socket "$socket"; fi
  exec PROGRAM mcp
  ;;
mcp-proxy)
  exec PROGRAM mcp --socket "${{socket:-$home/inbox.sock}}"
  ;;
ipc)
  inboxes="${{POSTROOM_INBOXES:-${{INBOX_DIR:-$home/inboxes}}}}"
  set -- --socket "${{socket:-$home/inbox.sock}}" --inboxes "$inboxes"
  case "${{POSTROOM_HTTP:-${{INBOX_HTTP_PORT:-0}}}}" in 0) set -- "$@" --http off ;; esac
  exec PROGRAM serve "$@" >&2
  ;;
*)
  echo "Usage: agent-inbox [mcp|mcp-proxy|ipc]" >&2
  exit 1
  ;;
esac
"""


def script() -> str:
    """Return the shim for the Postroom that runs now."""
    return _SCRIPT.replace("PROGRAM", shlex.join(program()))


@command(
    "install agent-inbox-shim",
    _FOLDER,
    _DRY,
    about="A small script with agent-inbox's modes: mcp (the default) is postroom mcp; mcp-proxy, or mcp with INBOX_SOCKET_PATH, is postroom mcp at that socket; ipc is postroom serve, which listens and writes inbox files where agent-inbox does, and honours its INBOX_* variables. A file that Postroom did not write is left as it is. Needs no --as and no room.",
    examples=(
        ("postroom install agent-inbox-shim --dry-run", "what would it do?"),
        ("postroom install agent-inbox-shim --folder bin", "for one project"),
    ),
    json="path outcome dry_run on_path hidden_by",
    no_room="no room is needed",
    looks=True,
)
@command(
    "uninstall agent-inbox-shim",
    _FOLDER,
    _DRY,
    about="Removes the script if Postroom wrote it. Needs no --as and no room.",
    examples=(("postroom uninstall agent-inbox-shim", "from ~/.local/bin"),),
    json="path outcome dry_run",
    no_room="no room is needed",
    looks=True,
)
def run_shim(context: Context) -> Answer:
    """Write the shim, or take it away."""
    path = Path(os.path.abspath(Path(context.get("folder", FOLDER)).expanduser())) / NAME  # noqa: PTH100
    dry, is_install = "dry_run" in context.values, context.name.startswith("install ")
    text = script() if is_install else None
    outcome = put(str(path), MARK, text, 0o755, "--folder", "choose another folder", dry=dry)
    found = _on_the_path(path) if is_install else {}
    lost = () if found.get("on_path", True) else ("Its folder is not on your PATH: no host will find it there.",)
    late = "{hidden_by} comes first on your PATH: hosts start that one."
    view = says(f"{(_WOULD if dry else _DID)[outcome]}: {{path}}", *lost, late)
    return context.shown({"path": str(path), "outcome": outcome, "dry_run": dry} | found, view)


def _on_the_path(path: Path) -> dict[str, Any]:
    """Return whether a shell finds the shim, and which program of that name it finds before."""
    folders = [folder for folder in variable("PATH").split(os.pathsep) if folder]
    real = [os.path.realpath(folder) for folder in folders]
    ours = os.path.realpath(path.parent)
    earlier = folders[: real.index(ours)] if ours in real else folders
    hidden_by = shutil.which(NAME, path=os.pathsep.join(earlier))
    return {"on_path": ours in real, "hidden_by": hidden_by}


# -- the unit of systemd

# Options that are made absolute: a unit runs in another folder.
_PATHS = ("sockets", "certificate", "key", "inboxes", "peers")
_OURS = ("POSTROOM_", "INBOX_")
_NOT_FOR_SERVE = {"POSTROOM_STORE", "POSTROOM_AGENT", "POSTROOM_AUTH_TOKEN", "INBOX_AGENT_NAME"}
_NOT_THERE = f"Set here and unknown to the unit; say it as an option, or by systemctl --user edit {unit.NAME}"
_SERVE = command_of("serve").options
_MOVE = "move it away first"


@command(
    "service install",
    _DRY,
    *_SERVE,
    about="Writes a unit for your own systemd, which starts postroom serve with the same options, and again when it"
    " fails. The room is the one that you would use here, by its whole path. A file that Postroom did not write is left"
    " as it is. Nothing is started: the commands that do are printed. systemd need not be there.",
    examples=(
        ("postroom service install --dry-run", "what the unit would say"),
        ("postroom service install --http off", "for the room of this project, without HTTP"),
    ),
    json="path outcome unit served next",
    looks=True,
)
def run_service_install(context: Context) -> Answer:
    path, text, dry = unit.path(), unit.text(_words(context)), "dry_run" in context.values
    before = own_file.held(path, unit.MARK)
    # Private folders: a user who may write there could replace the unit.
    outcome = put(path, unit.MARK, text, 0o600, "unit", _MOVE, dry=dry, folders=0o700)
    served = unit.room_of(before) if before else None
    is_other = served not in {None, unit.room_of(text)}
    lines = [*(unit.AFTER_REPLACING if outcome == "replaced" else unit.AFTER_INSTALL), unit.STAY]
    data = {
        "path": path,
        "outcome": "shown" if dry else outcome,
        "unit": text,
        "served": served,
        "next": [] if dry else lines,
        "left_out": _left_out(),
    }
    other = " (it served {served})" if is_other else ""
    if dry:  # below a comment, so that the output is a valid unit
        would = "is there already, just like this" if outcome == "unchanged" else f"would be {outcome}"
        first = says(f"# {{path}} {would}{other}")
        return context.shown(data, lambda screen, data: first(screen, data) + data["unit"])
    return context.shown(
        data, says(f"{_DID[outcome]}{other}: {{path}}", f"{_NOT_THERE}: {{left_out}}", *_typed(lines))
    )


def _typed(lines: Sequence[str]) -> tuple[str, ...]:
    return ("", "Now type:", "  {next}") if lines else ()


@command(
    "service uninstall",
    _DRY,
    about="Only one that Postroom wrote. The room and its mail stay. Stop it first, by systemctl --user disable --now"
    " postroom.service: while systemd says that it is active or enabled this is refused, for without the file systemd cannot"
    " disable it.",
    examples=(("postroom service uninstall", "after it was stopped"),),
    json="path outcome next",
    looks=True,
)
def run_service_uninstall(context: Context) -> Answer:
    path, dry = unit.path(), "dry_run" in context.values
    if not dry and os.path.lexists(path) and (state := unit.running()):
        # Without its file systemd cannot disable it.
        raise Refused(f"the unit is still {state}", field="unit", hint=f"first type: {unit.BEFORE_UNINSTALL}")
    found = put(path, unit.MARK, None, 0, "unit", _MOVE, dry=dry)
    outcome = "missing" if found == "absent" else "there" if dry else found
    before = [unit.BEFORE_UNINSTALL] if outcome == "there" else []
    lines = [*before, *unit.AFTER_UNINSTALL] if outcome != "missing" else []
    return context.shown(
        {"path": path, "outcome": outcome, "next": lines}, says(f"{_DID[outcome]}: {{path}}", *_typed(lines))
    )


@command(
    "service status",
    examples=(("postroom service status", "ours? enabled? active?"),),
    json="path file enabled active",
    looks=True,
)
def run_service_status(context: Context) -> Answer:
    held = own_file.held(unit.path(), unit.MARK)
    data = {
        "path": unit.path(),
        "file": "missing" if held is None else "ours" if held else "not ours",
        "enabled": unit.systemctl_says("is-enabled"),
        "active": unit.systemctl_says("is-active"),
    }
    return context.shown(data, record({"File": "path", "It is": "file", "Enabled": "enabled", "Active": "active"}))


def _words(context: Context) -> list[str]:
    """Return the options of `serve`, with absolute paths."""
    room = absolute(chosen_settings(context.get("room"), {}).store)
    words = ["--room", room]
    for name, value in dict(context.get("set", ())).items():
        words += ["--set", f"{name}={value}"]
    for option in _SERVE:
        values = context.get(option.name, ())
        for value in values if option.many else [values] if values else []:
            is_path = option.name in _PATHS and value != OFF
            words += [option.names[-1], whole_path(value) if is_path else value]
    return words


def _left_out() -> list[str]:
    """Return the variables that `serve` reads here and will not have in the unit."""
    return sorted(name for name in environment() if name.startswith(_OURS) and name not in _NOT_FOR_SERVE)


# -- nanobot and agent-swarm


@command(
    "nanobot doctor",
    Option("--config", help="nanobot's config; ~/.nanobot/config.json by default", complete="files"),
    about="Looks at which nanobot is installed beside this Postroom, whether the channel and its tools are there,"
    " asks nanobot itself, checks the section channels.mailbox, and shows whether a gateway of this agent is up. Provider and"
    " model are nanobot's own matter: `nanobot agent -m hello` tries them. Needs no --as and no room.",
    examples=(("postroom nanobot doctor", "how is it"),),
    json="healthy worst findings",
    no_room="no room is needed",
    looks=True,
)
def run_nanobot_doctor(context: Context) -> Answer:
    found = diagnose(context.get("config"))
    view = partial(diagnosis, healthy="nanobot finds the channel.", command="postroom nanobot doctor")
    return context.shown(diagnosed(found), view, code=end_of(found))


_SHARED = "shared"  # the folder from which the programs of agent-swarm import the file


@command(
    "swarm install",
    Option("FOLDER", help="where they import it from; shared by default", complete="files"),
    Option("--force", help="replace a file that Postroom did not write", kind="flag"),
    about="Writes agent_mailbox.py, which hands on all names of postroom.swarm, and a line in __init__.py beside it, so"
    " that both `from shared.agent_mailbox import send_message` and `from shared import send_message` work. What the"
    " project wrote into __init__.py stays. Mail stays where it is, in workspace/mailboxes, and in its format. An"
    " agent_mailbox.py that Postroom did not write is left as it is. Needs no --as and no room.",
    examples=(("postroom swarm install", "writes shared/agent_mailbox.py"),),
    json="path outcome package export",
    no_room="no room is needed",
    looks=True,
)
def run_swarm_install(context: Context) -> Answer:
    folder = Path(context.get("folder", _SHARED))
    path, force = str(folder / swarm_files.FILE), "force" in context.values
    hint = "--force replaces it"
    outcome = put(path, swarm_files.MARK, swarm_files.CONTENT, 0o644, "FOLDER", hint, dry=False, force=force)
    try:
        package, exported = swarm_files.export(folder)
    except OSError as broken:
        raise cannot_write(str(folder), broken, "FOLDER") from None
    lines = [f"{_DID[outcome]}: {{path}}"] + ([f"{_DID[exported]}: {{package}}"] if exported != "skipped" else [])
    data = {"path": path, "outcome": outcome, "package": str(package), "export": exported}
    return context.shown(data, says(*lines))
