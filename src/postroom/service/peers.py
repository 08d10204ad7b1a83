"""Other systems: the allow-list, and proof of who they are. Whoever is not in it is nobody.

A peer shows a token that was made here, told once and kept as a hash; or a certificate, which is pinned. What we
show there is kept as it is, in the room alone. After a rotation the old token is good until the new one was shown
for the first time, or for a day.
"""

from __future__ import annotations

import hmac
import os
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import Missing, NotAllowed
from ..model.codec import convert, to_plain
from ..model.names import check_name, fold
from ..model.peer import Peer
from ..model.record import PEER
from .authorize import authorize
from .peer_rules import TOKENS, check_peer
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

PREFIX = "prp"
GRACE = timedelta(days=1)  # for which a token is good beside the one that follows it, at most
_LONGEST = 500  # characters of a credential that is looked at
_NO_PROOF = "0" * 64


def all_peers(office: Office) -> dict[str, Peer]:
    """By name, in the order of their names."""
    found = [convert(record.value, Peer) for record in office.store.records(PEER)]
    return {one.system: one for one in sorted(found, key=lambda one: fold(one.system))}


def everyone(office: Office, caller: Principal) -> list[Peer]:
    """The same, for who asks."""
    authorize(caller, "peers")
    return list(all_peers(office).values())


def peer(office: Office, system: str) -> Peer | None:
    """The one of this name, however it is spelt."""
    held = find_record(office, PEER, fold(system))
    return None if held is None else convert(held.value, Peer)


def known_peer(office: Office, system: str) -> Peer:
    """The same, or Missing."""
    found = peer(office, check_name(system, "system"))
    if found is None:
        raise Missing(f"there is no peer {system!r}", field="system", hint="postroom peers list shows all")
    return found


def put(office: Office, caller: Principal, given: Peer, *, ours: str = "") -> Peer:
    """Keep this in the place of what was known. `ours` is what we are called: nobody is a peer of itself."""
    return change(office, caller, given.system, lambda _: given, ours=ours)


def change(
    office: Office, caller: Principal, system: str, step: Callable[[Peer | None], Peer], *, ours: str = ""
) -> Peer:
    """What becomes of a peer (None: it is new), with nobody in between."""
    authorize(caller, "peers")
    key = fold(check_name(system, "system"))
    kept: list[Peer] = []

    def plan() -> Sequence[Write]:
        held = find_record(office, PEER, key)
        before = None if held is None else convert(held.value, Peer)
        after = check_peer(_without_old(before, step(before)), ours)
        kept[:] = [after]
        return [] if after == before else [put_record(PEER, key, to_plain(after), held)]

    office.store.commit(plan)
    return kept[0]


def add(
    office: Office, caller: Principal, system: str, said: Mapping[str, Any], *, ours: str = ""
) -> tuple[str, Peer]:
    """A peer, or what is new about one: what is not said stays as it was. With it comes the token that it is to
    show here, told once; empty where it has one already or needs none.
    """
    fresh = _fresh_token()
    made: list[str] = []

    if said.get("exposure", "tagged") != "tagged":
        said = {"tags": (), **said}  # they say nothing any more

    def step(before: Peer | None) -> Peer:
        after = replace(before, **said) if before else Peer(system=system, **said)
        made[:] = [fresh] if _needs_proof(after) else []
        return replace(after, proof=hashed(fresh)) if made else after

    kept = change(office, caller, system, step, ours=ours)
    return (made[0] if made else ""), kept


def without_tokens(peer: Peer) -> Peer:
    return replace(peer, token="", proof="", former_proof="", former_until=None)


def _without_old(before: Peer | None, after: Peer) -> Peer:
    """Tokens that were agreed on are gone where each proves itself otherwise now."""
    is_old = before is not None and (before.token, before.proof) == (after.token, after.proof)
    return without_tokens(after) if is_old and after.auth not in TOKENS else after


