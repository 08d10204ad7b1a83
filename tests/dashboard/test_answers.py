"""What a person does with what waits, by keys alone, and what the room and the agents then have: each thing once."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from postroom import draft
from postroom.room import Room
from tests.daemons import until
from tests.dashboard.browser import STORED, House, Tab, house
from tests.server.http.running import daemon
from tests.server.http.visiting import code_of, lending

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def one(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("room"), *words) as running, house(running, browser) as open_house:
        yield open_house


@pytest.fixture
def room(one: House) -> Iterator[Room]:
    with one.room() as opened:
        yield opened


def asked(room: Room, text: str, **fields: Any) -> str:
    return room.mailbox("coder").send("human", text, kind="request", **fields).id


def answers(room: Room, letter: str) -> list[str]:
    return [answer.text for answer in room.mailbox("coder").trace(letter).replies]


def pick(tab: Tab, text: str) -> None:
    """Go to a row by keys."""
    tab.see(".list [role=option]", text)
    tab.press("g")
    for _ in tab.rows():
        if text in tab.text(".row.picked"):
            break
        tab.press("j")
    tab.see(".reader .subject", text)


def answer(tab: Tab, text: str, words: str, key: str = "r") -> None:
    pick(tab, text)
    tab.press(key)
    tab.see("#compose-words")
    tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
    tab.type(words)
    tab.press("Enter")


def test_from_the_link_to_an_answered_question_by_keys_alone(one: House, room: Room) -> None:
    escalated = room.mailbox("coder").escalate("May I drop it?", subject="Drop the index", reason="approval").id
    with lending(one.daemon) as (_, code), one.tab(f"#code={code}", token="of nobody") as tab:  # noqa: S106 - it is none
        answer(tab, "Drop the index", "but keep a copy", "a")
        tab.see(".notices", "Approved; coder is notified.")
        got = until(lambda: answers(room, escalated))
        assert ["approved: but keep a copy"] == got
        # The agent gets it proven: signed with the person's own key.
        proven = room.mailbox("coder").trace(escalated).replies[0]
        assert proven.sender == "human"
        assert proven.proof is not None
        tab.gone(".list [role=option]", "Drop the index")
        assert code not in tab.page.url
        tab.expected = ("401",)  # the other token
        assert [] == tab.complaints()


def test_a_link_is_good_once(one: House) -> None:
    with one.tab("#code=" + "a" * 43) as tab:
        tab.see("main.locked", "postroom dashboard")
        assert "a" * 43 not in tab.page.url
        tab.open("?#/tasks")
        tab.see(".connection.good")
        tab.go("#code=" + "b" * 43)
        tab.see(".notices", "this link is unknown")
        tab.see("nav")
        tab.expected = ("403",)
        assert [] == tab.complaints()


@pytest.mark.parametrize("at", ["start", "open tab"])
def test_a_link_ends_no_living_visit_by_itself(one: House, at: str) -> None:
    code, again = opened_without_key(one), opened_without_key(one)
    with one.tab(f"#code={code}" if at == "start" else "#/tasks") as tab:
        if at != "start":
            tab.see("nav")
            tab.go(f"#code={code}")
        tab.see("main.locked [role=alert]", "Opened without the person's key: an agent may have made the link.")
        assert code not in tab.page.url
        tab.page.click("text=Stay in this visit")
        tab.see(".connection.good")
        assert one.token == tab.page.evaluate(f"localStorage.getItem({STORED!r})")
        assert 0 == tab.page.locator(".unproven").count()
        tab.go(f"#code={again}")
        tab.page.click("text=Change to the other one")
        tab.see(".unproven", "Opened without the person's key: it can only look.")
        assert one.token != tab.page.evaluate(f"localStorage.getItem({STORED!r})")
        assert [] == tab.complaints()


def test_a_link_opens_a_page_that_is_locked(one: House) -> None:
    with one.tab("#code=" + "a" * 43, token="of nobody") as tab:  # noqa: S106 - it is none
        tab.see("main.locked")
        code = opened_without_key(one)
        tab.go(f"#code={code}")
        tab.see(".connection.good")
        assert code not in tab.page.url
        tab.expected = ("403", "401")
        assert [] == tab.complaints()


@pytest.mark.parametrize("name", ["constructor", "__proto__", "nowhere"])
def test_an_address_of_no_view_shows_what_waits(one: House, name: str) -> None:
    with one.tab(f"#/{name}") as tab:
        tab.see(".panes")
        assert [] == tab.complaints()


def opened_without_key(one: House) -> str:
    """The code of a visit that any process of this user gets."""
    with ThreadPoolExecutor(1) as thread:  # the thread of the tests has an event loop, that of Playwright
        return thread.submit(code_of, one.daemon).result()


def test_several_are_answered_at_once(one: House, room: Room) -> None:
    letters = [asked(room, f"May I? {number}", subject=f"Several {number}") for number in range(3)]
    with one.tab() as tab:
        pick(tab, "Several 0")
        for _ in letters:
            tab.press("v", "j")
        tab.see(".marked-bar", "3 letters marked")
        tab.press("r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("Yes, all of you.")
        tab.press("Enter")
        tab.see(".notices", "Done with 3 letters.")
        assert [["Yes, all of you."]] * 3 == [answers(room, letter) for letter in letters]
        tab.gone(".list [role=option]", "Several")


def test_done_asks_once_more_where_a_letter_was_not_opened(one: House, room: Room) -> None:
    letters = [asked(room, "Nothing to answer", subject=f"For your information {number}") for number in (1, 2)]
    with one.tab(viewport={"width": 800, "height": 800}) as tab:  # narrow: a picked letter is not shown
        tab.see(".list [role=option]", "For your information 2")
        tab.press("G", "x")
        tab.see(".notices", "You have not opened it. x again: done with it.")
        tab.press("x")
        tab.gone(".notices", "You have not opened it.")  # the same words end it, but for a capital letter
        tab.see(".notices", "Done with it.")
        done = [str(room.mailbox("human").trace(letter).stops[0].state) for letter in letters]
        assert ["unread", "done"] == done


def test_a_draft_survives_the_page(one: House, room: Room) -> None:
    asked(room, "What do you think?", subject="Think about it")
    with one.tab() as tab:
        pick(tab, "Think about it")
        tab.press("r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("I have begun")
        tab.page.reload()
        pick(tab, "Think about it")
        tab.see(".row.picked .chip.draft")
        tab.press("r")
        tab.page.wait_for_function("() => document.getElementById('compose-words')?.value === 'I have begun'")
        tab.press("Escape")
        tab.see(".notices", "Kept: the same key shows it again.")


def test_a_draft_that_was_not_stored_is_missed(one: House, room: Room) -> None:
    """The twin: nothing is stored while one types."""
    asked(room, "And of this?", subject="Lost in thought")
    with one.tab(plant={"composer.js": ("this.#keep();\n}\n\ntemplate", "}\n\ntemplate")}) as tab:
        pick(tab, "Lost in thought")
        tab.press("r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("I have begun")
        tab.page.reload()
        pick(tab, "Lost in thought")
        assert 0 == tab.page.locator(".row.picked .chip.draft").count()


def test_keys_do_nothing_while_one_types(one: House, room: Room) -> None:
    asked(room, "Type here", subject="Type into this")
    with one.tab() as tab:
        answer(tab, "Type into this", "1234 xjka? dgG", "r")
        tab.see(".notices", "Answered coder.")
        assert "#/waiting" in tab.page.url


def test_somebody_else_was_quicker(one: House, room: Room) -> None:
    letter = asked(room, "Who is first?", subject="A race")
    with one.tab() as tab:
        pick(tab, "A race")
        tab.press("r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("The page is slow.")
        room.mailbox("human").read(letter).ack_and_reply("The terminal was first.")
        tab.press("Enter")
        tab.see(".problem", "It no longer waits for you. Nothing was done. Your words are kept here.")
        assert "The page is slow." == tab.page.input_value("#compose-words")
        assert ["The terminal was first."] == answers(room, letter)


def test_what_does_not_fit_in_one_answer_is_counted_and_can_be_reached(one: House, room: Room) -> None:
    for number in range(3):
        asked(room, "Next?", subject=f"One of many {number}", priority="low")
    with one.tab(plant={"app.js": ("const PAGE = 1000;", "const PAGE = 1;")}) as tab:
        tab.see(".pane-head", "1 of ")
        while tab.page.locator(".pane-head button:has-text('Show more')").count():
            before = tab.text(".pane-head .faint")
            tab.page.click(".pane-head button:has-text('Show more')")
            tab.page.wait_for_function(
                "(before) => document.querySelector('.pane-head .faint').innerText !== before", arg=before
            )
        assert not [wanted for wanted in range(3) if not any(f"One of many {wanted}" in row for row in tab.rows())]
        assert [] == tab.complaints()


def test_whoever_a_flood_hides_is_named_and_answered_by_keys(one: House, room: Room) -> None:
    """Only the first thousand letters of a mailbox are looked at; more than that are of one sender here."""
    with one.tab() as tab:
        tab.see("main h1", "Waiting for you")
        room.mailbox("flood").send_many([draft("human", f"noise {number}") for number in range(1300)])
        id = (
            room.mailbox("hidden-asker")
            .send("human", "May I, please?", subject="A hidden question", kind="request")
            .id
        )
        room.mailbox("late").send_many([draft("human", f"late {number}") for number in range(250)])
        tab.page.click(".groups a:has-text('hidden-asker')")
        tab.see(".list [role=option]", "A hidden question")
        assert 1 == len(tab.rows())
        tab.press("g", "r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("You may.")
        tab.press("Enter")
        tab.see(".notices", "Answered hidden-asker.")
        assert ["You may."] == [reply.text for reply in room.mailbox("hidden-asker").trace(id).replies]
        tab.see(".groups a", "late 250")
        assert "+" in tab.text("nav .count")
        tab.go("#/waiting?from=late")
        tab.see(".list [role=option]", "late ")
        tab.page.click(".pane-head button:has-text('Show more')")
        tab.see(".list [role=option][aria-setsize='250']")
        tab.press("G")
        tab.see(".row.picked[aria-posinset='250']", "late")
        assert [] == tab.complaints()
    for name in ("flood", "late"):
        while letters := room.mailbox("human").check(sender=name, limit=1000):
            for letter in letters:
                letter.ack()


def test_drafts_of_letters_that_no_longer_wait_are_deleted_after_a_while(one: House, room: Room) -> None:
    waits = asked(room, "Still?", subject="It still waits")
    with one.tab() as tab:
        pick(tab, "It still waits")
        tab.page.evaluate(
            """(waits) => {
              const day = 86_400_000, draft = (days) => JSON.stringify({ words: "old", at: Date.now() - days * day });
              localStorage.setItem(`postroom.draft ${waits} reply`, draft(40));
              localStorage.setItem("postroom.draft gone1 reply", draft(40));
              localStorage.setItem("postroom.draft gone2 reply", draft(20));
            }""",
            waits,
        )
        tab.press("r")
        tab.see("#compose-words")
        kept = tab.page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('postroom.draft'))")
        assert sorted(["postroom.draft gone2 reply", f"postroom.draft {waits} reply"]) == sorted(kept)


def test_words_for_several_letters_leave_the_draft_of_each_alone(one: House, room: Room) -> None:
    for number in range(2):
        asked(room, "Both?", subject=f"Both of us {number}")
    with one.tab() as tab:
        pick(tab, "Both of us 1")
        tab.press("r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        tab.type("for the second alone")
        tab.press("Escape")
        pick(tab, "Both of us 0")
        tab.press("v", "j", "v", "r")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
        assert "" == tab.page.input_value("#compose-words")
        tab.type("for both")
        tab.press("Escape")
        tab.press("v", "k", "v", "j", "r")
        tab.page.wait_for_function(
            "() => document.getElementById('compose-words')?.value === 'for the second alone'"
        )


def lose_answers(tab: Tab, most: int = 1, verb: str = "send") -> None:
    """Let the service's answers to actions be lost, with the connection, though it carried them out."""
    lost: list[int] = []

    def change(call: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any] | None:
        if call["method"] == "visit/act" and call["params"]["verb"] == verb and len(lost) < most:
            lost.append(1)
            return None
        return reply

    tab.between(change)


