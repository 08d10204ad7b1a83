"""The command for agent-swarm: its programs import a file, and this one writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NameTaken
from ..swarm.installing import export, install
from .answers import Answer, sayable
from .escape import one_line
from .exits import CannotCreate, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen
    from .context import Context

DEFAULT_FOLDER = "shared"


def run_swarm_install(context: Context) -> Answer:
    if "room" in context.values:
        raise Usage("has no place here: no room is needed", field="--room")
    folder = Path(context.get("folder", DEFAULT_FOLDER))
    try:
        path, outcome = install(folder, force="force" in context.values)
        package, exported = export(folder)
    except NameTaken as taken:
        raise CannotCreate(taken.message, field="FOLDER", hint=taken.hint) from None
    except OSError as broken:
        raise CannotCreate(f"{folder} cannot be written: {broken.strerror}", field="FOLDER") from None
    data = {
        "path": sayable(str(path)),
        "outcome": outcome,
        "package": sayable(str(package)),
        "export": exported,
    }
    return Answer(context.name, data, _shown)


def _shown(_screen: Screen, data: Mapping[str, Any]) -> str:
    files = ((data["outcome"], data["path"]), (data["export"], data["package"]))
    return "".join(
        f"{outcome.capitalize()}: {one_line(path)}\n" for outcome, path in files if outcome != "skipped"
    )