def rotate(office: Office, caller: Principal, system: str) -> tuple[str, Peer]:
    """Another token for a peer to show here, told once. The old one is good until this one was shown, or a day."""
    fresh = _fresh_token()

    def step(before: Peer | None) -> Peer:
        if before is None:
            return known_peer(office, system)
        until = office.now().wall + GRACE if before.proof else None
        return replace(before, proof=hashed(fresh), former_proof=before.proof, former_until=until)

    return fresh, change(office, caller, system, step)


def remove(office: Office, caller: Principal, system: str) -> Peer:
    """It is nobody from now on. Mail that waits for it stays, and dies of its age."""
    authorize(caller, "peers")
    key = fold(check_name(system, "system"))
    gone: list[Peer] = []

    def plan() -> Sequence[Write]:
        gone[:] = [known_peer(office, system)]
        return [put_record(PEER, key, None, find_record(office, PEER, key))]

    office.store.commit(plan)
    return gone[0]


# -- who calls


def proven_peer(office: Office, system: Any, credential: Any, *, certificate: str = "") -> Peer:
    """The peer that calls itself so and proves it: by a token, or by the certificate of the connection itself,
    whose fingerprint the TLS layer tells (never the caller). Whatever is wrong, the answer is the same; only of a
    certificate that changed it is told, and kept.
    """
    found = peer(office, system) if isinstance(system, str) and len(system) <= _LONGEST else None
    is_right = _is_proven(office, found, credential, certificate)
    if found is None or not is_right or not found.trusted:
        told = "this system is no peer here, or did not prove that it is"
        raise NotAllowed(told, field="auth", hint="its operator: postroom peers add, peers trust")
    if certificate:
        check_certificate(office, found, certificate)
    if found.former_proof and _shows(credential, found.proof):
        return _without_former(office, found)
    return found


def check_certificate(office: Office, found: Peer, fingerprint: str) -> None:
    """Is it the certificate that was pinned? Another one is refused, and told of until somebody trusts it anew."""
    if not found.pin or hmac.compare_digest(found.pin, fingerprint):
        return
    _keep(office, found.system, lambda now: replace(now, alert=fingerprint))
    told = f"the certificate of {found.system!r} has changed: it is {fingerprint}, pinned is {found.pin}"
    hint = f"if its operator changed it: postroom peers trust {found.system}; else somebody stands in between"
    raise NotAllowed(told, field="certificate", hint=hint)


def hashed(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _is_proven(office: Office, found: Peer | None, credential: Any, certificate: str) -> bool:
    if found is None:
        _shows(credential, _NO_PROOF)  # as long as for one that is there
        return False
    if found.auth == "none":
        return True
    if found.auth == "mtls":
        return bool(found.pin) and bool(certificate)  # whether it is the right one is told by name
    is_former = found.former_until is not None and office.now().wall < found.former_until
    right = _shows(credential, found.proof or _NO_PROOF)
    return right or (is_former and _shows(credential, found.former_proof))


def _shows(credential: Any, proof: str) -> bool:
    if not isinstance(credential, str) or len(credential) > _LONGEST or not credential.isascii():
        return False
    return hmac.compare_digest(hashed(credential), proof)


def _without_former(office: Office, found: Peer) -> Peer:
    """The new token was shown: the one before is worth nothing now."""
    ended = _keep(office, found.system, lambda now: replace(now, former_proof="", former_until=None))
    return ended or found


def _keep(office: Office, system: str, step: Callable[[Peer], Peer]) -> Peer | None:
    """A change that the house makes by itself; None where the peer is gone meanwhile."""
    kept: list[Peer] = []

    def plan() -> Sequence[Write]:
        held = find_record(office, PEER, fold(system))
        if held is None:
            return []
        before = convert(held.value, Peer)
        kept[:] = [step(before)]
        return [] if kept[0] == before else [put_record(PEER, fold(system), to_plain(kept[0]), held)]

    office.store.commit(plan)
    return kept[0] if kept else None


def _needs_proof(after: Peer) -> bool:
    """One that dials us must show something. One that we dial shows its certificate, and needs no more."""
    return not after.proof and not after.is_dialled and not after.is_mount and after.auth in TOKENS


def _fresh_token() -> str:
    return f"{PREFIX}_{os.urandom(32).hex()}"
