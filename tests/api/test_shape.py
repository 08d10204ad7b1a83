"""The API reads as promised: open, mailbox, send, wait, reply, claim, work."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import postroom
from postroom import Invalid, Mailbox, Room
from postroom.model.values import LINE, Brief
from tests.rooms import texts


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an empty home."""
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # a room of the project around the tests is none of theirs
    return tmp_path


def test_the_example_of_the_first_page(at_home: Path) -> None:
    room = postroom.open()
    coder = room.mailbox("coder")
    coder.send("researcher", "Which sort is stable?", subject="Sorting", priority="high")
    letter = room.mailbox("researcher").wait(timeout=30)
    assert letter
    letter.reply("merge sort")
    work = coder.claim(lease=60)
    assert work
    with work:
        assert (work.text, work.subject, work.thread) == ("merge sort", "Re: Sorting", letter.id)
        work.ack_and_reply("done")
    coder.send_many([postroom.draft("coder", str(n)) for n in range(3)])
    seen = []
    for work in coder.work(batch=10, timeout=0):
        with work:
            seen.append(work.text)
    assert seen == ["0", "1", "2"]
    assert coder.claim(timeout=0.01) is None
    assert coder.claim(5, timeout=0.01) == []
    assert coder.wait(0.01) is None
    room.close()
    assert (at_home / ".local/share/postroom/room.db").is_file()


def test_a_room_is_a_context_and_several_may_hold_one(tmp_path: Path) -> None:
    with postroom.open(f"sqlite:{tmp_path}/room.db") as one, postroom.open(str(tmp_path / "room.db")) as two:
        one.mailbox("ann").send("bob", "x")
        assert texts(two.mailbox("bob").check()) == ["x"]


def test_memory_rooms_are_each_their_own() -> None:
    with postroom.open("memory:") as one, postroom.open("memory:") as two:
        one.mailbox("ann").send("bob", "x")
        assert two.mailboxes() == []


def test_settings_are_given_by_name() -> None:
    with postroom.open("memory:", max_parts=2, durability="process", unknown="refuse") as room:
        assert (room.settings.max_parts, room.settings.unknown) == (2, "refuse")
    with pytest.raises(Invalid) as refused:
        postroom.open("memory:", max_part=2)
    assert refused.value.field == "max_part"


def test_a_mailbox_is_cheap_and_writes_nothing(room: Room) -> None:
    box = room.mailbox("coder")
    assert isinstance(box, Mailbox)
    box.check()
    box.counts()
    assert box.claim() is None
    assert room.mailboxes() == []


def test_letters_show_themselves_in_short(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", subject="Hi", id="m-1")
    room.mailbox("ann").send("bob", "y", id="m-2")
    bob = room.mailbox("bob")
    assert repr(bob) == "<Mailbox bob>"
    one, two = bob.check()
    assert repr(one) == "<Letter m-1 from ann 'Hi' (unread)>"
    assert repr(two) == "<Letter m-2 from ann (unread)>"
    assert repr(bob.claim()) == "<Work m-1 from ann 'Hi' (claimed)>"
    assert repr(bob.claim(1)) == "[<Work m-2 from ann (claimed)>]"


def test_a_letter_shows_what_it_carries(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", ["a", "b"], data=5, kind="task", priority=4, tags=["t"], cc="carol")
    (letter,) = room.mailbox("bob").check()
    assert (letter.id, letter.sender, letter.text, letter.data) == (sent.id, "ann", "a\n\nb", 5)
    assert (letter.kind, letter.priority, letter.tags) == ("task", postroom.Priority.URGENT, ("t",))
    assert (letter.created_at, letter.thread) == (sent.message.created_at, sent.id)
    assert [(r.address, r.kind) for r in letter.recipients] == [("bob", "to"), ("carol", "cc")]
    assert letter.state is postroom.State.UNREAD


def test_every_public_name_can_be_had_and_nothing_else() -> None:
    assert all(getattr(postroom, name) is not None for name in postroom.__all__)
    assert sorted(postroom.__all__) == dir(postroom)
    with pytest.raises(AttributeError):
        postroom.nothing  # type: ignore[attr-defined] # noqa: B018


def test_what_public_methods_return_is_exported() -> None:
    faces = (Room, Mailbox, postroom.Letter, postroom.Work, postroom.Batch, postroom.Task)
    returned = {
        name
        for face in faces
        for member in vars(face).values()
        if inspect.isfunction(member) and member.__name__[0] != "_"
        for name in re.findall(r"[A-Z]\w+", str(member.__annotations__.get("return", "")))
    }
    assert returned - {*postroom.__all__} <= {"None", "Iterator", "Generator", "Any", "Self"}


def test_values_show_themselves_on_one_line(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "x" * 500, subject="y" * 500, data=[1] * 500)
    room.mailbox("bob").register(description="z" * 500)
    work = room.mailbox("bob").claim()
    assert work and work.delivery.lease
    values = (sent, sent.message, work, work.delivery, room.agent("bob"), room.board(), room.stats())
    assert all(len(repr(one)) <= LINE and "\n" not in repr(one) for one in values)
    assert work.delivery.lease.token not in repr(work.delivery)
    assert "Template(name='n', body='b', kind='message', priority=2)" == repr(room.save_template("n", body="b"))


def test_importing_postroom_loads_nothing_heavy() -> None:
    code = "import postroom, sys; print([m for m in ('apsw', 'msgspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_every_public_value_prints_one_line() -> None:
    values = [getattr(postroom, name) for name in postroom.__all__]
    structs = [one for one in values if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    assert len(structs) > 30
    assert [] == [one.__name__ for one in structs if one.__repr__ is not Brief.__repr__]
    long = postroom.draft(["bob"] * 90, "hello\n" * 90, subject="s" * 90)
    assert len(repr(long)) <= LINE and "\n" not in repr(long)
