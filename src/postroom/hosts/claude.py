"""Claude Code: its events and what it wants to hear. As documented for 2.1; see docs/claude-code.md."""

from __future__ import annotations

from .events import BETWEEN, END, MARK, PROMPT, START, STOP

PROGRAM = "claude-code"
EVENTS = {
    "SessionStart": START,
    "UserPromptSubmit": PROMPT,
    "PostToolBatch": BETWEEN,
    "PostToolUse": BETWEEN,
    "Stop": STOP,
    "SessionEnd": END,
}
BUDGET = 9000  # bytes of context; it keeps 10,000 characters and puts the rest into a file
PROJECT = "CLAUDE_PROJECT_DIR"  # a variable
AGENT = "CLAUDE_PLUGIN_OPTION_AGENT"  # likewise: what was set for the plugin
UNTYPED = (MARK, "<task-notification>")  # prompts that nobody typed; the second is how a session is woken
ALONE = True  # one session at a time in a process
WAKES = True
# A variable, and what it says where somebody sits at a terminal. Elsewhere (`claude -p`) Claude Code waits for all
# hooks of the start before it begins, and twenty seconds for those of the end: a waiter would only hold it up.
ENTRY = "CLAUDE_CODE_ENTRYPOINT"
INTERACTIVE = "cli"


def add(event: str, text: str) -> dict[str, object]:
    """Say something to the model, beside what goes on."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:
    """Say something to the model, which has just ended its turn, so that it goes on. A turn that goes on for more
    context is no error; one that is blocked is shown as one.
    """
    return add(event, text)
