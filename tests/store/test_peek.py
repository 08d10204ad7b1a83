"""The quick look is right: it says "surely nothing" only where the store would find nothing and do nothing."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import postroom
from postroom import Room
from postroom.clock import SystemClock
from postroom.model.names import ONE_MAILBOX
from postroom.model.query import Moment
from postroom.store import peek
from postroom.store.peek import is_surely_empty
from postroom.store.sqlite.schema import STEPS
from tests.daemons import until
from tests.renaming import rename


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "room.db")


def room_at(path: str) -> Room:
    return postroom.open(path, durability="process")


def test_it_knows_what_the_schema_knows() -> None:
    assert len(STEPS) == len(list(Path(peek._SCHEMA).glob("*.sql")))


def test_an_empty_mailbox_and_one_nobody_knows_are_surely_empty(path: str) -> None:
    with room_at(path) as room:
        room.mailbox("ann").send("bob", "x")
        assert is_surely_empty(path, "ann")
        assert is_surely_empty(path, "stranger")
        assert not is_surely_empty(path, "bob")
    assert is_surely_empty(path, "ann")  # and nobody has it open


def test_what_was_read_claimed_or_done_is_not_unread(path: str) -> None:
    with room_at(path) as room:
        bob = room.mailbox("bob")
        room.mailbox("ann").send("bob", "x")
        bob.check()
        assert is_surely_empty(path, "bob")
        work = bob.claim(lease=60)
        assert work
        assert is_surely_empty(path, "bob")
        work.ack()
        assert is_surely_empty(path, "bob")


def test_another_spelling_is_for_the_store_to_refuse(path: str) -> None:
    with room_at(path) as room:
        room.mailbox("ann").send("bob", "x")
        assert not is_surely_empty(path, "Ann")
        with pytest.raises(postroom.LookAlike):
            room.mailbox("Ann").check()


def test_a_name_that_was_given_up_is_for_the_store_to_explain(path: str) -> None:
    with room_at(path) as room:
        room.mailbox("bob").register()
        rename(room, "bob", "robert")
        room.mailbox("ann").send("bob", "x")
        assert not is_surely_empty(path, "bob")
        assert not is_surely_empty(path, "robert")
        with pytest.raises(postroom.UnknownAgent, match="'robert'"):
            room.mailbox("bob").check()


@pytest.mark.parametrize("name", sorted({*ONE_MAILBOX, *ONE_MAILBOX.values()}))
def test_whose_mail_the_human_s_is_the_store_knows(path: str, name: str) -> None:
    with room_at(path) as room:
        room.mailbox("ann").send("user", "x")
        assert not is_surely_empty(path, name)
        assert room.mailbox(name).check(peek=True)


def test_what_time_did_is_for_the_store_to_write_down(path: str) -> None:
    with room_at(path) as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        ann.send("bob", "held")
        assert bob.claim(lease=0.001)
        ann.send("carol", "later", at=0.001)
        ann.send("dan", "short", expires=0.001)
        until(lambda: not any(is_surely_empty(path, name) for name in ("bob", "carol", "dan")))
        room.sweep()
        assert not is_surely_empty(path, "bob")  # it is back
        assert is_surely_empty(path, "dan")  # it is dead


def test_mail_for_later_leaves_the_mailbox_empty_for_now(path: str) -> None:
    with room_at(path) as room:
        room.mailbox("ann").send("bob", "later", at=3600)
        room.mailbox("ann").send("bob", "later", at=3600, expires=7200)
        assert is_surely_empty(path, "bob")


def test_another_boot_is_for_the_store_to_notice(path: str) -> None:
    room_at(path).close()
    assert is_surely_empty(path, "bob")
    with apsw.Connection(path) as database:
        database.execute("UPDATE room SET boot = 'before'")
    assert not is_surely_empty(path, "bob")


@pytest.mark.parametrize(
    "oddity", ["missing", "folder", "garbage", "stranger", "newer", "no log", "link", "hard link"]
)
def test_anything_odd_is_for_the_store_to_judge(path: str, tmp_path: Path, oddity: str) -> None:
    room_at(path).close()
    assert is_surely_empty(path, "bob")
    if oddity == "newer":
        with apsw.Connection(path) as database:
            database.pragma("user_version", 99)
    elif oddity == "stranger":
        with apsw.Connection(path) as database:
            database.pragma("application_id", 5)
    elif oddity == "no log":
        Path(f"{path}-wal").unlink()
    elif oddity == "hard link":
        os.link(path, tmp_path / "second.db")
    else:
        kept = Path(path).rename(tmp_path / "kept.db")
        if oddity == "folder":
            Path(path).mkdir()
        elif oddity == "garbage":
            Path(path).write_bytes(b"not a room " * 1000)
            Path(f"{path}-wal").write_bytes(b"")  # which held all of the old one
        elif oddity == "link":
            shutil.copy(kept, tmp_path / "other.db")
            Path(path).symlink_to(tmp_path / "other.db")
    assert not is_surely_empty(path, "bob")


def test_a_symbolic_link_is_followed_as_the_store_follows_it(path: str, tmp_path: Path) -> None:
    room_at(path).close()
    (tmp_path / "link.db").symlink_to(path)
    assert is_surely_empty(str(tmp_path / "link.db"), "bob")


def test_it_changes_nothing(path: str) -> None:
    with room_at(path) as room:
        room.mailbox("ann").send("bob", "x")
        before = room.cursor()
        for name in ("ann", "bob", "Ann"):
            is_surely_empty(path, name)
        assert room.cursor() == before


# -- a life, an hour ago; then the look, now

HOUR = 3600.0
SOON, LATE = 60.0, 2 * HOUR  # counted from an hour ago: over by now, and not yet
STEPS_OF_A_LIFE = st.lists(
    st.tuples(
        st.sampled_from(["send", "at", "expires", "check", "claim", "ack", "fail", "release", "reject", "sweep"]),
        st.sampled_from([SOON, LATE]),
    ),
    max_size=8,
)


class AnHourAgo(SystemClock):
    def now(self) -> Moment:
        moment = super().now()
        return replace(moment, wall=moment.wall - timedelta(seconds=HOUR), steady=moment.steady - HOUR)


@settings(max_examples=40)
@given(steps=STEPS_OF_A_LIFE)
def test_whenever_it_is_sure_the_store_finds_nothing_and_does_nothing(
    steps: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("room") / "room.db")
    with room_at(path) as room:
        past = Room(room.core.store, room.settings, clock=AnHourAgo())
        for step, span in steps:
            take(step, span, past)
        sure = is_surely_empty(path, "bob")
        before = room.cursor()
        found = room.mailbox("bob").check(peek=True)
        assert sure == ((found, room.cursor()) == ([], before))


def take(step: str, span: float, room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    if step in {"send", "at", "expires"}:
        fields: dict[str, Any] = {} if step == "send" else {step: span}
        ann.send("bob", "x", **fields)
    elif step == "check":
        bob.check(1)
    elif step == "sweep":
        room.sweep()
    elif (work := bob.claim(lease=span)) is not None and step != "claim":
        {"ack": work.ack, "release": work.release}.get(step, lambda: work.fail("x", retry=step == "fail"))()
