"""The commands for other designs: check nanobot's channel, and install agent-swarm's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NameTaken
from ..nanobot.channel.doctor import diagnose
from ..swarm.install import export, install
from . import health
from .answer import Answer
from .command import Option, command
from .errors import CannotCreate, Usage
from .health import end_of, plain_finding
from .output import one_line, sayable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answer import Screen
    from .context import Context


@command(
    "nanobot doctor",
    Option("--config", help="nanobot's config; ~/.nanobot/config.json by default", complete="files"),
    about="Looks at which nanobot is installed beside this Postroom, whether the channel and its tools are there,"
    " asks nanobot itself, checks the section channels.mailbox, and says whether a gateway of this agent is up. Provider and"
    " model are nanobot's own matter: `nanobot agent -m hello` tries them. Needs no --as and no room.",
    examples=(("postroom nanobot doctor", "how is it"),),
    json="healthy worst findings",
    looks=True,
)
def run_nanobot_doctor(context: Context) -> Answer:
    if "room" in context.values:
        raise Usage("has no place here: no room is needed", field="--room")
    found = diagnose(context.get("config"))
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
    looks=True,
)
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
