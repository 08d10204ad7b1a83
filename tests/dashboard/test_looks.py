"""What everybody can use: no finding of axe in light and dark, no width too narrow, less motion, and keys as words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.browser import House, Tab
from tests.dashboard.test_views import VIEWS

SCHEMES = ("light", "dark")
WIDTHS = (360, 768, 1440)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def axe(tab: Tab, **options: Any) -> list[str]:
    """The findings of axe, each with the elements that it is about."""
    import axe_playwright_python

    if not tab.page.evaluate("() => 'axe' in window"):
        source = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
        tab.page.evaluate(f"() => {{ {source}; }}")
    found: list[dict[str, Any]] = tab.page.evaluate(
        "async (options) => (await axe.run(document, options)).violations", RULES | options
    )
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary']}" for one in found for node in one["nodes"]
    ]


def settle(tab: Tab, view: str) -> None:
    """Open a view with a letter beside it, where it has letters."""
    tab.go(f"#/{view}")
    tab.see("main", VIEWS[view][0])
    if tab.page.locator(".list [role=option]").count() and view != "agents":
        tab.press("j")
        tab.see(".reader .body")


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_in_light_and_dark(full: House, view: str) -> None:
    with full.tab() as tab:
        settle(tab, view)
        assert [] == axe(tab)
        tab.page.emulate_media(color_scheme="dark")
        assert [] == axe(tab, runOnly=["color-contrast"])
        assert [] == tab.complaints()


def test_axe_finds_nothing_in_dialogs_and_while_one_writes(full: House) -> None:
    with full.tab() as tab:
        tab.see(".list [role=option]")
        tab.press("?")
        tab.see("dialog.help")
        assert [] == axe(tab)
        tab.press("Escape", "Control+k")
        tab.see("dialog.palette")
        assert [] == axe(tab)
        tab.press("Escape", "r")
        tab.see(".composer")
        assert [] == axe(tab)
        assert [] == tab.complaints()


def test_axe_finds_nothing_where_there_is_nothing(empty: House) -> None:
    with empty.tab() as tab:
        tab.see(".state.empty")
        assert [] == axe(tab)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("style.css", "--faint:light-dark(#5a6372", "--faint:light-dark(#b9c0cc"),  # low contrast
        ("list.js", 'this.element.setAttribute("aria-label", rows.label);', ""),  # a list without a name
        ("main.js", "drawWith(draw);", "drawWith(draw); document.documentElement.removeAttribute('lang');"),
        ("list.js", '<div role="option"', '<div role="row"'),  # a row that is no option of its list
        ("main.js", '<div class="notices"', '<main></main><div class="notices"'),  # a second main
    ],
)
def test_a_page_with_a_barrier_is_found(full: House, file: str, before: str, after: str) -> None:
    with full.tab(plant={file: (before, after)}) as tab:
        settle(tab, "waiting")
        assert [] != axe(tab)


def too_wide(tab: Tab) -> list[str]:
    """Elements that reach beyond the window, and do not scroll by themselves."""
    found: list[str] = tab.page.evaluate(
        """() => {
        const scrolls = (one) => one && one !== document.body
          && (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
        if (document.documentElement.scrollWidth > innerWidth) return ['the page'];
        return [...document.querySelectorAll('body *')]
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && one.getClientRects().length && !scrolls(one.parentElement))
          .map((one) => one.outerHTML.slice(0, 100));
        }"""
    )
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(full: House, width: int, tmp_path: Path) -> None:
    with full.tab(viewport={"width": width, "height": 800}) as tab:
        for view in VIEWS:
            tab.go(f"#/{view}")
            tab.see("main", VIEWS[view][0])
            assert [] == too_wide(tab), view
            cut = "() => document.querySelector('main .pane-head, main .reader').getBoundingClientRect().right <= innerWidth"
            assert tab.page.evaluate(cut), view
        tab.go("#/waiting")
        tab.see(".list [role=option]")
        tab.press("g", "Enter")
        tab.see(".reader .body")
        assert [] == too_wide(tab)
        tab.press("r")
        tab.see(".composer")
        assert [] == too_wide(tab)


def sideways(tab: Tab) -> list[str]:
    """Parts of the page that scroll sideways and should not."""
    found: list[str] = tab.page.evaluate(
        """() => [...document.querySelectorAll('nav, .column ul')]
          .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.outerHTML.slice(0, 100))"""
    )
    return found


def test_the_menu_and_the_columns_of_tasks_do_not_scroll_sideways(full: House) -> None:
    with full.tab("#/tasks", viewport={"width": 1440, "height": 800}) as tab:
        tab.see(".task", "Make it fast")
        assert [] == sideways(tab)


def test_a_column_that_scrolls_sideways_is_found(full: House) -> None:
    with full.tab(
        "#/tasks", plant={"style.css": (".task{display:grid;", ".task{width:40rem;display:grid;")}
    ) as tab:
        tab.see(".task", "Make it fast")
        assert [] != sideways(tab)


def test_a_page_that_is_too_wide_is_found(full: House) -> None:
    plant = {"style.css": ("#app{display:grid;", "#app{min-width:90rem;display:grid;")}
    with full.tab(viewport={"width": 360, "height": 800}, plant=plant) as tab:
        tab.see("main h1")
        assert [] != too_wide(tab)


def test_on_a_phone_a_letter_takes_the_place_of_its_list_and_back_leads_to_it(full: House) -> None:
    with full.tab(viewport={"width": 360, "height": 740}, has_touch=True) as tab:
        tab.page.locator(".list [role=option]").filter(has_text="Which plan?").click()
        tab.see(".reader .body", "Plan A or plan B?")
        assert not tab.page.locator(".list").is_visible()
        tab.page.click("a.back")
        tab.see(".list [role=option]", "Which plan?")
        tab.page.go_back()
        tab.see(".reader .body")


def test_a_letter_is_written_by_pointer_on_a_phone(full: House) -> None:
    with full.tab(viewport={"width": 360, "height": 740}, has_touch=True) as tab:
        tab.see(".list [role=option]")
        tab.page.click("button:has-text('Write')")
        tab.see(".drawer #compose-words")
        tab.page.click(".drawer button:has-text('Back')")
        tab.page.click("button[title=Commands]")
        tab.see("dialog.palette", "Lock: end all visits")
        assert [] == tab.complaints()


def test_less_motion_means_none(full: House) -> None:
    with full.tab("#/flow", reduced_motion="reduce") as tab:
        tab.see(".list [role=option]")
        moving = "() => document.getAnimations().length"
        with full.room() as room:
            room.mailbox("atlas-coder").send("birch-tester", "x", subject="For the picture")
        tab.see(".list", "For the picture")
        assert 0 == tab.page.evaluate(moving)


def test_the_title_counts_what_waits_and_the_icon_has_a_dot(full: House, empty: House) -> None:
    with full.tab("#/numbers") as tab:
        tab.page.wait_for_function("() => /^\\(\\d+\\) Numbers · Postroom$/.test(document.title)")
        assert (tab.page.get_attribute("#icon", "href") or "").endswith("icon-waiting.svg")
    with empty.tab("#/numbers") as tab:
        tab.see(".state.empty")
        assert "Numbers · Postroom" == tab.page.title()
        assert (tab.page.get_attribute("#icon", "href") or "").endswith("/icon.svg")


def test_single_keys_can_be_turned_off(full: House) -> None:
    with full.tab() as tab:
        tab.see(".list [role=option]")
        tab.press("?")
        tab.page.click("dialog .switch")
        tab.press("Escape", "2")
        assert "#/waiting" in tab.page.url
        tab.press("Control+k")
        tab.type("single-letter")
        tab.press("Enter", "2")
        tab.see("main", "Who writes to whom")


def test_search_leaves_the_number_keys_alone_and_forgets_its_words(full: House) -> None:
    with full.tab("#/numbers") as tab:
        tab.see("main h1", "Numbers")
        tab.press("6")
        tab.see("main", "Search all letters")
        tab.page.wait_for_function("() => document.activeElement?.matches('.search-words')")
        tab.press("/")
        tab.type("index")
        tab.press("Enter")
        tab.see(".list [role=option]", "Drop the index?")
        tab.press("2")
        tab.see("main", "Who writes to whom")
        assert "" == tab.page.input_value("#search")


def test_the_structure_of_the_first_view_is_what_a_screen_reader_hears(full: House) -> None:
    from playwright.sync_api import expect

    with full.tab() as tab:
        tab.see(".reader .body")
        expect(tab.page.locator("body")).to_match_aria_snapshot(
            """
            - banner:
              - link "Postroom"
              - search:
                - searchbox "Search"
            - navigation "Views":
              - link /Waiting for you/
              - link /Flow/
              - link /Agents/
              - link /Tasks/
              - link /Dead letters/
              - link /Search/
              - link /Other systems/
              - link /Numbers/
            - main:
              - region "List":
                - heading "Waiting for you" [level=1]
                - listbox "What waits for you":
                  - option /atlas-planner letter urgent .* Which plan/ [selected]
                  - option /atlas-coder escalation high .* Drop the index/
              - region "Letter":
                - heading "Which plan?" [level=2]
                - article "Letter from atlas-planner"
                - button /Reply/
            - status
            """
        )