def write_twice(tab: Tab, words: str) -> None:
    """Send a letter whose first answer is lost, and send it again."""
    lose_answers(tab)
    tab.see(".connection.good")
    tab.press("w")
    tab.page.wait_for_function("() => document.activeElement?.id === 'compose-to'")
    tab.type("coder")
    tab.page.fill("#compose-words", words)
    tab.press("Enter")
    tab.see(".problem", "Enter sends it again; it arrives once.")
    tab.see(".connection.good")
    tab.press("Enter")
    tab.see(".notices", "Sent to coder.")


def arrived(room: Room, words: str) -> int:
    return [letter.text for letter in room.mailbox("coder").check(peek=True, limit=None)].count(words)


def test_a_letter_that_is_sent_again_after_a_lost_connection_arrives_once(one: House, room: Room) -> None:
    with one.tab() as tab:
        write_twice(tab, "exactly once, please")
        assert 1 == arrived(room, "exactly once, please")
        assert [] == tab.complaints()


def test_without_the_key_of_its_draft_it_would_arrive_twice(one: House, room: Room) -> None:
    """The twin: each attempt has a key of its own."""
    plant = {
        "composer.js": (
            "const key = sent.several ? `${sent.key}.${letter}` : sent.key;\ntry",
            "const key = newKey();\ntry",
        )
    }
    with one.tab(plant=plant) as tab:
        write_twice(tab, "more than once, alas")
        assert 1 != arrived(room, "more than once, alas")


