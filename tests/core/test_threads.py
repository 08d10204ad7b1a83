"""Threads, conversations and turns (M11): folds of the letters, the same over every restart."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom import Room, UnknownMessage
from postroom.core.threads import MOST_FOLDED
from tests.rooms import FakeClock, RoomFactory, spoken


@pytest.fixture
def talk(room: Room, clock: FakeClock) -> list[str]:
    """Ann asks bob, bob answers, ann asks again; then a letter of another scope."""
    ids = [room.mailbox("ann").send("bob", "1", subject="Sort", conversation_id="c-1").id]
    clock.advance(1)
    ids.append(room.mailbox("bob").reply(ids[0], "2").id)
    clock.advance(1)
    ids.append(room.mailbox("ann").reply(ids[1], "3", cc="carol").id)
    room.mailbox("ann").send("bob", "apart", scope="research")
    return ids


def test_a_thread_is_its_letters_the_oldest_first(room: Room, talk: list[str]) -> None:
    for name in ("ann", "bob"):
        assert spoken(room.mailbox(name).thread(talk[0])) == ["1", "2", "3"]
    assert spoken(room.mailbox("carol").thread(talk[0])) == ["3"]
    assert spoken(room.thread(talk[0])) == ["1", "2", "3"]
    assert room.mailbox("ann").thread("not-there") == []


def test_a_reply_chain_goes_from_the_root_to_the_letter(room: Room, talk: list[str]) -> None:
    assert spoken(room.mailbox("ann").reply_chain(talk[2])) == ["1", "2", "3"]
    assert spoken(room.mailbox("ann").reply_chain(talk[1])) == ["1", "2"]
    assert spoken(room.mailbox("carol").reply_chain(talk[2])) == ["3"]  # what it may not see ends the chain
    for id in (talk[0], "not-there"):
        with pytest.raises(UnknownMessage):
            room.mailbox("carol").reply_chain(id)


def test_threads_are_listed_by_their_last_letter(room: Room, talk: list[str], clock: FakeClock) -> None:
    other = room.mailbox("bob").send("ann", "other", subject="Other").id
    assert [thread.id for thread in room.mailbox("ann").threads()] == [talk[0]]  # a letter alone is no thread
    clock.advance(1)
    room.mailbox("ann").reply(other, "yes")
    assert [thread.id for thread in room.mailbox("ann").threads()] == [other, talk[0]]
    assert [thread.id for thread in room.mailbox("ann").threads(1)] == [other]
    (thread,) = [thread for thread in room.threads() if thread.id == talk[0]]
    assert (thread.subject, thread.count, thread.participants) == ("Sort", 3, ("ann", "bob", "carol"))
    assert (thread.last_at - thread.started_at).total_seconds() == 2


def test_conversations_come_from_id_then_tag_then_scope(room: Room, talk: list[str]) -> None:
    room.mailbox("ann").send("bob", "t1", thread_tag="plan")
    room.mailbox("bob").send("ann", "t2", thread_tag="plan")
    room.mailbox("bob").send("ann", "t3", thread_tag="plan", scope="research")
    found = {conversation.id: conversation for conversation in room.conversations()}
    assert {c.id: c.turns for c in found.values() if c.id.startswith(("c-1", "conv-general"))} == {
        "c-1": 3, "conv-general:research": 1,
    }  # fmt: skip
    assert sorted(c.turns for c in found.values() if c.subject == "plan") == [1, 2]
    assert found["c-1"].threads == 1
    assert {c.id for c in room.mailbox("carol").conversations()} == {"c-1"}
    research = room.mailbox("ann").conversations(scope="research")
    assert {(c.scope, c.turns) for c in research} == {("research", 1)}
    assert len(research) == 2
    assert len(room.conversations(limit=1)) == 1


def test_a_conversation_is_replayed_turn_by_turn(room: Room, talk: list[str]) -> None:
    turns = room.mailbox("ann").turns("c-1")
    assert [(turn.participant, turn.message_id) for turn in turns] == list(
        zip(("ann", "bob", "ann"), talk, strict=True)
    )
    assert [turn.in_reply_to for turn in turns] == [None, f"turn-{talk[0]}", f"turn-{talk[1]}"]
    assert room.turns("c-1") == turns
    assert room.mailbox("bob").conversation("c-1").participants == ("ann", "bob", "carol")
    assert len(room.mailbox("carol").turns("c-1")) == 1
    for id in ("c-2", "conv-general:default"):
        with pytest.raises(UnknownMessage) as refused:
            room.mailbox("carol").conversation(id)
        assert refused.value.field == "conversation"


def test_all_of_it_is_the_same_after_a_restart(factory: RoomFactory, room: Room, talk: list[str]) -> None:
    room.mailbox("ann").send("bob", "tagged", thread_tag="plan")

    def seen(room: Room) -> object:
        ann = room.mailbox("ann")
        return (
            ann.threads(), ann.conversations(), ann.turns("c-1"), ann.thread(talk[0]), ann.reply_chain(talk[2]),
            ann.tagged("plan"), room.threads(), room.conversations(),
        )  # fmt: skip

    before = seen(room)
    factory.reopen()
    assert seen(factory.room()) == before


def test_letters_with_a_tag_are_found_by_it(room: Room) -> None:
    room.mailbox("ann").send("bob", "1", thread_tag="plan")
    room.mailbox("ann").send("bob", "2", thread_tag="plan", scope="research")
    room.mailbox("ann").send("carol", "3", thread_tag="plan")
    assert spoken(room.mailbox("bob").tagged("plan")) == ["1", "2"]
    assert spoken(room.mailbox("bob").tagged("plan", "research")) == ["2"]
    assert spoken(room.mailbox("bob").tagged("plan", "default")) == ["1"]
    assert room.mailbox("bob").tagged("other") == []


def test_a_long_chain_of_replies_is_walked_once(room: Room) -> None:
    letter = room.mailbox("ann").send("bob", "0")
    for number in range(1, 120):
        letter = room.mailbox(("ann", "bob")[number % 2]).reply(letter.id, str(number))
    assert spoken(room.mailbox("ann").reply_chain(letter.id)) == [str(n) for n in range(120)]


# -- in another process


LETTERS: dict[str, dict[str, str]] = {
    "by-id": {"conversation_id": "c-1", "thread_tag": "plan"},
    "by-tag": {"thread_tag": "plan"},
    "by-tag-and-scope": {"thread_tag": "plan", "scope": "research"},
    "by-scope": {"scope": "research"},
    "by-nothing": {},
}
SCRIPT = """
import json, sys
import postroom
def turns(room, conversation):
    try:
        return [[turn.id, turn.thread_id, turn.in_reply_to] for turn in room.turns(conversation)]
    except postroom.UnknownMessage as unknown:
        return str(unknown)
