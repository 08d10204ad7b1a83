"""Better than the originals, by counting: eight processes send a thousand letters each into one inbox.

The source designs lose 43 to 74 % of these, and tear some (measured on their own code). The planted twin sends as
they do: names by the millisecond, and the same ones for temporary files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from postroom.model.query import Query
from postroom.store.files.layouts.base import Layout, layout_named
from tests.conftest import LONG
from tests.coverage import uncounted
from tests.files.folders import inbox, opened

ROOT = Path(__file__).parent.parent.parent
PROCESSES, MANY = 8, 1000
SOME = MANY if LONG else 200  # in the short form a thousand once
PATIENCE = 300.0  # seconds; a bound, not a pace
# As the first designs write: the name is the time, the temporary file is everybody's.
NAIVE = """
import json, os, sys, time
folder, sender, prefix, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
for number in range(count):
    try:
        name = f"{int(time.time() * 1000)}_{sender}.msg.json"
        temporary = f"{folder}/{name}.tmp"
        with open(temporary, "w") as file:
            json.dump({"id": name, "from": sender, "content": {"parts": []}, "text": f"{prefix}-{number}"}, file)
        os.rename(temporary, f"{folder}/{name}")
        print(f"{prefix}-{number}", flush=True)
    except OSError:
        pass
"""


def run(*commands: list[str]) -> set[str]:
    """Run the commands at once; return the ids they report as sent."""
    environment = {**uncounted(os.environ), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for command in commands
    ]
    result: set[str] = set()
    for process in processes:
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        result |= set(out.split())
    return result


def texts_in(root: Path, layout: Layout) -> Counter[str]:
    """What lies in the inbox, read as a stranger reads it."""
    found: Counter[str] = Counter()
    for path in inbox(root, layout).glob("*.json"):
        fields = json.loads(path.read_text())
        body = fields.get("body") or fields["content"]["parts"][0]["text"]
        found[body.rpartition("\n")[2]] += 1
    return found


@pytest.mark.parametrize(
    ("name", "senders", "each"),
    [
        ("nanobot", "shared", MANY),
        ("nanobot", "own", SOME),
        ("chipset", "shared", SOME),
        ("swarm", "shared", SOME),
    ],
)
def test_eight_processes_send_many_letters_each_and_none_is_lost_or_torn(
    name: str, senders: str, each: int, tmp_path: Path
) -> None:
    layout = layout_named(name)
    address = f"files:{tmp_path}?layout={name}"
    command = [sys.executable, "-m", "tests.files.sender", address]
    result = run(*([*command, f"ann{n if senders == 'own' else ''}", str(n), str(each)] for n in range(PROCESSES)))

    assert len(result) == PROCESSES * each
    assert texts_in(tmp_path, layout) == Counter(result)
    with opened(tmp_path, layout) as store:
        order = [found.message.text for found in store.find(Query(mailbox="bob", order="age"))]
        assert Counter(order) == Counter(result)
        for number in range(PROCESSES):
            own = [int(text.partition("-")[2]) for text in order if text.startswith(f"{number}-")]
            assert own == list(range(each))  # each sender's in its order


def test_the_count_finds_a_sender_that_names_its_files_by_the_clock(tmp_path: Path) -> None:
    result = run(
        *([sys.executable, "-c", NAIVE, str(tmp_path), "ann", str(n), str(SOME)] for n in range(PROCESSES))
    )

    assert len(list(tmp_path.glob("*.msg.json"))) < len(result)
