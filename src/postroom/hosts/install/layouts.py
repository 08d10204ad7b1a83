"""The files in which each host looks for hooks, MCP servers and rules, and the content that we put there.

Claude Code reads a folder in its skills folder as a plugin. That needs no marketplace, no copy kept by the host
that could become outdated, and no change to the settings. Codex and Gemini CLI have files that others use too.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...environment import variable
from ...errors import Refused
from .. import recipes
from . import plan as install_plan
from .pieces import JsonValues, OwnFile, TextBlock, TomlTable, entries_in, value_at
from .plan import install_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .pieces import IsOurs, Piece


NAME = "postroom"  # of the plugin, and of the MCP server
SECONDS = 60  # for one call of a tool; the tools that wait for mail return earlier
CODEX_MARK = "# Written by `postroom install codex`; `postroom uninstall codex` takes this table out."
GEMINI_MARK = "Mail between agents. Written by `postroom install gemini`."
# Codex passes only these variables to an MCP server.
_CODEX_HANDS_ON = (
    *("POSTROOM_AGENT", "POSTROOM_STORE", "POSTROOM_SOCKET", "POSTROOM_AUTH_TOKEN", "POSTROOM_SCOPE"),
    "POSTROOM_HUMAN",
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Order(NamedTuple):
    """The options of one installation."""

    host: str
    program: tuple[str, ...]  # how Postroom is started
    options: tuple[str, ...] = ()  # of every call: who the agent is, where its mail is
    project: str | None = None  # the folder of a project, if it is for that project alone
    with_server: bool = True  # can the MCP server be started?


class HostFiles(NamedTuple):
    """The files of one host in one place."""

    place: str  # the folder of the host's configuration
    root: str  # the folder below which no path contains a link
    pieces: tuple[Piece, ...]
    rules: TextBlock
    own: str | None = None  # a folder that is ours alone
    obstacle: tuple[str, str, str] | None = None  # a file, the problem in it, what to do


def layout_of(order: Order) -> HostFiles:
    layout = _LAYOUTS[order.host](order)
    if order.project is not None and layout.obstacle is None:
        layout = layout._replace(obstacle=_for_everything(order, layout.place))
    for word in (layout.place, *order.program, *order.options):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise Refused(f"{word!a} is not UTF-8 text, which every host requires", field="path") from None
    return layout


def _claude(order: Order) -> HostFiles:
    place, root = _place(order, ".claude", "CLAUDE_CONFIG_DIR")
    skills = install_plan.resolve_link(os.path.join(place, "skills"), order.project)
    own, root = os.path.join(skills, NAME), _root(skills, root)
    files = _packaged("claude")
    # The packaged plugin says only `postroom`; an installed one names this very program, whatever PATH the
    # host has.
    hooks = {"hooks": recipes.hooks("claude", order.program, order.options)}
    files["hooks/hooks.json"] = _dumped({**json.loads(files["hooks/hooks.json"]), **hooks})
    server = _dumped({"mcpServers": {NAME: recipes.mcp_server(order.program, order.options)}})
    wanted = {**files, ".mcp.json": server if order.with_server else None}
    # The manifest, by which the folder is known as ours, comes first.
    pieces = tuple(OwnFile(os.path.join(own, name), content) for name, content in sorted(wanted.items()))
    return HostFiles(place, root, pieces, _rules(order, place, "CLAUDE.md"), own, _other_plugin(place))


def _codex(order: Order) -> HostFiles:
    place, root = _place(order, ".codex", "CODEX_HOME")
    hooks = {"hooks": recipes.hooks("codex", order.program, order.options)}
    server = recipes.mcp_server(order.program, order.options)
    table = {**server, "tool_timeout_sec": SECONDS, "env_vars": list(_CODEX_HANDS_ON)} if order.with_server else {}
    path = _file(order, place, "hooks.json")
    pieces = (
        JsonValues(path, hooks, {}, _is_our_hook("codex"), comments=False),
        TomlTable(_file(order, place, "config.toml"), CODEX_MARK, table),
    )
    return HostFiles(place, root, pieces, _rules(order, place, "AGENTS.md"))


def _gemini(order: Order) -> HostFiles:
    place, root = _place(order, ".gemini", "GEMINI_CLI_HOME")
    is_our_hook = _is_our_hook("gemini")
    hooks = {"hooks": recipes.hooks("gemini", order.program, order.options)}
    server = recipes.mcp_server(order.program, order.options)
    mcp = {"mcpServers": {NAME: {**server, "timeout": SECONDS * 1000, "description": GEMINI_MARK}}}
    for word in (*order.program, *order.options):
        if "$" in word:
            raise Refused(f"{word!a} has a $, which Gemini CLI takes for a variable")

    def is_ours(path: tuple[str, ...], value: Any) -> bool:
        if path == ("mcpServers", NAME):
            return bool(value_at(value, "description") == GEMINI_MARK)
        return is_our_hook(path, value)

    path = _file(order, place, "settings.json")
    settings = JsonValues(path, hooks, mcp if order.with_server else {}, is_ours, comments=True)
    return HostFiles(place, root, (settings,), _rules(order, place, "GEMINI.md"))


_LAYOUTS: dict[str, Callable[[Order], HostFiles]] = {"claude": _claude, "codex": _codex, "gemini": _gemini}


def _other_plugin(place: str) -> tuple[str, str, str] | None:
    """Find our plugin installed from a marketplace: with both, every letter would be shown twice."""
    path = os.path.join(place, "settings.json")
    enabled = value_at(_settings(path), "enabledPlugins")
    for plugin, is_on in enabled.items() if isinstance(enabled, dict) else ():
        if plugin.startswith(f"{NAME}@") and plugin != f"{NAME}@skills-dir" and is_on is True:
            return path, f"enables the plugin {plugin} already", f"first type: claude plugin uninstall {plugin}"
    return None


def _settings(path: str) -> Any:
    """Return the value in a settings file; None if it cannot be read, which the host reports."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None


