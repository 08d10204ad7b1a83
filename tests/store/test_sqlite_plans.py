"""Questions that are asked often are answered from a small index, however much mail there ever was."""

from __future__ import annotations

import pytest

from postroom.model.delivery import State
from postroom.model.message import Priority
from postroom.model.query import LetterQuery, Query
from postroom.store.queries import Statement
from postroom.store.sqlite.queries import queries
from postroom.store.sqlite.store import SqliteStore
from tests.letters import NOW, moment

UNREAD = (State.UNREAD,)


def plan(store: SqliteStore, statement: Statement) -> list[str]:
    """How SQLite answers: one line per table it reads."""
    sql, values = statement
    steps = [str(row[3]) for row in store.query(f"EXPLAIN QUERY PLAN {sql}", values)]
    return [step for step in steps if step.startswith(("SCAN", "SEARCH", "USE TEMP"))]


def scans(steps: list[str]) -> list[str]:
    """The tables that are read from end to end (a part of the question itself is no table)."""
    tables = ("d", "l", "m", "c", "letters", "deliveries", "mailboxes", "records", "changes")
    return [step for step in steps if step.startswith("SCAN") and step.split()[1] in tables]


CHECK = Query(mailbox="bob", states=UNREAD, unread_only=True, offered_at=NOW, due_at=NOW, limit=20)
CLAIM = Query(mailbox="bob", states=UNREAD, offered_at=NOW, due_at=NOW, order="priority", limit=1)
INBOX = Query(mailbox="bob", states=UNREAD, offered_at=NOW, due_at=NOW, limit=20)
NARROW = Query(
    mailbox="bob", states=UNREAD, min_priority=Priority.HIGH, kinds=("task",), order="priority", limit=1
)


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        pytest.param(queries.find(CHECK), "deliveries_unread", id="check"),
        pytest.param(queries.find(INBOX), "deliveries_unread", id="inbox"),
        pytest.param(queries.find_offered(CLAIM), "deliveries_unread", id="claim"),
        pytest.param(queries.find_offered(NARROW), "deliveries_unread", id="narrow claim"),
        pytest.param(queries.count(CHECK, "priority"), "deliveries_unread", id="count"),
        pytest.param(queries.find(Query(mailbox="bob", states=(State.DEAD,))), "deliveries_dead", id="dead"),
        pytest.param(
            queries.find(Query(states=(State.DONE,), unarchived_before=NOW)), "deliveries_unarchived", id="archive"
        ),
        pytest.param(queries.letters(LetterQuery(thread="t")), "letters_by_thread", id="thread"),
        pytest.param(queries.letters(LetterQuery(replies_in="t")), "letters_by_thread", id="replies"),
        pytest.param(
            queries.find(Query(mailbox="bob", thread="t")), "letters_by_thread", id="thread at a mailbox"
        ),
        pytest.param(
            queries.newest_of(LetterQuery(newest_of="thread", limit=9), window=False),
            "letters_by_thread",
            id="threads",
        ),
        pytest.param(
            queries.newest_of(LetterQuery(newest_of="conversation", limit=9), window=False),
            "letters_by_scope",
            id="conversations",
        ),
        pytest.param(queries.letters(LetterQuery(conversation="c")), "letters_by_conversation", id="conversation"),
        pytest.param(queries.letters(LetterQuery(thread_tag="t")), "letters_by_tag", id="tag"),
        pytest.param(
            queries.letters(LetterQuery(beginning="01J", party="bob", order="id", limit=9)),
            "sqlite_autoindex_letters_1 (id>? AND id<?)",
            id="beginning of an id",
        ),
        pytest.param(queries.overdue(moment(), [1, 2], 9), "deliveries_held", id="overdue"),
        pytest.param(queries.overdue(moment(), None, 9), "deliveries_queued", id="overdue anywhere"),
        pytest.param(queries.next_timer(moment(), [1], 60), "deliveries_later", id="next timer"),
        pytest.param(queries.next_timer(moment(), [1], 60), "expiring (expires_at>? AND", id="next expiry"),
    ],
)
def test_a_frequent_question_is_answered_from_its_index(
    store: SqliteStore, statement: Statement, index: str
) -> None:
    steps = plan(store, statement)

    assert any(index in step for step in steps)
    assert [step for step in scans(steps) if "INDEX deliveries_" not in step] == []


