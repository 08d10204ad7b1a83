"""The commands that put a program for other hosts in place, and take it away again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import shim
from .answers import Answer, sayable
from .escape import one_line
from .exits import CannotCreate, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .answers import Screen
    from .context import Context

_WOULD = {
    "written": "Would write",
    "replaced": "Would replace",
    "removed": "Would remove",
    "unchanged": "There already",
    "absent": "Not there",
}


def run_install_shim(context: Context) -> Answer:
    path = _place(context)
    try:
        outcome = shim.install(path, really="dry_run" not in context.values)
    except OSError as broken:
        raise CannotCreate(f"{path} cannot be written: {broken.strerror}", field="--folder") from None
    _check_ours(path, outcome)
    before = shim.first_found(path)
    found = {
        "on_path": shim.is_on_path(path.parent),
        "hidden_by": None if before is None else sayable(str(before)),
    }
    return _answer(context, path, outcome, found)


def run_uninstall_shim(context: Context) -> Answer:
    path = _place(context)
    try:
        outcome = shim.uninstall(path, really="dry_run" not in context.values)
    except OSError as broken:
        raise CannotCreate(f"{path} cannot be removed: {broken.strerror}", field="--folder") from None
    _check_ours(path, outcome)
    return _answer(context, path, outcome, {})


def _place(context: Context) -> Path:
    if "room" in context.values:
        raise Usage("has no place here: no room is needed", field="--room")
    return shim.place(context.get("folder", shim.FOLDER))


def _check_ours(path: Path, outcome: str) -> None:
    if outcome == "foreign":
        raise CannotCreate(f"{path} is there and is not ours", field="--folder", hint="choose another folder")


def _answer(context: Context, path: Path, outcome: str, more: dict[str, Any]) -> Answer:
    data = {"path": sayable(str(path)), "outcome": outcome, "dry_run": "dry_run" in context.values, **more}
    return Answer(context.name, data, _shown)


def _shown(_screen: Screen, data: Mapping[str, Any]) -> str:
    words = _WOULD[data["outcome"]] if data["dry_run"] else data["outcome"].capitalize()
    text = f"{words}: {one_line(data['path'])}\n"
    if data.get("on_path") is False:
        folder = data["path"].rpartition("/")[0]
        text += f"{one_line(folder)} is not on your PATH: no host will find it there.\n"
    if data.get("hidden_by"):
        text += f"{one_line(data['hidden_by'])} comes first on your PATH: hosts start that one.\n"
    return text
