"""The quick check of a room of files says "surely nothing" only where the store would find nothing.

That holds whatever other programs, clocks and crashes do. Twins that look less closely are found out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import postroom
from postroom import Room
from postroom.constants import INDEX_APPLICATION
from postroom.store import peek
from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.layouts.paths import LAYOUT_PATHS, NAMES, QUEUED
from postroom.store.peek import is_surely_empty
from tests.cli.shell import Shell
from tests.conftest import LONG
from tests.files.folders import home, inbox, letters_in
from tests.files.test_strangers import drop, move_to, write
from tests.renaming import rename
from tests.store.test_peek import LATE, SOON, AnHourAgo

KILLED = """
import os, signal, sys, postroom
from postroom.store.files.transaction import CreateFile
create = CreateFile.do
def cut_off(step, **how):
    if "/bob" in step.folder:
        os.kill(os.getpid(), signal.SIGKILL)
    return create(step, **how)
CreateFile.do = cut_off
postroom.open(sys.argv[1], durability="process").mailbox("ann").send(["amy", "bob"], "x")
"""


class Folder:
    """A folder of mail, and what can happen there. Time is told as of an hour ago."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self.root, self.layout = root, layout
        self.address = f"files:{root}?layout={layout.name}"
        self._number = 0
        with self.opened() as room:
            room.mailbox("bob").register()
            room.mailbox("cy").register()

    def opened(self) -> Room:
        return postroom.open(self.address, durability="process")

    def is_sure(self, name: str = "bob") -> bool:
        return is_surely_empty(self.address, name)

    def found(self, name: str = "bob") -> int:
        """What a command finds that begins now."""
        with self.opened() as room:
            return len(room.mailbox(name).check(peek=True))

    def check(self) -> None:
        """The promise."""
        sure = self.is_sure()
        found = self.found()
        assert not (sure and found), "mail is overlooked"

    def take(self, step: str, span: float = LATE) -> None:
        if hasattr(self, step):
            getattr(self, step)()
        else:
            self._ours(step, span)

    # -- what we do

    def _ours(self, step: str, span: float) -> None:
        with self.opened() as room:
            past = Room(room.core.store, room.settings, clock=AnHourAgo())
            ann, bob = past.mailbox("ann"), past.mailbox("bob")
            if step in {"send", "at", "expires"}:
                fields: dict[str, Any] = {} if step == "send" else {step: span}
                ann.send("bob", "x", **fields)
            elif step == "read":
                bob.check(1)
            elif (work := bob.claim(lease=span)) is not None and step != "claim":
                {"ack": work.ack, "release": work.release}.get(
                    step, lambda: work.fail("x", retry=step == "fail")
                )()

    def note(self) -> None:
        """Somebody looks after a quiet time: the store notes when each folder changed."""
        self._number += 1
        for folder in [path for path in home(self.root, self.layout).rglob("*") if path.is_dir()]:
            if ".postroom" not in folder.parts:
                os.utime(folder, ns=(self._number * 10**9, self._number * 10**9))
        self.found("cy")

    # -- what strangers do

    def drop(self) -> None:
        self._number += 1
        drop(self.root, self.layout, self._number)

    def drop_elsewhere(self) -> None:
        self._number += 1
        drop(self.root, self.layout, self._number, to="cy")

    def drop_for_later(self) -> None:
        """Where no design looks, but we do."""
        self._number += 1
        path = drop(self.root, self.layout, self._number)
        queue = home(self.root, self.layout) / "bob" / QUEUED
        queue.mkdir(exist_ok=True)
        path.rename(queue / path.name)

    def settle(self) -> None:
        for path in self._letters()[:1]:
            move_to(path, self.root, self.layout)

    def unsettle(self) -> None:
        """Back to unread, by the design's own recipe."""
        for path in self._letters()[-1:]:
            unread = json.loads(path.read_text()) | {"read": False, "status": "unread", "read_at": None}
            if self.layout.name == "nanobot":
                path.rename(inbox(self.root, self.layout) / path.name)
            else:
                write(path.parent, path.name, json.dumps(unread).encode())

    def delete(self) -> None:
        for path in self._letters()[:1]:
            path.unlink()

    def litter(self) -> None:
        write(inbox(self.root, self.layout), "notes.txt", b"no letter")

    def lose_index(self) -> None:
        for path in (self.root / ".postroom").glob("index.db*"):
            path.unlink()

    def _letters(self) -> list[Path]:
        return [self.root / path for path in letters_in(self.root) if "bob" in Path(path).parts]


