"""The command for nanobot: whether it finds our channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..nanobot_channel.finding import diagnose
from . import care_views as views
from .answers import Answer
from .exits import Usage
from .health import end_of, plain_finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen
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
    return Answer(context.name, data, _shown, code=end_of(found))


def _shown(screen: Screen, data: Mapping[str, Any]) -> str:
    return views.diagnosis(screen, data, healthy="nanobot finds the channel.", command="postroom nanobot doctor")