def approve_twice(tab: Tab, subject: str) -> None:
    """Approve without a word; the first answer is lost, and the composer was closed since."""
    lose_answers(tab, verb="act")
    tab.see(".connection.good")
    answer(tab, subject, "", "a")
    tab.see(".problem", "Enter sends it again; it arrives once.")
    tab.see(".connection.good")
    tab.press("Escape", "a")
    tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
    tab.press("Enter")


def test_what_was_approved_without_words_is_called_approved_after_a_lost_connection(
    one: House, room: Room
) -> None:
    asked = room.mailbox("coder").escalate("May I?", subject="No words needed", reason="approval").id
    with one.tab() as tab:
        approve_twice(tab, "No words needed")
        tab.see(".notices", "It had arrived the first time, and was sent once.")
        assert ["approved"] == answers(room, asked)


def test_an_approval_whose_key_is_not_kept_is_called_gone(one: House, room: Room) -> None:
    """The twin: without words, no key is kept."""
    room.mailbox("coder").escalate("May I?", subject="Nor a key", reason="approval")
    with one.tab(plant={"composer.js": ("|| subject || tried ?", "|| subject ?")}) as tab:
        approve_twice(tab, "Nor a key")
        tab.see(".notices", "It no longer waits for you.")


def test_an_answer_that_was_changed_after_a_lost_connection_is_not_called_sent(one: House, room: Room) -> None:
    letter = asked(room, "How?", subject="Changed my mind")
    with one.tab() as tab:
        lose_answers(tab, verb="act")
        tab.see(".connection.good")
        answer(tab, "Changed my mind", "first words")
        tab.see(".problem", "Enter sends it again; it arrives once.")
        tab.see(".connection.good")
        tab.type(" and do not touch it")
        tab.press("Enter")
        tab.see(".problem", "Your earlier words were sent: 'first words'. These were not.")
        assert "first words and do not touch it" == tab.page.input_value("#compose-words")
        assert ["first words"] == answers(room, letter)


