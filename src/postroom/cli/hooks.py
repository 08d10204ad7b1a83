"""The commands that agent hosts run as hooks; the logic is in `postroom.hosts.hooks`.

Whatever goes wrong with the mail, the session goes on: an error is one line on standard error, and the exit code
is 0.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..hosts.hooks import HookCall, SessionHook, agent_inbox_prompt, agent_inbox_start, wait_for_mail
from ..hosts.quick import DIALECTS, agent_of, folder_of, host_of, named_agent, socket_of
from ..hosts.recipes import MARGIN, WAIT
from ..model.codec import encode
from .answer import Answer
from .context import note, whole_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..app.inbox_files import InboxFolder
    from ..mailbox import Mailbox
    from ..room import Room
    from ..settings import Settings
    from .answer import Screen
    from .context import Context


WOKEN = 2  # the exit code by which a waiter wakes a session of Claude Code, with its text on standard error


class CommandAccess:
    """The settings and rooms of a command, as hooks use them: see `postroom.hosts.sources.Access`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def me(self) -> str:
        return self._context.me

    @property
    def room(self) -> Room:
        return self._context.room

    @property
    def mailbox(self) -> Mailbox:
        return self._context.mailbox

    @property
    def settings(self) -> Settings:
        return self._context.settings

    @property
    def room_address(self) -> str:
        return whole_address(self._context.settings.store)

    def choose(self, agent: str, room: str = "") -> None:
        self._context.values |= {"as": agent} | ({"room": room} if room else {})

    def letters_needing_steps(self) -> Iterator[str]:
        from .escalation import steps_for  # noqa: PLC0415 - only where a task or an escalation is unread

        return (step["letter"] for step in steps_for(self._context.mailbox))

    def inbox_files(self, folder: str) -> InboxFolder:
        from ..app.inbox_files import InboxFolder  # noqa: PLC0415 - only where there are such files

        return InboxFolder(folder)

    def warn(self, text: str) -> None:
        note(self._context.call, text)


def run_hook_session_start(context: Context) -> Iterator[Answer]:
    with _session_goes_on():
        place = (agent_of(context.values), socket_of(context.values), folder_of(context.values))
        for data in agent_inbox_start(CommandAccess(context), *place, context.screen.now):
            yield Answer(context.name, data, _text)


def run_hook_prompt(context: Context) -> Iterator[Answer]:
    with _session_goes_on():
        place = (agent_of(context.values), socket_of(context.values), folder_of(context.values))
        for data in agent_inbox_prompt(CommandAccess(context), *place, context.screen.now):
            yield Answer(context.name, data, _text)


def run_hook_host(context: Context) -> Iterator[Answer]:
    context.session = None  # the host names the session; one above it may have another room
    with _session_goes_on():
        host = host_of(context.name)
        dialect = DIALECTS[host]
        call = HookCall(
            host=host,
            dialect=dialect,
            host_input=context.call.host_input,
            agent=named_agent(context.values, dialect.AGENT),
            socket=socket_of(context.values),
            folder=folder_of(context.values),
            now=context.screen.now,
        )
        access = CommandAccess(context)
        if "wait" in context.values:
            for data in wait_for_mail(access, call, context.get("timeout", float(WAIT - MARGIN))):
                yield Answer(context.name, data, _nothing, code=WOKEN)
        else:
            for data in SessionHook(access, call).run():
                yield Answer(context.name, data, _host_output)


@contextmanager
def _session_goes_on() -> Iterator[None]:
    """Report any error on standard error and go on: this is the outer boundary of a hook."""
    try:
        yield
    except Exception as error:
        text = str(error) or type(error).__name__
        line = text if text.isprintable() else ascii(text)[1:-1]
        sys.stderr.write(f"postroom: no mail could be shown: {line[:500]}\n")
        sys.stderr.flush()


def _text(_screen: Screen, data: Mapping[str, Any]) -> str:
    return str(data["text"])


def _host_output(_screen: Screen, data: Mapping[str, Any]) -> str:
    return "" if data["output"] is None else encode(data["output"]).decode() + "\n"


def _nothing(_screen: Screen, _data: Mapping[str, Any]) -> str:
    return ""
