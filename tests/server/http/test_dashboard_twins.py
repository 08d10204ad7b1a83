"""Each rule that keeps the dashboard safe, with the rule taken away: the test of it must fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.http import test_dashboard
from tests.server.http.running import Client, Daemon

pytestmark = pytest.mark.daemon


def pages_of_others(served: Daemon) -> None:
    client = Client(served.port)
    try:
        for headers in ({"host": "evil.example"}, {"origin": "null"}, {"sec_fetch_site": "same-site"}):
            test_dashboard.test_pages_of_others_get_nothing(client, "GET", "/dashboard/", headers)
    finally:
        client.close()


def codes_without_origin(served: Daemon) -> None:
    client = Client(served.port)
    try:
        test_dashboard.test_a_code_needs_an_origin(served, client)
    finally:
        client.close()


TWINS: dict[str, tuple[str, Callable[[Daemon], None]]] = {
    "a code is good twice": (
        """
from postroom.server import visits
honest = visits.Visits.enter
def enter(self, text):
    found = honest(self, text)
    self._codes[visits.token_hash(text)].is_used = False
    return found
visits.Visits.enter = enter""",
        test_dashboard.test_a_code_opens_one_visit_and_only_for_our_own_page,
    ),
    "host, origin and site are not checked": (
        "from postroom.server import http\nhttp.HttpAuth.check_request = lambda self, scope: None",
        pages_of_others,
    ),
    "the site is not checked": (
        'from postroom.server import http\nhttp._SITES = ("same-site",) * 2',
        pages_of_others,
    ),
    "a code needs no origin": (
        """
from postroom.server import dashboard
honest = dashboard.header_values
dashboard.header_values = lambda headers, name: honest(headers, name) or (["x"] if name == b"origin" else [])""",
        codes_without_origin,
    ),
    "nobody else's connection is let in": (
        "from postroom.server import dashboard\ndashboard.is_of_others = lambda *_ends: True",
        test_dashboard.test_a_code_opens_one_visit_and_only_for_our_own_page,
    ),
    "a visit writes": (
        """
from postroom.core import verb
honest = verb.authorize
def authorize(principal, action, mailbox=None, *, reads=False):
    return None if principal.visit else honest(principal, action, mailbox, reads=reads)
verb.authorize = authorize""",
        test_dashboard.test_a_visit_looks_at_everything_and_writes_nothing,
    ),
    "a page need not say who it is": (
        """
from postroom.core.authorize import OWNER
from postroom.server import streams
async def authenticated(app, connection, receive, send):
    connection.caller.become(OWNER)
    return True
streams._authenticated = authenticated""",
        test_dashboard.test_a_page_says_who_it_is_before_anything_else,
    ),
    "lock forgets nothing": (
        "from postroom.server import visits\nvisits.Visits.lock = lambda self: self._codes.clear() or 0",
        test_dashboard.test_lock_ends_every_visit_and_every_code,
    ),
    "a visit is kept in a file": (
        """
from postroom.server import visits
honest = visits.Visits.enter
def enter(self, text):
    found = honest(self, text)
    open("visits", "a").write(found[0])
    return found
visits.Visits.enter = enter""",
        test_dashboard.test_a_visit_is_kept_in_no_file,
    ),
}


@pytest.mark.parametrize("bug", TWINS)
def test_a_rule_that_is_taken_away_is_missed(tmp_path: Path, bug: str) -> None:
    source, check = TWINS[bug]
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(source, encoding="utf-8")
    served = Daemon(tmp_path, "--http", "127.0.0.1:0", before=planted)
    try:
        with pytest.raises((AssertionError, KeyError, TimeoutError, pytest.fail.Exception)):
            check(served)
    finally:
        served.kill()
