"""A room outlives versions of Postroom and boots of its machine."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from postroom.errors import Damaged, SchemaTooNew
from postroom.model.codec import decode_message
from postroom.model.delivery import State
from postroom.model.query import LetterQuery, Query
from postroom.store.protocol import Rename, all_names, first_sent, spelling_of, waiting_letters
from postroom.store.sqlite import schema
from postroom.store.sqlite.schema import APPLICATION, STEPS, bring_up
from postroom.store.sqlite.writes import WRONG
from tests.letters import ack, after, bury, claim, held, ids, lease, letter, moment, post, read, send
from tests.store.helpers import database, mode, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A room of the first version with one letter in it."""
    with opened(tmp_path / "room.db") as store:
        send(store, "m1", subject="kept")
    return tmp_path / "room.db"


def steps(folder: Path, *later: str) -> tuple[Path, ...]:
    """The steps of a later version."""
    made = []
    for number, sql in enumerate(later, start=len(STEPS) + 1):
        step = folder / f"{number:04}.sql"
        step.write_text(sql)
        made.append(step)
    return (*map(Path, STEPS), *made)


def backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.before-schema-{len(STEPS) + 1}")


def test_a_new_room_is_marked_as_one(path: Path) -> None:
    with database(path) as room:
        assert (room.pragma("application_id"), room.pragma("user_version")) == (APPLICATION, len(STEPS))


def define(path: Path, old: str, new: str) -> None:
    """As a flipped bit would: the pages stay as they are."""
    with database(path) as room:
        room.pragma("writable_schema", "on")
        room.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?)", (old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id INTEGER PRIMARY KEY", "id INTEGER PRIMARQ KEY"),
        ("epoch TEXT", "eqoch TEXT"),
        ("state = 1", "state = 3"),
    ],
)
def test_a_damaged_definition_is_refused_before_it_hides_mail(path: Path, old: str, new: str) -> None:
    define(path, old, new)
    with pytest.raises(Damaged, match="defined"), opened(path):
        pass


def test_other_words_in_a_comment_change_nothing(path: Path) -> None:
    define(path, "random, names this room for ever", "named at random")
    with opened(path) as store:
        assert store.count(Query(), by="all") == 1


def test_the_sum_of_all_definitions_is_that_of_a_new_room(path: Path) -> None:
    with database(path) as room:
        assert schema.SHAPE == schema.shape_of(room)


def test_an_older_room_is_migrated_after_a_backup(path: Path) -> None:
    with database(path) as room:
        bring_up(
            room, path, steps(path.parent, "ALTER TABLE letters ADD COLUMN mood TEXT;", "CREATE TABLE t (x);")
        )

        assert room.pragma("user_version") == len(STEPS) + 2
        assert room.execute("SELECT id, mood FROM letters").fetchall() == [("m1", None)]

    assert mode(backup(path)) == 0o600
    with database(backup(path)) as copy:
        assert copy.pragma("user_version") == len(STEPS)
        assert copy.pragma("integrity_check") == "ok"
        assert decode_message(copy.execute("SELECT body FROM letters").get) == letter("m1", subject="kept")


def test_a_backup_can_be_opened_as_a_room(path: Path) -> None:
    with database(path) as room:
        bring_up(room, path, steps(path.parent, "DROP TABLE letters;"))

    with opened(backup(path)) as store:
        assert ids(store, Query()) == ["m1"]


def test_a_migration_that_fails_half_way_leaves_the_old_version(path: Path) -> None:
    broken = steps(path.parent, "CREATE TABLE half (x); DELETE FROM letters;", "this is not SQL;")
    with database(path) as room:
        with pytest.raises(apsw.SQLError):
            bring_up(room, path, broken)

        assert room.pragma("user_version") == len(STEPS)
        assert room.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").get == 0
    with opened(path) as store:
        assert ids(store, Query()) == ["m1"]


def test_an_old_backup_makes_room_for_a_new_one(path: Path) -> None:
    backup(path).write_text("an older backup")
    with database(path) as room:
        bring_up(room, path, steps(path.parent, "CREATE TABLE t (x);"))

    with database(backup(path)) as copy:
        assert copy.execute("SELECT count(*) FROM letters").get == 1


def test_a_migrated_room_is_too_new_for_the_old_version(path: Path) -> None:
    with database(path) as room:
        bring_up(room, path, steps(path.parent, "CREATE TABLE t (x);"))

    with pytest.raises(SchemaTooNew), opened(path):
        pass


# -- boots


