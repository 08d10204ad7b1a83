"""Compare a value with its golden file, or write the file anew, and reduce JSON to its shape."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("POSTROOM_WRITE_PINS") == "1"


def check_pin(name: str, value: Any) -> None:
    """Compare a JSON value with `golden/<name>.json`."""
    path = GOLDEN / f"{name}.json"
    actual = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if WRITE:
        path.write_text(actual, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8")
    if expected != actual:
        lines = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "pinned", "now", lineterm="", n=8)
        pytest.fail("\n".join([f"{path.name} differs from what users see now (see tests/pinned):", *lines]))


# What is different in every run, also as a part of a longer text.
_FORMS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d[:-]\d\d[:-]\d\d(\.\d+)?(Z|\+00:00)?"), "time"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "uuid"),
    (re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b"), "ulid"),
    (re.compile(r"(?<![0-9A-Za-z])\d{13}(?!\d)"), "milliseconds"),
    (re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{8,32}(?![0-9A-Za-z])"), "hex"),
    (re.compile(r"process \d+"), "process"),
)


def shape(value: Any) -> Any:
    """Reduce a JSON value to its keys and types. A list is the set of the shapes of its items."""
    match value:
        case dict():
            return {steady(key): shape(item) for key, item in value.items()}
        case list():
            shapes = {json.dumps(shape(item), sort_keys=True): shape(item) for item in value}
            return [shapes[key] for key in sorted(shapes)]
        case bool():
            return "bool"
        case int() | float():
            return "number"  # a whole number of seconds may be written either way
        case None:
            return None
        case str():
            is_time = _FORMS[0][0].fullmatch(value)
            return "time" if is_time else "text"
    raise TypeError(value)


def steady(value: Any) -> Any:
    """Keep a JSON value as it is, except for what is different in every run."""
    match value:
        case dict():
            return {steady(key): steady(item) for key, item in value.items()}
        case list() | tuple():
            return [steady(item) for item in value]
        case float():
            return "<number>"
        case int() if value > 1_000_000_000:
            return "<number>"
        case str():
            for form, name in _FORMS:
                value = form.sub(f"<{name}>", value)
    return value
