"""Mail by the design's verbs: written as it says, read ones too, never lost, never in two places."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom import chipset as postroom_chipset
from postroom.chipset import Chipset
from postroom.chipset.mail import TYPES
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.outbox import give_up_old
from postroom.core.verb import perform
from postroom.errors import Invalid, StoreFailing
from postroom.model.query import Query
from postroom.store.files import quarantine
from postroom.store.files.layouts.base import text_of
from tests.chipset.people import finish, start
from tests.rooms import FakeClock

ALPHA = "polecat-alpha"
NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{9}Z-mayor\.json")


def letter(**message: Any) -> dict[str, Any]:
    usual = {
        "from": "mayor",
        "to": ALPHA,
        "type": "work_assignment",
        "subject": "gt-1 is yours",
        "body": "Build it.",
    }
    return usual | message


def drop(state: Path, name: str, place: str = "", **message: Any) -> Path:
    """As a stranger writes one."""
    folder = state / "mail" / ALPHA / place
    folder.mkdir(parents=True, exist_ok=True)
    usual = letter(**{"timestamp": "2026-03-05T10:30:00Z", "read": False, "priority": "normal"} | message)
    (folder / name).write_text(json.dumps(usual))
    return folder / name


def test_a_letter_lies_in_its_file_as_the_design_says(chipset: Chipset, state: Path) -> None:
    sent = chipset.mail.send_mail(letter(priority="urgent"))
    (path,) = (state / "mail" / ALPHA).glob("*.json")
    assert NAME.fullmatch(path.name) and path.name == sent.filename
    fields = json.loads(path.read_text())
    assert fields == letter(priority="urgent", timestamp="2030-01-01T12:00:00Z", read=False)
    assert fields == sent.to_dict()
    assert list(fields) == sorted(fields)
    assert chipset.mail.check_mail(ALPHA) == [sent]


@pytest.mark.parametrize("type", TYPES)
def test_each_of_the_five_types_is_written_as_it_is(chipset: Chipset, type: str) -> None:
    chipset.mail.send_mail(letter(type=type))
    assert [mail.type for mail in chipset.mail.check_mail(ALPHA)] == [type]


def test_another_type_is_coordination_for_the_design_and_comes_back_whole(chipset: Chipset) -> None:
    sent = chipset.mail.send_mail(letter(type="question"))
    assert sent.type == chipset.mail.check_mail(ALPHA)[0].type == "coordination"
    assert chipset.room.mailbox(ALPHA).check(peek=True)[0].kind == "question"


def test_looking_marks_nothing_and_marking_twice_is_the_same_as_once(chipset: Chipset, state: Path) -> None:
    first, second = (chipset.mail.send_mail(letter(body=body)) for body in "12")
    chipset.mail.check_mail(ALPHA)
    assert len(chipset.mail.unread(ALPHA)) == 2
    for _ in range(2):
        chipset.mail.mark_read(ALPHA, first.filename)
    assert [(mail.body, mail.read) for mail in chipset.mail.check_mail(ALPHA)] == [("1", True), ("2", False)]
    assert chipset.mail.unread(ALPHA) == [second]
    assert json.loads((state / "mail" / ALPHA / first.filename).read_text())["read"] is True
    chipset.mail.mark_read(ALPHA, "2020-01-01T00-00-00Z-nobody.json")
    chipset.mail.mark_read("polecat-beta", first.filename)


def test_only_read_letters_of_a_day_ago_are_archived_and_counted(
    chipset: Chipset, state: Path, clock: FakeClock
) -> None:
    old, unread = (chipset.mail.send_mail(letter(body=body)) for body in ("old", "unread"))
    clock.advance(23 * 3600)
    young = chipset.mail.send_mail(letter(body="young"))
    for mail in (old, young):
        chipset.mail.mark_read(ALPHA, mail.filename)
    assert chipset.mail.archive_old_mail(ALPHA) == 0
    clock.advance(3600)
    assert chipset.mail.archive_old_mail(ALPHA) == 1
    assert chipset.mail.archive_old_mail(ALPHA) == 0
    assert [path.name for path in (state / "mail" / ALPHA / "archive").iterdir()] == [old.filename]
    assert [mail.body for mail in chipset.mail.check_mail(ALPHA)] == ["unread", "young"]
    assert chipset.mail.archive_old_mail(ALPHA, timedelta(minutes=1)) == 1
    chipset.mail.mark_read(ALPHA, unread.filename)
    assert chipset.mail.archive_old_mail(ALPHA, 0) == 1
    assert chipset.mail.archive_old_mail("nobody") == 0


def test_a_timestamp_of_the_sender_stands_in_the_file_and_in_its_name(chipset: Chipset, state: Path) -> None:
    chipset.mail.send_mail(letter(body="now"))
    params = {
        "whole": "2026-03-05T10:30:00Z",
        "fraction": "2026-03-04T10:30:00.250Z",
        "zone": "2026-03-03T10:30:00+02:00",
    }
    sent = {body: chipset.mail.send_mail(letter(body=body, timestamp=time)) for body, time in params.items()}
    names = {body: mail.filename for body, mail in sent.items()}
    assert names["whole"].startswith("2026-03-05T10-30-00.") and names["whole"].endswith("Z-mayor.json")
    assert names["fraction"].startswith("2026-03-04T10-30-00.250000")
    assert names["zone"].startswith("2026-03-03T08-30-00.")
    stored = {
        body: json.loads((state / "mail" / ALPHA / name).read_text())["timestamp"] for body, name in names.items()
    }
    assert stored["whole"] == sent["whole"].timestamp == "2026-03-05T10:30:00Z"
    assert stored["zone"] == sent["zone"].timestamp == "2026-03-03T08:30:00Z"
    assert [mail.body for mail in chipset.mail.check_mail(ALPHA)] == ["zone", "fraction", "whole", "now"]
    assert [mail.filename for mail in chipset.mail.unread(ALPHA)][:3] == [
        names["zone"],
        names["fraction"],
        names["whole"],
    ]


def test_letters_of_one_timestamp_never_collide_and_a_key_still_sends_once(chipset: Chipset) -> None:
    time = "2026-03-05T10:30:00.123456Z"  # three digits are left to tell them apart
    assert len({chipset.mail.send_mail(letter(timestamp=time)).filename for _ in range(60)}) == 60
    assert len({chipset.mail.send_mail(letter(timestamp=time), key="k").filename for _ in range(3)}) == 1
    assert len(chipset.mail.check_mail(ALPHA)) == 61
    with pytest.raises(Invalid, match="timestamp"):
        chipset.mail.send_mail(letter(timestamp="soon"))


def test_a_letter_that_nobody_could_read_for_its_time_is_refused(chipset: Chipset) -> None:
    """No letter of a folder stands later in time than `letters.LATEST`: its file would be shown to nobody."""
    with pytest.raises(Invalid, match="timestamp"):
        chipset.mail.send_mail(letter(timestamp="9000-01-01T00:00:00Z"))
    late = chipset.mail.send_mail(letter(timestamp="8999-12-31T23:59:59Z"))
    assert [late.filename] == [each.filename for each in chipset.mail.check_mail(late.to)]


def test_a_time_far_ahead_moves_no_letter_that_comes_after_it(state: Path) -> None:
    """Letters keep their order of acceptance when the index is made anew, and only the odd one has to say it."""
    with Chipset(state) as chipset:
        first = chipset.mail.send_mail(letter(body="first"))
        ahead = chipset.mail.send_mail(letter(body="ahead", timestamp="2200-01-01T00:00:00Z"))
        chipset.mail.mark_read(ALPHA, ahead.filename)
        after = chipset.mail.send_mail(letter(body="after"))
    files = [json.loads((state / "mail" / ALPHA / mail.filename).read_text()) for mail in (first, ahead, after)]
    assert [False, True, False] == ["postroom" in fields for fields in files]
    for index in (state / ".postroom").glob("index.db*"):
        index.unlink()
    with Chipset(state) as chipset:
        found = chipset.room.core.store.find(Query(mailbox=ALPHA, order="age"))
        assert ["first", "ahead", "after"] == [each.message.text for each in found]


@pytest.mark.parametrize("to", ["bob@away", "bob"])
@pytest.mark.parametrize("year", [2001, 2200])
def test_mail_to_a_peer_ages_from_when_it_was_sent(
    state: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, to: str, year: int
) -> None:
    monkeypatch.setenv("POSTROOM_FEDERATION_STRATEGY", "broadcast")  # where a bare name is sought at peers at once
    with Chipset(state, clock=clock) as chipset:
        perform(chipset.room.core, OWNER, peers.AddPeer(system="away", fields={"exposure": "all"}, ours="here"))
        chipset.mail.send_mail(letter(to=to, timestamp=f"{year}-01-01T00:00:00Z"))
        limits = chipset.room.core.limits
        for age, given_up in ((limits.outbox_max_age - 1, 0), (2, 1)):
            clock.advance(age)
            assert given_up == give_up_old(chipset.room.core, clock.now().wall)


def test_the_janitor_archives_by_the_letters_own_time(chipset: Chipset, state: Path, clock: FakeClock) -> None:
    yesterday, today = (clock.now().wall - timedelta(hours=hours) for hours in (25, 23))
    sent = [chipset.mail.send_mail(letter(timestamp=time.isoformat())) for time in (yesterday, today, yesterday)]
    for mail in sent[:2]:
        chipset.mail.mark_read(ALPHA, mail.filename)
    assert chipset.room.sweep().archived == 1
    assert [path.name for path in (state / "mail" / ALPHA / "archive").iterdir()] == [sent[0].filename]
    clock.advance(2 * 3600)
    assert chipset.room.archive() == 1  # what nobody has read stays


def test_the_janitor_archives_what_a_stranger_marked_by_its_own_time_too(state: Path) -> None:
    with Chipset(state) as chipset:
        now = chipset.clock.now().wall
        for hours in (25, 23):
            time = text_of(now - timedelta(hours=hours))
            drop(state, f"{time.replace(':', '-')}-mayor.json", read=True, timestamp=time)
        assert chipset.room.sweep().archived == 1
        (archived,) = (state / "mail" / ALPHA / "archive").iterdir()
        assert archived.name.startswith(text_of(now - timedelta(hours=25))[:13])


def test_a_strangers_letters_are_read_in_the_order_of_time(chipset: Chipset, state: Path) -> None:
    ours = chipset.mail.send_mail(letter(body="ours"))
    drop(state, "2031-01-01T00-00-00Z-witness.json", timestamp="2031-01-01T00:00:00Z", body="late", extra=1)
    drop(state, "2026-03-05T10-30-00Z-mayor.json", body="early", read=True)
    assert [(mail.body, mail.read) for mail in chipset.mail.check_mail(ALPHA)] == [
        ("early", True), ("ours", False), ("late", False),
    ]  # fmt: skip
    chipset.mail.mark_read(ALPHA, "2031-01-01T00-00-00Z-witness.json")
    result = json.loads((state / "mail" / ALPHA / "2031-01-01T00-00-00Z-witness.json").read_text())
    assert (result["read"], result["extra"]) == (True, 1)
    assert chipset.mail.unread(ALPHA) == [ours]
    assert chipset.mail.archive_old_mail(ALPHA) == 1


def test_an_unread_letter_that_a_stranger_archived_stays_deliverable(chipset: Chipset, state: Path) -> None:
    drop(state, "2026-03-05T10-30-00Z-mayor.json", "archive")
    drop(state, "2026-03-05T10-31-00Z-mayor.json", "archive", read=True)
    assert [mail.filename for mail in chipset.mail.unread(ALPHA)] == ["2026-03-05T10-30-00Z-mayor.json"]
    chipset.mail.mark_read(ALPHA, "2026-03-05T10-30-00Z-mayor.json")
    assert [(mail.filename, mail.read) for mail in chipset.mail.check_mail(ALPHA)] == [
        ("2026-03-05T10-30-00Z-mayor.json", True),
    ]  # fmt: skip
    assert chipset.mail.archive_old_mail(ALPHA) == 1
    assert len(list((state / "mail" / ALPHA / "archive").iterdir())) == 2


def test_what_lies_in_the_archive_is_not_archived_again_when_the_index_is_made_again(
    chipset: Chipset, state: Path
) -> None:
    drop(state, "2026-03-05T10-30-00Z-mayor.json", "archive", read=True)
    assert chipset.mail.archive_old_mail(ALPHA) == 0
    chipset.room.close()
    for path in (state / ".postroom").glob("index.db*"):
        path.unlink()
    drop(state, "2026-03-05T10-31-00Z-mayor.json", read=True)
    assert chipset.mail.archive_old_mail(ALPHA) == 1


def test_copies_that_a_stranger_makes_of_our_letters_are_marked_one_by_one(chipset: Chipset, state: Path) -> None:
    ours = chipset.mail.send_mail(letter())
    for agent, body in (("polecat-beta", "Build it."), ("polecat-gamma", "Build another.")):
        (state / "mail" / agent).mkdir()
        message = letter(to=agent, body=body, timestamp=ours.timestamp, read=False, priority="normal")
        (state / "mail" / agent / ours.filename).write_text(json.dumps(message))
    for marked in ("polecat-gamma", "polecat-beta", ALPHA):
        assert len(chipset.mail.unread(marked)) == 1
        chipset.mail.mark_read(marked, ours.filename)
        assert chipset.mail.unread(marked) == []


def delete_in_silence(self: quarantine.Quarantine, seen: Any, why: str) -> bool:
    """A damaged file is gone, and nobody hears of it."""
    if self._may_be_unfinished(seen, why):
        return False
    Path(self._conn.tree.path(seen.folder), seen.name).unlink()
    return True


@pytest.mark.parametrize("bug", [None, delete_in_silence])
def test_a_file_that_is_no_letter_is_set_aside_with_a_warning_and_blocks_nobody(
    chipset: Chipset, state: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, bug: Any
) -> None:
    if bug:
        monkeypatch.setattr(quarantine.Quarantine, "put", bug)
    damaged = {"2026-01-01T00-00-00Z-x.json": "{", "2026-01-02T00-00-00Z-x.json": '{"from": 7}'}
    for name, content in damaged.items():
        path = drop(state, name)
        path.write_text(content)
        os.utime(path, (0, 0))
    fresh = drop(state, "2026-01-03T00-00-00Z-x.json")
    fresh.write_text("{")  # its writer may not be through yet
    sent = chipset.mail.send_mail(letter())
    with caplog.at_level(logging.WARNING, "postroom"):
        assert len(chipset.mail.check_mail(ALPHA)) == 1
    assert {path.name for path in (state / "mail" / ALPHA).glob("*.json")} == {fresh.name, sent.filename}
    kept = {
        path.name.rpartition(".")[0]: path.read_text() for path in (state / "mail" / ALPHA).glob(".quarantine/*")
    }
    warned = {name for name in damaged if any(name in line for line in caplog.messages)}
    reported = {name for name in damaged if any(name in each for each in chipset.room.quarantined())}
    is_kept_and_told = kept == damaged and warned == reported == set(damaged)
    assert is_kept_and_told == (bug is None)


def test_links_in_a_mailbox_are_not_followed(chipset: Chipset, state: Path, tmp_path: Path) -> None:
    path = drop(state, "2026-03-05T10-30-00Z-mayor.json")
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert chipset.mail.check_mail(ALPHA) == []
    (state / "mail" / "polecat-linked").symlink_to(state / "mail" / ALPHA)
    assert chipset.mail.check_mail("polecat-linked") == []


def test_many_processes_send_at_once_and_nothing_collides(state: Path) -> None:
    finish([start("sender", state, name, "30") for name in ("polecat-a", "polecat-b", "polecat-a")])
    with Chipset(state) as chipset:
        found = chipset.mail.check_mail("mayor")
    assert len({mail.filename for mail in found}) == len(found) == 90


def test_one_key_sends_once(chipset: Chipset) -> None:
    names = {chipset.mail.send_mail(letter(), key="k").filename for _ in range(2)}
    assert len(names) == len(chipset.mail.check_mail(ALPHA)) == 1


def test_a_full_disk_reaches_the_sender_and_leaves_nothing_behind(
    chipset: Chipset, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chipset.mail.send_mail(letter())

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        with pytest.raises(StoreFailing):
            chipset.mail.send_mail(letter(body="more"))
    monkeypatch.undo()
    assert [path.name for path in (state / "mail" / ALPHA).iterdir()] == [first.filename]
    chipset.mail.send_mail(letter(body="and more"))
    assert [mail.body for mail in chipset.mail.unread(ALPHA)] == ["Build it.", "and more"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": "../x"}, {"from": ""}, {"subject": None}, {"body": 7}, {"priority": "high"}, {"colour": "red"},
        {"type": "two words"}, {"subject": "a\nb"},
    ],
)  # fmt: skip
def test_a_letter_that_the_design_cannot_say_is_refused(chipset: Chipset, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        chipset.mail.send_mail(letter(**wrong))
    assert chipset.mail.check_mail(ALPHA) == []


@pytest.mark.parametrize("name", ["../x.json", "a/b.json", ".hidden.json", "x.txt", "", 7])
def test_a_name_that_is_no_letters_is_refused(chipset: Chipset, name: Any) -> None:
    with pytest.raises(Invalid):
        chipset.mail.mark_read(ALPHA, name)
    with pytest.raises(Invalid):
        chipset.mail.send_mail(name)


def test_the_verbs_of_the_design_work_without_ceremony(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = postroom_chipset.send_mail(letter())
    assert (tmp_path / ".chipset" / "state" / "mail" / ALPHA / sent.filename).exists()
    assert postroom_chipset.check_mail(ALPHA) == postroom_chipset.unread(ALPHA) == [sent]
    postroom_chipset.mark_read(ALPHA, sent.filename)
    assert postroom_chipset.unread(ALPHA) == []
    assert postroom_chipset.archive_old_mail(ALPHA) == 0
    assert postroom_chipset.archive_old_mail(ALPHA, 0, state=tmp_path / ".chipset" / "state") == 1
    assert postroom_chipset.check_mail(ALPHA) == []
