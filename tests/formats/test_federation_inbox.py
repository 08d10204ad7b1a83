"""agent-inbox's words between systems: what it says is an envelope, and what goes to it is a message for each."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import Invalid
from postroom.formats.federation import decode_send, encode_messages, envelope_for
from postroom.model.message import FEDERATION_NOTE, Message, Recipient, text
from postroom.model.names import Address, parse_address
from tests.formats.drawn import NOW, letters, values

META = {"messageId": "m-1", "senderId": "bob", "sourceSystem": "Inbox", "targetAgent": "ann", "importance": "low"}
words = st.sampled_from([*META, "subject", "threadTag", "inReplyTo", "scope", "_meta"])
LETTER = Message(
    id="l-1", sender="ann", recipients=(Recipient("bob@far"),), created_at=NOW, parts=(text("hi"),), trace=("ann",)
)


def messages(letter: Message, *to: str) -> list[dict[str, Any]]:
    targets = [parse_address(one, "to") for one in to or ("bob@far",)]
    return encode_messages(envelope_for(letter, targets, here="near"))


def test_what_it_says_is_an_envelope() -> None:
    params = {"to": {"agentId": "ann", "scope": "dev"}, "payload": {"type": "text", "text": "hi"}, "meta": META}
    found = decode_send(params, "here", "inbox", NOW)
    letter = found.message
    assert (Address(agent="ann", system="here"),) == found.targets
    assert ("inbox", "inbox", ("inbox",)) == (found.source, letter.sender.partition("@")[2], found.path)
    assert ("m-1", "bob@inbox", "hi", "LOW", "dev") == (
        letter.id, letter.sender, letter.text, letter.priority.name, letter.scope,
    )  # fmt: skip


def test_another_system_that_it_names_is_read_as_that_one() -> None:
    params = {"to": {"agentId": "ann"}, "payload": "x", "meta": {**META, "sourceSystem": "other"}}
    found = decode_send(params, "here", "inbox", NOW)
    assert ("other", "bob@other") == (found.source, found.message.sender)  # for which it may not speak


@given(st.dictionaries(words, values | st.just("ann")), values | st.fixed_dictionaries({"agentId": values}))
def test_whatever_it_says_what_is_read_is_sound(meta: dict[str, Any], to: Any) -> None:
    with suppress(Invalid):
        found = decode_send({"to": to, "payload": None, "meta": {**META, **meta}}, "here", "inbox", NOW)
        assert f"@{found.source}" in found.message.sender


@given(letters)
def test_every_letter_has_a_message(letter: Message) -> None:
    (result,) = messages(letter)
    assert (letter.id, letter.sender, {"agent": "bob"}) == (result["id"], result["from"], result["to"])
    assert {"messageId": letter.id, "senderId": letter.sender, "targetAgent": "bob"}.items() <= result[
        "meta"
    ].items()
    assert letter.thread_tag == result["meta"].get("threadTag", letter.metadata.get("threadTag"))


def test_each_recipient_has_its_own() -> None:
    result = messages(LETTER, "bob@far", "eve@far/dev")
    assert [("bob", None), ("eve", "dev")] == [
        (one["meta"]["targetAgent"], one["meta"].get("scope")) for one in result
    ]


def test_one_from_further_on_is_not_taken_for_one_of_ours() -> None:
    passed = Message(
        id="l-2", sender="zoe@mars", recipients=(), created_at=NOW, parts=(), trace=("zoe@mars",),
        extra={FEDERATION_NOTE: {"source": "mars", "id": "l-2", "path": ["mars"], "hops": 0}},
    )  # fmt: skip
    (result,) = messages(passed)
    assert ("zoe@mars", "mars") == (result["from"], result["meta"]["sourceSystem"])


def test_there_is_no_word_for_everybody() -> None:
    with pytest.raises(Invalid, match="everybody"):
        messages(LETTER, "@far")
