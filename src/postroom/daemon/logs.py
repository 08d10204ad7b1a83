"""Structured lines on stderr: one JSON object per line for programs, or plain text for people at a terminal."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from ..model.codec import encode
from ..service.present import harmless_json, one_line, visible

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """What happened, when, and whatever was said beside it by `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return harmless_json(encode({name: _plain(value) for name, value in told.items()})).decode()


class PlainLines(logging.Formatter):
    """The same for people. What others say in it moves no cursor and hides nothing."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the library calls it
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - likewise
        return "\n".join(visible(line) for line in super().formatException(ei).splitlines())


def _plain(value: object) -> object:
    """What JSON can say. A name of a file may hold what is no text, a number may be too large."""
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value).encode("utf-8", "backslashreplace").decode()


def start(level: str) -> None:
    """Log to stderr, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