def test_a_new_letter_that_was_changed_after_a_lost_connection_can_be_sent_as_another(
    one: House, room: Room
) -> None:
    with one.tab() as tab:
        lose_answers(tab)
        tab.see(".connection.good")
        tab.press("w")
        tab.page.wait_for_function("() => document.activeElement?.id === 'compose-to'")
        tab.type("coder")
        tab.page.fill("#compose-words", "the first draft")
        tab.press("Enter")
        tab.see(".problem", "Enter sends it again; it arrives once.")
        tab.see(".connection.good")
        tab.page.fill("#compose-words", "the second draft")
        tab.press("Enter")
        tab.see(
            ".problem",
            "Your first words were sent before the connection broke. Enter sends these as another letter.",
        )
        tab.press("Enter")
        tab.see(".notices", "Sent")
        assert [1, 1] == [arrived(room, words) for words in ("the first draft", "the second draft")]


def test_without_the_person_s_process_the_page_only_looks(browser: Browser, one: House, room: Room) -> None:
    asked(room, "Can you?", subject="Nobody may")
    with house(one.daemon, browser) as fresh:
        context = fresh.tab()
        tab = context.__enter__()
        pick(tab, "Nobody may")
        tab.see(".reader .actions button:enabled")
    try:  # the process that lent its authority has ended
        tab.see(".connection .chip", "looks only")
        assert 0 == tab.page.locator(".reader .actions button:enabled").count()
        tab.press("r")
        tab.see(".notices .bad", "postroom dashboard")
    finally:
        context.__exit__(None, None, None)


