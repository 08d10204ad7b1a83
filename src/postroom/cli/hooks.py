"""The commands that agent hosts run as hooks; the logic is in `postroom.hosts.hooks`.

Whatever goes wrong with the mail, the session goes on: an error is one line on standard error, and the exit code
is 0.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..hosts.dialects import DIALECTS
from ..hosts.hooks import HookCall, SessionHook, agent_inbox_prompt, agent_inbox_start, wait_for_mail
from ..hosts.quick import agent_of, folder_of, host_of, named_agent, socket_of
from ..hosts.recipes import MARGIN, WAIT
from ..model.codec import encode
from .answer import Answer
from .command import Option, command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .answer import Screen
    from .context import Context


_PLACES = (
    "--room; a daemon at POSTROOM_SOCKET; POSTROOM_STORE; a daemon at INBOX_SOCKET or INBOX_SOCKET_PATH; your inbox.jsonl in"
    " the folder POSTROOM_INBOXES or INBOX_DIR, if only that is set; else the room of the project around the host's working"
    " folder, or your own.\n\n"
    "Bodies stand inside a fence and are cut. A hook takes two seconds at most (POSTROOM_HOOK_SECONDS) and never fails a"
    " session: an error is one line on standard error, and the exit code is 0."
)
_ABOUT = (
    " Your name is --as, POSTROOM_AGENT or INBOX_AGENT_ID; where none is set, the hook does nothing and prints nothing. The"
    f" mail is looked for in this order: {_PLACES}"
)
_HOST_ABOUT = (
    "The host passes the event on standard input and gets the answer on standard output, in its own JSON; if there is nothing"
    " new, nothing is printed. {moments}\n\n"
    "The session's agent is the one of --as, POSTROOM_AGENT or INBOX_AGENT_ID{option}; else, in a session that is resumed or"
    " cleared, the agent of before; else one with the name of the project's folder, with -2, -3 and so on while another live"
    " session, or another program's agent, has that name. When the session starts, the place of its mail is chosen, in this"
    f" order: {_PLACES} [The page about hosts](agents.md) has more."
)
_SHOWS = (
    "When a session starts it registers its agent and shows waiting mail; with each prompt and between tools it shows what is"
    " new; at the end of a turn it lets the turn go on, three times in a row at most, if something unread asks for it: urgent or of high priority,"
    " a task, a question about one or an escalation whose next step is this agent's. What was shown is marked as read, not as done."
    " In a chipset's state folder it shows pending work and nudges, too."
)


def _wait(how: str) -> tuple[Option, Option]:
    return (
        Option("--wait", help=f"be the session's one waiter: wait for mail, and {how}", kind="flag"),
        Option("--timeout", help="with --wait, end after this; by default a week", kind="seconds", metavar="SPAN"),
    )


# host -> (its name, its event of a prompt, whence its agent's name may come besides, how it is woken)
_HOSTS = {
    "claude": (
        "Claude Code",
        "UserPromptSubmit",
        ", or the plugin's option `agent`",
        "wake the session when it is idle",
    ),
    "codex": ("Codex", "UserPromptSubmit", "", "queue a message for the session when it is idle (codex queue)"),
    "gemini": ("Gemini CLI", "BeforeAgent", "", ""),
}
WOKEN = 2  # the exit code by which a waiter wakes a session of Claude Code, with its text on standard error


@command(
    "hook session-start",
    about="Registers you with program claude-code, and the name in INBOX_AGENT_NAME if there is one; shows how each"
    " waiting letter begins, and marks nothing." + _ABOUT,
    examples=(("INBOX_AGENT_ID=coder postroom hook session-start", "the command of a SessionStart hook"),),
    json="mailbox count total text",
)
@command(
    "hook prompt",
    about="Prints nothing when there is nothing new. What was shown is marked as read, not as done; what did not fit"
    " comes with the next prompt." + _ABOUT,
    examples=(("INBOX_AGENT_ID=coder postroom hook prompt", "the command of a UserPromptSubmit hook"),),
    json="mailbox count total text",
    looks=True,
)
def run_agent_inbox_hook(context: Context) -> Iterator[Answer]:
    run = agent_inbox_prompt if context.name == "hook prompt" else agent_inbox_start
    with _session_goes_on():
        place = (agent_of(context.values), socket_of(context.values), folder_of(context.values))
        for data in run(context, *place, context.screen.now):
            yield Answer(context.name, data, _text)


def _for_hosts(run: Callable[[Context], Iterator[Answer]]) -> Callable[[Context], Iterator[Answer]]:
    """Declare the hook of each host; all of them run one function."""
    for host, (program, prompt, option, wakes_by) in _HOSTS.items():
        played = f'{{"session_id":"1","cwd":"/tmp","hook_event_name":"{prompt}","prompt":"hi"}}'
        command(
            f"hook {host}",
            *(_wait(wakes_by) if wakes_by else ()),
            about=_HOST_ABOUT.format(moments=_SHOWS, option=option),
            examples=(
                (f"echo '{played}' | postroom hook {host} --as coder", f"what {program} does with each prompt"),
            ),
            json="mailbox event count total text output",
        )(run)
    return run


@_for_hosts
def run_hook_host(context: Context) -> Iterator[Answer]:
    context.session = None  # the host names the session; one above it may have another room
    with _session_goes_on():
        host = host_of(context.name)
        call = HookCall(
            host=host,
            host_input=context.call.host_input,
            agent=named_agent(context.values, DIALECTS[host].agent),
            socket=socket_of(context.values),
            folder=folder_of(context.values),
            now=context.screen.now,
        )
        if "wait" in context.values:
            for data in wait_for_mail(context, call, context.get("timeout", float(WAIT - MARGIN))):
                yield Answer(context.name, data, lambda _screen, _data: "", code=WOKEN)
        else:
            for data in SessionHook(context, call).run():
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
