"""The body of a letter: its text from an option, standard input or an editor, and the parts that it encloses.

What is read is bounded, so that no input fills the memory, and refused unless it is UTF-8.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from ..clock import SystemClock
from ..core.compose import read_file_part
from ..environment import variable
from ..errors import Invalid, PostroomError, TooLarge
from ..model.message import file, reference
from .errors import Abandoned, NoInput, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ..model.message import Part
    from .context import Context


STDIN = "-"


def content(context: Context) -> Any:
    """Return the body of the letter: its text, and the parts it encloses."""
    check_fields(context)
    enclosed = [
        *(_enclosed(context, path) for path in context.get("file", ())),
        *(reference(uri) for uri in context.get("reference", ())),
        *context.get("part", ()),
    ]
    command = context.call.command
    is_optional = bool(enclosed) or "data" in context.values or (command is not None and not command.needs_text)
    text = body_text(context, optional=is_optional)
    if not enclosed:
        return text
    return enclosed if text is None else [text, *enclosed]


def check_fields(context: Context) -> None:
    """Refuse fields of a letter that the verb would take, and that are probably a mistake at a shell."""
    if "task" in context.values and "kind" not in context.values:
        raise Usage(
            "a plain letter moves no task",
            field="--task",
            hint="postroom tasks complete, fail, … do; a letter that only carries the note says --kind too",
        )
    at = context.get("at")
    again = context.values.keys() & {"key", "letter_id"}  # a retry of the same letter, whose time may be past
    if isinstance(at, datetime) and at < SystemClock().now().wall and not again:
        raise Invalid(f"{at.isoformat()} is past", field="--at", hint="leave it out to send at once")


def _enclosed(context: Context, path: str) -> Part:
    """Read a file to enclose. Errors name the option --file."""
    settings = context.settings
    try:
        return read_file_part(file(path), settings.file_root, settings.max_message_bytes, "--file")
    except PostroomError as refused:
        refused.field = "--file"
        if type(refused) is Invalid:
            raise NoInput(refused.message, field="--file") from None
        raise


def body_text(context: Context, *, optional: bool = False) -> str | None:
    """Return the text of --body, else what is piped in, else what the user writes in an editor.

    Where there is other content (`optional`), standard input is read only if --body asks for it: a pipe that
    nobody closes must not hold up a letter.
    """
    body: str | None = context.get("body")
    if body == STDIN:
        return read_source(context, STDIN, "body")
    if body is not None:
        return body
    if context.get("edit"):
        return _edited(context)
    if optional:
        return None
    if sys.stdin is None or sys.stdin.isatty():
        return _edited(context)
    text = read_source(context, STDIN, "body")
    if not text and not context.get("subject"):
        raise Invalid(
            "is empty",
            field="body",
            hint="it follows the other arguments, in quotes; or name it with --body, or pipe it in",
        )
    return text or None


def read_source(context: Context, source: str, field: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    if source == STDIN:
        if sys.stdin is None:
            raise NoInput("standard input is closed", field=field)
        return _read(sys.stdin.buffer, context, field)
    try:
        with open(source, "rb") as file:
            return _read(file, context, field, most=64)
    except OSError as broken:
        raise NoInput(f"{source!a} cannot be read: {broken.strerror}", field=field) from None


def _read(file: BinaryIO, context: Context, field: str, most: int = 1) -> str:
    """Read at most `most` times the size of a letter, without the last line end: it belongs to pipe or editor."""
    largest = context.settings.max_message_bytes * most
    raw = file.read(largest + 1)
    if len(raw) > largest:
        raise TooLarge(
            f"is over {largest} bytes",
            field=field,
            hint="send a --reference to it, or raise the setting max_message_bytes",
        )
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as broken:
        raise Invalid(
            f"is not UTF-8 text (byte {broken.start})", field=field, hint="enclose it with --file"
        ) from None


# -- the editor


def editor() -> str:
    """Return the command of the user's editor; empty where none is set."""
    return variable("VISUAL") or variable("EDITOR")


def run_editor(draft: Path) -> None:
    """Run the user's editor on a file until it ends."""
    import subprocess  # noqa: PLC0415 - only for people
    from shlex import split  # noqa: PLC0415 - only for people

    try:
        done = subprocess.run([*split(editor()), str(draft)], check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError) as broken:
        raise Usage(f"the editor cannot be started: {broken}", field="EDITOR") from None
    if done.returncode != 0:
        raise Abandoned(f"the editor ended with {done.returncode}, so nothing was sent")


def _edited(context: Context) -> str:
    import tempfile  # noqa: PLC0415 - only for people
    from pathlib import Path  # noqa: PLC0415 - only for people

    if not editor() or sys.stdin is None or not sys.stdin.isatty():
        raise Usage(
            "there is no text",
            field="--body",
            hint="it follows the other arguments, in quotes; or name it with --body, pipe it in, or set EDITOR",
        )
    context.draft = Path(tempfile.mkdtemp(prefix="postroom-")) / "letter.md"
    context.draft.touch(mode=0o600)
    run_editor(context.draft)
    with context.draft.open("rb") as written:
        text = _read(written, context, "body")
    if not text.strip():
        context.drop_draft()
        raise Abandoned
    return text
