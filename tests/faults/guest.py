"""A store of another package, to show that it joins without a change to the suite (`test_joining.py`).

    POSTROOM_FAULTS_GUEST=tests.faults.guest:GUEST pytest tests/faults -k guest

Its room lies deeper in its folder, behind a wrapper: a test that relied on its class or its place would fail.
"""

from __future__ import annotations

from pathlib import Path

from postroom.errors import StoreFailing
from tests.faults.kinds import OWN_BUGS, SQLITE, Kind
from tests.faults.planting import BOOT, Opener, Wrapped, planted

NESTED = "nested"


def nested_folder(folder: Path) -> Path:
    made = folder / NESTED
    try:
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failed:
        raise StoreFailing(f"{made} cannot be made: {failed}", hint="free some space") from failed
    return made


def nested(open_store: Opener) -> Opener:
    return planted(Wrapped, lambda folder, boot=BOOT: open_store(nested_folder(folder), boot))


GUEST = Kind(
    name="guest",
    open=nested(SQLITE.open),
    scheme="sqlite",
    own_bugs={name: nested(SQLITE.own_bugs[name]) for name in OWN_BUGS},
    file=f"{NESTED}/{SQLITE.file}",
    hurry=SQLITE.hurry,
    fill_small=lambda folder, first, second: SQLITE.fill_small(nested_folder(folder), first, second),
    derived=SQLITE.derived,
    open_ended=SQLITE.open_ended,
    bodies=SQLITE.bodies,
)
