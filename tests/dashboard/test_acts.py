"""What else is done in the page: tasks, dead letters, new letters. Each key and button is looked up in the room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from postroom.room import Room
from tests.daemons import until
from tests.dashboard.browser import House, Tab, house
from tests.server.http.running import daemon

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def one(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with (
        daemon(tmp_path_factory.mktemp("room"), *words) as running,
        house(running, browser, "--operator") as open_house,
    ):
        yield open_house


@pytest.fixture
def room(one: House) -> Iterator[Room]:
    with one.room() as opened:
        yield opened


def kill_letters(room: Room, mailbox: str, many: int) -> list[str]:
    """Letters that died at a mailbox."""
    ids = [room.mailbox("sender").send(mailbox, "x", subject=f"Lost {number}").id for number in range(many)]
    for _ in ids:
        work = room.mailbox(mailbox).claim()
        assert work is not None
        work.fail("no parser", retry=False)
    return ids


def dead(room: Room, mailbox: str) -> set[str]:
    return {letter.id for letter in room.mailbox(mailbox).dead()}


def write(tab: Tab, words: str) -> None:
    tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
    tab.type(words)
    tab.press("Enter")


def test_marked_dead_letters_are_revived_and_others_stay(one: House, room: Room) -> None:
    first, second, third = kill_letters(room, "worker", 3)
    with one.tab("#/dead?mailbox=worker&reason=no+parser") as tab:
        tab.see(".list [role=option]", "Lost 2")
        tab.press("j", "v", "j", "v", "R")
        tab.see(".notices", "Revived 2 letters.")
        assert {third} == dead(room, "worker")
        assert {first, second} == {letter.id for letter in room.mailbox("worker").check(peek=True)}
        assert [] == tab.complaints()


def test_all_that_match_are_revived_after_a_question(one: House, room: Room) -> None:
    kill_letters(room, "many", 12)
    kept = kill_letters(room, "few", 2)
    with one.tab("#/dead") as tab:
        tab.page.locator(".groups a").filter(has_text="many").click()
        tab.page.click("button:has-text('Revive all 12')")
        tab.see("dialog.confirm", "Revive 12 letters?")
        assert 12 == len(dead(room, "many"))
        tab.page.click("dialog button:has-text('No')")
        assert 12 == len(dead(room, "many"))
        tab.page.click("button:has-text('Revive all 12')")
        tab.page.click("dialog button:has-text('Revive 12')")
        tab.see(".notices", "Revived 12 letters.")
        assert set() == dead(room, "many")
        assert set(kept) == dead(room, "few")


def test_dead_letters_are_deleted_only_after_their_number_was_typed(one: House, room: Room) -> None:
    kill_letters(room, "gone", 1)
    with one.tab("#/dead?mailbox=gone") as tab:
        tab.see(".list [role=option]", "Lost 0")
        tab.press("j")
        tab.page.click("button:has-text('Delete')")
        tab.see("dialog.confirm", "cannot be read or revived")
        assert tab.page.locator("dialog button.danger").is_disabled()
        tab.page.fill("dialog input", "1")
        tab.page.click("dialog button.danger")
        tab.see(".notices", "Deleted 1 letter.")
        assert set() == dead(room, "gone")


def test_a_visit_without_the_right_is_told_how_to_get_it(one: House, browser: Browser, room: Room) -> None:
    kill_letters(room, "other", 1)
    with house(one.daemon, browser) as plain, plain.tab("#/dead?mailbox=other") as tab:
        tab.see(".list [role=option]", "Lost 0")
        tab.press("j", "R")
        tab.see(".notices", "postroom dashboard --operator")
        assert 1 == len(dead(room, "other"))


def test_own_dead_letters_are_revived_without_the_right_of_an_operator(
    one: House, browser: Browser, room: Room
) -> None:
    kill_letters(room, "human", 2)
    with house(one.daemon, browser) as plain, plain.tab("#/dead?mailbox=human") as tab:
        tab.see(".list [role=option]", "Lost 1")
        tab.press("g", "v", "j", "v", "R")
        tab.see(".notices", "Revived 2 letters.")
        assert set() == dead(room, "human")
        assert 0 == tab.page.locator("button:has-text('Delete'), button:has-text('Revive all')").count()


def test_a_task_is_given_and_canceled_and_its_receiver_is_told(one: House, room: Room) -> None:
    with one.tab("#/tasks") as tab:
        tab.see("main h1", "Tasks")
        tab.press("i")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-to'")
        tab.type("coder")
        tab.page.fill(".composer input >> nth=1", "Paint it green")
        tab.page.fill("#compose-words", "All of it.")
        tab.press("Enter")
        tab.see(".notices", "Given to coder.")
        (task,) = room.mailbox("coder").tasks()
        assert "pending" == str(task.state)
        task.accept()
        tab.page.locator(".task").filter(has_text="Paint it green").click()
        tab.see(".reader .body", "All of it.")
        tab.press("x")
        tab.page.click("dialog button:has-text('Cancel the task')")
        write(tab, "No longer needed.")
        tab.see(".notices", "Canceled.")
        until(lambda: str(room.mailbox("coder").tasks()[0].state) == "canceled")
        assert [] == tab.complaints()


def test_a_task_of_the_person_goes_from_accepted_to_complete(one: House, room: Room) -> None:
    given = room.mailbox("planner").give_task("human", "Choose one.", subject="Choose a name")
    with one.tab() as tab:
        tab.see(".list [role=option]", "Choose a name")
        tab.press("g")
        tab.see(".row.picked", "Choose a name")
        tab.press("a")
        write(tab, "")
        tab.see(".notices", "Accepted; planner is notified.")
        tab.see(".row", "accepted")
        tab.gone(".fresh")  # what one did oneself is not new
        tab.press("c")
        write(tab, "Postroom")
        tab.see(".notices", "Complete; planner has the result.")
        until(lambda: str(room.mailbox("planner").task(given.id).state) == "completed")


def test_a_letter_is_written_and_taken_back(one: House, room: Room) -> None:
    with one.tab("#/agent/planner") as tab:
        tab.see("main h1", "planner")
        tab.press("w")
        write(tab, "On second thought")
        tab.see(".notices", "Sent to planner.")
        assert "On second thought" in [letter.text for letter in room.mailbox("planner").check(peek=True)]
        tab.go("#/waiting?show=sent")
        tab.see("main h1", "What you sent")
        tab.see(".list [role=option]", "On second thought")
        tab.see(".row.picked", "On second thought")
        tab.press("u")
        tab.see(".notices", "Taken back from planner.")
        assert "On second thought" not in [letter.text for letter in room.mailbox("planner").check(peek=True)]


def test_the_receipt_of_a_letter_names_an_agent_that_was_never_seen(one: House, room: Room) -> None:
    with one.tab() as tab:
        tab.see("main h1", "Waiting for you")
        tab.press("w")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-to'")
        tab.type("coderr")
        tab.page.fill("#compose-words", "Hello.")
        tab.press("Enter")
        tab.see(".notices", "Sent to coderr. No agent named coderr has been seen here yet. The letter will wait.")
        tab.press("w")
        tab.page.wait_for_function("() => document.querySelector('#compose-names option')")


def test_the_doctor_looks_at_the_room(one: House) -> None:
    with one.tab("#/numbers") as tab:
        tab.page.click("button:has-text('Run the doctor')")
        tab.see(".findings h2", "The doctor found")
        assert [] == tab.complaints()
