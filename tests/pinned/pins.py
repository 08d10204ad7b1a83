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


# What is different in every run. It is replaced in keys too: some objects are keyed by an id.
_FORMS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "time"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "uuid"),
)


def shape(value: Any) -> Any:
    """Reduce a JSON value to its keys and types. A list is the set of the shapes of its items."""
    match value:
        case dict():
            return {_key(key): shape(item) for key, item in value.items()}
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
            return next((name for form, name in _FORMS if form.fullmatch(value)), "text")
    raise TypeError(value)


def _key(key: str) -> str:
    for form, name in _FORMS:
        key = form.sub(f"<{name}>", key)
    return key
