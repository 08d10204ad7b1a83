"""Mail for other systems and from them in folders of files, ours and that of other programs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from postroom import Room
from postroom.core import outbox, peers
from postroom.core.arrivals import accept
from postroom.model import message
from postroom.model.delivery import State
from postroom.model.names import Address, check_id
from postroom.model.peer import Envelope, Peer
from postroom.model.query import Query
from postroom.model.report import Level
from postroom.store.files.layouts.base import Layout
from postroom.store.notification import ROOM
from tests.files.folders import home, inbox, letters_in, rob, room
from tests.files.test_strangers import drop
from tests.letters import letter

SOON = 30.0  # seconds; a bound, not a pace
HOME = Peer(system="home", auth="none", exposure="all")


def waiting(of: Room) -> list[str]:
    """The texts of what could go, in the order in which it goes."""
    core = of.core
    return [f.message.text for f in outbox.next_letters(core, outbox.waiting_mailboxes(core), 100)]


def depart(of: Room) -> None:
    core = of.core
    found = outbox.next_letters(core, outbox.waiting_mailboxes(core), 100)
    outbox.record_departure(core, [one.delivery for one in found], "home")


def come(to: Room, text: str, id: str = "from-home") -> None:
    value = letter(id, sender="ann@home", parts=(message.text(text),), trace=("ann@home",))
    arrival = Envelope(message=value, targets=(Address(agent="bob"),), source="home")
    (verdict,) = accept(to.core, HOME, arrival)
    assert verdict.problem is None


def test_a_strangers_letter_in_a_folder_of_an_agent_elsewhere_waits_until_it_is_there(
    layout: Layout, tmp_path: Path
) -> None:
    with room(tmp_path, layout) as here:
        drop(tmp_path, layout, 1, to="ann@home")
        assert ["no. 1"] == waiting(here)
        assert ["ann@home"] == outbox.waiting_mailboxes(here.core)
        depart(here)
        assert [] == waiting(here)
        (found,) = here.core.store.find(Query(mailbox="ann@home"))
        assert (State.DONE, "moved to home") == (found.delivery.state, found.delivery.reason)
    assert [] == [
        path for path in letters_in(tmp_path) if (tmp_path / path).parent == inbox(tmp_path, layout, "ann@home")
    ]


def test_what_waits_and_what_left_are_known_again_from_the_files_alone(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout, system="folder") as here:
        peers.change(here.core, HOME.system, lambda _: HOME)
        here.mailbox("bob").register()
        here.mailbox("bob").send("ann@home", "gone")
        depart(here)
        here.mailbox("bob").send("ann@home", "ours")
        drop(tmp_path, layout, 2, to="ann@home")
        come(here, "hello")
        before = sorted(waiting(here))
    rob(tmp_path)
    with room(tmp_path, layout, system="folder") as here:
        assert ["no. 2", "ours"] == before == sorted(waiting(here))
        came = here.mailbox("bob").check()
        assert [("ann@home", "hello")] == [(one.sender, one.text) for one in came]
        here.mailbox("bob").register()
        come(here, "hello")  # it is known by what its file says
        assert 1 == len(here.core.store.find(Query(mailbox="bob")))
        assert [] == [one for one in here.doctor().findings if one.level is Level.ERROR]


def test_a_refused_letter_waits_for_its_next_try_and_goes_then(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as here:
        drop(tmp_path, layout, 1, to="ann@home")
        core = here.core
        (found,) = outbox.next_letters(core, ["ann@home"], 10)
        outbox.record_delay(core, found, "not now", core.now().wall)
        assert ["no. 1"] == waiting(here)
        (found,) = outbox.next_letters(core, ["ann@home"], 10)
        assert 1 == found.delivery.attempts
        outbox.record_refusal(core, found, "never")
        assert [State.DEAD] == [f.delivery.state for f in core.store.find(Query(mailbox="ann@home"))]
        assert ["bounce"] == [one.kind for one in here.mailbox("eve").check()]


@pytest.mark.parametrize("known", [True, False])
def test_who_follows_the_room_hears_of_strangers_mail_for_elsewhere(
    layout: Layout, tmp_path: Path, *, known: bool
) -> None:
    with room(tmp_path, layout) as here:
        if known:
            inbox(tmp_path, layout, "ann@home").mkdir(parents=True)
        waiting(here)
        ear = here.core.store.watch((ROOM,))
        try:
            threading.Timer(0.05, drop, (tmp_path, layout, 1), {"to": "ann@home"}).start()
            received = 0
            while not waiting(here):
                assert ear.wait(SOON)
                received += 1
            assert received < 10
            while ear.wait(0.05):  # what was taken in rings
                pass
            drop(tmp_path, layout, 2)  # to somebody here: nothing that goes elsewhere
            assert not ear.wait(0.05)
        finally:
            ear.close()


def test_names_of_other_systems_make_sound_ids_and_names_of_files(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as here:
        id = here.core.new_id("ann@home")
        assert id == check_id(id, "id")
        here.mailbox("bob").register()
        come(here, "hello")
        come(here, "again", id=id)
        assert ["hello", "again"] == [one.text for one in here.mailbox("bob").check()]
        assert ["bob"] == [path.name for path in home(tmp_path, layout).iterdir() if path.name[0] not in "._"]
