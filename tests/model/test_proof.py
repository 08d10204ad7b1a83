"""A proof fits one letter in one room: whatever is changed or moved, it proves nothing there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from postroom.model import person
from postroom.model.codec import decode_message, encode, to_plain
from postroom.model.message import TURN_NOTE, Message, Part, Priority, Proof, Recipient, TaskNote
from postroom.model.person import PersonKey, is_signed, key_id, read_key, signed_letter, signed_request, with_proof
from postroom.model.record import PERSON, Record
from tests.formats.drawn import FULL, letters
from tests.letters import NOW
from tests.people import key_file

ROOM = "a-room"
# A field -> another value of it. Each is covered by the proof of its own accord.
CHANGED: dict[str, Any] = {
    "id": "other",
    "sender": "Human2",
    "recipients": (Recipient("eve"),),
    "created_at": NOW + timedelta(seconds=1),
    "kind": "request",
    "subject": "another",
    "parts": (Part("text", text="No."),),
    "priority": Priority.LOW,
    "scope": "elsewhere",
    "expires_at": NOW + timedelta(days=9),
    "thread_tag": "another",
    "thread_id": "another",
    "conversation_id": "another",
    "in_reply_to": "another",
    "task": TaskNote(id="t-9", state="completed", deadline=NOW, reason="x"),
    "callback": {"x": 1},
    "context": {"x": 1},
    "attachments": ("other",),
    "tags": ("other",),
    "metadata": {"x": 1},
    "key": "another",
}
FREE = {"hops", "trace", "extra", "proven", "proof"}  # what the room and the way set


def key_of(sender: str, owner: str = "person", **fields: Any) -> Record:
    public = key_file(owner).public()
    key = PersonKey(id=key_id(public), person=sender, key=public, added_at=NOW, added_by="first use", **fields)
    return Record(kind=PERSON, key=key.id, value=to_plain(key))


def signed(letter: Message, room: str = ROOM, owner: str = "person") -> Message:
    """The letter with a proof by this key."""
    key = key_file(owner)
    return replace(letter, proof=Proof(key=key_id(key.public()), signature=key.sign(signed_letter(letter, room))))


def proves(letter: Message, room: str = ROOM, *keys: Record) -> bool:
    return with_proof(letter, room, keys or (key_of(letter.sender),)).proof is not None


@given(letters)
def test_a_signed_letter_is_proven_also_after_its_json(letter: Message) -> None:
    proven = signed(letter)
    assert proves(proven)
    assert proves(decode_message(encode(proven)))


def test_every_field_is_covered_or_named_here() -> None:
    assert {*Message.__struct_fields__} == CHANGED.keys() | FREE


@pytest.mark.parametrize("field", sorted(CHANGED))
def test_a_proof_cannot_be_moved_to_a_letter_with_another_value(field: str) -> None:
    proven = signed(FULL)
    assert proves(proven)
    assert getattr(proven, field) != CHANGED[field]
    moved = replace(proven, **{field: CHANGED[field]})
    assert not proves(moved, ROOM, key_of(moved.sender))


@pytest.mark.parametrize("field", sorted(CHANGED))
def test_a_field_that_the_proof_forgets_would_be_found(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted twin of the test above: bytes that leave one field out."""
    whole = person.signed_letter

    def forgetful(message: Message, room: str) -> bytes:
        return whole(replace(message, **{field: CHANGED[field]}), room)

    monkeypatch.setattr(person, "signed_letter", forgetful)
    key = key_file()
    proof = Proof(key=key_id(key.public()), signature=key.sign(forgetful(FULL, ROOM)))
    moved = replace(FULL, proof=proof, **{field: CHANGED[field]})
    assert proves(moved, ROOM, key_of(moved.sender))


@given(letters, letters)
def test_a_proof_of_one_letter_proves_no_other(one: Message, other: Message) -> None:
    assume(signed_letter(one, ROOM) != signed_letter(replace(other, sender=one.sender), ROOM))
    assert not proves(replace(other, sender=one.sender, proof=signed(one).proof), ROOM, key_of(one.sender))


def test_a_proof_cannot_be_moved_to_another_room_or_person_or_key() -> None:
    proven = signed(FULL)
    assert not proves(proven, "another-room")
    assert not proves(proven, ROOM, key_of("somebody-else"))
    assert not proves(proven, ROOM, key_of(FULL.sender, "stranger"))
    assert not proves(signed(FULL, owner="stranger"))
    assert proven.proof is not None
    forged = replace(proven, proof=replace(proven.proof, key=key_id(key_file("stranger").public())))
    assert not proves(forged, ROOM, key_of(FULL.sender, "stranger"))


def test_a_removed_key_proves_only_what_was_written_before() -> None:
    proven = signed(FULL)
    assert proves(proven, ROOM, key_of(FULL.sender, removed_at=FULL.created_at + timedelta(seconds=1)))
    assert not proves(proven, ROOM, key_of(FULL.sender, removed_at=FULL.created_at))


def test_the_proof_of_a_request_proves_no_letter() -> None:
    proven = signed(FULL)
    assert proven.proof is not None
    assert not proves(replace(proven, proof=replace(proven.proof, over="request")))


def test_what_a_turn_of_a_conversation_answers_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = signed(FULL)
    moved = replace(proven, extra={**proven.extra, TURN_NOTE: {"reply_to": "another"}})
    assert not proves(moved)
    assert proves(replace(proven, extra={**proven.extra, "note": "of a format"}))
    monkeypatch.setattr(person, "TURN_NOTE", "")  # the planted twin
    assert proves(replace(moved, proof=signed(FULL).proof))


def test_who_gets_a_hidden_copy_does_not_matter_to_the_proof() -> None:
    hidden = replace(FULL, recipients=(*FULL.recipients, Recipient("eve", "bcc")))
    assert proves(replace(FULL, proof=signed(hidden).proof))


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3), st.text(max_size=5))
def test_a_request_is_signed_with_its_verb_parameters_room_time_and_nonce(
    params: dict[str, Any], nonce: str
) -> None:
    key = key_file()
    signature = key.sign(signed_request("ack", params, ROOM, NOW, nonce))
    assert is_signed(key.public(), signature, signed_request("ack", dict(params), ROOM, NOW, nonce))
    for other in (
        signed_request("reject", params, ROOM, NOW, nonce),
        signed_request("ack", {**params, "more": 1}, ROOM, NOW, nonce),
        signed_request("ack", params, "another-room", NOW, nonce),
        signed_request("ack", params, ROOM, NOW + timedelta(seconds=1), nonce),
        signed_request("ack", params, ROOM, NOW, f"{nonce}."),
    ):
        assert not is_signed(key.public(), signature, other)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "rsa:x", "ed25519:" + "=" * 43, 7])
def test_what_is_no_key_is_refused(text: Any) -> None:
    with pytest.raises(Exception, match="is not a public key"):
        read_key(text)


def test_a_signature_that_is_no_base64_proves_nothing() -> None:
    for signature in ("", "%", "AAAA", "\u00e9", "A" * 1_000):
        assert not is_signed(key_file().public(), signature, b"x")
