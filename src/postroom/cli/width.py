"""How wide a terminal is, for what is written to it: answers, help, errors."""

from __future__ import annotations

import os

from ..whereabouts import variable

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from typing import TextIO

NARROWEST = 40


def columns(stream: TextIO) -> int:
    """As wide as the terminal is; a person's COLUMNS beats what it says of itself."""
    said = variable("COLUMNS")
    if said.isascii() and said.isdecimal() and len(said) < 5:
        return max(int(said), NARROWEST)
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, NARROWEST)
    except OSError:
        return 80
