"""Mail to and from other systems is hidden from the design, and read back without loss."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from postroom.core import outbox
from postroom.core.arrivals import accept
from postroom.model import message as model_message
from postroom.model.delivery import State
from postroom.model.message import Message, Recipient
from postroom.model.names import check_id, parse_address
from postroom.model.peer import Envelope, Peer
from postroom.model.query import Query
from postroom.store.files.layouts.base import Layout
from tests.core.peering import know_peer
from tests.files.folders import home, rob, room
from tests.files.test_strangers import drop
from tests.letters import NOW

FAR = Peer(system="far")


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("*.json"))


def test_mail_for_another_system_lies_where_no_design_looks(tmp_path: Path, layout: Layout) -> None:
    with room(tmp_path, layout, system="here") as here:
        know_peer(here, FAR)
        here.mailbox("ann").send("bob@far", "hello")
        later = outbox.waiting_mailboxes(here.core)

    assert later == ["bob@far"]
    assert files_below(home(tmp_path, layout) / "bob@far") == [".queued"]


def test_it_is_read_back_from_the_files_alone(tmp_path: Path, layout: Layout) -> None:
    with room(tmp_path, layout, system="here") as here:
        know_peer(here, FAR)
        ids = {to: here.mailbox("ann").send(to, "hello").id for to in ("bob@far", "swarm/eve@far/team", "@far")}
        gone = here.mailbox("ann").send("zoe@far", "gone").id
        dead = here.mailbox("ann").send("zoe@far", "dead").id
        tried = here.mailbox("ann").send("moe@far", "tried").id
        found = {f.message.id: f for f in here.core.store.find(Query(states=(State.QUEUED,)))}
        outbox.record_departure(here.core, [found[gone].delivery], "far")
        outbox.record_refusal(here.core, found[dead], "no")
        outbox.record_delay(here.core, found[tried], "busy", here.core.now().wall + timedelta(hours=1))
        before = {f.message.id: f for f in here.core.store.find(Query(order="age"))}
    rob(tmp_path)

    with room(tmp_path, layout, system="here") as here:
        after = {f.message.id: f for f in here.core.store.find(Query(order="age"))}
        assert {f.delivery.mailbox for f in after.values()} == {f.delivery.mailbox for f in before.values()}
        assert outbox.waiting_mailboxes(here.core) == list(ids)
        for id, one in before.items():
            kept = after[id]
            assert (kept.message, kept.delivery.state) == (one.message, one.delivery.state)
            assert (kept.delivery.reason, kept.delivery.due_at) == (one.delivery.reason, one.delivery.due_at) or (
                id == tried
            )
        assert after[gone].delivery.has_left
        assert after[tried].delivery.due_at == before[tried].delivery.due_at


def test_a_letter_from_another_system_is_read_back_as_it_came(tmp_path: Path, layout: Layout) -> None:
    message = Message(
        id="far-1",
        sender="ann@far",
        recipients=(Recipient("bob"), Recipient("dora@far", "cc")),
        created_at=NOW,
        subject="Plans",
        parts=(model_message.text("hello"),),
        trace=("ann",),
    )
    with room(tmp_path, layout, system="here") as here:
        know_peer(here, FAR)
        here.mailbox("bob").register()
        arrival = Envelope(message=message, targets=(parse_address("bob", "to"),), source="far", path=("far",))
        (verdict,) = accept(here.core, FAR, arrival)
        assert verdict.problem is None
        (before,) = here.mailbox("bob").check(peek=True)
    rob(tmp_path)

    with room(tmp_path, layout, system="here") as here:
        (after,) = here.mailbox("bob").check(peek=True)
        assert (after.message, after.sender) == (before.message, "ann@far")
        know_peer(here, FAR)
        here.mailbox("bob").register()
        here.mailbox("carl").register()
        again = Envelope(message=message, targets=(*arrival.targets, parse_address("carl", "to")), source="far")
        assert [verdict.problem for verdict in accept(here.core, FAR, again)] == [None, None]
        assert len(here.mailbox("bob").check(unread_only=False)) == 1
        (copy,) = here.mailbox("carl").check(peek=True)
        assert check_id(copy.id, "id") != "far-1"


def test_a_strangers_file_in_the_folder_of_an_agent_elsewhere_is_mail_for_them(
    tmp_path: Path, layout: Layout
) -> None:
    drop(tmp_path, layout, 1, sender="carl", to="alice@home")
    with room(tmp_path, layout, system="here") as here:
        know_peer(here, Peer(system="home"))
        assert outbox.waiting_mailboxes(here.core) == ["alice@home"]
        drop(tmp_path, layout, 2, sender="carl@moon", to="alice@home")
        found = outbox.next_letters(here.core, ["alice@home"], 10)
        assert [(f.message.sender, f.message.text, f.delivery.state) for f in found] == [
            ("carl", "no. 1", State.QUEUED),
            ("carl@moon", "no. 2", State.QUEUED),
        ]
        outbox.record_departure(here.core, [f.delivery for f in found], "home")
        assert outbox.waiting_mailboxes(here.core) == []
    rob(tmp_path)

    with room(tmp_path, layout, system="here") as here:
        states = [f.delivery for f in here.core.store.find(Query(mailbox="alice@home"))]
        assert [(d.state, d.reason) for d in states] == [(State.DONE, "moved to home")] * 2