@pytest.fixture
def folder(layout: Layout, tmp_path: Path) -> Folder:
    return Folder(tmp_path / "mail", layout)


def test_it_knows_what_the_store_knows(layout: Layout) -> None:
    assert isinstance(layout, type(LAYOUT_PATHS[layout.name]))


# -- it is sure


def test_who_has_nothing_unread_has_surely_nothing(folder: Folder) -> None:
    assert folder.is_sure()
    assert folder.is_sure("nobody")
    folder.take("send")
    assert not folder.is_sure() and folder.is_sure("ann") and folder.is_sure("cy")
    for step in ("read", "claim", "at"):
        folder.take(step)
        assert folder.is_sure()  # though its folder has changed, and nobody has noted when
    folder.take("send")
    folder.take("ack")
    assert folder.is_sure()


def test_what_strangers_do_elsewhere_costs_nobody_a_look(folder: Folder) -> None:
    with folder.opened() as room:
        room.mailbox("ann").send("cy", "x")
        room.mailbox("cy").check()
    folder.drop_elsewhere()
    assert folder.is_sure() and not folder.is_sure("cy")
    assert not folder.is_sure("nobody")  # a letter may bring a name like this one
    assert folder.found("cy") == 1
    assert folder.is_sure("nobody")


def test_what_is_no_letter_changes_nothing(folder: Folder) -> None:
    folder.note()
    folder.litter()
    assert folder.is_sure()


def test_a_folder_of_many_files_is_looked_at_by_the_store_once(folder: Folder) -> None:
    with folder.opened() as room:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peek, "MOST", 3)
            for number in range(4):
                ann.send("bob", f"{number}")
            bob.check()
            assert not folder.is_sure()
            folder.note()
            assert folder.is_sure()


