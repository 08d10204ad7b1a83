"""The command `agent-inbox`, for hosts that start a program of that name: a small script that calls ours.

It takes the three modes of agent-inbox and its variables, and listens and writes where agent-inbox does when
nothing else is said. A file that is not ours is never touched.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Literal

from ..whereabouts import variable

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

Outcome = Literal["written", "replaced", "unchanged", "removed", "absent", "foreign"]


def script() -> str:
    """The script, for the Postroom that runs now."""
    beside = Path(sys.executable).parent / "postroom"
    words = [str(beside)] if beside.is_file() else [sys.executable, "-P", "-m", "postroom"]
    return _SCRIPT.replace("PROGRAM", shlex.join(words))


def place(folder: str) -> Path:
    return Path(os.path.abspath(Path(folder).expanduser())) / NAME  # noqa: PTH100 - a link stays what it is


def install(path: Path, *, really: bool) -> Outcome:
    """Put it there, or say what would be done."""
    held = _content(path)
    if held is not None and MARK not in held:
        return "foreign"
    if held == script():
        return "unchanged"
    if really:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, is_new=held is None)
    return "written" if held is None else "replaced"


def uninstall(path: Path, *, really: bool) -> Outcome:
    held = _content(path)
    if held is None:
        return "absent"
    if MARK not in held:
        return "foreign"
    if really:
        path.unlink()
    return "removed"


def is_on_path(folder: Path) -> bool:
    return any(os.path.realpath(place) == os.path.realpath(folder) for place in _places())


def first_found(path: Path) -> Path | None:
    """Another program of this name, which a shell would find before ours."""
    for folder in _places():
        found = Path(folder) / NAME
        if os.path.realpath(found) == os.path.realpath(path):
            return None
        if os.access(found, os.X_OK):
            return found
    return None


def _places() -> list[str]:
    return [folder for folder in variable("PATH").split(os.pathsep) if folder]


def _content(path: Path) -> str | None:
    """None where there is nothing; empty for what is no text of ours: a folder, a link, bytes."""
    if not os.path.lexists(path):
        return None
    try:
        return "" if path.is_symlink() else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _write(path: Path, *, is_new: bool) -> None:
    """Whole or not at all; and what somebody else puts there meanwhile stays."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(script(), encoding="utf-8")
        draft.chmod(0o755)
        if is_new:
            path.hardlink_to(draft)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
