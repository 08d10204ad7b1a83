"""The text of a letter: from an option, from standard input, or from an editor. Bounded, and UTF-8 or refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

from ..errors import Invalid, TooLarge
from ..whereabouts import variable
from .exits import Abandoned, NoInput, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from .context import Context

STDIN = "-"


def text_of(context: Context, *, optional: bool = False) -> str | None:
    """What was said with --body, else what is piped in, else what is written in the editor. When there is other
    content (`optional`), only what was asked for: a pipe that nobody closes must not hold up a letter.
    """
    said: str | None = context.get("body")
    if said is not None and context.get("edit"):
        raise Usage("is either given or edited", field="--body")
    if said == STDIN:
        return read_stdin(context, "body")
    if said is not None:
        return said
    if context.get("edit"):
        return _edited(context)
    if optional:
        return None
    if sys.stdin is not None and not sys.stdin.isatty():
        text = read_stdin(context, "body")
        if not text and not context.get("subject"):
            raise Invalid(
                "is empty", field="body", hint="say it with --body or pipe it in; bare words are recipients"
            )
        return text or None
    return _edited(context)


def read_stdin(context: Context, field: str) -> str:
    if sys.stdin is None:
        raise NoInput("standard input is closed", field=field)
    return _decoded(_bounded(sys.stdin.buffer, context, field), field)


def read_source(context: Context, source: str, field: str) -> str:
    """The text of a file, or of standard input for `-`."""
    if source == STDIN:
        return read_stdin(context, field)
    try:
        with open(source, "rb") as file:
            return _decoded(_bounded(file, context, field, most=64), field)
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field=field) from None


def _bounded(file: BinaryIO, context: Context, field: str, most: int = 1) -> bytes:
    """At most `most` times the size of a letter: nobody fills our memory."""
    largest = context.settings.max_message_bytes * most
    raw = file.read(largest + 1)
    if len(raw) > largest:
        raise TooLarge(
            f"is over {largest} bytes",
            field=field,
            hint="send a --reference to it, or raise the setting max_message_bytes",
        )
    return raw


def _decoded(raw: bytes, field: str) -> str:
    """One line end at the very end belongs to the pipe or the editor, not to the text."""
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as broken:
        raise Invalid(
            f"is not UTF-8 text (byte {broken.start})", field=field, hint="enclose it with --file"
        ) from None


def _edited(context: Context) -> str:
    import tempfile  # noqa: PLC0415 - people write few letters, programs many
    from pathlib import Path  # noqa: PLC0415

    if not editor() or sys.stdin is None or not sys.stdin.isatty():
        raise Usage("there is no text", field="--body", hint="say it with --body, pipe it in, or set EDITOR")
    context.draft = Path(tempfile.mkdtemp(prefix="postroom-")) / "letter.md"
    context.draft.touch(mode=0o600)
    run_editor(context.draft)
    with context.draft.open("rb") as file:
        text = _decoded(_bounded(file, context, "body"), "body")
    if not text.strip():
        context.drop_draft()
        raise Abandoned
    return text


def editor() -> str:
    """The user's own, as they start it; empty when they have none."""
    return variable("VISUAL") or variable("EDITOR")


def run_editor(draft: Path) -> None:
    """The user's editor, at this file, until it ends."""
    import shlex  # noqa: PLC0415 - likewise
    import subprocess  # noqa: PLC0415

    try:
        done = subprocess.run([*shlex.split(editor()), str(draft)], check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as broken:
        raise Usage(f"the editor cannot be started: {broken}", field="EDITOR") from None
    if done.returncode != 0:
        raise Abandoned(f"the editor ended with {done.returncode}, so nothing was sent")
