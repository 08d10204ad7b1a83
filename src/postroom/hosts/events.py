"""The events of a session at which its mail is checked, under one name for all hosts."""

from __future__ import annotations

START = "start"  # a session starts, is resumed or cleared, or its context was compacted
PROMPT = "prompt"  # the session gets a prompt
BETWEEN = "between"  # tools were used, and the model continues
STOP = "stop"  # the model has ended its turn
END = "end"  # the session ends

MARK = "Postroom: "  # the beginning of all our text for a model; a prompt that begins so was typed by no person
