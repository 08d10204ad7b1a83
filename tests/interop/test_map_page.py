"""The page says what to type, and what comes of it: the script is run as it stands there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.docs.pages import HOME, blocks
from tests.interop.map_programs import require_sdk
from tests.interop.packages import PATIENCE
from tests.web.running import daemon

PAGE = HOME / "docs" / "map.md"


def test_the_script_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    folder = require_sdk()
    (script,) = [block.code for block in blocks(PAGE) if block.language == "js"]
    (told,) = [block.code for block in blocks(PAGE) if "node agents.mjs" in block.code]
    program = folder / f"agents-{os.getpid()}.mjs"  # where it finds its packages
    program.write_text(script, encoding="utf-8")
    try:
        with daemon(tmp_path, "--http", "127.0.0.1:0") as running:
            tokens = {"ASKER_TOKEN": running.token("asker"), "SORTER_TOKEN": running.token("sorter")}
            done = subprocess.run(
                ["node", program.name],
                cwd=folder,
                env=os.environ | tokens | {"MAP_URL": running.where["map"]},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
    finally:
        program.unlink()
    assert (0, told.splitlines()[1:]) == (done.returncode, done.stdout.splitlines()), done.stderr
