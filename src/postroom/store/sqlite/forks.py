"""How many forks this process is away from the one that loaded us. Asking for its id takes a call each time."""

from __future__ import annotations

import os

count = 0


def _forked() -> None:
    global count  # noqa: PLW0603 - one for the whole process
    count += 1


os.register_at_fork(after_in_child=_forked)
