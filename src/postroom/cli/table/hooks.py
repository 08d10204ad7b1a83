"""Rows of the command table for the hooks of agent hosts; the functions are in `postroom.cli.hooks`."""

from __future__ import annotations

from .shape import Command, Option

_ABOUT = (
    " Who you are: --as, POSTROOM_AGENT or INBOX_AGENT_ID; where none is set it does nothing and says nothing. Where the"
    " mail is, in this order: --room; a daemon at POSTROOM_SOCKET; POSTROOM_STORE; a daemon at INBOX_SOCKET or"
    " INBOX_SOCKET_PATH; where only the folder POSTROOM_INBOXES or INBOX_DIR is set, your inbox.jsonl in it; else the room of"
    " the project around the host's working folder, or your own.\n\n"
    "Bodies stand inside a fence and are cut. It takes two seconds at most (POSTROOM_HOOK_SECONDS) and never fails a session: what goes wrong is one"
    " line on standard error, and the exit code is 0."
)
_JSON = (
    ("mailbox", "whose mail"),
    ("count", "how many letters are shown"),
    ("total", "how many are unread"),
    ("text", "what is shown"),
)

COMMANDS = {
    "hook session-start": Command(
        "hook session-start",
        "for a host, when a session starts: register, and show waiting mail",
        about="Registers you with program claude-code, and the name in INBOX_AGENT_NAME if there is one; shows how each"
        " waiting letter begins, and marks nothing." + _ABOUT,
        examples=(("INBOX_AGENT_ID=coder postroom hook session-start", "the command of a SessionStart hook"),),
        json=_JSON,
        function="hook_session_start",
    ),
    "hook prompt": Command(
        "hook prompt",
        "for a host, with each prompt: show new mail, and mark what was shown as read",
        about="Prints nothing when there is nothing new. What was shown is marked as read, not as done; what did not fit"
        " comes with the next prompt." + _ABOUT,
        examples=(("INBOX_AGENT_ID=coder postroom hook prompt", "the command of a UserPromptSubmit hook"),),
        json=_JSON,
        function="hook_prompt",
        looks=True,
    ),
}  # fmt: skip


# -- agent hosts

_HOST_ABOUT = (
    "The host says on standard input which event it is, and gets its answer on standard output, in its own JSON; nothing, when"
    " there is nothing new. {moments}\n\n"
    "Who the session's agent is: --as, POSTROOM_AGENT or INBOX_AGENT_ID{option}; else as before, where the session is resumed or"
    " cleared; else after the folder of its project, with -2, -3 and so on while another live session, or another program's agent, has that name. Where the mail"
    " is is settled when the session starts: --room; a daemon at POSTROOM_SOCKET; POSTROOM_STORE; a daemon at INBOX_SOCKET or"
    " INBOX_SOCKET_PATH; where only the folder POSTROOM_INBOXES or INBOX_DIR is set, your inbox.jsonl in it; else the room of"
    " the project around the host's working folder, or your own.\n\n"
    "Bodies stand inside a fence and are cut. It takes two seconds at most (POSTROOM_HOOK_SECONDS) and never fails a session: what goes wrong is one"
    " line on standard error, and the exit code is 0. [The page about hosts](hosts.md) has more."
)
_SHOWS = (
    "When a session {start} it registers its agent and shows waiting mail; with each prompt and between tools it shows what is"
    " new; at the end of a turn it lets the turn go on, three times in a row at most, if something unread asks for it: urgent or of high priority,"
    " a task, a question about one or an escalation whose next step is this agent's. What was shown is marked as read, not as done."
    " In a chipset's state folder it shows pending work and nudges, too."
)
_HOST_JSON = (
    ("mailbox", "whose mail"),
    ("event", "what the host said"),
    ("count", "how many letters are shown"),
    ("total", "how many are unread"),
    ("text", "what is shown"),
    ("output", "the same in the host's own JSON; null when nothing is said"),
)
_EXITS = ((2, "with --wait: the session is woken; what it is told is on standard error"),)


def _wait(how: str) -> tuple[Option, Option]:
    return (
        Option("--wait", help=f"be the session's one waiter: wait for mail, and {how}", kind="flag"),
        Option("--timeout", help="with --wait, end after this; by default a week", kind="seconds", metavar="SPAN"),
    )


HOST_COMMANDS = {
    "hook claude": Command(
        "hook claude",
        "the hook of Claude Code, for all of its events: show new mail, and wake an idle session",
        *_wait("wake the session when it is idle"),
        about=_HOST_ABOUT.format(moments=_SHOWS.format(start="starts"), option=", or the plugin's option `agent`"),
        examples=(
            ("""echo '{"session_id":"1","cwd":"/tmp","hook_event_name":"UserPromptSubmit","prompt":"hi"}' | postroom hook claude --as coder""",
             "what Claude Code does with each prompt"),
        ),
        json=_HOST_JSON,
        exits=_EXITS,
        function="hook_host",
    ),
    "hook codex": Command(
        "hook codex",
        "the hook of Codex, for all of its events: show new mail, and wake an idle session",
        *_wait("queue a message for the session when it is idle (codex queue)"),
        about=_HOST_ABOUT.format(moments=_SHOWS.format(start="starts"), option=""),
        examples=(
            ("""echo '{"session_id":"1","cwd":"/tmp","hook_event_name":"UserPromptSubmit","prompt":"hi"}' | postroom hook codex --as coder""",
             "what Codex does with each prompt"),
        ),
        json=_HOST_JSON,
        function="hook_host",
    ),
    "hook gemini": Command(
        "hook gemini",
        "the hook of Gemini CLI, for all of its events: show new mail. Nothing wakes an idle session",
        about=_HOST_ABOUT.format(moments=_SHOWS.format(start="starts"), option=""),
        examples=(
            ("""echo '{"session_id":"1","cwd":"/tmp","hook_event_name":"BeforeAgent","prompt":"hi"}' | postroom hook gemini --as coder""",
             "what Gemini CLI does with each prompt"),
        ),
        json=_HOST_JSON,
        function="hook_host",
    ),
}  # fmt: skip

COMMANDS |= HOST_COMMANDS
