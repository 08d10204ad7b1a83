"""Other programs read and write the same folders, at any time, by their own rules."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import LeaseLost, NameTaken, PostroomError, StoreFailing
from postroom.model.delivery import State
from postroom.model.query import LetterQuery, Query
from postroom.model.report import Finding, Level
from postroom.store.files import durable
from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.layouts.swarm import local
from postroom.store.files.reconcile import DELETED
from postroom.store.files.store import FileStore
from postroom.store.protocol import all_names
from tests.daemons import until
from tests.files.folders import home, inbox, letters_in, opened, rob, room
from tests.letters import NOW, ack, held, ids, letter, post, send

SOON = 30.0  # seconds; a bound, not a pace
OLD = (1_000_000_000, 1_000_000_000)  # a file's time: nobody is still writing it


def drop(
    root: Path, layout: Layout, number: int = 1, *, sender: str = "eve", to: str = "bob", **more: Any
) -> Path:
    """What a program of the design writes, by the design's own recipe."""
    written: dict[str, tuple[dict[str, Any], str]] = {
        "nanobot": (
            {"id": f"msg_{1893499200 + number}_{sender}", "from": sender, "to": to, "type": "message",
             "timestamp": "2030-01-01T12:00:00Z",
             "content": {"parts": [{"type": "text", "text": f"no. {number}"}]}},
            f"{1893499200 + number}_{sender}.msg.json",
        ),
        "chipset": (
            {"from": sender, "to": to, "type": "coordination", "subject": f"no. {number}", "body": f"no. {number}",
             "timestamp": f"2030-01-01T12:00:{number:02}Z", "read": False, "priority": "normal"},
            f"2030-01-01T12-00-{number:02}Z-{sender}.json",
        ),
        "swarm": (
            {"id": f"MSG-{number:012x}", "from_agent": sender, "to_agent": to, "swarm_name": None,
             "type": "request", "subject": f"no. {number}", "body": f"no. {number}", "payload": {}, "priority": 2,
             "created_at": local(NOW), "expires_at": None, "status": "unread", "read_at": None,
             "completed_at": None, "reply_to": None, "thread_id": None, "context": {}, "attachments": [],
             "tags": []},
            f"MSG-{number:012x}.json",
        ),
    }  # fmt: skip
    fields, name = written[layout.name]
    return write(inbox(root, layout, to), name, json.dumps(fields | more).encode())


