"""Writes every file that is made from the code: the reference pages, the types of `aio`, the plugin's files, and
the characters that the dashboard writes out.

With --check it writes nothing and says which of them are not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

import aio_stub
import commands
import mcp_tools
import plugin
import reference
import wire

from postroom.core.presentation import HIDDEN
from postroom.dashboard.files import STATIC

HOME = Path(__file__).parent.parent


def files() -> dict[Path, str]:
    """Return each file, and what it should hold."""
    docs = HOME / "docs"
    return {
        docs / "commands.md": commands.page(),
        docs / "reference.md": reference.page(),
        docs / "mcp-tools.md": mcp_tools.page(),
        docs / "service.md": wire.service_page(),
        docs / "federation-wire.md": wire.federation_page(),
        aio_stub.STUB: aio_stub.stub(),
        **plugin.files(),
        STATIC / "hidden.js": hidden_script(),
    }


def hidden_script() -> str:
    """Return the characters that hide or reorder text as a pattern of JavaScript."""
    shown = "".join(one if one.isascii() and one.isprintable() else f"\\u{{{ord(one):x}}}" for one in HIDDEN)
    about = "/** Written by tools/pages.py from core/presentation.py: the characters that hide or reorder text. */"
    return f"{about}\n\nexport const HIDDEN =\n  /{shown}/gu;\n"


def main() -> None:
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text}
    names = ", ".join(str(path.relative_to(HOME)) for path in stale)
    if "--check" in sys.argv[1:]:
        sys.exit(f"not current: {names}; make pages writes them" if stale else 0)
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    print(f"written anew: {names}" if stale else "every page is current")


if __name__ == "__main__":
    main()
