"""`postroom nanobot doctor`: whether nanobot finds the channel, and why not, in real environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import postroom
from postroom.model.report import Finding, Level
from postroom.nanobot.channel import config
from postroom.nanobot.channel import doctor as channel_doctor

from .agents import run, scripted_agent
from .conftest import NANOBOT, NEWEST, Open, wheels_once

PATIENCE = 120.0


def doctor(python: Path, home: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        [str(python), "-m", "postroom", "nanobot", "doctor", "--json", *options],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.stdout, done.stderr
    return done.returncode, {found["check"]: found for found in json.loads(done.stdout)["findings"]}


def write_config(home: Path, section: dict[str, Any]) -> None:
    folder = home / ".nanobot"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"channels": {"mailbox": section}}), encoding="utf-8")


def levels(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: one["level"] for check, one in found.items()}


@pytest.mark.nanobot
def test_the_doctor_says_that_the_channel_is_found_and_what_is_wrong_with_the_config(
    python: Path, tmp_path: Path
) -> None:
    write_config(tmp_path, {"enabled": True, "agentID": "coder"})
    code, found = doctor(python, tmp_path)
    assert {"ok"} == {found[check]["level"] for check in ("nanobot", "tools", "discovery")}, found
    assert 70 == code and "did you mean agentId?" == found["config"]["hint"]


@pytest.mark.nanobot
def test_the_doctor_says_whether_a_gateway_is_up_and_whose_matter_the_model_is(
    python: Path, gateway: Open, tmp_path: Path
) -> None:
    coder = gateway("coder", lambda _: "done", start=False)
    where = ("--config", str(coder.config))
    found = doctor(python, tmp_path, *where)[1]
    assert ("note", "no gateway of coder was ever started here") == (
        found["gateway"]["level"],
        found["gateway"]["what"],
    )
    hint, _, port = found["gateway"]["hint"].rpartition(" ")  # two gateways cannot share a port
    assert f"nanobot gateway -c {coder.config} -p" == hint and 18790 < int(port) < 18890
    assert "configured in nanobot" in found["model"]["what"] and "nanobot agent -m hello" == found["model"]["hint"]
    coder.start()
    code, found = doctor(python, tmp_path, *where)
    assert (0, "ok") == (code, found["gateway"]["level"])
    assert found["gateway"]["what"].startswith("a gateway of coder is up: idle, last sign of life ")
    assert found["gateway"]["what"].endswith(" s ago (program nanobot)")
    coder.kill()
    code, found = doctor(python, tmp_path, *where)
    assert (0, "note") == (code, found["gateway"]["level"])
    assert found["gateway"]["what"].startswith("no gateway of coder is up: last sign of life ")


@pytest.mark.nanobot
def test_what_is_missing_of_an_editable_install_is_put_back_by_the_command_that_the_doctor_prints(
    tmp_path: Path,
) -> None:
    python = NANOBOT["environment"](NEWEST, tmp_path / "environment")
    NANOBOT["install"](python, "-e", str(NANOBOT["ROOT"]))
    found = doctor(python, tmp_path)[1]
    assert "postroom-nanobot is not installed here" == found["channel"]["what"]
    assert f"pip install {NANOBOT['PLUGIN']}" == found["channel"]["hint"]
    NANOBOT["install"](python, found["channel"]["hint"].removeprefix("pip install "))
    found = doctor(python, tmp_path)[1]
    assert ("ok", "ok", "ok") == tuple(found[check]["level"] for check in ("channel", "tools", "discovery")), found
    assert "mail_agents, mail_ask, mail_cancel" in found["tools"]["what"]
    shutil.rmtree(next((tmp_path / "environment").glob("lib/python*/site-packages/nanobot/channels/mailbox")))
    found = doctor(python, tmp_path)[1]
    assert "nanobot does not find the channel mailbox" == found["discovery"]["what"]
    assert found["channel"]["hint"].startswith("pip uninstall postroom-nanobot, and then pip install ")


@pytest.mark.nanobot
def test_where_nanobot_runs_from_another_folder_a_command_copies_the_channel(tmp_path: Path) -> None:
    python = NANOBOT["environment"](NEWEST, tmp_path / "environment")
    NANOBOT["install"](python, "-e", str(NANOBOT["ROOT"]), str(NANOBOT["PLUGIN"]))
    packages = next((tmp_path / "environment").glob("lib/python*/site-packages"))
    (tmp_path / "source").mkdir()
    (packages / "nanobot").rename(tmp_path / "source" / "nanobot")
    ours = tmp_path / "source" / "nanobot" / "channels" / "mailbox"
    (packages / "nanobot" / "channels").mkdir(parents=True)
    ours.rename(packages / "nanobot" / "channels" / "mailbox")
    (packages / "a_source.pth").write_text(f"{tmp_path / 'source'}\n", encoding="utf-8")
    found = doctor(python, tmp_path)[1]
    assert "error" == found["channel"]["level"] and not ours.exists()
    subprocess.run(["/bin/sh", "-c", found["channel"]["hint"]], check=True)
    found = doctor(python, tmp_path)[1]
    assert ("ok", "ok") == (found["channel"]["level"], found["discovery"]["level"]), found


def requirements_of(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []


def unmet(requirements: Iterable[str], there: dict[str, str], extra: str = "") -> list[str]:
    """Return the requirements that are not installed in the version they ask for."""
    wanted = [Requirement(line) for line in requirements]
    counted = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra})]
    return [str(one) for one in counted if not _is_met(one, there)]


def _is_met(wanted: Requirement, there: dict[str, str]) -> bool:
    version = there.get(canonicalize_name(wanted.name))
    return version is not None and wanted.specifier.contains(version, prereleases=True)


@pytest.mark.nanobot
def test_what_we_need_and_what_nanobot_pins_can_be_had_together(version: str, shared_folder: Path) -> None:
    """One set of versions that suits nanobot, all that it needs, and our two wheels."""
    found = list(distributions(path=[str(NANOBOT["base"](version))]))
    there = {str(canonicalize_name(one.name)): one.version for one in found}
    ours, plugins = map(requirements_of, wheels_once(shared_folder))
    assert version == there["nanobot-ai"] and len(found) > 50
    assert [] == unmet(ours, there) and [] == unmet(plugins, there | {"postroom": postroom.__version__})
    assert {} == {one.name: broken for one in found if (broken := unmet(one.requires or (), there))}
    assert [line for line in unmet(ours, there, "mcp") if line.startswith("mcp")]  # as the page says


def test_without_nanobot_it_says_so() -> None:
    [found] = channel_doctor.diagnose().findings
    assert "nanobot-ai is not installed beside this Postroom" in found.what


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "has no section"),
        ('{"channels": {"mailbox": {"enabled": false}}}', "enabled is false"),
        ('{"channels": {"mailbox": {"nonsense": 1}}}', "is not a setting"),
        ('{"channels": {"mailbox": {"enabled": true, "agentId": "coder"}}}', "coder takes mail at"),
    ],
)
def test_what_is_said_of_a_config(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert message in channel_doctor._of_config(tmp_path / "config.json")[0].what


def of_room(folder: Path, **section: str) -> Finding:
    params = {"channels": {"mailbox": {"enabled": True, "agentId": "coder", **section}}}
    (folder / "config.json").write_text(json.dumps(params), encoding="utf-8")
    return channel_doctor._of_config(folder / "config.json")[0]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"mailboxesRoot": "/proc/x"}, "channels.mailbox.mailboxesRoot: no room can be opened at /proc/x"),
        ({"store": "sqlite:/proc/x/x.db"}, "channels.mailbox.store: no room can be opened at sqlite:/proc/x/x.db"),
        ({"store": "sqlite:{}/config.json/x.db"}, "config.json is not a folder"),
        ({"store": "sqlite:{}"}, "is a folder"),
    ],
)
def test_a_room_that_cannot_be_opened_is_an_error(tmp_path: Path, section: dict[str, str], text: str) -> None:
    found = of_room(tmp_path, **{key: value.format(tmp_path) for key, value in section.items()})
    assert Level.ERROR is found.level and text in found.what and found.hint
    assert ["config.json"] == [file.name for file in tmp_path.iterdir()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("section", [{"mailboxesRoot": "{}/closed/x"}, {"store": "sqlite:{}/closed/x.db"}])
def test_a_room_in_a_folder_that_may_not_be_written_is_an_error(tmp_path: Path, section: dict[str, str]) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    found = of_room(tmp_path, **{key: value.format(tmp_path) for key, value in section.items()})
    assert Level.ERROR is found.level and "may not be written" in found.what


@pytest.mark.parametrize("store", ["sqlite:{}/new/x.db", "files:{}/new?layout=nanobot"])
def test_a_room_that_is_not_there_yet_is_not_made_by_looking(tmp_path: Path, store: str) -> None:
    found = of_room(tmp_path, store=store.format(tmp_path))
    assert Level.OK is found.level and found.what.endswith(", which is created when it starts")
    assert ["config.json"] == [file.name for file in tmp_path.iterdir()]
    postroom.open(store.format(tmp_path)).close()
    assert of_room(tmp_path, store=store.format(tmp_path)).what.endswith(store.format(tmp_path))


def test_whether_a_gateway_is_up_or_left(tmp_path: Path) -> None:
    message = config.parse({"enabled": True, "agentId": "coder", "mailboxesRoot": str(tmp_path / "mailboxes")})
    file = tmp_path / "config.json"

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder"):
            assert channel_doctor.check_gateway(message, file).what.startswith("a gateway of coder is up: idle, ")
        assert channel_doctor.check_gateway(message, file).what.startswith(
            "no gateway of coder is up: it said goodbye "
        )

    run(scene)


def test_another_program_under_the_same_name_is_reported(tmp_path: Path) -> None:
    message = config.parse({"enabled": True, "agentId": "coder", "store": f"sqlite:{tmp_path}/room.db"})
    with postroom.open(message.store) as room:
        room.mailbox("coder").register(program="claude")
    found = channel_doctor.check_gateway(message, tmp_path / "config.json")
    assert Level.WARNING is found.level and "another program, claude, is up under the name coder" in found.what


def test_a_folder_of_others_that_was_never_opened_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mailboxes").mkdir()
    message = config.parse({"enabled": True, "agentId": "coder", "mailboxesRoot": str(tmp_path / "mailboxes")})
    assert "was ever started here" in channel_doctor.check_gateway(message, tmp_path / "config.json").what
    assert [] == list((tmp_path / "mailboxes").iterdir())


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (119, "119 s"), (120, "2 minutes"), (7200, "2 hours")])
def test_how_long_ago_a_sign_was(seconds: int, text: str) -> None:
    assert text == channel_doctor._ago(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"found": "postroom.nanobot.channel.channel", "why": ""}', "nanobot finds the channel mailbox"),
        ('{"found": "theirs", "why": ""}', "the channel mailbox is theirs, not ours"),
        ('noise\n{"found": "", "why": ""}', "nanobot does not find the channel mailbox"),
        ('{"found": "", "why": "ImportError: x"}', "nanobot does not find the channel mailbox: ImportError: x"),
        ("", "nanobot could not be queried: it ended early"),
    ],
)
def test_what_is_said_of_discovery(text: str, message: str) -> None:
    assert message == channel_doctor._of_answer(text).what
