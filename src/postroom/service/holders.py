"""Who holds a claim: whether the process that signed it is still there."""

from __future__ import annotations

import os
import re

_PROCESS = re.compile(r"\(process (\d+)\)$")  # as a mailbox signs its claims


def is_gone(holder: str) -> bool:
    """Is it known that this process is no more? It may be one of another container all the same."""
    named = _PROCESS.search(holder)
    if named is None:
        return False
    try:
        os.kill(int(named[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it is there, and another user's
        return False
    return False
