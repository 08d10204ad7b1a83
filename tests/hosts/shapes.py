"""What each host understands of a hook's answer, by event, as it is documented. Nothing else may be said."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct


class Common(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True, omit_defaults=True):
    """What all three understand from any hook."""

    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None


class Context(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Text for the model, beside what goes on."""

    hook_event_name: str
    additional_context: str


class Adds(Common, forbid_unknown_fields=True, rename="camel", kw_only=True):
    hook_specific_output: Context


class Blocks(Common, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Codex, at the end of a turn: it has no word for more context there."""

    decision: Literal["block"]
    reason: str


class Denies(Common, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Gemini CLI, at the end of a turn: the reason is the model's next prompt."""

    decision: Literal["deny"]
    reason: str


# host -> event -> what it takes. At the end of a session nobody listens.
OUTPUTS: dict[str, dict[str, Any]] = {
    "claude": dict.fromkeys(("SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop"), Adds),
    "codex": dict.fromkeys(("SessionStart", "UserPromptSubmit", "PostToolUse"), Adds) | {"Stop": Blocks},
    "gemini": dict.fromkeys(("SessionStart", "BeforeAgent", "AfterTool"), Adds) | {"AfterAgent": Denies},
}
# What a host keeps of a text; the rest it puts into a file, or drops. Codex counts a token for four bytes.
LONGEST = {"claude": 10_000, "codex": 2_500 * 4, "gemini": 10_000}


def text_in(host: str, event: str, output: str) -> str:
    """What the model is told, of an answer that this host understands; empty when there is none."""
    if not output:
        return ""
    message = msgspec.json.decode(output.encode(), type=OUTPUTS[host][event])
    if isinstance(message, Adds):
        assert message.hook_specific_output.hook_event_name == event
        text = message.hook_specific_output.additional_context
    else:
        text = str(message.reason)
    length = len(text.encode()) if host == "codex" else len(text.encode("utf-16-le")) // 2
    assert 0 < length < LONGEST[host]
    return text
