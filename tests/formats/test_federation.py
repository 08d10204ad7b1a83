"""Envelopes of the federation: a letter comes back whole, and whatever a peer says, what comes of it is sound."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from postroom.errors import (
    HopsSpent,
    Invalid,
    LoopDetected,
    Missing,
    NotAllowed,
    PostroomError,
    QuotaFull,
    StoreBusy,
    TooFast,
    UnknownAgent,
)
from postroom.formats import federation
from postroom.formats.federation import (
    IN_MAP,
    POSTROOM,
    decode_envelope,
    encode_envelope,
    envelope_for,
    federation_error,
    read_refusal,
    read_route,
    refusals,
    routed,
)
from postroom.model.codec import encode
from postroom.model.message import FEDERATION_NOTE, Message, Part, Priority, Recipient
from postroom.model.names import Address, parse_address
from postroom.model.peer import MOST_HOPS, Envelope
from tests.formats.drawn import FULL, NOW, letters, names, values


def sent(letter: Message, *to: str, here: str = "near", most_hops: int = MOST_HOPS) -> dict[str, Any]:
    targets = [parse_address(one, "to") for one in to or ("bob@far",)]
    envelope = envelope_for(letter, targets, here=here, most_hops=most_hops)
    result: dict[str, Any] = json.loads(encode(encode_envelope(envelope, NOW)))
    return result


addresses = st.builds(Address, agent=names, system=st.just("far"), scope=st.sampled_from(["", "team"]))
envelopes = st.builds(
    Envelope,
    message=letters.map(lambda letter: replace(letter, sender=f"{letter.sender}@near")),
    source=st.just("near"),
    targets=st.lists(addresses, min_size=1, max_size=3, unique_by=lambda one: one.agent).map(tuple)
    | st.just((Address(system="far"),)),
    hops=st.integers(0, 9),
    most_hops=st.integers(1, 20),
    path=st.lists(st.sampled_from(["near", "hub", "else"]), min_size=1, unique=True).map(tuple),
)


def there_and_back(envelope: Envelope, *, is_ours: bool) -> Envelope:
    return decode_envelope(json.loads(encode(encode_envelope(envelope, NOW, is_ours=is_ours))), "here", NOW)


@given(envelopes, st.booleans())
def test_an_envelope_survives_its_codec(envelope: Envelope, is_ours: bool) -> None:
    assert envelope == there_and_back(envelope, is_ours=is_ours)


@pytest.mark.parametrize("name", sorted({*Message.__struct_fields__} - IN_MAP - {"recipients", "created_at"}))
def test_the_loss_of_any_field_would_be_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    letter = replace(FULL, sender="ann@near")
    envelope = Envelope(
        message=letter, source="near", targets=(Address(agent="bob", system="far"),), path=("near",)
    )
    assert envelope == there_and_back(envelope, is_ours=True)
    monkeypatch.setattr(federation, "IN_MAP", IN_MAP | {name})
    assert envelope != there_and_back(envelope, is_ours=True)


@given(letters)
def test_a_letter_comes_back_whole(letter: Message) -> None:
    there = read_route({"envelope": sent(letter)}, "far", "near", NOW)
    assert (letter.id, f"{letter.sender}@near") == (there.message.id, there.message.sender)
    assert (Address(agent="bob", system="far"),) == there.targets
    back = envelope_for(there.message, [Address(agent="x", system="near")], here="far", most_hops=9)
    home = read_route({"envelope": json.loads(encode(encode_envelope(back, NOW)))}, "near", "far", NOW)
    assert letter == replace(home.message, sender=letter.sender)


@given(values | st.fixed_dictionaries({"payload": values, "federation": values}))
def test_whatever_a_peer_says_is_read_or_invalid(message: Any) -> None:
    for word in ("envelope", "message", "payload"):
        with pytest.raises(Invalid):
            read_route({word: message}, "far", "near", NOW)


@given(
    st.dictionaries(st.sampled_from(["id", "from", "to", "timestamp", "payload", "meta"]), values), values, values
)
def test_a_message_of_any_client_is_read_or_invalid(message: dict[str, Any], meta: Any, ours: Any) -> None:
    sound = {
        "id": "m1",
        "from": "eve",
        "to": {"agent": "bob"},
        "meta": {"_meta": {POSTROOM: ours}, "priority": meta},
    }
    for text in (message, sound | message, sound):
        with suppress(Invalid):
            found = read_route({"message": text}, "far", "near", NOW)
            assert found.message.sender.endswith("@near")
            assert found.targets


def test_names_are_those_of_the_system_where_their_agents_are() -> None:
    letter = Message(
        id="1",
        sender="ann",
        recipients=(Recipient("bob@far"), Recipient("carl")),
        created_at=NOW,
        trace=("dora", "ann"),
    )
    there = read_route({"envelope": sent(letter)}, "far", "near", NOW).message
    assert ["bob", "carl@near"] == [one.address for one in there.recipients]
    assert ("dora@near", "ann@near") == there.trace


def test_hidden_recipients_are_shown_to_themselves_alone() -> None:
    hidden = (Recipient("bob@far", "bcc"), Recipient("eve@far", "bcc"), Recipient("ann@far"))
    letter = Message(id="1", sender="ann", recipients=hidden, created_at=NOW)
    there = read_route({"envelope": sent(letter, "bob@far")}, "far", "near", NOW).message
    assert ["bob", "ann"] == [one.address for one in there.recipients]
    assert "eve" not in json.dumps(sent(letter, "ann@far"))


@pytest.mark.parametrize("text", ["bob", "bob@*", "BOB@far"])
def test_a_hidden_recipient_stays_hidden_in_every_form(text: str) -> None:
    recipients = (Recipient("ann@far"), Recipient(text, "bcc"), Recipient("eve", "bcc"))
    letter = Message(id="1", sender="zoe", recipients=recipients, created_at=NOW)
    there = read_route({"envelope": sent(letter, "ann@far", "bob@far")}, "far", "near", NOW).message
    assert (Recipient("ann"), Recipient("bob", "bcc")) == there.recipients


def test_an_agent_here_is_not_taken_for_one_of_the_same_name_there() -> None:
    letter = Message(id="1", sender="zoe", recipients=(Recipient("bob"), Recipient("bob@far")), created_at=NOW)
    there = read_route({"envelope": sent(letter, "bob@far")}, "far", "near", NOW).message
    assert (Recipient("bob@near"), Recipient("bob")) == there.recipients


def test_a_letter_that_is_passed_on_keeps_its_id_and_says_its_way() -> None:
    way = {"source": "near", "id": "first", "path": ["near"], "hops": 0}
    letter = Message(id="copy", sender="ann@near", recipients=(), created_at=NOW, extra={FEDERATION_NOTE: way})
    result = sent(letter, "bob@far", here="hub")
    federation = result["federation"]
    assert ("near", "far", 1, ["near", "hub"]) == tuple(
        federation[word] for word in ("sourceSystem", "targetSystem", "hopCount", "path")
    )
    there = read_route({"envelope": result}, "far", "hub", NOW)
    assert ("first", "ann@near", ("near", "hub"), 1) == (
        there.message.id,
        there.message.sender,
        there.path,
        there.hops,
    )
    assert FEDERATION_NOTE not in there.message.extra


def test_nobody_says_that_its_sender_was_proven_nor_which_way_it_came() -> None:
    letter = Message(id="1", sender="ann", recipients=(), created_at=NOW, proven=True)
    result = sent(letter)
    result["payload"]["meta"]["_meta"][POSTROOM] |= {
        "proven": True,
        "extra": {FEDERATION_NOTE: {"source": "x"}, "own": 1},
    }
    there = read_route({"envelope": result}, "far", "near", NOW).message
    assert (False, {"own": 1}) == (there.proven, there.extra)


def test_a_file_of_theirs_stays_a_reference() -> None:
    """No `LocalFile`, which sending would read: that is made by the sender's own code alone."""
    named = Part("file", path="/etc/passwd")
    letter = Message(id="1", sender="ann", recipients=(), created_at=NOW, parts=(named,))
    (part,) = read_route({"envelope": sent(letter)}, "far", "near", NOW).message.parts
    assert (Part, named) == (type(part), part)


