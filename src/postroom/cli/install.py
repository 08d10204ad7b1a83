"""The commands that install Postroom in agent hosts and remove it, and the shim for the program `agent-inbox`.

What would change is shown first, and nothing is written before the user agrees. Files in a folder that is
Postroom's alone are named in one line; of files that others have a part in, every changed line is shown.

The shim is a small script named `agent-inbox`, for hosts that start a program of that name. It takes the three
modes of agent-inbox and its variables, and uses agent-inbox's socket and folder by default. Another program's file
of that name is never touched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import own_file
from ..environment import how_to_install, state_folder, variable
from ..errors import Refused
from ..hosts.install import plan as install_plan
from ..hosts.install.layouts import Order, layout_of, other_places
from ..hosts.install.plan import diff as diff_of
from ..hosts.install.plan import has_rules, install_state
from ..mcp.sdk import APART, SdkMissing, is_beside_nanobot, need_sdk
from ..model.names import check_agent
from ..model.values import passes
from .answer import Answer, printable
from .command import Option, command
from .context import note, program, whole_address
from .errors import NOTHING, OK, CannotCreate, Usage, cannot_write
from .output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..hosts.install.plan import FileChange, Plan
    from .answer import Screen
    from .context import Context


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
    " --room and the name of --agent where you pass them.\n\n"
    "What others wrote stays as it is, with its comments and its order. Called again it changes nothing, or only what is new;"
    " postroom uninstall {host} gives every file back as it was. A file that belongs to another user, may not be written or"
    " cannot be understood is left alone, with an error, and then nothing is written at all. Links of your own are followed and stay;"
    " with --project, none that leads out of the folder. Where the same hooks stand in the working folder, too, a note names them. Needs no --as. {then} The rules text goes to {rules}."
)
_HOSTS = {
    "claude": {
        "files": "Puts a plugin into the folder skills/postroom of ~/.claude (CLAUDE_CONFIG_DIR), or of .claude here with --project: hooks, the MCP server and prompts. Settings are not touched.",
        "then": "With --project, Claude Code loads it once you trust the folder.",
        "rules": "CLAUDE.md",
    },
    "codex": {
        "files": "Adds hooks to hooks.json and the MCP server to config.toml, in ~/.codex (CODEX_HOME), or in .codex here with --project.",
        "then": "Codex runs no hook before you trusted it: it asks when it starts, or type /hooks there.",
        "rules": "AGENTS.md",
    },
    "gemini": {
        "files": "Adds hooks and the MCP server to settings.json in ~/.gemini (GEMINI_CLI_HOME names the folder above), or in .gemini here with --project.",
        "then": "Gemini CLI starts servers only in folders that you trust.",
        "rules": "GEMINI.md",
    },
}


def _for_hosts(
    verb: str, *options: Option, about: str, examples: tuple[tuple[str, str], ...], json: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a command for each host; all of them run one function."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for host, values in _HOSTS.items():
            shown = tuple((line.format(host=host), what) for line, what in examples)
            text = about.format(host=host, **values)
            command(f"{verb} {host}", *options, about=text, examples=shown, json=json, looks=True)(function)
        return function

    return declare


_FOLDER = Option("--folder", help="where; ~/.local/bin by default", metavar="DIR", complete="files")
_SHIM_DRY = Option("--dry-run", help="show what would be done, and do nothing", kind="flag")


# -- views of an installation in a host

_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}
_WOULD = {"made": "Would make", "changed": "Would change", "removed": "Would remove"}
_DONE = {action: action.capitalize() for action in _WOULD}
_OUTCOMES = {
    "unchanged": "All of it is there already.",
    "absent": "Nothing of Postroom is in {place}.",
    "declined": "Nothing was written.",
    "in place": "All of it is in place.",
    "incomplete": "Not all of it is in place.",
    "elsewhere": "It is in place, from a marketplace.",
    "twice": "It is there twice: what is new would be shown twice.",
}
_NEXT = {
    "claude": ("Start a session of Claude Code, or type /reload-plugins in one that runs.",),
    "codex": (
        "Start Codex and trust the hooks of Postroom: it asks when it starts; later, type /hooks.",
        "Until you trust them, none of them runs.",
    ),
    "gemini": ("Start Gemini CLI, in a folder that you trust.",),
}
_IN_PROJECT = {
    "claude": "It is loaded once you trust the folder, and the MCP server once you allow it.",
    "codex": "It is read once you trust the folder.",
    "gemini": "It is read once you trust the folder.",
}


def plain_change(change: FileChange) -> dict[str, Any]:
    action = "made" if change.before is None else "removed" if change.after is None else "changed"
    return {"path": printable(change.path), "action": action, "diff": diff_of([change])}


def next_steps(order: Order, outcome: str) -> list[str]:
    """Return what is left for the user to do."""
    steps: list[str] = []
    if outcome == "written":
        steps += [*_NEXT[order.host], *([_IN_PROJECT[order.host]] if order.project else [])]
    if outcome in {"incomplete", "absent"}:
        steps += [f"postroom install {order.host} puts it in place."]
    if not order.with_server and outcome not in {"declined", "elsewhere"}:
        need = APART if is_beside_nanobot() else f"it needs {how_to_install('mcp')}"
        steps += [f"The MCP server is left out: {need}. Then install again."]
    return steps


def diff(own: str, runs: str, screen: Screen, data: Mapping[str, Any]) -> str:
    """Show what would change, with every changed line. `own` is a folder that is Postroom's alone, or empty.

    Where `runs` names the program that new files in `own` would start, a person is asked next: then those files
    are named alone.
    """
    shown, hint = data["changes"], []
    if runs:
        shown = [change for change in shown if change["action"] == "changed" or not _is_in(own, change)]
        if any(change["action"] == "made" and _is_in(own, change) for change in data["changes"]):
            hint = [f"The new files start {one_line(runs)}; --dry-run shows every line of them."]
    lines = (one_line(line) for change in shown for line in change["diff"].splitlines())
    coloured = [_coloured(line) if screen.colour else line for line in lines]
    return _text([*_files(data["changes"], own, _WOULD), *hint, *coloured, *data["next"]])


def install_view(own: str, _screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [*_files(data["changes"], own, _DONE)]
    if data["outcome"] in _OUTCOMES:
        lines.append(_OUTCOMES[data["outcome"]].format(place=one_line(data["place"])))
    for one in data.get("programs", ()):
        missing = "is not there any more" if "/" in one["path"] else "is not on the PATH"
        lines.append(f"{one_line(one['path'])} {'is there' if one['there'] else missing}.")
    return _text([*lines, *data["next"]])


def _files(changes: Sequence[Mapping[str, Any]], own: str, words: Mapping[str, str]) -> Iterator[str]:
    for action, word in words.items():
        these = [change for change in changes if change["action"] == action]
        inside = [one_line(change["path"].removeprefix(f"{own}/")) for change in these if _is_in(own, change)]
        if inside:
            yield f"{word}, in {one_line(own)}: {', '.join(inside)}"
        yield from (f"{word}: {one_line(change['path'])}" for change in these if not _is_in(own, change))


def _is_in(own: str, change: Mapping[str, Any]) -> bool:
    return bool(own) and change["path"].startswith(f"{own}/")


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _coloured(line: str) -> str:
    colour = "" if line.startswith(("+++", "---")) else _COLOURS.get(line[:1], "")
    return f"{colour}{line}\033[0m" if colour else line


# -- commands for hosts


@_for_hosts(
    "install",
    *(_AGENT, _PROJECT, _RULES, _NO_RULES, _DRY, _YES, _CHECK),
    about=_ABOUT,
    examples=(
        ("postroom install {host} --dry-run", "what would it do?"),
        ("postroom install {host} --agent coder --project --no-rules --yes", "for this folder alone"),
        ("postroom install {host} --check || true", "is all in place?"),
    ),
    json="host place outcome changes next programs",
)
@_for_hosts(
    "uninstall",
    *(_PROJECT, _DRY, _YES),
    about="Prints what would change and asks before it writes. Each file is given back as it was, to the byte where nobody"
    " else changed it since; else only what is ours is taken out. Files and folders that install made go. Needs no --as.",
    examples=(("postroom uninstall {host} --dry-run", "what would it do?"),),
    json="host place outcome changes next",
)
def run_install_host(context: Context) -> Iterator[Answer]:
    """Show what would change, ask, and change it."""
    with _refusals():
        installation = Installation(context)
        if "check" in context.values:
            yield installation.checked()
            return
        plan = installation.plan()
        if plan and "dry_run" not in context.values:
            yield from installation.shown(plan)
            if not _is_agreed(context, "Write this?" if installation.is_install else "Take this out?"):
                yield installation.answer("declined", code=NOTHING)
                return
            if with_rules := installation.offer(plan):
                yield from installation.shown([change for change in with_rules if change not in plan])
                plan = with_rules if _is_agreed(context, "Add these rules, too?") else plan
        yield installation.apply(plan)


class Installation:
    """One run of an install command: the host and its files."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.is_install = context.name.startswith("install ")
        self._order = _order(context)
        self._layout = layout_of(self._order)
        self._own = printable(self._layout.own or "")

    def plan(self) -> Plan:
        """Return what changes. The rules text is written if it was asked for, or is there and is kept up to date."""
        if not self.is_install:
            return install_plan.to_uninstall(self._layout)
        if {"rules", "no_rules"} <= self._context.values.keys():
            raise Usage("contradicts --no-rules", field="--rules")
        rules = "rules" in self._context.values or has_rules(self._layout)
        return install_plan.to_install(self._layout, rules=rules)

    def offer(self, plan: Plan) -> Plan | None:
        """Return the plan with the rules text, if that may be offered.

        A file of rules that cannot be changed does not keep the rest from being installed.
        """
        if not self.is_install or {"rules", "no_rules", "yes"} & self._context.values.keys():
            return None
        try:
            found = install_plan.to_install(self._layout, rules=True)
        except Refused as refused:
            note(self._context.call, f"no rules text is offered: {refused}")
            return None
        return found if found != plan else None

    def shown(self, changes: Sequence[FileChange]) -> Iterator[Answer]:
        """Show what would be done to a person who is asked next. Programs get it with the answer."""
        if not self._context.screen.json:
            view = partial(diff, self._own, " ".join(self._order.program))
            yield Answer(self._context.name, self._data("", changes), view)

    def apply(self, plan: Plan) -> Answer:
        if not plan:
            return self.answer("unchanged" if self.is_install else "absent")
        if "dry_run" in self._context.values:
            return Answer(self._context.name, self._data("shown", plan), partial(diff, self._own, ""))
        install_plan.carry_out(plan, self._layout)
        shutil.rmtree(
            state_folder("installed"), ignore_errors=True
        )  # earlier versions noted there what they put where
        return self.answer("written" if self.is_install else "removed", plan)

    def checked(self) -> Answer:
        """Check that everything is in place, with the programs that it starts."""
        found = install_state(self._layout)
        programs = [_on_path(path) for path in found.programs]
        is_whole = found.is_all and all(one["there"] for one in programs)
        outcome = "in place" if is_whole else "incomplete" if found.is_any else "absent"
        if self._layout.obstacle:  # another plugin of ours
            outcome, programs = ("twice", programs) if found.is_any else ("elsewhere", [_on_path("postroom")])
            is_whole = not found.is_any and all(one["there"] for one in programs)
        return self.answer(outcome, code=OK if is_whole else NOTHING, programs=programs)

    def answer(self, outcome: str, changes: Sequence[FileChange] = (), *, code: int = OK, **more: Any) -> Answer:
        view = partial(install_view, self._own)
        return Answer(self._context.name, self._data(outcome, changes) | more, view, code=code)

    def _data(self, outcome: str, changes: Sequence[FileChange]) -> dict[str, Any]:
        data = {
            "host": self._order.host,
            "place": printable(self._layout.place),
            "outcome": outcome,
            "changes": [plain_change(change) for change in changes],
            "next": self._next_steps(outcome) if self.is_install else [],
        }
        return data | ({"programs": []} if self.is_install else {})

    def _next_steps(self, outcome: str) -> list[str]:
        steps = next_steps(self._order, outcome)
        was_shown = outcome == "written" and not self._context.screen.json  # before the question
        if outcome not in {"declined", "absent"} and not was_shown:
            steps += map(printable, other_places(self._order, self._layout))
        if outcome in {"elsewhere", "twice"} and self._layout.obstacle:
            path, says, to_do = self._layout.obstacle
            steps += [f"{path} {says}{f'; {to_do}' if outcome == 'twice' else ''}."]
        is_undecided = "yes" in self._context.values and not {"rules", "no_rules"} & self._context.values.keys()
        if outcome == "written" and is_undecided and not has_rules(self._layout):
            steps += ["The rules text was not added: --rules adds it."]
        return steps


