"""The daemon's log: what others say in it is shown, and obeyed by no terminal (threat 14)."""

from __future__ import annotations

import json
import logging
import sys
from typing import NoReturn

import pytest

from postroom.app.app import JsonFormatter, TextFormatter

SAID = "it says: \x1b[2J\r\n12:00:00 INFO a forged line \u202e\u200b\x9b31m"


def fail() -> NoReturn:
    raise ValueError(SAID)


def record() -> logging.LogRecord:
    try:
        fail()
    except ValueError:
        return logging.LogRecord("postroom", logging.WARNING, "", 0, "%s", (SAID,), sys.exc_info())


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_nothing_that_a_terminal_obeys_is_written(kind: type[logging.Formatter]) -> None:
    written = kind().format(record())
    assert all(letter.isprintable() or letter == "\n" for letter in written)
    first = written.splitlines()[0]
    assert "forged line" in first and "it says" in first


def test_a_program_reads_it_as_it_was_written() -> None:
    assert SAID == json.loads(JsonFormatter().format(record()))["message"]