def test_several_everybody_and_scopes_are_addressed() -> None:
    letter = Message(id="1", sender="ann", recipients=(), created_at=NOW)
    for to, shown in (
        (["bob@far", "eve@far"], {"agents": ["bob", "eve"]}),
        (["@far"], {"system": True}),
        (["bob@far/team"], {"agent": "bob"}),
        (["@far/team"], {"system": True}),
    ):
        result = sent(letter, *to)
        assert shown == result["payload"]["to"]
        assert to == [str(one) for one in read_route({"envelope": result}, "far", "near", NOW).targets]


def test_what_agentic_mesh_and_the_sdk_say_is_a_letter() -> None:
    mesh = {
        "id": "m1", "from": "eve", "to": {"agent": "bob"}, "timestamp": 1_900_000_000_000,
        "payload": {"type": "text", "text": "hi"},
        "meta": {"priority": "high", "correlationId": "t1", "ttlMs": 60_000,
                 "_meta": {"inboxMessageId": "m1", "subject": "Hello", "inReplyTo": "m0"}},
    }  # fmt: skip
    found = read_route({"system_id": "far", "message": mesh}, "far", "near", NOW)
    letter = found.message
    assert ("Hello", "t1", "m0", Priority.HIGH) == (
        letter.subject,
        letter.thread_tag,
        letter.in_reply_to,
        letter.priority,
    )
    assert ("near", "far", ("near",), 0) == (found.source, found.target, found.path, found.hops)
    assert NOW + timedelta(seconds=60) == letter.expires_at
    assert "eve@near" == letter.sender and "hi" == letter.text