address, letters = sys.argv[1], json.loads(sys.argv[2])
with postroom.open(address) as room:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for id, fields in letters.items():
        ann.send("bob", "x", id=id, **fields)
        bob.reply(id, "y", id=f"{id}.1")
        ann.reply(f"{id}.1", "z", id=f"{id}.2")
    print(json.dumps({conversation.id: turns(room, conversation.id) for conversation in room.conversations()}))
"""
RULES = {
    "the tag before the id": """
thread.conversation_of = lambda one: rule(replace(one, conversation_id=None) if one.thread_tag else one)
""",
    "the tag without its scope": "thread.tag_conversation = lambda name, scope='default': tag(name)",
    "an id that only this process knows": "thread.tag_conversation = lambda name, scope: tag(salt + name, scope)",
    "a thread of each reply's own": "message.Message.thread = property(lambda letter: letter.id)",
    "an answer to the root": """
thread.turn_of = lambda letter: turn(replace(letter, in_reply_to=letter.thread_id))
""",
}
PLANTING = """
import os
from msgspec.structs import replace
from postroom.model import message, thread
rule, tag, turn, salt = thread.conversation_of, thread.tag_conversation, thread.turn_of, os.urandom(8).hex()
"""


def conversations_in_two_processes(folder: Path, bug: str = "") -> list[Any]:
    """What the process that sent the letters sees of them, and what the next process does."""
    script = f"{PLANTING}\n{bug}\n{SCRIPT}" if bug else SCRIPT
    found = []
    for letters in (LETTERS, {}):
        command = [sys.executable, "-c", script, str(folder / "room.db"), json.dumps(letters)]
        found.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    return found


def by_the_rules() -> dict[str, list[list[str | None]]]:
    def tagged(scope: str) -> str:
        return "conv-" + hashlib.blake2b(f"{scope}\0plan".encode(), digest_size=13).hexdigest()

    names = ("c-1", tagged("default"), tagged("research"), "conv-general:research", "conv-general:default")
    return {
        name: [
            [f"turn-{id}", None, None],
            [f"turn-{id}.1", id, f"turn-{id}"],
            [f"turn-{id}.2", id, f"turn-{id}.1"],
        ]
        for name, id in zip(names, LETTERS, strict=True)
    }


def test_conversations_are_made_by_the_rules_and_are_the_same_in_the_next_process(tmp_path: Path) -> None:
    assert [by_the_rules()] * 2 == conversations_in_two_processes(tmp_path)


@pytest.mark.parametrize("bug", RULES)
def test_a_broken_rule_is_found(tmp_path: Path, bug: str) -> None:
    assert [by_the_rules()] * 2 != conversations_in_two_processes(tmp_path, RULES[bug])


def test_a_list_counts_all_of_a_long_conversation_and_names_its_first_and_newest_speakers(room: Room) -> None:
    first = room.mailbox("zoe").send("bob", "0", conversation_id="long", cc="tom").id
    room.mailbox("bob").reply(first, "1")
    room.mailbox("eve").send("bob", "2", conversation_id="long")
    for number in range(3, MOST_FOLDED + 30):
        room.mailbox("ann").send("bob", str(number), conversation_id="long")
    for reader in (room, room.mailbox("bob")):
        (long,) = reader.conversations()
        assert (MOST_FOLDED + 30, 0, ("zoe", "bob", "tom", "ann")) == (long.turns, long.threads, long.participants)
        assert room.thread(first)[0].created_at == long.started_at
    whole = room.mailbox("bob").conversation("long")
    assert (MOST_FOLDED + 30, 1, {"zoe", "bob", "tom", "ann", "eve"}) == (
        whole.turns, whole.threads, set(whole.participants),
    )  # fmt: skip


def test_a_list_counts_all_of_a_long_thread(room: Room) -> None:
    first = room.mailbox("ann").send("bob", "0", subject="Sort").id
    for _ in range(MOST_FOLDED + 10):
        room.mailbox("bob").reply(first, "more")
    for reader in (room, room.mailbox("ann")):
        (long,) = reader.threads()
        assert (first, "Sort", MOST_FOLDED + 11) == (long.id, long.subject, long.count)
