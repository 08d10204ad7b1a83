"""What the page of the dashboard costs its browser: a real Chromium at the flow of a large room, quiet and busy.

Times are from the navigation, by the browser's own clock. A key is painted with the frame after it. The processor
is that of all the browser's processes. Without a browser nothing is measured: `make browser` installs one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from .measure import Effort, Line

if TYPE_CHECKING:
    from .dashboard import BusyRoom

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
VISITS = 5  # first paints
KEYS = 120  # pressed one after the other
TICKS = os.sysconf("SC_CLK_TCK")
WATCH = """
window.seen = { row: 0, keys: [], long: [] };
new PerformanceObserver((list) => seen.long.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
const looking = new MutationObserver(() => {
  if (!document.querySelector(".list [role=option]:not(.bone)")) return;
  looking.disconnect();
  requestAnimationFrame(() => { seen.row = performance.now(); });
});
looking.observe(document, { childList: true, subtree: true });
addEventListener("keydown", (event) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => seen.keys.push(performance.now() - event.timeStamp);
  channel.port2.postMessage(0);
}), { capture: true });
"""


def measure_page(room: BusyRoom, effort: Effort) -> Iterator[Line]:
    """Measure in a quiet room first, then under load."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None or find_spec("playwright") is None:
        print("no browser is here, so the page is not measured: make browser")
        return
    from playwright.sync_api import sync_playwright  # installed by `make browser` alone

    options = ["--no-sandbox", "--enable-precise-memory-info"] if os.geteuid() == 0 else []
    with ThreadPoolExecutor(1) as thread, sync_playwright() as tools:
        # By the socket's client, which runs a loop of its own: not on the thread of Playwright's.
        link = thread.submit(room.link).result()
        browser = tools.chromium.launch(executable_path=path, args=options)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(WATCH)
        page = context.new_page()
        page.goto(link)
        page.wait_for_selector(".list [role=option], .state.empty")
        yield from _first_paint(context, room.url)
        page.goto(f"{room.url}/dashboard/#/flow")
        page.wait_for_selector(".list [role=option]")
        time.sleep(3)
        idle = _cpu(effort.idle)
        yield Line(
            name="dashboard page: CPU of the browser when nothing happens",
            value=idle,
            unit="% of a core",
            goal=1.0,
        )
        with room.load():
            time.sleep(2)
            yield from _under_load(page, effort)
        browser.close()


def _first_paint(context: Any, url: str) -> Iterator[Line]:
    paints, rows = [], []
    for _ in range(VISITS):
        page = context.new_page()
        page.goto(f"{url}/dashboard/#/flow")
        page.wait_for_function("() => seen.row > 0")
        paints.append(page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        rows.append(page.evaluate("() => seen.row"))
        page.close()
    for name, found, goal in (("first paint", paints, 300.0), ("first real row", rows, 500.0)):
        note = f"of {VISITS} visits; the slowest {max(found):.0f} ms"
        yield Line(name=f"dashboard page: {name}", value=median(found), unit="ms", goal=goal, note=note)


def _under_load(page: Any, effort: Effort) -> Iterator[Line]:
    page.evaluate("() => { seen.long.length = 0; }")
    heap = _heap(page)
    busy = _cpu(max(effort.idle, 4.0))
    long = page.evaluate("() => seen.long")
    yield Line(
        name="dashboard page: CPU of the browser at 1,000 letters a second",
        value=busy,
        unit="% of a core",
        goal=25.0,
        note="the list follows, and the picture is drawn ten times a second",
    )
    yield Line(
        name="dashboard page: longest task",
        value=max(long, default=0.0),
        unit="ms",
        goal=50.0,
        note=f"{len(long)} above 50 ms",
    )
    for number in range(KEYS):
        page.keyboard.press("j" if number % 4 else "k")
    keys = page.evaluate("() => seen.keys")
    slow = quantiles(keys, n=20)[18]
    note = f"median {median(keys):.0f} ms of {len(keys)} keys"
    yield Line(name="dashboard page: from a key to its paint, p95", value=slow, unit="ms", goal=50.0, note=note)
    after = _heap(page)
    rows = page.evaluate("() => document.querySelectorAll('*').length")
    note = f"{(after - heap) / 2**20:+.1f} MB in the meantime; {rows} elements in the document"
    yield Line(
        name="dashboard page: heap after a collection", value=after / 2**20, unit="MB", goal=20.0, note=note
    )


def _heap(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used


def _cpu(seconds: float) -> float:
    """Per cent of one core that all processes of the browser take."""
    before, began = _spent(), time.monotonic()
    time.sleep(seconds)
    return 100 * (_spent() - before) / (time.monotonic() - began)


def _spent() -> float:
    """Seconds that the browsers below this process have computed."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:  # it has just ended
            continue
        fields = rest.split()
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = int(fields[11]) + int(fields[12]) if "chrom" in name or "headless" in name else 0
    return sum(spent for process, spent in ticks.items() if spent and _is_ours(process, parents)) / TICKS


def _is_ours(process: int, parents: dict[int, int]) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = parents.get(process, 0)
    return False
