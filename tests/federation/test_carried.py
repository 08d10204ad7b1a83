"""What a sender learns of letters to other systems: that nothing carries them, that they were forwarded."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from postroom.core import outbox
from postroom.core.outbox import SILENT, Served
from postroom.core.peers import all_peers
from postroom.formats.plain import plain
from postroom.model.codec import to_plain
from postroom.model.peer import Carried
from postroom.model.record import EVERYONE, LINK, SERVED, Record
from postroom.store.protocol import Put
from tests.daemons import until
from tests.federation.systems import System, join, systems
from tests.federation.test_ping import typed


def state(system: System, *others: str) -> list[str]:
    return [one.state for one in outbox.carried(system.room.core, others)]


def send(system: System, to: str) -> Carried:
    """What one letter's receipt says of the system it goes to."""
    (one,) = system.room.mailbox("bob").send(to, "x").carried
    return one


def test_a_receipt_follows_a_link_that_comes_and_goes(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(b, a)
        assert ("unserved", None, "nobody serves this room") == _parts(send(b, "ann@a"))
        began = datetime.now(UTC)
        b.serve()
        until(lambda: state(b, "a") == ["down"] and "onnect" in (send(b, "ann@a").reason or ""))
        down = send(b, "ann@a")
        assert down.since is not None and down.since >= began
        assert (down.reason or "").startswith("the link to a is down: ")
        a.serve()
        until(lambda: state(b, "a") == ["up"])
        up = send(b, "ann@a")
        assert ("up", None) == (up.state, up.reason) and up.since is not None and up.since > down.since
        assert ("unknown", None, "c is not a known system") == _parts(outbox.carried(b.room.core, ["c"])[0])
        b.trusts("a", trusted=False)
        assert ("unknown", None, "a is not trusted") == _parts(outbox.carried(b.room.core, ["a"])[0])
        b.trusts("a", trusted=True)
        until(lambda: state(b, "a") == ["up"])
        a.stop(signal.SIGKILL)
        until(lambda: state(b, "a") == ["down"])
        again = send(b, "ann@a")
        assert again.since is not None and again.since > up.since
        b.stop()
        over = send(b, "ann@a")
        assert "unserved" == over.state and over.since is not None and over.since > again.since


def _parts(one: Carried) -> tuple[str, Any, str | None]:
    return one.state, one.since, one.reason


def test_the_printed_text_and_the_json_say_it_too(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(b, a)
        _, sent = typed(b, "send", "ann@a", "--as", "bob", "--body", "x")
        assert [("a", "unserved")] == [(one["system"], one["state"]) for one in sent["carried"]]
        _, here = typed(b, "send", "ben", "--as", "bob", "--body", "x")
        assert [] == here["carried"]
        _, traced = typed(b, "trace", sent["id"])
        assert ["waits: nobody serves this room"] == [stop["reason"] for stop in traced["stops"]]
        assert [None] == [stop["forwarded"] for stop in traced["stops"]]


def test_a_letter_that_moved_is_shown_as_forwarded_with_where_and_since(tmp_path: Path) -> None:
    with systems(System(tmp_path, "a", "ann"), System(tmp_path, "b", "bob")) as (a, b):
        join(b, a)
        sent = b.room.mailbox("bob").send(["ann@a", "ben"], "x")
        a.serve()
        b.serve()
        until(lambda: b.left(sent.id, "ann@a"))
        delivery = b.delivery(sent.id, "ann@a")
        forwarded = {"where": "a", "since": to_plain(delivery.acked_at)}
        (found,) = (one for one in b.room.core.store.find(_query(sent.id)) if one.delivery.mailbox == "ann@a")
        shown = plain(found)["delivery"]
        assert ("done", forwarded) == (shown["state"], shown["forwarded"])
        _, traced = typed(b, "trace", sent.id)
        assert {"ann@a": forwarded, "ben": None} == {one["mailbox"]: one["forwarded"] for one in traced["stops"]}
        _, listed = typed(b, "sent", "--as", "bob")
        assert [{"id": sent.id, "mailbox": "ann@a", **forwarded}] == listed["forwarded"]


def _query(id: str) -> Any:
    from postroom.model.query import Query

    return Query(message_ids=(id,))


def test_what_is_recorded_changes_only_with_the_links(tmp_path: Path) -> None:
    with systems(System(tmp_path, "b", "bob")) as (b,):
        b.trusts("a")
        core, began = b.room.core, datetime.now(UTC)
        outbox.record_links(core, {"a": "refused"}, began)
        (first,) = core.store.records(LINK)
        for problem in ("refused", "refused"):
            outbox.record_links(core, {"a": problem}, began)
        assert [first] == core.store.records(LINK)
        outbox.record_links(core, {"a": "timed out"}, began)
        (second,) = core.store.records(LINK)
        assert (first.value["since"], "timed out") == (second.value["since"], second.value["problem"])
        outbox.record_links(core, {"a": None}, began)
        assert ["up"] == state(b, "a") and [] == b.room.board().links
        outbox.record_links(core, {}, began)
        assert [] == core.store.records(LINK)


def test_a_server_that_was_killed_counts_as_gone_after_a_while(tmp_path: Path) -> None:
    with systems(System(tmp_path, "b", "bob")) as (b,):
        b.trusts("a")
        core, now = b.room.core, datetime.now(UTC)
        outbox.record_links(core, {"a": None}, now)
        (held,) = core.store.records(SERVED)
        silent = Served(since=now - 2 * SILENT, seen=now - SILENT)
        record = Record(kind=SERVED, key=EVERYONE, value=to_plain(silent), revision=held.revision)
        core.store.commit([Put(record=record)])
        assert ["unserved"] == state(b, "a") and "a" in all_peers(core)
