"""The files are the truth: whoever deletes `.postroom/` loses no letter, and nothing of any letter."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from postroom.errors import IdTaken
from postroom.model import delivery as moves
from postroom.model.delivery import State
from postroom.model.message import Message, Recipient
from postroom.model.query import LetterQuery, Query
from postroom.store.base import Move
from postroom.store.files.layouts.base import Layout
from tests.conftest import LONG
from tests.contract.test_store_values import messages
from tests.files.folders import opened, rob
from tests.letters import NOW, ack, after, attempt, bury, claim, held, letter, names, post, read, send


@settings(max_examples=200 if LONG else 15)
@given(message=messages)
def test_a_letter_comes_back_from_its_files_alone(layout: Layout, message: Message) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "mail"
        with opened(root, layout) as store:
            store.commit([post(message)])
        rob(root)
        with opened(root, layout) as store:
            assert store.get([message.id])[message.id].message == message
            found = {each.delivery.mailbox: each.delivery for each in store.find(Query())}
            assert {name: each.kind for name, each in found.items()} == {
                r.address: r.kind for r in message.recipients
            }


def test_states_come_back_as_far_as_the_design_can_say_them(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        for id in ("new", "seen", "held", "done", "dead", "put-away"):
            send(store, id)
        store.commit([post(letter("later"), due_at=after(3600))])
        read(store, held(store, "seen"))
        claim(store, held(store, "held"))
        ack(store, held(store, "done"))
        bury(store, held(store, "dead"))
        away = ack(store, held(store, "put-away"))
        store.commit([Move(away, moves.archive(away, NOW), "archive")])
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        states = {each.message.id: each.delivery.state for each in store.find(Query())}
        busy = State.CLAIMED if layout.name == "swarm" else State.UNREAD
        assert states == {
            "new": State.UNREAD, "seen": State.UNREAD, "held": busy, "done": State.DONE, "dead": State.DEAD,
            "put-away": State.DONE, "later": State.QUEUED,
        }  # fmt: skip
        assert held(store, "dead").reason == attempt().reason
        assert held(store, "later").due_at == after(3600)


def test_the_order_of_acceptance_comes_back_though_the_clock_stood_still_or_went_back(
    layout: Layout, tmp_path: Path
) -> None:
    sent = [f"m{number}" for number in range(20)]
    with opened(tmp_path, layout) as store:
        for number, id in enumerate(sent):
            send(store, id, created_at=after(-(number // 3)))
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert names(store.letters(LetterQuery())) == sent
        store.commit([post(letter("next", created_at=after(-999)))])
        assert names(store.letters(LetterQuery()))[-1] == "next"


def test_keys_come_back(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "first", key="k")
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        (again,) = store.commit([post(letter("second", key="k"))])
        assert (again.message_id, again.repeated) == ("first", True)
        with pytest.raises(IdTaken):
            store.commit([post(letter("third", key="k", subject="another"))])


def test_hidden_recipients_are_hidden_in_the_files_of_others_and_come_back(layout: Layout, tmp_path: Path) -> None:
    to = (Recipient("bob"), Recipient("spy", "bcc"), Recipient("cleo", "cc"), Recipient("mole", "bcc"))
    message = replace(letter("m1"), recipients=to)
    with opened(tmp_path, layout) as store:
        store.commit([post(message)])
    for path in tmp_path.rglob("*.json"):
        text = path.read_text()
        whose = path.relative_to(tmp_path / layout.home).parts[0]
        assert ("spy" in text, "mole" in text) == (whose == "spy", whose == "mole")
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert store.get(["m1"])["m1"].message == message


def test_an_index_that_is_damaged_is_made_anew(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
    index = tmp_path / ".postroom" / "index.db"
    for path in (index, index.with_name("index.db-wal")):
        path.write_bytes(b"no database" * 1000)
    with opened(tmp_path, layout) as store:
        assert list(store.get(["m1"])) == ["m1"]


def test_an_index_that_is_deleted_under_a_running_program_is_made_anew(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        rob(tmp_path)
        send(store, "m2")
        assert names(store.letters(LetterQuery())) == ["m1", "m2"]
