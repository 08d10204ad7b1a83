"""The commands for other designs: check nanobot's channel, and install agent-swarm's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NameTaken
from ..nanobot.channel.doctor import diagnose
from ..swarm.install import export, install
from . import health
from .answer import Answer
from .errors import CannotCreate, Usage
from .health import end_of, plain_finding
from .output import one_line, sayable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answer import Screen
    from .context import Context


def run_nanobot_doctor(context: Context) -> Answer:
    if "room" in context.values:
        raise Usage("has no place here: no room is needed", field="--room")
    found = diagnose(context.get("config"), repair=bool(context.get("repair")))
    data = {
        "healthy": found.is_healthy,
        "worst": str(found.worst),
        "findings": [plain_finding(finding) for finding in found.findings],
    }
    return Answer(context.name, data, _nanobot_view, code=end_of(found))


def _nanobot_view(screen: Screen, data: Mapping[str, Any]) -> str:
    return health.diagnosis(screen, data, healthy="nanobot finds the channel.", command="postroom nanobot doctor")


# -- agent-swarm: its programs import a file, which this command writes

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
    return Answer(context.name, data, _swarm_view)


def _swarm_view(_screen: Screen, data: Mapping[str, Any]) -> str:
    files = ((data["outcome"], data["path"]), (data["export"], data["package"]))
    return "".join(
        f"{outcome.capitalize()}: {one_line(path)}\n" for outcome, path in files if outcome != "skipped"
    )
