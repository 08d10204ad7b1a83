"""Files in letters (L2): enclosed as bytes on the sender's side, from below one folder and nowhere else."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

import postroom
from postroom import Invalid, NotAllowed, PostroomError, Room, TooLarge
from tests.rooms import RoomFactory


@pytest.fixture
def files(factory: RoomFactory, room: Room) -> Path:
    folder = factory.folder / "files"
    (folder / "inner").mkdir()
    (folder / "inner" / "a.txt").write_bytes(b"hello \xff")
    (factory.folder / "secret.txt").write_text("secret")
    return folder


def refuse(room: Room, path: str | Path, error: type[PostroomError]) -> str:
    with pytest.raises(error) as refused:
        room.mailbox("ann").send("bob", ["see", postroom.file(str(path))])
    assert refused.value.field == "body[1].path"
    assert room.mailboxes() == []
    return str(refused.value)


def test_a_file_below_the_root_travels_as_bytes(room: Room, files: Path) -> None:
    room.mailbox("ann").send("bob", postroom.file("inner/a.txt", mime="text/plain"))
    room.mailbox("ann").send("bob", postroom.file(str(files / "inner" / "a.txt")))
    (files / "inner" / "a.txt").unlink()
    for letter in room.mailbox("bob").check():
        (part,) = letter.parts
        assert base64.b64decode(part["bytes"]) == b"hello \xff"
        assert part["size"] == 7
        assert part["path"].endswith("inner/a.txt")


def test_a_file_that_is_passed_on_is_not_read_again(room: Room, files: Path) -> None:
    room.mailbox("ann").send("bob", postroom.file("inner/a.txt"))
    (files / "inner" / "a.txt").unlink()
    room.mailbox("bob").check()[0].forward("carol")
    assert room.mailbox("carol").check()[0].parts[0]["size"] == 7


def test_odd_fields_of_a_file_part_are_kept(room: Room) -> None:
    params = {"type": "file", "path": "inner/a.txt", "bytes": "aGk=", "self": 1, "fields": 2}
    room.mailbox("ann").send("bob", params)
    (part,) = room.mailbox("bob").check()[0].parts
    assert params == part.to_json()


def test_json_that_names_a_file_without_its_bytes_is_refused(room: Room, files: Path) -> None:
    """A dict may come from anybody; what `postroom.file` makes comes from the program itself."""
    with pytest.raises(Invalid, match="base64") as refused:
        room.mailbox("ann").send("bob", ["see", {"type": "file", "path": "inner/a.txt"}])
    assert "body[1].bytes" == refused.value.field
    assert "postroom.file(path)" in (refused.value.hint or "")
    assert room.mailboxes() == []


def test_a_part_without_bytes_that_is_no_file_of_ours_stays_a_reference(room: Room, files: Path) -> None:
    named = postroom.Part("file", path="inner/a.txt")
    room.mailbox("ann").send("bob", named)
    room.mailbox("bob").check()[0].forward("carol")
    for name in ("bob", "carol"):
        (letter,) = room.mailbox(name).check(unread_only=False)
        assert (named,) == letter.parts


@pytest.mark.parametrize("path", ["../secret.txt", "inner/../../secret.txt", "/etc/hostname", "..", ".", ""])
def test_a_path_outside_the_root_is_refused(room: Room, files: Path, path: str) -> None:
    refuse(room, path, NotAllowed)


def test_links_are_not_followed(room: Room, factory: RoomFactory, files: Path) -> None:
    (files / "out").symlink_to(factory.folder / "secret.txt")
    (files / "in").symlink_to(files / "inner" / "a.txt")
    (files / "folder").symlink_to(factory.folder)
    (files / "inner" / "hard").hardlink_to(files / "inner" / "a.txt")
    refuse(room, "out", Invalid)
    refuse(room, "in", Invalid)
    refuse(room, "folder/secret.txt", NotAllowed)
    refuse(room, "inner/hard", NotAllowed)


def test_what_is_no_regular_file_is_refused_at_once(room: Room, files: Path) -> None:
    os.mkfifo(files / "pipe")
    refuse(room, "pipe", NotAllowed)  # and nobody waits for a writer
    refuse(room, "inner", NotAllowed)


def test_a_missing_file_is_named(room: Room, files: Path) -> None:
    assert "No such file" in refuse(room, "inner/none.txt", Invalid)
    refuse(room, "x" * 5000, Invalid)


def test_a_file_over_the_limit_is_refused(factory: RoomFactory, files: Path) -> None:
    room = factory.room(max_message_bytes=1000)
    (files / "big").write_bytes(b"x" * 1001)
    assert "reference" in refuse(room, "big", TooLarge)