def write(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{name}.tmp"
    temporary.write_bytes(content)
    return temporary.rename(folder / name)


def move_to(path: Path, root: Path, layout: Layout) -> None:
    """Done, as the design does it."""
    if layout.name == "nanobot":
        processed = home(root, layout) / "bob" / "processed"
        processed.mkdir(exist_ok=True)
        path.rename(processed / path.name)
    else:
        fields = json.loads(path.read_text()) | {"read": True, "status": "completed"}
        write(path.parent, path.name, json.dumps(fields).encode())


def test_their_letters_appear_in_a_room_that_is_open_and_in_one_that_is_opened_later(
    layout: Layout, tmp_path: Path
) -> None:
    with opened(tmp_path, layout) as store:
        for number in range(1, 4):
            drop(tmp_path, layout, number)
            assert [found.message.text for found in store.find(Query(mailbox="bob"))] == [
                f"no. {n}" for n in range(1, number + 1)
            ]
        known = ids(store, Query(mailbox="bob"))
    drop(tmp_path, layout, 4)
    with opened(tmp_path, layout) as store:
        assert ids(store, Query(mailbox="bob"))[:3] == known
        assert len(ids(store, Query(mailbox="bob"))) == 4


def test_ids_are_stable(layout: Layout, tmp_path: Path) -> None:
    drop(tmp_path, layout, 1)
    drop(tmp_path, layout, 1, to="cleo")
    drop(tmp_path, layout, 2, sender="mallory")
    with opened(tmp_path, layout) as store:
        before = {(found.delivery.mailbox, found.message.id) for found in store.find(Query())}
    rob(tmp_path)
    with opened(tmp_path, layout) as store:
        assert {(found.delivery.mailbox, found.message.id) for found in store.find(Query())} == before
    assert len(before) == 3


@pytest.mark.parametrize("name", ["nanobot", "swarm"])  # a chipset's letters have no id but their file's name
def test_two_letters_with_one_id_are_two_letters(name: str, tmp_path: Path) -> None:
    layout = layout_named(name)
    drop(tmp_path, layout, 1)
    path = drop(tmp_path, layout, 2)
    fields = json.loads(path.read_text()) | {
        "id": json.loads(next(iter(inbox(tmp_path, layout).iterdir())).read_text())["id"]
    }
    path.write_text(json.dumps(fields))
    with opened(tmp_path, layout) as store:
        texts = [found.message.text for found in store.find(Query(mailbox="bob"))]
        assert sorted(texts) == ["no. 1", "no. 2"]


def test_a_letter_that_a_stranger_is_done_with_is_done(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        (path,) = letters_in(tmp_path)
        move_to(tmp_path / path, tmp_path, layout)
        assert held(store, "m1").state is State.DONE
        assert ids(store, Query(mailbox="bob", states=(State.UNREAD,))) == []
    with opened(tmp_path, layout) as store:
        assert held(store, "m1").state is State.DONE


@pytest.mark.parametrize("how", ["done", "deleted"])
def test_an_ack_that_comes_after_a_stranger_was_done_is_refused_and_nothing_is_lost(
    layout: Layout, tmp_path: Path, how: str
) -> None:
    with room(tmp_path, layout) as here:
        id = here.mailbox("ann").send("bob", "hello").id
        late, later = here.mailbox("bob").claim(), opened(tmp_path, layout)
        assert late is not None
        (path,) = letters_in(tmp_path)
        if how == "done":
            move_to(tmp_path / path, tmp_path, layout)
        else:
            (tmp_path / path).unlink()
        with later as store, pytest.raises(PostroomError):
            ack(store, late.delivery)
        with pytest.raises(LeaseLost):
            late.ack()
        (found,) = here.mailbox("ann").trace(id).stops
        assert found.state is (State.DONE if how == "done" else State.DEAD)


def test_a_folder_that_cannot_be_written_is_named_and_an_ack_works_again_afterwards(
    layout: Layout, tmp_path: Path
) -> None:
    with room(tmp_path, layout) as here:
        here.mailbox("ann").send("bob", "hello")
        work = here.mailbox("bob").claim()
        done = home(tmp_path, layout) / "bob" / layout.places[1]
        done.write_text("a file stands in its place")
        assert work is not None
        with pytest.raises(StoreFailing, match=f"{done}.* cannot be written: .*Try again once it is") as result:
            work.ack()
        assert result.value.temporary
        done.unlink()
        work.ack()
        assert here.mailbox("bob").claim() is None


def test_a_letter_whose_file_was_deleted_is_dead_and_can_be_revived(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as here:
        sent = here.mailbox("ann").send("bob", "precious")
        (path,) = letters_in(tmp_path)
        (tmp_path / path).unlink()
        (dead,) = here.mailbox("bob").dead()
        assert (dead.id, dead.delivery.reason) == (sent.id, DELETED)
        here.mailbox("bob").revive(sent.id)
        assert len(letters_in(tmp_path)) == 1
        claimed = here.mailbox("bob").claim()
        assert claimed is not None and claimed.text == "precious"


def test_who_waits_is_woken(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as here:
        waiting = threading.Thread(target=lambda: got.append(here.mailbox("bob").wait(SOON)))
        got: list[Any] = []
        waiting.start()
        until(lambda: list((tmp_path / ".postroom").glob("index.db.bells/bob*")), SOON)
        drop(tmp_path, layout, 1)
        waiting.join(SOON)
        assert [letter.text for letter in got] == ["no. 1"]


def test_a_waiting_agent_has_a_folder_and_no_other_is_made(layout: Layout, tmp_path: Path) -> None:
    with room(tmp_path, layout) as other:
        assert other.mailbox("bob").wait(timeout=0.01) is None
        assert [each.name for each in home(tmp_path, layout).iterdir() if each.name != ".postroom"] == ["bob"]


def test_cursors_tell_of_them_too(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        before = store.cursor()
        path = drop(tmp_path, layout, 1)
        move_to(path, tmp_path, layout)
        drop(tmp_path, layout, 2)
        changes, _ = store.changes(before, 10)
        assert [change.what for change in changes].count("posted") == 2


def test_an_unread_file_in_the_archive_of_the_chipset_stays_deliverable(tmp_path: Path) -> None:
    layout = layout_named("chipset")
    path = drop(tmp_path, layout, 1)
    archive = path.parent / "archive"
    archive.mkdir()
    path.rename(archive / path.name)
    with opened(tmp_path, layout) as store:
        (found,) = store.find(Query(mailbox="bob", states=(State.UNREAD,)))
        ack(store, found.delivery)
    assert json.loads(path.read_text())["read"] is True


# -- what is no letter


BAD_NAMES = {"nanobot": "{}_eve.msg.json", "chipset": "{}-eve.json", "swarm": "MSG-{}.json"}
BAD: dict[str, bytes] = {
    "broken": b'{"from": "eve", ',
    "not UTF-8": b'{"from": "\xff\xfe"}',
    "no object": b"[1, 2]",
    "no sender": b'{"to": "bob"}',
    "a sender that is a path": b'{"from": "../../eve", "from_agent": "../../eve"}',
    "the same key twice": b'{"from": "eve", "from": "ann", "from_agent": "eve", "from_agent": "ann"}',
    "not a number": b'{"from": "eve", "from_agent": "eve", "x": NaN}',
    "too deep": b'{"from": "eve", "from_agent": "eve", "x": ' + b"[" * 500 + b"]" * 500 + b"}",
    "empty": b"",
    "signed by the house": b'{"from": "postmaster", "from_agent": "postmaster", "to": "bob", "to_agent": "bob",'
    b' "id": "m-0", "type": "request", "body": "x", "subject": "x", "timestamp": "2026-01-01T00:00:00Z",'
    b' "content": {"parts": []}}',
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_file_that_is_no_letter_is_set_aside_with_a_report_and_blocks_nobody(
    layout: Layout, tmp_path: Path, content: bytes
) -> None:
    bad = write(inbox(tmp_path, layout), BAD_NAMES[layout.name].format(1), content)
    os.utime(bad, OLD)
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        assert ids(store, Query(mailbox="bob")) == ["m1"]
        (report,) = store.quarantined()
        assert (tmp_path / report).read_bytes() == content
        assert not bad.exists()


def test_files_that_are_set_aside_one_after_the_other_cost_nobody_a_lease(layout: Layout, tmp_path: Path) -> None:
    """Not even with nothing else written in between."""
    with room(tmp_path, layout) as core:
        core.mailbox("anna").send("bob", "work")
        work = core.mailbox("bob").claim()
        assert work is not None
        for number in range(1, 4):
            os.utime(write(inbox(tmp_path, layout), BAD_NAMES[layout.name].format(number), b"{"), OLD)
            if layout.name == "nanobot":
                os.utime(write(tmp_path, "_registry.json", b"{"), OLD)
            assert core.mailbox("bob").claim() is None
        store = core.core.store
        assert isinstance(store, FileStore) and "" == store.made_anew
        assert (6 if layout.name == "nanobot" else 3) == len(store.quarantined())
        work.ack()


REFUSED: tuple[tuple[Any, str], ...] = (
    ("a\0b", "x.y: holds a NUL character"),
    ({"a\0b": 1}, "x.y: holds a NUL character"),
    ("\ud800", "x.y: holds half a character"),
    (2**63, "x.y: holds an integer over 64 bits"),
    (float("nan"), "holds NaN, which is not JSON"),
    (json.loads("[" * 90 + "]" * 90), "x.y: is nested too deep"),
    ("TWICE", "holds the key 'twice' twice in one object"),
)


def test_a_value_that_no_letter_may_hold_is_reported_by_rule_and_field_and_the_mended_file_comes_in(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop(tmp_path, layout, 1)
    for number, (value, _) in enumerate(REFUSED, 2):
        path = drop(tmp_path, layout, number, x={"y": value})
        path.write_text(path.read_text().replace('"TWICE"', '{"twice": 1, "twice": 2}'))
        os.utime(path, OLD)
    with opened(tmp_path, layout) as store:
        assert len(store.find(Query(mailbox="bob"))) == 1
        (finding,) = [each for each in diagnosis(store) if each.check == "quarantine"]
        for (_, why), report in zip(REFUSED, sorted(store.quarantined()), strict=True):
            assert f"{report} (it is not a letter: " in finding.what
            assert why in finding.what and why in caplog.text
            fields = json.loads((tmp_path / report).read_bytes()) | {"x": "mended"}
            (tmp_path / report).unlink()
            write(inbox(tmp_path, layout), Path(report).stem, json.dumps(fields).encode())
        assert len(store.find(Query(mailbox="bob"))) == 1 + len(REFUSED)
        assert store.quarantined() == []


def diagnosis(store: FileStore) -> list[Finding]:
    return list(store.examine(repair=False, full=False, progress=lambda *_: None))


def test_a_stranger_that_writes_slowly_is_given_its_time(layout: Layout, tmp_path: Path) -> None:
    whole = drop(tmp_path, layout, 1)
    content = whole.read_bytes()
    whole.write_bytes(content[:40])
    with opened(tmp_path, layout) as store:
        assert store.find(Query(mailbox="bob")) == []
        assert store.quarantined() == []
        whole.write_bytes(content)
        assert len(store.find(Query(mailbox="bob"))) == 1


@pytest.mark.parametrize(("ahead", "aside"), [(5, 0), (3600, 1)])
def test_a_file_that_was_begun_after_the_look_has_its_time_too(
    layout: Layout, tmp_path: Path, ahead: int, aside: int
) -> None:
    half = drop(tmp_path, layout, 1)
    half.write_bytes(half.read_bytes()[:40])
    soon = time.time() + ahead
    os.utime(half, (soon, soon))
    with opened(tmp_path, layout) as store:
        store.find(Query())
        assert len(store.quarantined()) == aside


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "huge"])
def test_what_is_no_plain_file_is_never_followed(layout: Layout, tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside.json"
    good = drop(tmp_path, layout, 1)
    outside.write_bytes(good.read_bytes())
    good.unlink()
    if kind == "link":
        good.symlink_to(outside)
    elif kind == "hard link":
        os.link(outside, good)
    elif kind == "pipe":
        os.mkfifo(good)
    elif kind == "folder":
        good.mkdir()
    else:
        good.write_bytes(b" " * (17 * 2**20))
    if kind != "link":
        os.utime(good, OLD)
    with opened(tmp_path / ".", layout) as store:
        assert store.find(Query(mailbox="bob")) == []
        assert len(store.quarantined()) == 1
        send(store, "m1")
        assert ids(store, Query(mailbox="bob")) == ["m1"]
    assert outside.exists()


def test_folders_that_are_nobodys_are_left_alone(layout: Layout, tmp_path: Path) -> None:
    where = home(tmp_path, layout)
    for name in (".git", "_drafts", "has space", "-dash"):
        (where / name / "inbox").mkdir(parents=True)
        (where / name / "x.json").write_text("{}")
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        assert all_names(store) == ["ann", "bob"]
    assert (where / "has space" / "x.json").exists()


def test_an_owner_of_files_that_are_no_mail_is_reported_once_and_by_the_doctor(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = inbox(tmp_path, layout, "has space")
    with opened(tmp_path, layout) as store:
        for number in range(3):
            write(folder, f"MSG-{number}{layout.ending}", b"{}")
            assert store.find(Query()) == []
        result = {finding.check: finding for finding in diagnosis(store)}
    assert caplog.text.count("is not a mailbox") == 1
    assert "has space" in result["mailboxes"].what and "3: " in result["mailboxes"].what
    assert result["index"].level is Level.OK


def test_names_that_read_alike_do_not_share_a_mailbox(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop(tmp_path, layout, 1, to="bob")
    path = drop(tmp_path, layout, 2, to="Bob")
    os.utime(path, OLD)
    with opened(tmp_path, layout) as store:
        assert len(store.find(Query())) == 1
        (report,) = store.quarantined()
        why = "'Bob' differs only in case from the agent 'bob' (write 'bob': put the file into that folder)"
        assert f"its folder 'Bob': {why}" in caplog.text
        (tmp_path / report).rename(inbox(tmp_path, layout) / path.name)
        assert len(store.find(Query(mailbox="bob"))) == 2


def test_a_folder_that_is_taken_is_refused_naming_the_first(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        store.commit([post(letter("m1", ("team/bob",)))])
        with pytest.raises(NameTaken, match="team/bob"):
            store.commit([post(letter("m2", ("team_bob",)))])
        assert [found.message.id for found in store.letters(LetterQuery())] == ["m1"]


@pytest.mark.parametrize("linked", ["mailbox", "inbox"])
def test_no_mail_is_led_elsewhere_by_a_link_to_a_folder(layout: Layout, tmp_path: Path, linked: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    place = inbox(root, layout) if linked == "inbox" and layout.places[0] else home(root, layout) / "bob"
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with opened(root, layout) as store:
        with pytest.raises(PostroomError):
            send(store, "m1")
        send(store, "m2", ("cleo",))
        assert ids(store, Query()) == ["m2"]
    assert list(outside.iterdir()) == []


def test_what_a_killed_writer_began_is_cleared_away(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
    begun = inbox(tmp_path, layout) / f".{'0a' * 9}.tmp"
    begun.write_bytes(b"half a let")
    theirs = inbox(tmp_path, layout) / "theirs.tmp"
    theirs.write_bytes(b"not ours")
    with opened(tmp_path, layout, boot="another"):
        assert (begun.exists(), theirs.exists()) == (False, True)


def test_a_question_after_the_index_was_deleted_is_answered_from_the_files(layout: Layout, tmp_path: Path) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        rob(tmp_path)
        assert ids(store, Query()) == ["m1"]


@pytest.mark.parametrize("content", [b"{", None], ids=["no letter", "a letter"])
def test_a_file_whose_name_is_no_text_is_set_aside(layout: Layout, tmp_path: Path, content: bytes | None) -> None:
    path = drop(tmp_path, layout, 1)
    message = path.read_bytes() if content is None else content
    path.unlink()
    with opened(tmp_path, layout) as store:
        send(store, "m1")
        (path.parent / os.fsdecode(b"MSG-\xff" + layout.ending.encode())).write_bytes(message)
        (home(tmp_path, layout) / os.fsdecode(b"w\xffx")).mkdir()
        assert ids(store, Query(mailbox="bob")) == ["m1"]
        assert len(store.quarantined()) == 1
    with opened(tmp_path, layout, boot="another") as store:
        assert ids(store, Query()) == ["m1"]


def test_a_folder_that_cannot_be_looked_into_blocks_nobody_and_nothing_in_it_is_gone(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, layout) as store:
        send(store, "m1")
    closed, check = str(inbox(tmp_path, layout)), durable.check_folder

    def refuse(folder: str) -> None:
        if folder == closed:
            raise PermissionError(13, "Permission denied", folder)
        check(folder)

    monkeypatch.setattr(durable, "check_folder", refuse)  # root may look everywhere
    with opened(tmp_path, layout, boot="another") as store:
        send(store, "m2", ("cleo",))
        assert ids(store, Query(states=(State.UNREAD,))) == ["m1", "m2"]
        with pytest.raises(PostroomError, match=closed):
            send(store, "m3")