def _for_everything(order: Order, place: str) -> tuple[str, str, str] | None:
    """Find an installation for all projects: the host would run both, and could show every letter twice."""
    everything = order._replace(project=None)
    if not _is_elsewhere(everything, place):
        return None
    hint = f"with both, letters could be shown twice; first type: postroom uninstall {order.host}"
    return _LAYOUTS[order.host](everything).place, "has Postroom for all projects already", hint


def _is_elsewhere(order: Order, place: str) -> bool:
    """Return whether anything of ours is installed by this order, in another place."""
    try:
        there = _LAYOUTS[order.host](order)
        return there.place != place and install_state(there).is_any
    except Refused:  # a file that cannot be read holds nothing of ours
        return False


def _place(order: Order, folder: str, named_by: str) -> tuple[str, str]:
    """Return the folder of the host's configuration, and the folder that contains it."""
    if order.project is not None:
        return os.path.join(order.project, folder), order.project
    named = variable(named_by)
    home = os.path.realpath(named or os.path.expanduser("~"))
    # Unlike the others, Gemini's variable names the folder above.
    return (home if named and named_by != "GEMINI_CLI_HOME" else os.path.join(home, folder)), home


def _file(order: Order, place: str, name: str) -> str:
    return install_plan.resolve_link(os.path.join(place, name), order.project)


def _root(folder: str, root: str) -> str:
    """Return the folder below which no path contains a link: `root`, or the nearest existing folder outside it."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return root if folder == root or folder.startswith(os.path.join(root, "")) else folder


def _rules(order: Order, place: str, file: str) -> TextBlock:
    with open(os.path.join(_HERE, "rules", f"{order.host}.md"), encoding="utf-8") as content:
        return TextBlock(_file(order, order.project or place, file), content.read(), order.host)


def _packaged(host: str) -> dict[str, str]:
    """Return the files of the packaged plugin by their path in it."""
    folder = os.path.join(_HERE, "plugins", host)
    texts = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with open(path, encoding="utf-8") as file:
                texts[os.path.relpath(path, folder)] = file.read()
    return texts


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _is_our_hook(host: str) -> IsOurs:
    """Return a test for our hooks, and for groups with other fields (a matcher) whose hooks are all ours."""

    def is_ours(path: tuple[str, ...], value: Any) -> bool:
        if path[:1] != ("hooks",) or not isinstance(value, dict):
            return False
        if len(path) == 3 and path[2] == "hooks":
            return recipes.is_ours(host, value)
        inner = value.get("hooks") if len(path) == 2 and len(value) > 1 else None
        return isinstance(inner, list) and bool(inner) and all(is_ours((*path, "hooks"), one) for one in inner)

    return is_ours


# -- our hooks in other places: in projects, or installed by hand
#
# They are only reported. A letter is still shown only once, but each hook runs twice, and the two may use
# different agents.

_BY_HAND = ("settings.json", "settings.local.json")  # of Claude Code, where we install a plugin instead


def other_places(order: Order, layout: HostFiles) -> list[str]:
    """Return a sentence for each other place with our hooks."""
    results = [f"{path} runs hooks of Postroom too: remove them there." for path in _by_hand(order, layout)]
    project = os.getcwd()
    if order.project is None and _is_elsewhere(order._replace(project=project), layout.place):
        undo = f"postroom uninstall {order.host} --project"
        results.append(f"{project} has Postroom too: in that folder type {undo}.")
    return results


def _by_hand(order: Order, layout: HostFiles) -> Iterator[str]:
    if order.host == "claude":
        for path in (os.path.join(layout.place, name) for name in _BY_HAND):
            hooks = value_at(_settings(path), "hooks")
            if any(recipes.is_ours(order.host, entry) for _, entry in entries_in(hooks)):
                yield path
