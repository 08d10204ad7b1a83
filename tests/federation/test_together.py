"""Several letters in one call between two post rooms: each has its own receipt, and what is wrong with one is no
affair of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.model.delivery import State
from tests.daemons import until
from tests.federation.answering import answer, far, refuse, routed
from tests.federation.systems import System, systems
from tests.map.people import Person, refused

QUICK = {"outbox_retry_base": "0.05", "outbox_retry_cap": "0.1"}
NOW = 1_900_000_000_000
TOGETHER = {"version": "1", "together": 3}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[System]:
    with systems(System(tmp_path, "here", "ann", "amy", **QUICK)) as (found,):
        found.token = found.trusts("far")  # type: ignore[attr-defined]
        yield found.serve()


def texts_of(request: dict[str, Any]) -> list[str]:
    message = request["params"]
    envelopes = message["envelopes"] if "envelopes" in message else [message["envelope"]]
    return [one["payload"]["payload"]["text"] for one in envelopes]


# -- who sends


def test_as_many_as_the_peer_takes_go_in_one_call_each_behind_the_one_before(here: System) -> None:
    ids = [here.room.mailbox("ann").send("bob@far", str(n)).id for n in range(4)]
    with far(here, postroom=TOGETHER) as person:
        first, second = routed(person), routed(person)

        assert (texts_of(first), texts_of(second)) == (["0", "1", "2"], ["3"])
        assert first["params"]["afters"] == [{}, {"bob": ids[0]}, {"bob": ids[1]}]
        assert second["params"]["after"] == {"bob": ids[2]}
        assert not here.left(ids[0], "bob@far")
        answer(person, first, result={"letters": [{"routed": True}] * 3})
        until(lambda: all(here.left(id, "bob@far") for id in ids[:3]))
        assert not here.left(ids[3], "bob@far")


def test_of_several_one_is_refused_and_the_others_have_left(here: System) -> None:
    sent = [here.room.mailbox(name).send("bob@far", name) for name in ("ann", "amy", "ann")]
    no = {"error": {"code": 5003, "message": "not for bob"}}
    with far(here, postroom=TOGETHER) as person:
        answer(person, routed(person), result={"letters": [{"routed": True}, no, {"routed": True}]})
        until(lambda: here.delivery(sent[1].id, "bob@far").state is State.DEAD)
        until(lambda: [here.left(one.id, "bob@far") for one in sent] == [True, False, True])


def test_a_letter_without_a_result_is_sent_again(here: System) -> None:
    sent = [here.room.mailbox(name).send("bob@far", name) for name in ("ann", "amy")]
    with far(here, postroom=TOGETHER) as person:
        answer(person, routed(person), result={"letters": [{"routed": True}]})
        again = routed(person)
        assert texts_of(again) == ["amy"]
        assert [here.left(one.id, "bob@far") for one in sent] == [True, False]


def test_an_error_that_is_null_is_none(here: System) -> None:
    sent = [here.room.mailbox(name).send("bob@far", name) for name in ("ann", "amy")]
    with far(here, postroom=TOGETHER) as person:
        answer(person, routed(person), result={"letters": [{"routed": True, "error": None}] * 2})
        until(lambda: all(here.left(one.id, "bob@far") for one in sent))


def test_where_a_call_as_such_is_refused_they_go_one_by_one(here: System) -> None:
    sent = [here.room.mailbox("ann").send("bob@far", str(n)) for n in range(3)]
    with far(here, postroom=TOGETHER) as person:
        refuse(person, routed(person), -32602, "one of them is nested too deep")
        for n in range(3):
            request = routed(person)
            assert texts_of(request) == [str(n)]
            if n == 1:
                refuse(person, request, 5003, "it is this one")
            else:
                answer(person, request)
        until(lambda: here.left(sent[2].id, "bob@far"))
        assert [here.left(one.id, "bob@far") for one in sent] == [True, False, True]


def test_what_is_together_too_large_for_the_peer_goes_apart(here: System) -> None:
    for n in range(3):
        here.room.mailbox("ann").send("bob@far", str(n) * 5000)
    with far(here, postroom=TOGETHER | {"largest": 15_000}) as person:
        assert [len(texts_of(routed(person))) for _ in range(2)] == [2, 1]


# -- who gets them


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    agents = ("ann", "amy", "bea", "cleo", "dora", "eli", "full")  # each takes two letters of one sender
    with systems(System(tmp_path_factory.mktemp("room"), "here", *agents, inbox_quota="4")) as (found,):
        found.token = found.trusts("far")  # type: ignore[attr-defined]
        yield found.serve()


@pytest.fixture
def peer(receiving: System) -> Iterator[Person]:
    with far(receiving) as person:
        yield person


def envelope(id: str, to: str, **more: Any) -> dict[str, Any]:
    way = {"sourceSystem": "far", "targetSystem": "here", "hopCount": 0, "path": ["far"], "originTimestamp": NOW}
    message = {"id": id, "from": "eve", "to": {"agent": to}, "timestamp": NOW, "payload": id}
    return {"payload": message | more, "federation": way}


def bring(person: Person, *envelopes: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = person.ask("map/federation/route", envelopes=list(envelopes), **more)["letters"]
    return rows


def test_each_has_a_receipt_and_sent_again_they_are_there_once(receiving: System, peer: Person) -> None:
    message = [envelope(f"a{n}", "ann") for n in range(2)] + [envelope("a2", "amy")]
    for _ in range(2):
        result = bring(peer, *message)
        assert [(row["routed"], row["messageId"]) for row in result] == [(True, f"a{n}") for n in range(3)]
    assert (receiving.texts("ann"), receiving.texts("amy")) == (["a0", "a1"], ["a2"])


def test_what_is_wrong_with_one_is_no_affair_of_the_others(receiving: System, peer: Person) -> None:
    bad = envelope("b1", "bea")
    del bad["payload"]["from"]
    result = bring(peer, envelope("b0", "bea"), bad, envelope("b2", "nobody"), envelope("b3", "bea"))

    assert [row.get("routed") for row in result] == [True, None, None, True]
    assert [row["error"]["code"] for row in result[1:3]] == [5003, 5003]
    assert receiving.texts("bea") == ["b0", "b3"]


def test_parts_are_read_whole_when_each_is_looked_at_by_itself(receiving: System, peer: Person) -> None:
    ours = {"parts": [{"type": "text", "text": "p0"}, {"type": "data", "data": 1}]}
    result = bring(peer, envelope("p0", "eli", meta={"_meta": {"postroom": ours}}), envelope("p1", "nobody"))
    assert [row.get("routed") for row in result] == [True, None]
    assert [part.type for part in receiving.room.core.store.get(["p0"])["p0"].message.parts] == ["text", "data"]


def test_a_name_of_another_system_gets_none_of_them_in(receiving: System, peer: Person) -> None:
    forged = envelope("f1", "cleo")
    forged["federation"]["sourceSystem"] = "rome"
    result = bring(peer, envelope("f0", "cleo"), forged)
    assert [row.get("routed") for row in result] == [True, None]
    assert receiving.texts("cleo") == ["f0"]


def test_behind_one_that_waits_none_of_the_same_call_is_taken(receiving: System, peer: Person) -> None:
    message = [envelope(f"q{n}", "full") for n in range(4)]
    result = bring(peer, *message, afters=[{}, {"full": "q0"}, {"full": "q1"}, {"full": "q2"}])

    assert [row.get("routed") for row in result] == [True, True, None, None]
    assert [row["error"]["data"]["retryable"] for row in result[2:]] == [True, True]
    assert result[3]["error"]["data"]["details"]["field"] == "after"
    assert receiving.texts("full") == ["q0", "q1"]


def test_an_answer_in_the_same_call_joins_the_thread_of_what_it_answers(receiving: System, peer: Person) -> None:
    reply = envelope("t1", "dora", meta={"mail": {"inReplyTo": "t0"}})
    bring(peer, envelope("t0", "dora"), reply)
    found = receiving.room.core.store.get(["t0", "t1"])
    assert {letter.message.thread for letter in found.values()} == {"t0"}


@pytest.mark.parametrize("many", [0, 33])
def test_none_and_too_many_are_refused(peer: Person, many: int) -> None:
    message = [envelope(f"n{n}", "ann") for n in range(many)]
    assert refused(peer, "map/federation/route", envelopes=message) == 5003
