"""The entry point: give the quick answer if there is one, else load the command and run it."""

from __future__ import annotations

import gc
import os
import sys

# The commands that may have a quick answer, and the flags that it understands.
QUICK_FLAGS = {"check": ("--json", "--peek"), "counts": ("--json",), "digest": ("--json",), "hook": ("--wait",)}


def entry() -> None:
    """Run the command line and exit at once: nothing of ours needs closing, and time is short."""
    try:
        _open_what_is_closed()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was handled
        code = 130
    os._exit(code)


def _open_what_is_closed() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    A free descriptor number would go to the next file that is opened, such as the room's, and our output would be
    written into it.
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


def main(words: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        return _run(words)
    except KeyboardInterrupt:
        return end("postroom: interrupted\n", 130)
    except BrokenPipeError:
        return end("", 141)
    except OSError as broken:  # the answer cannot be written
        return end(f"postroom: {broken.strerror or broken}\n", 74)


def _run(words: list[str]) -> int:
    from ..environment import Uninterrupted  # noqa: PLC0415 - from here on Ctrl-C is caught

    look = None
    if words in (["-V"], ["--version"]):
        from .quick import version, version_text  # noqa: PLC0415 - rare

        sys.stdout.write(version_text(version()))
        sys.stdout.flush()
        return 0
    if words and words[0] in QUICK_FLAGS:
        from .quick import quick_look, understood  # noqa: PLC0415 - only these commands have a quick answer

        quick = understood(words)
        look = None if quick is None else quick_look(*quick)
    if look is not None and look.text is not None:
        sys.stdout.write(look.text)
        sys.stdout.flush()
        return 0
    gc.set_threshold(100_000)  # imports make many objects and no garbage; a short command never collects
    with Uninterrupted():
        from .run import run  # noqa: PLC0415 - the rest of the program
    return run(words, look)


def end(text: str, code: int) -> int:
    """Write a last line to standard error if it is still open, and return the exit code."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
    return code
