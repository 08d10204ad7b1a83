"""A kind of another house, to show that one joins without a word of the suite being changed (`test_joining.py`).

    POSTROOM_FAULTS_GUEST=tests.faults.guest:GUEST pytest tests/faults -k guest

It is a room that lies deeper in its folder, behind a wrapper: who relied on its class or its place would stumble.
"""

from __future__ import annotations

from pathlib import Path

from postroom.errors import StoreFailing
from tests.faults.kinds import OWN_BUGS, SQLITE, Kind
from tests.faults.planting import BOOT, Opener, Wrapped, planted

HOUSE = "house"


def house(folder: Path) -> Path:
    made = folder / HOUSE
    try:
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failed:
        raise StoreFailing(f"{made} cannot be made: {failed}", hint="free some space") from failed
    return made


def in_a_house(open_store: Opener) -> Opener:
    return planted(Wrapped, lambda folder, boot=BOOT: open_store(house(folder), boot))


GUEST = Kind(
    name="guest",
    open=in_a_house(SQLITE.open),
    scheme="sqlite",
    own_bugs={name: in_a_house(SQLITE.own_bugs[name]) for name in OWN_BUGS},
    file=f"{HOUSE}/{SQLITE.file}",
    hurry=SQLITE.hurry,
    fill_small=lambda folder, first, second: SQLITE.fill_small(house(folder), first, second),
    derived=SQLITE.derived,
    open_ended=SQLITE.open_ended,
)