def test_opening_a_room_again_in_the_same_boot_changes_nothing(path: Path) -> None:
    with opened(path) as store:
        before = store.cursor()
        claim(store, held(store, "m1"), lease(60))
    with opened(path) as store:
        assert (store.cursor().store, store.cursor().epoch) == (before.store, before.epoch)
        assert held(store, "m1").lease == lease(60)
        assert store.overdue(moment(), None, 9).found == []


def test_a_new_boot_begins_a_new_epoch_and_ends_all_leases(path: Path) -> None:
    with opened(path) as store:
        before = store.cursor()
        claim(store, held(store, "m1"), lease(60))
    with opened(path, boot="boot-2") as store:
        after = store.cursor()
        assert (after.store, after.number) == (before.store, before.number + 1)
        assert after.epoch != before.epoch
        (lapsed,) = store.overdue(moment(0, "boot-2"), ["bob"], 9).found
        assert lapsed.delivery.state is State.CLAIMED
    with opened(path, boot="boot-2") as store:
        assert store.cursor() == after


# -- the steps there are


# What the fourth and fifth version added.
FOURTH = "DROP INDEX letters_by_scope; DROP INDEX letters_requests"


def make_older(path: Path) -> None:
    """As the first version left it."""
    with database(path) as room:
        room.execute(f"DROP TABLE aliases; DROP TABLE waiting; {FOURTH}")
        room.pragma("user_version", 1)


def test_a_room_of_the_first_version_is_copied_and_gets_names_that_can_change(path: Path) -> None:
    make_older(path)

    with opened(path) as store:
        store.commit([Rename("bob", "bert")])
        assert ids(store, Query(mailbox="bert")) == ["m1"]

    with database(path.with_name("room.db.before-schema-2")) as copy:
        assert copy.pragma("user_version") == 1
        assert copy.execute("SELECT count(*) FROM letters").get == 1


def test_the_mailboxes_of_the_human_become_one(path: Path) -> None:
    with opened(path) as store:
        send(store, "m2", ["user"])
        send(store, "m3", ["ceo", "user"])
        send(store, "m4", ["human", "user"])
        send(store, "m5", ["bob"], sender="user", key="k")
        send(store, "m6", ["bob"], sender="human")
    make_older(path)

    with opened(path) as store:
        assert ids(store, Query(mailbox="human", order="age")) == ["m2", "m3", "m4"]
        assert ids(store, Query(mailbox="bob", sender="human", order="age")) == ["m5", "m6"]
        assert all_names(store) == ["ann", "bob", "human"]
        assert (spelling_of(store, "user"), spelling_of(store, "ceo")) == ("human", "human")
        assert first_sent(store, "human", "k") is not None


def test_a_room_without_a_human_gets_none(path: Path) -> None:
    make_older(path)
    with opened(path) as store:
        assert all_names(store) == ["ann", "bob"]


def test_a_room_of_the_third_version_is_copied_and_its_conversations_are_indexed(path: Path) -> None:
    with opened(path) as store:
        send(store, "m2")
    with database(path) as room:
        room.execute(FOURTH)
        room.pragma("user_version", 3)

    with opened(path) as store:
        assert ["m2"] == [one.message.id for one in store.letters(LetterQuery(newest_of="conversation"))]
    with database(path.with_name("room.db.before-schema-4")) as copy:
        assert copy.pragma("user_version") == 3


def test_a_room_of_the_second_version_is_copied_and_its_waiting_letters_are_counted(path: Path) -> None:
    with opened(path) as store:
        read(store, send(store, "m2"))
        ack(store, send(store, "m3"))
        bury(store, send(store, "m4"))
        claim(store, send(store, "m5", sender="eve"))
        store.commit([post(letter("m6", sender="eve"), due_at=after(9))])
        send(store, "m7", ["bob", "cleo", "x@far", "y@FAR/team", "@far", "z@near", "w@*"])
        store.commit([Rename("bob", "bert")])
    with database(path) as room:
        room.execute("DROP TABLE waiting")
        room.execute(FOURTH)
        room.pragma("user_version", 2)

    with opened(path) as store:
        assert (waiting_letters(store, "bert", "ann"), waiting_letters(store, "bob", "eve")) == ((4, 2), (4, 2))
        elsewhere = [waiting_letters(store, name, "ann") for name in ("x@far", "q@near", "w@*", "cleo", "dora")]
        assert elsewhere == [(3, 3), (1, 1), (1, 1), (1, 1), (0, 0)]
    with database(path) as room:
        assert room.execute(WRONG).get == 0
        fresh = "SELECT count(*) FROM letters WHERE number >= (SELECT letters FROM waiting WHERE place = 0)"
        assert room.execute(fresh).get == 0
    with database(path.with_name("room.db.before-schema-3")) as copy:
        assert copy.pragma("user_version") == 2
