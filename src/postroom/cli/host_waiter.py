"""The waiter of a host's session: it waits for mail, and wakes the session as its host lets itself be woken."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..errors import Busy, Invalid
from ..hosts.heard import text_of
from ..hosts.queueing import queue
from ..hosts.recipes import MARGIN, WAIT
from ..hosts.waiter import alone, arrived, end_with_host
from ..hosts.waiter import wait as wait_and_ring
from ..hosts.wording import ring, ring_in_public
from ..whereabouts import variable
from .answers import Answer
from .host_bell import Bell
from .host_quick import dialect_of, host_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..hosts.sessions import Session
    from ..mailbox import Mailbox
    from ..model.ring import Rung
    from .answers import Screen
    from .context import Context

WOKEN = 2  # Claude Code wakes a session when its waiter ends so, with what it says on standard error


def wait(context: Context) -> Iterator[Answer]:
    """One answer, if the session is woken by the end of this process; silent otherwise."""
    dialect = dialect_of(context.name)
    if dialect.ENTRY and variable(dialect.ENTRY) != dialect.INTERACTIVE:
        return
    session = arrived(host_of(context.name), text_of(context.call.heard, "session_id"))
    if session is None:
        return
    with alone(session) as is_alone:
        if not is_alone:
            return
        mailbox = _bell(context, session)
        end_with_host(session)
        rung = _wait(mailbox, session, context.get("timeout", float(WAIT - MARGIN)))
        if rung is not None:
            text = ring(rung)
            sys.stderr.write(text)
            sys.stderr.flush()
            about = {"mailbox": rung.mailbox, "event": "", "count": 0, "total": rung.unread}
            about |= {"text": text, "output": None}
            yield Answer(context.name, about, _nothing, code=WOKEN)


def _bell(context: Context, session: Session) -> Mailbox | Bell:
    """Where the session's rings come from: the room, if it is known where that is."""
    if session.folder:
        raise Invalid("nobody rings for inbox files", field="POSTROOM_STORE", hint="name a room there")
    context.values |= {"as": session.agent} | ({"room": session.room} if session.room else {})
    bell = context.mailbox if session.room else Bell(session.socket, session.agent)
    gc.freeze()  # what was loaded stays
    return bell


def _wait(mailbox: Mailbox | Bell, session: Session, seconds: float) -> Rung | None:
    """The ring by which this process is to end, where its host is woken so."""
    last: list[Rung] = []

    def end_with(rung: Rung) -> bool:
        last.append(rung)
        return True

    def put_in_queue(rung: Rung) -> bool:
        if why := queue(session, ring_in_public(rung)):
            with suppress(Busy):  # a ring is a hint, and the mail waits
                mailbox.ring_failed(session.host, rung.ids, why)
        return False

    bell = end_with if session.host == "claude" else put_in_queue
    wait_and_ring(mailbox, session, seconds, bell, _now)
    return last[0] if last else None


def _now() -> float:
    return SystemClock().now().wall.timestamp()


def _nothing(_screen: Screen, _data: Mapping[str, Any]) -> str:
    return ""
