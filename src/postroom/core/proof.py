"""The person decides: what is done in a person's name counts only with that person's key (G12).

`check_person` stands beside `authorize` in `verb.py`: an act in a person's mailbox that `authorize.PROVEN` lists
needs a proof, whether the person has a key yet or not. In this process the caller's principal has a signer. Over a
wire the request carries a proof of its own, which is good for a minute and for one use. A letter is signed when it
is composed; without a signer an answer is refused, and any other letter in a person's name stays unproven.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError
from msgspec.structs import replace

from ..errors import Invalid, NotAllowed
from ..model.codec import convert
from ..model.message import Proof, same_name
from ..model.names import PEOPLE, fold, meant
from ..model.record import EVERYONE, IDENTITY, NONCES, PERSON, names_of_key
from ..policy.limits import people_of
from ..store.protocol import spelt
from .core import change_record, find_value, values_of
from .names import current_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from ..model.message import Message
    from ..model.person import PersonKey, RequestProof
    from .authorize import Principal
    from .core import Core

    class Signer(Protocol):
        """The private key of a person at this machine. It is read from its file when it is first needed."""

        def key_for(self, core: Core, person: str) -> PersonKey:
            """Return the key as this room knows it, or raise NotAllowed: it is no key of this person here."""

        def sign(self, content: bytes) -> str: ...

        def may_sign(self, core: Core, person: str) -> bool:
            """Return whether this is no agent's session."""
            ...

        def is_one_of(self, core: Core, keys: Sequence[PersonKey]) -> bool: ...


HINT = "a person answers at a terminal: postroom inbox, postroom reply (docs/people.md)"
_SHAPE = "an object with key, at (a time with its zone), nonce and signature"
LOOK_EVERY = 1.0  # seconds between two looks for people whom no setting names


def room_id(core: Core) -> str:
    """Return the identity of the room, which proofs name; empty where nobody has a key."""
    return find_value(core, IDENTITY, EVERYONE, str) or ""


def is_person(core: Core, name: str) -> bool:
    """Return whether a mailbox is a person's: by the settings, or because the room holds a key of theirs.

    The keys count, so that no process can make a person an agent by other settings.
    """
    if monotonic() >= core.people.look_at:  # in place: every send, claim and ack passes here
        _look_for_people(core)
    return fold(name) in core.people.names


def people_names(core: Core) -> frozenset[str]:
    """Return the folded names of the mailboxes of people, as they were a second ago or later."""
    if monotonic() >= core.people.look_at:
        _look_for_people(core)
    return core.people.names


def _look_for_people(core: Core) -> None:
    """Read the names of people anew, by the settings and by the keys in the room."""
    keys = [name for record in core.store.records(PERSON) for name in names_of_key(record.value)]
    core.people.names = frozenset(map(fold, (*PEOPLE, *people_of(core.limits), *keys)))
    core.people.look_at = monotonic() + LOOK_EVERY


def own_name(core: Core, name: str) -> str:
    """Return the mailbox that a name stands for.

    A person's mailbox has several names, and nobody takes one of them by spelling it in another way.
    """
    if fold(name) not in core.people.names:
        return name
    wanted = meant(name, core.limits.human)
    wanted = next((one for one in people_of(core.limits) if same_name(one, wanted)), wanted)
    return spelt(core.store, wanted)


def is_unproven(core: Core, message: Message) -> bool:
    """Return whether a letter is in a person's name, also a former one, without proof: it settles nothing."""
    if message.proof is not None:
        return False
    return is_person(core, message.sender) or is_person(core, current_name(core, message.sender))


def check_person(core: Core, principal: Principal, mailbox: str, phrase: str) -> None:
    """Raise NotAllowed unless the caller proves to be the person whose mailbox this is."""
    if _is_proven(principal, mailbox):
        return
    if principal.signer is None:
        raise NotAllowed(f"only {mailbox} may {phrase} in this mailbox, with a person's key", hint=HINT)
    principal.signer.key_for(core, mailbox)


def is_own_reader(core: Core, principal: Principal, mailbox: str) -> bool:
    """Return whether a letter that is looked at counts as read: for a person's mail, where the person looks."""
    if not is_person(core, mailbox) or _is_proven(principal, mailbox):
        return True
    return principal.signer is not None and principal.signer.may_sign(core, mailbox)


def sign_letter(core: Core, principal: Principal, message: Message) -> Message:
    """Return a letter in a person's name with its proof, or without one if it is no answer."""
    sender = message.sender
    if _is_proven(principal, sender) and principal.proven is not None:
        # Such a proof can be checked once, by us: it means nothing where other programs write letters.
        if core.store.vouches:
            return replace(message, proof=principal.proven[1])
        if message.in_reply_to is not None:
            raise NotAllowed("in mail folders no signed request proves an answer", hint=HINT)
        return message
    if principal.signer is not None:
        from ..model.person import signed_letter  # noqa: PLC0415 - only for people

        key = principal.signer.key_for(core, sender)
        signature = principal.signer.sign(signed_letter(message, room_id(core)))
        return replace(message, proof=Proof(key=key.id, signature=signature, room=room_id(core)))
    if message.in_reply_to is not None:
        raise NotAllowed(f"only {sender} may answer in this name, with a person's key", hint=HINT)
    return replace(message, proven=False)  # a token proves no person


def _is_proven(principal: Principal, mailbox: str) -> bool:
    return principal.proven is not None and same_name(principal.proven[0], mailbox)


# -- requests over a wire


def sign_request(
    core: Core, signer: Signer, person: str, method: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of a request over a wire with the proof that this person makes it."""
    from ..model.person import signed_request  # noqa: PLC0415 - only for people

    key, at, nonce = signer.key_for(core, person), core.now().wall, core.ids.token()
    signature = signer.sign(signed_request(method, params, room_id(core), at, nonce))
    return {**params, "proof": {"key": key.id, "at": at.isoformat(), "nonce": nonce, "signature": signature}}


def prove_request(core: Core, principal: Principal, method: str, params: Mapping[str, Any]) -> Principal:
    """Return the principal with the person who signed this request; raise if its proof is wrong, old or used."""
    from ..model.person import FRESH, PersonKey, RequestProof, is_signed, signed_request  # noqa: PLC0415

    try:
        shown: RequestProof = convert(params["proof"], RequestProof)
    except ValidationError as broken:
        raise Invalid(f"is no proof of a request: {broken}", field="proof", hint=_SHAPE) from None
    key = values_of(core, PERSON, PersonKey).get(shown.key)
    rest = {name: value for name, value in params.items() if name != "proof"}
    now, room = core.now().wall, room_id(core)
    age = abs((now - shown.at).total_seconds()) if shown.at.tzinfo else FRESH + 1
    wrong = NotAllowed(
        "the proof is not good for this request", field="proof", hint="sign it anew for each request"
    )
    if key is None or not key.is_live or age > FRESH:
        raise wrong
    if not is_signed(key.key, shown.signature, signed_request(method, rest, room, shown.at, shown.nonce)):
        raise wrong

    def used(nonces: dict[str, datetime] | None) -> dict[str, datetime]:
        kept = {one: at for one, at in (nonces or {}).items() if at > now - timedelta(seconds=3 * FRESH)}
        if shown.nonce in kept:
            raise wrong
        return {**kept, shown.nonce: now}

    change_record(core, NONCES, EVERYONE, dict[str, datetime], used)
    proof = Proof(key=key.id, signature=shown.signature, over="request")
    return replace(principal, proven=(key.person, proof))