@pytest.mark.parametrize("ahead", [timedelta(hours=-3), timedelta(), timedelta(seconds=20), timedelta(hours=3)])
def test_a_letter_has_as_long_as_it_had_whatever_the_clocks_say(ahead: timedelta) -> None:
    letter = Message(id="1", sender="ann", recipients=(), created_at=NOW, expires_at=NOW + timedelta(minutes=10))
    there = read_route({"envelope": sent(letter)}, "far", "near", NOW + ahead).message
    assert there.expires_at is not None
    assert abs(NOW + ahead + timedelta(minutes=10) - there.expires_at) <= timedelta(minutes=1)


PROBLEMS = [
    (StoreBusy(), 5000, True),
    (QuotaFull(), 4002, True),
    (TooFast(), 4001, True),
    (Missing(field="system"), 5001, False),
    (NotAllowed(field="token"), 5002, True),  # of the connection: the letter waits
    (NotAllowed(), 5003, False),
    (UnknownAgent(), 5003, False),
    (Invalid(), 5003, False),
    (LoopDetected(), 5010, False),
    (HopsSpent(), 5011, False),
]


@pytest.mark.parametrize(("problem", "code", "waits"), PROBLEMS, ids=lambda value: type(value).__name__)
def test_a_refusal_is_read_as_it_was_meant(problem: PostroomError, code: int, waits: bool) -> None:
    found = read_refusal(federation_error(problem))
    assert (code, waits, str(problem)) == (found.code, found.waits, found.message)


def test_some_may_be_refused_and_others_not() -> None:
    result = routed("1", [("bob", None), ("eve", QuotaFull("full")), ("carl", UnknownAgent("nobody"))])
    found = refusals(result)
    assert (True, "1", ["eve", "carl"]) == (result["routed"], result["messageId"], list(found))
    assert (True, False) == (found["eve"].waits, found["carl"].waits)
    with pytest.raises(UnknownAgent):
        routed("1", [("carl", UnknownAgent("nobody"))])
