"""Letters are hostile: what they try in the list, the reader, the title and a download; and the Markdown renderer."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.browser import House, Plant, Tab, house
from tests.server.http.running import daemon

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MARKUP = (
    "<script>document.title = 'taken'; window.taken = 1</script>",
    "<img src=x onerror='window.taken = 1'><svg onload='window.taken = 1'>",
    '<a href="javascript:window.taken = 1">click</a> [click](javascript:window.taken=1) <javascript:window.taken=1>',
    "![picture](https://elsewhere.example/pixel.png) [named](https://elsewhere.example/?q=1 'title')",
    "[https://bank.example](https://elsewhere.example/login)",
    "<style>* { display: none }</style><base href='https://elsewhere.example/'>",
    "</div></main><h1>Postroom</h1><button>Approve</button>",
    "${window.taken = 1} {{taken}} <!-- lit$ --> <?lit$1?> ?lit$",
    "data:text/html,<script>window.taken = 1</script> <data:text/html,x>",
)
HIDDEN = "invoice\u202efdp.exe \u2066x\u2069 zero\u200bwidth \x1b[31mred\x1b[0m tag\U000e0041 nul\u0085"
ESCAPE = "\x1b"  # no subject may hold it
SLOW = {
    "a line of mixed direction": "abc \u05d0\u05d1\u05d2 def \u0627\u0628 " * 25_000,
    "one long word": "x" * 900_000,
    "stars": "*" * 500_000,
    "brackets": "[" * 250_000 + "](" * 100_000,
    "quotes in quotes": "> " * 300_000,
    "lists in lists": "\n".join("  " * (depth % 60) + "- item" for depth in range(14_000)),
    "a wide table": "|a" * 20_000 + "\n" + "|-" * 20_000 + "\n" + "|b" * 20_000,
    "spaces": "# " + " " * 300_000 + "x\n``` " + " " * 300_000 + "x y",
    "backticks": "`a" * 250_000,
    "headings over other ends of lines": "\n".join(
        ["#" + " " * 240 + "a" + " " * 240 + "\u2028b\u2029c\x85d"] * 140
    ),
    "headings of blanks": "\n".join(["#" + " " * 240 + "a" + " " * 240 + "b"] * 140),
    "fences and dividers of blanks": "\n".join(
        ["a|", "```" + " " * 480 + "x y", "a|", "|-" + " " * 480 + "x"] * 70
    ),
    "addresses of full stops": ("http://a" + "." * 1980 + "x ") * 40,
}
LONGEST_TASK = 50.0  # milliseconds; without a cut it is 47,000
MANY: dict[str, Any] = {
    "numbers that a browser would round": [
        {"type": "data", "data": [9223372036854700000 + at for at in range(40_000)]}
    ],
    "a field in each of many": [{"type": "data", "data": {f"field {at}": {"at": at} for at in range(20_000)}}],
    "many parts": [{"type": "text", "text": "abc \u05d0\u05d1\u05d2 " * 300} for _ in range(256)],
    "many small parts": [{"type": "text", "text": "- x"} for _ in range(256)],
}
ELEMENTS = (
    *(
        "P",
        "DIV",
        "SPAN",
        "H4",
        "H5",
        "PRE",
        "CODE",
        "UL",
        "OL",
        "LI",
        "BLOCKQUOTE",
        "HR",
        "TABLE",
        "THEAD",
        "TBODY",
    ),
    *("TR", "TH", "TD", "STRONG", "EM", "DEL", "A", "BDI"),
)
# What no letter may make. Two buttons below a body are ours.
MADE = (
    "main script, main img, main iframe, main style, main base, .body h1, .body form, .body input,"
    " .body button:not(.more, .attached button)"
)
ATTRIBUTES = ("class", "tabindex", "aria-label", "role", "scope", "start", "href", "target", "rel")


@pytest.fixture(scope="module")
def one(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("hostile"), *words) as running, house(running, browser) as open_house:
        yield open_house


def is_harmless(tab: Tab) -> None:
    """Nothing of a letter has run, became markup of its own, or asked for anything."""
    assert tab.page.evaluate("() => window.taken") is None
    assert tab.page.title().endswith("Postroom")
    assert "taken" not in tab.page.title()
    assert 0 == tab.page.locator(MADE).count()
    for link in tab.page.locator(".body a").all():
        address = link.get_attribute("href") or ""
        assert address.startswith(("http://", "https://"))
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert link.inner_text() == address, "a link shows its whole address"
    assert [] == tab.complaints()


@pytest.mark.parametrize("text", MARKUP)
def test_markup_in_a_letter_is_text(one: House, text: str) -> None:
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", f"{text}\n\n# {text}\n\n- {text}\n\n`{text}`", subject=text)
    with one.tab(f"#/waiting?open={sent.id}") as tab:
        tab.see(".reader .body")
        is_harmless(tab)
        tab.page.click("button:has-text('As written')")
        tab.see(".verbatim", text.strip()[:20])
        is_harmless(tab)


def test_a_renderer_that_makes_markup_of_text_is_found(one: House) -> None:
    """The twin: the policy itself stops it, and that is a complaint."""
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", MARKUP[1], subject="planted")
    before = "for (const one of parse(text)) yield* block(into, one);"
    after = f"requestAnimationFrame(() => {{ document.querySelector('.body').innerHTML = text; }}); {before}"
    with one.tab("#/waiting", plant={"text.js": (before, after)}) as tab:
        tab.go(f"#/waiting?open={sent.id}")
        tab.see(".reader .body")
        tab.page.wait_for_timeout(300)
        with pytest.raises(AssertionError, match=r"TrustedHTML|CSP"):
            is_harmless(tab)


def test_hidden_and_reordering_characters_are_written_out_everywhere(one: House) -> None:
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", HIDDEN, subject=f"Subject {HIDDEN.partition(ESCAPE)[0]}")
    with one.tab(f"#/waiting?open={sent.id}") as tab:
        tab.see(".reader .body")
        for selector in (".row.picked", ".reader .subject", ".reader .body"):
            shown = tab.text(selector)
            assert "\\u{202e}fdp.exe" in shown
            assert not set(HIDDEN[7:]) & set("\u202e\u2066\u2069\u200b\x1b\U000e0041") & set(shown)
        assert "isolate" == tab.page.evaluate(
            "() => getComputedStyle(document.querySelector('.row.picked bdi')).unicodeBidi"
        )
        assert "plaintext" == tab.page.evaluate(
            "() => getComputedStyle(document.querySelector('.body p')).unicodeBidi"
        )


@pytest.mark.parametrize("name", SLOW)
def test_a_letter_that_is_slow_to_lay_out_is_cut(one: House, name: str) -> None:
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", SLOW[name], subject=f"Slow: {name}")

    def read(tab: Tab) -> None:
        tab.go(f"#/letter/{sent.id}")
        is_whole(tab)
        tab.see(".reader .body .more", "of text are left")
        longest = tab.page.evaluate(
            """() => Math.max(0, ...[...document.querySelectorAll('.reader .piece, .reader p, .reader td')]
            .map((one) => one.textContent.length))"""
        )
        assert 2000 >= longest
        assert 12_000 >= tab.page.locator(".reader *").count()
        is_harmless(tab)

    assert LONGEST_TASK > longest_task(one, read)


def longest_task(one: House, act: Callable[[Tab], None], plant: Plant | None = None) -> float:
    """What the longest task of the page takes while something is done in it, in milliseconds of the processor.

    It is done twice, in new tabs, and the shorter one counts: what belongs to the letters is there each time.
    """
    longest = []
    for _ in range(2):
        with one.tab("#/tasks", plant=plant) as tab:
            tab.see("h1", "Tasks")
            with tab.tasks() as spent:
                act(tab)
            assert [] == tab.complaints()
            longest.append(spent[0])
    return min(longest)


def is_whole(tab: Tab) -> None:
    """Wait until the opened letters are shown, and filled."""
    tab.see(".reader .body")
    tab.page.wait_for_function("() => !document.querySelector('.reader [aria-busy]')")


def test_a_letter_that_is_laid_out_at_once_is_found(one: House) -> None:
    """The twin: the same letters, not in pieces."""
    text = SLOW["backticks"][:30_000] + "\n\n" + SLOW["a line of mixed direction"]
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", text, subject="At once")

    def read(tab: Tab) -> None:
        tab.go(f"#/letter/{sent.id}")
        is_whole(tab)

    plant = {"text.js": ("const IN_A_FRAME = 6000;", "const IN_A_FRAME = 1e9;")}
    assert LONGEST_TASK < longest_task(one, read, plant)


@pytest.mark.parametrize("name", MANY)
def test_a_letter_of_many_things_is_shown_in_pieces(one: House, name: str) -> None:
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", MANY[name], subject=f"Many: {name}")

    def read(tab: Tab) -> None:
        tab.go(f"#/letter/{sent.id}")
        is_whole(tab)
        for _ in range(2):
            for button in tab.page.locator(".reader .body .more").all():
                button.click()
            is_whole(tab)
        tab.page.keyboard.press("End")
        is_harmless(tab)

    assert LONGEST_TASK > longest_task(one, read)


def test_more_of_a_letter_is_filled_in_without_a_jump(one: House) -> None:
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", "\n\n".join(f"Line {at}." for at in range(20_000)))
    with one.tab(f"#/letter/{sent.id}") as tab:
        is_whole(tab)
        tab.page.evaluate("() => document.querySelector('.reader .body .more').scrollIntoView()")
        before = tab.page.evaluate("() => document.querySelector('.pages').scrollTop")
        tab.page.click(".reader .body .more")
        assert before == tab.page.evaluate("() => document.querySelector('.pages').scrollTop")
        is_whole(tab)
        assert before == tab.page.evaluate("() => document.querySelector('.pages').scrollTop")
        assert "" == tab.page.evaluate("() => document.querySelector('.reader .body').style.minHeight")


def test_a_long_thread_and_a_letter_to_many_are_shown_in_pieces(one: House) -> None:
    subject = "abc \u05d0\u05d1\u05d2 " * 20
    with one.room() as room:
        mallory = room.mailbox("mallory")
        first = mallory.send([f"worker-{at:03}" for at in range(1000)], "begin", subject=subject)
        for number in range(450):  # a sender may write only so many answers a minute
            worker = room.mailbox(f"worker-{number % 3:03}")
            worker.send("mallory", f"{number} {subject}", in_reply_to=first.id)

    def read(tab: Tab) -> None:
        tab.go(f"#/letter/{first.id}")
        tab.see(".thread-line", "51 letters of a long thread")
        for shown in (151, 251, 351):
            tab.page.click(".reader .pages > .more")
            tab.see(".thread-line", f"{shown} letters of a long thread")
        tab.page.click(".reader .pages > .more")
        tab.see(".thread-line", "451 letters")
        tab.see("article:last-of-type", "449")
        tab.page.locator(f"#letter-{first.id} .under button", has_text="Deliveries").click()
        tab.see(".stops", "worker-099")
        tab.page.click("text=Show 100 of 900 more")
        tab.page.wait_for_function("() => document.querySelectorAll('.stops tbody tr').length === 200")

    assert LONGEST_TASK > longest_task(one, read)


def test_hostile_letters_hold_no_list_up(one: House) -> None:
    with one.room() as room:
        for name, text in SLOW.items():
            room.mailbox(f"mallory-{len(name)}").send("human", text, subject=text[:150].replace("\n", " "))

    def read(tab: Tab) -> None:
        tab.press("1")
        tab.see(".row")
        for _ in SLOW:
            tab.press("j")
            tab.page.wait_for_timeout(100)  # it is shown beside the list soon after
            is_whole(tab)

    assert LONGEST_TASK > longest_task(one, read)


def test_the_bodies_of_a_heavy_thread_are_read_when_they_are_opened(one: House) -> None:
    with one.room() as room:
        mallory = room.mailbox("mallory")
        first = mallory.send("human", "begin", subject="Heavy")
        for number in range(6):
            mallory.send("human", f"{number} " + "y" * 200_000, in_reply_to=first.id)
    asked: list[str] = []

    def heard(call: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        asked.append(call["method"])
        return reply

    with one.tab("#/tasks") as tab:
        tab.between(heard)
        tab.go(f"#/letter/{first.id}")
        tab.see(f"#letter-{first.id} .body", "begin")
        tab.see("article:last-of-type .body", "5 yyy")
        assert 7 == tab.page.locator("article").count()
        assert 4 >= tab.page.locator("article .body").count() and "mail/thread" not in asked
        assert 5 >= asked.count("mail/trace")
        tab.page.locator("article:nth-of-type(3) .turn").click()
        tab.see("article:nth-of-type(3) .body", "1 yyy")
        assert [] == tab.complaints()


def test_a_file_is_bytes_under_a_safe_name(one: House) -> None:
    content = b"<html><script>window.taken = 1</script></html>"
    part = {
        "type": "file",
        "path": "../../r\u202efdp.exe;x.html",
        "bytes": base64.b64encode(content).decode(),
        "media": "text/html",
    }
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", [part], subject="A file")
    with one.tab(f"#/waiting?open={sent.id}", accept_downloads=True) as tab:
        tab.see(".reader .attached", "Download")
        with tab.page.expect_download() as waited:
            tab.page.click(".reader .attached button")
        download = waited.value
        assert "r_fdp.exe_x.html" == download.suggested_filename
        assert download.path().read_bytes() == content
        is_harmless(tab)


def test_data_is_folded_and_its_large_integers_are_as_they_were_written(one: House) -> None:
    value: Any = {"id": 9223372036854775807, "deep": {"a": {"b": {"c": {"d": 1}}}}, "rows": list(range(400))}
    with one.room() as room:
        sent = room.mailbox("mallory").send("human", [{"type": "data", "data": value}], subject="Data")
    with one.tab(f"#/waiting?open={sent.id}") as tab:
        tab.see(".reader .data", "9223372036854775807")
        assert "399" not in tab.text(".reader .data pre")
        tab.page.click("button:has-text('Unfold all of it')")
        tab.see(".reader .data", "399")
        is_harmless(tab)


# -- the Markdown renderer by itself

JUNK = (
    *(
        "*",
        "**",
        "_",
        "__",
        "`",
        "``",
        "```\n",
        "\n~~~ js\n",
        "~~",
        "[",
        "](",
        ")",
        "!",
        "|",
        "\n|---|---|\n",
        "\n> ",
        "\n- ",
    ),
    *(
        "\n1. ",
        "\n# ",
        "\n    ",
        "\n\n",
        "\\",
        "<b>",
        "&amp;",
        "\t",
        " ",
        " ",
        "https://x.example/",
        "\n- [x] ",
        "\n***\n",
    ),
    *("\na|b\n|---|---|\n", "\na|b\n|---|---|\n", "|", "|"),
    *("\u202e", "\u0000"[:0], "\U0001f469\u200d\U0001f4bb", "\ud7ff", "é"),
    *("\u2028", "\u2029", "\x85", "\v", " " * 200, "[a](javascript:b)"),
)
RENDER = """async ([base, texts]) => {
  const { markdown } = await import(`${base}/text.js`);
  return texts.map((text) => {
    const box = document.createElement("div");
    const began = performance.now();
    for (const _ of markdown(box, text));
    const spent = performance.now() - began;
    const all = [...box.querySelectorAll("*")];
    return {
      text: box.textContent, spent, elements: [...new Set(all.map((one) => one.tagName))],
      attributes: [...new Set(all.flatMap((one) => one.getAttributeNames()))],
      links: all.filter((one) => one.tagName === "A").map((one) => one.getAttribute("href")),
      longest: Math.max(0, ...all.filter((one) => !one.children.length).map((one) => one.textContent.length)),
    };
  });
}"""


def rendered(tab: Tab, texts: list[str]) -> list[dict[str, Any]]:
    base = tab.page.evaluate(
        "() => document.querySelector('link[rel=stylesheet]').getAttribute('href').replace('/style.css', '')"
    )
    found: list[dict[str, Any]] = tab.page.evaluate(RENDER, [base, texts])
    return found


def fuzz(tab: Tab, many: int = 1500) -> None:
    """Whatever the text: known elements alone, no word lost, doubled or moved, only web addresses, and quickly."""
    chance = random.Random(26)
    texts, words = [], []
    for _ in range(many):
        pieces, said = [], []
        for at in range(chance.randrange(1, 40)):
            if chance.random() < 0.4:
                said.append(f"w{at}w")
                pieces.append(f" w{at}w")
            else:
                pieces.append(chance.choice(JUNK))
        texts.append("".join(pieces))
        words.append(said)
    for text, expected, got in zip(texts, words, rendered(tab, texts), strict=True):
        assert set(got["elements"]) <= set(ELEMENTS), f"an unknown element: {text!r}"
        assert set(got["attributes"]) <= set(ATTRIBUTES), f"an unknown attribute: {text!r}"
        assert all(link.startswith(("http://", "https://")) for link in got["links"]), f"another address: {text!r}"
        assert expected == re.findall(r"w\d+w", got["text"]), f"a word was lost: {text!r}"
        assert "\u202e" not in got["text"]


def test_any_text_becomes_known_elements_and_no_word_is_lost(one: House) -> None:
    with one.tab() as tab:
        fuzz(tab)
        assert [] == tab.complaints()


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ('cells.push(cells.splice(many - 1).join(" | "))', "cells.length = many", "a word was lost"),
        (
            "inline(child(into, one.kind), one.of)",
            "inline(child(into, one.kind.slice(0, 1)), one.of)",
            "an unknown element",
        ),
        ("/^https?:\\/\\/[^\\s", "/^[^\\s", "another address"),
    ],
)
def test_a_renderer_with_a_mistake_is_found(one: House, before: str, after: str, found: str) -> None:
    with one.tab(plant={"text.js": (before, after)}) as tab, pytest.raises(AssertionError, match=found):
        fuzz(tab)


def test_text_of_any_shape_is_rendered_in_linear_time(one: House) -> None:
    with one.tab() as tab:
        for name, text in SLOW.items():
            (got,) = rendered(tab, [text[: 64 * 1024]])
            assert got["spent"] < 30 * LONGEST_TASK, name  # by the clock, on a busy machine
            assert got["longest"] <= 2000, name


def test_no_letter_links_to_this_page_or_to_the_code_of_a_visit(one: House) -> None:
    port = one.daemon.port
    hosts = (f"127.0.0.1:{port}", f"2130706433:{port}", "elsewhere.example")
    bad = [f"http://{host}/dashboard/#code=abc" for host in hosts] + [f"HTTP://127.1:{port}/", "http://x:99999/"]
    with one.tab() as tab:
        said = rendered(tab, [text for address in bad for text in (address, f"see [here]({address})")])
        assert [[]] * len(said) == [got["links"] for got in said]
        assert all(bad[at // 2] in got["text"] for at, got in enumerate(said)), "it can still be read"
        (got,) = rendered(tab, ["https://x.example/dashboard/#/code"])
        assert ["https://x.example/dashboard/#/code"] == got["links"]


def test_the_label_of_a_link_holds_no_other_link(one: House) -> None:
    with one.tab() as tab:
        (got,) = rendered(tab, ["[https://bank.example **https://bank.example/a**](https://elsewhere.example/)"])
        assert ["https://elsewhere.example/"] == got["links"]
        assert "https://bank.example https://bank.example/a (https://elsewhere.example/)" == got["text"]


def test_what_agents_write_looks_as_they_meant_it(one: House) -> None:
    text = (
        "# Title\n\nSome **bold `code`** and *soft* ~~gone~~ snake_case_name.\nnext line\n\n- one\n  - two\n- [x] three\n\n"
        "| a | b |\n|---|--:|\n| 1 | `2` |\n\n```python\nprint('x')\n```\n\n> quoted\n\n1. first\n2. second\n\nhttps://x.example/a?b=1."
    )
    with one.tab() as tab:
        (got,) = rendered(tab, [text])
        assert {"H4", "STRONG", "CODE", "EM", "DEL", "UL", "OL", "LI", "TABLE", "PRE", "BLOCKQUOTE", "A"} <= set(
            got["elements"]
        )
        assert ["https://x.example/a?b=1"] == got["links"]
        assert "snake_case_name" in got["text"]
        assert "\u2611 three" in got["text"]
