"""Running a command: find its function, give it a context, render what it answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import PostroomError
from .context import Context, complete_ids
from .main import end
from .output import Answer, Uninterrupted, load_msgspec
from .table import FILE_OF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .output import Screen
    from .parse import Call


def run(call: Call) -> int:
    """The command's exit code; what it answered is on standard output."""
    context = Context(call)
    if call.command is None or "help" in call.values:
        from .help import explain  # noqa: PLC0415 - rare

        return _print(explain(call, context.screen), context.screen)
    file = FILE_OF[call.name]
    with Uninterrupted():
        if file != "help":  # the commands about the program itself need no library
            load_msgspec()
        module = __import__(f"{__package__}.{file}", fromlist=["COMMANDS"])
    function = getattr(module, f"run_{call.command.function}")
    try:
        complete_ids(context)
        answered: Answer | Iterator[Answer] = function(context)
        code = 0
        for answer in [answered] if isinstance(answered, Answer) else answered:
            code = _print(answer, context.screen)
    except OSError as broken:  # the answer cannot be written
        if not call.name.startswith("hook "):
            raise
        return end(f"postroom: {broken.strerror or broken}\n", 0)  # no session fails because of its mail
    except PostroomError as error:
        context.keep_draft(error)
        raise
    context.drop_draft()
    return code


def _print(answer: Answer, screen: Screen) -> int:
    text = answer.text(screen)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    return answer.code
