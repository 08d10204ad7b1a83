"""Gemini CLI: its hook events and output format, as documented for 0.61; see docs/gemini.md."""

from __future__ import annotations

from .events import BETWEEN, END, MARK, PROMPT, START, STOP

PROGRAM = "gemini-cli"
EVENTS = {
    "SessionStart": START,
    "BeforeAgent": PROMPT,
    "AfterTool": BETWEEN,
    "AfterAgent": STOP,
    "SessionEnd": END,
}
BUDGET = 8000  # bytes of context; it documents no limit
PROJECT = "GEMINI_PROJECT_DIR"  # a variable
AGENT = ""
UNTYPED = (MARK,)  # prompts that no person typed
ALONE = True  # one session at a time in a process
WAKES = False  # nothing wakes it when it is idle
ENTRY = ""


def add(event: str, text: str) -> dict[str, object]:
    """Return output that adds text to the model's context."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:  # noqa: ARG001 - as the others
    """Return output that rejects the answer that ended the turn; the text is the next prompt."""
    return {"decision": "deny", "reason": text}