def _on_path(program: str) -> dict[str, Any]:
    return {"path": printable(program), "there": shutil.which(program) is not None}


def _order(context: Context) -> Order:
    if "as" in context.values:
        raise Usage("is not an option of install", field="--as", hint="--agent names the agent of the sessions")
    options: list[str] = []
    if agent := context.get("agent"):
        check_agent(agent, "--agent")
        options += ["--as", agent]
    if "room" in context.values:
        options += ["--room", whole_address(context.settings.store)]
    project = os.getcwd() if "project" in context.values else None  # noqa: PTH109 - as text
    host = context.name.partition(" ")[2]
    return Order(host, tuple(program()), tuple(options), project, with_server=passes(SdkMissing, need_sdk))


def _is_agreed(context: Context, question: str) -> bool:
    """Ask the user. Where nobody can answer, --yes is required."""
    if "yes" in context.values:
        return True
    if context.screen.json or sys.stdin is None or not sys.stdin.isatty():
        raise Usage(
            "is required where no terminal can ask you",
            field="--yes",
            hint="--yes writes without asking, --dry-run only shows",
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


@contextmanager
def _refusals() -> Iterator[None]:
    """Report a refused or failing file as CannotCreate."""
    try:
        yield
    except Refused as refused:
        raise CannotCreate(refused.message, field=refused.field, hint=refused.hint) from None
    except OSError as broken:
        raise CannotCreate(str(broken.strerror), field=broken.filename, hint="run the command again") from None


# -- the shim

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
    _SHIM_DRY,
    about="A small script with agent-inbox's modes: mcp (the default) is postroom mcp; mcp-proxy, or mcp with INBOX_SOCKET_PATH, is postroom mcp at that socket; ipc is postroom serve, which listens and writes inbox files where agent-inbox does, and honours its INBOX_* variables. A file that Postroom did not write is left as it is. Needs no --as and no room.",
    examples=(
        ("postroom install agent-inbox-shim --dry-run", "what would it do?"),
        ("postroom install agent-inbox-shim --folder bin", "for one project"),
    ),
    json="path outcome dry_run on_path hidden_by",
    looks=True,
)
@command(
    "uninstall agent-inbox-shim",
    _FOLDER,
    _SHIM_DRY,
    about="Removes the script if Postroom wrote it. Needs no --as and no room.",
    examples=(("postroom uninstall agent-inbox-shim", "from ~/.local/bin"),),
    json="path outcome dry_run",
    looks=True,
)
def run_shim(context: Context) -> Answer:
    """Write the shim, or take it away. A file of that name that Postroom did not write is left as it is."""
    context.refuse_room()
    path = Path(os.path.abspath(Path(context.get("folder", FOLDER)).expanduser())) / NAME  # noqa: PTH100
    is_dry, is_install = "dry_run" in context.values, context.name.startswith("install ")
    before, text = own_file.held(str(path), MARK), script()
    if before == "":
        raise CannotCreate(
            f"{path} is there, and Postroom did not write it", field="--folder", hint="choose another folder"
        )
    outcome = own_file.outcome(before, text) if is_install else "absent" if before is None else "removed"
    try:
        if is_install and not is_dry:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A new one never replaces a file that appears meanwhile.
            own_file.write(str(path), before, text, 0o755, os.link if before is None else os.replace)
        elif outcome == "removed" and not is_dry:
            path.unlink()
    except OSError as broken:
        raise cannot_write(str(path), broken, "--folder") from None
    data = {"path": printable(str(path)), "outcome": outcome, "dry_run": is_dry}
    return Answer(context.name, data | (_on_the_path(path) if is_install else {}), _shim_view)


