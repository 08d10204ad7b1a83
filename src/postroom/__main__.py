"""`python -m postroom`: the command line, where no `postroom` is on the path."""

from __future__ import annotations

from .cli.main import entry

if __name__ == "__main__":
    entry()
