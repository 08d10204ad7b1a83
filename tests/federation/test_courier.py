"""What a post room does with mail for a peer that answers as a test says: in time, with a refusal, or never."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.federation.courier import PeerAnswer, Reservation, Step, next_step
from postroom.model.delivery import State
from tests.daemons import until
from tests.federation.answering import answer, far, refuse, routed
from tests.federation.systems import System, systems

QUICK = {"outbox_retry_base": "0.05", "outbox_retry_cap": "0.1"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[System]:
    with systems(System(tmp_path, "here", "ann", "amy", **QUICK)) as (found,):
        found.token = found.trusts("far")  # type: ignore[attr-defined]
        yield found.serve()


def text_of(request: dict[str, Any]) -> str:
    text: str = request["params"]["envelope"]["payload"]["payload"]["text"]
    return text


def test_what_was_not_answered_is_sent_again_under_its_id(here: System) -> None:
    sent = here.room.mailbox("ann").send("bob@far", "x")
    for _ in range(2):
        with far(here) as person:
            assert sent.id == routed(person)["params"]["envelope"]["payload"]["id"]
    with far(here) as person:
        answer(person, routed(person))
        until(lambda: here.left(sent.id, "bob@far"))


def test_a_system_killed_after_the_answer_knows_it_or_sends_again(here: System) -> None:
    sent = [here.room.mailbox("ann").send("bob@far", str(n)) for n in range(20)]
    with far(here) as person:
        for _ in sent:
            answer(person, routed(person))
        here.stop(signal.SIGKILL)
    here.serve()
    with far(here) as person:
        while not all(here.left(one.id, "bob@far") for one in sent):
            try:
                answer(person, routed(person, 0.2))
            except TimeoutError:
                continue


def test_many_are_on_their_way_at_once_each_behind_the_one_before(here: System) -> None:
    for n in range(5):
        here.room.mailbox("ann").send("bob@far", str(n))
        here.room.mailbox("amy").send("bob@far", str(n))
    with far(here) as person:
        request = [routed(person) for _ in range(10)]
        of_ann = [one["params"] for one in request if one["params"]["envelope"]["payload"]["from"] == "ann"]
        ids = [one["envelope"]["payload"]["id"] for one in of_ann]
        assert [str(n) for n in range(5)] == [one["envelope"]["payload"]["payload"]["text"] for one in of_ann]
        assert [None, *({"bob": id} for id in ids[:-1])] == [one.get("after") for one in of_ann]


def test_with_who_does_not_know_that_word_they_go_one_by_one(here: System) -> None:
    for n in range(3):
        here.room.mailbox("ann").send("bob@far", str(n))
    with far(here, postroom=None) as person:
        for n in range(3):
            request = routed(person)
            assert (str(n), False) == (text_of(request), "after" in request["params"])
            with pytest.raises(TimeoutError):
                routed(person, 0.3)
            answer(person, request)


def test_a_refusal_for_now_is_tried_again_and_nothing_overtakes_it(here: System) -> None:
    sent = [here.room.mailbox("ann").send("bob@far", str(n)) for n in range(3)]
    with far(here) as person:
        request = [routed(person) for _ in range(3)]
        refuse(person, request[0], 4002, "full")
        behind = {"code": 5000, "message": "an earlier one waits", "data": {"details": {"field": "after"}}}
        for one in request[1:]:
            answer(person, one, error=behind)
        for n in range(3):
            again = routed(person)
            assert str(n) == text_of(again)
            answer(person, again)
        until(lambda: all(here.left(one.id, "bob@far") for one in sent))
    first, second = (here.delivery(one.id, "bob@far") for one in sent[:2])
    assert (1, 0) == (first.attempts, second.attempts)
    assert "full" in first.history[0].reason


def test_where_one_waits_the_next_of_the_pair_is_not_sent(here: System) -> None:
    for n in range(2):
        here.room.mailbox("ann").send("bob@far", str(n))
    with far(here, postroom=None) as person:
        refuse(person, routed(person), 4002, "full")
        received = []
        for _ in range(2):
            request = routed(person)
            received.append(text_of(request))
            answer(person, request)
        assert ["0", "1"] == received


def test_nothing_overtakes_a_letter_to_two_that_waits_because_of_one_of_them(here: System) -> None:
    for to, text in (("cleo@far", "0"), (["bob@far", "cleo@far"], "1"), ("bob@far", "2")):
        here.room.mailbox("ann").send(to, text)
    with far(here, postroom=None) as person:
        refuse(person, routed(person), 5000, "not now")
        came: dict[str, list[str]] = {"bob": [], "cleo": []}
        while sum(map(len, came.values())) < 4:
            request = routed(person)
            to = request["params"]["envelope"]["payload"]["to"]
            for name in to.get("agents") or [to["agent"]]:
                came[name].append(text_of(request))
            answer(person, request)
    assert came == {"bob": ["1", "2"], "cleo": ["0", "1"]}


def test_a_refusal_for_good_is_sent_to_the_sender(here: System) -> None:
    here.room.mailbox("ann").send("bob@far", "no")
    with far(here) as person:
        refuse(person, routed(person), 5003, "nobody here is called 'bob'")
        (bounce,) = until(lambda: here.room.mailbox("ann").check())
        assert bounce.message.is_automatic and "nobody here is called 'bob'" in bounce.text


@pytest.mark.parametrize("code", [[1], {"a": 1}, "5003", None])
def test_a_refusal_whose_number_is_none_is_one_for_good(here: System, code: Any) -> None:
    sent = here.room.mailbox("ann").send("bob@far", "no")
    with far(here) as person:
        refuse(person, routed(person), code, "nobody")
        until(lambda: State.DEAD == here.delivery(sent.id, "bob@far").state)


def test_an_answer_that_keeps_nothing_is_none(here: System) -> None:
    sent = here.room.mailbox("ann").send("bob@far", "x")
    with far(here) as person:
        answer(person, routed(person), result={"accepted": "maybe"})
        answer(person, routed(person))
        until(lambda: here.left(sent.id, "bob@far"))
    assert 1 == here.delivery(sent.id, "bob@far").attempts


def test_a_letter_that_cuts_the_line_each_time_does_not_keep_the_others(here: System) -> None:
    bad = here.room.mailbox("ann").send("bob@far", "poison")
    good = here.room.mailbox("amy").send("bob@far", "good")

    def tried() -> bool:
        with far(here) as person:
            try:
                while text_of(request := routed(person, 1)) != "poison":
                    answer(person, request)
                    until(lambda: here.left(good.id, "bob@far"))
            except TimeoutError:
                pass
        return here.left(good.id, "bob@far")

    until(tried)
    assert here.delivery(bad.id, "bob@far").attempts >= 1


def test_a_letter_is_not_sent_back_where_it_came_from_while_its_own_way_is_down(here: System) -> None:
    here.trusts("far", relays_to=True, relays_for=("rome",))
    here.trusts("rome", url="ws://127.0.0.1:1/map", token="t" * 20)
    way = {"sourceSystem": "far", "targetSystem": "rome", "hopCount": 0, "path": ["far"]}
    message = {"id": "on", "from": "eve", "to": {"agent": "zoe"}, "payload": "through here", "timestamp": 1}
    with far(here) as person:
        person.ask("map/federation/route", systemId="rome", envelope={"payload": message, "federation": way})
        until(lambda: 2 < here.delivery("on", "zoe@rome").attempts)
        assert State.QUEUED == here.delivery("on", "zoe@rome").state


def test_one_that_is_larger_than_what_is_read_there_is_not_sent_in_vain(here: System) -> None:
    with far(here, postroom={"version": "1", "largest": 10_000}) as person:
        for text in ("x" * 10_000, "small"):
            here.room.mailbox("ann").send("bob@far", text)
        assert "small" == text_of(routed(person))
        (bounce,) = until(lambda: here.room.mailbox("ann").check())
        assert "bytes as it is sent" in bounce.text


# -- the rules by themselves


@pytest.mark.parametrize("reservation", Reservation)
@pytest.mark.parametrize("answer", PeerAnswer)
def test_only_a_receipt_ends_the_duty_to_keep_a_letter(answer: PeerAnswer, reservation: Reservation) -> None:
    step = next_step(answer, reservation, is_last_try=False)
    assert (answer is PeerAnswer.KEPT) == (step is Step.SETTLE)


@pytest.mark.parametrize("answer", [PeerAnswer.LATER, PeerAnswer.UNKNOWN])
def test_a_letter_that_the_peer_may_have_goes_to_no_other(answer: PeerAnswer) -> None:
    assert Step.KEEP is next_step(answer, Reservation.HELD, is_last_try=False)


def test_a_letter_that_the_peer_refuses_for_good_goes_to_the_next_system() -> None:
    steps = {next_step(PeerAnswer.REFUSED, one, is_last_try=False) for one in (Reservation.NEW, Reservation.HELD)}
    assert {Step.OTHER} == steps
    assert Step.SEARCH is next_step(PeerAnswer.REFUSED, Reservation.NONE, is_last_try=False)


@pytest.mark.parametrize("reservation", Reservation)
def test_after_the_last_try_a_letter_bounces_unless_it_was_kept_or_not_looked_at(reservation: Reservation) -> None:
    last = {answer: next_step(answer, reservation, is_last_try=True) for answer in PeerAnswer}
    assert (Step.SETTLE, Step.STAY) == (last.pop(PeerAnswer.KEPT), last.pop(PeerAnswer.BEHIND))
    assert {Step.BOUNCE} >= {*last.values()} - {Step.SEARCH}
