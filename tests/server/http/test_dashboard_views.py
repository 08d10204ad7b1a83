"""What the views of the dashboard ask for, over a WebSocket of a visit."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from tests.daemons import until
from tests.server.http.running import Client, Daemon, daemon
from tests.server.http.visiting import Tab, enter, lending, tab, token_of

pytestmark = pytest.mark.daemon


def ticks(page: Tab, wanted: int) -> list[dict[str, Any]]:
    """The digests until so many letters were counted in them."""
    found: list[dict[str, Any]] = []
    while sum(one["sent"] for one in found) < wanted:
        frame = page.next()
        assert "flow/tick" == frame["method"]
        found.append(frame["params"])
    return found


def test_all_who_watch_get_one_digest_and_nothing_without_news(running: Daemon) -> None:
    with postroom.open(running.room) as room, tab(running, token_of(running)) as page:
        known = list(page.call("flow/watch")["names"])
        with tab(running, token_of(running)) as other:
            others = list(other.call("flow/watch")["names"])
            for number in range(30):
                room.mailbox(f"sender-{number % 3}").send("recipient", f"{number}")
            room.mailbox("ann").send("human", "Look.")
            mine, theirs = ticks(page, 31), ticks(other, 31)
        assert [one["number"] for one in mine] == [one["number"] for one in theirs] and len(mine) < 31
        for digests, names in ((mine, known), (theirs, others)):
            counted: dict[tuple[str, str], int] = {}
            for one in digests:
                assert one["from"] == len(names)
                names.extend(one["names"])
                for sender, recipient, many in one["pairs"]:
                    pair = names[sender], names[recipient]
                    counted[pair] = counted.get(pair, 0) + many
            assert {("ann", "human"): 1, **{(f"sender-{n}", "recipient"): 10 for n in range(3)}} == counted
        assert mine[-1]["waits"] > 0
        with pytest.raises(TimeoutError):
            page.socket.recv(0.5)  # nothing happens, nothing is sent
        room.mailbox("recipient").claim().ack()  # type: ignore[union-attr]
        assert 1 == until(lambda: page.next()["params"]["settled"])
        page.call("flow/unwatch")
        room.mailbox("ann").send("bob", "Unseen.")
        assert page.ask("visit") and not page.heard


def test_one_look_serves_all_who_ask(running: Daemon) -> None:
    with postroom.open(running.room) as room, tab(running, token_of(running)) as page:
        first = page.call("mail/queues")
        room.mailbox("new").send("newer", "x")
        assert first == page.call("mail/queues")
        assert first["at"] != page.call("mail/queues", limit=7)["at"]
        page.call("numbers")


def test_dead_letters_are_revived_by_their_group_in_slices(tmp_path_factory: pytest.TempPathFactory) -> None:
    with daemon(tmp_path_factory.mktemp("dead")) as served, postroom.open(served.room) as room:
        for number in range(7):
            room.mailbox("ann").send("bob", f"{number}")
            held = room.mailbox("bob").claim()
            assert held is not None
            held.fail("no" if number % 2 else "other", retry=False)
        with lending(served, "--operator") as (_, code), tab(served, enter(served, code).json["token"]) as page:
            assert page.call("visit")["visit"]["operator"]
            groups = page.call("mail/dead_groups")
            (group,) = [one for one in groups["groups"] if one["reason"] == "no"]
            assert (7, 3, "bob") == (groups["total"], group["count"], group["mailbox"])
            ask = {"agent_id": "bob", "reason": "no", "until": groups["until"], "limit": 2}
            assert {"revived": 2, "left": 1} == page.call("visit/act", verb="revive_all", params=ask)
            assert {"revived": 1, "left": 0} == page.call("visit/act", verb="revive_all", params=ask)
            assert [4] == [one["count"] for one in page.call("mail/dead_groups")["groups"]]
            letters = page.call("mail/dead", limit=3)["letters"]
            after = letters[-1]["delivery"]["number"]
            assert 1 == len(page.call("mail/dead", after=after)["letters"])
        assert ["1", "3", "5"] == sorted(letter.text for letter in room.mailbox("bob").check())


def test_only_who_may_look_at_the_room_watches_its_flow(running: Daemon) -> None:
    """The last test: from here on a caller without a token is nobody."""
    agent = Client(running.port, running.token("watcher"))
    assert (
        "NotAllowed" == agent.post({"jsonrpc": "2.0", "id": 1, "method": "numbers"}).json["error"]["data"]["name"]
    )
    agent.close()
