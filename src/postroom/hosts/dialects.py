"""The hosts: the events at which each one calls a hook, what it passes, and the form of its answers.

As documented for Claude Code 2.1, Codex 0.166 and Gemini CLI 0.61; see docs/agents.md. A host calls
hooks between any two steps and waits, so this module imports next to nothing.
"""

from __future__ import annotations

import os
from _json import make_scanner

# The events of a session at which its mail is checked, under one name for all hosts.
START = "start"  # a session starts, is resumed or cleared, or its context was compacted
PROMPT = "prompt"  # the session gets a prompt
BETWEEN = "between"  # tools were used, and the model continues
STOP = "stop"  # the model has ended its turn
END = "end"  # the session ends

MARK = "Postroom: "  # the beginning of all our text for a model; a prompt that begins so was typed by no person


class Dialect:
    """One host."""

    def __init__(
        self,
        *,
        program: str,
        events: dict[str, str],
        budget: int,
        stops_by: str = "",
        project: str = "",
        agent: str = "",
        untyped: tuple[str, ...] = (MARK,),
        is_alone: bool = True,
        wakes: bool = True,
        entry: str = "",
        interactive: str = "",
    ) -> None:
        self.program = program
        self.events = events
        self.budget = budget  # bytes of context
        self.stops_by = stops_by  # the decision by which a turn goes on; empty: more context is enough
        self.project = project  # the variable with the folder of the project
        self.agent = agent  # the variable with the agent that is set for the plugin
        self.untyped = untyped  # how prompts begin that no person typed
        self.is_alone = is_alone  # does a process run one session at a time?
        self.wakes = wakes  # can something wake it when it is idle?
        # A variable, and its value if a person sits at a terminal.
        self.entry = entry
        self.interactive = interactive

    def add(self, event: str, text: str) -> dict[str, object]:
        """Return output that adds text to the model's context."""
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}

    def hold(self, event: str, text: str) -> dict[str, object]:
        """Return output that continues a turn that has just ended, with text for the model."""
        return {"decision": self.stops_by, "reason": text} if self.stops_by else self.add(event, text)


CLAUDE = Dialect(
    program="claude-code",
    events={
        "SessionStart": START,
        "UserPromptSubmit": PROMPT,
        "PostToolBatch": BETWEEN,
        "PostToolUse": BETWEEN,
        "Stop": STOP,
        "SessionEnd": END,
    },
    budget=9000,  # it keeps 10,000 characters and puts the rest into a file
    # A blocked turn is shown as an error, and one that continues for more context is not.
    project="CLAUDE_PROJECT_DIR",
    agent="CLAUDE_PLUGIN_OPTION_AGENT",
    untyped=(MARK, "<task-notification>"),  # the second wakes a session
    # Without a person (`claude -p`) Claude Code waits for all hooks of the start before it begins, and twenty
    # seconds for those of the end: a waiter would only hold it up.
    entry="CLAUDE_CODE_ENTRYPOINT",
    interactive="cli",
)
CODEX = Dialect(
    program="codex",
    events={
        "SessionStart": START,
        "UserPromptSubmit": PROMPT,
        "PostToolUse": BETWEEN,
        "Stop": STOP,
        "SessionEnd": END,
    },
    budget=8000,  # it keeps 2,500 tokens of four bytes, and puts the rest into a file
    stops_by="block",
    is_alone=False,  # its server runs many sessions in one process
)
GEMINI = Dialect(
    program="gemini-cli",
    events={
        "SessionStart": START,
        "BeforeAgent": PROMPT,
        "AfterTool": BETWEEN,
        "AfterAgent": STOP,
        "SessionEnd": END,
    },
    budget=8000,  # it documents no limit
    stops_by="deny",  # it rejects the answer that ended the turn; the reason is the next prompt
    project="GEMINI_PROJECT_DIR",
    wakes=False,
)
DIALECTS = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI}


# -- what a hook reads: one JSON object on standard input, and small files

HOST = 1000  # milliseconds to wait for a host, which always writes but may be slow
PERHAPS = 50  # milliseconds to wait for a caller that may write nothing
_LONGEST = 16 * 2**20  # bytes: the results of tools may be long


class _Options:
    """The options of the C scanner in `_json`: no hooks, plain numbers."""

    strict = False
    object_hook = object_pairs_hook = array_hook = None
    parse_int, parse_float, parse_constant = int, float, float


_OPTIONS = _Options()


def read_input(patience: int) -> dict[str, object]:
    """Read the object that the host writes to standard input; empty if it is no JSON object or comes too late.

    All input is read: some hosts treat a hook that does not read as failed. Not every host closes the pipe, so the
    input ends where the object is complete. Input over the limit is read and dropped.
    """
    if os.isatty(0):
        return {}
    from select import POLLIN, poll  # noqa: PLC0415 - only for hooks

    ready = poll()
    ready.register(0, POLLIN)
    received = b""
    while ready.poll(patience):
        piece = os.read(0, 2**20)
        if not piece:
            break
        if len(received) + len(piece) <= _LONGEST:
            received += piece
            if piece.rstrip().endswith(b"}") and (value := read_object(received)):
                return value
    return {}


def read_object(raw: bytes) -> dict[str, object]:
    """Return a JSON object; an empty one if it is none."""
    try:
        value, _ = make_scanner(_OPTIONS)(  # type: ignore[arg-type] # typeshed describes json.decoder alone
            raw.decode("utf-8", "surrogateescape").lstrip(), 0
        )
    except (ValueError, StopIteration, RecursionError, SystemError):  # SystemError: its error class is in `json`
        return {}
    return value if isinstance(value, dict) else {}


def read_file(path: str, longest: int) -> tuple[dict[str, object], float]:
    """Return the JSON object in a file, and the time when it was written; an empty object if it is none."""
    # O_NONBLOCK: opening a named pipe must not block the host.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return read_object(os.read(file, longest)), os.fstat(file).st_mtime
    finally:
        os.close(file)


def text_of(fields: dict[str, object], name: str) -> str:
    """Return a field if it is text, otherwise an empty text."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""
