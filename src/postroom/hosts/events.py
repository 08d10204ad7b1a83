"""The moments of a session at which its mail is looked at, whatever a host calls them."""

from __future__ import annotations

START = "start"  # a session starts, is resumed or cleared, or its context was compacted
PROMPT = "prompt"  # somebody says something to it
BETWEEN = "between"  # tools were used, and the model goes on
STOP = "stop"  # the model has ended its turn
END = "end"  # the session ends

MARK = "Postroom: "  # so begins all that is said to a model; a prompt that begins so was typed by nobody
