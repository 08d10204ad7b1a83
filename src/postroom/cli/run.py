"""Running a command: parse its words, import its module, render its answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..environment import Uninterrupted
from ..errors import PostroomError, UnknownMessage
from .answer import Answer, screen_of
from .main import end
from .parse import parse
from .table import FORMER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..hosts.quick import Look
    from .answer import Screen
    from .parse import Call


_LISTS = {"tasks": "tasks", "dead": "dead", "unsend": "sent", "trace": "sent", "rings": "rings"}
NEED_NO_ROOM = {"help", "version", "completion", "__complete"}  # commands about the program itself


def run(words: Sequence[str], look: Look | None) -> int:
    """Run a command and return its exit code. `look`: what the first look found, where there was one."""
    try:
        call = parse(words)
        if look is None and call.name.startswith("hook ") and "help" not in call.values:
            from .quick import quick_look  # noqa: PLC0415 - only for hooks

            look = quick_look(call.name, call.values)
            if look.text is not None:
                sys.stdout.write(look.text)
                return 0
        if look is not None:
            call.host_input = look.host_input
        return _run_call(call)
    except PostroomError as error:
        from .errors import complain  # noqa: PLC0415 - only for mistakes

        return complain(error, words)


def _run_call(call: Call) -> int:
    command = call.command
    if command is None or "help" in call.values:
        from .help import explain  # noqa: PLC0415 - rare

        screen = screen_of(call)
        return _print(explain(call, screen), screen)
    if command.name in NEED_NO_ROOM:
        answer: Answer = command.run(call)
        return _print(answer, screen_of(call))
    with Uninterrupted():
        from .context import Context, complete_ids, note  # noqa: PLC0415 - the library, which help does not need

    context = Context(call)
    if command.by:
        context.default_me(command.by)
    if call.name in FORMER:
        note(
            call, f"{call.name!r} is called {FORMER[call.name]!r} now; the former name ends with the next version"
        )
    try:
        complete_ids(context)
        answered: Answer | Iterator[Answer] = command.run(context)
        code = 0
        for answer in [answered] if isinstance(answered, Answer) else answered:
            code = _print(answer, context.screen)
    except OSError as broken:  # the answer cannot be written
        if not call.name.startswith("hook "):
            raise
        return end(f"postroom: {broken.strerror or broken}\n", 0)  # no session fails because of its mail
    except PostroomError as error:
        if isinstance(error, UnknownMessage) and not error.hint:
            error.hint = f"postroom {_LISTS.get(call.name.partition(' ')[0], 'check --all')} lists what is there"
        context.keep_draft(error)
        raise
    context.drop_draft()
    return code


def _print(answer: Answer, screen: Screen) -> int:
    sys.stdout.buffer.write(answer.text(screen).encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    return answer.code
