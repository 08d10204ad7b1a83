"""Several gateways of one agent share its mail; a session lives at one of them, and what was asked there goes
there.

A home is the data folder of a gateway: whoever starts there again has the same sessions. Each gateway signs in a
record that it is there. One that is gone is awaited for a while; then its letters are for whoever can tell.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from ..model.codec import convert, to_plain
from ..model.record import GATEWAY
from ..service.records import find_record, put_record
from . import holders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..service.office import Office
    from ..store.base import Write

log = logging.getLogger("postroom")

ALIVE = timedelta(seconds=60)  # after its last sign a gateway still counts as there
AWAITED = timedelta(minutes=10)  # after its last sign it is expected back
KEPT = timedelta(days=30)
FILE = "mailbox.id"
LONGEST = 100  # characters of an id


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """The last sign of a gateway."""

    home: str
    signed: str  # as it signs its claims
    at: Annotated[datetime, Meta(tz=True)]
    left: bool = False

    def is_there(self, now: datetime) -> bool:
        return not self.left and now - self.at < ALIVE and not holders.is_dead(self.signed)


def home_at(folder: Path) -> str:
    """What the gateways of this folder are known by: an id that is kept there, and moves with it."""
    file = folder / FILE
    try:
        if not file.exists():
            _write_once(file, uuid.uuid4().hex)
        return file.read_text(encoding="utf-8").strip()[:LONGEST] or str(folder)[-LONGEST:]
    except (OSError, ValueError):  # it cannot be kept; then the place has to do
        return str(folder)[-LONGEST:]


def _write_once(file: Path, text: str) -> None:
    """Whole, and by the first of several who try."""
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    aside.write_text(f"{text}\n", encoding="utf-8")
    with suppress(FileExistsError):
        os.link(aside, file)
    aside.unlink()


def sign(office: Office, agent: str, home: str, signed: str, *, left: bool = False) -> None:
    """This gateway is there, or leaves."""
    now = office.now().wall
    key = _key(agent, home, signed)
    sign = Gateway(home=home, signed=signed, at=now, left=left)

    def plan() -> Sequence[Write]:
        return [put_record(GATEWAY, key, to_plain(sign), find_record(office, GATEWAY, key), durable=False)]

    office.store.commit(plan)


def forget_old(office: Office, agent: str) -> None:
    """Strike those of whom nothing was heard for long."""
    before = office.now().wall - KEPT

    def plan() -> Sequence[Write]:
        signs = _gateways(office, agent, log.warning)
        return [
            put_record(GATEWAY, record.key, None, record, durable=False)
            for record in office.store.records(GATEWAY)
            if record.key in signs and signs[record.key].at < before
        ]

    office.store.commit(plan)


def gateways_there(office: Office, agent: str) -> int:
    """How many of this agent are there."""
    now = office.now().wall
    return sum(gateway.is_there(now) for gateway in _gateways(office, agent).values())


def is_alone(office: Office, agent: str, home: str, signed: str) -> bool:
    """Is no other gateway of this agent there?"""
    now, own = office.now().wall, _key(agent, home, signed)
    return not any(gateway.is_there(now) for key, gateway in _gateways(office, agent).items() if key != own)


def is_there(office: Office, agent: str, home: str) -> bool:
    """Is a gateway there that has the sessions of this home?"""
    now = office.now().wall
    return any(sign.is_there(now) for sign in _signs_of(office, agent, home))


def is_awaited(office: Office, agent: str, home: str) -> bool:
    """Is one there, or will one be soon?"""
    now = office.now().wall
    return any(sign.is_there(now) or now - sign.at < AWAITED for sign in _signs_of(office, agent, home))


def _signs_of(office: Office, agent: str, home: str) -> list[Gateway]:
    return [gateway for gateway in _gateways(office, agent).values() if gateway.home == home]


def home_of(office: Office, agent: str, signed: str) -> str:
    """Where a gateway lives that signed a claim; empty if that is not known."""
    return next((one.home for one in _gateways(office, agent).values() if one.signed == signed), "")


def _gateways(office: Office, agent: str, tell: Callable[[str], None] | None = None) -> dict[str, Gateway]:
    """The signs that can be read. Another program, or a later version of this one, may have put others there."""
    found: dict[str, Gateway] = {}
    for record in office.store.records(GATEWAY):
        if record.key.startswith(f"{agent} "):
            try:
                found[record.key] = convert(record.value, Gateway)
            except msgspec.ValidationError as wrong:
                if tell is not None:
                    tell(f"mailbox: the sign of a gateway, {record.key!r}, cannot be read and is ignored: {wrong}")
    return found


def _key(agent: str, home: str, signed: str) -> str:
    return f"{agent} {hashlib.sha256(f'{home} {signed}'.encode()).hexdigest()[:32]}"
