"""The commands that install Postroom in agent hosts and remove it.

What would change is shown first, and nothing is written before the user agrees. Files in a folder that is
Postroom's alone are named in one line; of files that others have a part in, every changed line is shown.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..environment import how_to_install, state_folder
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
from .errors import NOTHING, OK, CannotCreate, Usage
from .output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..hosts.install.plan import FileChange, Plan
    from .answer import Answer, Screen
    from .context import Context
    from .output import View


_AGENT = Option(
    "--agent",
    help="the agent name of all its sessions; by default each is named after its project's folder",
    metavar="NAME",
    complete="agents",
)
_PROJECT = Option("--project", help="for the working folder only, not for all projects", kind="flag")
_RULES = Option(
    "--rules",
    help="add the rules text without asking: how to use mail, in a few lines",
    kind="flag",
    against=("no_rules",),
)
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


# -- views of an installation in a host

_WOULD = {"made": "Would make", "changed": "Would change", "removed": "Would remove"}
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


def _plain(change: FileChange) -> dict[str, Any]:
    action = "made" if change.before is None else "removed" if change.after is None else "changed"
    return {"path": change.path, "action": action, "diff": diff_of([change])}


def _diff(own: str, runs: str, _screen: Screen, data: Mapping[str, Any]) -> str:
    """Show what would change, with every changed line. `own` is a folder that is Postroom's alone, or empty.

    Where `runs` names the program that new files in `own` would start, a person is asked next: then those files
    are named alone.
    """
    news = [
        one
        for one in data["changes"]
        if runs and own and one["action"] != "changed" and one["path"].startswith(own)
    ]
    lines = _files(data["changes"], own, _WOULD)
    lines += [f"The new files start {runs}; --dry-run shows every line of them."] if news else []
    lines += [line for one in data["changes"] if one not in news for line in one["diff"].splitlines()]
    return "".join(f"{one_line(line)}\n" for line in [*lines, *data["next"]])


def _files(changes: Sequence[Mapping[str, Any]], own: str, words: Mapping[str, str]) -> list[str]:
    """Return a line for each changed file; those in `own` share one."""
    lines = []
    for action, word in words.items():
        paths = [one["path"] for one in changes if one["action"] == action]
        inside = [path.removeprefix(own) for path in paths if own and path.startswith(own)]
        lines += [f"{word}, in {own.rstrip('/')}: {', '.join(inside)}"] if inside else []
        lines += [f"{word}: {path}" for path in paths if not (own and path.startswith(own))]
    return lines


def _done(own: str, _screen: Screen, data: Mapping[str, Any]) -> str:
    lines = _files(data["changes"], own, {action: action.capitalize() for action in _WOULD})
    lines += [_OUTCOMES[data["outcome"]].format(place=data["place"])] if data["outcome"] in _OUTCOMES else []
    lines += [
        f"{one['path']} is {'there' if one['there'] else 'not there any more'}."
        for one in data.get("programs", ())
    ]
    return "".join(f"{one_line(line)}\n" for line in [*lines, *data["next"]])


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
        self._own = f"{printable(self._layout.own)}/" if self._layout.own else ""  # a folder that is ours alone

    def plan(self) -> Plan:
        """Return what changes. The rules text is written if it was asked for, or is there and is kept up to date."""
        if not self.is_install:
            return install_plan.to_uninstall(self._layout)
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
            yield self.answer("", changes, view=partial(_diff, self._own, " ".join(self._order.program)))

    def apply(self, plan: Plan) -> Answer:
        if not plan:
            return self.answer("unchanged" if self.is_install else "absent")
        if "dry_run" in self._context.values:
            return self.answer("shown", plan, view=partial(_diff, self._own, ""))
        install_plan.carry_out(plan, self._layout)
        # Earlier versions noted there what they put where.
        shutil.rmtree(state_folder("installed"), ignore_errors=True)
        return self.answer("written" if self.is_install else "removed", plan)

    def checked(self) -> Answer:
        """Check that everything is in place, with the programs that it starts."""
        found, obstacle = install_state(self._layout), self._layout.obstacle  # the latter: another plugin of ours
        programs = ["postroom"] if obstacle and not found.is_any else found.programs
        there = [{"path": path, "there": shutil.which(path) is not None} for path in programs]
        is_whole = all(one["there"] for one in there) and not (found.is_any if obstacle else not found.is_all)
        if obstacle:
            outcome = "twice" if found.is_any else "elsewhere"
        else:
            outcome = "in place" if is_whole else "incomplete" if found.is_any else "absent"
        return self.answer(outcome, code=OK if is_whole else NOTHING, programs=there)

    def answer(
        self,
        outcome: str,
        changes: Sequence[FileChange] = (),
        *,
        code: int = OK,
        programs: Sequence[Any] = (),
        view: View | None = None,
    ) -> Answer:
        data = {
            "host": self._order.host,
            "place": self._layout.place,
            "outcome": outcome,
            "changes": list(map(_plain, changes)),
            "next": self._next_steps(outcome) if self.is_install else [],
        }
        data |= {"programs": programs} if self.is_install else {}
        return self._context.shown(data, view or partial(_done, self._own), code=code)

    def _next_steps(self, outcome: str) -> list[str]:
        """Return what is left for the user to do."""
        order, values, steps = self._order, self._context.values, list[str]()
        is_written = outcome == "written"
        if is_written:
            steps += [*_NEXT[order.host], *([_IN_PROJECT[order.host]] if order.project else [])]
        if outcome in {"incomplete", "absent"}:
            steps.append(f"postroom install {order.host} puts it in place.")
        if not order.with_server and outcome not in {"declined", "elsewhere"}:
            need = APART if is_beside_nanobot() else f"it needs {how_to_install('mcp')}"
            steps.append(f"The MCP server is left out: {need}. Then install again.")
        was_shown = is_written and not self._context.screen.json  # before the question
        if outcome not in {"declined", "absent"} and not was_shown:
            steps += other_places(order, self._layout)
        if outcome in {"elsewhere", "twice"} and self._layout.obstacle:
            path, what, to_do = self._layout.obstacle
            steps.append(f"{path} {what}{f'; {to_do}' if outcome == 'twice' else ''}.")
        is_undecided = "yes" in values and not {"rules", "no_rules"} & values.keys()
        if is_written and is_undecided and not has_rules(self._layout):
            steps.append("The rules text was not added: --rules adds it.")
        return steps


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
