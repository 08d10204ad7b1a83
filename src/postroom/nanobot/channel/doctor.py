"""The doctor of the nanobot channel: whether nanobot finds the channel, and if not, why; whether a gateway runs.

nanobot is queried in another process; nothing of it is imported here. Since 0.3 nanobot looks for channels in its
own folder, into which the distribution `postroom-nanobot` puts three small files. It has the entry points, too.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ... import room
from ...environment import clone_folder
from ...errors import PostroomError, UnknownAgent
from ...model.agent import EVERYONE, Status
from ...model.names import check_agent
from ...model.report import Diagnosis, error, note, ok, warning
from ...store.address import folder_of, is_there
from ...store.files.tree import OWN_FOLDER
from . import config as channel_config
from . import gateways

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.agent import Agent
    from ...model.report import Finding


PACKAGE = "nanobot-ai"
PLUGIN = "postroom-nanobot"
OLDEST = (0, 2, 2)
OWN_FOLDER_SINCE = (0, 3)  # earlier versions read entry points
DEFAULT_CONFIG = "~/.nanobot/config.json"
PATIENCE = 60.0  # seconds
TRY_MODEL = "nanobot agent -m hello"
MODEL = note("model", "provider and model are configured in nanobot and are not checked here", TRY_MODEL)

# Run inside nanobot's Python. It prints its result as the last line: nanobot may log before it.
_ASK = """
import json, sys
found, why = None, ""
try:
    from nanobot.channels.registry import discover_all
    try:
        from nanobot.channels.registry import load_channel_class
        found = load_channel_class("mailbox")
    except ImportError:
        found = discover_all().get("mailbox")
    if found is None:
        import postroom.nanobot.channel.channel
except Exception as broken:
    why = type(broken).__name__ + ": " + str(broken)
sys.stdout.write("\\n" + json.dumps({"found": found.__module__ if found else "", "why": why}))
"""


def diagnose(config: str | None = None) -> Diagnosis:
    """Check the installed packages, the channels that nanobot finds, and its config."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return Diagnosis(findings=(_not_installed(),))
    of_config = _of_config(Path(config or DEFAULT_CONFIG).expanduser())
    return Diagnosis(findings=(_of_version(version), *_of_plugin(version), _of_discovery(), *of_config))


def how_to_install() -> str:
    """Return the command that installs the plugin: from the clone, if Postroom is installed from one."""
    plugin = Path(clone_folder(), "packages", PLUGIN)
    return f"pip install {shlex.quote(str(plugin)) if plugin.is_absolute() and plugin.is_dir() else PLUGIN}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:3] if word.isdigit())


def _not_installed() -> Finding:
    """Report that nanobot is missing here; if it is installed elsewhere, Postroom must be installed there."""
    elsewhere = shutil.which("nanobot")
    here = f"{PACKAGE} is not installed beside this Postroom ({sys.executable})"
    if elsewhere is None:
        return error("nanobot", here, how_to_install())
    hint = f"{elsewhere} is another environment: install Postroom there, and then {how_to_install()}"
    return error("nanobot", here, hint)


def _of_version(version: str) -> Finding:
    if _numbers(version) < OLDEST:
        return error("nanobot", f"{PACKAGE} {version} is too old", f"pip install -U {PACKAGE}")
    return ok("nanobot", f"{PACKAGE} {version}")


def _of_plugin(version: str) -> Iterator[Finding]:
    """Check the entry points, and the files in nanobot's own folder."""
    try:
        plugin = importlib.metadata.distribution(PLUGIN)
    except importlib.metadata.PackageNotFoundError:
        yield error("channel", f"{PLUGIN} is not installed here", how_to_install())
        return
    spec = importlib.util.find_spec("nanobot")
    installed = Path(str(plugin.locate_file("nanobot"))) / "channels" / channel_config.OWN_CHANNEL
    if spec is None or spec.origin is None:
        yield error("channel", "nanobot's own folder is not found", f"install {PACKAGE} again")
    elif _numbers(version) >= OWN_FOLDER_SINCE:
        folder = Path(spec.origin).parent / "channels" / channel_config.OWN_CHANNEL
        if (folder / "manifest.py").is_file():
            yield ok("channel", f"installed at {folder}")
        elif (installed / "manifest.py").is_file():  # such as an editable install of nanobot
            hint = f"cp -r {shlex.quote(str(installed))} {shlex.quote(str(folder))}"
            yield error("channel", f"nanobot runs from another folder, and nothing of ours is at {folder}", hint)
        else:
            hint = f"pip uninstall {PLUGIN}, and then {how_to_install()}"
            yield error("channel", f"nothing of ours is at {folder}", hint)
    yield ok("tools", ", ".join(sorted(one.name for one in plugin.entry_points.select(group="nanobot.tools"))))


