"""Codex CLI: its events and what it wants to hear. As documented for 0.166; see docs/codex.md."""

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
UNTYPED = (MARK,)  # prompts that nobody typed
ALONE = False  # its server runs many sessions in one process
WAKES = True
ENTRY = ""


def add(event: str, text: str) -> dict[str, object]:
    """Say something to the model, beside what goes on."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def hold(event: str, text: str) -> dict[str, object]:  # noqa: ARG001 - as the others
    """Say something to the model, which has just ended its turn, so that it goes on."""
    return {"decision": "block", "reason": text}
