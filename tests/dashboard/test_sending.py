"""What a person does while an answer is on its way, and what cannot be sent: each answer goes to its own letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from postroom.room import Room
from tests.dashboard.browser import House, Tab, house
from tests.dashboard.test_answers import answers, asked, pick
from tests.server.http.running import daemon

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Each action is held back until the test lets it go, as a person's process does that asks for a passphrase.
HELD = """(() => {
  const send = WebSocket.prototype.send;
  globalThis.held = [];
  globalThis.holds = true;
  WebSocket.prototype.send = function (text) {
    const { method, params } = JSON.parse(text);
    if (method === "visit/act" && params.verb !== "shown" && globalThis.holds)
      globalThis.held.push(() => send.call(this, text));
    else send.call(this, text);
  };
})()"""


@pytest.fixture(scope="module")
def one(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("room"), *words) as running, house(running, browser) as open_house:
        yield open_house


@pytest.fixture
def room(one: House) -> Iterator[Room]:
    with one.room() as opened:
        yield opened


def write(tab: Tab, key: str, words: str) -> None:
    tab.press(key)
    tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
    tab.type(words)


def hold(tab: Tab) -> None:
    tab.page.evaluate(HELD)


def wait_for_held(tab: Tab) -> None:
    tab.page.wait_for_function("() => globalThis.held.length === 1")


def let_go(tab: Tab) -> None:
    tab.page.evaluate("() => { globalThis.holds = false; for (const go of globalThis.held.splice(0)) go(); }")


def answer_another_meanwhile(tab: Tab, subject: str) -> None:
    """Answer three letters; while the first answer is on its way, begin to answer a fourth one."""
    pick(tab, f"{subject} 0")
    tab.press("v", "j", "v", "j", "v")
    tab.see(".marked-bar", "3 letters marked")
    hold(tab)
    write(tab, "r", "for the three")
    tab.press("Enter")
    wait_for_held(tab)
    tab.press("Escape", "v", "k", "v", "k", "v")
    tab.gone(".marked-bar")
    pick(tab, f"{subject} other")
    tab.press("r")


def test_words_for_another_letter_are_not_sent_to_the_rest_of_several(one: House, room: Room) -> None:
    letters = [asked(room, "May I?", subject=f"First batch {number}") for number in range(3)]
    other = asked(room, "And I?", subject="First batch other")
    with one.tab() as tab:
        answer_another_meanwhile(tab, "First batch")
        tab.see(".notices .bad", "What you sent is still on its way.")
        assert 0 == tab.page.locator("#compose-words").count()
        let_go(tab)
        tab.see(".notices", "Done with 3 letters.")
        write(tab, "r", "for the other")
        tab.press("Enter")
        tab.see(".notices", "Answered coder.")
        assert [["for the three"]] * 3 == [answers(room, letter) for letter in letters]
        assert ["for the other"] == answers(room, other)
        assert [] == tab.complaints()


def test_a_composer_that_opens_meanwhile_is_found(one: House, room: Room) -> None:
    """The twin: an answer is begun while others are on their way. Even then each letter gets its own words."""
    letters = [asked(room, "May I?", subject=f"Second batch {name}") for name in ("0", "1", "2", "other")]
    with one.tab(plant={"composer.js": ("if (this.isSending) return say(SENDING, true);", "")}) as tab:
        answer_another_meanwhile(tab, "Second batch")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        assert 0 == tab.page.locator(".notices .bad").count()
        tab.page.evaluate(
            """() => {
              const box = document.getElementById("compose-words");
              box.value = "for the other";
              box.dispatchEvent(new Event("input"));
            }"""
        )
        let_go(tab)
        tab.see(".notices", "Done with 3 letters.")
        assert [["for the three"]] * 3 + [[]] == [answers(room, letter) for letter in letters]


def test_the_end_of_sending_leaves_the_focus_where_the_person_went(one: House, room: Room) -> None:
    letter = asked(room, "May I?", subject="Go on meanwhile")
    with one.tab() as tab:
        pick(tab, "Go on meanwhile")
        hold(tab)
        write(tab, "r", "You may.")
        tab.press("Enter")
        wait_for_held(tab)
        tab.press("Escape")
        tab.see(".notices", "What you sent is still on its way.")
        tab.page.focus("#search")
        let_go(tab)
        tab.see(".notices", "Answered coder.")
        assert "search" == tab.page.evaluate("document.activeElement.id")
        assert ["You may."] == answers(room, letter)


def test_words_whose_sending_fails_after_they_were_left_are_kept(one: House, room: Room) -> None:
    letter = asked(room, "Who is first?", subject="Left and lost")
    with one.tab() as tab:
        pick(tab, "Left and lost")
        hold(tab)
        write(tab, "r", "The page is slow.")
        tab.press("Enter")
        wait_for_held(tab)
        tab.press("Escape")
        room.mailbox("human").read(letter).ack_and_reply("The terminal was first.")
        let_go(tab)
        tab.see(".notices .bad", "It no longer waits for you. Nothing was done.")
        kept = tab.page.evaluate("(id) => localStorage.getItem(`postroom.draft ${id} reply`)", letter)
        assert "The page is slow." in kept
        assert ["The terminal was first."] == answers(room, letter)


def test_enter_on_the_button_back_sends_nothing(one: House, room: Room) -> None:
    letter = asked(room, "Really?", subject="Think again")
    with one.tab() as tab:
        pick(tab, "Think again")
        write(tab, "r", "not yet")
        tab.page.focus(".composer button:has-text('Back')")
        tab.press("Enter")
        tab.see(".notices", "Kept: the same key shows it again.")
        assert [] == answers(room, letter)
        write(tab, "r", "")
        tab.page.focus(".composer button.primary")
        tab.press("Enter")
        tab.see(".notices", "Answered coder.")
        assert ["not yet"] == answers(room, letter)


@pytest.mark.parametrize("quicker", [0, 1])
def test_of_several_it_is_said_how_many_no_longer_waited(one: House, room: Room, quicker: int) -> None:
    letters = [asked(room, "May I?", subject=f"Raced {quicker} {number}") for number in range(2)]
    with one.tab() as tab:
        pick(tab, f"Raced {quicker} 0")
        tab.press("v", "j", "v")
        tab.see(".marked-bar", "2 letters marked")
        write(tab, "r", "from the page")
        room.mailbox("human").read(letters[quicker]).ack_and_reply("from the terminal")
        tab.press("Enter")
        tab.see(".notices", "Answered coder. 1 no longer waited for you.")
        wanted = [["from the page"], ["from the page"]]
        wanted[quicker] = ["from the terminal"]
        assert wanted == [answers(room, letter) for letter in letters]


@pytest.mark.parametrize("text", ["a\\0b", "a\\ud83d", "\\udc00b"])
def test_text_that_no_service_can_read_is_refused_at_once(one: House, room: Room, text: str) -> None:
    letter = asked(room, "What?", subject="Odd text")
    with one.tab() as tab:
        pick(tab, "Odd text")
        write(tab, "r", "x")
        tab.page.evaluate(
            """(words) => {
              const box = document.getElementById("compose-words");
              box.value = JSON.parse(`"${words}"`);
              box.dispatchEvent(new Event("input"));
            }""",
            text.replace("\\0", "\\u0000"),
        )
        tab.press("Enter")
        tab.see(".problem", "It holds a NUL or half a surrogate pair, which cannot be sent.")
        assert [] == answers(room, letter)
        tab.page.fill("#compose-words", "whole: \\u0000 \\ud83d \U0001f600")
        tab.press("Enter")
        tab.see(".notices", "Answered coder.")
        assert ["whole: \\u0000 \\ud83d \U0001f600"] == answers(room, letter)


def test_a_search_for_such_text_says_so(one: House) -> None:
    with one.tab("#/search?q=%00") as tab:
        tab.see("main .state.failed", "It holds a NUL or half a surrogate pair, which cannot be sent.")
        assert [] == tab.complaints()


@pytest.mark.parametrize("name", ["__proto__", "constructor", "nothing"])
def test_agents_in_no_known_order_are_in_the_first_one(one: House, room: Room, name: str) -> None:
    room.mailbox("coder").register()
    with one.tab(f"#/agents?sort={name}") as tab:
        tab.see("main .list [role=option]", "coder")
        assert "backlog" == tab.page.input_value("main .pane-head select")
        assert [] == tab.complaints()
