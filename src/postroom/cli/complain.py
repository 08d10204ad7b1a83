"""An error as people and programs read it, and the code to end with."""

from __future__ import annotations

import sys

from ..whereabouts import variable
from .exits import exit_code

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..errors import PostroomError


LONGEST = 1000  # characters of what an error says; whatever it quotes


def complain(error: PostroomError, words: Sequence[str]) -> int:
    """Say what is wrong, on standard error."""
    error.message = _shortened(error.message)
    error.field, error.hint = error.field and _shortened(error.field), error.hint and _shortened(error.hint)
    if "--json" in words:
        from ..model.codec import encode  # noqa: PLC0415 - not for a word to people
        from ..service.present import harmless_json  # noqa: PLC0415

        text = harmless_json(encode({"schema": 1, "error": as_plain(error)})).decode()
    else:
        text = _for_people(error)
    sys.stderr.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stderr.buffer.flush()
    return exit_code(error)


def as_plain(error: PostroomError) -> dict[str, Any]:
    """The fields that programs may rely on."""
    known = {
        "code": error.code,
        "name": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "hint": error.hint,
        "temporary": error.temporary,
        "key": error.key,
        "retry_after": error.retry_after,
        "exit": exit_code(error),
    }
    return {name: _sayable(value) for name, value in known.items()}


def _for_people(error: PostroomError) -> str:
    from ..service.present import visible  # noqa: PLC0415 - only for mistakes

    bold, plain = ("\033[1;31m", "\033[0m") if _is_colourful() else ("", "")
    where = f"{error.field}: " if error.field else ""
    lines = [f"postroom: {visible(where + error.message)}"]
    if error.hint:
        lines.append(f"  {visible(error.hint)}")
    if error.key:
        lines.append(f"  to send the same letter again: --key {visible(error.key)}")
    text = "\n".join(folded for line in lines for folded in _folded(line.replace("\n", " ")))
    return f"{bold}postroom:{plain}{text.removeprefix('postroom:')}"


def _shortened(text: str) -> str:
    """What comes before a long quotation and behind it is what matters."""
    return text if len(text) <= LONGEST else f"{text[:120]}…{text[-120:]}"


def _folded(line: str) -> list[str]:
    """To the terminal's width. What has no blanks stays whole: it may be a path, or something to type."""
    if not sys.stderr.isatty():
        return [line]
    from textwrap import wrap  # noqa: PLC0415 - only for mistakes

    from .width import columns  # noqa: PLC0415

    return wrap(line, columns(sys.stderr), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _is_colourful() -> bool:
    return sys.stderr.isatty() and not variable("NO_COLOR") and variable("TERM") != "dumb"


def _sayable(value: Any) -> Any:
    """Half characters cannot be written as JSON."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
