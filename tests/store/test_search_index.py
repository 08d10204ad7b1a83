"""The index of words: made when it is needed, of no worth by itself, never trusted further than the room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from postroom.model import delivery, message
from postroom.model.query import LetterQuery
from postroom.model.search import read_query
from postroom.store.protocol import Forget, Move
from postroom.store.sqlite import search
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.store import SqliteStore
from tests.letters import NOW, ack, after, forget, held, letter, names, post
from tests.store.helpers import database, empty_log, mode, opened

MANY = 1300  # more than may wait


def say(store: SqliteStore, first: int, last: int, text: str = "word") -> None:
    """Letters m<first> to m<last - 1>, in one commit; each has a word of its own."""
    store.commit([post(letter(f"m{n}", parts=(message.text(f"{text} w{n}"),))) for n in range(first, last)])


def found(store: SqliteStore, query: str, reader: str | None = "bob", limit: int = 10_000) -> list[str]:
    return names(store.search(read_query(query, NOW), reader, limit))


def all_found(store: SqliteStore, count: int) -> bool:
    """The common word finds every letter, each own word finds its letter."""
    everything = found(store, "word") == [f"m{n}" for n in range(count - 1, -1, -1)]
    return everything and all(found(store, f"w{n}") == [f"m{n}"] for n in range(0, count, max(1, count // 20)))


def in_index(path: Path) -> int:
    """How many letters are in it; 0 if it is not there."""
    if not Path(f"{path}.search").is_file():
        return 0
    with database(Path(f"{path}.search")) as held:
        count: int = held.execute("SELECT letters FROM about").get
        return count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "room.db"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is filled by tens, and at once."""
    monkeypatch.setattr(search, "SLICE", 10)
    monkeypatch.setattr(search, "LONG", 10)
    monkeypatch.setattr(search, "FEW", 0)


# -- who fills it, and when


def test_nobody_pays_for_an_index_that_nobody_needs(path: Path) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 50)
        assert all_found(store, 50)
        assert store.trim().indexed == 0
    assert not list(path.parent.glob("*.search*"))


def test_its_files_are_for_their_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(path, durable=False) as store:
            say(store, 0, 200)
            assert store.trim().indexed == 200
            made = {file.name: mode(file) for file in path.parent.glob("*.search*")}
    finally:
        os.umask(before)
    assert made == dict.fromkeys(
        ["room.db.search", "room.db.search-wal", "room.db.search-shm", "room.db.search.lock"], 0o600
    )


def test_a_search_that_meets_a_long_past_adds_some_of_it_and_scans_the_rest(path: Path) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 6000)
        assert found(store, "w1") == ["m1"]
        assert in_index(path) == search.FILLS * search.SLICE == 4096
        assert all_found(store, 6000)
        assert in_index(path) == 5120  # the rest may wait
        assert store.trim().indexed == 6000 - 5120
        assert all_found(store, 6000)


def test_a_search_that_found_enough_among_the_newest_adds_nothing(path: Path) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 3000)
        assert found(store, "word", limit=3) == ["m2999", "m2998", "m2997"]
        assert in_index(path) == 0
        assert found(store, "w2000", limit=3) == ["m2000"]
        assert in_index(path) == 4 * search.SLICE


def test_a_search_that_looked_at_very_many_letters_adds_an_eighth_of_them(
    path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SLICE", 10)
    with opened(path, durable=False) as store:
        say(store, 0, 4000)
        assert found(store, "w1") == ["m1"]
        assert in_index(path) == 500
        assert found(store, "w1") == ["m1"]
        assert in_index(path) == 500 + 430
        say(store, 4000, 8000)
        assert found(store, "w1") == ["m1"]
        assert in_index(path) == 500 + 430 + search.MOST_FILLS * 10  # no search takes for ever


@pytest.mark.parametrize("others", ["plain", "with \u00e9"])
def test_a_word_is_found_on_every_page_of_letters_that_are_not_in_it(path: Path, others: str) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 900, text=others)
        store.commit([post(letter("cafe", subject="CAF\u00c9 au lait")), post(letter("loud", subject="CAFE"))])
        say(store, 900, 1500, text=others)
        assert found(store, "cafe") == ["loud", "cafe"]
        assert found(store, "cafe lait") == ["cafe"]
        assert found(store, "w255 -cafe") == ["m255"]


