"""A real browser, and a tab of it at the dashboard of a post room that runs: what it shows, asks for and complains about."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import postroom
from postroom.room import Room
from tests.people import signing
from tests.server.http.running import Daemon
from tests.server.http.visiting import enter, lending

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route, WebSocketRoute

MUST_RUN = (
    "POSTROOM_BROWSER_MUST_RUN"  # set by tools/check.py: where a browser can be installed, skipping proves nothing
)
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE = 30_000.0  # milliseconds; only what hangs takes this long, on a busy machine, too
STORED = "postroom.visit"  # where the page keeps its token

Plant = Mapping[str, tuple[str, str]]  # path of a file -> a text in it, and what stands there instead


def chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def excuse(must_run: bool, find: Callable[[str], str | None] = shutil.which, user: int = os.geteuid()) -> str:
    """Why a test in a browser may be skipped here; empty where there is no excuse."""
    if must_run and user == 0 and find("apt-get") is not None:
        return ""
    return "no browser is here: make browser"


def need_browser() -> str:
    """Return the path of the browser; skip the test where there is none, if that is allowed."""
    try:
        import playwright.sync_api  # noqa: F401 - it is not among the packages of `dev`
    except ImportError:
        found = None
    else:
        found = chromium()
    if found is None:
        reason = excuse(os.environ.get(MUST_RUN) == "1" or os.environ.get("CI") == "true")
        assert reason, "the browser is missing, and `make browser` could have installed it"
        pytest.skip(reason)
    return found


@contextmanager
def browsers() -> Iterator[Browser]:
    path = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        # A browser of root has no sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        one = tools.chromium.launch(executable_path=path, args=options)
        yield one
        one.close()


class House:
    """A post room that runs, with a person whose process acts for the page."""

    def __init__(self, daemon: Daemon, browser: Browser, token: str) -> None:
        self.daemon, self.browser, self.token = daemon, browser, token

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.daemon.port}"

    @contextmanager
    def room(self) -> Iterator[Room]:
        with postroom.open(self.daemon.room) as room:
            yield signing(room)

    @contextmanager
    def tab(
        self, at: str = "#/waiting", *, token: str | None = None, plant: Plant | None = None, **options: Any
    ) -> Iterator[Tab]:
        """A tab of its own, with the token of the visit in its storage."""
        context = self.browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        context.set_default_timeout(PATIENCE)
        kept = token or self.token
        context.add_init_script(f"localStorage.getItem({STORED!r}) ?? localStorage.setItem({STORED!r}, {kept!r})")
        try:
            one = Tab(context, self.address, plant or {})
            one.open(at)
            yield one
        finally:
            context.close()


@contextmanager
def house(daemon: Daemon, browser: Browser, *words: str) -> Iterator[House]:
    """The room with a process that lends a visit the person's right to act."""
    with lending(daemon, *words) as (_, code):
        yield House(daemon, browser, enter(daemon, code).json["token"])


class Tab:
    """One page, and everything about it that should not be."""

    def __init__(self, context: BrowserContext, address: str, plant: Plant) -> None:
        self.address = address
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.expected: tuple[str, ...] = ()  # patterns of complaints that belong to the test
        self._plant = plant
        page = self.page
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
        )
        page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url.replace("ws:", "http:", 1)))
        if plant:
            page.route("**/*", self._planted)

    def _planted(self, route: Route) -> None:
        wanted = next((name for name in self._plant if route.request.url.endswith(f"/{name}")), None)
        if wanted is None:
            route.continue_()
            return
        reply = route.fetch()
        before, after = self._plant[wanted]
        text = reply.text()
        assert before in text, f"{before!r} is not in {wanted}"
        # Fulfilled with its headers: the policy is the same.
        headers = {name: value for name, value in reply.headers.items() if name != "content-encoding"}
        route.fulfill(status=reply.status, headers=headers, body=text.replace(before, after))

    def open(self, at: str) -> None:
        self.page.goto(f"{self.address}/dashboard/{at}")
        self.page.wait_for_selector("#app > main")

    def go(self, at: str) -> None:
        """Open an address within the page."""
        self.page.evaluate("(at) => { location.hash = at; }", at)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def see(self, selector: str, text: str = "") -> None:
        """Wait until an element with this text is on the screen."""
        self.page.locator(selector).filter(has_text=text).first.wait_for(state="visible")

    def gone(self, selector: str, text: str = "") -> None:
        """Wait until no such element is on the screen."""
        self.page.locator(selector).filter(has_text=text).first.wait_for(state="hidden")

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).first.inner_text()  # typed also where there is no Playwright
        return found

    def rows(self) -> list[str]:
        return self.texts(".list [role=option]")

    def complaints(self) -> list[str]:
        """What the page complained about, and which requests went elsewhere."""
        said = [one for one in self.problems if not any(re.search(each, one) for each in self.expected)]
        return said + [
            f"request: {url}" for url in self.requests if not url.startswith((f"{self.address}/", "blob:"))
        ]

    @contextmanager
    def tasks(self) -> Iterator[list[float]]:
        """What each task of the page takes in the block, in milliseconds of the processor; the longest comes first.

        Not by the clock: on a busy machine that is the time of other programs too.
        """
        browser, found = self.page.context.browser, list[float]()
        assert browser is not None
        browser.start_tracing(page=self.page, categories=["toplevel", "__metadata"])
        try:
            yield found
        finally:
            events = json.loads(browser.stop_tracing())["traceEvents"]
        names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
        found += sorted(
            (
                one.get("tdur", 0) / 1000  # nothing where tracing began or ended within it
                for one in events
                if one["name"].endswith("RunTask") and names.get((one["pid"], one["tid"])) == "CrRendererMain"
            ),
            reverse=True,
        )

    # -- what the service says, changed on its way

    def between(self, change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]) -> None:
        """Pass each reply of the service through `change(call, reply)`; None: it is lost, and the connection breaks."""

        def joined(ours: WebSocketRoute) -> None:
            theirs = ours.connect_to_server()
            calls: dict[int, dict[str, Any]] = {}

            def asked(text: str | bytes) -> None:
                call = json.loads(text)
                calls[call["id"]] = call
                theirs.send(text)

            def answered(text: str | bytes) -> None:
                reply = json.loads(text)
                call = calls.get(reply.get("id", 0))
                changed = reply if call is None else change(call, reply)
                if changed is None:
                    ours.close(code=1011)
                    theirs.close()
                    return
                ours.send(json.dumps(changed))

            ours.on_message(asked)
            theirs.on_message(answered)

        self.page.route_web_socket(re.compile(r"/ws$"), joined)
        self.page.reload()
        self.page.wait_for_selector("#app > main")