def test_it_writes_nothing(folder: Folder) -> None:
    folder.take("send")
    folder.take("read")
    folder.note()

    def state() -> dict[Path, tuple[int, int, bytes]]:
        found = {path: path.stat() for path in sorted(folder.root.rglob("*"))}
        return {
            path: (seen.st_ino, seen.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path, seen in found.items()
            if not path.name.endswith("-shm")  # SQLite's own notes of who reads
        }

    before = state()
    assert folder.is_sure() and folder.is_sure("nobody")
    assert state() == before
    folder.drop()
    before = state()
    assert not folder.is_sure()
    assert state() == before


# -- it is not


def spoilt(sql: str) -> Callable[[Path], object]:
    def spoil(own: Path) -> None:
        with apsw.Connection(str(own / "index.db")) as index:
            index.execute(sql)

    return spoil


def overwrite(own: Path) -> None:
    (own / "index.db").write_bytes(b"nonsense" * 1000)
    (own / "index.db-wal").write_bytes(b"")  # which held all of it


ODDITIES: dict[str, Callable[[Path], object]] = {
    "no index": lambda own: (own / "index.db").unlink(),
    "no log": lambda own: (own / "index.db-wal").unlink(),
    "no lock": lambda own: (own / "index.db.lock").unlink(),
    "no mark": lambda own: (own / "layout").unlink(),
    "another mark": lambda own: (own / "layout").write_text("another's\n"),
    "another boot": spoilt("UPDATE room SET boot = 'before'"),
    "another version": spoilt("PRAGMA user_version = 99"),
    "another program": spoilt("PRAGMA application_id = 5"),
    "a table less": spoilt("DROP TABLE folders"),
    "nonsense": overwrite,
    "no folder": lambda own: shutil.rmtree(own.parent),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_anything_odd_is_for_the_store_to_judge(tmp_path: Path, oddity: str) -> None:
    folder = Folder(tmp_path / "mail", layout_named("nanobot"))
    assert folder.is_sure()
    ODDITIES[oddity](folder.root / ".postroom")
    assert not folder.is_sure()


def test_a_mailbox_that_is_a_link_is_nobody_s(folder: Folder, tmp_path: Path) -> None:
    """For the store, too: mail must not be led elsewhere."""
    away = Folder(tmp_path / "away", folder.layout)
    away.drop()
    bob = home(folder.root, folder.layout) / "bob"
    shutil.rmtree(bob, ignore_errors=True)
    bob.symlink_to(home(away.root, folder.layout) / "bob")
    assert folder.is_sure()
    assert folder.found() == 0


def test_an_address_is_read_as_the_store_reads_it(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder.root)
    end = f"?layout={folder.layout.name}"
    other = NAMES[NAMES.index(folder.layout.name) - 1]
    for good in (f"{folder.root}//", "mail", "//mail", f"//{folder.root}", "link"):
        assert is_surely_empty(f"files:{good}{end}", "bob"), good
        postroom.open(f"files:{good}{end}", durability="process").close()
        assert not (tmp_path / good.strip("/") / ".postroom" / "room.db").exists()
    for bad in (
        f"~/mail{end}",
        end,
        f"/{end}",
        "mail",
        f"mail?layout={other}",
        "mail?layout=x",
        f"mail?{end}",
        f"mail{end}&x",
    ):
        assert not is_surely_empty(f"files:{bad}", "bob"), bad


def test_mail_under_a_former_name_is_not_overlooked(tmp_path: Path, layout: Layout) -> None:
    folder = Folder(tmp_path / "mail", layout)
    with folder.opened() as room:
        rename(room, "bob", "robert")
    assert folder.is_sure("robert")
    folder.drop()
    assert not folder.is_sure("robert")
    assert folder.found("robert") == 1


def test_names_that_share_a_folder_are_for_the_store_to_tell_apart(tmp_path: Path, layout: Layout) -> None:
    folder = Folder(tmp_path / "mail", layout)
    with folder.opened() as room:
        room.mailbox("b/c").register()
    assert not folder.is_sure("b_c") and folder.is_sure("b-c")


def test_a_commit_that_was_cut_off_is_for_the_store_to_finish(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.note()
    assert folder.is_sure()
    done = subprocess.run([sys.executable, "-c", KILLED, folder.address], check=False)
    assert done.returncode < 0
    assert not folder.is_sure()
    with monkeypatch.context() as twin:
        twin.setattr(peek, "_is_warned", lambda _: False)
        assert folder.is_sure()  # and it is wrong
    assert folder.found() == 1


def test_what_is_taken_in_while_it_looks_is_not_overlooked(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders are looked at before the index is asked."""
    is_current = peek._is_current

    def meanwhile(index: apsw.Connection, *what: Any) -> bool:
        assert folder.found() == 1  # somebody else takes it in
        return is_current(index, *what)

    def asks_first(address: str, mailbox: str, others: Any) -> bool:
        tree = peek._tree_at(address)
        assert tree is not None
        path = f"{tree.root}/.postroom/index.db"
        index = peek._opened(path, INDEX_APPLICATION)
        assert index is not None
        is_empty = peek._has_nothing(index, peek._values(path, mailbox), others)
        return is_empty and peek._is_current(index, tree, mailbox)

    monkeypatch.setattr(peek, "_is_current", meanwhile)
    folder.drop()
    assert not folder.is_sure()
    folder.settle()
    folder.found()
    folder.drop()
    monkeypatch.setattr(peek, "_folder_is_empty", asks_first)
    assert folder.is_sure()  # the twin is, and it is wrong


# -- twins


def trusts_the_index(patch: pytest.MonkeyPatch, _layout: Layout) -> None:
    patch.setattr(peek, "_is_current", lambda *_: True)


def takes_every_change_for_ours(patch: pytest.MonkeyPatch, _layout: Layout) -> None:
    patch.setattr(peek, "_is_same", lambda *_: True)


def looks_for_new_mail_alone(patch: pytest.MonkeyPatch, layout: Layout) -> None:
    shape = type(LAYOUT_PATHS[layout.name])
    patch.setitem(LAYOUT_PATHS, layout.name, type("Blinkered", (shape,), {"places": shape.places[:1]})())


def knows_files_by_their_names(patch: pytest.MonkeyPatch, layout: Layout) -> None:
    def is_same(index: apsw.Connection, _tree: Any, folder: str, path: str) -> bool:
        known = {name for (name,) in index.execute("SELECT name FROM files WHERE folder = ?", (folder,))}
        return {one.name for one in Path(path).iterdir() if layout.may_hold(one.name)} == known

    patch.setattr(peek, "_is_same", is_same)


TWINS: list[tuple[Callable[[pytest.MonkeyPatch, Layout], None], list[str], tuple[str, ...]]] = [
    (trusts_the_index, ["note", "drop"], NAMES),
    (takes_every_change_for_ours, ["note", "drop"], NAMES),
    (looks_for_new_mail_alone, ["note", "drop_for_later"], NAMES),
    (knows_files_by_their_names, ["send", "read", "note", "unsettle"], ("swarm",)),  # others have no word for it
]


@pytest.mark.parametrize(
    ("plant", "steps", "name"),
    [pytest.param(*twin[:2], name, id=f"{twin[0].__name__}-{name}") for twin in TWINS for name in twin[2]],
)
def test_a_look_that_is_less_close_is_found_out(
    plant: Callable[[pytest.MonkeyPatch, Layout], None],
    steps: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = layout_named(name)
    folder = Folder(tmp_path / "mail", layout)
    for step in steps:
        folder.take(step, LATE)
    assert not folder.is_sure()
    plant(monkeypatch, layout)
    with pytest.raises(AssertionError, match="mail is overlooked"):
        folder.check()


# -- any history

STEPS = [
    *("send", "at", "expires", "read", "claim", "ack", "fail", "release", "reject", "note"),
    *("drop", "drop_elsewhere", "drop_for_later", "settle", "unsettle", "delete", "litter", "lose_index"),
]


@settings(max_examples=300 if LONG else 10)
@given(
    name=st.sampled_from(NAMES),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([SOON, LATE])), max_size=8),
)
def test_whenever_it_is_sure_a_command_finds_nothing(
    name: str, steps: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder(tmp_path_factory.mktemp("room") / "mail", layout_named(name))
    for step, span in steps:
        folder.take(step, span)
        folder.check()
    folder.note()  # and it is sure of all that is quiet and empty
    assert folder.is_sure() == (not folder.found())


# -- as it is run


def test_the_quick_answer_is_that_of_the_command(tmp_path: Path, layout: Layout) -> None:
    folder = Folder(tmp_path / "mail", layout)
    shell = Shell(tmp_path)
    shell.environment["POSTROOM_STORE"] = folder.address
    for words in (["check"], ["check", "--json"], ["digest"], ["counts", "--json"]):
        assert shell.run(*words, "--as", "bob") == shell.run(*words, "--as", "bob", "--set", "lease=60")
    misspelt = shell.run("check", "--as", "bobb")
    assert misspelt == shell.run("check", "--as", "bobb", "--set", "lease=60") and "'bob'" in misspelt.err
    assert shell.run("hook", "prompt", "--as", "bob").out == ""
    folder.drop()
    assert "no. 1" in shell.run("hook", "prompt", "--as", "bob").out
    assert shell.run("hook", "prompt", "--as", "bob").out == ""
    folder.unsettle()
    folder.drop()
    assert "no. 2" in shell.run("check", "--as", "bob").out
