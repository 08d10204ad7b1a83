"""Each view of the dashboard: full, empty, loading, refused and stale. The states never look alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import postroom
from tests.daemons import until
from tests.dashboard.browser import House, Tab, house
from tests.federation.systems import System, join, systems
from tests.server.http.running import daemon
from tests.server.http.visiting import token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# View -> what it shows of the full room, and what it says of an empty one.
VIEWS = {
    "waiting": ("Drop the index?", "Nobody waits for you."),
    "flow": ("Letter 59", "Quiet. No letter was sent yet."),
    "agents": ("birch-tester", "Nobody is registered."),
    "tasks": ("Make it fast", "No tasks yet."),
    "dead": ("the parser gave up", "No dead letters. Good."),
    "search?q=Letter": ("Letter 59", "Nothing was found."),
    "systems": ("This room is alone.", "This room is alone."),
    "numbers": ("letters", "No letter was counted yet."),
}
MENU = [view.partition("?")[0] for view in VIEWS]
# View -> the method without which it shows nothing.
METHODS = {
    "waiting": "mail/waiting",
    "flow": "mail/letters",
    "agents": "mail/queues",
    "tasks": "mail/tasks",
    "dead": "mail/dead",
    "search?q=Letter": "mail/search",
    "systems": "mail/peers",
    "numbers": "mail/room_stats",
}
STATES = ("empty", "loading", "refused", "failed")


def states(tab: Tab) -> list[str]:
    """The states that the first pane of the view is in, besides showing what there is."""
    return [state for state in STATES if tab.page.locator(f"main .pane .state.{state}").count()]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_there_is(full: House, view: str) -> None:
    with full.tab(f"#/{view}") as tab:
        tab.see("main", VIEWS[view][0])
        assert [] == [state for state in states(tab) if view != "systems"]
        assert tab.page.locator("h1").count() == 1
        assert tab.page.locator("nav a[aria-current=page]").count() == 1
        assert [] == tab.complaints()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_says_that_there_is_nothing(empty: House, view: str) -> None:
    with empty.tab(f"#/{view}") as tab:
        tab.see("main .state.empty h2", VIEWS[view][1])
        assert ["empty"] == states(tab)
        assert [] == tab.complaints()


def refuse(method: str) -> Any:
    def change(call: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        if call["method"] != method:
            return reply
        data = {"name": "NotAllowed", "code": 2001, "retryable": False, "hint": "postroom dashboard --as human"}
        return {
            "jsonrpc": "2.0",
            "id": reply["id"],
            "error": {"code": -32001, "message": "this is not yours", "data": data},
        }

    return change


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_that_is_refused_says_which_right_would_do(full: House, view: str) -> None:
    with full.tab(f"#/{view}") as tab:
        tab.between(refuse(METHODS[view]))
        tab.see("main .state.refused", "this is not yours")
        tab.see("main .state.refused", "postroom dashboard --as human")
        assert ["refused"] == states(tab)
        assert [] == tab.complaints()


def test_a_refusal_that_looks_like_nothing_is_found(full: House) -> None:
    """The twin: a view that says "nothing here" where it may not look."""
    plant = {
        "app.js": (
            "if (error?.forbids) return refused(error);",
            "if (error?.forbids) return nothingHere(empty());",
        )
    }
    with full.tab("#/dead", plant=plant) as tab:
        tab.between(refuse(METHODS["dead"]))
        tab.see("main .state")
        assert ["refused"] != states(tab)


@pytest.mark.parametrize(
    "line",
    [
        "console.info('hello')",
        "fetch('https://elsewhere.example/x').catch(() => {})",
        "document.body.setAttribute('style', 'color: red')",
        "Promise.reject(new Error('nobody takes it'))",
    ],
)
def test_a_page_that_complains_or_asks_elsewhere_is_found(full: House, line: str) -> None:
    """The twin of every test that ends with no complaint."""
    with full.tab("#/numbers", plant={"main.js": ("drawWith(draw);", f"drawWith(draw); {line};")}) as tab:
        tab.see("main h1", "Numbers")
        until(lambda: tab.texts("main h1") and tab.complaints())


def test_a_view_that_waits_for_its_answer_says_so_and_is_no_empty_one(full: House) -> None:
    with full.tab("#/flow") as tab:
        late = {"jsonrpc": "2.0", "method": "late"}
        tab.between(lambda call, reply: late if call["method"] in METHODS.values() else reply)
        for view in VIEWS:
            tab.go(f"#/{view}")
            tab.see(f"nav a[href^='#/{view.partition('?')[0]}'][aria-current=page]")
            tab.see("main .state.loading[aria-busy=true]")
            assert ["loading"] == states(tab), view
        assert [] == tab.complaints()


def test_an_answer_that_never_was_is_not_taken_for_an_empty_one(full: House) -> None:
    """The twin: a view that takes "not yet" for "nothing" is found."""
    plant = {
        "app.js": (
            "if (value === undefined) return",
            "if (value === undefined) return nothingHere(empty()); if (false) return",
        )
    }
    with full.tab("#/flow", plant=plant) as tab:
        tab.between(
            lambda call, reply: {"jsonrpc": "2.0", "method": "late"} if call["method"] == "mail/dead" else reply
        )
        tab.go("#/dead")
        tab.see("main .state")
        assert ["loading"] != states(tab)


def test_a_row_that_was_picked_is_found_again_after_a_step_back(full: House) -> None:
    with full.tab("#/flow") as tab:
        tab.see(".list", "Letter 59")
        tab.press("j", "j", "j")
        tab.see(".reader .body")
        picked = tab.page.get_attribute(".row.picked", "data-id")
        tab.press("3")
        tab.see("main", "birch-tester")
        tab.page.go_back()
        tab.see(".row.picked")
        assert picked == tab.page.get_attribute(".row.picked", "data-id")


def test_a_list_stands_as_soon_as_a_row_is_picked(full: House) -> None:
    with full.tab("#/flow") as tab:
        tab.see(".list", "Letter 59")
        tab.press("j")
        before = tab.rows()[:5]
        with full.room() as room:
            room.mailbox("atlas-coder").send("birch-tester", "new", subject="Has just come")
        tab.see("button.fresh", "1 new")
        assert before == tab.rows()[:5]
        tab.page.click("button.fresh")
        tab.see(".list", "Has just come")


def numbers(tab: Tab) -> list[int]:
    """The numbers that the letters on the screen are named by, from above."""
    return [int(row.partition("Of many ")[2].split()[0]) for row in tab.rows() if "Of many " in row]


def is_whole(tab: Tab) -> list[int]:
    """Wait until every row on the screen is a letter; return their numbers, which have no gap."""
    tab.page.wait_for_function(
        "() => { const rows = [...document.querySelectorAll('.list [role=option]')];"
        " return rows.length > 5 && !rows.some((one) => one.classList.contains('bone')); }"
    )
    found = numbers(tab)
    assert found == list(range(found[0], found[0] - len(found), -1)), "a letter is missing, or is there twice"
    return found


MANY = 1500


def walk(tab: Tab) -> None:
    """Look at the beginning, the end and what lies between, by keys and by the scroll bar."""
    assert MANY in is_whole(tab)
    for _ in range(8):
        tab.press("PageDown")
    assert MANY - 100 > is_whole(tab)[0]
    tab.press("G")
    tab.see(".list", "Of many 1\n")
    for fraction in (0.5, 0.25, 0.9, 0.1, 0.6):
        tab.page.eval_on_selector(".list", "(list, at) => { list.scrollTop = list.scrollHeight * at; }", fraction)
        tab.page.wait_for_timeout(100)
        assert abs(is_whole(tab)[0] - MANY * (1 - fraction)) < MANY / 4
    for _ in range(6):  # upwards, over the edges of pages
        tab.page.mouse.move(400, 400)
        tab.page.mouse.wheel(0, -700)
        is_whole(tab)
    tab.press("g")
    assert MANY in is_whole(tab)
    assert 80 >= tab.page.locator(".list [role=option]").count()


def test_a_long_list_shows_every_letter_once_wherever_one_looks(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with daemon(
        tmp_path_factory.mktemp("long"), "--http", "127.0.0.1:0", "--set", "durability=process"
    ) as running:
        with postroom.open(running.room) as room:
            many = [postroom.draft("reader", "x", subject=f"Of many {number + 1}") for number in range(MANY)]
            room.mailbox("writer").send_many(many)
        with ThreadPoolExecutor(1) as thread:
            long_house = House(running, browser, thread.submit(token_of, running).result())
        with long_house.tab("#/flow") as tab:
            walk(tab)
            assert [] == tab.complaints()
        # The twin: a page that begins one letter too far.
        plant = {
            "list.js": (
                "this.ask({ before: before.next, limit: PAGE })",
                "this.ask({ before: before.next - 1, limit: PAGE })",
            )
        }
        with (
            long_house.tab("#/flow", plant=plant) as tab,
            pytest.raises(AssertionError, match="a letter is missing"),
        ):
            walk(tab)


def test_a_list_that_follows_shows_a_new_letter_by_itself(full: House) -> None:
    with full.tab("#/flow") as tab:
        tab.see(".list [role=option]")
        with full.room() as room:
            room.mailbox("atlas-coder").send("birch-tester", "new", subject="Came by itself")
        tab.see(".list", "Came by itself")
        tab.page.locator("[aria-label='Busiest pairs']").filter(has_text="birch-tester").wait_for()
        assert [] == tab.complaints()


def test_a_letter_has_an_address_and_its_thread_has_one(full: House) -> None:
    with full.room() as room:
        letter = room.mailbox("atlas-planner").send("atlas-coder", "First.", subject="A thread")
        room.mailbox("atlas-coder").reply(letter.id, "Second.")
    with full.tab(f"#/letter/{letter.id}") as tab:
        tab.see("article", "Second.")
        tab.page.click("text=the thread by itself")
        tab.see("article", "First.")
        assert f"#/thread/{letter.id}" in tab.page.url
        tab.page.click("button:has-text('Deliveries') >> nth=0")
        tab.see(".stops", "atlas-coder")
        assert [] == tab.complaints()


def test_a_long_thread_is_read_by_its_ends(full: House) -> None:
    with full.room() as room:
        first = room.mailbox("atlas-planner").send("atlas-coder", "the very first words", subject="A long thread")
        last = first
        for number in range(230):
            last = room.mailbox("atlas-coder" if number % 2 else "atlas-planner").send(
                "birch-tester", f"words {number}", in_reply_to=first.id
            )
    with full.tab(f"#/thread/{last.thread}") as tab:
        tab.see("article", "words 229")
        tab.see("article:first-of-type", "the very first words")
        assert 51 == tab.page.locator("article").count()
        for shown in (151, 231):
            tab.page.click("text=Show 100 more of the letters between")
            tab.see(".thread-line", f"{shown} letters")
        assert [] == tab.complaints()


def test_a_search_finds_and_says_what_was_wrong_with_a_query(full: House) -> None:
    with full.tab() as tab:
        tab.see(".list [role=option]")
        tab.press("/")
        tab.type("from:atlas-coder Letter")
        tab.press("Enter")
        tab.see(".list", "Letter 59")
        assert "q=from" in tab.page.url
        tab.go("#/search?q=kind%3A")
        tab.see("main .state")
        assert [] == tab.complaints()


def test_a_linked_system_has_a_card_that_tells_how_its_link_is(browser: Browser, tmp_path: Path) -> None:
    words = ("--set", "system=near", "--set", "durability=process")
    with systems(System(tmp_path, "near", "ann"), System(tmp_path, "far", "bob")) as (near, far):
        join(near, far)
        far.serve()
        with (
            daemon(near.folder, "--http", f"127.0.0.1:{near.port}", *words) as running,
            house(running, browser) as one,
            one.tab("#/systems") as tab,
        ):
            tab.see(".system .chip.good", "connected")
            assert "1" == tab.text(".pane-head .faint")
            near.room.mailbox("ann").send("bob@far", "hello")
            until(lambda: ["hello"] == far.texts("bob"))
            tab.see(".system dl div:has(dt:text-is('sent')) dd", "1")
            tab.press("Enter")
            tab.see(".notices", "far answers in")
            far.stop()
            tab.see(".system .chip.high", "disconnected")
            assert not tab.page.locator(".system .chip.good").count()
            near.room.mailbox("ann").send("bob@far", "later")
            tab.see(".system dl div:has(dt:text-is('waits here')) dd", "1")
            assert "refused" in tab.text(".system dl div:has(dt:text-is('problem')) dd")
            tab.press("Enter")
            tab.see(".notices .bad", "far does not answer")
            assert [] == tab.complaints()