def _on_the_path(path: Path) -> dict[str, Any]:
    """Return whether a shell finds the shim, and which program of that name it finds before."""
    folders = [folder for folder in variable("PATH").split(os.pathsep) if folder]
    real = [os.path.realpath(folder) for folder in folders]
    ours = os.path.realpath(path.parent)
    earlier = folders[: real.index(ours)] if ours in real else folders
    hidden_by = shutil.which(NAME, path=os.pathsep.join(earlier))
    return {"on_path": ours in real, "hidden_by": None if hidden_by is None else printable(hidden_by)}


_SHIM_WOULD = {
    "written": "Would write",
    "replaced": "Would replace",
    "removed": "Would remove",
    "unchanged": "There already",
    "absent": "Not there",
}


def _shim_view(_screen: Screen, data: Mapping[str, Any]) -> str:
    words = _SHIM_WOULD[data["outcome"]] if data["dry_run"] else data["outcome"].capitalize()
    text = f"{words}: {one_line(data['path'])}\n"
    if data.get("on_path") is False:
        folder = data["path"].rpartition("/")[0]
        text += f"{one_line(folder)} is not on your PATH: no host will find it there.\n"
    if data.get("hidden_by"):
        text += f"{one_line(data['hidden_by'])} comes first on your PATH: hosts start that one.\n"
    return text
