"""The commands that install the server as a systemd unit of the user, remove it, and show its state."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from ..app import unit
from ..app.options import OFF
from ..environment import environment
from ..errors import NameTaken, Refused
from ..room import chosen_settings
from ..store.address import absolute
from .answer import Answer
from .command import Option, command, command_of
from .errors import CannotCreate
from .output import facts, one_line, sayable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .answer import Screen
    from .context import Context


DRY = Option("--dry-run", help="only say what would be done", kind="flag")


_PATHS = (
    "socket",
    "tls_cert",
    "tls_key",
    "inboxes",
    "peers",
)  # options that are made absolute: a unit runs in another folder
_OURS = ("POSTROOM_", "INBOX_")
_NOT_FOR_SERVE = {"POSTROOM_STORE", "POSTROOM_AGENT", "POSTROOM_AUTH_TOKEN", "INBOX_AGENT_NAME"}
_NOT_THERE = f"Set here and unknown to the unit; say it as an option, or by systemctl --user edit {unit.NAME}"
_OPTIONS = tuple(option.name for option in command_of("serve").options)


@command(
    "service install",
    DRY,
    *command_of("serve").options,
    about="Writes a unit for your own systemd, which starts postroom serve with the same options, and again when it"
    " fails. The room is the one that you would use here, by its whole path. A file that Postroom did not write is left"
    " as it is. Nothing is started: the lines that do are told. systemd need not be there.",
    examples=(
        ("postroom service install --dry-run", "what the unit would say"),
        ("postroom service install --http off", "for the room of this project, without HTTP"),
    ),
    json="path outcome unit served next",
    looks=True,
)
def run_service_install(context: Context) -> Answer:
    text = unit.text(_words(context))
    before = unit.held()
    served = unit.room_of(before) if before else None
    data = {"path": sayable(unit.path()), "unit": text, "served": served, "left_out": _left_out()}
    if "dry_run" in context.values:
        would = "refuse" if before == "" else unit.outcome(before, text)
        return Answer(context.name, {**data, "outcome": "shown", "next": []}, partial(_dry, would=would))
    try:
        outcome = unit.install(text)
    except NameTaken as taken:
        raise CannotCreate(taken.message, field="unit", hint=taken.hint) from None
    except OSError as broken:
        raise CannotCreate(f"{unit.path()} cannot be written: {broken.strerror}", field="unit") from None
    lines = [*(unit.AFTER_REPLACING if outcome == "replaced" else unit.AFTER_INSTALL), unit.STAY]
    return Answer(context.name, {**data, "outcome": outcome, "next": lines}, _installed)


@command(
    "service uninstall",
    DRY,
    about="Only one that Postroom wrote. The room and its mail stay. Stop it first, by systemctl --user disable --now"
    " postroom.service: while systemd says that it is active or enabled this is refused, for without the file systemd cannot"
    " disable it.",
    examples=(("postroom service uninstall", "after it was stopped"),),
    json="path outcome next",
    looks=True,
)
def run_service_uninstall(context: Context) -> Answer:
    was_there = unit.held() is not None
    if was_there and "dry_run" not in context.values:
        _check_stopped()
        try:
            unit.uninstall()
        except NameTaken as taken:
            raise CannotCreate(taken.message, field="unit", hint=taken.hint) from None
    outcome = "missing" if not was_there else "there" if "dry_run" in context.values else "removed"
    before = [unit.BEFORE_UNINSTALL] if outcome == "there" else []
    lines = [*before, *unit.AFTER_UNINSTALL] if was_there else []
    return Answer(context.name, {"path": sayable(unit.path()), "outcome": outcome, "next": lines}, _uninstalled)


def _check_stopped() -> None:
    """Refuse to remove a unit that runs: without its file systemd cannot disable it."""
    state = unit.running()
    if state is not None:
        raise Refused(f"the unit is still {state}", field="unit", hint=f"first type: {unit.BEFORE_UNINSTALL}")


@command(
    "service status",
    examples=(("postroom service status", "ours? enabled? active?"),),
    json="path file enabled active",
    looks=True,
)
def run_service_status(context: Context) -> Answer:
    held = unit.held()
    file = "missing" if held is None else "ours" if held else "not ours"
    data = {
        "path": sayable(unit.path()),
        "file": file,
        "enabled": unit.systemctl_says("is-enabled"),
        "active": unit.systemctl_says("is-active"),
    }
    return Answer(context.name, data, _status)


def _words(context: Context) -> list[str]:
    """Return the options of `serve`, with absolute paths."""
    room = absolute(chosen_settings(context.get("room"), {}).store)
    words = ["--room", room]
    for name, value in dict(context.get("set", ())).items():
        words += ["--set", f"{name}={value}"]
    for option in _OPTIONS:
        values = context.get(option)
        for value in values if isinstance(values, list | tuple) else [] if values is None else [values]:
            flag = f"--{option.replace('_', '-')}"
            is_path = option in _PATHS and value != OFF
            words += [flag, os.path.abspath(os.path.expanduser(value)) if is_path else value]
    return words


def _left_out() -> list[str]:
    """Return the variables that `serve` reads here and will not have in the unit."""
    return sorted(name for name in environment() if name.startswith(_OURS) and name not in _NOT_FOR_SERVE)


_WOULD = {
    "written": "would be written",
    "replaced": "would be replaced",
    "unchanged": "is there already, just like this",
    "refuse": "is there already and not ours; it would be left as it is",
}


def _dry(_screen: Screen, data: Mapping[str, Any], *, would: str) -> str:
    """Show the unit below a comment, so that the output is a valid unit."""
    return f"# {one_line(data['path'])} {_WOULD[would]}{_other(data)}\n{data['unit']}"


def _other(data: Mapping[str, Any]) -> str:
    """Return the room that the replaced unit served, where it is another one."""
    served = data["served"]
    return f" (it served {one_line(served)})" if served and served != unit.room_of(data["unit"]) else ""


def _installed(_screen: Screen, data: Mapping[str, Any]) -> str:
    text = f"{data['outcome'].capitalize()}{_other(data)}: {one_line(data['path'])}\n\n"
    if data["left_out"]:
        text += f"{_NOT_THERE}: {', '.join(map(one_line, data['left_out']))}\n\n"
    return text + _typed("Now type", data["next"])


def _uninstalled(_screen: Screen, data: Mapping[str, Any]) -> str:
    text = f"{data['outcome'].capitalize()}: {one_line(data['path'])}\n"
    return text + ("\n" + _typed("Now type", data["next"]) if data["next"] else "")


def _typed(lead: str, lines: Sequence[str]) -> str:
    return f"{lead}:\n" + "".join(f"  {line}\n" for line in lines)


def _status(screen: Screen, data: Mapping[str, Any]) -> str:
    pairs = [("File", data["path"]), ("It is", data["file"])]
    known = (("Enabled", data["enabled"]), ("Active", data["active"]))
    return facts(screen, [*pairs, *((name, value or "systemd does not tell") for name, value in known)])
