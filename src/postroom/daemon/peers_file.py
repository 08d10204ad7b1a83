"""A file of peers, `peers.toml`: a table for each, applied when the daemon starts. The room keeps what is true.

What the file says of a peer holds, and what it leaves out is as by default; whether somebody withdrew trust, what
was pinned and which tokens there are stays as the room has it, unless the file says otherwise. A peer that stood
in the file and is gone from it is removed, and so are all where there is no file any more. One that was added by
hand stays.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from .. import service
from ..errors import Invalid
from ..model.names import fold
from ..model.peer import Peer
from ..service.authorize import OWNER
from ..service.peer_rules import TOKENS, check_peer, check_pin
from ..service.peers import hashed, without_tokens
from ..tls import fingerprint_of_pem, first_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..service.office import Office

NAME = "peers.toml"
_LARGEST = 1_000_000


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a table of the file may hold. Secrets stand in files of their own, beside it."""

    url: str = ""
    auth: str = "bearer"  # which words there are is told by who checks the whole
    token_file: str = ""  # what we show there
    accept_file: str = ""  # what it shows here
    pin: str = ""
    certificate_file: str = ""
    exposure: str = "gateway"  # likewise
    tags: tuple[str, ...] = ()
    scopes: dict[str, tuple[str, ...]] = {}
    relays_for: tuple[str, ...] = ()
    relays_to: bool = False


_AS_SAID = ("url", "auth", "exposure", "tags", "scopes", "relays_for", "relays_to")


def apply(office: Office, path: str, ours: str) -> list[str]:
    """Make the room's peers those of the file; the names of those that changed. All of it, or nothing and why."""
    tables = _read(path) if path else {}
    folder = os.path.dirname(os.path.abspath(path))
    steps = {system: _step(system, said, folder) for system, said in tables.items()}
    made = [_checked(office, path, system, step, ours) for system, step in steps.items()]
    _check_apart(path, made, service.peers.all_peers(office))
    before = service.peers.all_peers(office)
    for system, step in steps.items():
        service.peers.change(office, OWNER, system, step, ours=ours)
    kept = {fold(system) for system in tables}
    for peer in before.values():
        if peer.of_file and fold(peer.system) not in kept:
            service.peers.remove(office, OWNER, peer.system)
    after = service.peers.all_peers(office)
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def _read(path: str) -> dict[str, Said]:
    import tomllib  # noqa: PLC0415 - most have no such file

    try:
        tables = tomllib.loads(_text(path, path, mask=0o022, wrong="others can write it", mode="644"))
    except ValueError as broken:
        raise Invalid(f"cannot be read: {broken}", field=path, hint="mend or remove it") from None
    return {system: _said(path, system, table) for system, table in tables.items()}


def _said(path: str, system: str, table: Any) -> Said:
    if isinstance(table, dict) and "token" in table:
        hint = "token_file = a file that holds it, which only you can read"
        raise Invalid("a token does not stand here", field=f"{path}: {system}.token", hint=hint)
    try:
        return msgspec.convert(table, Said)
    except msgspec.ValidationError as broken:
        hint = f"a table for each peer, with any of {', '.join(Said.__struct_fields__)}"
        raise Invalid(str(broken), field=f"{path}: {system}", hint=hint) from None


def _step(system: str, said: Said, folder: str) -> Callable[[Peer | None], Peer]:
    """From what is known of a peer to what the file says of it."""
    changes: dict[str, Any] = {name: value for name, value in asdict(said).items() if name in _AS_SAID}
    token = _secret(folder, system, said.token_file, "token_file")
    shows = _secret(folder, system, said.accept_file, "accept_file")
    pinned = _pinned(folder, system, said)
    changes |= {"token": token} if token else {}

    def step(held: Peer | None) -> Peer:
        known = held or Peer(system=system)
        known = known if said.auth in TOKENS else without_tokens(known)
        peer = replace(known, **changes, of_file=True)
        if shows and peer.proof != hashed(shows):
            peer = replace(peer, proof=hashed(shows), former_proof="", former_until=None)
        if pinned and pinned["pin"] != peer.pin:
            peer = replace(peer, **pinned, alert="")
        if peer.auth in TOKENS and not (peer.proof or peer.is_dialled):
            hint = f"accept_file = a file that holds it; postroom peers add {system} makes and shows one"
            raise Invalid("what does it show when it calls?", field="accept_file", hint=hint)
        return peer

    return step


def _pinned(folder: str, system: str, said: Said) -> dict[str, str]:
    if said.certificate_file:
        place = _beside(folder, said.certificate_file)
        pem = _text(place, f"{system}.certificate_file", mask=0o022, wrong="others can write it", mode="644")
        pin = fingerprint_of_pem(pem, f"{system}.certificate_file")
        return {"pin": pin, "certificate": first_certificate(pem)}
    return {"pin": check_pin(said.pin, f"{system}.pin"), "certificate": ""} if said.pin else {}


def _secret(folder: str, system: str, name: str, key: str) -> str:
    if not name:
        return ""
    field = f"{system}.{key}"
    text = _text(_beside(folder, name), field, mask=0o077, wrong="others can read it", mode="600").strip()
    if len(text) < 16 or len(text.split()) != 1 or not text.isascii():
        raise Invalid("is no token", field=field, hint="one line of at least 16 ASCII characters without blanks")
    return text


def _text(path: str, field: str, *, mask: int, wrong: str, mode: str) -> str:
    """The text of a file that only its owner has a hand in."""
    try:
        with open(path, encoding="utf-8") as file:
            state = os.fstat(file.fileno())
            if state.st_uid not in {os.geteuid(), 0} or state.st_mode & mask:
                raise Invalid(f"{path}: {wrong}", field=field, hint=f"chmod {mode}, and own it")
            return file.read(_LARGEST)
    except (OSError, UnicodeDecodeError) as broken:
        raise Invalid(f"{path} cannot be read: {broken}", field=field, hint="mend or remove it") from None


def _beside(folder: str, name: str) -> str:
    return os.path.join(folder, os.path.expanduser(name))


def _check_apart(path: str, made: Sequence[Peer], held: Mapping[str, Peer]) -> None:
    """Two tables for one system would leave one of them unheeded, and two systems with one token could each be the
    other.
    """
    named: dict[str, Peer] = {}
    for peer in made:
        if fold(peer.system) in named:
            hint = "case does not count"
            raise Invalid("stands here twice", field=f"{path}: {peer.system}", hint=hint)
        named[fold(peer.system)] = peer
    shown: dict[str, str] = {}
    for peer in ({fold(peer.system): peer for peer in held.values()} | named).values():
        other = shown.setdefault(peer.proof, peer.system) if peer.proof else peer.system
        if other != peer.system:
            hint = "a token of its own for each system"
            raise Invalid(f"{other!r} shows the same token", field=f"{path}: {peer.system}.accept_file", hint=hint)


def _checked(office: Office, path: str, system: str, step: Callable[[Peer | None], Peer], ours: str) -> Peer:
    """Before anything is written. An error names the table as well."""
    try:
        return check_peer(step(service.peers.peer(office, system)), ours)
    except Invalid as wrong:
        wrong.field = f"{path}: {system}.{wrong.field}"
        raise
