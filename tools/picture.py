"""Draw docs/plots/terminal.svg, the picture in the README: a terminal in which real commands were run just now.

The commands of the script below run one after another in a new room, each at a terminal of its own.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

SCRIPT = (
    'postroom send researcher "Which sort is stable?" --as coder --kind request',
    'postroom send human "May I drop the old index?" --as coder --kind request',
    "postroom board",
    'postroom work --as researcher --reply -- echo "Merge sort."',
    "postroom check --as coder",
    "postroom waiting --as human",
)
PICTURE = Path(__file__).parent.parent / "docs" / "plots" / "terminal.svg"
COLUMNS, LINE, CHARACTER, EDGE = 84, 20, 8.43, 20
INK, PAPER, FAINT = "#d8dee9", "#1d2330", "#8792a8"
STYLES = {"1": "font-weight:bold", "2": f"fill:{FAINT}", "31": "fill:#e06c75", "32": "fill:#98c379"}
STYLES |= {"33": "fill:#e5c07b", "36": "fill:#56b6c2"}
_COLOUR = re.compile(r"\x1b\[([\d;]*)m")


def run(command: str, folder: Path) -> str:
    """Run a command at a terminal of its own, and return what it printed."""
    theirs, ours = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    terminal = {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PATH": path, "HOME": str(folder)}
    subprocess.run(
        ["sh", "-c", command], cwd=folder, env=kept | terminal, stdin=ours, stdout=ours, stderr=ours, check=True
    )
    os.close(ours)
    printed = b""
    try:
        while piece := os.read(theirs, 65_536):
            printed += piece
    except OSError:  # what a terminal says at its end
        pass
    os.close(theirs)
    return printed.decode().replace("\r\n", "\n").rstrip("\n")


def drawn(line: str, row: int) -> str:
    """Return one line of the terminal as SVG, with its colours."""
    spans: list[str] = []
    style = ""
    for number, piece in enumerate(_COLOUR.split(line)):
        if number % 2:
            style = ";".join(STYLES[code] for code in piece.split(";") if code in STYLES)
        elif piece:
            spans.append(f'<tspan style="{style}">{escape(piece)}</tspan>' if style else escape(piece))
    return f'<text x="{EDGE}" y="{EDGE + LINE * row + 34}">{"".join(spans)}</text>'


def picture(lines: list[str]) -> str:
    width, height = round(COLUMNS * CHARACTER + 2 * EDGE), LINE * len(lines) + 2 * EDGE + 30
    dots = "".join(
        f'<circle cx="{EDGE + 4 + 18 * at}" cy="20" r="5.5" fill="{colour}"/>'
        for at, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
    )
    text = "\n".join(drawn(line, row) for row, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Postroom in a terminal: two agents exchange letters and a person sees what waits">\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>{dots}\n'
        f'<g fill="{INK}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" '
        f'xml:space="preserve">\n{text}\n</g>\n</svg>\n'
    )


def main() -> None:
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("postroom init", folder)
        for command in SCRIPT:
            printed = run(command, folder).split("\n")
            lines += [f"\x1b[36m$\x1b[0m \x1b[1m{command}\x1b[0m"]
            lines += [
                line for line in printed if not line.startswith("\x1b[2m  postroom")
            ]  # hints of what to type next
            lines += [""]
    PICTURE.write_text(picture(lines[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
