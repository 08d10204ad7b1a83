"""Running a command: find its function, give it a context, render what it answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .light import Uninterrupted, load_msgspec

load_msgspec()  # before anything else loads it

from ..errors import PostroomError  # noqa: E402
from .answers import Answer, Screen  # noqa: E402
from .context import Context  # noqa: E402
from .ids import complete_ids  # noqa: E402
from .parse import Call  # noqa: E402
from .table import FILE_OF  # noqa: E402


def run(call: Call) -> int:
    """The command's exit code; what it answered is on standard output."""
    context = Context(call)
    if call.command is None or "help" in call.values:
        from .meta import explain  # noqa: PLC0415 - rare

        return _print(explain(call, context.screen), context.screen)
    with Uninterrupted():
        module = __import__(f"{__package__}.{FILE_OF[call.name]}", fromlist=["COMMANDS"])
    function = getattr(module, f"run_{call.command.function}")
    try:
        complete_ids(context)
        answered: Answer | Iterator[Answer] = function(context)
        code = 0
        for answer in [answered] if isinstance(answered, Answer) else answered:
            code = _print(answer, context.screen)
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
