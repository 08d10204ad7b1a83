"""The rows of the hooks. Their functions stand in the file of the same name above."""

from __future__ import annotations

from .shape import Command

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
