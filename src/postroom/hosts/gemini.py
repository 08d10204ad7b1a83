"""Gemini CLI: its events and what it wants to hear. As documented for 0.61; see docs/gemini.md."""

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
UNTYPED = (MARK,)  # prompts that nobody typed
ALONE = True  # one session at a time in a process
WAKES = False  # nothing wakes it when it is idle
ENTRY = ""


def add(event: str, text: str) -> dict[str, object]:
    """Say something to the model, beside what goes on."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:  # noqa: ARG001 - as the others
    """Reject the answer with which the model ended its turn; what is said here is its next prompt."""
    return {"decision": "deny", "reason": text}
