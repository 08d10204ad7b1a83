"""The doctor of the nanobot channel: whether nanobot finds the channel, and if not, why.

nanobot is queried in another process; nothing of it is imported here. Since 0.3 nanobot looks for channels in its
own folder. Installing Postroom, editable or not, puts three small files there. If they were removed, or nanobot
runs from another folder, `repair` copies them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import PostroomError
from ...model.agent import EVERYONE
from ...model.report import Diagnosis, Level, error, note, ok, warning
from ...store.address import check_usable, is_there
from . import config as channel_config
from . import gateways

if TYPE_CHECKING:
    from ...model.report import Finding


PACKAGE = "nanobot-ai"
OLDEST = (0, 2, 2)
OWN_FOLDER_SINCE = (0, 3)  # earlier versions read entry points
SHIM = Path(__file__).parent / "shim"
DEFAULT_CONFIG = "~/.nanobot/config.json"
PATIENCE = 60.0  # seconds
MAY_INSTALL = 'pip install "postroom[nanobot]"'
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


def diagnose(config: str | None = None, *, repair: bool = False) -> Diagnosis:
    """Check the installed packages, the channels that nanobot finds, and its config."""
    version = _version()
    if version is None:
        return Diagnosis(findings=(_not_installed(),))
    findings = [_of_version(version)]
    if _numbers(version) >= OWN_FOLDER_SINCE:
        findings.append(_of_shim(repair=repair))
    findings += [_of_tools(), _of_discovery(), *_of_config(Path(config or DEFAULT_CONFIG).expanduser())]
    return Diagnosis(findings=tuple(findings))


def _version() -> str | None:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:3] if word.isdigit())


def _not_installed() -> Finding:
    """Report that nanobot is missing here; if it is installed elsewhere, Postroom must be installed there."""
    elsewhere = shutil.which("nanobot")
    here = f"{PACKAGE} is not installed beside this Postroom ({sys.executable})"
    if elsewhere is None:
        return error("nanobot", here, MAY_INSTALL)
    return error("nanobot", here, f"{elsewhere} is another environment: install Postroom there, {MAY_INSTALL}")


def _of_version(version: str) -> Finding:
    if _numbers(version) < OLDEST:
        return error("nanobot", f"{PACKAGE} {version} is too old", f"pip install -U {PACKAGE}")
    return ok("nanobot", f"{PACKAGE} {version}")


def _of_shim(*, repair: bool) -> Finding:
    spec = importlib.util.find_spec("nanobot")
    if spec is None or spec.origin is None:
        return error("channel", "nanobot's own folder is not found", f"install {PACKAGE} again")
    folder = Path(spec.origin).parent / "channels" / channel_config.OWN_CHANNEL
    if _is_ours(folder):
        return ok("channel", f"installed at {folder}")
    if folder.exists() and not _may_replace(folder):
        return error("channel", f"{folder} is a channel of somebody else", "remove it, or rename one of the two")
    if not repair:
        return error("channel", f"nothing of ours is at {folder}", "postroom nanobot doctor --repair")
    try:
        _copy(folder)
    except OSError as broken:
        return error(
            "channel", f"{folder} cannot be written: {broken.strerror}", "run this as a user who may write there"
        )
    return error("channel", f"nothing of ours was at {folder}; now it is", repaired=True)


def _is_ours(folder: Path) -> bool:
    """Return whether the folder holds our files, with the same content as here."""
    return all(
        (folder / file.name).is_file() and (folder / file.name).read_bytes() == file.read_bytes()
        for file in SHIM.glob("*.py")
    )


def _may_replace(folder: Path) -> bool:
    """Return whether a folder holds no channel, or an older version of ours."""
    runtime = folder / "runtime.py"
    return not any(folder.glob("*.py")) or (runtime.is_file() and b"postroom." in runtime.read_bytes())


def _copy(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in SHIM.glob("*.py"):
        shutil.copyfile(file, folder / file.name)


def _of_tools() -> Finding:
    found = [
        entry for entry in importlib.metadata.entry_points(group="nanobot.tools") if "postroom" in entry.value
    ]
    if found:
        return ok("tools", ", ".join(sorted(entry.name for entry in found)))
    return error("tools", "the entry points of the tools are missing", f"install Postroom again: {MAY_INSTALL}")


def _of_discovery() -> Finding:
    """Let nanobot itself find the channel: its answer decides."""
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
        return [
            warning("config", f"{path} has no section {channel_config.SECTION}", "see docs/nanobot-channel.md")
        ]
    try:
        value = channel_config.parse(section)
    except PostroomError as wrong:
        return [error("config", f"{path}: {wrong}")]
    if not value.enabled:
        return [warning("config", f"{channel_config.SECTION}.enabled is false in {path}", "set it to true")]
    of_room = _of_room(value)
    is_second = path != Path(DEFAULT_CONFIG).expanduser()
    running = [gateways.check_gateway(value, path, is_second=is_second)] if of_room.level is Level.OK else []
    return [of_room, *_strangers(value), *running, MODEL]


def _of_room(value: channel_config.Config) -> Finding:
    """Check that the room can be opened. It is not created here: the gateway does that."""
    try:
        check_usable(value.address)
    except PostroomError as wrong:
        key = "store" if value.store else "mailboxesRoot"
        what = f"{channel_config.SECTION}.{key}: no room can be opened at {value.address}: {wrong.message}"
        return error("config", what, wrong.hint or "name another place")
    later = ", which is created when it starts" if is_there(value.address) is False else ""
    return ok("config", f"{value.agent_id} takes mail at {value.address}{later}")


def _strangers(value: channel_config.Config) -> list[Finding]:
    if value.allow_from != (EVERYONE,):
        return []
    return [
        note("config", "every agent that can write to these mailboxes may mail this one", "allowFrom names them")
    ]