VIEWS = {
    "flow": "Flow", "agents": "Agents", "tasks": "Tasks", "dead": "Dead letters", "systems": "Other systems",
    "numbers": "Numbers", "waiting": "Waiting for you",
}  # fmt: skip


def test_the_service_dies_and_comes_back(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Old answers say that they are old; afterwards a new link goes on, and the draft is there."""
    folder = tmp_path_factory.mktemp("dying")
    with daemon(folder, "--http", "127.0.0.1:0", "--set", "durability=process") as first:
        port = first.port
        with house(first, browser) as dying:
            with dying.room() as room:
                asked(room, "Are you there?", subject="Before the end")
            # Two seconds in place of ten.
            with dying.tab(plant={"app.js": ("const STALE = 10000", "const STALE = 2000")}) as tab:
                pick(tab, "Before the end")
                tab.press("r")
                tab.page.wait_for_function("() => document.activeElement?.id === 'compose-words'")
                tab.type("half an answer")
                tab.press("Escape")
                for view, title in VIEWS.items():
                    tab.go(f"#/{view}")
                    tab.see("main h1", title)
                    tab.see("main .list [role=option], main .task, main .waits, main .numbers, main .state.empty")
                first.process.send_signal(signal.SIGKILL)
                first.process.wait()
                tab.see(".connection.bad", "not connected")
                tab.see(".notice.stale", "As of")
                for view in VIEWS:
                    tab.go(f"#/{view}")
                    tab.see(".notice.stale", "The service does not answer")
                    assert 0 == tab.page.locator("main .state.loading, main .state.refused").count(), view
                tab.see(".list [role=option]", "Before the end")
                with daemon(folder, "--http", f"127.0.0.1:{port}", "--set", "durability=process") as second:
                    tab.see("main.locked", "postroom dashboard")
                    with house(second, browser) as again:
                        tab.page.evaluate("(token) => localStorage.setItem('postroom.visit', token)", again.token)
                        tab.page.reload()
                        pick(tab, "Before the end")
                        tab.press("r")
                        kept = "() => document.getElementById('compose-words')?.value === 'half an answer'"
                        tab.page.wait_for_function(kept)
                    tab.expected = ("WebSocket connection", "ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE")
                    assert [] == tab.complaints()


def test_two_tabs_share_one_token_and_a_lock_ends_both(one: House) -> None:
    with house(one.daemon, one.browser) as fresh, fresh.tab() as first, fresh.tab("#/numbers") as second:
        for tab in (first, second):
            tab.see(".connection.good")
        first.press("Control+k")
        first.see("dialog.palette")
        first.type("Lock")
        first.press("Enter")
        for tab in (first, second):
            tab.see("main.locked", "postroom dashboard")
            assert tab.page.evaluate("() => localStorage.getItem('postroom.visit')") is None
            assert not re.search("Letter|waiting for you", tab.text("body"))
