"""Codex CLI: its hook events and output format, as documented for 0.166; see docs/codex.md."""

from __future__ import annotations

from .events import BETWEEN, END, MARK, PROMPT, START, STOP

PROGRAM = "codex"
EVENTS = {
    "SessionStart": START,
    "UserPromptSubmit": PROMPT,
    "PostToolUse": BETWEEN,
    "Stop": STOP,
    "SessionEnd": END,
}
BUDGET = 8000  # bytes of context; it keeps 2,500 tokens of four bytes, and puts the rest into a file
PROJECT = ""
AGENT = ""
UNTYPED = (MARK,)  # prompts that no person typed
ALONE = False  # its server runs many sessions in one process
WAKES = True
ENTRY = ""


def add(event: str, text: str) -> dict[str, object]:
    """Return output that adds text to the model's context."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:  # noqa: ARG001 - as the others
    """Return output that continues a turn that has just ended, with text for the model."""
    return {"decision": "block", "reason": text}
