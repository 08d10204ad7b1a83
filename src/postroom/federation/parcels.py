"""One letter to all that it is for at one system, as it is put on a line. On the desk's threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from .. import service
from ..model.address import ANYWHERE, Address, parse_address, system_of
from ..model.codec import encode
from ..model.message import Message, same_name
from ..model.query import Found
from ..wire.federation import envelope_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from ..service.office import Office
    from ..wire.federation_problems import Refusal

FEW = 16  # letters looked up in a moment
MOST = 512  # letters looked up at once
AROUND = 1024  # bytes that stand around an envelope, and those that say behind which letter each goes
LARGEST = 8 * 1024 * 1024  # bytes of letters that wait to be put on a line, and one letter more


class Way(Struct, frozen=True, kw_only=True):
    """By whom letters go."""

    system: str
    bars: Callable[[Found], bool]  # did it refuse this one, which may go elsewhere?
    is_ours: bool  # is it a post room, too?

    def takes(self, found: Found) -> bool:
        """Not what another one may have by now, and not what it refused."""
        holder = found.delivery.given_to
        return (not holder or same_name(holder, self.system)) and not self.bars(found)


class Parcel(Struct, frozen=True, kw_only=True):
    """A letter, and its deliveries that go there together."""

    id: str  # of the letter, as it is known where it was written
    letter: Message
    system: str
    found: tuple[Found, ...]
    targets: tuple[Address, ...]  # of each delivery: who it is for
    envelope: Raw

    @property
    def key(self) -> tuple[str, str]:
        """No other parcel is for the first of them, too."""
        return self.letter.id, self.found[0].delivery.mailbox

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Between whom the order is kept."""
        return [(self.letter.sender, found.delivery.mailbox) for found in self.found]

    @property
    def size(self) -> int:
        return memoryview(self.envelope).nbytes

    @property
    def is_free(self) -> bool:
        """Could it as well go to another system, and was not given to any?"""
        return any(_is_sought(one) and not one.delivery.given_to for one in self.found)

    def all_refused(self, refusal: Refusal) -> dict[str, Refusal]:
        return {target.agent: refusal for target in self.targets}


def next_parcels(office: Office, here: str, waiting: Mapping[str, str], most: int, way: Way) -> list[Parcel]:
    """What goes next to these mailboxes, each at a system, in order of acceptance; so many letters at most."""
    together: dict[tuple[str, str, tuple[bool, str]], list[Found]] = {}
    for found in service.outbox.next_letters(office, list(waiting), most, way.takes):
        system = waiting[found.delivery.mailbox]
        together.setdefault((found.message.id, system, _company(found)), []).append(found)
    parcels: list[Parcel] = []
    size, now = 0, office.now().wall
    for (_, system, _), some in together.items():
        parcels.append(_parcel(office, here, system, some, way, now))
        size += parcels[-1].size
        if size > LARGEST:
            break
    return parcels


def bundled(parcels: Iterable[Parcel], most: int, largest: int) -> Iterator[list[Parcel]]:
    """In their order, those that go in one call: so many, of so many bytes, but one at least."""
    bundle: list[Parcel] = []
    size = 0
    for parcel in parcels:
        own = parcel.size + AROUND * len(parcel.targets)
        size += own
        if bundle and (len(bundle) == most or size > largest):
            yield bundle
            bundle, size = [], own
        bundle.append(parcel)
    if bundle:
        yield bundle


def _company(found: Found) -> tuple[bool, str]:
    """Who travels together: everybody at a system with nobody else, and nobody with itself in another scope, for
    what becomes of it is told by name.
    """
    address = parse_address(found.delivery.mailbox, "to")
    return bool(address.agent), address.scope


def _parcel(office: Office, here: str, system: str, found: list[Found], way: Way, now: datetime) -> Parcel:
    letter, most = found[0].message, office.limits.federation_hops
    targets = [_target(one.delivery.mailbox, system) for one in found]
    envelope = envelope_of(letter, system, targets, here=here, most_hops=most, now=now, is_ours=way.is_ours)
    return Parcel(
        id=envelope["payload"]["id"],
        letter=letter,
        system=system,
        found=tuple(found),
        targets=tuple(targets),
        envelope=Raw(encode(envelope)),
    )


def _is_sought(found: Found) -> bool:
    return system_of(found.delivery.mailbox) == ANYWHERE


def _target(mailbox: str, system: str) -> Address:
    """Who was to be found has been: at that system."""
    address = parse_address(mailbox, "to")
    return Address(agent=address.agent, system=system) if address.system == ANYWHERE else address
