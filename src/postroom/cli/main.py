"""The way in: understand the words, give the quick answer if there is one, else load the command and run it."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def entry() -> None:
    """What the installed program calls. It ends at once: nothing of ours needs closing, and time is short."""
    try:
        _open_what_is_closed()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was answered
        code = 130
    os._exit(code)


def _open_what_is_closed() -> None:
    """Whoever closed our output wants to hear nothing. Its number must be taken all the same, or the next file
    that is opened, such as the room's, would get what is said.
    """
    if sys.stdin is not None and sys.stdout is not None and sys.stderr is not None:
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we run
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115


def main(words: Sequence[str]) -> int:
    """Run one command and say how it ended."""
    try:
        return _run(words)
    except KeyboardInterrupt:
        return end("postroom: interrupted\n", 130)
    except BrokenPipeError:
        return end("", 141)
    except OSError as broken:  # the answer cannot be written
        return end(f"postroom: {broken.strerror or broken}\n", 74)


def _run(words: Sequence[str]) -> int:
    from ..errors import PostroomError  # noqa: PLC0415 - from here on Ctrl-C is caught

    try:
        from .parse import parse  # noqa: PLC0415
        from .quick import quick_answer  # noqa: PLC0415

        call = parse(words)
        answer = quick_answer(call)
        if answer is not None:
            sys.stdout.write(answer)
            sys.stdout.flush()
            return 0
        from .output import Uninterrupted  # noqa: PLC0415

        with Uninterrupted():
            gc.set_threshold(100_000)  # loading makes much and leaves no litter; a short command never collects
            from .run import run  # noqa: PLC0415 - the rest of the program

        return run(call)
    except PostroomError as error:
        from .errors import complain  # noqa: PLC0415 - only for mistakes

        return complain(error, words)


def end(text: str, code: int) -> int:
    """A last word, if anybody is there to read it. What is still buffered has nobody to go to."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
    return code