def _of_discovery() -> Finding:
    """Let nanobot itself find the channel: its answer decides."""
    # Another process: an import of nanobot here would load it, with its own mcp, into this program.
    request = [sys.executable, "-c", _ASK]
    try:
        process = subprocess.run(request, capture_output=True, text=True, check=False, timeout=PATIENCE)  # noqa: S603
    except subprocess.TimeoutExpired:
        return error("discovery", "nanobot did not answer within a minute")
    return _of_answer(process.stdout)


def _of_answer(text: str) -> Finding:
    """Read the last line of the output, which is ours. The lines before it are the log of all channels."""
    try:
        answer = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return error("discovery", "nanobot could not be queried: it ended early", f"install {PACKAGE} again")
    found, why = answer["found"], answer["why"]
    if found.startswith("postroom."):
        return ok("discovery", "nanobot finds the channel mailbox")
    if found:
        return error("discovery", f"the channel mailbox is {found}, not ours", "rename one of the two")
    reason = f": {why}" if why else ""
    return error("discovery", f"nanobot does not find the channel mailbox{reason}", "see the other findings")


def _of_config(path: Path) -> list[Finding]:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        section = written.get("channels", {}).get(channel_config.OWN_CHANNEL)
    except FileNotFoundError:
        return [warning("config", f"there is no {path}", "nanobot onboard creates it; --config names another")]
    except (OSError, ValueError, AttributeError) as broken:
        return [error("config", f"{path} cannot be read: {broken}")]
    if section is None:
        return [warning("config", f"{path} has no section {channel_config.SECTION}", "see docs/nanobot.md")]
    try:
        value = channel_config.parse(section)
    except PostroomError as wrong:
        return [error("config", f"{path}: {wrong.field}: {wrong.message}", wrong.hint or "")]
    if not value.enabled:
        return [warning("config", f"{channel_config.SECTION}.enabled is false in {path}", "set it to true")]
    later = ", which is created when it starts" if is_there(value.address) is False else ""
    takes = ok("config", f"{value.agent_id} takes mail at {value.address}{later}")
    is_second = path != Path(DEFAULT_CONFIG).expanduser()
    return [takes, *_strangers(value), check_gateway(value, path, is_second=is_second), MODEL]


def _strangers(value: channel_config.Config) -> list[Finding]:
    if value.allow_from != (EVERYONE,):
        return []
    return [
        note("config", "every agent that can write to these mailboxes may mail this one", "allowFrom names them")
    ]


# -- the gateway: is one of this agent running?

GATEWAY = "gateway"
PROGRAM = "nanobot"  # the program on the card of an agent with a gateway
FIRST_PORT = 18790  # nanobot's default port of a gateway
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


def check_gateway(value: channel_config.Config, config: Path, *, is_second: bool = False) -> Finding:
    """Report whether a gateway of this agent is running.

    The check creates nothing: where there is no room yet, no gateway was ever started. A second gateway on this
    machine has its own config and needs its own port.
    """
    start = f"nanobot gateway -c {shlex.quote(str(config))}"
    start += f" -p {_free_port()}" if is_second else ""
    name = check_agent(value.agent_id, "agentId")
    # A mail folder has our own folder in it since it was opened.
    folder = folder_of(value.address)
    if is_there(value.address) is not True or (folder and not (Path(folder) / OWN_FOLDER).is_dir()):
        return _not_started(name, start)
    try:
        with room.open(value.address) as opened:
            return _of_agent(opened, name, start, is_up=gateways.GatewayLock(value.address, name).is_held())
    except UnknownAgent:
        return _not_started(name, start)
    except PostroomError as wrong:
        return warning(GATEWAY, f"the mailboxes cannot be looked at: {wrong}", "postroom doctor")


def _free_port() -> int:
    """Return the first port above FIRST_PORT on which nothing listens."""
    for port in range(FIRST_PORT + 1, FIRST_PORT + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    return FIRST_PORT + 1


def _not_started(name: str, start: str) -> Finding:
    return note(GATEWAY, f"no gateway of {name} was ever started here", start)


def _of_agent(opened: room.Room, name: str, start: str, *, is_up: bool) -> Finding:
    agent = opened.agent(name)
    seen = _last_sign(opened, agent)
    if is_up:
        return ok(GATEWAY, f"a gateway of {name} is up: {agent.presence.status}, {seen}")
    program = agent.card.program
    if agent.presence.status is not Status.OFFLINE and program != PROGRAM:
        who = f"another program, {program}," if program else "another program"
        return warning(GATEWAY, f"{who} is up under the name {name}, {seen}", "end it, or choose another agentId")
    return note(GATEWAY, f"no gateway of {name} is up: {seen}", start)


def _last_sign(opened: room.Room, agent: Agent) -> str:
    at = agent.presence.last_heartbeat
    if at is None:
        return "no sign of life yet"
    seconds = max(0, int((opened.core.now().wall - at).total_seconds()))
    event = "it said goodbye" if agent.presence.left else "last sign of life"
    return f"{event} {_ago(seconds)} ago (program {agent.card.program or 'unknown'})"


def _ago(seconds: int) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