def test_a_search_during_an_index_update_does_without_the_index(path: Path) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 200)
        store.trim()
        say(store, 200, MANY + 200)
        before = in_index(path)
        with WriterLock(Path(f"{path}.search.lock"), 0):
            assert store.trim().indexed == 0
            assert all_found(store, MANY + 200)
        assert in_index(path) == before < 1000
        assert store.trim().indexed > 0


def test_large_letters_are_added_few_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SLICE_BYTES", 1000)
    monkeypatch.setattr(search, "FEW", 0)
    with opened(path, durable=False) as store:
        say(store, 0, 5, text="word " * 500)
        assert store.connection().index.fill() == 1
        assert store.trim().indexed == 4
        assert all_found(store, 5)


# -- what is wrong with it


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    file.write_text("not a database" * 1000)


def garble(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as held:
        held.seek(4096)
        held.write(os.urandom(size - 4096))


def spoil(sql: str) -> Callable[[Path], None]:
    def act(file: Path) -> None:
        with database(file) as held:
            held.execute(sql)

    return act


DAMAGE: dict[str, Callable[[Path], None]] = {
    "gone": lambda file: file.unlink(),
    "empty": lambda file: os.truncate(file, 0),
    "cut": cut,
    "garbled": garble,
    "text": overwrite,
    "no table": spoil("DROP TABLE about"),
    "no row": spoil("DELETE FROM about"),
    "two rows": spoil("INSERT INTO about SELECT * FROM about"),
    "another room's": spoil("UPDATE about SET room = 'another'"),
    "another version's": spoil("UPDATE about SET version = 99"),
    "ahead": spoil("UPDATE about SET upto = upto + 1000"),
    "another letter": spoil("UPDATE about SET last = 'm1x'"),
    "no words": spoil("DROP TABLE words"),
    "broken words": spoil("UPDATE words_data SET block = x'00ff00ff' WHERE id > 10"),
    "broken structure": spoil("UPDATE words_data SET block = x'ff' WHERE id = 10"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("while_open", [False, True], ids=["closed", "open"])
def test_a_damaged_index_is_made_again_and_hides_nothing(
    path: Path, small: None, damage: str, while_open: bool
) -> None:
    file = Path(f"{path}.search")
    with opened(path, durable=False) as store:
        say(store, 0, 130)
        store.trim()
        if while_open and damage in {"empty", "cut", "garbled", "text"}:
            store.connection().index.close()  # who holds the old file open has a right to it
        if not while_open:
            store.close()
        empty_log(file)
        DAMAGE[damage](file)
        assert all_found(store, 130)
        say(store, 130, 260)
        assert all_found(store, 260)
        store.trim()
        assert in_index(path) == 260
        assert all_found(store, 260)


@pytest.mark.parametrize("also", [(), ("-wal",), ("-shm",), ("-wal", "-shm", ".lock")], ids=str)
def test_it_may_be_deleted_at_any_time_while_others_use_it(path: Path, small: None, also: tuple[str, ...]) -> None:
    with opened(path, durable=False) as one, opened(path, durable=False) as two:
        say(one, 0, 130)
        one.trim()
        assert all_found(two, 130)
        for end in ("", *also):
            Path(f"{path}.search{end}").unlink()
        assert all_found(two, 130)
        say(one, 130, 260)
        two.trim()
        assert all_found(one, 260)
        assert all_found(two, 260)
        assert in_index(path) == 260


@pytest.mark.parametrize("place", ["folder", "link", "link to nothing"])
def test_what_stands_in_its_place_is_not_written_to_and_stops_nobody(path: Path, place: str) -> None:
    file, elsewhere = Path(f"{path}.search"), path.parent / "elsewhere"
    if place == "folder":
        file.mkdir()
    else:
        file.symlink_to(elsewhere)
    if place == "link":
        elsewhere.write_text("mine")
    with opened(path, durable=False) as store:
        for n in range(MANY):
            say(store, n, n + 1)
        store.trim()
        assert all_found(store, MANY)
    assert not elsewhere.exists() or elsewhere.read_text() == "mine"


def test_a_disk_that_takes_no_index_stops_neither_search_nor_send(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise apsw.FullError("no space")

    with opened(path, durable=False) as store:
        monkeypatch.setattr(search.Index, "_add", full)
        for n in range(MANY):
            say(store, n, n + 1)
        assert store.trim().indexed == 0
        assert all_found(store, MANY)


@pytest.mark.parametrize("limit", [1, 40, 1000])
def test_an_index_that_fails_in_the_middle_of_a_search_hides_nothing(
    path: Path, small: None, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 150)
        store.trim()
        before = found(store, "word -w149", limit=limit)
        request = search.Index.candidates

        def fail_at_last(self: search.Index, expression: str, upto: int, most: int) -> list[int] | None:
            return request(self, expression, upto, most) if upto > 140 and limit > 1 else None

        monkeypatch.setattr(search.Index, "candidates", fail_at_last)
        assert found(store, "word -w149", limit=limit) == before == [f"m{n}" for n in range(148, -1, -1)][:limit]


def test_an_index_that_was_found_broken_is_not_kept(path: Path, small: None) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 40)
        store.trim()
        held, file = store.connection().index, Path(f"{path}.search")
        upto = held.upto()
        DAMAGE["broken words"](file)
        assert held.candidates('"word"', upto, 10) is None
        assert not file.exists()
        assert held.candidates('"word"', upto, 10) is None
        assert all_found(store, 40)


def test_the_index_is_asked_on_until_enough_is_found(path: Path, small: None) -> None:
    with opened(path, durable=False) as store:
        store.commit(
            [post(letter(f"old{n}", subject="word", created_at=after(-86_400))) for n in range(3)],
        )
        say(store, 0, 150)
        store.trim()
        for limit, expected in ((1, ["old2"]), (2, ["old2", "old1"]), (100, ["old2", "old1", "old0"])):
            assert found(store, "word before:1h", limit=limit) == expected


# -- a room that is not what it was


def test_an_index_of_letters_that_a_restored_room_does_not_have_is_made_again(path: Path, small: None) -> None:
    with opened(path) as store:
        say(store, 0, 20)
    empty_log(path)
    shutil.copy(path, path.with_name("backup"))
    with opened(path) as store:
        say(store, 20, 40, text="lost")
        store.trim()
        assert len(found(store, "lost")) == 20
    empty_log(path)
    shutil.copy(path.with_name("backup"), path)
    path.with_name(f"{path.name}.lock").unlink()  # whose note says that the room reached further
    for more in (0, 15, 40):  # the room is behind its index, still behind, and past it
        with opened(path) as store:
            first = len(found(store, "word"))
            say(store, first, first + more)
            assert found(store, "lost") == []
            assert all_found(store, first + more)
            store.trim()
            assert all_found(store, first + more)


def test_the_index_of_another_room_is_made_again_though_its_letters_have_the_same_names(
    path: Path, small: None
) -> None:
    other = path.with_name("other.db")
    for place, text in ((path, "word"), (other, "stranger")):
        with opened(place) as store:
            say(store, 0, 20, text)
            store.trim()
        empty_log(Path(f"{place}.search"))
    shutil.copy(f"{other}.search", f"{path}.search")
    with opened(path) as store:
        assert all_found(store, 20)
        assert found(store, "stranger") == []


def test_an_index_outlives_the_deletion_of_the_letter_it_ends_with(path: Path, small: None) -> None:
    with opened(path) as store:
        say(store, 0, 20)
        store.trim()
        made = Path(f"{path}.search").stat().st_ino
        ack(store, held(store, "m19"))
        store.commit(forget(store.get(["m19"])["m19"].message))
        say(store, 20, 21)
        assert found(store, "word") == ["m20", *(f"m{n}" for n in range(18, -1, -1))]
        assert store.trim().indexed == 1
        assert Path(f"{path}.search").stat().st_ino == made


def test_an_index_that_is_mostly_about_the_past_is_made_again(
    path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SPARE", 5)
    with opened(path, durable=False) as store:
        say(store, 0, 40)
        store.trim()
        for gone in store.letters(LetterQuery(limit=30)):
            ack(store, held(store, gone.message.id))
            store.commit(forget(gone.message))
        assert store.trim().indexed == 10
        assert in_index(path) == 10
        assert found(store, "word") == [f"m{n}" for n in range(39, 29, -1)]


@pytest.mark.parametrize("when", ["before it is in the index", "after"])
def test_a_damaged_letter_is_set_aside_by_the_search_that_meets_it(path: Path, small: None, when: str) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 9)
        if when == "after":
            store.trim()
        with database(path) as room:
            room.execute("UPDATE letters SET body = replace(body, 'word', 'work') WHERE id IN ('m4', 'm8')")
        store.trim()
        assert found(store, "-nothing") == ["m7", "m6", "m5", "m3", "m2", "m1", "m0"]
        assert store.quarantined() == (["m4", "m8"] if when == "after" else ["m8"])  # one not in it is not met
        say(store, 9, 20)
        store.trim()
        assert found(store, "w19") == ["m19"]


def test_a_false_index_shows_nothing_false(path: Path, small: None) -> None:
    with opened(path, durable=False) as store:
        say(store, 0, 10)
        store.trim()
        with database(Path(f"{path}.search")) as held:
            held.execute("INSERT INTO words (rowid, said) VALUES (3, 'invented \ue001'), (999, 'invented \ue001')")
        assert found(store, "invented", None) == []
        assert all_found(store, 10)


# -- the letters of one agent


@pytest.mark.parametrize("indexed", [0, 40, 100], ids=["no index", "behind", "complete"])
def test_an_agent_finds_its_own_letters_whatever_the_index_holds(path: Path, small: None, indexed: int) -> None:
    del small
    with opened(path, durable=False) as store:

        def send(first: int, last: int) -> None:
            for n in range(first, last):
                to = ["bob"] if n % 7 == 0 else ["dan"]
                sender = "bob" if n % 11 == 0 else "ann"
                talk = {"conversation_id": f"talk-{n % 3}"} if n % 2 else {}
                store.commit([post(letter(f"m{n}", to, sender=sender, thread_id=f"t{n % 5}", **talk))])

        send(0, indexed)
        assert indexed == store.trim().indexed
        send(indexed, 100)
        unsent = held(store, "m63")
        store.commit([Move(unsent, delivery.unsend(unsent, NOW), "unsend")])
        ack(store, held(store, "m70"))
        store.commit([Forget("m70")])

        own = [n for n in range(100) if (n % 7 == 0 or n % 11 == 0) and n not in {63, 70}]
        expected = [f"m{n}" for n in reversed(own)]
        newest = LetterQuery(party="bob", order="newest")
        assert expected == names(store.letters(newest))
        assert expected[:5] == names(store.letters(replace(newest, limit=5)))
        assert expected[3:8] == names(store.letters(replace(newest, skip=3, limit=5)))
        assert len(expected) == store.count(LetterQuery(party="bob"), by="all")
        assert [f"m{n}" for n in range(99, -1, -11)] == names(
            store.letters(LetterQuery(sender="bob", order="newest"))
        )
        threads = {n % 5: f"m{n}" for n in own}
        talks = {n % 3 if n % 2 else -1: f"m{n}" for n in own}
        assert set(threads.values()) == set(names(store.letters(LetterQuery(party="bob", newest_of="thread"))))
        assert set(talks.values()) == set(names(store.letters(LetterQuery(party="bob", newest_of="conversation"))))