@pytest.mark.parametrize(
    "statement",
    [queries.find(CHECK), queries.find(INBOX)],
    ids=["check", "inbox"],
)
def test_an_inbox_is_read_in_the_order_of_its_index(store: SqliteStore, statement: Statement) -> None:
    assert not any(step.startswith("USE TEMP") for step in plan(store, statement))


def test_of_unread_mail_and_of_read_mail_a_claim_sorts_only_the_top(store: SqliteStore) -> None:
    steps = plan(store, queries.find_offered(CLAIM))

    assert [step for step in steps if step.startswith(("SCAN", "USE TEMP"))] == [
        "SCAN fresh",  # at most the limit
        "USE TEMP B-TREE FOR ORDER BY",
        "SCAN seen",
        "USE TEMP B-TREE FOR ORDER BY",
    ]
    assert 2 == sum("deliveries_unread (mailbox=? AND seen=?)" in step for step in steps)


def test_unread_mail_is_counted_without_touching_it(store: SqliteStore) -> None:
    steps = plan(store, queries.count(Query(mailbox="bob", states=UNREAD, unread_only=True), "priority"))

    assert any("COVERING INDEX deliveries_unread" in step for step in steps)


@pytest.mark.parametrize("mailbox", [None, "bob"])
def test_open_and_dead_mail_is_tallied_without_touching_it(store: SqliteStore, mailbox: str | None) -> None:
    steps = plan(store, queries.tally(mailbox))

    for index in ("deliveries_unread", "deliveries_held", "deliveries_queued", "deliveries_dead"):
        assert any(f"COVERING INDEX {index}" in step for step in steps), steps
    assert scans([step for step in steps if "COVERING INDEX deliveries_" not in step]) == []


@pytest.mark.parametrize("query", [LetterQuery(), Query()], ids=["letters", "deliveries"])
def test_all_mail_is_counted_by_the_pages_of_one_tree(store: SqliteStore, query: LetterQuery | Query) -> None:
    statement, values = queries.count(query, "all")
    codes = [row[1] for row in store.query(f"EXPLAIN {statement}", values)]
    assert "Count" in codes and "Next" not in codes


@pytest.mark.parametrize("state", [State.QUEUED, State.UNREAD, State.CLAIMED, State.DEAD])
def test_mail_of_one_state_in_the_whole_room_is_read_from_its_index(store: SqliteStore, state: State) -> None:
    steps = plan(store, queries.find(Query(states=(state,), order="age", limit=9)))

    assert any("INDEX deliveries_" in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN l")]


def test_open_mail_of_the_whole_room_is_chosen_without_touching_it(store: SqliteStore) -> None:
    unread = Query(states=(State.UNREAD,), unread_only=True, offered_at=NOW, limit=9)

    assert any("COVERING INDEX deliveries_unread" in step for step in plan(store, queries.find(unread)))


def test_open_requests_of_the_whole_room_are_looked_up_in_their_own_index(store: SqliteStore) -> None:
    steps = plan(store, queries.find(Query(states=(State.UNREAD,), kinds=("request",), order="age", limit=9)))

    assert any("COVERING INDEX deliveries_unread" in step for step in steps), steps
    assert any("COVERING INDEX letters_requests" in step for step in steps), steps


def test_mail_to_other_systems_is_counted_without_touching_it(store: SqliteStore) -> None:
    steps = plan(store, queries.count(Query(states=(State.QUEUED,)), "mailbox"))

    assert any("INDEX deliveries_queued" in step for step in steps), steps
