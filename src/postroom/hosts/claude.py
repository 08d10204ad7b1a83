"""Claude Code: its hook events and output format, as documented for 2.1; see docs/claude-code.md."""

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
AGENT = "CLAUDE_PLUGIN_OPTION_AGENT"  # a variable: the agent set for the plugin
UNTYPED = (MARK, "<task-notification>")  # prompts that no person typed; the second wakes a session
ALONE = True  # one session at a time in a process
WAKES = True
# A variable, and its value if a person sits at a terminal. Elsewhere (`claude -p`) Claude Code waits for all
# hooks of the start before it begins, and twenty seconds for those of the end: a waiter would only hold it up.
ENTRY = "CLAUDE_CODE_ENTRYPOINT"
INTERACTIVE = "cli"


def add(event: str, text: str) -> dict[str, object]:
    """Return output that adds text to the model's context."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:
    """Return output that continues a turn that has just ended, with text for the model.

    Claude Code shows a blocked turn as an error, and one that continues for more context not.
    """
    return add(event, text)
