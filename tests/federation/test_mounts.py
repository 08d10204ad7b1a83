"""Foreign mail folders, mounted as systems: mail goes both ways, live and once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom import errors
from postroom.chipset import Chipset
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.errors import Conflict, Missing, NameTaken
from postroom.federation.mounts import forget
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.nanobot import MailboxManager
from postroom.store.files.layouts.base import OWN, Layout, layout_named
from postroom.store.files.layouts.paths import NAMES
from postroom.store.protocol import all_names
from tests.conftest import LONG
from tests.daemons import Daemon, until
from tests.federation.mounted import Mounted, mount
from tests.federation.systems import System, systems
from tests.files.folders import inbox
from tests.files.test_strangers import drop

COSTLY = NAMES if LONG else NAMES[:1]  # most of it is tried in one layout: the engine is the same
every_layout = pytest.mark.parametrize("layout", NAMES, indirect=True)
LIVE = 2.0  # seconds: far more than it takes, and far less than the next look without a notification


@pytest.fixture(params=COSTLY)
def layout(request: pytest.FixtureRequest) -> Layout:
    return layout_named(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[System]:
    with systems(System(tmp_path, "home", "ann", "amy")) as (one,):
        yield one


@pytest.fixture
def mounted(home: System, tmp_path: Path, layout: Layout) -> Mounted:
    there = Mounted(home, tmp_path / "mail", layout)
    home.serve()
    home.is_linked("folder")
    return there


@every_layout
def test_our_letter_lies_in_the_folder_and_the_answer_comes_back(mounted: Mounted, layout: Layout) -> None:
    home = mounted.home
    sent = home.room.mailbox("ann").send("researcher@folder", "hello", subject="One")
    until(lambda: home.left(sent.id, "researcher@folder"))
    with mounted.room() as room:
        (letter,) = room.mailbox("researcher").check()
        assert ("ann@home", "hello", "One", sent.id) == (letter.sender, letter.text, letter.subject, letter.id)
        path = next(path for path in mounted.root.rglob(f"*{layout.ending}") if b"hello" in path.read_bytes())
        fields, plain = json.loads(path.read_text()), layout.write(letter.message, "researcher")
        assert "home" == layout.own(fields)["extra"]["federation"]["source"]
        assert fields.keys() - {OWN} == plain.keys()
        answer = letter.reply("hello yourself")
    (back,) = until(lambda: home.room.mailbox("ann").check())
    assert ("researcher@folder", "hello yourself", answer.id) == (back.sender, back.text, back.id)
    assert (sent.id, sent.id) == (back.message.in_reply_to, back.message.thread)


def test_a_mount_stays_up_whatever_lies_in_its_folder(mounted: Mounted, layout: Layout, tmp_path: Path) -> None:
    home, drafts = mounted.home, tmp_path / "drafts"
    for number, written in enumerate([10_413_792_000, 1_000_000_000, 1_000_000_000], 1):
        draft = drop(drafts, layout, number, sender="eve", to="ann@home")
        fields = json.loads(draft.read_text())
        layout.set_own(fields, {"key": "the same"})
        draft.write_text(json.dumps(fields))
        os.utime(draft, (written, written))
        path = mounted.root / draft.relative_to(drafts)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.rename(path)  # whole at once: the mount is looking
    assert ["no. 2"] == until(lambda: home.texts("ann"))  # of one time or one key, one is taken
    sent = home.room.mailbox("ann").send("researcher@folder", "hello")
    until(lambda: home.left(sent.id, "researcher@folder"))
    assert ["hello"] == mounted.texts()


@every_layout
def test_a_folder_that_is_empty_when_it_is_mounted_is_listened_to(
    home: System, tmp_path: Path, layout: Layout
) -> None:
    (tmp_path / "mail").mkdir()
    mount(home, f"files:{tmp_path / 'mail'}?layout={layout.name}")
    home.serve()
    home.is_linked("folder")
    drop(tmp_path / "mail", layout, sender="researcher", to="ann@home")
    until(lambda: home.texts("ann"), LIVE)


@every_layout
def test_a_strangers_file_reaches_us_at_once_and_is_put_away(mounted: Mounted) -> None:
    for number in (1, 2):
        path = drop(mounted.root, mounted.layout, number, sender="researcher", to="ann@home")
        until(lambda: len(mounted.home.texts("ann")) == number, LIVE)  # noqa: B023 - called at once
        until(lambda: not path.exists())  # noqa: B023
    first, second = mounted.home.room.mailbox("ann").check()
    assert [("researcher@folder", "no. 1"), ("researcher@folder", "no. 2")] == [
        (one.sender, one.text) for one in (first, second)
    ]


def test_ours_have_a_folder_there_and_who_has_one_there_is_an_agent(mounted: Mounted) -> None:
    until(inbox(mounted.root, mounted.layout, "ann@home").is_dir)
    inbox(mounted.root, mounted.layout, "silent").mkdir(parents=True)
    mounted.home.room.mailbox("ann").send("silent@folder", "hello")
    until(lambda: mounted.texts("silent") == ["hello"])


def test_who_is_not_there_bounces_both_ways(mounted: Mounted) -> None:
    home = mounted.home
    home.room.mailbox("ann").send("nobody@folder", "x")
    (bounce,) = until(lambda: home.room.mailbox("ann").check())
    assert ("bounce", True) == (bounce.kind, "nobody" in bounce.text)
    with mounted.room() as room:
        assert "nobody" not in all_names(room.core.store)
        for to in ("nobody@home", "nobody@nowhere"):
            room.mailbox("researcher").send(to, "x")
        box = room.mailbox("researcher")
        bounces = until(lambda: found if len(found := box.check(peek=True)) == 2 else None)
        assert {"bounce"} == {one.kind for one in bounces}


def test_nobody_there_can_write_in_a_name_of_ours_or_of_another_system(mounted: Mounted) -> None:
    for number, sender in enumerate(("amy@home", "eve@further"), 1):
        drop(mounted.root, mounted.layout, number, sender=sender, to="ann@home")
    with mounted.room() as room:
        at = Query(mailbox="ann@home", states=(State.DEAD,))
        until(lambda: len(room.core.store.find(at)) == 2)
        for name in ("amy@home", "eve@further"):  # who never wrote it is not told of it
            assert [] == room.core.store.find(Query(mailbox=name))
    assert [] == mounted.home.texts("ann") == mounted.home.texts("amy")


def test_a_folder_that_is_gone_is_waited_for_and_never_made_again(mounted: Mounted) -> None:
    home, away = mounted.home, mounted.root.with_name("away")
    mounted.root.rename(away)
    home.room.mailbox("ann").send("researcher@folder", "waits")
    until(lambda: home.states()["folder"] == "disconnected")
    assert not mounted.root.exists()
    time.sleep(2.5)  # some looks for it
    assert home.daemon is not None
    results = [line for line in home.daemon.log().splitlines() if "there is no link" in line]
    assert 1 <= len(results) <= 2  # that it is gone, and that it is not there
    assert not mounted.root.exists()
    away.rename(mounted.root)
    until(lambda: mounted.texts() == ["waits"])
    home.is_linked("folder")


def test_it_is_unmounted_while_it_is_served(mounted: Mounted) -> None:
    home = mounted.home
    assert mounted.host() is not None
    peer = perform(home.room.core, OWNER, peers.Unmount(system="folder"))
    until(lambda: home.states() == {})
    assert forget(peer, "home")
    assert mounted.host() is None
    with mounted.room() as room:
        assert ["researcher"] == [agent.card.id for agent in room.agents()]
    with pytest.raises(Missing, match="no route to the system"):
        home.room.mailbox("ann").send("researcher@folder", "x")


def test_a_kill_of_either_side_loses_nothing_and_repeats_nothing(mounted: Mounted) -> None:
    home, each, rounds = mounted.home, 15, 6 if LONG else 3
    with mounted.room() as room:
        for n in range(rounds * each):
            home.room.mailbox("ann").send("researcher@folder", str(n))
            room.mailbox("researcher").send("amy@home", str(n))
            if n % each == each - 1:
                home.stop(signal.SIGKILL)
                home.serve()
    wanted = [str(n) for n in range(rounds * each)]
    until(lambda: len(mounted.texts()) >= len(wanted) and len(home.texts("amy")) >= len(wanted), 60)
    assert wanted == mounted.texts() == home.texts("amy")


# -- one design in particular


def test_the_registry_of_nanobot_names_ours_as_long_as_they_are_there(home: System, tmp_path: Path) -> None:
    home.room.mailbox("ann").register(description="writes plans", capabilities=["planning"])
    there = Mounted(home, tmp_path / "mail", layout_named("nanobot"))
    home.serve()
    registry = there.root / "_registry.json"
    until(lambda: "ann@home" in json.loads(registry.read_bytes()))
    entry = json.loads(registry.read_bytes())["ann@home"]
    assert ("ann@home", "writes plans", ["planning"]) == (
        entry["agent_id"], entry["description"], entry["capabilities"]
    )  # fmt: skip
    with MailboxManager(there.root) as manager:
        assert {"researcher", "ann@home", "amy@home"} == {a["agent_id"] for a in manager.list_online_agents()}
        assert "writes plans" == (manager.get_agent("ann@home") or {})["description"]
        manager.send(
            "researcher", "ann@home", {"content": {"parts": [{"type": "text", "text": "by the manager"}]}}
        )
    until(lambda: home.texts("ann") == ["by the manager"])
    home.room.mailbox("amy").leave()
    until(lambda: json.loads(registry.read_bytes())["amy@home"]["status"] == "offline")


def test_two_folders_write_to_each_other_through_us(home: System, tmp_path: Path) -> None:
    bots = Mounted(home, tmp_path / "bots", layout_named("nanobot"), "bots")
    chips = Mounted(home, tmp_path / "chips", layout_named("chipset"), "chips")
    home.serve()
    home.is_linked("bots", "chips")
    with Chipset(chips.root) as chipset:
        letter = {
            "from": "polecat",
            "to": "researcher@bots",
            "type": "coordination",
            "subject": "q",
            "body": "which?",
        }
        chipset.mail.send_mail(letter)
    with bots.room() as room:
        (came,) = until(room.mailbox("researcher").check)
        assert ("polecat@chips", "which?") == (came.sender, came.text)
        came.reply("this one")
    until(lambda: chips.texts("polecat") == ["this one"])


def test_a_room_in_one_file_is_mounted_too(home: System, tmp_path: Path) -> None:
    with postroom.open(tmp_path / "other.db", durability="process") as other:
        other.mailbox("bob").register()
        mount(home, f"sqlite:{tmp_path / 'other.db'}", "other")
        home.serve()
        home.room.mailbox("ann").send("bob@other", "hello")
        (letter,) = until(other.mailbox("bob").check)
        letter.reply("yes")
        until(lambda: home.texts("ann") == ["yes"])


def test_what_cannot_be_mounted_is_refused(home: System, tmp_path: Path) -> None:
    there = Mounted(home, tmp_path / "mail", layout_named("nanobot"))
    home.trusts("peer")
    for error, place, name in (
        (Missing, f"files:{tmp_path}/nowhere?layout=nanobot", "other"),
        (NameTaken, there.address, "other"),
        (Conflict, there.address, "peer"),
        (Conflict, "memory:", "other"),
    ):
        with pytest.raises((error, errors.BadStore)):
            mount(home, place, name)
    assert not (tmp_path / "nowhere").exists()
    assert ["folder"] == [p.system for p in peers.all_peers(home.room.core).values() if p.is_mount]


def test_two_rooms_mount_one_folder_which_is_served_itself(home: System, tmp_path: Path) -> None:
    there = Mounted(home, tmp_path / "mail", layout_named("nanobot"))
    with systems(System(tmp_path, "away", "zoe")) as (away,):
        mount(away, there.address, "bots")
        own = Daemon(tmp_path, "--room", there.address, "--http", "off")
        with own:
            home.serve(), away.serve()
            home.is_linked("folder")
            away.is_linked("bots")
            with there.room() as room:
                for to in ("ann@home", "zoe@away"):
                    room.mailbox("researcher").send(to, f"for {to}")
            until(lambda: home.texts("ann") == ["for ann@home"] and away.texts("zoe") == ["for zoe@away"])
            home.room.mailbox("ann").send("researcher@folder", "from home")
            away.room.mailbox("zoe").send("researcher@bots", "from away")
            until(lambda: sorted(there.texts()) == ["from away", "from home"])


def test_ping_tells_of_a_folder_that_is_there_and_of_one_that_is_not(home: System, tmp_path: Path) -> None:
    there = Mounted(home, tmp_path / "mail", layout_named("swarm"))
    home.serve()
    home.is_linked("folder")
    assert home.daemon is not None
    assert home.daemon.ask(action="ping_peer", system="folder")["answers"] is True
    there.root.rename(tmp_path / "elsewhere")
    result = home.daemon.ask(action="ping_peer", system="folder")  # at once, however long the link takes to notice
    assert (False, True) == (result["answers"], "folder" in result["hint"])
    until(lambda: home.states()["folder"] == "disconnected")
    result = home.daemon.ask(action="ping_peer", system="folder")
    assert (False, True) == (result["answers"], str(there.root) in result["problem"])
